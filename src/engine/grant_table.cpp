#include "engine/grant_table.hpp"

#include <fmt/format.h>

namespace doorbuster::engine {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::to_micros;
using common::to_string;

std::string holding_list(const GrantTable& table) {
  std::string list;
  for (const std::string& state : table.holding) {
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", state);
  }
  return list;
}

Result<bool> change_state(db::Session& session, const GrantTable& table, const GrantId& id,
                          std::string_view from, std::string_view to, std::string_view reason,
                          Instant now) {
  const std::string update = fmt::format(
      "UPDATE {} SET state = $1, held_back_by = NULL, held_back_until = NULL, updated_at = $2 "
      "WHERE id = $3 AND state = $4",
      table.table);
  const Result<std::int64_t> changed =
      session.execute(update, {to, to_micros(now), db::param(id), from});
  if (!changed) return fail(changed.error());
  if (*changed == 0) return false;
  const std::string history = fmt::format(
      "INSERT INTO {} (order_id, to_state, from_state, reason, at) VALUES ($1, $2, $3, $4, $5)",
      table.history);
  const db::Param why = reason.empty() ? db::Param{nullptr} : db::Param{reason};
  const Result<std::int64_t> written =
      session.execute(history, {db::param(id), to, from, why, to_micros(now)});
  if (!written) return fail(written.error());
  return true;
}

Result<SequenceNumber> next_number(db::Session& session, ScopeId scope, std::int32_t shard) {
  const std::string name = to_string(scope);
  const Result<db::Rows> rows = session.query(
      "UPDATE engine_shard SET last_number = last_number + 1 WHERE scope = $1 AND shard = $2 "
      "RETURNING last_number",
      {name, std::int64_t{shard}});
  if (!rows) return fail(rows.error());
  if (rows->empty()) return fail(ErrorCode::kCorrupt, "no shard row for scope " + name);
  return SequenceNumber{rows->front().integer(0)};
}

Result<Done> write_step(db::Session& session, ScopeId scope, std::int32_t shard,
                        const SequenceEntry& step, Instant now) {
  static constexpr std::string_view kNames[] = {"RETURN", "DEPARTURE", "LOAD"};
  const std::string scope_name = to_string(scope);
  const std::string allotment = to_string(step.allotment);
  const Result<std::int64_t> written = session.execute(
      "INSERT INTO outbox (scope, shard, number, kind, grant_id, allotment, member, slot, "
      "created_at) "
      "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
      {scope_name, std::int64_t{shard}, step.number.value(),
       kNames[static_cast<std::size_t>(step.kind)], db::param(step.grant), allotment,
       step.member.value(), std::int64_t{step.slot.value()}, to_micros(now)});
  if (!written) return fail(written.error());
  return Done{};
}

Result<bool> move_sold(db::Session& session, const GrantTable& table, AllotmentId allotment,
                       std::int64_t change, Instant now) {
  const std::string sql = fmt::format(
      "UPDATE {} SET sold = sold + $1, updated_at = $2 WHERE allotment = $3", table.allotments);
  const std::string name = to_string(allotment);
  const Result<std::int64_t> changed = session.execute(sql, {change, to_micros(now), name});
  if (changed) return true;
  if (changed.error().code == ErrorCode::kConflict) return false;
  return fail(changed.error());
}

Result<bool> end_grant(db::Session& session, const GrantTable& table, const GrantId& id,
                       std::string_view from, std::string_view to, std::string_view reason,
                       Instant now) {
  const std::string find = fmt::format(
      "SELECT scope, shard, allotment, member, slot FROM {} WHERE id = $1 AND state = $2",
      table.table);
  const Result<db::Rows> rows = session.query(find, {db::param(id), from});
  if (!rows) return fail(rows.error());
  if (rows->empty()) return false;
  const db::Row& row = rows->front();
  const auto scope = common::parse_scope_id(row.text(0));
  const auto allotment = common::parse_allotment_id(row.text(2));
  if (!scope || !allotment) return fail(ErrorCode::kCorrupt, "unreadable scope or allotment");
  const auto shard = static_cast<std::int32_t>(row.integer(1));

  const Result<bool> changed = change_state(session, table, id, from, to, reason, now);
  if (!changed || !*changed) return changed;

  SequenceEntry step;
  step.kind = SequenceKind::kReturn;
  step.grant = id;
  step.allotment = *allotment;
  step.member = MemberId{row.integer(3)};
  step.slot = Slot{static_cast<std::int32_t>(row.integer(4))};
  const Result<SequenceNumber> number = next_number(session, *scope, shard);
  if (!number) return fail(number.error());
  step.number = *number;
  const Result<Done> written = write_step(session, *scope, shard, step, now);
  if (!written) return fail(written.error());

  // A counter that refuses is an alarm for the watch and verify, never a reason to keep a unit.
  const Result<bool> moved = move_sold(session, table, *allotment, -1, now);
  if (!moved) return fail(moved.error());
  return true;
}

}  // namespace doorbuster::engine

#include "payment/attempt_store.hpp"

#include <fmt/format.h>

namespace doorbuster::payment {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::to_micros;

constexpr std::string_view kStates[] = {"OPEN", "UNKNOWN", "APPROVED", "DECLINED", "CANCELED"};

Result<std::vector<Attempt>> read_attempts(const Result<db::Rows>& rows) {
  if (!rows) return fail(rows.error());
  std::vector<Attempt> list;
  for (const db::Row& row : *rows) {
    const auto currency = common::parse_currency(row.text(3));
    if (!currency) return fail(ErrorCode::kCorrupt, "unreadable currency " + row.text(3));
    list.push_back({row.grant_id(0), row.grant_id(1), {row.integer(2), *currency}});
  }
  return list;
}

Result<Done> done(const Result<std::int64_t>& changed) {
  if (!changed) return fail(changed.error());
  return Done{};
}

}  // namespace

std::string_view to_string(AttemptState state) noexcept {
  return kStates[static_cast<std::size_t>(state)];
}

Result<Done> insert_attempt(db::Session& session, const Attempt& attempt,
                            std::string_view card_last4, common::Instant now) {
  return done(session.execute(
      "INSERT INTO payment_attempt (id, order_id, amount, currency, card_last4, state, created_at, "
      "updated_at) VALUES ($1, $2, $3, $4, $5, 'OPEN', $6, $6)",
      {db::param(attempt.id), db::param(attempt.order), attempt.amount.amount,
       attempt.amount.currency.text(), card_last4, to_micros(now)}));
}

Result<bool> decide_attempt(db::Session& session, const AttemptId& id, AttemptState to,
                            common::Instant now) {
  const Result<std::int64_t> changed = session.execute(
      "UPDATE payment_attempt SET state = $1, updated_at = $2 WHERE id = $3 "
      "AND state IN ('OPEN', 'UNKNOWN')",
      {to_string(to), to_micros(now), db::param(id)});
  if (!changed) return fail(changed.error());
  return *changed == 1;
}

Result<std::vector<Attempt>> undecided_attempts(db::Session& session, std::int64_t limit) {
  return read_attempts(
      session.query("SELECT id, order_id, amount, currency FROM payment_attempt WHERE state IN "
                    "('OPEN', 'UNKNOWN') "
                    "ORDER BY id LIMIT $1",
                    {limit}));
}

Result<std::optional<Attempt>> approved_attempt(db::Session& session,
                                                const common::GrantId& order) {
  Result<std::vector<Attempt>> list = read_attempts(session.query(
      "SELECT a.id, a.order_id, a.amount, a.currency FROM payment_attempt a LEFT JOIN refund r "
      "ON r.attempt_id = a.id WHERE a.order_id = $1 AND a.state = 'APPROVED' ORDER BY r.attempt_id "
      "IS NOT NULL, a.id LIMIT 1",
      {db::param(order)}));
  if (!list) return fail(std::move(list.error()));
  if (list->empty()) return std::optional<Attempt>{};
  return std::optional<Attempt>{list->front()};
}

Result<bool> want_refund(db::Session& session, const AttemptId& id, std::int64_t amount,
                         std::string_view reason, common::Instant now) {
  const Result<std::int64_t> made = session.execute(
      "INSERT INTO refund (attempt_id, amount, reason, state, created_at, updated_at) "
      "VALUES ($1, $2, $3, 'WANTED', $4, $4) ON CONFLICT DO NOTHING",
      {db::param(id), amount, reason, to_micros(now)});
  if (!made) return fail(made.error());
  return *made == 1;
}

Result<Done> refund_done(db::Session& session, const AttemptId& id, common::Instant now) {
  return done(
      session.execute("UPDATE refund SET state = 'DONE', updated_at = $1 WHERE attempt_id = $2 AND "
                      "state = 'WANTED'",
                      {to_micros(now), db::param(id)}));
}

Result<std::vector<AttemptId>> wanted_refunds(db::Session& session, std::int64_t limit) {
  const Result<db::Rows> rows = session.query(
      "SELECT attempt_id FROM refund WHERE state = 'WANTED' ORDER BY created_at LIMIT $1", {limit});
  if (!rows) return fail(rows.error());
  std::vector<AttemptId> list;
  for (const db::Row& row : *rows) list.push_back(row.grant_id(0));
  return list;
}

}  // namespace doorbuster::payment

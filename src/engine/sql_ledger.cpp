#include "engine/sql_ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "common/log.hpp"
#include "engine/rules.hpp"

namespace doorbuster::engine {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::from_micros;
using common::Result;
using common::Task;
using common::to_micros;
using common::to_string;

constexpr std::int64_t kShard = 0;
constexpr std::string_view kAbandoned = "ABANDONED";

std::int32_t to_int32(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Every statement, put together once.
struct Sql {
  explicit Sql(const GrantTable& t)
      : insert(fmt::format(
            "INSERT INTO {} (id, allotment, scope, shard, epoch, member, slot, slot_limit, nth, "
            "per_member, member_key, state, amount, recorded_at, expires_at, due_at, updated_at) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '{}', $12, $13, $14, $15, $13) "
            "ON CONFLICT DO NOTHING",
            t.table, t.hold)),
        first_history(fmt::format("INSERT INTO {} (order_id, to_state, from_state, reason, at) "
                                  "VALUES ($1, '{}', NULL, NULL, $2)",
                                  t.history, t.hold)),
        by_id(fmt::format("SELECT state IN ({}), slot, nth, CASE WHEN state = '{}' THEN due_at "
                          "END, merged_into FROM {} WHERE id = $1",
                          holding_list(t), t.hold, t.table)),
        by_slot(fmt::format(
            "SELECT id, member FROM {} WHERE allotment = $1 AND slot = $2 AND state IN ({})",
            t.table, holding_list(t))),
        by_member(fmt::format("SELECT id, nth FROM {} WHERE scope = $1 AND member = $2 AND state "
                              "IN ({}) ORDER BY nth",
                              t.table, holding_list(t))),
        by_key(fmt::format(
            "SELECT id FROM {} WHERE allotment = $1 AND member = $2 AND member_key = $3 "
            "AND state <> '{}'",
            t.table, t.rejected)),
        reject(fmt::format(
            "INSERT INTO {} (id, allotment, scope, shard, epoch, member, slot, slot_limit, nth, "
            "per_member, "
            "member_key, state, reason, merged_into, amount, recorded_at, expires_at, due_at, "
            "updated_at) "
            "SELECT $1, a.allotment, a.scope, $2, $3, $4, NULL, a.quantity, NULL, a.per_member, "
            "$5, '{}', "
            "$6, $7, $8, $9, $10, $11, $9 FROM {} a WHERE a.allotment = $12 ON CONFLICT DO NOTHING",
            t.table, t.rejected, t.allotments)),
        reject_history(fmt::format("INSERT INTO {} (order_id, to_state, from_state, reason, at) "
                                   "VALUES ($1, '{}', NULL, $2, $3)",
                                   t.history, t.rejected)),
        shard_of_rows(fmt::format(
            "SELECT id, allotment, member, slot, nth, member_key, recorded_at, expires_at, "
            "CASE WHEN state = '{}' THEN due_at END, epoch FROM {} WHERE allotment = $1 AND state "
            "IN ({})",
            t.hold, t.table, holding_list(t))),
        one_row(fmt::format("SELECT nth, member_key, recorded_at, expires_at, CASE WHEN state = "
                            "'{}' THEN due_at END, slot, "
                            "epoch, allotment FROM {} WHERE id = $1 AND state IN ({})",
                            t.hold, t.table, holding_list(t))),
        allotments(fmt::format(
            "SELECT a.allotment, a.quantity, coalesce((SELECT max(l.last_slot) FROM engine_lease l "
            "WHERE l.allotment = a.allotment AND l.shard = 0), 0), a.sold, "
            "coalesce((SELECT max(l.number) FROM engine_lease l WHERE l.allotment = a.allotment "
            "AND l.shard = 0), 0) FROM {} a WHERE a.scope = $1 ORDER BY a.id",
            t.allotments)),
        leases(fmt::format(
            "SELECT l.allotment, l.number, l.first_slot, l.last_slot FROM {} a CROSS JOIN "
            "engine_lease l ON l.allotment = a.allotment WHERE a.scope = $1 AND l.shard = 0 "
            "ORDER BY a.id, l.number",
            t.allotments)),
        lease(fmt::format(
            "INSERT INTO engine_lease (allotment, shard, number, first_slot, last_slot) "
            "SELECT a.allotment, 0, $1, l.last_slot + 1, min(a.quantity, l.last_slot + $2) "
            "FROM {} a JOIN engine_lease l ON l.allotment = a.allotment AND l.shard = 0 AND "
            "l.number = $1 - 1 WHERE a.scope = $3 AND a.allotment = $4 AND l.last_slot < "
            "a.quantity "
            "ON CONFLICT DO NOTHING",
            t.allotments)),
        counts(fmt::format("SELECT count(*), count(CASE WHEN state = '{}' THEN 1 END) FROM {} "
                           "WHERE allotment = $1 AND state IN ({})",
                           t.hold, t.table, holding_list(t))),
        due(fmt::format(
            "SELECT o.id, o.scope FROM engine_shard s CROSS JOIN {} a ON a.scope = s.scope "
            "CROSS JOIN {} o ON o.allotment = a.allotment WHERE s.state <> 'SETTLED' "
            "AND o.state = '{}' AND o.due_at <= $1 "
            "AND (o.held_back_by IS NULL OR o.held_back_until <= $2) LIMIT $3",
            t.allotments, t.table, t.hold)),
        close(
            fmt::format("UPDATE engine_shard SET state = 'CLOSED', epoch = epoch + 1 WHERE epoch = "
                        "$1 AND last_number = $2 AND scope = $3 AND shard = 0 AND state = 'OPEN' "
                        "AND {}",
                        no_hold(t))),
        settle(
            fmt::format("UPDATE engine_shard SET state = 'SETTLED', min_epoch = epoch WHERE scope "
                        "= $1 AND shard = 0 AND state = 'CLOSED' AND {}",
                        no_hold(t))),
        recount(fmt::format("UPDATE {0} SET sold = (SELECT count(*) FROM {1} o WHERE o.allotment = "
                            "{0}.allotment AND o.state IN ({2})) WHERE scope = $1",
                            t.allotments, t.table, holding_list(t))) {}

  const std::string insert, first_history, by_id, by_slot, by_member, by_key, reject,
      reject_history, shard_of_rows, one_row, allotments, leases, lease, counts, due, close, settle,
      recount;

 private:
  static std::string no_hold(const GrantTable& t) {
    return fmt::format(
        "NOT EXISTS (SELECT 1 FROM {} a JOIN {} o ON o.allotment = a.allotment WHERE a.scope = "
        "engine_shard.scope AND o.state = '{}')",
        t.allotments, t.table, t.hold);
  }
};

db::Param text_or_null(const std::string& text) {
  return text.empty() ? db::Param{nullptr} : db::Param{std::string_view(text)};
}

Instant due_or_never(const db::Row& row, std::size_t column) {
  return row.is_null(column) ? kNever : from_micros(row.integer(column));
}

std::string text_or_empty(const db::Row& row, std::size_t column) {
  return row.is_null(column) ? std::string() : row.text(column);
}

/// One transaction of record(): the rows of a batch, then the counters.
class Recording {
 public:
  Recording(db::Session& session, const GrantTable& table, const Sql& sql, Instant now,
            common::Counter& count_alarms)
      : session_(session), table_(table), sql_(sql), now_(now), count_alarms_(count_alarms) {}

  Result<std::vector<RecordOutcome>> run(const std::vector<Grant>& batch) {
    std::vector<RecordOutcome> outcomes(batch.size());
    // In (allotment, slot) order, so that two batches with crossing slots cannot wait for each
    // other.
    std::vector<std::size_t> order(batch.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(batch[a].allotment, batch[a].slot) <
             std::pair(batch[b].allotment, batch[b].slot);
    });
    for (const std::size_t i : order) {
      Result<RecordOutcome> outcome = record_one(batch[i]);
      if (!outcome) return fail(std::move(outcome.error()));
      outcomes[i] = std::move(*outcome);
    }
    const Result<Done> counted = count_sold();
    if (!counted) return fail(counted.error());
    return outcomes;
  }

  /// For the simulation: without the lock, record knows min_epoch as some earlier reading showed
  /// it.
  void use_old_fences(std::map<ScopeId, Epoch>& old) { old_fences_ = &old; }

  /// Writes a REJECTED row; false when a row is there already. With `returns`, the slot goes back
  /// (S2).
  Result<bool> reject(const Grant& grant, std::string_view reason, bool returns,
                      const std::optional<GrantId>& merged_into = std::nullopt) {
    const std::string allotment = to_string(grant.allotment);
    if (!writes_row(reason)) {
      if (!returns) return true;
      const Result<Done> step = write(grant, SequenceKind::kReturn, grant.id);
      if (!step) return fail(step.error());
      return true;
    }
    const db::Param merged = merged_into ? db::param(*merged_into) : db::Param{nullptr};
    const Result<std::int64_t> made = session_.execute(
        sql_.reject,
        {db::param(grant.id), std::int64_t{grant.shard}, grant.epoch.value(), grant.member.value(),
         text_or_null(grant.key), reason, merged, grant.amount, to_micros(now_),
         to_micros(grant.expires_at), to_micros(grant.expires_at), allotment});
    if (!made) return fail(made.error());
    if (*made == 0) return false;
    const Result<std::int64_t> history =
        session_.execute(sql_.reject_history, {db::param(grant.id), reason, to_micros(now_)});
    if (!history) return fail(history.error());
    if (returns) {
      // A slot that another row holds is not this grant's to give back: only its entry goes.
      const Result<db::Rows> held =
          session_.query(sql_.by_slot, {allotment, std::int64_t{grant.slot.value()}});
      if (!held) return fail(held.error());
      const Result<Done> step =
          write(grant, held->empty() ? SequenceKind::kReturn : SequenceKind::kDeparture, grant.id);
      if (!step) return fail(step.error());
      const Result<Done> loaded = load_others(grant);
      if (!loaded) return fail(loaded.error());
    }
    return true;
  }

 private:
  /// What else its member holds is loaded after the return, since the gate may have passed it over
  /// for the entry that goes now (S3).
  Result<Done> load_others(const Grant& grant) {
    if (!in_force(Rule::kLoadAfterMerge)) return Done{};
    const std::string scope = to_string(grant.scope);
    const Result<db::Rows> mine = session_.query(sql_.by_member, {scope, grant.member.value()});
    if (!mine) return fail(mine.error());
    for (const db::Row& row : *mine) {
      const Result<Done> step = write(grant, SequenceKind::kLoad, row.grant_id(0));
      if (!step) return fail(step.error());
    }
    return Done{};
  }

  /// Only the simulation has a "no" here: a refusal that leaves no row, or a slot given back
  /// without one.
  static bool writes_row(std::string_view reason) {
    return reason == kAbandoned ? in_force(Rule::kOneWayBack) : in_force(Rule::kOneRowPerGrant);
  }

  Result<RecordOutcome> record_one(const Grant& grant) {
    // Twice is enough on one writer; more would mean that something else is wrong.
    for (int attempt = 0; attempt < 3; ++attempt) {
      Result<std::optional<RecordOutcome>> outcome = try_one(grant);
      if (!outcome) return fail(std::move(outcome.error()));
      if (*outcome) return std::move(**outcome);
    }
    return rule_broken(grant, "CONFLICT_UNEXPLAINED");
  }

  /// Nothing: the cause of a conflict is gone, try again.
  Result<std::optional<RecordOutcome>> try_one(const Grant& grant) {
    using Maybe = std::optional<RecordOutcome>;
    const Result<Epoch> fence = min_epoch(grant.scope);
    if (!fence) return fail(fence.error());
    if (grant.epoch >= *fence) {
      const Result<std::int64_t> made = insert(grant, grant.nth);
      if (!made && made.error().code == ErrorCode::kConflict) {
        // A CHECK or the foreign key: the grant's numbers are not those of the allotment's own row.
        // Both are looked at before the id, and a row that is there already decides (S1).
        Result<Maybe> known = find_same(grant.id);
        if (!known || *known) return known;
        Result<RecordOutcome> outcome = rule_broken(grant, "RULE_BROKEN");
        if (!outcome) return fail(std::move(outcome.error()));
        return Maybe{std::move(*outcome)};
      }
      if (!made) return fail(made.error());
      if (*made == 1) return Maybe{recorded(grant, grant.nth)};
    }

    Result<Maybe> same = find_same(grant.id);
    if (!same) return same;
    if (*same) return same;
    if (grant.epoch < *fence) {
      const Result<bool> made = reject(grant, "FENCED", !in_force(Rule::kNoReturnOfFenced));
      if (!made) return fail(made.error());
      return Maybe{RecordOutcome{.kind = RecordKind::kFenced, .reason = "FENCED"}};
    }

    const std::string allotment = to_string(grant.allotment);
    const Result<db::Rows> slot =
        session_.query(sql_.by_slot, {allotment, std::int64_t{grant.slot.value()}});
    if (!slot) return fail(slot.error());
    if (!slot->empty()) {
      // The gate gave it, so it does not know its holder.
      Grant holder = grant;
      holder.member = MemberId{slot->front().integer(1)};
      const Result<Done> step = write(holder, SequenceKind::kLoad, slot->front().grant_id(0));
      if (!step) return fail(step.error());
      return Maybe{RecordOutcome{.kind = RecordKind::kSlotHeld}};
    }

    if (!grant.key.empty()) {
      const Result<db::Rows> key =
          session_.query(sql_.by_key, {allotment, grant.member.value(), grant.key});
      if (!key) return fail(key.error());
      if (!key->empty()) return merge(grant, key->front().grant_id(0));
    }

    const std::string scope = to_string(grant.scope);
    const Result<db::Rows> mine = session_.query(sql_.by_member, {scope, grant.member.value()});
    if (!mine) return fail(mine.error());
    if (mine->size() >= static_cast<std::size_t>(grant.per_member)) {
      return merge(grant, mine->back().grant_id(0));
    }
    std::set<std::int64_t> used;
    for (const db::Row& row : *mine) used.insert(row.integer(1));
    if (used.contains(grant.nth.value())) {
      std::int32_t lowest = 1;
      while (used.contains(lowest)) ++lowest;
      const Result<std::int64_t> made = insert(grant, Nth{lowest});
      if (!made) return fail(made.error());
      if (*made == 1) return Maybe{recorded(grant, Nth{lowest})};
    }
    return Maybe{};
  }

  Result<std::optional<RecordOutcome>> find_same(const GrantId& id) {
    using Maybe = std::optional<RecordOutcome>;
    const Result<db::Rows> rows = session_.query(sql_.by_id, {db::param(id)});
    if (!rows) return fail(rows.error());
    if (rows->empty()) return Maybe{};
    const db::Row& row = rows->front();
    RecordOutcome outcome;
    if (row.integer(0) != 0) {
      outcome.kind = RecordKind::kSameHolds;
      outcome.slot = Slot{to_int32(row.integer(1))};
      outcome.nth = Nth{to_int32(row.integer(2))};
      outcome.due_at = due_or_never(row, 3);
    } else {
      outcome.kind = RecordKind::kSameTerminal;
      if (!row.is_null(4)) outcome.other = row.grant_id(4);
    }
    return Maybe{std::move(outcome)};
  }

  Result<std::int64_t> insert(const Grant& grant, Nth nth) {
    const std::string allotment = to_string(grant.allotment);
    const std::string scope = to_string(grant.scope);
    return session_.execute(
        sql_.insert,
        {db::param(grant.id), allotment, scope, std::int64_t{grant.shard}, grant.epoch.value(),
         grant.member.value(), std::int64_t{grant.slot.value()}, std::int64_t{grant.slot_limit},
         std::int64_t{nth.value()}, std::int64_t{grant.per_member}, text_or_null(grant.key),
         grant.amount, to_micros(now_), to_micros(grant.expires_at), to_micros(due_at(grant))});
  }

  /// Recording time plus the hold's length, never earlier than what was promised (section 9).
  Instant due_at(const Grant& grant) const { return std::max(now_ + grant.hold, grant.expires_at); }

  RecordOutcome recorded(const Grant& grant, Nth nth) {
    history_.push_back(grant.id);
    ++sold_[grant.allotment];
    return RecordOutcome{
        .kind = RecordKind::kRecorded, .slot = grant.slot, .nth = nth, .due_at = due_at(grant)};
  }

  Result<std::optional<RecordOutcome>> merge(const Grant& grant, const GrantId& other) {
    const Result<bool> made = reject(grant, "MERGED", true, other);
    if (!made) return fail(made.error());
    return std::optional{
        RecordOutcome{.kind = RecordKind::kMerged, .other = other, .reason = "MERGED"}};
  }

  Result<RecordOutcome> rule_broken(const Grant& grant, std::string_view reason) {
    const Result<bool> made = reject(grant, reason, true);
    if (!made) return fail(made.error());
    const std::string allotment = to_string(grant.allotment);
    const Result<std::int64_t> letter = session_.execute(
        "INSERT INTO dead_letter (grant_id, allotment, member, reason, created_at) "
        "VALUES ($1, $2, $3, $4, $5)",
        {db::param(grant.id), allotment, grant.member.value(), reason, to_micros(now_)});
    if (!letter) return fail(letter.error());
    return RecordOutcome{.kind = RecordKind::kRuleBroken, .reason = std::string(reason)};
  }

  Result<Done> write(const Grant& grant, SequenceKind kind, const GrantId& about) {
    const Result<SequenceNumber> number = next_number(session_, grant.scope, grant.shard);
    if (!number) return fail(number.error());
    SequenceEntry step;
    step.number = *number;
    step.kind = kind;
    step.grant = about;
    step.allotment = grant.allotment;
    step.member = grant.member;
    step.slot = grant.slot;
    return write_step(session_, grant.scope, grant.shard, step, now_);
  }

  /// History rows and counters last, the counters in id order (section 7).
  Result<Done> count_sold() {
    std::sort(history_.begin(), history_.end());
    for (const GrantId& id : history_) {
      const Result<std::int64_t> written =
          session_.execute(sql_.first_history, {db::param(id), to_micros(now_)});
      if (!written) return fail(written.error());
    }
    for (const auto& [allotment, change] : sold_) {
      const Result<bool> moved = move_sold(session_, table_, allotment, change, now_);
      if (!moved) return fail(moved.error());
      if (!*moved) {
        count_alarms_.add();
        common::log(common::LogLevel::kError, "sold counter refuses although slots are free",
                    {{"allotment", std::string_view(to_string(allotment))}});
      }
    }
    return Done{};
  }

  Result<Epoch> min_epoch(ScopeId scope) {
    const auto known = fences_.find(scope);
    if (known != fences_.end()) return known->second;
    const std::string name = to_string(scope);
    const Result<db::Rows> rows = session_.query(
        "SELECT min_epoch FROM engine_shard WHERE scope = $1 AND shard = $2", {name, kShard});
    if (!rows) return fail(rows.error());
    if (rows->empty()) return fail(ErrorCode::kCorrupt, "no shard row for scope " + name);
    Epoch fence{rows->front().integer(0)};
    if (old_fences_ != nullptr)
      std::swap(fence, old_fences_->try_emplace(scope, fence).first->second);
    return fences_.emplace(scope, fence).first->second;
  }

  db::Session& session_;
  const GrantTable& table_;
  const Sql& sql_;
  const Instant now_;
  common::Counter& count_alarms_;
  std::map<ScopeId, Epoch> fences_;
  std::map<ScopeId, Epoch>* old_fences_ = nullptr;
  std::vector<GrantId> history_;
  std::map<AllotmentId, std::int64_t> sold_;
};

class SqlLedger final : public Ledger {
 public:
  SqlLedger(db::Database& database, common::Executor& home, const common::Clock& clock,
            common::Metrics& metrics, GrantTable table)
      : database_(database),
        home_(home),
        clock_(clock),
        table_(std::move(table)),
        sql_(table_),
        count_alarms_(
            metrics.counter("engine_count_alarms_total",
                            "Batches whose sold counter refused although slots were free")) {}

  Task<Result<std::vector<RecordOutcome>>> record(std::vector<Grant> batch) override {
    using Outcomes = std::vector<RecordOutcome>;
    std::function<Result<Outcomes>(db::Session&)> work =
        [this, batch = std::move(batch)](db::Session& session) -> Result<Outcomes> {
      Recording recording(session, table_, sql_, clock_.now(), count_alarms_);
      if (!in_force(Rule::kFenceLock)) recording.use_old_fences(fences_);
      return recording.run(batch);
    };
    return database_.write<Outcomes>(home_, db::Priority::kRush, std::move(work));
  }

  Task<Result<Epoch>> raise_epoch(NewEpoch wanted) override {
    std::function<Result<Epoch>(db::Session&)> work =
        [wanted = std::move(wanted)](db::Session& session) -> Result<Epoch> {
      const std::string scope = to_string(wanted.rules.id);
      const Result<db::Rows> rows = session.query(
          "INSERT INTO engine_shard (scope, shard, epoch, min_epoch, last_number, gate, memory, "
          "state) VALUES ($1, 0, 1, 1, 0, $2, $3, 'OPEN') ON CONFLICT (scope, shard) DO UPDATE SET "
          "epoch = engine_shard.epoch + 1, gate = excluded.gate, memory = excluded.memory, "
          "state = 'OPEN' WHERE $4 IN (0, engine_shard.epoch) AND (engine_shard.state = 'OPEN' OR "
          "$5 "
          "= 1) RETURNING epoch",
          {scope, std::string_view(wanted.gate), std::string_view(wanted.memory),
           wanted.from ? wanted.from->value() : std::int64_t{0},
           std::int64_t{wanted.reopens ? 1 : 0}});
      if (!rows) return fail(rows.error());
      if (rows->empty()) return fail(ErrorCode::kStaleEpoch, "another rebuild has begun: " + scope);
      for (const AllotmentRules& one : wanted.rules.allotments) {
        const std::string allotment = to_string(one.id);
        const bool whole = wanted.lease_chunk == 0;
        const std::int32_t units =
            whole ? one.quantity : std::min(wanted.lease_chunk, one.quantity);
        // Until a sale has begun its quantity may change, and a lease of all of it with it.
        const Result<std::int64_t> leased = session.execute(
            whole ? "INSERT INTO engine_lease (allotment, shard, number, first_slot, last_slot) "
                    "VALUES ($1, 0, 1, 1, $2) ON CONFLICT (allotment, shard, number) DO UPDATE SET "
                    "last_slot = excluded.last_slot"
                  : "INSERT INTO engine_lease (allotment, shard, number, first_slot, last_slot) "
                    "VALUES ($1, 0, 1, 1, $2) ON CONFLICT (allotment, shard, number) DO NOTHING",
            {allotment, std::int64_t{units}});
        if (!leased) return fail(leased.error());
      }
      return Epoch{rows->front().integer(0)};
    };
    return database_.write<Epoch>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<Done>> raise_min_epoch(ScopeId scope, Epoch epoch) override {
    return change(
        "UPDATE engine_shard SET min_epoch = $1 WHERE scope = $2 AND shard = 0 AND epoch = $1",
        scope, {epoch.value()});
  }

  Task<Result<ShardSnapshot>> snapshot(ScopeId scope) override {
    std::function<Result<ShardSnapshot>(db::Session&)> work =
        [this, scope](db::Session& session) -> Result<ShardSnapshot> {
      ShardSnapshot snapshot;
      const std::string name = to_string(scope);
      const Result<db::Rows> shard = shard_row(session, name);
      if (!shard) return fail(shard.error());
      snapshot.epoch = Epoch{shard->front().integer(0)};
      snapshot.min_epoch = Epoch{shard->front().integer(1)};
      snapshot.last_number = SequenceNumber{shard->front().integer(2)};
      const Result<db::Rows> allotments = session.query(sql_.allotments, {name});
      if (!allotments) return fail(allotments.error());
      for (const db::Row& one : *allotments) {
        const auto id = common::parse_allotment_id(one.text(0));
        if (!id) return fail(ErrorCode::kCorrupt, "unreadable allotment " + one.text(0));
        snapshot.allotments.push_back(
            {*id, to_int32(one.integer(1)), to_int32(one.integer(2)), to_int32(one.integer(4))});
        const Result<db::Rows> rows = session.query(sql_.shard_of_rows, {one.text(0)});
        if (!rows) return fail(rows.error());
        for (const db::Row& row : *rows) {
          snapshot.rows.push_back(HeldRow{.id = row.grant_id(0),
                                          .allotment = *id,
                                          .member = MemberId{row.integer(2)},
                                          .slot = Slot{to_int32(row.integer(3))},
                                          .nth = Nth{to_int32(row.integer(4))},
                                          .key = text_or_empty(row, 5),
                                          .epoch = Epoch{row.integer(9)},
                                          .taken_at = from_micros(row.integer(6)),
                                          .expires_at = from_micros(row.integer(7)),
                                          .due_at = due_or_never(row, 8)});
        }
      }
      return snapshot;
    };
    return database_.read<ShardSnapshot>(home_, std::move(work));
  }

  Task<Result<Done>> lease(ScopeId scope, AllotmentId allotment, std::int32_t number,
                           std::int32_t units) override {
    std::function<Result<Done>(db::Session&)> work = [=,
                                                      this](db::Session& session) -> Result<Done> {
      const std::string scope_name = to_string(scope);
      const std::string name = to_string(allotment);
      const Result<std::int64_t> made = session.execute(
          sql_.lease, {std::int64_t{number}, std::int64_t{units}, scope_name, name});
      if (!made) return fail(made.error());
      return Done{};
    };
    return database_.write<Done>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<Leases>> leases(ScopeId scope) override {
    std::function<Result<Leases>(db::Session&)> work =
        [this, scope](db::Session& session) -> Result<Leases> {
      const std::string name = to_string(scope);
      const Result<db::Rows> shard = shard_row(session, name);
      if (!shard) return fail(shard.error());
      const Result<db::Rows> rows = session.query(sql_.leases, {name});
      if (!rows) return fail(rows.error());
      Leases leases{.epoch = Epoch{shard->front().integer(0)}, .list = {}};
      for (const db::Row& row : *rows) {
        const auto id = common::parse_allotment_id(row.text(0));
        if (!id) return fail(ErrorCode::kCorrupt, "unreadable allotment " + row.text(0));
        leases.list.push_back({*id, to_int32(row.integer(1)), Slot{to_int32(row.integer(2))},
                               Slot{to_int32(row.integer(3))}});
      }
      return leases;
    };
    return database_.read<Leases>(home_, std::move(work));
  }

  Task<Result<Standing>> standing(ScopeId scope, std::vector<GrantId> ids) override {
    std::function<Result<Standing>(db::Session&)> work =
        [this, scope, ids = std::move(ids)](db::Session& session) -> Result<Standing> {
      const Result<db::Rows> shard = shard_row(session, to_string(scope));
      if (!shard) return fail(shard.error());
      Standing standing{.epoch = Epoch{shard->front().integer(0)}, .marked = {}};
      for (const GrantId& id : ids) {
        const Result<db::Rows> mark =
            session.query("SELECT 1 FROM reclaim_mark WHERE grant_id = $1", {db::param(id)});
        if (!mark) return fail(mark.error());
        // A mark goes when its reclaim is done; what the reclaim wrote says the same.
        const Result<db::Rows> row = session.query(sql_.by_id, {db::param(id)});
        if (!row) return fail(row.error());
        const bool over = !row->empty() && row->front().integer(0) == 0;
        standing.marked.push_back(!mark->empty() || over);
      }
      return standing;
    };
    return database_.read<Standing>(home_, std::move(work));
  }

  Task<Result<Undelivered>> undelivered(ScopeId scope, std::size_t limit) override {
    std::function<Result<Undelivered>(db::Session&)> work =
        [this, scope, limit](db::Session& session) -> Result<Undelivered> {
      const std::string name = to_string(scope);
      const Result<db::Rows> shard = shard_row(session, name);
      if (!shard) return fail(shard.error());
      Undelivered answer;
      answer.epoch = Epoch{shard->front().integer(0)};
      const Result<db::Rows> rows = session.query(
          "SELECT number, kind, grant_id, allotment, member, slot FROM outbox "
          "WHERE scope = $1 AND shard = 0 ORDER BY number LIMIT $2",
          {name, static_cast<std::int64_t>(limit)});
      if (!rows) return fail(rows.error());
      for (const db::Row& row : *rows) {
        Result<SequenceEntry> step = read_step(session, row);
        if (!step) return fail(std::move(step.error()));
        answer.steps.push_back(std::move(*step));
      }
      return answer;
    };
    return database_.read<Undelivered>(home_, std::move(work));
  }

  Task<Result<Done>> delivered(ScopeId scope, SequenceNumber number) override {
    std::function<Result<Done>(db::Session&)> work =
        [scope, number](db::Session& session) -> Result<Done> {
      const std::string name = to_string(scope);
      const Result<std::int64_t> gone =
          session.execute("DELETE FROM outbox WHERE scope = $1 AND shard = 0 AND number <= $2",
                          {name, number.value()});
      if (!gone) return fail(gone.error());
      return Done{};
    };
    return database_.write<Done>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<LedgerReading>> read(ScopeId scope, std::vector<GrantId> ids,
                                   SequenceNumber applied) override {
    std::function<Result<LedgerReading>(db::Session&)> work =
        [this, scope, ids = std::move(ids),
         applied](db::Session& session) -> Result<LedgerReading> {
      LedgerReading reading;
      const std::string name = to_string(scope);
      const Result<db::Rows> shard = shard_row(session, name);
      if (!shard) return fail(shard.error());
      reading.epoch = Epoch{shard->front().integer(0)};
      reading.last_number = SequenceNumber{shard->front().integer(2)};
      reading.memory = shard->front().text(3);
      reading.state = shard_state(shard->front().text(4));
      const Result<db::Rows> allotments = session.query(sql_.allotments, {name});
      if (!allotments) return fail(allotments.error());
      for (const db::Row& one : *allotments) {
        const auto id = common::parse_allotment_id(one.text(0));
        if (!id) return fail(ErrorCode::kCorrupt, "unreadable allotment " + one.text(0));
        const Result<db::Rows> counts = session.query(sql_.counts, {one.text(0)});
        if (!counts) return fail(counts.error());
        const Result<db::Rows> returns = session.query(
            "SELECT count(*) FROM outbox WHERE scope = $1 AND shard = 0 AND allotment = $2 "
            "AND kind = 'RETURN' AND number > $3",
            {name, one.text(0), applied.value()});
        if (!returns) return fail(returns.error());
        reading.allotments.push_back({.id = *id,
                                      .quantity = to_int32(one.integer(1)),
                                      .leased_to = to_int32(one.integer(2)),
                                      .lease_number = to_int32(one.integer(4)),
                                      .keep_slot = to_int32(counts->front().integer(0)),
                                      .open_holds = to_int32(counts->front().integer(1)),
                                      .undelivered = to_int32(returns->front().integer(0)),
                                      .sold = to_int32(one.integer(3))});
      }
      for (const GrantId& id : ids) {
        const Result<db::Rows> row = session.query(sql_.by_id, {db::param(id)});
        if (!row) return fail(row.error());
        reading.asked.push_back(row->empty()                   ? RowState::kNone
                                : row->front().integer(0) != 0 ? RowState::kHolds
                                                               : RowState::kTerminal);
      }
      return reading;
    };
    return database_.read<LedgerReading>(home_, std::move(work));
  }

  Task<Result<std::vector<ExpiredHold>>> expire_due(Instant now, std::size_t limit) override {
    using Expired = std::vector<ExpiredHold>;
    std::function<Result<Expired>(db::Session&)> work =
        [this, now, limit](db::Session& session) -> Result<Expired> {
      const Result<db::Rows> due = session.query(
          sql_.due, {to_micros(now), to_micros(now), static_cast<std::int64_t>(limit)});
      if (!due) return fail(due.error());
      Expired expired;
      for (const db::Row& row : *due) {
        const Result<bool> ended = end_grant(session, table_, row.grant_id(0), table_.hold,
                                             table_.expired, "HOLD_EXPIRED", now);
        if (!ended) return fail(ended.error());
        const auto scope = common::parse_scope_id(row.text(1));
        if (*ended && scope) expired.push_back({row.grant_id(0), *scope});
      }
      return expired;
    };
    return database_.write<Expired>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<Done>> mark_reclaim(std::vector<GrantId> ids) override {
    std::function<Result<Done>(db::Session&)> work =
        [this, ids = std::move(ids)](db::Session& session) -> Result<Done> {
      for (const GrantId& id : ids) {
        if (!in_force(Rule::kReclaimMark)) break;
        const Result<std::int64_t> made = session.execute(
            "INSERT INTO reclaim_mark (grant_id, created_at) VALUES ($1, $2) ON CONFLICT DO "
            "NOTHING",
            {db::param(id), to_micros(clock_.now())});
        if (!made) return fail(made.error());
      }
      return Done{};
    };
    return database_.write<Done>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<std::vector<RecordOutcome>>> finish_reclaim(std::vector<Grant> grants) override {
    using Outcomes = std::vector<RecordOutcome>;
    std::function<Result<Outcomes>(db::Session&)> work =
        [this, grants = std::move(grants)](db::Session& session) -> Result<Outcomes> {
      Outcomes outcomes;
      for (const Grant& grant : grants) {
        Result<RecordOutcome> outcome = reclaim_one(session, grant);
        if (!outcome) return fail(std::move(outcome.error()));
        outcomes.push_back(std::move(*outcome));
      }
      return outcomes;
    };
    return database_.write<Outcomes>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<Done>> recount(ScopeId scope) override { return change(sql_.recount, scope); }

  Task<Result<Done>> close(ScopeId scope, Epoch epoch, SequenceNumber last_number) override {
    return change(sql_.close, scope, {epoch.value(), last_number.value()});
  }

  Task<Result<Done>> settle(ScopeId scope) override { return change(sql_.settle, scope); }

 private:
  Result<RecordOutcome> reclaim_one(db::Session& session, const Grant& grant) {
    const Result<db::Rows> shard = shard_row(session, to_string(grant.scope));
    if (!shard) return fail(shard.error());
    Recording recording(session, table_, sql_, clock_.now(), count_alarms_);
    // An older epoch's slot may belong to somebody else by now: it does not return (S6).
    const bool current =
        grant.epoch.value() >= shard->front().integer(1) || !in_force(Rule::kNoReturnOfFenced);
    const Result<bool> made = recording.reject(grant, kAbandoned, current);
    if (!made) return fail(made.error());
    const Result<std::int64_t> unmarked =
        session.execute("DELETE FROM reclaim_mark WHERE grant_id = $1", {db::param(grant.id)});
    if (!unmarked) return fail(unmarked.error());
    if (*made)
      return RecordOutcome{.kind = RecordKind::kSameTerminal, .reason = std::string(kAbandoned)};
    const Result<db::Rows> rows = session.query(sql_.by_id, {db::param(grant.id)});
    if (!rows) return fail(rows.error());
    if (rows->empty()) return fail(ErrorCode::kCorrupt, "a grant without an allotment row");
    const db::Row& row = rows->front();
    if (row.integer(0) == 0) return RecordOutcome{.kind = RecordKind::kSameTerminal};
    return RecordOutcome{.kind = RecordKind::kSameHolds,
                         .slot = Slot{to_int32(row.integer(1))},
                         .nth = Nth{to_int32(row.integer(2))},
                         .due_at = due_or_never(row, 3)};
  }

  Result<SequenceEntry> read_step(db::Session& session, const db::Row& row) const {
    SequenceEntry step;
    step.number = SequenceNumber{row.integer(0)};
    step.kind = row.text(1) == "RETURN" ? SequenceKind::kReturn
                : row.text(1) == "LOAD" ? SequenceKind::kLoad
                                        : SequenceKind::kDeparture;
    step.grant = row.grant_id(2);
    const auto allotment = common::parse_allotment_id(row.text(3));
    if (!allotment) return fail(ErrorCode::kCorrupt, "unreadable allotment " + row.text(3));
    step.allotment = *allotment;
    step.member = MemberId{row.integer(4)};
    step.slot = Slot{to_int32(row.integer(5))};
    if (step.kind != SequenceKind::kLoad) return step;
    // What the row says now: a load of a grant that is over only advances the numbers.
    const Result<db::Rows> found = session.query(sql_.one_row, {db::param(step.grant)});
    if (!found) return fail(found.error());
    if (found->empty()) return step;
    const db::Row& held = found->front();
    step.holds = true;
    step.nth = Nth{to_int32(held.integer(0))};
    step.key = text_or_empty(held, 1);
    step.taken_at = from_micros(held.integer(2));
    step.expires_at = from_micros(held.integer(3));
    step.due_at = due_or_never(held, 4);
    step.slot = Slot{to_int32(held.integer(5))};
    step.epoch = Epoch{held.integer(6)};
    // The grant that counts may be one of another item of the scope than the one merged into it.
    const auto of = common::parse_allotment_id(held.text(7));
    if (!of) return fail(ErrorCode::kCorrupt, "unreadable allotment " + held.text(7));
    step.allotment = *of;
    return step;
  }

  static Result<db::Rows> shard_row(db::Session& session, const std::string& scope) {
    Result<db::Rows> rows = session.query(
        "SELECT epoch, min_epoch, last_number, memory, state FROM engine_shard WHERE scope = $1 "
        "AND shard = 0",
        {scope});
    if (rows && rows->empty()) return fail(ErrorCode::kNotFound, "no shard row for scope " + scope);
    return rows;
  }

  static ShardState shard_state(const std::string& word) {
    return word == "SETTLED"  ? ShardState::kSettled
           : word == "CLOSED" ? ShardState::kClosing
                              : ShardState::kOpen;
  }

  /// One UPDATE of one scope; kStaleEpoch when it found no row. The numbers come first, as $1 and
  /// so on, the scope behind them.
  Task<Result<Done>> change(std::string sql, ScopeId scope,
                            std::vector<std::int64_t> numbers = {}) {
    std::function<Result<Done>(db::Session&)> work =
        [sql = std::move(sql), scope,
         numbers = std::move(numbers)](db::Session& session) -> Result<Done> {
      const std::string name = to_string(scope);
      std::vector<db::Param> params(numbers.begin(), numbers.end());
      params.emplace_back(name);
      const Result<std::int64_t> changed = session.execute(sql, params);
      if (!changed) return fail(changed.error());
      if (*changed == 0) return fail(ErrorCode::kStaleEpoch, "not the epoch in force: " + name);
      return Done{};
    };
    return database_.write<Done>(home_, db::Priority::kRest, std::move(work));
  }

  db::Database& database_;
  common::Executor& home_;
  const common::Clock& clock_;
  const GrantTable table_;
  const Sql sql_;
  common::Counter& count_alarms_;
  std::map<ScopeId, Epoch> fences_;  // only while the rule of the lock is switched off
};

}  // namespace

std::unique_ptr<Ledger> make_sql_ledger(db::Database& database, common::Executor& home,
                                        const common::Clock& clock, common::Metrics& metrics,
                                        GrantTable table) {
  return std::make_unique<SqlLedger>(database, home, clock, metrics, std::move(table));
}

}  // namespace doorbuster::engine

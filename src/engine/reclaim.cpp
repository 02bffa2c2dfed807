#include "engine/reclaim.hpp"

#include "common/log.hpp"

namespace doorbuster::engine {

using common::Done;
using common::fail;
using common::Result;
using common::Task;

Reclaim::Reclaim(Parts parts, Writer& writer, Relay& relay, std::chrono::seconds after)
    : parts_(parts),
      writer_(writer),
      relay_(relay),
      after_(after),
      reclaimed_(parts.metrics.counter(
          "engine_reclaimed_total", "Grants in flight that nobody finished and that were ended")) {}

Task<Result<std::int64_t>> Reclaim::run_once() {
  std::int64_t ended = 0;
  const common::Steady steady = parts_.home.clock().steady();
  if (writer_.ledger_down()) {
    ledger_up_since_.reset();
    co_return ended;
  }
  if (!ledger_up_since_) ledger_up_since_ = steady;
  // A timer proves nothing about a writer that could not write: the count begins when the ledger
  // answers.
  if (steady - *ledger_up_since_ < after_) co_return ended;

  for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) {
    const ScopeRules& rules = scope->rules();
    const Result<GateReading> reading = co_await parts_.gate.read(rules.id);
    if (!reading) co_return fail(reading.error());
    const Instant now = parts_.home.clock().now();
    std::vector<GrantId> ids;
    std::vector<Grant> grants;
    for (const auto& [member, entry] : reading->in_flight) {
      if (now - entry.taken_at < after_) continue;
      const int index = scope->index_of(entry.allotment);
      if (index < 0) continue;
      const AllotmentRules& allotment = rules.allotments[static_cast<std::size_t>(index)];
      ids.push_back(entry.id);
      grants.push_back(Grant{.id = entry.id,
                             .allotment = entry.allotment,
                             .scope = rules.id,
                             .epoch = entry.epoch,
                             .member = member,
                             .slot = entry.slot,
                             .nth = entry.nth,
                             .key = entry.key,
                             .slot_limit = allotment.quantity,
                             .per_member = rules.per_member,
                             .amount = allotment.amount,
                             .taken_at = entry.taken_at,
                             .expires_at = entry.expires_at,
                             .hold = allotment.hold});
    }
    if (grants.empty()) continue;

    const Result<Done> marked = co_await parts_.ledger.mark_reclaim(std::move(ids));
    if (!marked) co_return fail(marked.error());
    const Result<Done> drained = co_await parts_.journal.consumed_to_end();
    if (!drained) co_return fail(drained.error());
    std::vector<Grant> copy = grants;
    const Result<std::vector<RecordOutcome>> outcomes =
        co_await parts_.ledger.finish_reclaim(std::move(copy));
    if (!outcomes) co_return fail(outcomes.error());
    std::vector<Confirmation> confirmations;
    for (std::size_t i = 0; i < grants.size(); ++i) {
      const RecordOutcome& outcome = (*outcomes)[i];
      if (outcome.kind == RecordKind::kSameHolds) {
        confirmations.push_back(
            {grants[i].member, grants[i].id, outcome.slot, outcome.nth, outcome.due_at});
      }
      ++ended;
    }
    const Result<Done> confirmed =
        co_await parts_.gate.confirm(rules.id, reading->epoch, std::move(confirmations));
    if (!confirmed) co_return fail(confirmed.error());
    relay_.wake();
  }
  if (ended > 0) {
    reclaimed_.add(ended);
    common::log(common::LogLevel::kWarn, "abandoned grants were ended", {{"grants", ended}});
  }
  co_return ended;
}

}  // namespace doorbuster::engine

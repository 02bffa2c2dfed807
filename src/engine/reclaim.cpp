#include "engine/reclaim.hpp"

#include "common/log.hpp"
#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Done;
using common::fail;
using common::Result;
using common::Task;

Reclaim::Reclaim(Parts parts, Writer& writer, Relay& relay, Config config)
    : parts_(parts),
      writer_(writer),
      relay_(relay),
      config_(config),
      signal_(parts.home),
      reclaimed_(parts.metrics.counter(
          "engine_reclaimed_total", "Grants in flight that nobody finished and that were ended")) {}

void Reclaim::stop() {
  stopping_.store(true);
  signal_.set();
}

void Reclaim::wake() {
  wanted_.store(true);
  signal_.set();
}

void Reclaim::send_failed(const GrantId& id) {
  {
    const std::lock_guard lock(mutex_);
    failed_.insert(id);
  }
  wake();
}

Task<void> Reclaim::run() {
  common::Steady next = parts_.home.clock().steady() + config_.every;
  while (!stopping_.load()) {
    const common::Steady now = parts_.home.clock().steady();
    if (wanted_.exchange(false) || now >= next) {
      if (writer_.ledger_down()) wanted_.store(true);
      const Result<std::int64_t> ended = co_await run_once();
      if (!ended) {
        common::log(common::LogLevel::kWarn, "abandoned grants could not be ended now",
                    {{"why", std::string_view(ended.error().message)}});
        wanted_.store(true);
      }
      next = parts_.home.clock().steady() + config_.every;
    }
    // What could not be done now is tried again soon, not in a minute.
    const common::Steady until =
        wanted_.load() ? std::min(next, now + std::chrono::seconds{1}) : next;
    const bool woken = co_await signal_.wait_until(until);
    static_cast<void>(woken);
  }
}

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
  const bool old_ones_too = steady - *ledger_up_since_ >= config_.after;
  for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) {
    const Result<std::int64_t> here = co_await run_scope(scope, old_ones_too);
    if (!here) co_return here;
    ended += *here;
  }
  if (ended > 0) {
    reclaimed_.add(ended);
    common::log(common::LogLevel::kWarn, "abandoned grants were ended", {{"grants", ended}});
  }
  co_return ended;
}

bool Reclaim::nobody_finishes(const GateEntry& entry, Instant now, bool old_ones_too) {
  if (old_ones_too && now - entry.taken_at >= config_.after) return true;
  if (parts_.roster.has_ended(entry.node)) return true;
  const std::lock_guard lock(mutex_);
  return failed_.contains(entry.id);
}

Task<Result<std::int64_t>> Reclaim::run_scope(std::shared_ptr<Scope> scope, bool old_ones_too) {
  const ScopeRules& rules = scope->rules();
  const Result<GateReading> reading = co_await parts_.gate.read(rules.id);
  if (!reading) co_return fail(reading.error());
  const Instant now = parts_.home.clock().now();
  std::vector<GrantId> ids;
  std::vector<Grant> grants;
  for (const auto& [member, entry] : reading->in_flight) {
    if (!nobody_finishes(entry, now, old_ones_too)) continue;
    const int index = scope->index_of(entry.allotment);
    if (index < 0) continue;
    ids.push_back(entry.id);
    grants.push_back(
        grant_of(entry, rules, rules.allotments[static_cast<std::size_t>(index)], member));
  }
  if (grants.empty()) co_return 0;

  std::vector<GrantId> marks = ids;
  const Result<Done> marked = co_await parts_.ledger.mark_reclaim(std::move(marks));
  if (!marked) co_return fail(marked.error());
  if (in_force(Rule::kJournalWait)) {
    const Result<Done> drained = co_await parts_.journal.consumed_to_end();
    if (!drained) co_return fail(drained.error());
  }
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
  }
  {
    const std::lock_guard lock(mutex_);
    for (const GrantId& id : ids) failed_.erase(id);
  }
  const Result<Done> confirmed =
      co_await parts_.gate.confirm(rules.id, reading->epoch, std::move(confirmations));
  if (!confirmed) co_return fail(confirmed.error());
  relay_.wake();
  co_return static_cast<std::int64_t>(grants.size());
}

}  // namespace doorbuster::engine

#include "engine/watch.hpp"

#include <algorithm>
#include <cstdlib>

#include "common/log.hpp"

namespace doorbuster::engine {

using common::Done;
using common::LogLevel;
using common::Result;
using common::Task;

Watch::Watch(Parts parts, Rebuild& rebuild, Config config, std::function<void()> superseded)
    : parts_(parts),
      rebuild_(rebuild),
      config_(config),
      superseded_(std::move(superseded)),
      signal_(parts.home),
      misses_(parts.metrics.counter("engine_watch_misses_total",
                                    "Comparisons in which gate and ledger did not add up")),
      rebuilds_(
          parts.metrics.counter("engine_watch_rebuilds_total", "Rebuilds that the watch began")) {}

void Watch::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<void> Watch::run() {
  while (!stopping_.load()) {
    const common::Steady begun = parts_.home.clock().steady();
    for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) {
      if (scope->rebuilding()) continue;
      State& state = states_[scope->rules().id];
      if (scope->rebuild_failed()) {
        // No backoff: until one ends, everybody is answered busy.
        const Result<Done> again = co_await rebuild_.run(scope);
        static_cast<void>(again);
        continue;
      }
      const std::optional<std::int64_t> off = co_await compare(scope);
      if (!off) continue;
      state.misses = *off == 0 ? 0 : state.misses + 1;
      if (*off != 0) misses_.add();
      if (state.misses < 2) continue;
      const common::Steady now = parts_.home.clock().steady();
      if (state.rebuilt_at && now - *state.rebuilt_at < config_.backoff) continue;
      state.rebuilt_at = now;
      state.misses = 0;
      rebuilds_.add();
      const std::string name = common::to_string(scope->rules().id);
      common::log(LogLevel::kError, "gate and ledger do not add up; the gate is rebuilt",
                  {{"scope", std::string_view(name)}, {"units", *off}});
      const Result<Done> rebuilt = co_await rebuild_.run(scope);
      static_cast<void>(rebuilt);
    }
    const common::Steady ended = parts_.home.clock().steady();
    const common::Steady next =
        ended + std::max<std::chrono::nanoseconds>(config_.every, 10 * (ended - begun));
    const bool woken = co_await signal_.wait_until(next);
    static_cast<void>(woken);
  }
}

Task<std::optional<std::int64_t>> Watch::compare(std::shared_ptr<Scope> scope) {
  const ScopeId id = scope->rules().id;
  const Result<GateReading> before = co_await parts_.gate.read(id);
  if (!before || before->state != GateState::kOpen) co_return std::nullopt;
  std::vector<GrantId> ids;
  std::vector<AllotmentId> ids_of;
  for (const auto& [member, entry] : before->in_flight) {
    ids.push_back(entry.id);
    ids_of.push_back(entry.allotment);
  }
  const Result<LedgerReading> ledger = co_await parts_.ledger.read(id, std::move(ids));
  if (!ledger) co_return std::nullopt;
  const Result<GateReading> after = co_await parts_.gate.read(id);
  if (!after || after->version != before->version) co_return std::nullopt;
  if (ledger->epoch != before->epoch) {
    // One of our own rebuilds may have raised it, this very moment or before it failed.
    if (scope->rebuilding() || scope->rebuild_failed()) co_return std::nullopt;
    if (ledger->epoch > before->epoch && superseded_) superseded_();
    co_return std::nullopt;
  }

  std::int64_t off = 0;
  for (const auto& at_ledger : ledger->allotments) {
    const auto at_gate = std::find_if(before->allotments.begin(), before->allotments.end(),
                                      [&](const auto& a) { return a.id == at_ledger.id; });
    if (at_gate == before->allotments.end()) continue;
    // By id: a grant whose confirm was lost is in flight and a row, and must not count twice.
    std::int64_t without_row = 0;
    for (std::size_t i = 0; i < ids_of.size(); ++i) {
      if (ids_of[i] == at_ledger.id && ledger->asked[i] == RowState::kNone) ++without_row;
    }
    // Steps that the gate has applied are in the outbox until they are deleted: only later ones
    // wait.
    const std::int64_t undelivered =
        ledger->last_number > before->applied ? at_ledger.undelivered : 0;
    const std::int64_t not_applied = at_ledger.leased_to - at_gate->leased_to;
    const std::int64_t sum = at_gate->free + without_row + at_ledger.keep_slot + undelivered +
                             not_applied + at_ledger.quantity - at_ledger.leased_to;
    off += std::abs(sum - at_ledger.quantity);
  }
  co_return off;
}

}  // namespace doorbuster::engine

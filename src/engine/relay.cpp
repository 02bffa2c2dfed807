#include "engine/relay.hpp"

#include <algorithm>

#include "common/log.hpp"

namespace doorbuster::engine {

using common::Done;
using common::Result;
using common::Task;

/// Steps that travel to a gate in one call.
constexpr std::size_t kStepsAtOnce = 1000;

Relay::Relay(Parts parts, std::chrono::milliseconds every)
    : parts_(parts),
      every_(every),
      signal_(parts.home),
      delivered_(parts.metrics.counter("engine_steps_delivered_total",
                                       "Returns, departures and loads that a gate has applied")),
      failed_(parts.metrics.counter("engine_steps_refused_total",
                                    "Deliveries that a gate or the ledger did not take now")),
      lag_(parts.metrics.gauge("engine_outbox_lag", "Steps found waiting at the last delivery")) {}

Task<void> Relay::run() {
  while (!stopping_.load()) {
    std::size_t refused = 0;
    for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) {
      const bool taken = co_await deliver(scope);
      if (!taken) ++refused;
    }
    if (refused > 0) failed_.add(static_cast<std::int64_t>(refused));
    const bool woken = co_await signal_.wait_until(parts_.home.clock().steady() + every_);
    static_cast<void>(woken);
  }
}

Task<bool> Relay::deliver(std::shared_ptr<Scope> scope) {
  const ScopeId id = scope->rules().id;
  for (;;) {
    const Result<Undelivered> waiting = co_await parts_.ledger.undelivered(id, kStepsAtOnce);
    if (!waiting) co_return false;
    lag_.set(static_cast<double>(waiting->steps.size()));
    if (waiting->steps.empty()) co_return true;

    // The flag goes down before a unit can be taken again, so that no reading made before is
    // trusted, and once more after it, for a probe that began in between.
    const auto lower = [&] {
      for (const SequenceEntry& step : waiting->steps) {
        const int index = scope->index_of(step.allotment);
        if (index >= 0 && step.kind == SequenceKind::kReturn) {
          scope->lower(static_cast<std::size_t>(index));
        }
      }
    };
    lower();
    for (const SequenceEntry& step : waiting->steps) {
      if (step.kind == SequenceKind::kLoad && step.holds) scope->saw_holder(step.member);
    }
    std::vector<SequenceEntry> steps = waiting->steps;
    const Result<SequenceNumber> applied =
        co_await parts_.gate.apply(id, waiting->epoch, std::move(steps));
    if (!applied) co_return false;
    lower();
    const Result<Done> done = co_await parts_.ledger.delivered(id, *applied);
    if (!done) co_return false;
    delivered_.add(static_cast<std::int64_t>(waiting->steps.size()));
    if (waiting->steps.size() < kStepsAtOnce) co_return true;
    if (*applied < waiting->steps.back().number) co_return false;
  }
}

}  // namespace doorbuster::engine

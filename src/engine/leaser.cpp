#include "engine/leaser.hpp"

#include <algorithm>

namespace doorbuster::engine {

using common::Done;
using common::Result;
using common::Task;

std::int32_t next_lease_units(std::int32_t quantity, std::int32_t leased_to,
                              std::int32_t chunk) noexcept {
  const std::int32_t left = quantity - leased_to;
  return std::clamp((left + 3) / 4, std::min(left, 1), std::max(chunk, 1));
}

Leaser::Leaser(Parts parts, Config config)
    : parts_(parts),
      config_(config),
      signal_(parts.home),
      leases_(parts.metrics.counter("engine_leases_total", "Leases that this node has written")) {}

void Leaser::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<void> Leaser::run() {
  while (!stopping_.load() && config_.chunk > 0) {
    for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) co_await lead(scope);
    const bool woken = co_await signal_.wait_until(parts_.home.clock().steady() + config_.every);
    static_cast<void>(woken);
  }
}

Task<void> Leaser::lead(std::shared_ptr<Scope> scope) {
  const ScopeId id = scope->rules().id;
  // The second round brings what the first one wrote.
  for (int round = 0; round < 2; ++round) {
    const Result<GateReading> gate = co_await parts_.gate.read(id);
    if (!gate || gate->state == GateState::kAbsent) co_return;
    Result<Leases> leases = co_await parts_.ledger.leases(id);
    if (!leases || leases->epoch != gate->epoch) co_return;

    std::vector<Lease> missing;
    bool wrote = false;
    for (const auto& at_gate : gate->allotments) {
      const int index = scope->index_of(at_gate.id);
      if (index < 0) continue;
      Lease last;
      for (const Lease& lease : leases->list) {
        if (lease.allotment != at_gate.id) continue;
        last = lease;
        if (lease.number > at_gate.lease_number) missing.push_back(lease);
      }
      const AllotmentRules& rules = scope->rules().allotments[static_cast<std::size_t>(index)];
      const std::int32_t units = next_lease_units(rules.quantity, last.last.value(), config_.chunk);
      if (last.number != at_gate.lease_number || at_gate.free >= units || units == 0) continue;
      const Result<Done> written =
          co_await parts_.ledger.lease(id, at_gate.id, last.number + 1, units);
      if (!written) co_return;
      leases_.add();
      wrote = true;
    }
    if (!missing.empty()) {
      const Result<Done> applied =
          co_await parts_.gate.apply_leases(id, leases->epoch, std::move(missing));
      if (!applied) co_return;
    }
    if (!wrote) co_return;
  }
}

}  // namespace doorbuster::engine

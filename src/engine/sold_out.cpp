#include "engine/sold_out.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Completion;
using common::Done;
using common::Result;
using common::Task;

SoldOut::SoldOut(Parts parts, Config config)
    : parts_(parts),
      config_(config),
      signal_(parts.home),
      probes_(parts.metrics.counter("engine_probes_total",
                                    "Probes of gate and ledger for the sold-out flag")),
      failed_(parts.metrics.counter("engine_probes_failed_total",
                                    "Probes that failed and lowered the flag")) {}

void SoldOut::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<Flag> SoldOut::verdict(common::Executor& caller, std::shared_ptr<Scope> scope,
                            std::size_t index, common::Steady deadline) {
  const Flag known = scope->flag(index);
  if (known != Flag::kDown) co_return known;
  const Completion<Done> done(caller);
  {
    const std::lock_guard lock(mutex_);
    waiters_.push_back(Waiter{scope, done});
  }
  signal_.set();
  const std::optional<Done> arrived = co_await done.wait_until(deadline);
  co_return arrived ? scope->flag(index) : Flag::kDown;
}

Task<void> SoldOut::run() {
  common::Steady next = parts_.home.clock().steady();
  while (!stopping_.load()) {
    std::vector<Waiter> waiters;
    {
      const std::lock_guard lock(mutex_);
      waiters.swap(waiters_);
    }
    const common::Steady begun = parts_.home.clock().steady();
    if (begun >= next) {
      for (std::shared_ptr<Scope>& scope : parts_.scopes.all()) co_await probe(scope);
      const common::Steady ended = parts_.home.clock().steady();
      // Large scopes take long to read: probing must not become the load. Where other nodes sell
      // too, what it reads must be young all the same.
      next = parts_.roster.alone()
                 ? ended + std::max<std::chrono::nanoseconds>(config_.every, 10 * (ended - begun))
                 : begun + config_.every;
    } else {
      std::set<ScopeId> asked;
      for (const Waiter& waiter : waiters) {
        if (!asked.insert(waiter.scope->rules().id).second) continue;
        co_await probe(waiter.scope);
      }
    }
    for (const Waiter& waiter : waiters) waiter.done.complete(Done{});
    const bool woken = co_await signal_.wait_until(next);
    static_cast<void>(woken);
  }
  const std::lock_guard lock(mutex_);
  for (const Waiter& waiter : waiters_) waiter.done.complete(Done{});
}

Task<void> SoldOut::probe(std::shared_ptr<Scope> scope) {
  if (scope->epoch() == Epoch{0}) co_return;
  probes_.add();
  const ScopeId id = scope->rules().id;
  const common::Steady begun = parts_.home.clock().steady();
  const std::uint64_t generation = scope->generation();
  scope->begin_holders();
  const Result<GateReading> gate = co_await parts_.gate.read(id);
  const Epoch epoch = gate ? gate->epoch : Epoch{0};
  // Of the same epoch, and so of the memory that it was loaded into: one that took its place may
  // know fewer holders.
  const Result<std::vector<MemberId>> holders = co_await parts_.gate.holders(id, epoch);
  std::vector<GrantId> none;
  const SequenceNumber applied = gate ? gate->applied : SequenceNumber{0};
  const Result<LedgerReading> ledger = co_await parts_.ledger.read(id, std::move(none), applied);
  if (!gate || !holders || !ledger) {
    failed_.add();
    scope->lower_all();
    co_return;
  }
  const bool open = gate->state == GateState::kOpen || !in_force(Rule::kBusyWhileDraining);
  const bool in_charge = open && gate->epoch == ledger->epoch && gate->memory == ledger->memory;
  if (!in_charge) {
    // A gate that is being rebuilt does not know all holders yet: whoever is refused by its list
    // may be one.
    scope->lower_all();
    co_return;
  }
  scope->finish_holders(*holders);
  if (!parts_.roster.alone()) scope->set_fresh_until(begun + 2 * config_.every);
  const bool settled = gate->applied == ledger->last_number;
  bool alarm = false;
  for (std::size_t i = 0; i < scope->rules().allotments.size(); ++i) {
    const AllotmentRules& rules = scope->rules().allotments[i];
    const auto at_gate = std::find_if(gate->allotments.begin(), gate->allotments.end(),
                                      [&](const auto& a) { return a.id == rules.id; });
    const auto at_ledger = std::find_if(ledger->allotments.begin(), ledger->allotments.end(),
                                        [&](const auto& a) { return a.id == rules.id; });
    if (at_gate == gate->allotments.end() || at_ledger == ledger->allotments.end()) {
      scope->lower(i);
      continue;
    }
    // What is not leased yet is left, too.
    scope->set_remaining(i, at_gate->free + at_ledger->quantity - at_gate->leased_to);
    // Counter and rows change in the same transactions. Too high, the counter would refuse units
    // that are free.
    alarm = alarm || at_ledger->sold > at_ledger->keep_slot;
    const bool leased =
        at_ledger->leased_to == at_ledger->quantity && at_gate->leased_to == at_ledger->leased_to;
    if (!settled || !leased || at_gate->free > 0) {
      const bool wrong = at_gate->free > 0 || !leased;
      if (wrong && scope->flag(i) != Flag::kDown) scope->lower(i);
      continue;
    }
    const bool final = rules.may_become_final && at_ledger->keep_slot == at_ledger->quantity &&
                       at_ledger->open_holds == 0;
    scope->raise(generation, i, final ? Flag::kFinal : Flag::kUp);
  }
  scope->set_count_alarm(alarm);
}

}  // namespace doorbuster::engine

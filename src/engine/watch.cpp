#include "engine/watch.hpp"

#include <algorithm>
#include <cstdlib>

#include "common/log.hpp"
#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Done;
using common::LogLevel;
using common::Result;
using common::Task;

/// A reading that hung for long says nothing about the next one.
constexpr std::chrono::seconds kMostRest{5};

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
      if (!parts_.roster.alone()) {
        const bool lost = co_await look(scope);
        if (lost) {
          state.misses = 0;
          continue;
        }
      } else if (scope->rebuild_failed()) {
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
      const Result<Done> rebuilt = co_await rebuild_.run(scope, scope->epoch());
      static_cast<void>(rebuilt);
    }
    const common::Steady ended = parts_.home.clock().steady();
    // Comparing must not become the load; but whether another node has rebuilt the gate is looked
    // at in time, however slow the ledger is.
    const common::Steady next =
        parts_.roster.alone()
            ? ended + std::clamp<std::chrono::nanoseconds>(
                          10 * (ended - begun), config_.every,
                          std::max<std::chrono::nanoseconds>(config_.every, kMostRest))
            : ended + config_.every;
    const bool woken = co_await signal_.wait_until(next);
    static_cast<void>(woken);
  }
}

Task<bool> Watch::look(std::shared_ptr<Scope> scope) {
  const ScopeId id = scope->rules().id;
  State& state = states_[id];
  std::vector<GrantId> none;
  const Result<LedgerReading> ledger =
      co_await parts_.ledger.read(id, std::move(none), SequenceNumber{0});
  if (!ledger && ledger.error().code == common::ErrorCode::kNotFound) {
    const Result<Done> first = co_await rebuild_.run(scope);
    static_cast<void>(first);
    co_return true;
  }
  if (!ledger) co_return true;
  if (ledger->state != ShardState::kOpen) {
    co_await forget_if_settled(id, ledger->state);
    co_return false;
  }
  // What every call of this epoch is for, also where another node has raised it.
  parts_.gate.expect(id, ledger->epoch, ledger->memory);
  const Result<GateReading> gate = co_await parts_.gate.read(id);
  parts_.roster.set_reaches_gate(gate.has_value());
  if (!gate) co_return true;

  const bool same = gate->memory == ledger->memory;
  const bool ours = same && gate->epoch == ledger->epoch && gate->state != GateState::kAbsent;
  if (ours && scope->epoch() != ledger->epoch) {
    // Another node's rebuild: its gate answers us from now on, and our flags are of the old one.
    scope->lower_all();
    scope->set_epoch(ledger->epoch);
  }
  if (ours && gate->state == GateState::kOpen) {
    state.closed_since.reset();
    co_return false;
  }
  const common::Steady now = parts_.home.clock().steady();
  if (!state.closed_since || state.closed_epoch != ledger->epoch) {
    state.closed_since = now;
    state.closed_epoch = ledger->epoch;
  }
  // A rebuild may be under way on another node, or on one that has died since: its memory is this
  // one, and we have not seen its epoch at work. Anything else is a loss.
  const bool under_way = same && !scope->rebuild_failed() &&
                         (gate->state == GateState::kDraining || scope->epoch() != ledger->epoch);
  if (under_way && now - *state.closed_since < config_.patience) co_return true;
  rebuilds_.add();
  const Result<Done> rebuilt = co_await rebuild_.run(scope, ledger->epoch);
  static_cast<void>(rebuilt);
  co_return true;
}

Task<Result<Done>> Watch::forget(ScopeId id) {
  parts_.scopes.remove(id);
  Result<Done> removed = co_await parts_.gate.remove(id);
  co_return removed;
}

Task<void> Watch::forget_if_settled(ScopeId id, ShardState state) {
  if (state != ShardState::kSettled) co_return;
  const Result<Done> removed = co_await forget(id);
  // A gate that cannot be reached now keeps a scope which nobody asks for any more.
  static_cast<void>(removed);
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
  const Result<LedgerReading> ledger =
      co_await parts_.ledger.read(id, std::move(ids), before->applied);
  if (!ledger) co_return std::nullopt;
  if (ledger->state != ShardState::kOpen) {
    co_await forget_if_settled(id, ledger->state);
    co_return std::nullopt;
  }
  const Result<GateReading> after = co_await parts_.gate.read(id);
  if (!after || after->version != before->version) co_return std::nullopt;
  if (ledger->epoch != before->epoch) {
    // One of our own rebuilds may have raised it, this very moment or before it failed.
    if (scope->rebuilding() || scope->rebuild_failed()) co_return std::nullopt;
    if (ledger->epoch > before->epoch && parts_.roster.alone() && superseded_) superseded_();
    co_return std::nullopt;
  }
  // Replaced since the last look, which is a loss and no miss: the next look sees to it.
  if (before->memory != ledger->memory || after->memory != before->memory) co_return std::nullopt;

  std::int64_t off = 0;
  for (const auto& at_ledger : ledger->allotments) {
    const auto at_gate = std::find_if(before->allotments.begin(), before->allotments.end(),
                                      [&](const auto& a) { return a.id == at_ledger.id; });
    if (at_gate == before->allotments.end()) continue;
    // By id: a grant whose confirm was lost is in flight and a row, and must not count twice.
    std::int64_t without_row = 0;
    for (std::size_t i = 0; i < ids_of.size(); ++i) {
      const bool counts = ledger->asked[i] == RowState::kNone || !in_force(Rule::kWatchById);
      if (ids_of[i] == at_ledger.id && counts) ++without_row;
    }
    const std::int64_t not_applied = at_ledger.leased_to - at_gate->leased_to;
    const std::int64_t sum = at_gate->free + without_row + at_ledger.keep_slot +
                             at_ledger.undelivered + not_applied + at_ledger.quantity -
                             at_ledger.leased_to;
    off += std::abs(sum - at_ledger.quantity);
  }
  co_return off;
}

}  // namespace doorbuster::engine

#include "engine/rebuild.hpp"

#include "common/log.hpp"
#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::LogLevel;
using common::Result;
using common::Task;

/// Returns may be written between the second reading and its load; each miss delivers them and
/// reads again.
constexpr int kLoadTries = 100;

Rebuild::Rebuild(Parts parts, Relay& relay, Config config)
    : parts_(parts),
      relay_(relay),
      config_(std::move(config)),
      runs_(parts.metrics.counter("engine_rebuilds_total", "Rebuilds of a gate from the ledger")),
      failures_(
          parts.metrics.counter("engine_rebuilds_failed_total", "Rebuilds that did not end")) {}

Task<Result<Done>> Rebuild::run(std::shared_ptr<Scope> scope, std::optional<Epoch> from,
                                bool reopens) {
  runs_.add();
  const int begun = scope->rebuild_begins();
  Result<Done> ended = co_await steps(scope, from, reopens);
  // One that a later epoch has overtaken has nothing left to do.
  const bool overtaken = !ended && ended.error().code == ErrorCode::kStaleEpoch;
  scope->rebuild_ends(ended       ? Scope::RebuildEnd::kDone
                      : overtaken ? Scope::RebuildEnd::kOvertaken
                                  : Scope::RebuildEnd::kFailed,
                      begun);
  if (!ended) {
    failures_.add();
    const std::string name = common::to_string(scope->rules().id);
    common::log(
        LogLevel::kError, "a rebuild did not end",
        {{"scope", std::string_view(name)}, {"why", std::string_view(ended.error().message)}});
  }
  co_return ended;
}

Task<Result<Done>> Rebuild::steps(std::shared_ptr<Scope> scope, std::optional<Epoch> from,
                                  bool reopens) {
  const ScopeId id = scope->rules().id;
  common::Steady begun = parts_.home.clock().steady();
  const auto measure = [&](const char* step) {
    const common::Steady now = parts_.home.clock().steady();
    parts_.metrics
        .histogram("engine_rebuild_step_seconds", "Time of each step of a rebuild",
                   common::time_buckets(), {{"step", step}})
        .observe(std::chrono::duration<double>(now - begun).count());
    begun = now;
  };

  scope->lower_all();
  const Result<GateReading> reached = co_await parts_.gate.read(id);
  if (!reached) co_return fail(reached.error());
  NewEpoch wanted{.rules = scope->rules(),
                  .gate = config_.gate_name,
                  .memory = reached->memory,
                  .from = from,
                  .lease_chunk = config_.lease_chunk,
                  .reopens = reopens};
  const Result<Epoch> epoch = co_await parts_.ledger.raise_epoch(std::move(wanted));
  if (!epoch) co_return fail(epoch.error());
  parts_.gate.expect(id, *epoch, reached->memory);
  measure("raise_epoch");
  // Prepared anew while this one was on its way: calls name what the new one knows, and by its
  // rules. Its own rebuild may be behind ours already.
  if (std::shared_ptr<Scope> current = parts_.scopes.find(id); current && current != scope) {
    Result<Done> anew = co_await run(std::move(current), *epoch);
    co_return anew;
  }

  Result<ShardSnapshot> first = co_await parts_.ledger.snapshot(id);
  if (!first) co_return fail(first.error());
  std::optional<ShardSnapshot> early;
  if (!in_force(Rule::kSecondLoad)) early = *first;
  if (first->epoch != *epoch) co_return fail(ErrorCode::kStaleEpoch, "another rebuild has begun");
  measure("first_read");

  ScopeRules again = scope->rules();
  const Result<Done> begin = co_await parts_.gate.begin_epoch(std::move(again), std::move(*first));
  if (!begin) co_return begin;
  // From here on takes go to the new epoch: holders get their grants, everybody else busy, until
  // the load.
  scope->set_epoch(*epoch);
  measure("begin_epoch");

  if (in_force(Rule::kDrain)) {
    const Result<Done> drained = co_await parts_.journal.consumed_to_end();
    if (!drained) co_return drained;
  }
  measure("drain");

  const Result<Done> fenced = co_await parts_.ledger.raise_min_epoch(id, *epoch);
  if (!fenced) co_return fenced;
  measure("raise_min_epoch");

  for (int i = 0; i < kLoadTries; ++i) {
    Result<ShardSnapshot> second = co_await parts_.ledger.snapshot(id);
    if (!second) co_return fail(second.error());
    if (early) second = *early;
    if (second->epoch != *epoch)
      co_return fail(ErrorCode::kStaleEpoch, "another rebuild has begun");
    std::vector<MemberId> holders;
    for (const HeldRow& row : second->rows) holders.push_back(row.member);
    const Result<Done> loaded = co_await parts_.gate.load(id, std::move(*second));
    if (loaded) {
      for (const MemberId member : holders) scope->saw_holder(member);
      measure("load");
      co_return Done{};
    }
    if (loaded.error().code != ErrorCode::kConflict) co_return loaded;
    const bool delivered = co_await relay_.deliver(scope);
    static_cast<void>(delivered);
  }
  co_return fail(ErrorCode::kTimeout, "returns kept arriving between reading and load");
}

}  // namespace doorbuster::engine

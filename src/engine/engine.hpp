#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "common/executor.hpp"
#include "common/metrics.hpp"
#include "common/random.hpp"
#include "common/result.hpp"
#include "common/task.hpp"
#include "engine/budget.hpp"
#include "engine/desk.hpp"
#include "engine/gate.hpp"
#include "engine/journal.hpp"
#include "engine/ledger.hpp"
#include "engine/scope.hpp"

namespace doorbuster::engine {

struct EngineConfig {
  Budget budget;
  std::chrono::milliseconds expiry_every{1000};  ///< how often due holds are looked for
  std::size_t expiry_batch = 500;                ///< holds that one transaction ends
  std::chrono::milliseconds relay_every{1000};
  std::chrono::milliseconds probe_every{1000};
  std::chrono::milliseconds watch_every{1000};
  std::chrono::seconds watch_backoff{60};
  std::chrono::milliseconds reclaim_every{60'000};
  std::chrono::seconds reclaim_after{60};
  std::string gate_name = "local";  ///< written to the shard's row
  IssueMode issue = IssueMode::kSync;
  std::int32_t lease_chunk = 0;  ///< units that a gate gets at a time; 0: all, for one node alone
  std::chrono::milliseconds lease_every{1000};
  std::chrono::milliseconds rebuild_patience{5000};  ///< for another node's rebuild
  Roster::Config node;
  std::function<void(std::span<std::uint8_t>)> random = common::fill_random;  ///< for grant ids
};

/// The engine of one node: hands out units, and keeps gate and ledger together. The domain
/// describes its scopes and calls; it sees neither gate nor journal nor ledger.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  /// Makes the gate ready for a scope from its rows (S6). Also for a scope that is prepared
  /// already, whose rules then replace the old ones. On any executor; answers on `caller`.
  [[nodiscard]] virtual common::Task<common::Result<std::shared_ptr<Scope>>> prepare(
      common::Executor& caller, ScopeRules rules) = 0;
  [[nodiscard]] virtual std::shared_ptr<Scope> find(ScopeId scope) const = 0;

  [[nodiscard]] virtual common::Task<DeskAnswer> take(common::Executor& caller, Desk::Ask ask) = 0;

  /// A transaction outside the engine (cancel, refund) wrote a return: bring it to the gate now.
  /// Any thread.
  virtual void steps_written() = 0;

  /// A grant is no hold any more (paid): its entry has no deadline. On any executor.
  [[nodiscard]] virtual common::Task<void> hold_ended(ScopeId scope, Confirmation grant) = 0;

  /// Rebuilds the gate of a scope by hand; with `counts`, sets its sold counters from the rows
  /// first.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> rebuild(common::Executor& caller,
                                                                           ScopeId scope,
                                                                           bool counts) = 0;
  /// Jobs by hand: how many grants each one ended.
  [[nodiscard]] virtual common::Task<common::Result<std::int64_t>> expire_now(
      common::Executor& caller) = 0;
  [[nodiscard]] virtual common::Task<common::Result<std::int64_t>> reclaim_now(
      common::Executor& caller) = 0;

  /// True, and the scope forgotten, when nothing is in flight, no hold is open and no return
  /// undelivered (section 13). False: not yet.
  [[nodiscard]] virtual common::Task<common::Result<bool>> settle(common::Executor& caller,
                                                                  ScopeId scope) = 0;

  /// The gate's own numbers, for administrators and tests.
  [[nodiscard]] virtual common::Task<common::Result<GateReading>> read_gate(
      common::Executor& caller, ScopeId scope) = 0;

  /// Whether the last write failed (section 11). Any thread.
  [[nodiscard]] virtual bool ledger_down() const noexcept = 0;

  /// The two halves of stop(), for whoever runs the loops on its own thread: what was told to end,
  /// and whether it has. `leave_unrecorded`: as after the grace.
  virtual void begin_stop(bool leave_unrecorded) = 0;
  [[nodiscard]] virtual bool has_stopped() const = 0;

  /// Records what is in flight, then ends all loops. When the ledger does not take it within
  /// `grace`, what is unrecorded (and was not answered as given) is left. Not on the engine's
  /// executor.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

/// `home` runs the engine's loops. Without `nodes` this server is alone. `superseded` is called
/// when another server has taken this one's place. All arguments must outlive the engine.
[[nodiscard]] std::unique_ptr<Engine> make_engine(EngineConfig config, common::Executor& home,
                                                  const common::Clock& clock, Gate& gate,
                                                  Journal& journal, Ledger& ledger,
                                                  NodeTable* nodes, common::Metrics& metrics,
                                                  std::function<void()> superseded);

}  // namespace doorbuster::engine

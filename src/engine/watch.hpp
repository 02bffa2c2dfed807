#pragma once

#include <functional>
#include <map>

#include "engine/rebuild.hpp"

namespace doorbuster::engine {

/// Compares gate and ledger each second (S10), and looks whether this node's gate is still the one
/// in charge.
///
/// Alone: a higher epoch in the ledger means that another server has taken this one's place. One of
/// several nodes: it means that another node has rebuilt the gate, and this one follows. A gate
/// that is gone, or has another memory than the ledger's epoch was loaded into, is rebuilt at once;
/// one that somebody seems to rebuild already, after `patience`.
///
/// Two misses in a row count in a metric and start a rebuild, at most one per `backoff` and scope.
/// A rebuild that failed is tried again in each round, so that a ledger which comes back finds its
/// gate at work soon (I5).
class Watch {
 public:
  struct Config {
    std::chrono::milliseconds every{1000};
    std::chrono::seconds backoff{60};
    std::chrono::milliseconds patience{5000};
  };
  /// `superseded` is called when this server is alone and the ledger shows a higher epoch than
  /// ours.
  Watch(Parts parts, Rebuild& rebuild, Config config, std::function<void()> superseded);

  [[nodiscard]] common::Task<void> run();
  void stop();
  /// Looks now: a call has found the gate gone, or in another epoch. Any thread.
  void wake() { signal_.set(); }

  /// One comparison; what it found missing or too many, 0 when all is well, nothing when it could
  /// not compare (busy, draining).
  [[nodiscard]] common::Task<std::optional<std::int64_t>> compare(std::shared_ptr<Scope> scope);

  /// For one of several nodes: follows a gate that another node has rebuilt, or rebuilds one that
  /// is lost. True: a sign of loss was dealt with, by a rebuild or by waiting for one.
  [[nodiscard]] common::Task<bool> look(std::shared_ptr<Scope> scope);

  /// A settled scope: on this node, and at the gate. Errors: the gate's.
  [[nodiscard]] common::Task<common::Result<common::Done>> forget(ScopeId id);

 private:
  struct State {
    int misses = 0;
    std::optional<common::Steady> rebuilt_at;
    /// Since when the ledger's epoch has had no open gate, and which one.
    std::optional<common::Steady> closed_since;
    Epoch closed_epoch;
  };

  /// By this node a moment ago, or by another one.
  common::Task<void> forget_if_settled(ScopeId id, ShardState state);

  Parts parts_;
  Rebuild& rebuild_;
  const Config config_;
  const std::function<void()> superseded_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::map<ScopeId, State> states_;
  common::Counter& misses_;
  common::Counter& rebuilds_;
};

}  // namespace doorbuster::engine

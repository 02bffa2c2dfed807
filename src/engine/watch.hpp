#pragma once

#include <functional>
#include <map>

#include "engine/rebuild.hpp"

namespace doorbuster::engine {

/// Compares gate and ledger each second (S10), and looks whether this process is still in charge.
///
/// Two misses in a row count in a metric and start a rebuild, at most one per `backoff` and scope.
/// A rebuild that failed is tried again in each round, so that a ledger which comes back finds its
/// gate at work soon (I5).
class Watch {
 public:
  struct Config {
    std::chrono::milliseconds every{1000};
    std::chrono::seconds backoff{60};
  };
  /// `superseded` is called once when the ledger shows a higher epoch than ours: another server has
  /// taken over, and this one must end.
  Watch(Parts parts, Rebuild& rebuild, Config config, std::function<void()> superseded);

  [[nodiscard]] common::Task<void> run();
  void stop();

  /// One comparison; what it found missing or too many, 0 when all is well, nothing when it could
  /// not compare (busy, draining).
  [[nodiscard]] common::Task<std::optional<std::int64_t>> compare(std::shared_ptr<Scope> scope);

 private:
  struct State {
    int misses = 0;
    std::optional<common::Steady> rebuilt_at;
  };

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

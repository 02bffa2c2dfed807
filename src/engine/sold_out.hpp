#pragma once

#include <mutex>
#include <vector>

#include "engine/writer.hpp"

namespace doorbuster::engine {

/// The one procedure behind "sold out" and "final" (engine page, section 5), repeated as the flag's
/// probe.
///
/// F1: a flag is raised only on a gate reading (dry, open) followed by a ledger reading that shows
/// the same
///     epoch, everything leased and applied, and no undelivered step.
/// F2: final only when the ledger's rows keep every slot and none of them is an open hold, never
/// where a unit
///     may come back.
/// F3: a failed probe lowers the flag.
class SoldOut {
 public:
  struct Config {
    std::chrono::milliseconds every{1000};
  };
  SoldOut(Parts parts, Config config);

  [[nodiscard]] common::Task<void> run();
  void stop();

  /// For a request that found the gate dry: waits (until `deadline`, on `caller`) for a reading
  /// made after this call, unless the flag is up by then. kDown: answer busy.
  [[nodiscard]] common::Task<Flag> verdict(common::Executor& caller, std::shared_ptr<Scope> scope,
                                           std::size_t index, common::Steady deadline);

  /// One probe of one scope, on the engine's executor.
  [[nodiscard]] common::Task<void> probe(std::shared_ptr<Scope> scope);

 private:
  struct Waiter {
    std::shared_ptr<Scope> scope;
    common::Completion<common::Done> done;
  };

  Parts parts_;
  const Config config_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<Waiter> waiters_;  // Guarded by mutex_.
  common::Counter& probes_;
  common::Counter& failed_;
};

}  // namespace doorbuster::engine

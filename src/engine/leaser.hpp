#pragma once

#include "engine/writer.hpp"

namespace doorbuster::engine {

/// Brings leases to the gate (S5): those that the ledger has and the gate has not, in number order,
/// and then the next one when little is left to give. Written first, applied after, by any node,
/// any number of times.
class Leaser {
 public:
  struct Config {
    std::int32_t chunk = 0;  ///< units of one lease at most; 0: everything is leased at once
    std::chrono::milliseconds every{1000};
  };
  Leaser(Parts parts, Config config);

  [[nodiscard]] common::Task<void> run();
  void stop();
  /// A take has found nothing left. Any thread.
  void wake() { signal_.set(); }

  /// One round for one scope, on the engine's executor.
  [[nodiscard]] common::Task<void> lead(std::shared_ptr<Scope> scope);

 private:
  Parts parts_;
  const Config config_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  common::Counter& leases_;
};

/// Units of the next lease: chunks shrink towards the end, so that whoever takes over then still
/// has something to give.
[[nodiscard]] std::int32_t next_lease_units(std::int32_t quantity, std::int32_t leased_to,
                                            std::int32_t chunk) noexcept;

}  // namespace doorbuster::engine

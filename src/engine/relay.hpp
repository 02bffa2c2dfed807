#pragma once

#include "engine/writer.hpp"

namespace doorbuster::engine {

/// Carries the numbered sequence of each shard from the outbox to its gate (S3, S4): at once when
/// told that steps were written, and every `every` for what a crash or a lost message left behind.
class Relay {
 public:
  Relay(Parts parts, std::chrono::milliseconds every);

  [[nodiscard]] common::Task<void> run();
  /// Any thread.
  void wake() { signal_.set(); }
  void stop() {
    stopping_.store(true);
    signal_.set();
  }

  /// Delivers what waits for one scope; also used by a rebuild between its two loads. False: not
  /// now.
  [[nodiscard]] common::Task<bool> deliver(std::shared_ptr<Scope> scope);

 private:
  Parts parts_;
  const std::chrono::milliseconds every_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  common::Counter& delivered_;
  common::Counter& failed_;
  common::Gauge& lag_;
};

}  // namespace doorbuster::engine

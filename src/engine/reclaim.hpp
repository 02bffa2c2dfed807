#pragma once

#include <mutex>
#include <set>

#include "engine/relay.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

/// Ends grants in flight that nobody finishes (S7): mark, wait for the journal, then a REJECTED row
/// unless a row is there; what is there decides. Safe to run twice and at the same time.
///
/// At once: grants of nodes that have ended, and those whose send definitely failed. After `after`,
/// counted only while the ledger answers: all others.
class Reclaim {
 public:
  struct Config {
    std::chrono::milliseconds every{60'000};
    std::chrono::seconds after{60};
  };
  Reclaim(Parts parts, Writer& writer, Relay& relay, Config config);

  [[nodiscard]] common::Task<void> run();
  void stop();
  /// Somebody's heartbeat has ended. Any thread.
  void wake();
  /// The send of this grant definitely failed. Any thread.
  void send_failed(const GrantId& id);

  /// How many grants were ended or confirmed. On the engine's executor.
  [[nodiscard]] common::Task<common::Result<std::int64_t>> run_once();

 private:
  [[nodiscard]] common::Task<common::Result<std::int64_t>> run_scope(std::shared_ptr<Scope> scope,
                                                                     bool old_ones_too);
  [[nodiscard]] bool nobody_finishes(const GateEntry& entry, Instant now, bool old_ones_too);

  Parts parts_;
  Writer& writer_;
  Relay& relay_;
  const Config config_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;
  std::set<GrantId> failed_;  // Guarded by mutex_: sends that definitely failed.
  std::optional<common::Steady> ledger_up_since_;
  common::Counter& reclaimed_;
};

}  // namespace doorbuster::engine

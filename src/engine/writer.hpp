#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "common/executor.hpp"
#include "common/metrics.hpp"
#include "engine/gate.hpp"
#include "engine/journal.hpp"
#include "engine/ledger.hpp"
#include "engine/outcomes.hpp"
#include "engine/roster.hpp"
#include "engine/scopes.hpp"

namespace doorbuster::engine {

/// What the engine's loops share.
struct Parts {
  common::Executor& home;  ///< where all of them run
  Gate& gate;
  Journal& journal;
  Ledger& ledger;
  Scopes& scopes;
  Outcomes& outcomes;
  common::Metrics& metrics;
  Roster& roster;
};

/// Carries grants from the journal to the ledger, a batch a transaction, and tells gate and waiters
/// what became of them (engine page, sections 4 and 7).
///
/// W1: while the ledger is idle a grant waits for nothing; while it is busy the next batch gathers.
/// W2: a batch whose commit is not certain is sent again until the ledger says what became of it.
/// W3: a seat is free again only when its grant has a row.
class Writer {
 public:
  struct Config {
    std::size_t batch_max = 1000;               ///< grants a transaction, 1 to 10,000
    std::chrono::milliseconds retry_first{50};  ///< wait before a batch goes again; doubles up to
    std::chrono::milliseconds retry_most{1000};
  };

  /// `steps_written` is called when a transaction wrote returns or loads.
  Writer(Parts parts, Config config, std::function<void()> steps_written);

  /// Ends when the journal is stopped and consumed, or when give_up() was called while the ledger
  /// fails.
  [[nodiscard]] common::Task<void> run();

  /// For a shutdown whose grace is over: an unrecorded batch is left (nothing of it was answered).
  void give_up() noexcept { give_up_.store(true); }

  /// Whether the last try to write failed: then no slot is taken (section 11). Any thread.
  [[nodiscard]] bool ledger_down() const noexcept {
    return ledger_down_.load(std::memory_order_relaxed);
  }

 private:
  common::Task<std::vector<Grant>> settle_batch(std::vector<Grant> batch,
                                                std::vector<RecordOutcome> outcomes);
  common::Task<bool> record_all(std::vector<Grant> batch);

  Parts parts_;
  const Config config_;
  const std::function<void()> steps_written_;
  std::atomic<bool> give_up_{false};
  std::atomic<bool> ledger_down_{false};
  common::Histogram& batch_rows_;
  common::Histogram& record_seconds_;
  common::Counter& retries_;
  common::Gauge& down_;
  std::vector<common::Counter*> by_kind_;
};

}  // namespace doorbuster::engine

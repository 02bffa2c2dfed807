#pragma once

#include <mutex>
#include <vector>

#include "engine/writer.hpp"

namespace doorbuster::engine {

/// The check before 202 (S8): after the journal has a grant durably, a reading of the ledger made
/// after that must show its epoch still in force and no reclaim mark on its id. One reading serves
/// all that have gathered while the one before was under way.
class StandingCheck {
 public:
  explicit StandingCheck(Parts parts);

  [[nodiscard]] common::Task<void> run();
  void stop();

  /// Whether the grant may be answered as given, by a reading that begins after this call. False
  /// also when the ledger did not answer until `deadline`. On `caller`.
  [[nodiscard]] common::Task<bool> stands(common::Executor& caller, Grant grant,
                                          common::Steady deadline);

 private:
  struct Asked {
    ScopeId scope;
    Epoch epoch;
    GrantId id;
    common::Completion<bool> answer;
  };

  Parts parts_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<Asked> asked_;  // Guarded by mutex_.
  common::Counter& checks_;
  common::Counter& refused_;
};

}  // namespace doorbuster::engine

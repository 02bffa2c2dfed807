#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/task.hpp"
#include "engine/ledger.hpp"

namespace doorbuster::engine {

/// Leads what the ledger said of a grant to the requests that wait for it on this node. Any thread.
class Outcomes {
 public:
  using Arrival = common::Completion<common::Result<RecordOutcome>>;

  /// To be called before the grant is appended, so that its outcome cannot be missed.
  [[nodiscard]] Arrival expect(const GrantId& id, common::Executor& home) {
    Arrival arrival(home);
    const std::lock_guard lock(mutex_);
    waiting_[id].push_back(arrival);
    return arrival;
  }

  void publish(const GrantId& id, const common::Result<RecordOutcome>& outcome) {
    std::vector<Arrival> arrivals;
    {
      const std::lock_guard lock(mutex_);
      const auto found = waiting_.find(id);
      if (found == waiting_.end()) return;
      arrivals = std::move(found->second);
      waiting_.erase(found);
    }
    for (const Arrival& arrival : arrivals) arrival.complete(outcome);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<GrantId, std::vector<Arrival>> waiting_;  // Guarded by mutex_.
};

}  // namespace doorbuster::engine

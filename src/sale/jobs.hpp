#pragma once

#include <atomic>

#include "sale/routes.hpp"

namespace doorbuster::sale {

/// Closes sales whose time is over, and settles closed ones once nothing of theirs is open any more
/// (engine page, section 13). Safe to run twice and at the same time.
class SaleJobs {
 public:
  SaleJobs(RouteParts parts, common::Executor& home);

  /// How many sales changed their state. On the jobs' executor.
  [[nodiscard]] common::Task<common::Result<std::int64_t>> close_events();
  /// The same from anywhere, for `job close-events`; answers on `caller`.
  [[nodiscard]] common::Task<common::Result<std::int64_t>> close_events_for(
      common::Executor& caller);

  /// Runs close_events each second until stop().
  [[nodiscard]] common::Task<void> run();
  void stop();

 private:
  RouteParts p_;
  common::Executor& home_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
};

}  // namespace doorbuster::sale

#pragma once

#include <chrono>
#include <string>

#include "common/result.hpp"

namespace doorbuster::engine {

/// What a request may have to wait for (engine page, section 12). Values really in force.
struct Budget {
  std::chrono::milliseconds request_budget{5000};
  std::chrono::milliseconds take_timeout{
      50};  ///< the local gate never waits; what its lock may cost
  std::chrono::milliseconds connection_wait{
      100};  ///< until the writer's current transaction is over
  std::chrono::milliseconds statement_timeout{
      500};  ///< how long the database may keep one batch waiting
  std::chrono::milliseconds confirm_timeout{50};
  std::size_t queue_size = 4096;  ///< seats of the journal
  std::size_t batch_max = 1000;
};

/// The sum as a sentence with its numbers, for the start-up log; kInvalid with the same sentence
/// when `request_budget` is not above it.
[[nodiscard]] common::Result<std::string> check_budget(const Budget& budget);

}  // namespace doorbuster::engine

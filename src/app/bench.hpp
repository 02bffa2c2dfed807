#pragma once

#include <cstdint>

#include "common/result.hpp"

namespace doorbuster::app {

/// Figures of this machine, as ratios inside one run (docs: bench/README.md). Starts servers of
/// this program on loopback with their own data folders, pinned to one core, and sends the load
/// from the others.
struct BenchConfig {
  int runs = 5;                    ///< alternating; medians are printed. 1 to 50
  std::int64_t members = 200'000;  ///< buyers of the rush; 1,000 to 5,000,000
  std::int64_t units = 10'000;     ///< units of the rush and of the durable purchases
  bool as_json = false;
};

/// Prints a table; the exit code.
[[nodiscard]] common::Result<int> bench(const BenchConfig& config);

}  // namespace doorbuster::app

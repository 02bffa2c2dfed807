#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/result.hpp"

namespace doorbuster::bench {

/// Figures of this machine, as ratios inside one run (bench/README.md says what each one means).
/// Starts servers on loopback with folders of their own, pinned to one core, and sends the load
/// from another.
struct BenchConfig {
  int runs = 5;                    ///< alternating; medians are printed. 1 to 50
  std::int64_t members = 500'000;  ///< buyers of the rush; 1,000 to 5,000,000
  std::int64_t units = 10'000;     ///< units of the rush and of the durable purchases
  std::vector<std::string> only;   ///< of figure_names(); empty: all
  /// Another build of this program, to be measured beside this one where refusals are; empty: none.
  std::string other;
  bool as_json = false;
};

[[nodiscard]] const std::vector<std::string>& figure_names();

/// Prints a table; the exit code.
[[nodiscard]] common::Result<int> bench(const BenchConfig& config, const common::Clock& clock);

}  // namespace doorbuster::bench

#pragma once

#include <string>
#include <vector>

#include "app/config.hpp"

namespace doorbuster::app {

/// One thing that was looked at, and what to do where it is not well.
struct Finding {
  enum class Level { kOk, kWarning, kProblem };
  Level level = Level::kOk;
  std::string what;
  std::string advice;  ///< empty where it is well
};

/// Looks at configuration and every dependency without changing anything; a server may be running.
[[nodiscard]] std::vector<Finding> examine(const Config& config);

}  // namespace doorbuster::app

#pragma once

#include <memory>

#include "app/config.hpp"

namespace CLI {
class App;
}

namespace doorbuster::app {

/// Gives a command `--config FILE` and one flag for each configuration key. What the command line
/// says is in the returned inputs once it has been parsed; the environment is in them from the
/// start.
[[nodiscard]] std::shared_ptr<ConfigInputs> add_config_flags(CLI::App& command);

}  // namespace doorbuster::app

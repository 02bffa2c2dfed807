#pragma once

#include <optional>

#include "engine/rules.hpp"

namespace doorbuster::sim {

/// The rule that is not in force in this thread's runs.
void switch_off(std::optional<engine::Rule> rule);

}  // namespace doorbuster::sim

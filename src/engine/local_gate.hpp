#pragma once

#include <memory>

#include "engine/gate.hpp"

namespace doorbuster::engine {

/// The embedded default: in memory, for one node, with the whole quantity leased. Every call
/// completes without waiting. A scope is one lock; strangers of a sold-out scope never reach it
/// (sold_out.hpp).
[[nodiscard]] std::unique_ptr<Gate> make_local_gate();

}  // namespace doorbuster::engine

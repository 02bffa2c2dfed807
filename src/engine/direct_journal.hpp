#pragma once

#include <memory>

#include "common/executor.hpp"
#include "engine/journal.hpp"

namespace doorbuster::engine {

/// A bounded queue in this process. `seats` counts what is queued and what the writer has in hand;
/// `consumer` is the writer's executor.
[[nodiscard]] std::unique_ptr<Journal> make_direct_journal(common::Executor& consumer,
                                                           std::size_t seats);

}  // namespace doorbuster::engine

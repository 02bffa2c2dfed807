#pragma once

#include <vector>

#include "bench/bench.hpp"
#include "bench/table.hpp"

// One function a figure; each starts the servers that it needs and ends them.
namespace doorbuster::bench {

using Rows = common::Result<std::vector<Row>>;

/// Refusals of a sold-out item against the bare loop and nginx.
[[nodiscard]] Rows sold_out(const BenchConfig& config, const common::Clock& clock);

/// Purchases that end with a durable row, against inserting the same rows without a server.
[[nodiscard]] Rows durable(const BenchConfig& config, const common::Clock& clock);

/// To standard error: what is under way.
void say(const std::string& text);

}  // namespace doorbuster::bench

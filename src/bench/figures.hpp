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
/// A whole rush, against the same requests all refused.
[[nodiscard]] Rows rush(const BenchConfig& config, const common::Clock& clock);
/// How long answers take when buyers come by the clock; a cold server against a warm one.
[[nodiscard]] Rows open_loop(const BenchConfig& config, const common::Clock& clock);
/// Bytes for an idle connection and for a member at the gate.
[[nodiscard]] Rows memory(const BenchConfig& config, const common::Clock& clock);
/// Refusals among as many idle connections and slow readers as there are files, against without.
[[nodiscard]] Rows crowd(const BenchConfig& config, const common::Clock& clock);
/// The first three at one, ten and a hundred times a size.
[[nodiscard]] Rows scale(const BenchConfig& config, const common::Clock& clock);

// What scale() repeats. Brief: one row, without a target.
struct SoldOutPlan {
  std::vector<std::size_t> pipelined{1, 16};
  std::size_t connections = 64;
  bool brief = false;  ///< this server and the bare loop only
};
[[nodiscard]] Rows sold_out_at(const BenchConfig& config, const common::Clock& clock,
                               const SoldOutPlan& plan);
[[nodiscard]] Rows durable_at(const BenchConfig& config, const common::Clock& clock,
                              std::int64_t units, bool brief);
[[nodiscard]] Rows rush_at(const BenchConfig& config, const common::Clock& clock,
                           std::int64_t units, std::int64_t members, bool brief);

/// To standard error: what is under way.
void say(const std::string& text);

}  // namespace doorbuster::bench

#include <algorithm>
#include <iterator>

#include "bench/figures.hpp"

namespace doorbuster::bench {

Rows scale(const BenchConfig& config, const common::Clock& clock) {
  std::vector<Row> rows;
  const auto add = [&rows](Rows more) -> common::Result<common::Done> {
    if (!more) return common::fail(more.error());
    std::move(more->begin(), more->end(), std::back_inserter(rows));
    return common::Done{};
  };
  for (const std::size_t connections : {64U, 640U, 6400U}) {
    const auto done = add(
        sold_out_at(config, clock, {.pipelined = {1}, .connections = connections, .brief = true}));
    if (!done) return common::fail(done.error());
  }
  for (const std::int64_t units : {1'000, 10'000, 100'000}) {
    const auto done = add(durable_at(config, clock, units, true));
    if (!done) return common::fail(done.error());
  }
  for (const std::int64_t units : {100, 1'000, 10'000}) {
    const auto done = add(rush_at(config, clock, units, 50 * units, true));
    if (!done) return common::fail(done.error());
  }
  return rows;
}

}  // namespace doorbuster::bench

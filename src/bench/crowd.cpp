#include <fmt/format.h>

#include <algorithm>

#include "bench/figures.hpp"
#include "bench/idle.hpp"
#include "bench/rush_run.hpp"
#include "rush/report.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

constexpr std::size_t kAll = 20'000;
constexpr std::size_t kSlow = 500;
constexpr std::size_t kRush = 256;
/// Files that server and load have open besides connections.
constexpr std::size_t kReserve = 120;
constexpr std::int64_t kMembers = 40'000;
constexpr std::int64_t kUnits = kMembers / 50;
constexpr int kTries = 6;

}  // namespace

Rows crowd(const BenchConfig& config, const common::Clock& clock) {
  const std::size_t fit = std::min(kAll, open_files() - kReserve);
  if (fit < kSlow + kRush + 1) return fail(ErrorCode::kConflict, "too few open files for a crowd");
  const std::size_t idle_count = fit - kSlow - kRush;
  say(fmt::format("{} connections, {} of them idle, {} slow", fit, idle_count, kSlow));

  auto crowded = Shop::start(clock);
  if (!crowded) return fail(crowded.error());
  auto empty = Shop::start(clock);
  if (!empty) return fail(empty.error());
  IdleConnections idle;
  const auto grown =
      idle.grow((*crowded)->port(), idle_count, "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n");
  if (!grown) return fail(grown.error());
  // Some megabytes each, of which they take a few kilobytes.
  std::string much;
  for (int i = 0; i < 40; ++i) much += "GET /docs HTTP/1.1\r\nHost: a\r\n\r\n";
  SlowReaders slow;
  const auto started = slow.start((*crowded)->port(), kSlow, idle_count, much);
  if (!started) return fail(started.error());

  struct Pair {
    RushRun with;
    RushRun without;
  };
  std::vector<Pair> pairs;
  std::int64_t number = 0;
  const auto once = [&](Shop& shop) {
    return run_rush_once(
        {.units = kUnits, .members = kMembers, .number = ++number, .connections = kRush}, shop,
        clock);
  };
  for (int i = 0; i <= config.runs; ++i) {
    Result<RushRun> with = measure_quietly(kTries, [&] { return once(**crowded); });
    if (!with) return fail(with.error());
    slow.pause(true);
    Result<RushRun> without = measure_quietly(kTries, [&] { return once(**empty); });
    slow.pause(false);
    if (!without) return fail(without.error());
    // The first ones warm both.
    if (i > 0) pairs.push_back({std::move(*with), std::move(*without)});
  }
  if (idle.open() != idle_count || slow.open() != kSlow) {
    return fail(ErrorCode::kConflict,
                fmt::format("{} of {} idle connections and {} of {} slow ones were still open",
                            idle.open(), idle_count, slow.open(), kSlow));
  }
  const auto middle = [&](auto&& of) {
    std::vector<double> values;
    for (const Pair& pair : pairs) values.push_back(of(pair));
    return median(values);
  };
  rush::LatencyHistogram with_times;
  rush::LatencyHistogram without_times;
  for (const Pair& pair : pairs) {
    with_times.merge(pair.with.load.times);
    without_times.merge(pair.without.load.times);
  }
  return std::vector<Row>{
      {.key = "crowd",
       .what = fmt::format("a rush among {} open connections, {} of them idle and {} slow readers, "
                           "against one without",
                           fit, idle_count, kSlow),
       .ratio = middle(
           [](const Pair& p) { return p.with.load.per_second() / p.without.load.per_second(); }),
       .target = Target{0.9, true},
       .per_second = middle([](const Pair& p) { return p.with.load.per_second(); }),
       .times = with_times,
       .note = fmt::format("by CPU time {:.2f}; slow ones took {} bytes; neighbours {:.0f} %",
                           middle([](const Pair& p) { return p.without.cpu_s / p.with.cpu_s; }),
                           rush::for_people(slow.bytes()), middle([](const Pair& p) {
                             return 100 * std::max(p.with.neighbours, p.without.neighbours);
                           }))},
      {.key = "crowdWithout",
       .what = "the same rush without them",
       .ratio = 1,
       .target = {},
       .per_second = middle([](const Pair& p) { return p.without.load.per_second(); }),
       .times = without_times,
       .note = {}}};
}

}  // namespace doorbuster::bench

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/figures.hpp"
#include "bench/shop.hpp"
#include "rush/rush.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

/// One buyer of so many gets a unit.
constexpr std::int64_t kBuyersPerUnit = 50;
constexpr std::int64_t kMembers = 200'000;
constexpr int kConnections = 1'000;
/// How long buyers come at each rate.
constexpr double kSeconds = 3;

struct Run {
  rush::RushReport report;
  double neighbours = 0;
};

/// A rush of the load tool on a sale of its own, which it checks; `rate` 0: as fast as it goes.
Result<Run> run(Shop& shop, double rate, std::uint64_t seed, const common::Clock& clock) {
  rush::RushConfig config;
  config.url = shop.url();
  config.live = rush::Live::kOff;
  config.seed = seed;
  config.connections = kConnections;
  config.members = kMembers;
  if (rate > 0) {
    config.curve = rush::Curve::kPoisson;
    config.rate = rate;
    config.members = std::clamp<std::int64_t>(std::llround(rate * kSeconds), 1'000, 2'000'000);
  }
  config.units = std::max<std::int64_t>(1, config.members / kBuyersPerUnit);
  config.quiet_apart = std::chrono::milliseconds{100};
  const Neighbours neighbours(shop.process());
  Result<rush::RushReport> report = rush::run_rush(config, clock);
  if (!report) return fail(report.error());
  if (report->outcome() != rush::Outcome::kOk || !report->stopped.empty()) {
    return fail(ErrorCode::kConflict,
                "a rush for the figures went wrong:\n" + rush::text_report(*report));
  }
  return Run{.report = std::move(*report), .neighbours = neighbours.share()};
}

double microseconds(const rush::LatencyHistogram& times, double percent) {
  return static_cast<double>(std::max<std::int64_t>(1, times.percentile(percent).count()));
}

std::string percentiles(const rush::LatencyHistogram& times) {
  return fmt::format("p50 {}, p99 {}, p99.9 {}", rush::for_people(times.percentile(50)),
                     rush::for_people(times.percentile(99)),
                     rush::for_people(times.percentile(99.9)));
}

}  // namespace

Rows open_loop(const BenchConfig& config, const common::Clock& clock) {
  say("by the clock");
  std::uint64_t seed = 0;
  std::vector<double> sustained;
  {
    auto shop = Shop::start(clock);
    if (!shop) return fail(shop.error());
    // The first one warms the server.
    for (int i = 0; i <= config.runs; ++i) {
      const Result<Run> all_at_once = run(**shop, 0, ++seed, clock);
      if (!all_at_once) return fail(all_at_once.error());
      if (i == 0) continue;
      sustained.push_back(static_cast<double>(all_at_once->report.answers) /
                          all_at_once->report.seconds);
    }
  }
  const double rate = median(sustained);
  std::vector<Row> rows;
  rows.push_back(
      {.key = "openLoop.sustained",
       .what = fmt::format("rush of the load tool, all at once, {} connections", kConnections),
       .ratio = {},
       .target = {},
       .per_second = rate,
       .times = {},
       .note = "what the shares below are of"});

  struct Level {
    double share = 0;
    rush::LatencyHistogram all{};
    rush::LatencyHistogram grants{};
    std::vector<double> late_us{};  ///< p99 of how late the tool itself was
    std::vector<double> neighbours{};
  };
  std::vector<Level> levels;
  for (const double share : {0.3, 0.6, 0.9}) levels.push_back({.share = share});
  std::vector<double> cold_to_warm;
  rush::LatencyHistogram cold;
  rush::LatencyHistogram warm;
  for (int i = 0; i < config.runs; ++i) {
    // The first rush of a server's life, and the same again.
    auto shop = Shop::start(clock);
    if (!shop) return fail(shop.error());
    const Result<Run> first = run(**shop, 0.6 * rate, ++seed, clock);
    if (!first) return fail(first.error());
    const Result<Run> second = run(**shop, 0.6 * rate, ++seed, clock);
    if (!second) return fail(second.error());
    cold_to_warm.push_back(microseconds(first->report.all, 99) /
                           microseconds(second->report.all, 99));
    cold.merge(first->report.all);
    warm.merge(second->report.all);
    for (Level& level : levels) {
      const Result<Run> done = run(**shop, level.share * rate, ++seed, clock);
      if (!done) return fail(done.error());
      level.all.merge(done->report.all);
      level.grants.merge(done->report.grants);
      level.late_us.push_back(microseconds(done->report.workers.front().lag, 99));
      level.neighbours.push_back(done->neighbours);
    }
  }
  for (const Level& level : levels) {
    const auto percent = static_cast<int>(std::lround(100 * level.share));
    rows.push_back(
        {.key = fmt::format("openLoop.{}", percent),
         .what = fmt::format("by the clock at {} % of that rate, one buyer of {} gets a unit",
                             percent, kBuyersPerUnit),
         .ratio = {},
         .target = {},
         .per_second = level.share * rate,
         .times = level.all,
         .note = fmt::format("grants {}; the tool late by {:.0f} us (p99); neighbours {:.0f} %",
                             percentiles(level.grants), median(level.late_us),
                             100 * median(level.neighbours))});
  }
  rows.push_back({.key = "openLoop.cold",
                  .what = "a cold server's first rush at 60 %, p99 against the second one's",
                  .ratio = median(cold_to_warm),
                  .target = Target{1.5, false},
                  .per_second = 0.6 * rate,
                  .times = cold,
                  .note = "second: " + percentiles(warm)});
  return rows;
}

}  // namespace doorbuster::bench

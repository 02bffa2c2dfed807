#include <fmt/format.h>

#include <algorithm>

#include "bench/figures.hpp"
#include "bench/rush_run.hpp"
#include "rush/report.hpp"

namespace doorbuster::bench {
namespace {

using common::fail;
using common::Result;

constexpr int kTries = 3;

}  // namespace

Rows rush_at(const BenchConfig& config, const common::Clock& clock, std::int64_t units,
             std::int64_t members, bool brief) {
  say(fmt::format("rush, {} units, {} members", units, members));
  struct Pair {
    RushRun rush;
    RushRun refused;
  };
  std::vector<Pair> pairs;
  for (int i = 0; i < config.runs; ++i) {
    auto shop = Shop::start(clock);
    if (!shop) return fail(shop.error());
    const Result<SoldOutItem> gone = sell_out(**shop, 100, clock);
    if (!gone) return fail(gone.error());
    RushRunPlan plan{.units = units, .members = members};
    const auto once = [&] {
      ++plan.number;
      return run_rush_once(plan, **shop, clock);
    };
    Result<RushRun> rush = measure_quietly(kTries, once);
    if (!rush) return fail(rush.error());
    plan.units = 0;
    plan.gone = gone->item;
    Result<RushRun> refused = measure_quietly(kTries, once);
    if (!refused) return fail(refused.error());
    pairs.push_back({std::move(*rush), std::move(*refused)});
  }
  const auto middle = [&](auto&& of) {
    std::vector<double> values;
    for (const Pair& pair : pairs) values.push_back(of(pair));
    return median(values);
  };
  rush::LatencyHistogram rush_times;
  rush::LatencyHistogram refused_times;
  for (const Pair& pair : pairs) {
    rush_times.merge(pair.rush.load.times);
    refused_times.merge(pair.refused.load.times);
  }
  Row row{
      .key = "rush",
      .what = fmt::format("{} units to {} buyers, {} connections, closed loop, as long as all "
                          "refused",
                          rush::for_people(static_cast<std::uint64_t>(units)),
                          rush::for_people(static_cast<std::uint64_t>(members)),
                          RushRunPlan().connections),
      .ratio = middle([](const Pair& p) { return p.rush.load.seconds / p.refused.load.seconds; }),
      .target = Target{1.2, false},
      .per_second = middle([](const Pair& p) { return p.rush.load.per_second(); }),
      .times = rush_times,
      .note = fmt::format(
          "by CPU time {:.2f}; the last unit durable after {:.2f} s, {:.0f} % of the time; "
          "neighbours {:.0f} %",
          middle([](const Pair& p) { return p.rush.cpu_s / p.refused.cpu_s; }),
          middle([](const Pair& p) { return p.rush.last_grant_s; }),
          middle([](const Pair& p) { return 100 * p.rush.last_grant_s / p.rush.load.seconds; }),
          middle([](const Pair& p) {
            return 100 * std::max(p.rush.neighbours, p.refused.neighbours);
          }))};
  if (brief) {
    row.key += fmt::format(".{}", units);
    row.target.reset();
    return std::vector<Row>{row};
  }
  return std::vector<Row>{
      row,
      {.key = "rushRefused",
       .what = "the same requests, all refused",
       .ratio = 1,
       .target = {},
       .per_second = middle([](const Pair& p) { return p.refused.load.per_second(); }),
       .times = refused_times,
       .note = {}}};
}

Rows rush(const BenchConfig& config, const common::Clock& clock) {
  return rush_at(config, clock, config.units, config.members, false);
}

}  // namespace doorbuster::bench

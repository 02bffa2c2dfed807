#include "bench/rush_run.hpp"

#include <fmt/format.h>

#include <set>
#include <string>

namespace doorbuster::bench {

using common::ErrorCode;
using common::fail;
using common::Result;

Result<RushRun> run_rush_once(const RushRunPlan& plan, Shop& shop, const common::Clock& clock) {
  std::int64_t item = plan.gone;
  if (plan.units > 0) {
    const Result<std::int64_t> opened = shop.open_sale(plan.units);
    if (!opened) return fail(opened.error());
    item = *opened;
  }
  std::vector<Ask> asks;
  asks.reserve(static_cast<std::size_t>(plan.members));
  for (std::int64_t n = 0; n < plan.members; ++n) asks.push_back({scattered(n), plan.number});
  const Requests requests = purchases(item, asks, clock.now());
  std::set<std::string, std::less<>> orders;
  std::size_t wrong = 0;
  common::Steady last{};
  LoadPlan load_plan{
      .port = shop.port(), .connections = plan.connections, .count = requests.count()};
  load_plan.other = [&](std::size_t, int status, std::string_view body) {
    last = clock.steady();
    if (status != 202 || !orders.emplace(json_text(body, "orderId")).second) ++wrong;
  };
  const Neighbours neighbours(shop.process());
  const std::chrono::nanoseconds cpu = shop.process().cpu();
  const common::Steady begun = clock.steady();
  Result<LoadResult> load = run_load(load_plan, requests, clock);
  if (!load) return fail(load.error());
  RushRun run{.load = std::move(*load),
              .cpu_s = std::chrono::duration<double>(shop.process().cpu() - cpu).count(),
              .last_grant_s = std::chrono::duration<double>(last - begun).count(),
              .neighbours = neighbours.share()};
  if (wrong > 0 || orders.size() != static_cast<std::size_t>(plan.units)) {
    return fail(ErrorCode::kConflict,
                fmt::format("{} of {} units told, {} answers that were neither", orders.size(),
                            plan.units, wrong));
  }
  if (plan.units == 0) return run;
  const Result<std::int64_t> sold = shop.sold(item);
  if (!sold) return fail(sold.error());
  if (*sold != plan.units) {
    return fail(ErrorCode::kConflict,
                fmt::format("{} units told, {} in the ledger", plan.units, *sold));
  }
  return run;
}

}  // namespace doorbuster::bench

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "bench/figures.hpp"
#include "bench/ledger_copy.hpp"
#include "bench/shop.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

constexpr std::size_t kConnections = 256;

constexpr int kTries = 8;

/// One rush that sells everything.
struct Bought {
  double per_second = 0;
  double cpu_us = 0;  ///< of the server, for each
  double batch = 0;   ///< grants in a transaction
  double neighbours = 0;
  rush::LatencyHistogram times;
  LedgerCopy copy;
};

struct Raw {
  double per_second = 0;
  double cpu_us = 0;
  double neighbours = 0;
};

class DurableFigure {
 public:
  DurableFigure(std::int64_t units, Shop& shop, const common::Clock& clock)
      : units_(units), shop_(shop), clock_(clock) {}

  Result<Bought> buy() {
    const Result<std::int64_t> item = shop_.open_sale(units_);
    if (!item) return fail(item.error());
    std::vector<Ask> asks;
    ++number_;
    for (std::int64_t n = 0; n < units_; ++n) asks.push_back({kFirstMember + n, number_});
    const Requests buying = purchases(*item, asks, clock_.now());
    const auto before = count_rows(shop_.ledger());
    if (!before) return fail(before.error());
    const double rows = shop_.metric("engine_batch_rows_sum");
    const double batches = shop_.metric("engine_batch_rows_count");
    const LoadPlan plan{
        .port = shop_.port(), .connections = kConnections, .count = asks.size(), .usual = 202};
    const Neighbours neighbours(shop_.process());
    const std::chrono::nanoseconds cpu = shop_.process().cpu();
    const Result<LoadResult> load = run_load(plan, buying, clock_);
    if (!load) return fail(load.error());
    const double spent =
        std::chrono::duration<double, std::micro>(shop_.process().cpu() - cpu).count();
    Bought bought{.per_second = load->per_second(),
                  .cpu_us = spent / static_cast<double>(units_),
                  .neighbours = neighbours.share(),
                  .times = load->times,
                  .copy = {}};
    if (load->other > 0) {
      return fail(ErrorCode::kConflict, fmt::format("{} buyers got no unit", load->other));
    }
    bought.batch = (shop_.metric("engine_batch_rows_sum") - rows) /
                   (shop_.metric("engine_batch_rows_count") - batches);
    Result<LedgerCopy> copy = copy_grants(shop_.ledger(), *before, units_);
    if (!copy) return fail(copy.error());
    bought.copy = std::move(*copy);
    return bought;
  }

  [[nodiscard]] Result<Raw> insert(const Bought& bought) const {
    const Result<RawInserts> raw =
        insert_again(bought.copy, std::max<std::int64_t>(1, std::llround(bought.batch)), clock_);
    if (!raw) return fail(raw.error());
    const auto units = static_cast<double>(units_);
    return Raw{.per_second = units / raw->seconds,
               .cpu_us = raw->cpu_seconds * 1e6 / units,
               .neighbours = raw->neighbours};
  }

 private:
  const std::int64_t units_;
  Shop& shop_;
  const common::Clock& clock_;
  std::int64_t number_ = 0;
};

}  // namespace

Rows durable_at(const BenchConfig& config, const common::Clock& clock, std::int64_t units,
                bool brief) {
  say(fmt::format("durable purchases, {} units", units));
  std::vector<double> ratios;
  std::vector<double> by_cpu;
  std::vector<Bought> all;
  std::vector<Raw> raws;
  for (int i = 0; i < config.runs; ++i) {
    // A new server each time: sales that are over would go on costing it a little.
    auto shop = Shop::start(clock);
    if (!shop) return fail(shop.error());
    DurableFigure figure(units, **shop, clock);
    // The first one is not counted: it is the server's first rush.
    const Result<Bought> warming = figure.buy();
    if (!warming) return fail(warming.error());
    Result<Bought> bought = measure_quietly(kTries, [&] { return figure.buy(); });
    if (!bought) return fail(bought.error());
    const Result<Raw> raw = measure_quietly(kTries, [&] { return figure.insert(*bought); });
    if (!raw) return fail(raw.error());
    ratios.push_back(bought->per_second / raw->per_second);
    by_cpu.push_back(raw->cpu_us / bought->cpu_us);
    all.push_back(std::move(*bought));
    raws.push_back(*raw);
  }
  const auto middle = [](const auto& list, auto&& of) {
    std::vector<double> values;
    for (const auto& one : list) values.push_back(of(one));
    return median(values);
  };
  rush::LatencyHistogram times;
  for (const Bought& one : all) times.merge(one.times);
  std::vector<std::string> tables;
  for (const TableRows& table : all.front().copy.per_grant) tables.push_back(table.name);
  const auto neighbours = [](const auto& one) { return 100 * one.neighbours; };
  Row row{.key = "durable",
          .what = fmt::format("durable purchases, {} connections, against the raw inserts",
                              kConnections),
          .ratio = median(ratios),
          .target = Target{0.5, true},
          .per_second = middle(all, [](const Bought& one) { return one.per_second; }),
          .times = times,
          .note = fmt::format(
              "by CPU time {:.2f} ({:.1f} us each); neighbours {:.0f} %", median(by_cpu),
              middle(all, [](const Bought& one) { return one.cpu_us; }), middle(all, neighbours))};
  if (brief) {
    row.key += fmt::format(".{}", units);
    row.what = fmt::format("{} durable purchases against the raw inserts", units);
    row.target.reset();
    return std::vector<Row>{row};
  }
  return std::vector<Row>{
      row,
      {.key = "durableRaw",
       .what = fmt::format("raw inserts of the same rows ({}), {:.0f} grants a transaction",
                           fmt::join(tables, ", "),
                           middle(all, [](const Bought& one) { return one.batch; })),
       .ratio = 1,
       .target = {},
       .per_second = middle(raws, [](const Raw& one) { return one.per_second; }),
       .times = {},
       .note = fmt::format("{:.1f} us each; neighbours {:.0f} %",
                           middle(raws, [](const Raw& one) { return one.cpu_us; }),
                           middle(raws, neighbours))}};
}

Rows durable(const BenchConfig& config, const common::Clock& clock) {
  return durable_at(config, clock, config.units, false);
}

}  // namespace doorbuster::bench

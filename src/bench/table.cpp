#include "bench/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "rush/report.hpp"

namespace doorbuster::bench {
namespace {

/// Two digits where they mean something.
std::string number(double value) {
  return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

std::string target_text(const Row& row) {
  if (!row.target || !row.ratio) return {};
  return fmt::format("{} {}: {}", row.target->at_least ? "at least" : "at most",
                     number(row.target->bound), row.target->met(*row.ratio) ? "met" : "MISSED");
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string as_markdown(const std::vector<Row>& rows) {
  std::string out =
      "| what | ratio | target | per second | p50 | p99 | p99.9 | "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    const auto time = [&](double percent) {
      return row.times && row.times->count() > 0 ? rush::for_people(row.times->percentile(percent))
                                                 : std::string();
    };
    out +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.what,
                    row.ratio ? number(*row.ratio) : std::string(), target_text(row),
                    row.per_second ? rush::for_people(static_cast<std::uint64_t>(*row.per_second))
                                   : std::string(),
                    time(50), time(99), time(99.9), row.note);
  }
  return out;
}

std::string as_json(const std::vector<Row>& rows) {
  boost::json::object all;
  for (const Row& row : rows) {
    boost::json::object one{{"what", row.what}};
    if (row.ratio) one["ratio"] = *row.ratio;
    if (row.ratio && row.target) {
      one[row.target->at_least ? "atLeast" : "atMost"] = row.target->bound;
      one["met"] = row.target->met(*row.ratio);
    }
    if (row.per_second) one["perSecond"] = *row.per_second;
    if (row.times && row.times->count() > 0) {
      one["p50Us"] = row.times->percentile(50).count();
      one["p99Us"] = row.times->percentile(99).count();
      one["p999Us"] = row.times->percentile(99.9).count();
    }
    if (!row.note.empty()) one["note"] = row.note;
    all[row.key] = std::move(one);
  }
  return boost::json::serialize(all);
}

}  // namespace doorbuster::bench

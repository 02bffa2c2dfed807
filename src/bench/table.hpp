#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rush/histogram.hpp"

namespace doorbuster::bench {

/// What a ratio should be.
struct Target {
  double bound = 0;
  bool at_least = true;  ///< else at most
  [[nodiscard]] bool met(double value) const { return at_least ? value >= bound : value <= bound; }
};

/// One figure. What is absent is not printed.
struct Row {
  std::string key;  ///< its name in JSON
  std::string what;
  std::optional<double> ratio;
  std::optional<Target> target;  ///< of the ratio
  std::optional<double> per_second;
  std::optional<rush::LatencyHistogram> times;
  std::string note;
};

/// The middle one, the upper of two; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

/// A Markdown table with its head.
[[nodiscard]] std::string as_markdown(const std::vector<Row>& rows);
/// One JSON object: by key an object of ratio, target, perSecond, p50Us, p99Us, p999Us.
[[nodiscard]] std::string as_json(const std::vector<Row>& rows);

}  // namespace doorbuster::bench

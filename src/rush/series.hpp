#pragma once

#include <cstdint>
#include <vector>

#include "rush/histogram.hpp"

namespace doorbuster::rush {

/// What happened within one interval of the run, for the charts.
struct SeriesPoint {
  std::uint64_t sent = 0;
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;  ///< sold out, closed, paused, not open, already
  std::uint64_t busy = 0;     ///< 503 and 429
  std::uint64_t failed = 0;   ///< cut answers, failed connections, and answers of no known kind
  Histogram latency;
};

/// A bounded time series: it starts with intervals of 100 ms, and whenever 128 of them are full, pairs are put
/// together and the interval doubles. So a short run is sharp and a long one stays small.
class Series {
 public:
  static constexpr std::size_t kMaxPoints = 128;
  static constexpr std::int64_t kFirstWidthMicros = 100'000;

  /// The interval that `micros` after the start lies in; valid until the next call.
  [[nodiscard]] SeriesPoint& at(std::int64_t micros);
  /// Adds another worker's series; the wider interval of the two wins.
  void merge(const Series& other);

  [[nodiscard]] std::int64_t width_micros() const noexcept { return width_; }
  [[nodiscard]] const std::vector<SeriesPoint>& points() const noexcept { return points_; }

 private:
  void widen();

  std::int64_t width_ = kFirstWidthMicros;
  std::vector<SeriesPoint> points_;
};

}  // namespace doorbuster::rush

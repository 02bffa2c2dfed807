#pragma once

#include <cstdint>
#include <vector>

namespace doorbuster::rush {

/// Latencies in microseconds, in log-linear buckets: every power of two is cut into 128 equal parts, so that a
/// value is known to better than 1 % wherever it lies (below 256 us exactly), in 21 KiB however many there are.
/// Range 0 us to 100 s; what is longer counts as 100 s, and `max()` stays exact. Not thread-safe: each worker
/// has its own, and they are merged.
class Histogram {
 public:
  static constexpr std::int64_t kMaxMicros = 100'000'000;

  Histogram();

  /// A negative value counts as 0.
  void record(std::int64_t micros) noexcept;
  void merge(const Histogram& other) noexcept;
  void clear() noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::int64_t min() const noexcept { return count_ == 0 ? 0 : min_; }
  [[nodiscard]] std::int64_t max() const noexcept { return max_; }
  [[nodiscard]] double mean() const noexcept;

  /// The smallest value v such that at least `quantile` (0 to 1) of all values are <= v, to within 1 % and
  /// never above max(). 0 when nothing was recorded.
  [[nodiscard]] std::int64_t percentile(double quantile) const noexcept;

  /// The largest value that falls into the same bucket as `micros`; for tests and charts.
  [[nodiscard]] static std::int64_t bucket_end(std::int64_t micros) noexcept;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = 0;
  std::int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace doorbuster::rush

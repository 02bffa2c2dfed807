#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace doorbuster::rush {

/// How long answers took, in log-linear buckets (the shape of HdrHistogram): 1 us to 100 s, and
/// what a bucket says is at most 1/128 (0.8 %) above the truth and never below it, so a figure
/// never flatters.
///
/// Coordinated omission is the recorder's matter: with arrivals by the clock it records the time
/// from the instant at which a request was due, and not from the one at which there was room to
/// send it.
///
/// Not thread-safe; each worker has its own, and they are merged.
class LatencyHistogram {
 public:
  using Micros = std::chrono::microseconds;

  static constexpr Micros kMax{100'000'000};

  LatencyHistogram();

  /// Part of a microsecond counts as a whole one; what is beyond the range goes to its nearest end,
  /// but `max` keeps the true value.
  void record(std::chrono::nanoseconds value) noexcept;
  void merge(const LatencyHistogram& other) noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Exact; zero when nothing was recorded.
  [[nodiscard]] Micros min() const noexcept { return Micros{count_ == 0 ? 0 : min_}; }
  [[nodiscard]] Micros max() const noexcept { return Micros{max_}; }
  [[nodiscard]] Micros mean() const noexcept;
  /// The smallest value that at least `percent` (0 to 100) of the records do not exceed, rounded up
  /// within its bucket, never above max(). Zero when nothing was recorded.
  [[nodiscard]] Micros percentile(double percent) const noexcept;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t sum_ = 0;
  std::int64_t min_ = 0;
  std::int64_t max_ = 0;
};

}  // namespace doorbuster::rush

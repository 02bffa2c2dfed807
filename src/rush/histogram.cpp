#include "rush/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace doorbuster::rush {
namespace {

/// Steps of one octave. Values below it have a bucket each, and are exact.
constexpr int kStepBits = 7;
constexpr std::uint64_t kSteps = 1U << kStepBits;

constexpr std::size_t bucket_of(std::uint64_t micros) {
  if (micros < kSteps) return static_cast<std::size_t>(micros);
  // The value's leading eight bits choose the bucket: its octave, and its step within.
  const int shift = static_cast<int>(std::bit_width(micros)) - 1 - kStepBits;
  return static_cast<std::size_t>(static_cast<std::uint64_t>(shift) * kSteps + (micros >> shift));
}

constexpr std::uint64_t highest_in(std::size_t bucket) {
  if (bucket < 2 * kSteps) return bucket;
  const std::uint64_t shift = bucket / kSteps - 1;
  const std::uint64_t step = bucket - shift * kSteps;
  return ((step + 1) << shift) - 1;
}

constexpr std::size_t kBuckets =
    bucket_of(static_cast<std::uint64_t>(LatencyHistogram::kMax.count())) + 1;
static_assert(highest_in(bucket_of(127)) == 127 && highest_in(bucket_of(255)) == 255);
static_assert(highest_in(bucket_of(256)) == 257 &&
              highest_in(bucket_of(100'000'000)) >= 100'000'000);

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets, 0) {}

void LatencyHistogram::record(std::chrono::nanoseconds value) noexcept {
  const std::int64_t micros = std::max<std::int64_t>(1, (value.count() + 999) / 1000);
  const std::int64_t inside = std::min<std::int64_t>(micros, kMax.count());
  ++buckets_[bucket_of(static_cast<std::uint64_t>(inside))];
  min_ = count_ == 0 ? micros : std::min(min_, micros);
  max_ = std::max(max_, micros);
  sum_ += micros;
  ++count_;
}

void LatencyHistogram::merge(const LatencyHistogram& other) noexcept {
  if (other.count_ == 0) return;
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

LatencyHistogram::Micros LatencyHistogram::mean() const noexcept {
  return Micros{count_ == 0 ? 0 : sum_ / static_cast<std::int64_t>(count_)};
}

LatencyHistogram::Micros LatencyHistogram::percentile(double percent) const noexcept {
  if (count_ == 0) return Micros{0};
  const double wanted =
      std::ceil(std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(count_));
  const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  // The last rank is the maximum itself, which is known exactly, also beyond the range.
  if (rank == count_) return Micros{max_};
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return Micros{std::min(max_, static_cast<std::int64_t>(highest_in(i)))};
  }
  return Micros{max_};
}

}  // namespace doorbuster::rush

#include "rush/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace doorbuster::rush {
namespace {

// Values below 2^8 have a bucket each; every later power of two has 2^7.
constexpr int kLinearBits = 8;
constexpr std::size_t kLinear = std::size_t{1} << kLinearBits;
constexpr std::size_t kPerOctave = kLinear / 2;

std::size_t index_of(std::int64_t micros) noexcept {
  const auto value = static_cast<std::uint64_t>(micros);
  if (value < kLinear) return value;
  const int shift = std::bit_width(value) - kLinearBits;
  return kLinear + static_cast<std::size_t>(shift - 1) * kPerOctave +
         static_cast<std::size_t>((value >> shift) - kPerOctave);
}

/// The largest value of a bucket.
std::int64_t end_of(std::size_t index) noexcept {
  if (index < kLinear) return static_cast<std::int64_t>(index);
  const std::size_t octave = (index - kLinear) / kPerOctave + 1;
  const std::size_t part = (index - kLinear) % kPerOctave + kPerOctave;
  return static_cast<std::int64_t>(((part + 1) << octave) - 1);
}

std::int64_t bounded(std::int64_t micros) noexcept {
  return std::clamp<std::int64_t>(micros, 0, Histogram::kMaxMicros);
}

}  // namespace

Histogram::Histogram() : buckets_(index_of(kMaxMicros) + 1) {}

void Histogram::record(std::int64_t micros) noexcept {
  const std::int64_t value = std::max<std::int64_t>(micros, 0);
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
  ++count_;
  ++buckets_[index_of(bounded(value))];
}

void Histogram::merge(const Histogram& other) noexcept {
  if (other.count_ == 0) return;
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
}

void Histogram::clear() noexcept {
  std::fill(buckets_.begin(), buckets_.end(), 0);
  count_ = 0;
  min_ = max_ = 0;
  sum_ = 0;
}

double Histogram::mean() const noexcept {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

std::int64_t Histogram::percentile(double quantile) const noexcept {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_));
  const std::uint64_t rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  // The last value is known exactly, also beyond the range of the buckets.
  if (rank == count_) return max_;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(end_of(i), max_);
  }
  return max_;
}

std::int64_t Histogram::bucket_end(std::int64_t micros) noexcept {
  return end_of(index_of(bounded(micros)));
}

}  // namespace doorbuster::rush

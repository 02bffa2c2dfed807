#include "rush/arrivals.hpp"

#include <bit>
#include <cmath>

namespace doorbuster::rush {

std::uint64_t mix(std::uint64_t value) noexcept {
  // SplitMix64.
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

double unit_interval(std::uint64_t hash) noexcept {
  return static_cast<double>(hash >> 11) * 0x1.0p-53;
}

Shuffle::Shuffle(std::uint64_t size, std::uint64_t seed) noexcept : size_(size), seed_(mix(seed)) {
  const int bits = std::bit_width(size - 1);
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

std::uint64_t Shuffle::once(std::uint64_t value) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < 4; ++round) {
    const std::uint64_t next = left ^ (mix(right ^ mix(seed_ + round)) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::uint64_t Shuffle::operator()(std::uint64_t index) const noexcept {
  // The domain is at most four times too large, so this ends after a few steps.
  std::uint64_t value = once(index);
  while (value >= size_) value = once(value);
  return value;
}

Arrivals::Arrivals(const Plan& plan) : plan_(plan), random_(mix(plan.seed ^ mix(plan.worker + 1))) {
  size_ = plan.total / plan.workers + (plan.worker < plan.total % plan.workers ? 1 : 0);
  if (size_ > 0) plan_next();
}

std::uint64_t Arrivals::take() {
  const std::uint64_t place = made_ * plan_.workers + plan_.worker;
  ++made_;
  if (made_ < size_) plan_next();
  return place;
}

void Arrivals::plan_next() {
  if (plan_.curve == Curve::kRamp) {
    // The rate is 2 * total * t / D^2, so the k-th of `total` comes at D * sqrt(k / total).
    const auto place = static_cast<double>(made_ * plan_.workers + plan_.worker + 1);
    const double share = place / static_cast<double>(plan_.total);
    due_ = static_cast<std::int64_t>(static_cast<double>(plan_.ramp_micros) * std::sqrt(share));
  } else if (plan_.curve == Curve::kPoisson) {
    std::exponential_distribution<double> gap(plan_.rate_per_s / static_cast<double>(plan_.workers));
    exact_ += gap(random_);
    due_ = static_cast<std::int64_t>(exact_ * 1e6);
  }
}

}  // namespace doorbuster::rush

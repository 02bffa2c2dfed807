#include "rush/plan.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace doorbuster::rush {

std::uint64_t Random::next() noexcept {
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t Random::below(std::uint64_t n) noexcept { return next() % n; }

double Random::unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::chrono::nanoseconds Random::between(std::chrono::nanoseconds from,
                                         std::chrono::nanoseconds to) noexcept {
  if (to <= from) return from;
  return from + std::chrono::nanoseconds{static_cast<std::int64_t>(
                    below(static_cast<std::uint64_t>((to - from).count()) + 1))};
}

std::vector<std::chrono::nanoseconds> arrivals(Curve curve, std::size_t count,
                                               std::chrono::nanoseconds over, double per_second,
                                               std::uint64_t seed) {
  std::vector<std::chrono::nanoseconds> list;
  if (curve == Curve::kAllAtOnce) return list;
  list.reserve(count);
  Random random(seed ^ 0xA221BA15ULL);
  double at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (curve == Curve::kRamp) {
      // A rate that grows with t makes the number that has come grow with t squared.
      at = static_cast<double>(over.count()) *
           std::sqrt(static_cast<double>(i + 1) / static_cast<double>(count));
    } else {
      at += -std::log1p(-random.unit()) * 1e9 / per_second;
    }
    list.emplace_back(static_cast<std::int64_t>(at));
  }
  return list;
}

std::vector<std::uint32_t> shuffled(std::uint32_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> list(count);
  std::iota(list.begin(), list.end(), 0U);
  Random random(seed);
  for (std::uint32_t i = count; i > 1; --i) {
    std::swap(list[i - 1], list[static_cast<std::size_t>(random.below(i))]);
  }
  return list;
}

}  // namespace doorbuster::rush

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace doorbuster::rush {

/// SplitMix64: small, fast, and the same numbers on every machine and library, so that a seed means
/// something.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  [[nodiscard]] std::uint64_t next() noexcept;
  /// 0 to n-1; `n` is at least 1. The bias of at most n/2^64 does not matter here.
  [[nodiscard]] std::uint64_t below(std::uint64_t n) noexcept;
  /// From 0 up to, and never, 1.
  [[nodiscard]] double unit() noexcept;
  /// `from` to `to`, even.
  [[nodiscard]] std::chrono::nanoseconds between(std::chrono::nanoseconds from,
                                                 std::chrono::nanoseconds to) noexcept;

 private:
  std::uint64_t state_;
};

/// How buyers come.
enum class Curve {
  kAllAtOnce,  ///< closed loop: everybody waits at the door, and the next is served as soon as a
               ///< connection is free
  kRamp,  ///< open loop: the rate grows linearly from nothing, and the last comes when the time is
          ///< over
  kPoisson,  ///< open loop: independent arrivals at an average rate
};

/// When each of `count` buyers comes, from the start and rising. `over` is for the ramp,
/// `per_second` (above 0) for Poisson. Nothing for kAllAtOnce, where there is no clock to come by.
[[nodiscard]] std::vector<std::chrono::nanoseconds> arrivals(Curve curve, std::size_t count,
                                                             std::chrono::nanoseconds over,
                                                             double per_second, std::uint64_t seed);

/// 0 to count-1 in an order that the seed decides.
[[nodiscard]] std::vector<std::uint32_t> shuffled(std::uint32_t count, std::uint64_t seed);

}  // namespace doorbuster::rush

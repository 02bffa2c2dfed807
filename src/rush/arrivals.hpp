#pragma once

#include <cstdint>
#include <random>

namespace doorbuster::rush {

/// How buyers come.
enum class Curve : std::uint8_t {
  kAtOnce,   ///< closed loop: all want one at the start, and each connection asks as fast as it is answered
  kRamp,     ///< open loop: the rate grows linearly from 0 over `ramp`, until all have come
  kPoisson,  ///< open loop: independent arrivals at `rate` per second
};

/// A fixed shuffle of 0..size-1 that needs no memory: a Feistel network over the next even number of bits,
/// walked until it lands inside. The same seed gives the same order on every machine.
class Shuffle {
 public:
  /// size 1 to 2^62.
  Shuffle(std::uint64_t size, std::uint64_t seed) noexcept;
  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const noexcept;

 private:
  [[nodiscard]] std::uint64_t once(std::uint64_t value) const noexcept;

  std::uint64_t size_;
  std::uint64_t seed_;
  int half_bits_ = 1;
};

/// The instants of one worker's open-loop arrivals, in microseconds after the start, never falling. With W
/// workers each makes a W-th of the traffic: every W-th arrival of the ramp, or an independent Poisson stream of
/// rate / W (the sum of independent Poisson streams is one of the whole rate).
class Arrivals {
 public:
  struct Plan {
    Curve curve = Curve::kAtOnce;
    std::uint64_t total = 0;        ///< arrivals of all workers
    double rate_per_s = 0;          ///< kPoisson: of all workers
    std::int64_t ramp_micros = 0;   ///< kRamp
    std::uint64_t workers = 1;
    std::uint64_t worker = 0;       ///< 0..workers-1
    std::uint64_t seed = 0;
  };
  explicit Arrivals(const Plan& plan);

  /// How many this worker makes.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] bool done() const noexcept { return made_ == size_; }
  /// The instant of the next one; 0 in a closed loop. Only while !done().
  [[nodiscard]] std::int64_t due_micros() const noexcept { return due_; }
  /// Takes it: its place in the order of all arrivals, 0..total-1.
  std::uint64_t take();

 private:
  void plan_next();

  Plan plan_;
  std::uint64_t size_ = 0;
  std::uint64_t made_ = 0;
  std::int64_t due_ = 0;
  double exact_ = 0;  // kPoisson: seconds, so that rounding does not add up
  std::mt19937_64 random_;
};

/// A well-mixed 64-bit hash, for choices that depend on a buyer and the seed only.
[[nodiscard]] std::uint64_t mix(std::uint64_t value) noexcept;
/// A number in [0, 1) out of it.
[[nodiscard]] double unit_interval(std::uint64_t hash) noexcept;

}  // namespace doorbuster::rush

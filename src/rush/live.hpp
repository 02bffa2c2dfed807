#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "rush/histogram.hpp"
#include "rush/worker.hpp"

namespace doorbuster::rush {

/// One moment of a rush, for the display.
struct Moment {
  double seconds = 0;     ///< since the start
  double interval_s = 0;  ///< since the moment before
  std::uint64_t wanted = 0;
  Tally now;
  Tally before;
  LatencyHistogram recent;  ///< answers of the interval
};

/// The line of that moment, without line end; with a bar of `bar` characters when that is above 0.
[[nodiscard]] std::string live_line(const Moment& moment, int bar);

/// Adds the counts of one worker to a sum.
void add(Tally& sum, const Tally& one) noexcept;
/// Answers of any kind in a tally.
[[nodiscard]] std::uint64_t answered(const Tally& tally) noexcept;

}  // namespace doorbuster::rush

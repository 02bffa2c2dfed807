#include "rush/series.hpp"

#include <algorithm>
#include <utility>

namespace doorbuster::rush {
namespace {

void add(SeriesPoint& to, const SeriesPoint& from) {
  to.sent += from.sent;
  to.granted += from.granted;
  to.refused += from.refused;
  to.busy += from.busy;
  to.failed += from.failed;
  to.latency.merge(from.latency);
}

}  // namespace

SeriesPoint& Series::at(std::int64_t micros) {
  const std::int64_t from_start = std::max<std::int64_t>(micros, 0);
  while (from_start / width_ >= static_cast<std::int64_t>(kMaxPoints)) widen();
  const auto index = static_cast<std::size_t>(from_start / width_);
  if (index >= points_.size()) points_.resize(index + 1);
  return points_[index];
}

void Series::merge(const Series& other) {
  while (width_ < other.width_) widen();
  const std::int64_t ratio = width_ / other.width_;
  for (std::size_t i = 0; i < other.points_.size(); ++i) {
    const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(i) / ratio);
    if (index >= points_.size()) points_.resize(index + 1);
    add(points_[index], other.points_[i]);
  }
}

void Series::widen() {
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (i % 2 == 1) {
      add(points_[i / 2], points_[i]);
    } else if (i > 0) {
      points_[i / 2] = std::move(points_[i]);
    }
  }
  points_.resize((points_.size() + 1) / 2);
  width_ *= 2;
}

}  // namespace doorbuster::rush

#include "rush/histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "rush/plan.hpp"

namespace doorbuster::rush {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(LatencyHistogram, IsZeroEverywhereWhileEmpty) {
  const LatencyHistogram empty;
  EXPECT_EQ(empty.count(), 0U);
  EXPECT_EQ(empty.min(), microseconds{0});
  EXPECT_EQ(empty.max(), microseconds{0});
  EXPECT_EQ(empty.mean(), microseconds{0});
  EXPECT_EQ(empty.percentile(50), microseconds{0});
}

TEST(LatencyHistogram, IsExactBelow256Microseconds) {
  for (std::int64_t value = 1; value < 256; ++value) {
    LatencyHistogram one;
    one.record(microseconds{value});
    one.record(seconds{1});
    EXPECT_EQ(one.percentile(50), microseconds{value});
  }
}

TEST(LatencyHistogram, CountsPartOfAMicrosecondAsAWholeOne) {
  LatencyHistogram times;
  times.record(nanoseconds{0});
  EXPECT_EQ(times.max(), microseconds{1});
  times.record(nanoseconds{1000});
  EXPECT_EQ(times.max(), microseconds{1});
  times.record(nanoseconds{1001});
  EXPECT_EQ(times.max(), microseconds{2});
}

TEST(LatencyHistogram, IsNeverBelowTheTruthAndAtMostOnePercentAbove) {
  for (std::int64_t value = 1; value <= 100'000'000; value += 1 + value / 97) {
    LatencyHistogram times;
    times.record(microseconds{value});
    times.record(seconds{200});  // so that the maximum does not cap what the bucket says
    const auto told = times.percentile(50).count();
    EXPECT_GE(told, value);
    EXPECT_LE(static_cast<double>(told), static_cast<double>(value) * 1.01) << value;
  }
}

TEST(LatencyHistogram, AgreesWithSortedValuesAtEveryPercentile) {
  Random random(7);
  std::vector<std::int64_t> values;
  LatencyHistogram times;
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<std::int64_t>(std::exp(random.unit() * 15)) + 1;
    values.push_back(value);
    times.record(microseconds{value});
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * 20'000));
    const std::int64_t exact = values[rank - 1];
    const auto told = times.percentile(percent).count();
    EXPECT_GE(told, exact) << percent;
    EXPECT_LE(static_cast<double>(told), static_cast<double>(exact) * 1.01 + 1) << percent;
  }
  EXPECT_EQ(times.percentile(100).count(), values.back());
  EXPECT_EQ(times.percentile(0).count(), values.front());
}

TEST(LatencyHistogram, ChangesBetweenTheTwoRanksOfAnEdge) {
  LatencyHistogram times;
  for (int i = 0; i < 99; ++i) times.record(microseconds{10});
  times.record(microseconds{100});
  EXPECT_EQ(times.percentile(98.9), microseconds{10});
  EXPECT_EQ(times.percentile(99), microseconds{10});
  EXPECT_EQ(times.percentile(99.1), microseconds{100});
}

TEST(LatencyHistogram, KeepsTheTrueMaximumBeyondItsRange) {
  LatencyHistogram times;
  times.record(milliseconds{99'999});
  times.record(seconds{100});
  times.record(seconds{3600});
  EXPECT_EQ(times.max(), seconds{3600});
  EXPECT_EQ(times.percentile(100), seconds{3600});
  EXPECT_GE(times.percentile(60), seconds{100});
  EXPECT_LE(times.percentile(60), seconds{101});
}

TEST(LatencyHistogram, MergesToWhatOneWouldHaveRecorded) {
  LatencyHistogram whole, left, right;
  for (int i = 1; i <= 1000; ++i) {
    whole.record(microseconds{i * i});
    (i % 3 == 0 ? left : right).record(microseconds{i * i});
  }
  left.merge(right);
  left.merge(LatencyHistogram());
  EXPECT_EQ(left.count(), whole.count());
  EXPECT_EQ(left.min(), whole.min());
  EXPECT_EQ(left.max(), whole.max());
  EXPECT_EQ(left.mean(), whole.mean());
  for (double percent = 0; percent <= 100; percent += 0.5) {
    EXPECT_EQ(left.percentile(percent), whole.percentile(percent));
  }
  LatencyHistogram empty;
  empty.merge(whole);
  EXPECT_EQ(empty.min(), whole.min());
}

}  // namespace
}  // namespace doorbuster::rush

#include "rush/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace doorbuster::rush {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Shuffled, HasEveryNumberOnceInAnOrderThatTheSeedDecides) {
  const auto list = shuffled(1000, 5);
  EXPECT_EQ(std::set<std::uint32_t>(list.begin(), list.end()).size(), 1000U);
  EXPECT_EQ(*std::max_element(list.begin(), list.end()), 999U);
  EXPECT_FALSE(std::is_sorted(list.begin(), list.end()));
  EXPECT_EQ(list, shuffled(1000, 5));
  EXPECT_NE(list, shuffled(1000, 6));
  EXPECT_EQ(shuffled(1, 5), std::vector<std::uint32_t>{0});
  EXPECT_TRUE(shuffled(0, 5).empty());
}

TEST(Arrivals, AreNoneWhenAllComeAtOnce) {
  EXPECT_TRUE(arrivals(Curve::kAllAtOnce, 100, seconds{1}, 10, 1).empty());
}

TEST(Arrivals, OfARampRiseAndEndWithItsTime) {
  const auto list = arrivals(Curve::kRamp, 10'000, seconds{10}, 0, 1);
  ASSERT_EQ(list.size(), 10'000U);
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_EQ(list.back(), nanoseconds{seconds{10}});
  // A rate that grows linearly: a quarter has come after half the time.
  const auto half =
      std::upper_bound(list.begin(), list.end(), nanoseconds{seconds{5}}) - list.begin();
  EXPECT_NEAR(static_cast<double>(half), 2500, 1);
}

TEST(Arrivals, OfPoissonHaveItsRateAndItsSpread) {
  const auto list = arrivals(Curve::kPoisson, 100'000, seconds{0}, 1000, 3);
  ASSERT_EQ(list.size(), 100'000U);
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_NEAR(static_cast<double>(list.back().count()) / 1e9, 100, 2);
  // Gaps longer than the mean are e^-1 of all; an even beat would have none or all.
  std::size_t longer = 0;
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (list[i] - list[i - 1] > std::chrono::milliseconds{1}) ++longer;
  }
  EXPECT_NEAR(static_cast<double>(longer) / 100'000, 0.3679, 0.01);
  EXPECT_EQ(list, arrivals(Curve::kPoisson, 100'000, seconds{0}, 1000, 3));
  EXPECT_NE(list, arrivals(Curve::kPoisson, 100'000, seconds{0}, 1000, 4));
}

TEST(Random, StaysWithinItsBounds) {
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_LT(random.below(3), 3U);
    const double unit = random.unit();
    EXPECT_GE(unit, 0);
    EXPECT_LT(unit, 1);
    const auto between = random.between(nanoseconds{5}, nanoseconds{7});
    EXPECT_GE(between, nanoseconds{5});
    EXPECT_LE(between, nanoseconds{7});
  }
  EXPECT_EQ(random.below(1), 0U);
  EXPECT_EQ(random.between(nanoseconds{5}, nanoseconds{5}), nanoseconds{5});
}

}  // namespace
}  // namespace doorbuster::rush

#include "common/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace doorbuster::common {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, ShowsCountersAndGaugesInPrometheusText) {
  const auto metrics = make_metrics();
  Counter& sold = metrics->counter("sale_units_total", "Units sold.", {{"sale", "7"}});
  sold.add();
  sold.add(41);
  metrics->gauge("gate_free", "Free slots.").set(2.5);
  EXPECT_EQ(sold.value(), 42);
  EXPECT_EQ(metrics->gauge("gate_free", "Free slots.").value(), 2.5);
  EXPECT_EQ(metrics->text(),
            "# HELP gate_free Free slots.\n"
            "# TYPE gate_free gauge\n"
            "gate_free 2.5\n"
            "# HELP sale_units_total Units sold.\n"
            "# TYPE sale_units_total counter\n"
            "sale_units_total{sale=\"7\"} 42\n");
}

TEST(Metrics, ShowsLargeCountsToTheLastUnit) {
  const auto metrics = make_metrics();
  metrics->counter("n_total", "N.").add(1'234'567'891'234);
  EXPECT_THAT(metrics->text(), HasSubstr("n_total 1234567891234\n"));
}

TEST(Metrics, EscapesLabelValues) {
  const auto metrics = make_metrics();
  metrics->counter("n_total", "N.", {{"why", "a\"b\\c\nd"}}).add();
  EXPECT_THAT(metrics->text(), HasSubstr("n_total{why=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(Metrics, GivesTheSameObjectForTheSameNameAndLabels) {
  const auto metrics = make_metrics();
  EXPECT_EQ(&metrics->counter("n_total", "N.", {{"a", "1"}}),
            &metrics->counter("n_total", "N.", {{"a", "1"}}));
  EXPECT_NE(&metrics->counter("n_total", "N.", {{"a", "1"}}),
            &metrics->counter("n_total", "N.", {{"a", "2"}}));
  EXPECT_EQ(&metrics->gauge("g", "G."), &metrics->gauge("g", "G."));
  EXPECT_EQ(&metrics->histogram("h", "H.", {1}, {{"a", "1"}}),
            &metrics->histogram("h", "H.", {1}, {{"a", "1"}}));
  EXPECT_NE(&metrics->histogram("h", "H.", {1}, {{"a", "1"}}),
            &metrics->histogram("h", "H.", {1}, {{"a", "2"}}));
}

TEST(Metrics, CountsAnObservationInEveryBucketFromItsBoundOn) {
  const auto metrics = make_metrics();
  Histogram& waits = metrics->histogram("wait_seconds", "Waits.", {0.1, 1, 10});
  for (const double wait : {0.05, 0.1, 0.5, 10.0, 11.0}) waits.observe(wait);
  EXPECT_EQ(metrics->text(),
            "# HELP wait_seconds Waits.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_count 5\n"
            "wait_seconds_sum 21.65\n"
            "wait_seconds_bucket{le=\"0.1\"} 2\n"
            "wait_seconds_bucket{le=\"1\"} 3\n"
            "wait_seconds_bucket{le=\"10\"} 4\n"
            "wait_seconds_bucket{le=\"+Inf\"} 5\n");
}

TEST(Metrics, ListsEveryFamilyOnceAndSorted) {
  const auto metrics = make_metrics();
  EXPECT_THAT(metrics->names(), ElementsAre());
  static_cast<void>(metrics->histogram("m_seconds", "M.", {1}));
  static_cast<void>(metrics->gauge("z", "Z."));
  static_cast<void>(metrics->counter("a_total", "A.", {{"x", "1"}}));
  static_cast<void>(metrics->counter("a_total", "A.", {{"x", "2"}}));
  EXPECT_THAT(metrics->names(), ElementsAre("a_total", "m_seconds", "z"));
}

TEST(Metrics, LosesNothingWhenSeveralThreadsCountObserveAndRead) {
  const auto metrics = make_metrics();
  Counter& counter = metrics->counter("n_total", "N.");
  Histogram& histogram = metrics->histogram("h", "H.", {1, 2});
  const auto work = [&] {
    for (int i = 0; i < 5'000; ++i) {
      counter.add();
      histogram.observe(1.5);
    }
  };
  std::thread a(work);
  std::thread b(work);
  while (counter.value() < 10'000) {
    EXPECT_THAT(metrics->text(), HasSubstr("n_total "));
    metrics->gauge("g", "G.").set(1);
  }
  a.join();
  b.join();
  EXPECT_THAT(metrics->text(), HasSubstr("h_count 10000\n"));
  EXPECT_THAT(metrics->text(), HasSubstr("h_sum 15000\n"));
  EXPECT_THAT(metrics->text(), HasSubstr("h_bucket{le=\"1\"} 0\n"));
  EXPECT_THAT(metrics->text(), HasSubstr("h_bucket{le=\"2\"} 10000\n"));
}

TEST(TimeBuckets, RiseFrom50MicrosecondsTo10SecondsInStepsOf125) {
  const std::vector<double>& bounds = time_buckets();
  ASSERT_EQ(bounds.size(), 17U);
  EXPECT_DOUBLE_EQ(bounds.front(), 50e-6);
  EXPECT_DOUBLE_EQ(bounds[1], 100e-6);
  EXPECT_DOUBLE_EQ(bounds[2], 200e-6);
  EXPECT_DOUBLE_EQ(bounds.back(), 10);
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_GE(bounds[i] / bounds[i - 1], 1.99);
    EXPECT_LE(bounds[i] / bounds[i - 1], 2.51);
  }
}

TEST(MetricsDeathTest, RefusesTwoTypesUnderOneNameAndBoundsThatDoNotRise) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto metrics = make_metrics();
  static_cast<void>(metrics->counter("n", "N."));
  EXPECT_DEATH(static_cast<void>(metrics->gauge("n", "N.")), "a metric's name has one type");
  EXPECT_DEATH(static_cast<void>(metrics->histogram("h", "H.", {1, 1})), "bounds rise");
  EXPECT_DEATH(static_cast<void>(metrics->histogram("h", "H.", {})), "bounds rise");
  static_cast<void>(metrics->histogram("h", "H.", {1, 2}));
  EXPECT_DEATH(static_cast<void>(metrics->histogram("h", "H.", {1, 3})), "one set of bounds");
}

}  // namespace
}  // namespace doorbuster::common

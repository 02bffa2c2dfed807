#include "bench/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace doorbuster::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Median, IsTheMiddleOneOfAnyOrder) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({9, 1, 5, 7}), 7);
}

TEST(Target, HoldsAtItsBound) {
  EXPECT_TRUE((Target{0.5, true}.met(0.5)));
  EXPECT_FALSE((Target{0.5, true}.met(0.499)));
  EXPECT_TRUE((Target{1.2, false}.met(1.2)));
  EXPECT_FALSE((Target{1.2, false}.met(1.201)));
}

TEST(Table, SaysWhetherEachTargetIsMet) {
  const std::vector<Row> rows{
      {.key = "a", .what = "first", .ratio = 0.9, .target = Target{0.88, true}, .note = "n"},
      {.key = "b", .what = "second", .ratio = 1.3, .target = Target{1.2, false}},
      {.key = "c", .what = "third", .per_second = 1234}};
  const std::string text = as_markdown(rows);
  EXPECT_THAT(text, HasSubstr("| first | 0.90 | at least 0.88: met |"));
  EXPECT_THAT(text, HasSubstr("| second | 1.30 | at most 1.20: MISSED |"));
  EXPECT_THAT(text, HasSubstr("| third |  |  | 1,234 |"));
  const std::string json = as_json(rows);
  EXPECT_THAT(
      json,
      HasSubstr(R"("a":{"what":"first","ratio":9E-1,"atLeast":8.8E-1,"met":true,"note":"n"})"));
  EXPECT_THAT(json, HasSubstr(R"("atMost":1.2E0,"met":false)"));
  EXPECT_THAT(json, Not(HasSubstr("p50Us")));
}

TEST(Table, ShowsTimesWhereSomeWereTaken) {
  Row row{.key = "a", .what = "x", .times = rush::LatencyHistogram()};
  EXPECT_THAT(as_json({row}), Not(HasSubstr("p50Us")));
  row.times->record(std::chrono::milliseconds{2});
  EXPECT_THAT(as_json({row}), HasSubstr("\"p50Us\":2000"));
}

}  // namespace
}  // namespace doorbuster::bench

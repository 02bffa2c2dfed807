#include "common/clock.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace doorbuster::common {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr std::int64_t kSecond = 1'000'000;

TEST(Rfc3339, WritesUtcWithSixDigitsOnlyWhenThereIsAFraction) {
  EXPECT_EQ(to_rfc3339(Instant{}), "1970-01-01T00:00:00Z");
  EXPECT_EQ(to_rfc3339(from_micros(1)), "1970-01-01T00:00:00.000001Z");
  EXPECT_EQ(to_rfc3339(from_micros(1'796'000'523 * kSecond + 123'456)),
            "2026-11-30T01:02:03.123456Z");
  EXPECT_EQ(to_rfc3339(from_micros(253'402'300'800 * kSecond - 1)), "9999-12-31T23:59:59.999999Z");
  EXPECT_EQ(to_rfc3339(Instant::max()), "9999-12-31T23:59:59.999999Z") << "no year of five digits";
  EXPECT_EQ(to_rfc3339(Instant::min()), "0000-01-01T00:00:00Z");
}

TEST(Rfc3339, ReadsWhatItWrites) {
  for (const std::int64_t micros :
       {std::int64_t{0}, std::int64_t{1}, 951'782'399 * kSecond, 951'782'400 * kSecond,
        1'796'000'523 * kSecond + 120'000, 253'402'300'800 * kSecond - 1}) {
    EXPECT_EQ(parse_rfc3339(to_rfc3339(from_micros(micros))), from_micros(micros));
  }
}

TEST(Rfc3339, TakesNumericOffsetsAway) {
  const Instant noon = *parse_rfc3339("2026-11-30T12:00:00Z");
  EXPECT_EQ(parse_rfc3339("2026-11-30T21:00:00+09:00"), noon);
  EXPECT_EQ(parse_rfc3339("2026-11-30T06:30:00-05:30"), noon);
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00+00:00"), noon);
  EXPECT_EQ(parse_rfc3339("2026-12-01T11:59:00+23:59"), noon);
  EXPECT_EQ(parse_rfc3339("2026-11-30t12:00:00z"), noon);
}

TEST(Rfc3339, CutsFractionsToMicrosecondsAndTakesAtMostNineDigits) {
  const Instant base = *parse_rfc3339("2026-11-30T12:00:00Z");
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.1Z"), base + microseconds{100'000});
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.000001Z"), base + microseconds{1});
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.000001999Z"), base + microseconds{1});
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.123456789+00:00"), base + microseconds{123'456});
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.1234567890Z"), std::nullopt);
  EXPECT_EQ(parse_rfc3339("2026-11-30T12:00:00.Z"), std::nullopt);
}

TEST(Rfc3339, KnowsTheCalendar) {
  EXPECT_TRUE(parse_rfc3339("2024-02-29T00:00:00Z"));
  EXPECT_FALSE(parse_rfc3339("2023-02-29T00:00:00Z"));
  EXPECT_TRUE(parse_rfc3339("2000-02-29T00:00:00Z"));
  EXPECT_FALSE(parse_rfc3339("2100-02-29T00:00:00Z"));
  EXPECT_TRUE(parse_rfc3339("2026-12-31T23:59:59Z"));
  for (const char* no :
       {"2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z",
        "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:60Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+00:60"}) {
    EXPECT_FALSE(parse_rfc3339(no)) << no;
  }
}

TEST(Rfc3339, StaysWithinTheYears1970To9999AlsoAfterTheOffset) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00Z"), Instant{});
  EXPECT_EQ(parse_rfc3339("1970-01-01T09:00:00+09:00"), Instant{});
  EXPECT_FALSE(parse_rfc3339("1970-01-01T08:59:59+09:00"));
  EXPECT_FALSE(parse_rfc3339("1969-12-31T23:59:59Z"));
  EXPECT_TRUE(parse_rfc3339("9999-12-31T23:59:59.999999Z"));
  EXPECT_TRUE(parse_rfc3339("9999-12-31T22:59:59-01:00"));
  EXPECT_FALSE(parse_rfc3339("9999-12-31T23:00:00-01:00"));
}

TEST(Rfc3339, RefusesEveryCutAndOtherShapes) {
  const std::string whole = "2026-11-30T01:02:03.5+09:00";
  ASSERT_TRUE(parse_rfc3339(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_rfc3339(whole.substr(0, size))) << size;
  }
  for (const char* no : {"2026-11-30 01:02:03Z", "2026/11/30T01:02:03Z", "2026-11-30T01.02.03Z",
                         "2026-11-30T01:02:03", "2026-11-30T01:02:03ZZ", " 2026-11-30T01:02:03Z",
                         "2026-11-30T01:02:03Z ", "2026-11-30T01:02:03+0900",
                         "2026-11-30T01:02:03+09:00Z", "2026-11-30T01:02:03x09:00",
                         "+026-11-30T01:02:03Z", "2026-1a-30T01:02:03Z", "2026-11-30T01:02:-3Z"}) {
    EXPECT_FALSE(parse_rfc3339(no)) << no;
  }
}

TEST(ManualClock, StandsStillUntilItIsMovedAndThenMovesBothClocks) {
  ManualClock clock(from_micros(1000));
  const Steady before = clock.steady();
  EXPECT_EQ(clock.now(), from_micros(1000));
  EXPECT_EQ(clock.now(), from_micros(1000));
  clock.advance(seconds{2});
  EXPECT_EQ(clock.now(), from_micros(1000 + 2 * kSecond));
  EXPECT_EQ(clock.steady() - before, seconds{2});
}

TEST(ManualClock, LosesNoStepWhenSeveralThreadsMoveIt) {
  ManualClock clock(Instant{});
  const auto move = [&clock] {
    for (int i = 0; i < 1000; ++i) clock.advance(microseconds{1});
  };
  std::thread other(move);
  move();
  other.join();
  EXPECT_EQ(clock.now(), from_micros(2000));
}

TEST(SystemClock, TellsTheTimeOfDayAndNeverStepsBack) {
  const SystemClock clock;
  EXPECT_GT(clock.now(), *parse_rfc3339("2024-01-01T00:00:00Z"));
  const Steady first = clock.steady();
  EXPECT_GE(clock.steady(), first);
}

}  // namespace
}  // namespace doorbuster::common

#include "common/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace doorbuster::common {
namespace {

using ::testing::MatchesRegex;

class Log : public ::testing::Test {
 protected:
  ~Log() override { configure_log(LogLevel::kInfo, LogFormat::kText); }

  /// What `log` writes to standard error.
  template <class... Fields>
  static std::string line(LogLevel level, std::string_view event,
                          std::initializer_list<LogField> fields = {}) {
    ::testing::internal::CaptureStderr();
    log(level, event, fields);
    return ::testing::internal::GetCapturedStderr();
  }
};

// POSIX classes, as gtest's regular expressions understand them.
constexpr const char* kTime = "[0-9-]+T[0-9:]+(\\.[0-9]{6})?Z";

TEST_F(Log, WritesOneTextLineWithTimeLevelEventAndFields) {
  configure_log(LogLevel::kInfo, LogFormat::kText);
  EXPECT_THAT(line(LogLevel::kWarn, "gate lost",
                   {{"epoch", std::int64_t{7}},
                    {"why", std::string_view("no keys")},
                    {"seconds", 0.5},
                    {"again", true}}),
              MatchesRegex(std::string(kTime) +
                           " warn gate lost epoch=7 why=\"no keys\" seconds=0\\.5 again=true\n"));
}

TEST_F(Log, WritesOneJsonObjectInALine) {
  configure_log(LogLevel::kInfo, LogFormat::kJson);
  EXPECT_THAT(
      line(
          LogLevel::kError, "disk full",
          {{"path", std::string_view("a\"b\\c\n\x01")}, {"free", std::int64_t{-1}}, {"ok", false}}),
      MatchesRegex("\\{\"time\":\"" + std::string(kTime) +
                   "\",\"level\":\"error\",\"event\":\"disk full\","
                   "\"path\":\"a\\\\\"b\\\\\\\\c\\\\n\\\\u0001\",\"free\":-1,\"ok\":false\\}\n"));
}

TEST_F(Log, KeepsJsonReadableWhateverBytesAValueHas) {
  configure_log(LogLevel::kInfo, LogFormat::kJson);
  const auto value = [](std::string_view text) {
    const std::string out = line(LogLevel::kInfo, "x", {{"v", text}});
    return out.substr(out.find("\"v\":") + 4);
  };
  EXPECT_EQ(value("할인"), "\"할인\"}\n");
  EXPECT_EQ(value("a\xFFz"), "\"a\\u00ffz\"}\n");
  EXPECT_EQ(value(std::string_view("a\0z", 3)), "\"a\\u0000z\"}\n");
  EXPECT_EQ(value("\x1F\x20\x7E\x7F"), "\"\\u001f ~\\u007f\"}\n");
}

TEST_F(Log, WritesNumbersThatJsonHasNoWordForAsNull) {
  configure_log(LogLevel::kInfo, LogFormat::kJson);
  EXPECT_THAT(line(LogLevel::kInfo, "x", {{"v", std::nan("")}}),
              ::testing::HasSubstr("\"v\":null}"));
  EXPECT_THAT(line(LogLevel::kInfo, "x", {{"v", HUGE_VAL}}), ::testing::HasSubstr("\"v\":null}"));
  EXPECT_THAT(line(LogLevel::kInfo, "x", {{"v", 0.00005}}), ::testing::HasSubstr("\"v\":5e-05}"));
}

TEST_F(Log, LetsNoValueForgeALineOfItsOwn) {
  configure_log(LogLevel::kInfo, LogFormat::kText);
  const std::string out = line(LogLevel::kInfo, "x", {{"v", std::string_view("a\nb\rc")}});
  EXPECT_THAT(out, ::testing::EndsWith(" info x v=\"a\\nb\\u000dc\"\n"));
}

TEST_F(Log, WritesFromTheChosenLevelOn) {
  configure_log(LogLevel::kWarn, LogFormat::kText);
  EXPECT_EQ(line(LogLevel::kDebug, "x"), "");
  EXPECT_EQ(line(LogLevel::kInfo, "x"), "");
  EXPECT_NE(line(LogLevel::kWarn, "x"), "");
  EXPECT_NE(line(LogLevel::kError, "x"), "");
  configure_log(LogLevel::kDebug, LogFormat::kText);
  EXPECT_NE(line(LogLevel::kDebug, "x"), "");
}

TEST_F(Log, KeepsLinesOfSeveralThreadsWhole) {
  configure_log(LogLevel::kInfo, LogFormat::kText);
  ::testing::internal::CaptureStderr();
  const auto write = [] {
    for (int i = 0; i < 200; ++i) log(LogLevel::kInfo, "same", {{"v", std::string_view("value")}});
  };
  std::thread other(write);
  write();
  other.join();
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string one; std::getline(lines, one); ++count) {
    EXPECT_THAT(one, ::testing::EndsWith("Z info same v=\"value\""));
  }
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace doorbuster::common

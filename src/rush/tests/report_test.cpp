#include "rush/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "rush/live.hpp"

namespace doorbuster::rush {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;
using testing::Not;

RushReport sample() {
  RushReport report;
  report.url = "http://127.0.0.1:8080";
  report.item_id = 7;
  report.members = 500'000;
  report.wanted = 500'000;
  report.curve = "all at once";
  report.threads = 1;
  report.connections = 1000;
  report.seconds = 2;
  report.requests = 4;
  report.answers = 4;
  report.purchases[static_cast<std::size_t>(AnswerKind::kGranted)] = 3;
  report.purchases[static_cast<std::size_t>(AnswerKind::kSoldOut)] = 1234;
  report.endings[static_cast<std::size_t>(Ending::kGot)] = 3;
  report.all.record(microseconds{1500});
  report.grants.record(microseconds{1500});
  report.workers.emplace_back();
  report.server = ServerSide{
      .quantity = 3, .per_member = 1, .rows = 3, .slots = 3, .members = 3, .quiet = true};
  report.verdict.holding = 3;
  History history;
  history.add({.start_us = 0, .end_us = 1500, .answer = AnswerKind::kGranted});
  report.timeline = make_timeline(history, 0, 2, 100);
  return report;
}

TEST(Report, NamesNumbersAndTimesForPeople) {
  EXPECT_EQ(for_people(std::uint64_t{0}), "0");
  EXPECT_EQ(for_people(std::uint64_t{999}), "999");
  EXPECT_EQ(for_people(std::uint64_t{1000}), "1,000");
  EXPECT_EQ(for_people(std::uint64_t{1234567}), "1,234,567");
  EXPECT_EQ(for_people(microseconds{999}), "999 us");
  EXPECT_EQ(for_people(microseconds{1000}), "1.00 ms");
  EXPECT_EQ(for_people(microseconds{999'999}), "1000 ms");
  EXPECT_EQ(for_people(microseconds{12'340'000}), "12.3 s");
  EXPECT_EQ(ranges({1, 2, 3, 5, 7, 8}, 6), "1-3, 5, 7-8");
  EXPECT_EQ(ranges({1}, 41), "1 (and 40 more)");
  EXPECT_EQ(ranges({}, 0), "");
}

TEST(Report, DecidesTheExitCode) {
  RushReport report = sample();
  EXPECT_EQ(report.outcome(), Outcome::kOk);
  EXPECT_EQ(report.exit_code(), 0);
  report.server_error = "no route";
  EXPECT_EQ(report.outcome(), Outcome::kUnverified);
  EXPECT_EQ(report.exit_code(), 3);
  report.verdict.findings.push_back({.kind = FindingKind::kOversold, .count = 1});
  EXPECT_EQ(report.outcome(), Outcome::kBroken);
  EXPECT_EQ(report.exit_code(), 1);
}

TEST(Report, ShowsTheFiguresInTheTable) {
  RushReport report = sample();
  EXPECT_THAT(text_report(report), HasSubstr("sold out                       1,234"));
  EXPECT_THAT(text_report(report), HasSubstr("all invariants hold\n"));
  EXPECT_THAT(text_report(report), Not(HasSubstr("THE GENERATOR WAS THE LIMIT")));
  report.limited_by = "a worker thread used 99 % of a core";
  report.verdict.findings.push_back(
      {.kind = FindingKind::kSlotTwice, .count = 2, .examples = {"slot 4: a and b"}});
  EXPECT_THAT(text_report(report),
              HasSubstr("THE GENERATOR WAS THE LIMIT: a worker thread used 99 % of a core"));
  EXPECT_THAT(text_report(report),
              HasSubstr("BROKEN  SLOT_TWICE: two rows hold the same slot (2)\n"));
  EXPECT_THAT(text_report(report), HasSubstr("slot 4: a and b"));
}

TEST(Report, TellsWhenTheGeneratorWasTheLimit) {
  const auto of = [](const WorkerLoad& load) { return generator_limit({WorkerLoad{}, load}); };
  WorkerLoad slow_clock;
  WorkerLoad few_seats;
  for (int i = 0; i < 100; ++i) {
    slow_clock.lag.record(std::chrono::milliseconds{20});
    few_seats.seat.record(std::chrono::milliseconds{20});
  }
  EXPECT_EQ(of({.cpu_share = 0.6, .wait_share = 0.2}), "");
  EXPECT_THAT(of({.cpu_share = 0.95}), HasSubstr("use more threads"));
  EXPECT_THAT(of({.cpu_share = 0.6, .wait_share = 0.35}), HasSubstr("share too few cores"));
  EXPECT_THAT(of(slow_clock), HasSubstr("arrivals were 20.0 ms late"));
  EXPECT_THAT(of(few_seats), HasSubstr("use more connections"));
}

TEST(Report, IsOneJsonObject) {
  RushReport report = sample();
  report.verdict.findings.push_back(
      {.kind = FindingKind::kSlotTwice, .count = 2, .examples = {"x"}});
  const boost::json::value value = boost::json::parse(json_report(report));
  EXPECT_EQ(value.at("outcome").as_string(), "broken");
  EXPECT_EQ(value.at("purchases").at("sold_out").to_number<int>(), 1234);
  EXPECT_EQ(value.at("latency").at("all").at("p50_us").to_number<int>(), 1500);
  EXPECT_EQ(value.at("verdict").at("findings").at(0).at("code").as_string(), "SLOT_TWICE");
  EXPECT_TRUE(value.at("first_grant_s").is_null());
  EXPECT_EQ(value.at("server").at("quantity").to_number<int>(), 3);
}

TEST(Report, IsAPageThatNeedsNothingFromOutside) {
  RushReport report = sample();
  report.url = "http://<script>";
  const std::string page = html_report(report);
  EXPECT_THAT(page, HasSubstr("All invariants hold."));
  EXPECT_THAT(page, HasSubstr("http://&lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  for (const char* forbidden :
       {"<script", "<link", "<img", "src=", "url(", "@import", "nan", "inf\""}) {
    EXPECT_THAT(page, Not(HasSubstr(forbidden)));
  }
}

TEST(Report, HasAPageAlsoWhenNothingHappened) {
  const std::string page = html_report(RushReport{});
  EXPECT_THAT(page, HasSubstr("No purchase was answered."));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(text_report(RushReport{}), HasSubstr("granted"));
}

TEST(Timeline, PutsEachAnswerIntoTheStretchOfItsEnd) {
  History history;
  history.add({.start_us = 0, .end_us = 99'999, .answer = AnswerKind::kGranted});
  history.add({.start_us = 0, .end_us = 100'000, .answer = AnswerKind::kSoldOut});
  history.add(
      {.start_us = 0, .end_us = 199'999, .waited_us = 1'000'000, .answer = AnswerKind::kBusy});
  history.add({.start_us = 0, .end_us = 1'000'000, .answer = AnswerKind::kCut});
  const std::vector<TimeBin> bins = make_timeline(history, 0, 1, 10);
  ASSERT_EQ(bins.size(), 11U);
  EXPECT_DOUBLE_EQ(bins[1].from_s, 0.1);
  EXPECT_EQ(bins[0].granted, 1U);
  EXPECT_EQ(bins[1].refused, 1U);
  EXPECT_EQ(bins[1].busy, 1U);
  EXPECT_EQ(bins[10].failed, 1U);
  EXPECT_EQ(bins[10].p99, microseconds{0}) << "what was not answered has no time";
  EXPECT_EQ(bins[1].p99, microseconds{1'199'999}) << "waiting for a connection counts";
}

TEST(Live, ShowsRatesOfTheInterval) {
  Moment moment{.seconds = 12.34, .interval_s = 2, .wanted = 10};
  moment.now.sent = 3000;
  moment.now.done = 5;
  moment.now.purchases[static_cast<std::size_t>(AnswerKind::kGranted)] = 2100;
  moment.now.purchases[static_cast<std::size_t>(AnswerKind::kCut)] = 7;
  moment.before.purchases[static_cast<std::size_t>(AnswerKind::kGranted)] = 100;
  moment.recent.record(microseconds{250});
  EXPECT_EQ(live_line(moment, 0),
            "  12.3 s  3,000 sent  1,000/s  2,100 granted  0 refused  0 busy  7 errors  p50 250 us "
            " p99 250 us");
  EXPECT_THAT(live_line(moment, 4), HasSubstr("[##..]"));
}

}  // namespace
}  // namespace doorbuster::rush

#include "rush/rush.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rush/target.hpp"
#include "rush/tests/fake_shop.hpp"

namespace doorbuster::rush {
namespace {

using common::ErrorCode;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

const common::SystemClock kClock;

RushConfig config_for(const FakeShop& shop) {
  RushConfig config;
  config.url = shop.url();
  config.item_id = 7;
  config.members = 50;
  config.connections = 8;
  config.admin_token = "admin";
  config.make_token = [](std::int64_t member) { return std::to_string(member); };
  config.quiet_apart = milliseconds{5};
  config.live = Live::kOff;
  return config;
}

std::uint64_t of(const RushReport& report, AnswerKind kind) {
  return report.purchases[static_cast<std::size_t>(kind)] +
         report.orders[static_cast<std::size_t>(kind)];
}
std::uint64_t of(const RushReport& report, Ending ending) {
  return report.endings[static_cast<std::size_t>(ending)];
}

/// Everybody got one or was told sold out, and the shop has it so.
void expect_sold(const RushReport& report, const FakeShop& shop, std::uint64_t units) {
  EXPECT_EQ(report.outcome(), Outcome::kOk) << text_report(report);
  EXPECT_EQ(report.stopped, "");
  EXPECT_EQ(of(report, Ending::kGot), units);
  EXPECT_EQ(of(report, Ending::kSoldOut), static_cast<std::uint64_t>(report.wanted) - units);
  EXPECT_EQ(shop.rows().size(), units);
  ASSERT_TRUE(report.server);
  EXPECT_EQ(report.server->slots, units);
  EXPECT_TRUE(report.server->quiet);
}

TEST(Rush, SellsEveryUnitOnceAndRefusesTheRest) {
  FakeShop shop({.quantity = 10});
  RushConfig config = config_for(shop);
  config.first_member = 100;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 10);
  EXPECT_EQ(report->requests, 50U);
  EXPECT_EQ(of(*report, AnswerKind::kGranted), 10U);
  EXPECT_EQ(of(*report, AnswerKind::kSoldOut), 40U);
  EXPECT_EQ(report->sold_out_final, 40U);
  EXPECT_EQ(report->all.count(), 50U);
  EXPECT_EQ(report->grants.count(), 10U);
  EXPECT_EQ(report->refusals.count(), 40U);
  EXPECT_TRUE(report->first_grant_s);
  EXPECT_LE(*report->first_grant_s, *report->last_grant_s);
  EXPECT_TRUE(report->sold_out_s);
  const std::set<std::int64_t> askers = shop.askers();
  EXPECT_EQ(askers.size(), 50U);
  EXPECT_EQ(*askers.begin(), 100);
  EXPECT_EQ(*askers.rbegin(), 149);
}

TEST(Rush, ComesBackAfterBusyAndIsGranted) {
  FakeShop shop({.quantity = 20, .busy_first = 1});
  const auto report = run_rush(config_for(shop), kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 20);
  EXPECT_EQ(of(*report, AnswerKind::kBusy), 50U);
  EXPECT_EQ(report->requests, 100U);
}

TEST(Rush, WaitsAsLongAsRetryAfterSays) {
  FakeShop shop({.quantity = 1, .busy_first = 1, .busy_headers = "Retry-After: 1\r\n"});
  RushConfig config = config_for(shop);
  config.members = 1;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 1);
  EXPECT_GE(*report->first_grant_s, 1.0);
  EXPECT_LT(*report->first_grant_s, 10.0);
}

TEST(Rush, AsksAgainAfterACutAnswerAndFindsItsOrder) {
  FakeShop shop({.quantity = 20, .cut_first = 1});
  const auto report = run_rush(config_for(shop), kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 20);
  EXPECT_EQ(of(*report, AnswerKind::kCut), 50U);
  EXPECT_EQ(of(*report, AnswerKind::kAlready), 20U);
  EXPECT_EQ(report->verdict.untold_rows, 0U);
}

TEST(Rush, OutlivesADeathAndARestartOfTheServer) {
  FakeShop shop({.quantity = 150, .restart_after = 60});
  RushConfig config = config_for(shop);
  config.members = 200;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 150);
  EXPECT_GT(of(*report, AnswerKind::kConnectFailed), 0U);
}

TEST(Rush, OpensANewConnectionWhereTheServerClosesEach) {
  FakeShop shop({.quantity = 10, .close_each = true});
  const auto report = run_rush(config_for(shop), kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 10);
  EXPECT_EQ(of(*report, AnswerKind::kCut), 0U);
  EXPECT_EQ(of(*report, AnswerKind::kConnectFailed), 0U);
}

TEST(Rush, PipelinesWithoutMixingUpAnswers) {
  FakeShop shop({.quantity = 100});
  RushConfig config = config_for(shop);
  config.members = 500;
  config.connections = 2;
  config.pipelining = 16;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 100);
}

TEST(Rush, WorksWithSeveralThreadsAndKeys) {
  FakeShop shop({.quantity = 60});
  RushConfig config = config_for(shop);
  config.threads = 3;
  config.connections = 7;
  config.keys = true;
  config.premade_tokens = 0;  // on the fly
  config.ask_again_share = 1;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->outcome(), Outcome::kOk) << text_report(*report);
  EXPECT_EQ(of(*report, Ending::kGot), 50U);
  EXPECT_EQ(report->asked_again, 50U);
  EXPECT_EQ(report->asked_again_same, 50U);
  EXPECT_EQ(report->workers.size(), 3U);
  std::set<std::string> keys;
  for (const FakeShop::Row& row : shop.rows()) keys.insert(row.key);
  EXPECT_EQ(keys.size(), 50U);
  EXPECT_TRUE(keys.contains("rush-1-1-0"));
}

TEST(Rush, PaysForWhatItGot) {
  FakeShop shop({.quantity = 5, .not_ready_first = 2});
  RushConfig config = config_for(shop);
  config.members = 8;
  config.pay_share = 1;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 5);
  EXPECT_EQ(of(*report, AnswerKind::kPaid), 5U);
  EXPECT_EQ(of(*report, AnswerKind::kNotReady), 2U);
  for (const FakeShop::Row& row : shop.rows()) EXPECT_EQ(row.state, "PAID");
  EXPECT_EQ(report->server->by_state[static_cast<std::size_t>(OrderStatus::kPaid)], 5U);
}

TEST(Rush, ComesByTheClockInAnOpenLoop) {
  for (const Curve curve : {Curve::kRamp, Curve::kPoisson}) {
    FakeShop shop({.quantity = 10});
    RushConfig config = config_for(shop);
    config.curve = curve;
    config.ramp = milliseconds{300};
    config.rate = 200;
    const auto report = run_rush(config, kClock);
    ASSERT_TRUE(report) << report.error().message;
    expect_sold(*report, shop, 10);
    EXPECT_TRUE(report->open_loop);
    EXPECT_GE(report->seconds, curve == Curve::kRamp ? 0.3 : 0.05);
    EXPECT_EQ(report->workers[0].lag.count(), 50U);
  }
}

TEST(Rush, CountsTheWaitForAConnectionInAnOpenLoop) {
  // One connection, and a server that leaves the first request without an answer: whoever came
  // meanwhile waited.
  FakeShop shop({.quantity = 50, .silent_first = true});
  RushConfig config = config_for(shop);
  config.curve = Curve::kRamp;
  config.ramp = milliseconds{100};
  config.connections = 1;
  config.answer_timeout = milliseconds{500};
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 50);
  EXPECT_GE(of(*report, AnswerKind::kNoAnswer), 1U);
  EXPECT_GE(report->all.percentile(50), milliseconds{300});
  EXPECT_GE(report->workers.at(0).seat.percentile(50), milliseconds{300});
  // Which limit it names depends on what else the machine does; that it names one does not.
  EXPECT_NE(report->limited_by, "");
}

TEST(Rush, HoldsIdleConnectionsOpen) {
  FakeShop shop({.quantity = 10});
  RushConfig config = config_for(shop);
  config.idle_connections = 40;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  expect_sold(*report, shop, 10);
  EXPECT_GE(shop.most_connections(), 48U);
  EXPECT_EQ(report->idle_lost, 0U);
}

TEST(Rush, OpensASaleOfItsOwnWhenNoItemIsNamed) {
  FakeShop shop({.quantity = 10});
  RushConfig config = config_for(shop);
  config.item_id = 0;
  config.units = 10;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->item_id, 7);
  expect_sold(*report, shop, 10);
}

TEST(Rush, StopsAtItsBounds) {
  FakeShop shop({.quantity = 10, .busy_first = 1'000'000});
  RushConfig config = config_for(shop);
  config.max_time = std::chrono::seconds{1};
  const auto timed = run_rush(config, kClock);
  ASSERT_TRUE(timed) << timed.error().message;
  EXPECT_THAT(timed->stopped, HasSubstr("max_time"));
  EXPECT_EQ(of(*timed, Ending::kUnfinished), 50U);
  config.max_requests = 60;
  const auto counted = run_rush(config, kClock);
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_THAT(counted->stopped, HasSubstr("max_requests"));
  EXPECT_EQ(counted->requests, 60U);
}

TEST(Rush, EndsWhenItIsInterrupted) {
  FakeShop shop({.quantity = 10, .busy_first = 1'000'000});
  RushConfig config = config_for(shop);
  std::atomic<bool> stop{false};
  std::atomic<int> made{0};
  config.stop = &stop;
  config.premade_tokens =
      0;  // made when they are sent, so that the interruption falls into the load
  config.make_token = [&](std::int64_t member) {
    if (++made == 20) stop = true;
    return std::to_string(member);
  };
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->stopped, "it was interrupted");
  EXPECT_EQ(of(*report, Ending::kUnfinished), 50U);
  EXPECT_EQ(report->outcome(), Outcome::kOk);
}

TEST(Rush, GivesUpAfterItsPatience) {
  FakeShop shop({.quantity = 10, .busy_first = 1'000'000});
  RushConfig config = config_for(shop);
  config.patience = milliseconds{100};
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(of(*report, Ending::kGaveUp), 50U);
  EXPECT_EQ(report->outcome(), Outcome::kOk) << "busy is no broken promise";
}

TEST(Rush, FindsALostRow) {
  FakeShop shop({.quantity = 10, .forget_row = true});
  const auto report = run_rush(config_for(shop), kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->exit_code(), 1);
  EXPECT_EQ(report->verdict.count(FindingKind::kAnswerWithoutRow), 1U);
}

TEST(Rush, FindsARefusedHolder) {
  FakeShop shop({.quantity = 10, .refuse_holders = true});
  RushConfig config = config_for(shop);
  config.members = 10;
  config.ask_again_share = 1;
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->exit_code(), 1);
  EXPECT_EQ(report->verdict.count(FindingKind::kHolderRefused), 10U);
  EXPECT_EQ(report->asked_again_same, 0U);
}

TEST(Rush, SaysWhenTheLedgerCouldNotBeRead) {
  FakeShop shop({.quantity = 10, .admin_fails = true});
  RushConfig config = config_for(shop);
  config.quiet_patience = milliseconds{20};
  const auto report = run_rush(config, kClock);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->outcome(), Outcome::kUnverified);
  EXPECT_THAT(report->server_error, HasSubstr("503"));
  config.check_server = false;
  const auto unasked = run_rush(config, kClock);
  ASSERT_TRUE(unasked) << unasked.error().message;
  EXPECT_EQ(unasked->outcome(), Outcome::kOk);
}

TEST(Rush, WritesHistoryAndPage) {
  FakeShop shop({.quantity = 10});
  RushConfig config = config_for(shop);
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("rush-{}", ::getpid());
  std::filesystem::create_directories(folder);
  config.history_path = (folder / "history.csv").string();
  config.report_path = (folder / "rush.html").string();
  ASSERT_TRUE(run_rush(config, kClock));
  const auto text = [](const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  };
  const std::string csv = text(config.history_path);
  EXPECT_THAT(csv, StartsWith(kHistoryCsvHeader));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 51);
  EXPECT_THAT(text(config.report_path), StartsWith("<!doctype html>"));
  config.history_path = (folder / "missing" / "history.csv").string();
  const auto unwritable = run_rush(config, kClock);
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().code, ErrorCode::kIo);
  std::filesystem::remove_all(folder);
}

TEST(Rush, SaysBeforeTheLoadWhatCannotWork) {
  FakeShop shop({.quantity = 10});
  RushConfig config = config_for(shop);
  config.item_id = 8;
  const auto no_item = run_rush(config, kClock);
  ASSERT_FALSE(no_item);
  EXPECT_EQ(no_item.error().code, ErrorCode::kNotFound);
  config.item_id = 7;
  config.admin_token = "wrong";
  const auto no_admin = run_rush(config, kClock);
  ASSERT_FALSE(no_admin);
  EXPECT_EQ(no_admin.error().code, ErrorCode::kInvalid);
  config.url = "http://127.0.0.1:1";
  const auto nobody = run_rush(config, kClock);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(shop.purchases(), 0U);
}

TEST(RushConfig, IsRefusedFieldByField) {
  RushConfig good;
  good.item_id = 1;
  EXPECT_TRUE(check_config(good));
  const auto refused = [&](auto change) {
    RushConfig config = good;
    change(config);
    const auto checked = check_config(config);
    return checked ? std::string("accepted")
                   : checked.error().message.substr(0, checked.error().message.find(':'));
  };
  EXPECT_EQ(refused([](RushConfig& c) { c.members = 0; }), "members");
  EXPECT_EQ(refused([](RushConfig& c) { c.members = 10'000'001; }), "members");
  EXPECT_EQ(refused([](RushConfig& c) { c.members = 10'000'000; }), "accepted");
  EXPECT_EQ(refused([](RushConfig& c) { c.first_member = 0; }), "first_member");
  EXPECT_EQ(refused([](RushConfig& c) { c.item_id = 0; }), "units");
  EXPECT_EQ(refused([](RushConfig& c) { c.units = 5; }), "units");
  EXPECT_EQ(refused([](RushConfig& c) { c.units_per_member = 2; }), "keys");
  EXPECT_EQ(refused([](RushConfig& c) { c.threads = 65; }), "threads");
  EXPECT_EQ(refused([](RushConfig& c) { c.threads = 5, c.connections = 4; }), "connections");
  EXPECT_EQ(refused([](RushConfig& c) { c.pipelining = 0; }), "pipelining");
  EXPECT_EQ(refused([](RushConfig& c) { c.pay_share = 1.01; }), "pay_share");
  EXPECT_EQ(refused([](RushConfig& c) { c.ask_again_share = -0.01; }), "ask_again_share");
  EXPECT_EQ(refused([](RushConfig& c) { c.curve = Curve::kPoisson, c.rate = 0; }), "rate");
  EXPECT_EQ(refused([](RushConfig& c) { c.curve = Curve::kRamp, c.ramp = milliseconds{0}; }),
            "ramp");
  EXPECT_EQ(refused([](RushConfig& c) { c.token_secret = std::string(31, 'x'); }), "token_secret");
  EXPECT_EQ(refused([](RushConfig& c) { c.token_secret = std::string(32, 'x'); }), "accepted");
}

TEST(Url, TakesOnlyPlainHttp) {
  const auto url = parse_url("http://[::1]:8080/");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->authority, "[::1]:8080");
  EXPECT_EQ(parse_url("http://shop")->port, 80);
  EXPECT_EQ(parse_url("http://shop:65535")->port, 65535);
  for (const char* wrong :
       {"https://shop", "ftp://shop", "shop:80", "http://", "http://:80", "http://shop:0",
        "http://shop:65536", "http://shop:80x", "http://shop:", "http://shop/path",
        "http://me@shop", "http://[::1", "http://[::1]80"}) {
    const auto refused = parse_url(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
  EXPECT_THAT(parse_url("https://shop").error().message, HasSubstr("https is not supported"));
}

TEST(Target, UsesAnotherSourceAddressForEach25000Connections) {
  FakeShop shop({});
  const auto target = find_target(shop.url());
  ASSERT_TRUE(target);
  EXPECT_TRUE(target->loopback);
  for (const auto& [number, source] : {std::pair<std::size_t, std::string>{0, "127.0.0.1"},
                                       {kConnectionsPerSource - 1, "127.0.0.1"},
                                       {kConnectionsPerSource, "127.0.0.2"},
                                       {3 * kConnectionsPerSource, "127.0.0.4"}}) {
    const auto fd = start_connect(*target, number);
    ASSERT_TRUE(fd) << fd.error().message;
    pollfd ready{.fd = *fd, .events = POLLOUT, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
    sockaddr_in local{};
    socklen_t size = sizeof local;
    ASSERT_EQ(::getsockname(*fd, reinterpret_cast<sockaddr*>(&local), &size), 0);
    EXPECT_EQ(ntohl(local.sin_addr.s_addr), ntohl(::inet_addr(source.c_str())));
    ::close(*fd);
  }
}

TEST(Target, NamesTheLimitOfOpenFiles) {
  EXPECT_TRUE(raise_file_limit(10));
  const auto refused = raise_file_limit(2'000'000'000);  // more than any kernel allows
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(refused.error().message,
              HasSubstr("2000000000 connections need 2000000064 open files"));
}

}  // namespace
}  // namespace doorbuster::rush

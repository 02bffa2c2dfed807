#include "engine/standing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr ScopeId kScope{'s', 1};
constexpr std::chrono::microseconds kTick{1};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

/// A node that answers once its journal has a grant. The direct journal keeps nothing over a crash,
/// which is why no server may be set up like this; the check does not know.
struct AsyncShop : Shop {
  explicit AsyncShop(StoreOptions wanted = {.quantity = 10, .hold = seconds{600}})
      : Shop(wanted, config_of()) {
    prepare();
  }
  static EngineConfig config_of() {
    EngineConfig config;
    config.issue = IssueMode::kAsync;
    return config;
  }

  /// The grants that have no row yet.
  std::vector<Grant> in_flight() {
    std::vector<Grant> grants;
    for (const auto& [member, entry] : reading().in_flight) {
      grants.push_back(
          engine::grant_of(entry, scope->rules(), scope->rules().allotments[0], member));
    }
    return grants;
  }
  int readings() { return ledger->calls(Op::kStanding); }
};

std::vector<std::string> orders(const Shop& shop) {
  return shop.rows(
      "SELECT member || ' ' || state || ' ' || coalesce(reason, '-') FROM flash_sale_order "
      "ORDER BY id");
}

// K1. Let Desk::record() wait for `arrival` here too and the answer waits for the row.
TEST(Standing, AGrantIsAnsweredBeforeItsRowOnceTheCheckHasPassed) {
  AsyncShop shop;
  shop.ledger->hold(Op::kRecord);
  const DeskAnswer mine = shop.take(1);
  ASSERT_EQ(words(mine), "granted 1");
  EXPECT_EQ(shop.held(), 0);
  EXPECT_EQ(shop.readings(), 1);
  shop.ledger->release(Op::kRecord);
  shop.quiet();
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(mine).id);
  EXPECT_EQ(std::get<Holding>(again).expires_at, grant_of(mine).expires_at);
}

// K1. Answer before stands() has returned and this fails.
TEST(Standing, NothingIsAnsweredBeforeTheReading) {
  AsyncShop shop;
  shop.ledger->hold(Op::kStanding);
  const auto asked = shop.ask(1);
  shop.quiet();
  EXPECT_FALSE(asked->has_value());
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "granted 1");
}

TEST(Standing, RefusalsNeedNoReading) {
  AsyncShop shop({.quantity = 1, .hold = seconds{600}});
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.quiet();
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
  EXPECT_EQ(shop.readings(), 1);
}

// Schedule 15. Switch the comparison of epochs off in StandingCheck::run() and the grant is
// answered although its epoch is over.
TEST(Standing, AGrantWhoseEpochIsOverIsNotAnsweredAsGiven) {
  AsyncShop shop;
  shop.ledger->hold(Op::kStanding);
  const auto asked = shop.ask(1);
  shop.quiet();
  ASSERT_TRUE(shop.home.wait(shop.engine->rebuild(shop.home, kScope, false)));
  EXPECT_FALSE(asked->has_value());
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "busy: uncertain");
  EXPECT_EQ(shop.metric("engine_standing_refused_total"), 1);
  // Busy and recorded: asking again leads its owner there.
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(words(shop.take(2)), "granted 2");
}

// Schedule 8. Switch the look at the mark off in StandingCheck::run() and the grant is answered and
// then reclaimed.
TEST(Standing, AGrantWithAReclaimMarkIsNotAnsweredAsGiven) {
  AsyncShop shop;
  shop.ledger->hold(Op::kRecord);
  shop.ledger->hold(Op::kStanding);
  const auto asked = shop.ask(1);
  const auto other = shop.ask(2);
  shop.quiet();
  ASSERT_EQ(shop.in_flight().size(), 2U);
  const GrantId marked = shop.in_flight()[shop.in_flight()[0].member == MemberId{1} ? 0 : 1].id;
  ASSERT_TRUE(shop.home.wait(shop.sql->mark_reclaim({marked})));
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return asked->has_value() && other->has_value(); });
  EXPECT_EQ(words(**asked), "busy: uncertain");
  EXPECT_EQ(words(**other), "granted 2") << "the mark is on the other one's id";
  shop.ledger->release(Op::kRecord);
  shop.quiet();
  EXPECT_EQ(words(shop.take(1)), "holding") << "the reclaimer had not judged yet, and will find it";
}

TEST(Standing, AGrantThatWasReclaimedMeanwhileIsNotAnsweredAsGiven) {
  AsyncShop shop;
  shop.ledger->hold(Op::kRecord);
  shop.ledger->hold(Op::kStanding);
  const auto asked = shop.ask(1);
  shop.quiet();
  const std::vector<Grant> abandoned = shop.in_flight();
  ASSERT_EQ(abandoned.size(), 1U);
  ASSERT_TRUE(shop.home.wait(shop.sql->mark_reclaim({abandoned[0].id})));
  ASSERT_TRUE(shop.home.wait(shop.sql->finish_reclaim(abandoned)));
  ASSERT_EQ(shop.number("SELECT count(*) FROM reclaim_mark"), 0) << "the mark is gone by now";
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "busy: uncertain");
  shop.ledger->release(Op::kRecord);
  shop.engine->steps_written();
  shop.quiet();
  EXPECT_THAT(orders(shop), ElementsAre("1 REJECTED ABANDONED")) << "the first row wins (S1)";
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "granted 1");
  EXPECT_NE(grant_of(again).id, abandoned[0].id);
}

TEST(Standing, WithoutAnAnswerOfTheLedgerAGrantIsBusyAtItsDeadline) {
  AsyncShop shop;
  shop.ledger->hold(Op::kStanding);
  const auto asked = shop.ask(1);
  shop.advance(shop.config.budget.request_budget - kTick);
  EXPECT_FALSE(asked->has_value());
  shop.advance(kTick);
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ(words(**asked), "busy: uncertain");
  shop.ledger->release(Op::kStanding);
  shop.quiet();
  EXPECT_EQ(words(shop.take(1)), "holding") << "it was recorded all the same";
}

TEST(Standing, AReadingThatFailsLetsNobodyThrough) {
  AsyncShop shop;
  shop.ledger->hold(Op::kRecord);
  shop.ledger->fail_next(Op::kStanding, 1);
  EXPECT_EQ(words(shop.take(1)), "busy: uncertain") << "at once: ask again";
  shop.ledger->lose_answers(Op::kStanding, 1);
  EXPECT_EQ(words(shop.take(1)), "busy: uncertain");
  EXPECT_EQ(shop.free(), 9);
  const DeskAnswer third = shop.take(1);
  EXPECT_EQ(words(third), "granted 1") << "the same grant (S8)";
  EXPECT_EQ(grant_of(third).expires_at, kStart + seconds{600});
  EXPECT_EQ(shop.metric("engine_adopted_total"), 2);
  shop.ledger->release(Op::kRecord);
  shop.quiet();
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
}

TEST(Standing, OneReadingServesAllThatHaveGathered) {
  AsyncShop shop({.quantity = 100, .hold = seconds{600}});
  shop.ledger->hold(Op::kStanding);
  std::vector<Shop::Pending> asked;
  asked.push_back(shop.ask(1));
  shop.quiet();
  ASSERT_EQ(shop.ledger->waiting(Op::kStanding), 1U);
  for (std::int64_t member = 2; member <= 50; ++member) asked.push_back(shop.ask(member));
  shop.quiet();
  EXPECT_EQ(shop.ledger->waiting(Op::kStanding), 1U) << "one at a time";
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] {
    return std::all_of(asked.begin(), asked.end(),
                       [](const auto& one) { return one->has_value(); });
  });
  for (const auto& one : asked) EXPECT_TRUE(std::holds_alternative<Granted>(**one));
  EXPECT_EQ(shop.readings(), 2);
  EXPECT_EQ(shop.metric("engine_standing_reads_total"), 2);
}

// "By a reading that begins after this call". Take those who gathered meanwhile into the reading
// that is under way and members 2 and 3 are answered in an epoch that is over.
TEST(Standing, AReadingThatHadBegunServesNobodyWhoCameLater) {
  AsyncShop shop;
  shop.ledger->hold_answers(Op::kStanding);
  const auto one = shop.ask(1);
  shop.quiet();
  ASSERT_EQ(shop.ledger->waiting(Op::kStanding), 1U);
  const auto two = shop.ask(2);
  const auto three = shop.ask(3);
  shop.quiet();
  shop.run("UPDATE engine_shard SET epoch = epoch + 1");
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return one->has_value() && two->has_value() && three->has_value(); });
  EXPECT_EQ(words(**one), "granted 1") << "read while its epoch was in force";
  EXPECT_EQ(words(**two), "busy: uncertain");
  EXPECT_EQ(words(**three), "busy: uncertain");
  EXPECT_EQ(shop.readings(), 2);
}

TEST(Standing, WhoeverWaitsForItWhenTheEngineStopsIsAnsweredAtOnce) {
  AsyncShop shop;
  shop.ledger->hold(Op::kStanding);
  const auto one = shop.ask(1);
  shop.quiet();
  const auto two = shop.ask(2);
  shop.quiet();
  shop.engine->begin_stop(false);
  shop.quiet();
  shop.ledger->release(Op::kStanding);
  shop.home.until([&] { return one->has_value() && two->has_value(); });
  EXPECT_EQ(words(**one), "granted 1");
  EXPECT_EQ(words(**two), "busy: uncertain");
  shop.home.until([&] { return shop.engine->has_stopped(); });
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -", "2 PENDING -"));
}

}  // namespace
}  // namespace doorbuster::engine::testing

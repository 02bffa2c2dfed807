#include "engine/desk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr milliseconds kRetryFirst{50};
constexpr std::chrono::microseconds kTick{1};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

std::vector<std::string> orders(const Shop& shop) {
  return shop.rows(
      "SELECT member || ' ' || state || ' ' || coalesce(slot, '-') FROM flash_sale_order "
      "ORDER BY id");
}

// K1. Let Desk::record() answer before it waits for `arrival` and this fails.
TEST(Desk, NothingIsAnsweredAsGivenBeforeItsRowIsDurable) {
  Shop shop;
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(1);
  shop.quiet();
  EXPECT_FALSE(asked->has_value());
  EXPECT_EQ(shop.held(), 0);
  EXPECT_EQ(shop.free(), 9);
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "granted 1");
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING 1"));
  EXPECT_EQ(grant_of(**asked).expires_at, kStart + seconds{10});
}

TEST(Desk, WhileTheWriterIsBusyTheNextBatchGathers) {
  Shop shop({.quantity = 100});
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  std::vector<Shop::Pending> asked;
  for (std::int64_t member = 1; member <= 50; ++member) asked.push_back(shop.ask(member));
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked.back()->has_value(); });
  std::size_t rows = 0;
  for (const std::size_t size : shop.ledger->batches()) rows += size;
  EXPECT_EQ(rows, 50U);
  EXPECT_LE(shop.ledger->batches().size(), 2U);
  for (const auto& one : asked) EXPECT_TRUE(std::holds_alternative<Granted>(**one));
}

TEST(Desk, ABatchIsNeverLargerThanItsLimit) {
  EngineConfig config;
  config.budget.batch_max = 3;
  Shop shop({.quantity = 100}, config);
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  std::vector<Shop::Pending> asked;
  for (std::int64_t member = 1; member <= 10; ++member) asked.push_back(shop.ask(member));
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked.back()->has_value(); });
  EXPECT_EQ(shop.held(), 10);
  for (const std::size_t size : shop.ledger->batches()) EXPECT_LE(size, 3U);
}

// K2. Move reserve_seat() behind the gate's take and the gate is asked (and a slot used) a third
// time.
TEST(Desk, AFullQueueIsAnsweredBeforeASlotIsTaken) {
  EngineConfig config;
  config.budget.queue_size = 2;
  Shop shop({}, config);
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto one = shop.ask(1);
  const auto two = shop.ask(2);
  shop.quiet();
  ASSERT_EQ(shop.gate->takes(), 2);
  EXPECT_EQ(words(shop.take(3)), "busy: queue_full");
  EXPECT_EQ(shop.gate->takes(), 2);
  EXPECT_EQ(shop.free(), 8);
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return one->has_value() && two->has_value(); });
  shop.quiet();
  EXPECT_EQ(words(shop.take(3)), "granted 3");
}

TEST(Desk, EveryRefusalGivesItsSeatBack) {
  EngineConfig config;
  config.budget.queue_size = 1;
  Shop shop({.quantity = 2}, config);
  shop.prepare();
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  EXPECT_EQ(words(shop.take(2)), "granted 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(words(shop.take(1)), "holding");
    EXPECT_EQ(words(shop.take(3)), "sold out, may come back");
  }
}

// K2. Take the look at ledger_down() out of Desk::take() and a slot is used up for member 2.
TEST(Desk, WhileTheLedgerIsDownNoSlotIsTakenAndNothingIsLost) {
  Shop shop;
  shop.prepare();
  shop.ledger->set_down(true);
  const auto asked = shop.ask(1);
  shop.quiet();
  EXPECT_FALSE(asked->has_value());
  EXPECT_TRUE(shop.engine->ledger_down());
  EXPECT_EQ(words(shop.take(2)), "busy: ledger_down");
  EXPECT_EQ(shop.gate->takes(), 1);
  shop.advance(seconds{2});
  EXPECT_EQ(words(shop.take(2)), "busy: ledger_down");
  EXPECT_GT(shop.ledger->calls(Op::kRecord), 3) << "the batch goes again and again";

  shop.ledger->set_down(false);
  shop.advance(seconds{1});
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ(words(**asked), "granted 1");
  EXPECT_FALSE(shop.engine->ledger_down());
  EXPECT_EQ(words(shop.take(2)), "granted 2");
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING 1", "2 PENDING 2"));
}

TEST(Desk, AFailedBatchGoesAgainAfterItsWaitAndIsRecordedOnce) {
  Shop shop;
  shop.prepare();
  shop.ledger->fail_next(Op::kRecord, 1);
  const auto asked = shop.ask(1);
  shop.advance(kRetryFirst - kTick);
  EXPECT_FALSE(asked->has_value());
  shop.advance(kTick);
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ(words(**asked), "granted 1");
  EXPECT_EQ(shop.ledger->calls(Op::kRecord), 2);
}

// W2. Let Writer::record_all() drop a batch whose answer is an error and its owner is answered busy
// although the row is there.
TEST(Desk, AnUnknownCommitThatHappenedIsFoundBySendingTheSameBatchAgain) {
  Shop shop;
  shop.prepare();
  shop.ledger->lose_answers(Op::kRecord, 2);
  const auto one = shop.ask(1);
  const auto two = shop.ask(2);
  shop.quiet();
  EXPECT_FALSE(one->has_value());
  shop.advance(seconds{1});
  ASSERT_TRUE(one->has_value() && two->has_value());
  EXPECT_EQ(words(**one), "granted 1");
  EXPECT_EQ(words(**two), "granted 2");
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING 1", "2 PENDING 2"));
  EXPECT_EQ(shop.number("SELECT sold FROM flash_sale_item"), 2);
  EXPECT_EQ(shop.number("SELECT count(*) FROM flash_sale_order_history"), 2);
}

TEST(Desk, OverItsBudgetARequestIsBusyAndAskingAgainJoinsTheSameGrant) {
  Shop shop;
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto first = shop.ask(1);
  shop.advance(milliseconds{5000} - kTick);
  EXPECT_FALSE(first->has_value());
  shop.advance(kTick);
  ASSERT_TRUE(first->has_value());
  EXPECT_EQ(words(**first), "busy: timeout");

  const auto second = shop.ask(1);
  shop.quiet();
  EXPECT_FALSE(second->has_value());
  EXPECT_EQ(shop.free(), 9) << "K3: no second slot";
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return second->has_value(); });
  EXPECT_EQ(words(**second), "granted 1");
  EXPECT_EQ(grant_of(**second).expires_at, kStart + seconds{10}) << "as the first answer promised";
  EXPECT_EQ(shop.metric("engine_adopted_total"), 1);
  shop.quiet();
  const DeskAnswer third = shop.take(1);
  ASSERT_EQ(words(third), "holding");
  EXPECT_EQ(std::get<Holding>(third).id, grant_of(**second).id);
  EXPECT_EQ(std::get<Holding>(third).expires_at, kStart + seconds{10});
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING 1"));
}

TEST(Desk, BusyIsNeverFollowedByARowThatItsMemberCannotFind) {
  Shop shop;
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(1);
  shop.advance(seconds{6});
  EXPECT_EQ(words(**asked), "busy: timeout");
  shop.ledger->release(Op::kRecord);
  shop.quiet();
  EXPECT_EQ(shop.held(), 1);
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(shop.number("SELECT due_at FROM flash_sale_order"),
            common::to_micros(kStart + seconds{16}))
      << "the slow journal did not eat the member's time";
}

// K3.
TEST(Desk, TwoRequestsOfOneMemberAtOnceGetOneGrant) {
  Shop shop({.items = 2});
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto one = shop.ask(1);
  const auto two = shop.ask(1);
  const DeskAnswer other_item = shop.take(1, {}, 1);
  ASSERT_EQ(words(other_item), "holding") << "asked for another allotment of the scope";
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return one->has_value() && two->has_value(); });
  EXPECT_EQ(words(**one), "granted 1");
  EXPECT_EQ(words(**two), "granted 1");
  EXPECT_EQ(grant_of(**one).id, grant_of(**two).id);
  EXPECT_EQ(std::get<Holding>(other_item).id, grant_of(**one).id);
  EXPECT_EQ(std::get<Holding>(other_item).allotment, (AllotmentId{'i', 1}));
  EXPECT_EQ(shop.held(), 1);
}

TEST(Desk, SeveralUnitsAMemberAreNamedByTheirKeys) {
  Shop shop({.per_member = 2});
  shop.prepare();
  const DeskAnswer a = shop.take(1, "a");
  const DeskAnswer b = shop.take(1, "b");
  EXPECT_EQ(words(a), "granted 1");
  EXPECT_EQ(words(b), "granted 2");
  const DeskAnswer again = shop.take(1, "a");
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(a).id);
  const DeskAnswer third = shop.take(1, "c");
  ASSERT_EQ(words(third), "holding");
  EXPECT_EQ(std::get<Holding>(third).id, grant_of(b).id) << "the newest";
  EXPECT_EQ(shop.held(), 2);
}

// A4: back and sold within two seconds. Take the wake of the relay out of expire() (and make
// relay_every long) and the unit stays away.
TEST(Desk, AnUnpaidHoldComesBackAndIsSoldToAnother) {
  EngineConfig config;
  config.relay_every = std::chrono::hours{1};
  Shop shop({.quantity = 1}, config);
  shop.prepare();
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
  shop.advance(seconds{10} - kTick);
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  shop.advance(seconds{1} + kTick);
  EXPECT_EQ(words(shop.buy(2)), "granted 1");
  EXPECT_EQ(words(shop.buy(1)), "sold out, may come back");
  EXPECT_THAT(orders(shop), ElementsAre("1 EXPIRED 1", "2 PENDING 1"));
}

TEST(Desk, BetweenDeadlineAndReturnItsMemberIsToldToComeBack) {
  Shop shop({.quantity = 1});
  shop.prepare();
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  shop.ledger->hold(Op::kExpire);
  shop.advance(seconds{10} - kTick);
  EXPECT_EQ(words(shop.take(1)), "holding");
  shop.advance(kTick);
  EXPECT_EQ(words(shop.take(1)), "busy: returning") << "not 'you have one' with a dead order";
  shop.ledger->release(Op::kExpire);
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.take(1)), "granted 1");
}

TEST(Desk, APaidGrantHasNoDeadlineAtTheGate) {
  Shop shop({.quantity = 1});
  shop.prepare();
  const DeskAnswer mine = shop.take(1);
  shop.pay_row(grant_of(mine));
  shop.advance(seconds{30});
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_THAT(orders(shop), ElementsAre("1 PAID 1"));
}

TEST(Desk, AMemberBuysAgainAfterExpiryAndAfterCancelThreeTimesOver) {
  Shop shop({.quantity = 1});
  shop.prepare();
  std::set<GrantId> ids;
  for (int i = 0; i < 3; ++i) {
    const DeskAnswer first = shop.take(1);
    ASSERT_EQ(words(first), "granted 1");
    ids.insert(grant_of(first).id);
    shop.advance(seconds{11});
    const DeskAnswer second = shop.take(1);
    ASSERT_EQ(words(second), "granted 1");
    ids.insert(grant_of(second).id);
    shop.end_row(grant_of(second).id, "PENDING", "CANCELED");
    EXPECT_EQ(shop.held(), 0);
    EXPECT_EQ(shop.free(), 1);
  }
  EXPECT_EQ(ids.size(), 6U) << "each grant has an id of its own";
  // The journal's redelivery of the first purchase changes nothing.
  Grant old;
  old.id = *ids.begin();
  old.allotment = {'i', 1};
  old.scope = {'s', 1};
  old.epoch = shop.scope->epoch();
  old.member = MemberId{1};
  old.slot = Slot{1};
  old.nth = Nth{1};
  old.slot_limit = 1;
  ASSERT_TRUE(shop.journal->reserve_seat());
  ASSERT_TRUE(shop.home.wait(shop.journal->append(old)));
  shop.quiet();
  EXPECT_EQ(shop.held(), 0);
  EXPECT_EQ(words(shop.take(2)), "granted 1");
}

TEST(Desk, ASlotThatAnotherRowHoldsIsReplacedForTheSameGrant) {
  Shop shop({.quantity = 2});
  shop.prepare();
  shop.foreign_row(99, 1);
  const DeskAnswer answer = shop.take(1);
  ASSERT_TRUE(std::holds_alternative<Granted>(answer));
  EXPECT_THAT(shop.rows("SELECT member || ' ' || slot FROM flash_sale_order ORDER BY member"),
              ElementsAre("1 2", "99 1"));
  EXPECT_EQ(words(shop.take(1)), "holding");
  shop.quiet();
  EXPECT_EQ(words(shop.take(99)), "holding") << "the gate did not know of this one";
}

TEST(Desk, AReplacedSlotIsAnsweredAsItsRowHasIt) {
  Shop shop({.quantity = 2});
  shop.prepare();
  shop.foreign_row(99, 1);
  EXPECT_EQ(words(shop.take(1)), "granted 2");
}

TEST(Desk, WithNoSlotLeftForItsGrantAMemberIsBusyAndThenToldTheTruth) {
  Shop shop({.quantity = 1});
  shop.prepare();
  shop.foreign_row(99, 1);
  const DeskAnswer answer = shop.take(1);
  EXPECT_TRUE(std::holds_alternative<Busy>(answer)) << words(answer);
  shop.quiet();
  EXPECT_EQ(words(shop.take(1)), "sold out, may come back");
  EXPECT_EQ(words(shop.take(99)), "holding");
  EXPECT_EQ(shop.held(), 1);
}

// The gate hears of a payment by one confirm. Take the second way out of Desk::take() and its owner
// is answered busy for ever.
TEST(Desk, AHolderWhosePaymentTheGateHasNotHeardOfIsKnownAgainBySecondAsking) {
  Shop shop({.quantity = 2, .hold = seconds{10}});
  shop.prepare();
  const DeskAnswer answer = shop.take(1);
  ASSERT_EQ(words(answer), "granted 1");
  shop.gate->drop_confirms(1);
  shop.pay_row(std::get<Granted>(answer).grant);
  shop.advance(seconds{11});
  EXPECT_EQ(words(shop.take(1)), "busy: returning");
  shop.quiet();
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(shop.held(), 1);
}

// S3. Take the second write() out of merge() and member 1 is unknown at the gate afterwards.
TEST(Desk, AMergedGrantLeadsItsOwnerToTheOneThatCounts) {
  Shop shop({.quantity = 3});
  shop.prepare();
  shop.foreign_row(1, 3);
  const DeskAnswer answer = shop.take(1);
  ASSERT_EQ(words(answer), "holding");
  const GrantId other = std::get<Holding>(answer).id;
  EXPECT_EQ(other.bytes[0], 0xEE);
  shop.quiet();
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "holding") << "a holder whom the gate knows";
  EXPECT_EQ(std::get<Holding>(again).id, other);
  EXPECT_THAT(shop.rows("SELECT state || ' ' || coalesce(reason, '-') FROM flash_sale_order "
                        "ORDER BY state"),
              ElementsAre("PENDING -", "REJECTED MERGED"));
  EXPECT_EQ(shop.held(), 1);
}

TEST(Desk, ACounterThatContradictsTheRowsAnswersBusyUntilItIsCounted) {
  Shop shop;
  shop.prepare();
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  shop.run("UPDATE flash_sale_item SET sold = 10");
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.take(2)), "busy: count_alarm");
  EXPECT_EQ(words(shop.take(1)), "busy: count_alarm");
  ASSERT_TRUE(shop.home.wait(shop.engine->rebuild(shop.home, ScopeId{'s', 1}, true)));
  EXPECT_EQ(shop.number("SELECT sold FROM flash_sale_item"), 1);
  EXPECT_EQ(words(shop.take(2)), "granted 2");
  EXPECT_EQ(words(shop.take(1)), "holding");
  shop.advance(seconds{2});
  EXPECT_EQ(words(shop.take(3)), "granted 3") << "the alarm does not come back";
}

TEST(Desk, AnUnpreparedScopeIsBusy) {
  Shop shop;
  shop.scope = std::make_shared<Scope>(shop.rules());
  EXPECT_EQ(words(shop.take(1)), "busy: not_prepared");
  EXPECT_EQ(shop.gate->takes(), 0);
}

TEST(Desk, AStoppedEngineAnswersBusyAndKeepsWhatItRecorded) {
  Shop shop;
  shop.prepare();
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(2);
  shop.quiet();
  shop.journal->stop();  // as the engine's stop begins
  EXPECT_EQ(words(shop.take(3)), "busy: uncertain");
  shop.ledger->release(Op::kRecord);
  shop.stop();
  shop.home.run_ready();
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ(words(**asked), "granted 2") << "what is in flight is recorded before the end";
  EXPECT_EQ(words(shop.take(3)), "busy: uncertain");
  EXPECT_EQ(shop.held(), 2);
}

TEST(Desk, AStopWhoseGraceIsOverLeavesWhatWasNotAnswered) {
  Shop shop;
  shop.prepare();
  shop.ledger->set_down(true);
  const auto asked = shop.ask(1);
  shop.quiet();
  std::atomic<bool> stopped{false};
  std::thread other([&] {
    shop.engine->stop(milliseconds{1});
    stopped.store(true);
    shop.home.post([] {});
  });
  // The writer only gives up between two tries, so time must go on.
  while (!stopped.load()) {
    shop.clock.advance(milliseconds{10});
    shop.home.run_ready();
    std::this_thread::yield();
  }
  other.join();
  shop.home.run_ready();
  ASSERT_TRUE(asked->has_value());
  EXPECT_TRUE(std::holds_alternative<Busy>(**asked)) << words(**asked);
  EXPECT_EQ(shop.held(), 0);
}

}  // namespace
}  // namespace doorbuster::engine::testing

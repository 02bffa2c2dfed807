#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/reclaim.hpp"
#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ScopeId kScope{'s', 1};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

EngineConfig quick_reclaim() {
  EngineConfig config;
  config.reclaim_every = seconds{1};
  config.reclaim_after = seconds{5};
  // A lost grant is the reclaimer's here, not the watch's.
  config.watch_every = std::chrono::hours{1};
  return config;
}

/// A node that ended between the gate and the journal.
GateEntry take_only(Shop& shop, std::int64_t member) {
  TakeRequest request{.scope = kScope, .allotment = {'i', 1}, .member = MemberId{member}};
  request.epoch = shop.scope->epoch();
  request.fresh_id.bytes[0] = static_cast<std::uint8_t>(member);
  request.now = shop.clock.now();
  const auto answer = wait_here(shop.local->take(std::move(request)));
  return std::get<Taken>(*answer).entry;
}

std::vector<std::string> orders(const Shop& shop) {
  return shop.rows(
      "SELECT member || ' ' || state || ' ' || coalesce(reason, '-') FROM flash_sale_order "
      "ORDER BY id");
}

// S7.
TEST(Reclaim, EndsAGrantThatNobodyFinishesFromItsAgeOn) {
  Shop shop({.quantity = 1}, quick_reclaim());
  shop.prepare();
  take_only(shop, 1);
  shop.advance(seconds{5} - milliseconds{1});
  EXPECT_THAT(orders(shop), IsEmpty());
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
  shop.advance(seconds{3});
  EXPECT_THAT(orders(shop), ElementsAre("1 REJECTED ABANDONED"));
  EXPECT_EQ(shop.metric("engine_reclaimed_total"), 1);
  EXPECT_EQ(words(shop.take(2)), "granted 1") << "its slot came back by the numbered return";
  EXPECT_EQ(shop.number("SELECT count(*) FROM reclaim_mark"), 0);
}

TEST(Reclaim, AMemberWhoAsksAgainBeforeItGetsTheGrant) {
  Shop shop({.quantity = 1}, quick_reclaim());
  shop.prepare();
  const GateEntry entry = take_only(shop, 1);
  shop.advance(seconds{3});
  const DeskAnswer answer = shop.take(1);
  ASSERT_EQ(words(answer), "granted 1");
  EXPECT_EQ(grant_of(answer).id, entry.id);
  shop.advance(seconds{5});
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
}

TEST(Reclaim, ConfirmsAGrantWhoseRowIsThere) {
  Shop shop({.quantity = 1, .hold = seconds{60}}, quick_reclaim());
  shop.prepare();
  shop.gate->drop_confirms(1);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  ASSERT_EQ(shop.reading().in_flight.size(), 1U);
  shop.advance(seconds{8});
  EXPECT_TRUE(shop.reading().in_flight.empty());
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
  EXPECT_EQ(words(shop.take(1)), "holding");
}

// Schedules 6 to 8. Take consumed_to_end() out of Reclaim::run_once() and a grant that waits in the
// journal is rejected.
TEST(Reclaim, WaitsForTheJournalBeforeItJudges) {
  EngineConfig config = quick_reclaim();
  config.budget.request_budget = seconds{60};
  Shop shop({.quantity = 1, .hold = seconds{60}}, config);
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(1);
  shop.advance(seconds{20});
  EXPECT_THAT(orders(shop), IsEmpty());
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "granted 1");
  shop.advance(seconds{3});
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -"));
  EXPECT_EQ(shop.free(), 0);
}

TEST(Reclaim, CountsOnlyWhileTheLedgerAnswers) {
  Shop shop({.quantity = 5, .hold = seconds{60}}, quick_reclaim());
  shop.prepare();
  shop.ledger->fail_next(Op::kRecord, 1'000'000);
  const auto asked = shop.ask(1);
  take_only(shop, 2);
  shop.advance(seconds{20});
  EXPECT_THAT(orders(shop), IsEmpty());
  shop.ledger->fail_next(Op::kRecord, 0);
  shop.advance(seconds{3});
  EXPECT_THAT(orders(shop), ElementsAre("1 PENDING -")) << "the count begins now";
  shop.advance(seconds{6});
  EXPECT_THAT(orders(shop), ::testing::UnorderedElementsAre("1 PENDING -", "2 REJECTED ABANDONED"));
}

TEST(Reclaim, IsRepeatedFromTheStartAfterAFailureAtAnyStep) {
  for (const Op op : {Op::kMark, Op::kFinishReclaim}) {
    for (const bool happened : {false, true}) {
      Shop shop({.quantity = 1}, quick_reclaim());
      shop.prepare();
      take_only(shop, 1);
      if (happened) {
        shop.ledger->lose_answers(op, 1);
      } else {
        shop.ledger->fail_next(op, 1);
      }
      shop.advance(seconds{10});
      EXPECT_THAT(orders(shop), ElementsAre("1 REJECTED ABANDONED"));
      EXPECT_EQ(shop.free(), 1);
      EXPECT_EQ(words(shop.take(2)), "granted 1");
    }
  }
}

TEST(Expiry, CanBeAskedForAndTellsHowManyItEnded) {
  EngineConfig config;
  config.expiry_every = std::chrono::hours{1};
  config.expiry_batch = 2;
  Shop shop({.quantity = 5}, config);
  shop.prepare();
  for (std::int64_t member = 1; member <= 5; ++member) {
    ASSERT_TRUE(std::holds_alternative<Granted>(shop.take(member)));
  }
  shop.advance(seconds{10} - milliseconds{1});
  EXPECT_EQ(*shop.home.wait(shop.engine->expire_now(shop.home)), 0);
  shop.advance(milliseconds{1});
  EXPECT_EQ(*shop.home.wait(shop.engine->expire_now(shop.home)), 5) << "over several batches";
  EXPECT_EQ(*shop.home.wait(shop.engine->expire_now(shop.home)), 0);
  shop.quiet();
  EXPECT_EQ(shop.free(), 5);
  EXPECT_EQ(shop.metric("engine_expired_total"), 5);
}

TEST(Expiry, WhoseAnswerIsLostReturnsNothingTwice) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.ledger->lose_answers(Op::kExpire, 1);
  shop.advance(seconds{12});
  EXPECT_EQ(shop.free(), 2);
  EXPECT_EQ(words(shop.take(2)), "granted 1");
  EXPECT_EQ(words(shop.take(3)), "granted 2");
  EXPECT_EQ(words(shop.take(4)), "sold out, may come back");
}

TEST(Relay, BringsEveryReturnOnceWhateverFailsOnTheWay) {
  for (const Op op : {Op::kUndelivered, Op::kDelivered}) {
    for (const bool happened : {false, true}) {
      Shop shop({.quantity = 2});
      shop.prepare();
      const DeskAnswer one = shop.take(1);
      const DeskAnswer two = shop.take(2);
      if (happened) {
        shop.ledger->lose_answers(op, 1);
      } else {
        shop.ledger->fail_next(op, 1);
      }
      shop.end_row(grant_of(one).id, "PENDING", "CANCELED");
      shop.end_row(grant_of(two).id, "PENDING", "CANCELED");
      shop.advance(seconds{3});
      EXPECT_EQ(shop.free(), 2);
      EXPECT_EQ(shop.number("SELECT count(*) FROM outbox"), 0);
      EXPECT_EQ(words(shop.take(3)), "granted 1");
      EXPECT_EQ(words(shop.take(4)), "granted 2");
      EXPECT_EQ(words(shop.take(5)), "sold out, may come back");
    }
  }
}

TEST(Settling, WaitsForGrantsInFlightOpenHoldsAndReturns) {
  Shop shop({.quantity = 3, .hold = seconds{60}});
  shop.prepare();
  const auto settled = [&] {
    const auto answer = shop.home.wait(shop.engine->settle(shop.home, kScope));
    EXPECT_TRUE(answer);
    return *answer;
  };
  const DeskAnswer paid = shop.take(1);
  shop.pay_row(grant_of(paid));
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(2);
  shop.quiet();
  EXPECT_FALSE(settled()) << "a grant is in flight";
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked->has_value(); });
  shop.quiet();
  EXPECT_FALSE(settled()) << "a hold is open";
  shop.ledger->hold(Op::kUndelivered);
  shop.end_row(grant_of(**asked).id, "PENDING", "CANCELED");
  EXPECT_FALSE(settled()) << "a return is undelivered";
  shop.ledger->release(Op::kUndelivered);
  shop.quiet();
  EXPECT_TRUE(settled());
  EXPECT_TRUE(settled()) << "safe to run twice";
  EXPECT_EQ(shop.engine->find(kScope), nullptr);
  EXPECT_EQ(shop.reading().state, GateState::kAbsent);
  EXPECT_THAT(shop.rows("SELECT state FROM engine_shard"), ElementsAre("SETTLED"));
  EXPECT_EQ(words(shop.take(3)), "busy: not_prepared");
}

TEST(Settling, ThatFailsLeavesTheScopeAsItWas) {
  Shop shop({.quantity = 3});
  shop.prepare();
  shop.ledger->fail_next(Op::kClose, 1);
  EXPECT_FALSE(shop.home.wait(shop.engine->settle(shop.home, kScope)));
  EXPECT_NE(shop.engine->find(kScope), nullptr);
  EXPECT_EQ(words(shop.take(1)), "granted 1");
}

TEST(Settling, ThatStopsHalfWayIsFinishedByTheNextOne) {
  Shop shop({.quantity = 3});
  shop.prepare();
  shop.ledger->fail_next(Op::kSettle, 1);
  EXPECT_FALSE(shop.home.wait(shop.engine->settle(shop.home, kScope)));
  EXPECT_THAT(shop.rows("SELECT state FROM engine_shard"), ElementsAre("CLOSED"));
  shop.advance(seconds{3});
  EXPECT_EQ(shop.superseded, 0) << "the epoch was raised by ourselves";
  EXPECT_EQ(shop.number("SELECT epoch FROM engine_shard"), 2) << "nobody rebuilds it";
  EXPECT_TRUE(*shop.home.wait(shop.engine->settle(shop.home, kScope)));
  EXPECT_THAT(shop.rows("SELECT state FROM engine_shard"), ElementsAre("SETTLED"));
}

// Raise min_epoch with the epoch and a grant that was answered is refused afterwards.
TEST(Settling, AGrantThatCameBetweenReadingAndClosingKeepsItsRow) {
  Shop shop({.quantity = 3, .hold = seconds{60}});
  shop.prepare();
  shop.ledger->hold(Op::kClose);
  const auto first = shop.home.begin(shop.engine->settle(shop.home, kScope));
  shop.quiet();
  ASSERT_EQ(shop.ledger->waiting(Op::kClose), 1U);
  shop.ledger->hold(Op::kRecord);
  const auto asked = shop.ask(1);
  shop.quiet();
  shop.ledger->release(Op::kClose);
  shop.quiet();
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return asked->has_value() && first->has_value(); });
  EXPECT_EQ(words(**asked), "granted 1");
  EXPECT_FALSE((*first)->value()) << "its hold is open";
  shop.pay_row(grant_of(**asked));
  EXPECT_TRUE(*shop.home.wait(shop.engine->settle(shop.home, kScope)));
  EXPECT_THAT(shop.rows("SELECT state FROM flash_sale_order"), ElementsAre("PAID"));
}

TEST(Settling, OfAScopeThatIsNotPreparedHereAsksTheLedger) {
  Shop shop;
  EXPECT_TRUE(*shop.home.wait(shop.engine->settle(shop.home, kScope))) << "it never was open";
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  // As on a node that could not prepare it.
  Shop other({.quantity = 1});
  other.run(
      "INSERT INTO engine_shard (scope, shard, epoch, min_epoch, last_number, gate, memory, "
      "state) VALUES ('s1', 0, 1, 1, 0, 'local', '', 'OPEN')");
  const auto settled = other.home.wait(other.engine->settle(other.home, kScope));
  EXPECT_FALSE(settled && *settled);
}

}  // namespace
}  // namespace doorbuster::engine::testing

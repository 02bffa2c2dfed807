#include "engine/watch.hpp"

#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

std::int64_t misses(Shop& shop) { return shop.metric("engine_watch_misses_total"); }
std::int64_t rebuilds(Shop& shop) { return shop.metric("engine_watch_rebuilds_total"); }

/// A unit that no row holds and that the gate will never hear of: a return that got lost.
void lose_unit(Shop& shop, std::int64_t member) {
  shop.run(fmt::format("UPDATE flash_sale_order SET state = 'CANCELED' WHERE member = {}", member));
  shop.run("UPDATE flash_sale_item SET sold = sold - 1");
}

// S10. Take the rebuild out of Watch::run() and the unit stays lost.
TEST(Watch, FindsALostUnitAndRebuildsAfterTwoMisses) {
  Shop shop({.quantity = 1});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.advance(seconds{2});
  ASSERT_EQ(misses(shop), 0);
  lose_unit(shop, 1);
  shop.advance(seconds{1});
  EXPECT_EQ(misses(shop), 1);
  EXPECT_EQ(rebuilds(shop), 0) << "one miss may be a moment in between";
  shop.advance(seconds{1});
  EXPECT_EQ(misses(shop), 2);
  EXPECT_EQ(rebuilds(shop), 1);
  EXPECT_EQ(shop.free(), 1);
  EXPECT_EQ(words(shop.take(2)), "granted 1");
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 2);
}

TEST(Watch, ARowTooManyIsFoundToo) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.foreign_row(99, 2);
  shop.advance(seconds{2});
  EXPECT_EQ(rebuilds(shop), 1);
  EXPECT_EQ(shop.free(), 0);
  EXPECT_EQ(words(shop.take(99)), "holding");
}

// Found by simulation: a gate that was replaced between the look at it and the comparison. Take the
// comparison of the memories out and its numbers count.
TEST(Watch, AGateWithAnotherMemoryThanTheLedgersIsNotCompared) {
  Shop shop({.quantity = 1});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  lose_unit(shop, 1);
  shop.run("UPDATE engine_shard SET memory = 'another'");
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
  shop.run("UPDATE engine_shard SET memory = ''");
  shop.advance(seconds{1});
  EXPECT_EQ(misses(shop), 1);
}

TEST(Watch, OneMissThatIsGoneInTheNextRoundStartsNothing) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  for (int i = 0; i < 3; ++i) {
    lose_unit(shop, 1);
    shop.advance(seconds{1});
    shop.run("UPDATE flash_sale_order SET state = 'PENDING'");
    shop.run("UPDATE flash_sale_item SET sold = sold + 1");
    shop.advance(seconds{1});
  }
  EXPECT_EQ(misses(shop), 3);
  EXPECT_EQ(rebuilds(shop), 0);
}

TEST(Watch, RebuildsAtMostOncePerBackoff) {
  Shop shop({.quantity = 3, .hold = seconds{600}});
  shop.prepare();
  for (std::int64_t member = 1; member <= 2; ++member) {
    ASSERT_TRUE(std::holds_alternative<Granted>(shop.take(member)));
  }
  lose_unit(shop, 1);
  shop.advance(seconds{2});
  ASSERT_EQ(rebuilds(shop), 1);
  lose_unit(shop, 2);
  shop.advance(seconds{58});
  EXPECT_EQ(rebuilds(shop), 1);
  EXPECT_EQ(shop.free(), 2);
  shop.advance(seconds{3});
  EXPECT_EQ(rebuilds(shop), 2);
  EXPECT_EQ(shop.free(), 3);
}

// S10, "by id". Count every entry in flight in Watch::compare(), whatever its row, and this one
// counts twice.
TEST(Watch, ALostConfirmIsNoMiss) {
  Shop shop({.quantity = 2});
  shop.prepare();
  shop.gate->drop_confirms(1);
  const DeskAnswer mine = shop.take(1);
  ASSERT_EQ(words(mine), "granted 1");
  ASSERT_EQ(shop.reading().in_flight.size(), 1U);
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
  // Asking again mends it: the same grant, confirmed.
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "granted 1");
  EXPECT_EQ(grant_of(again).id, grant_of(mine).id);
  EXPECT_EQ(grant_of(again).expires_at, grant_of(mine).expires_at);
  EXPECT_TRUE(shop.reading().in_flight.empty());
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(shop.held(), 1);
}

TEST(Watch, GrantsInFlightAndReturnsOnTheirWayAreNoMiss) {
  Shop shop({.quantity = 3});
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  shop.ledger->hold(Op::kRecord);
  const auto in_flight = shop.ask(2);
  shop.advance(seconds{2});
  EXPECT_EQ(misses(shop), 0);
  shop.ledger->hold(Op::kUndelivered);
  shop.end_row(grant_of(one).id, "PENDING", "CANCELED");
  shop.advance(seconds{2});
  EXPECT_EQ(shop.free(), 1);
  EXPECT_EQ(misses(shop), 0);
  // The gate has it and the outbox still has it too.
  shop.ledger->hold(Op::kDelivered);
  shop.ledger->release(Op::kUndelivered);
  shop.advance(seconds{2});
  EXPECT_EQ(shop.free(), 2);
  EXPECT_EQ(shop.number("SELECT count(*) FROM outbox"), 1);
  EXPECT_EQ(misses(shop), 0);
  shop.ledger->release(Op::kDelivered);
  shop.ledger->release(Op::kRecord);
  shop.advance(seconds{2});
  EXPECT_EQ(misses(shop), 0);
  EXPECT_EQ(words(**in_flight), "busy: timeout");
  EXPECT_EQ(words(shop.take(2)), "holding");
}

TEST(Watch, ASaleInFullSwingIsNoMiss) {
  Shop shop({.quantity = 50, .hold = seconds{3}});
  shop.prepare();
  for (std::int64_t member = 1; member <= 60; ++member) {
    const DeskAnswer answer = shop.take(member);
    if (const auto* granted = std::get_if<Granted>(&answer)) {
      if (member % 3 == 0) shop.pay_row(granted->grant);
      if (member % 3 == 1) shop.end_row(granted->grant.id, "PENDING", "CANCELED");
    }
    shop.advance(milliseconds{130});
  }
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
  EXPECT_EQ(shop.free() + shop.held(), 50);
}

TEST(Watch, WithoutTheLedgerItComparesNothing) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  lose_unit(shop, 1);
  shop.ledger->set_down(true);
  shop.advance(seconds{5});
  EXPECT_EQ(misses(shop), 0);
  EXPECT_EQ(rebuilds(shop), 0);
}

TEST(Watch, AnotherServersHigherEpochEndsThisOne) {
  Shop shop;
  shop.prepare();
  shop.advance(seconds{2});
  EXPECT_EQ(shop.superseded, 0);
  shop.run("UPDATE engine_shard SET epoch = epoch + 1");
  shop.advance(seconds{1});
  EXPECT_GE(shop.superseded, 1);
}

// Ask nothing about rebuilds in Watch::compare() and a rebuild by hand ends the server.
TEST(Watch, OurOwnRebuildIsNotTakenForAnotherServer) {
  Shop shop;
  shop.prepare();
  shop.ledger->hold(Op::kSnapshot);
  const auto rebuilt = shop.home.begin(shop.engine->rebuild(shop.home, ScopeId{'s', 1}, false));
  shop.advance(seconds{3});
  ASSERT_FALSE(rebuilt->has_value());
  EXPECT_EQ(shop.number("SELECT epoch FROM engine_shard"), 2);
  EXPECT_EQ(shop.reading().epoch, Epoch{1});
  EXPECT_EQ(shop.superseded, 0);
  shop.ledger->release(Op::kSnapshot);
  shop.home.until([&] { return rebuilt->has_value(); });
  EXPECT_TRUE(**rebuilt);
  shop.advance(seconds{3});
  EXPECT_EQ(shop.superseded, 0);
}

TEST(Watch, OurOwnRebuildThatBeganDuringAComparisonIsNotTakenForAnotherServer) {
  Shop shop;
  shop.prepare();
  // The comparison has read the gate, and waits for a ledger reading that will show the new epoch.
  shop.ledger->hold(Op::kRead);
  shop.advance(seconds{1});
  ASSERT_GE(shop.ledger->waiting(Op::kRead), 1U);
  shop.ledger->hold(Op::kSnapshot);
  const auto rebuilt = shop.home.begin(shop.engine->rebuild(shop.home, ScopeId{'s', 1}, false));
  shop.quiet();
  shop.ledger->release(Op::kRead);
  shop.quiet();
  EXPECT_EQ(shop.superseded, 0);
  shop.ledger->release(Op::kSnapshot);
  shop.home.until([&] { return rebuilt->has_value(); });
  EXPECT_EQ(shop.superseded, 0);
}

// Settling raises the epoch, to fence what still arrives.
TEST(Watch, ASettlementWhoseAnswerIsOnItsWayIsNotTakenForAnotherServer) {
  Shop shop;
  shop.prepare();
  shop.ledger->hold_answers(Op::kSettle);
  const auto settled = shop.home.begin(shop.engine->settle(shop.home, ScopeId{'s', 1}));
  shop.quiet();
  ASSERT_FALSE(settled->has_value());
  ASSERT_EQ(shop.number("SELECT count(*) FROM engine_shard WHERE state = 'SETTLED'"), 1);
  shop.advance(seconds{2});
  EXPECT_EQ(shop.superseded, 0);
  shop.ledger->release(Op::kSettle);
  shop.home.until([&] { return settled->has_value(); });
  EXPECT_TRUE((*settled)->value());
  shop.advance(seconds{2});
  EXPECT_EQ(shop.superseded, 0);
}

}  // namespace
}  // namespace doorbuster::engine::testing

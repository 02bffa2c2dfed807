#include "engine/leaser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr ScopeId kScope{'s', 1};

TEST(NextLeaseUnits, AreNoneOnceEverythingIsLeased) {
  for (const std::int32_t chunk : {1, 4, 1000}) {
    EXPECT_EQ(next_lease_units(10, 10, chunk), 0) << chunk;
    EXPECT_EQ(next_lease_units(1, 1, chunk), 0) << chunk;
  }
}

TEST(NextLeaseUnits, AreAQuarterOfWhatIsLeftRoundedUp) {
  EXPECT_EQ(next_lease_units(10, 9, 100), 1);
  EXPECT_EQ(next_lease_units(10, 6, 100), 1);
  EXPECT_EQ(next_lease_units(10, 5, 100), 2);
  EXPECT_EQ(next_lease_units(10, 2, 100), 2);
  EXPECT_EQ(next_lease_units(10, 1, 100), 3);
  EXPECT_EQ(next_lease_units(10, 0, 100), 3);
  EXPECT_EQ(next_lease_units(10'000'000, 0, 10'000'000), 2'500'000);
}

TEST(NextLeaseUnits, AreNeverMoreThanAChunk) {
  EXPECT_EQ(next_lease_units(1000, 0, 249), 249);
  EXPECT_EQ(next_lease_units(1000, 0, 250), 250);
  EXPECT_EQ(next_lease_units(1000, 0, 251), 250) << "a quarter is less";
  for (std::int32_t leased_to = 0; leased_to < 10; ++leased_to) {
    EXPECT_EQ(next_lease_units(10, leased_to, 1), 1) << leased_to;
  }
}

// "Small enough that a takeover has something to give": each lease leaves three quarters of what
// was left, and the last ones are single units.
TEST(NextLeaseUnits, ShrinkTowardsTheEndAndReachItExactly) {
  for (const std::int32_t quantity : {1, 2, 3, 4, 5, 10, 99, 1000}) {
    for (const std::int32_t chunk : {1, 2, 3, 7, 100, 5000}) {
      std::int32_t leased_to = 0;
      std::int32_t before = chunk;
      while (leased_to < quantity) {
        const std::int32_t units = next_lease_units(quantity, leased_to, chunk);
        ASSERT_GE(units, 1) << quantity << " in chunks of " << chunk;
        ASSERT_LE(units, before);
        ASSERT_LE(units, (quantity - leased_to + 3) / 4);
        before = units;
        leased_to += units;
      }
      EXPECT_EQ(leased_to, quantity);
      EXPECT_EQ(before, 1);
    }
  }
}

EngineConfig in_chunks(std::int32_t chunk) {
  EngineConfig config;
  config.lease_chunk = chunk;
  return config;
}
/// The same, and only a take that finds nothing left brings the next chunk.
EngineConfig in_chunks_on_demand(std::int32_t chunk) {
  EngineConfig config = in_chunks(chunk);
  config.lease_every = std::chrono::hours{1};
  return config;
}

constexpr StoreOptions kTen{.quantity = 10, .hold = seconds{600}};

std::vector<std::string> leases(const Shop& shop, int item = 1) {
  return shop.rows(
      fmt::format("SELECT first_slot || '-' || last_slot FROM engine_lease WHERE allotment = 'i{}' "
                  "ORDER BY number",
                  item));
}
std::int32_t leased_at_gate(Shop& shop, std::size_t index = 0) {
  return shop.reading().allotments.at(index).leased_to;
}
std::int64_t misses(Shop& shop) { return shop.metric("engine_watch_misses_total"); }

/// As a buyer who comes back when told to.
DeskAnswer insist(Shop& shop, std::int64_t member, std::size_t index = 0) {
  DeskAnswer answer = shop.take(member, {}, index);
  for (int again = 0; again < 3 && std::holds_alternative<Busy>(answer); ++again) {
    shop.quiet();
    answer = shop.take(member, {}, index);
  }
  return answer;
}

TEST(Leaser, AGateBeginsWithOneChunk) {
  Shop shop(kTen, in_chunks(3));
  shop.prepare();
  EXPECT_THAT(leases(shop), ElementsAre("1-3"));
  EXPECT_EQ(shop.free(), 3);
  EXPECT_EQ(leased_at_gate(shop), 3);
  shop.advance(seconds{5});
  EXPECT_THAT(leases(shop), ElementsAre("1-3")) << "nobody needs more";
  EXPECT_EQ(misses(shop), 0);
}

TEST(Leaser, WithoutChunksEverythingIsLeasedAtOnce) {
  Shop shop(kTen);
  shop.prepare();
  EXPECT_THAT(leases(shop), ElementsAre("1-10"));
  EXPECT_EQ(leased_at_gate(shop), 10);
  EXPECT_EQ(shop.ledger->calls(Op::kLeases), 0);
}

// S5. Take the wake of the leaser out of Desk::take() and member 4 waits for the next round.
TEST(Leaser, EveryUnitIsSoldOnceAlthoughTheyAreLeasedInChunks) {
  Shop shop(kTen, in_chunks_on_demand(3));
  shop.prepare();
  for (std::int64_t member = 1; member <= 10; ++member) {
    EXPECT_EQ(words(insist(shop, member)), fmt::format("granted {}", member))
        << "in the order of the decisions, too (I7)";
  }
  EXPECT_EQ(words(shop.take(11)), "sold out, may come back");
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(shop.held(), 10);
  EXPECT_THAT(leases(shop), ElementsAre("1-3", "4-5", "6-7", "8-8", "9-9", "10-10"));
  EXPECT_EQ(shop.metric("engine_leases_total"), 5);
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
  EXPECT_EQ(shop.metric("engine_rebuilds_total"), 1) << "the first one";
}

TEST(Leaser, LeasesAheadSoThatNobodyWaits) {
  Shop shop(kTen, in_chunks(3));
  shop.prepare();
  for (std::int64_t member = 1; member <= 10; ++member) {
    EXPECT_EQ(words(shop.take(member)), fmt::format("granted {}", member));
    shop.advance(seconds{1});
  }
  EXPECT_EQ(words(shop.take(11)), "sold out, may come back");
  EXPECT_EQ(misses(shop), 0);
}

TEST(Leaser, AUnitThatComesBackIsGivenBeforeTheNextChunkIsLeased) {
  Shop shop(kTen, in_chunks(2));
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  shop.end_row(std::get<Granted>(one).grant.id, "PENDING", "CANCELED");
  EXPECT_EQ(words(shop.take(3)), "granted 1");
  EXPECT_EQ(words(insist(shop, 4)), "granted 3");
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
}

TEST(Leaser, EachAllotmentOfAScopeHasLeasesOfItsOwn) {
  Shop shop({.quantity = 4, .items = 2, .hold = seconds{600}}, in_chunks_on_demand(1));
  shop.prepare();
  for (std::int64_t member = 1; member <= 4; ++member) {
    EXPECT_EQ(words(insist(shop, member, 1)), fmt::format("granted {}", member));
  }
  EXPECT_EQ(words(shop.take(5, {}, 1)), "sold out, may come back");
  EXPECT_EQ(leases(shop, 2).size(), 4U);
  EXPECT_THAT(leases(shop, 1), ElementsAre("1-1"));
  EXPECT_EQ(words(shop.take(5)), "granted 1");
}

// Section 5, "all leased". Take `leased` out of SoldOut::probe() and member 3 is told sold out.
TEST(Leaser, NobodyIsToldSoldOutWhileALeaseIsStillToCome) {
  Shop shop({.quantity = 3, .hold = seconds{600}}, in_chunks(2));
  shop.prepare();
  shop.ledger->fail_next(Op::kLease, 1'000'000);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(words(shop.buy(3)), "busy: uncertain");
    EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
    shop.advance(seconds{1});
  }
  EXPECT_EQ(misses(shop), 0);
  shop.ledger->fail_next(Op::kLease, 0);
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(3)), "granted 3");
  EXPECT_EQ(words(shop.buy(4)), "sold out, may come back");
}

// Section 5, "every lease applied". Compare quantity with the ledger's leased_to alone and member 3
// is told sold out.
TEST(Leaser, NobodyIsToldSoldOutWhileALeaseIsWrittenAndNotApplied) {
  Shop shop({.quantity = 3, .hold = seconds{600}}, in_chunks(2));
  shop.prepare();
  shop.ledger->hold_answers(Op::kLease);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(words(shop.buy(3)), "busy: uncertain");
    shop.advance(seconds{1});
  }
  ASSERT_THAT(leases(shop), ElementsAre("1-2", "3-3"));
  ASSERT_EQ(leased_at_gate(shop), 2);
  EXPECT_EQ(misses(shop), 0) << "a chunk on its way is no lost unit (S10)";
  shop.ledger->release(Op::kLease);
  shop.quiet();
  EXPECT_EQ(words(shop.buy(3)), "granted 3");
  EXPECT_EQ(words(shop.buy(4)), "sold out, may come back");
}

// Schedule 22.
TEST(Leaser, ALeaseThatWasWrittenAndNotAppliedIsAppliedLater) {
  Shop shop(kTen, in_chunks_on_demand(2));
  shop.prepare();
  shop.ledger->lose_answers(Op::kLease, 1);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  EXPECT_EQ(words(shop.take(3)), "busy: uncertain");
  shop.quiet();
  ASSERT_THAT(leases(shop), ElementsAre("1-2", "3-4"));
  ASSERT_EQ(leased_at_gate(shop), 2);
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
  EXPECT_EQ(words(insist(shop, 3)), "granted 3");
  EXPECT_EQ(words(insist(shop, 4)), "granted 4");
  EXPECT_THAT(leases(shop), ElementsAre("1-2", "3-4")) << "applied, and not written once more";
  EXPECT_EQ(words(insist(shop, 5)), "granted 5");
}

TEST(Leaser, WhateverFailsOnTheWayEveryUnitIsSoldOnce) {
  for (const Op op : {Op::kLease, Op::kLeases}) {
    for (const bool happened : {false, true}) {
      Shop shop(kTen, in_chunks(2));
      shop.prepare();
      for (std::int64_t member = 1; member <= 10; ++member) {
        if (happened) {
          shop.ledger->lose_answers(op, 1);
        } else {
          shop.ledger->fail_next(op, 1);
        }
        shop.advance(seconds{1});
        EXPECT_EQ(words(insist(shop, member)), fmt::format("granted {}", member));
      }
      EXPECT_EQ(words(shop.take(11)), "sold out, may come back");
      EXPECT_EQ(misses(shop), 0);
    }
  }
}

// Schedule 22, with the death in between: whoever comes next gives it, and nothing twice.
TEST(Leaser, ALeaseThatWasWrittenByAProcessThatDiedIsNotLost) {
  Shop shop(kTen, in_chunks_on_demand(2));
  shop.prepare();
  shop.ledger->lose_answers(Op::kLease, 1);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  ASSERT_EQ(words(shop.take(3)), "busy: uncertain");
  shop.quiet();
  ASSERT_THAT(leases(shop), ElementsAre("1-2", "3-4"));
  shop.restart();
  EXPECT_EQ(leased_at_gate(shop), 4);
  EXPECT_EQ(shop.free(), 2);
  EXPECT_EQ(words(shop.take(1)), "holding");
  for (std::int64_t member = 3; member <= 10; ++member) {
    EXPECT_EQ(words(insist(shop, member)), fmt::format("granted {}", member));
  }
  EXPECT_EQ(words(shop.take(11)), "sold out, may come back");
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
}

TEST(Leaser, AfterARestartLeasingGoesOnWhereItWas) {
  Shop shop(kTen, in_chunks_on_demand(3));
  shop.prepare();
  for (std::int64_t member = 1; member <= 4; ++member) insist(shop, member);
  ASSERT_THAT(leases(shop), ElementsAre("1-3", "4-5"));
  shop.restart();
  EXPECT_THAT(leases(shop), ElementsAre("1-3", "4-5"));
  for (std::int64_t member = 5; member <= 10; ++member) {
    EXPECT_EQ(words(insist(shop, member)), fmt::format("granted {}", member));
  }
  EXPECT_EQ(words(shop.take(11)), "sold out, may come back");
}

// S6: counter = leased_to. Holes wait for the drain, new slots do not.
TEST(Leaser, AGateThatDrainsGetsTheNextChunk) {
  Shop shop(kTen, in_chunks_on_demand(2));
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.ledger->hold(Op::kRecord);
  const auto before = shop.ask(2);
  shop.quiet();
  const auto rebuilt = shop.home.begin(shop.engine->rebuild(shop.home, kScope, false));
  shop.quiet();
  ASSERT_EQ(shop.reading().state, GateState::kDraining);
  EXPECT_EQ(words(shop.take(3)), "busy: rebuilding");
  shop.quiet();
  EXPECT_EQ(leased_at_gate(shop), 4);
  const auto during = shop.ask(3);
  shop.quiet();
  ASSERT_EQ(shop.reading().in_flight.size(), 1U);
  EXPECT_EQ(shop.reading().in_flight[0].second.slot, Slot{3});
  EXPECT_EQ(shop.reading().state, GateState::kDraining);

  shop.ledger->release(Op::kRecord);
  shop.home.until(
      [&] { return rebuilt->has_value() && before->has_value() && during->has_value(); });
  EXPECT_TRUE(**rebuilt);
  EXPECT_EQ(words(**before), "granted 2");
  EXPECT_EQ(words(**during), "granted 3");
  EXPECT_EQ(words(shop.take(4)), "granted 4");
  EXPECT_EQ(shop.held(), 4);
  shop.advance(seconds{3});
  EXPECT_EQ(misses(shop), 0);
}

TEST(Leaser, WhatIsLeftOnThePageIsNotOnlyTheChunk) {
  Shop shop(kTen, in_chunks(3));
  shop.prepare();
  shop.advance(seconds{1});
  EXPECT_EQ(shop.scope->remaining(0), 10);
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.advance(seconds{1});
  EXPECT_EQ(shop.scope->remaining(0), 9);
}

}  // namespace
}  // namespace doorbuster::engine::testing

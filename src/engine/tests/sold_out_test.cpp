#include "engine/sold_out.hpp"

#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

constexpr ScopeId kScope{'s', 1};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

/// One unit, sold to member 1, and the flag up.
struct SoldOutShop : Shop {
  explicit SoldOutShop(StoreOptions wanted = {.quantity = 1}, EngineConfig settings = {})
      : Shop(wanted, std::move(settings)) {
    prepare();
    mine = take(1);
    EXPECT_EQ(words(mine), "granted 1");
    EXPECT_EQ(words(take(2)), "sold out, may come back");
    EXPECT_EQ(scope->flag(0), Flag::kUp);
  }
  DeskAnswer mine;
};

/// Background probes so rare that only what the test does can move the flag.
EngineConfig no_probes() {
  EngineConfig config;
  config.probe_every = std::chrono::hours{1};
  config.relay_every = std::chrono::hours{1};
  return config;
}

TEST(SoldOut, TheFlagIsDownWhileThereIsSomethingToGive) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.advance(seconds{3});
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(shop.scope->remaining(0), 1);
}

TEST(SoldOut, AFlagUpRefusesStrangersWithoutTheGate) {
  SoldOutShop shop;
  const int takes = shop.gate->takes();
  for (std::int64_t member = 100; member < 200; ++member) {
    EXPECT_EQ(words(shop.buy(member)), "sold out, may come back");
  }
  EXPECT_LE(shop.gate->takes(), takes + 10) << "but for the filter's few wrong maybes";
}

// "Strangers only". Take `|| filter_.may_contain(member)` out of Scope::refuse() and the holder is
// told sold out (schedule 14).
TEST(SoldOut, AHolderWhoseAnswerWasLostGetsTheGrantWhileTheFlagIsUp) {
  SoldOutShop shop;
  const DeskAnswer again = shop.buy(1);
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(shop.mine).id);
  shop.advance(seconds{2});
  ASSERT_EQ(shop.scope->flag(0), Flag::kUp);
  EXPECT_EQ(words(shop.buy(1)), "holding") << "also after the probe has made the list anew";
  shop.pay_row(grant_of(shop.mine));
  shop.advance(seconds{2});
  ASSERT_EQ(shop.scope->flag(0), Flag::kFinal);
  EXPECT_EQ(words(shop.buy(1)), "holding") << "never 'final' to a holder";
  EXPECT_EQ(words(shop.buy(2)), "sold out, final");
}

TEST(SoldOut, AHolderInFlightIsNoStrangerEither) {
  Shop shop({.quantity = 1});
  shop.prepare();
  shop.ledger->hold(Op::kRecord);
  const auto first = shop.ask(1);
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  ASSERT_EQ(shop.scope->flag(0), Flag::kUp);
  ASSERT_EQ(shop.scope->refuse(0, MemberId{1}, shop.clock.steady()), Flag::kDown);
  const auto again = shop.ask(1);
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return again->has_value() && first->has_value(); });
  EXPECT_EQ(words(**again), "granted 1");
  EXPECT_EQ(grant_of(**again).id, grant_of(**first).id);
}

// Take `scope.saw_holder(ask.member)` out of Desk::take() and this member is a stranger until the
// next probe.
TEST(SoldOut, WhoBecameAHolderASecondAgoIsNoStranger) {
  SoldOutShop shop({.quantity = 1, .items = 2}, no_probes());
  ASSERT_EQ(words(shop.buy(5)), "sold out, may come back");
  ASSERT_EQ(words(shop.buy(5, {}, 1)), "granted 1") << "the other item of the same scope";
  EXPECT_EQ(words(shop.buy(5)), "holding") << "one per sale: the order it has";
}

// A5. Take the first lower() (and the second) out of Relay::deliver() and the flag refuses
// strangers until a probe comes by.
TEST(SoldOut, AReturnLowersTheFlagAtOnceAndTheUnitIsSold) {
  SoldOutShop shop({.quantity = 1}, no_probes());
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  shop.end_row(grant_of(shop.mine).id, "PENDING", "CANCELED");
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(words(shop.buy(2)), "granted 1");
  EXPECT_EQ(words(shop.buy(3)), "sold out, may come back");
}

TEST(SoldOut, WithoutAMessageAProbeLowersTheFlagWithinASecond) {
  SoldOutShop shop({.quantity = 1});
  shop.write([&](db::Session& session) -> common::Result<common::Done> {
    const auto ended = end_grant(session, order_table(), grant_of(shop.mine).id, "PENDING",
                                 "CANCELED", "TEST", shop.clock.now());
    EXPECT_TRUE(ended && *ended);
    return common::Done{};
  });
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(2)), "granted 1");
}

TEST(SoldOut, OnlyTheReturnedAllotmentsFlagIsLowered) {
  Shop shop({.quantity = 1, .items = 2}, no_probes());
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  ASSERT_EQ(words(shop.take(2, {}, 1)), "granted 1");
  ASSERT_EQ(words(shop.take(3)), "sold out, may come back");
  ASSERT_EQ(words(shop.take(3, {}, 1)), "sold out, may come back");
  shop.end_row(grant_of(one).id, "PENDING", "CANCELED");
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(shop.scope->flag(1), Flag::kUp);
}

// Take the look at `generation` out of Scope::raise() and the flag goes up on a reading that is
// older than the returned unit.
TEST(SoldOut, AReadingFromBeforeAReturnDoesNotRaiseTheFlag) {
  Shop shop({.quantity = 1}, no_probes());
  shop.prepare();
  const DeskAnswer mine = shop.take(1);
  ASSERT_EQ(words(mine), "granted 1");
  shop.ledger->hold_answers(Op::kRead);
  const auto asked = shop.ask(2);
  shop.home.until([&] { return shop.ledger->waiting(Op::kRead) > 0; });
  // Gate and ledger have both been read: dry, and every step applied. Now the unit comes back.
  shop.end_row(grant_of(mine).id, "PENDING", "CANCELED");
  ASSERT_EQ(shop.free(), 1);
  shop.ledger->release(Op::kRead);
  shop.home.until([&] { return asked->has_value(); });
  EXPECT_EQ(words(**asked), "busy: uncertain") << "a unit came back: no verdict";
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(words(shop.buy(2)), "granted 1");
}

// F1. Take `gate->applied == ledger->last_number` out of SoldOut::probe() and member 2 is told sold
// out while a unit is on its way.
TEST(SoldOut, IsNotSaidWhileAReturnIsUndelivered) {
  Shop shop({.quantity = 1}, no_probes());
  shop.prepare();
  const DeskAnswer mine = shop.take(1);
  ASSERT_EQ(words(mine), "granted 1");
  shop.ledger->hold(Op::kUndelivered);
  shop.end_row(grant_of(mine).id, "PENDING", "CANCELED");
  EXPECT_EQ(words(shop.take(2)), "busy: uncertain");
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  shop.ledger->release(Op::kUndelivered);
  shop.quiet();
  EXPECT_EQ(words(shop.take(2)), "granted 1");
}

// F3. Take lower_all() out of SoldOut::probe() and the flag stays up on no evidence.
TEST(SoldOut, AFailedProbeLowersTheFlag) {
  SoldOutShop shop;
  shop.ledger->set_down(true);
  shop.advance(seconds{1});
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_GE(shop.metric("engine_probes_failed_total"), 1);
  EXPECT_EQ(words(shop.buy(2)), "busy: uncertain");
  shop.ledger->set_down(false);
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
}

// F1, "the same epoch". Take the comparison of epochs out of SoldOut::probe() and the flag stays.
TEST(SoldOut, IsNotSaidByAGateThatIsNotInCharge) {
  SoldOutShop shop({.quantity = 1}, [] {
    EngineConfig config;
    config.watch_every = std::chrono::hours{1};
    return config;
  }());
  shop.run("UPDATE engine_shard SET epoch = epoch + 1");
  shop.advance(seconds{1});
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(words(shop.buy(2)), "busy: uncertain");
}

// F1, "everything leased". Take `!leased` out of SoldOut::probe() and it is said too early.
TEST(SoldOut, IsNotSaidBeforeEverythingIsLeased) {
  Shop shop({.quantity = 1}, no_probes());
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.run("UPDATE engine_lease SET last_slot = 2");  // another shard's chunk, so to speak
  EXPECT_EQ(words(shop.take(2)), "busy: uncertain");
  shop.run("UPDATE engine_lease SET last_slot = 1");
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
}

TEST(SoldOut, AVerdictThatDoesNotComeInTimeIsBusy) {
  Shop shop({.quantity = 1});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.ledger->hold(Op::kRead);
  const auto asked = shop.ask(2);
  shop.advance(milliseconds{4999});
  EXPECT_FALSE(asked->has_value());
  shop.advance(milliseconds{1});
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ(words(**asked), "busy: uncertain");
}

TEST(SoldOut, ManyWhoFindTheGateDryShareOneProbe) {
  Shop shop({.quantity = 1}, no_probes());
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  const std::int64_t before = shop.metric("engine_probes_total");
  std::vector<Shop::Pending> asked;
  for (std::int64_t member = 2; member <= 101; ++member) asked.push_back(shop.ask(member));
  for (const auto& one : asked) {
    shop.home.until([&] { return one->has_value(); });
    EXPECT_EQ(words(**one), "sold out, may come back");
  }
  EXPECT_LE(shop.metric("engine_probes_total"), before + 2);
}

// F2. Take `open_holds == 0` out of SoldOut::probe() and the first line fails; take
// `keep_slot == quantity` out and the second does.
TEST(SoldOut, FinalIsSaidOnlyWhenTheRowsKeepEveryUnitAndNoneIsAHold) {
  Shop shop({.quantity = 2});
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  const DeskAnswer two = shop.take(2);
  shop.pay_row(grant_of(one));
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(3)), "sold out, may come back") << "member 2 may not pay";
  shop.end_row(grant_of(two).id, "PENDING", "CANCELED");
  shop.ledger->hold(Op::kRecord);
  const auto in_flight = shop.ask(4);
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(3)), "sold out, may come back") << "member 4 has no row yet";
  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return in_flight->has_value(); });
  shop.pay_row(grant_of(**in_flight));
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.buy(3)), "sold out, final");
  EXPECT_EQ(words(shop.buy(1)), "holding");
  EXPECT_EQ(words(shop.buy(4)), "holding");
}

// F2. Take `rules.may_become_final` out of SoldOut::probe() and final was not final (schedule 34).
TEST(SoldOut, FinalIsNeverSaidWherePaidUnitsMayComeBack) {
  Shop shop({.quantity = 1});
  ScopeRules rules = shop.rules();
  rules.allotments[0].may_become_final = false;
  shop.prepare(rules);
  const DeskAnswer mine = shop.take(1);
  shop.pay_row(grant_of(mine));
  shop.advance(seconds{3});
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  shop.end_row(grant_of(mine).id, "PAID", "CANCELED");
  EXPECT_EQ(words(shop.buy(2)), "granted 1");
}

TEST(SoldOut, ARebuildLowersTheFlagUntilAProbeKnowsBetter) {
  SoldOutShop shop({.quantity = 1}, no_probes());
  ASSERT_TRUE(shop.home.wait(shop.engine->rebuild(shop.home, kScope, false)));
  EXPECT_EQ(shop.scope->flag(0), Flag::kDown);
  EXPECT_EQ(words(shop.buy(2)), "sold out, may come back");
  EXPECT_EQ(words(shop.buy(1)), "holding");
}

}  // namespace
}  // namespace doorbuster::engine::testing

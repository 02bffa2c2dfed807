#include "engine/rebuild.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using ::testing::ElementsAre;

constexpr ScopeId kScope{'s', 1};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

using Rebuilding = std::shared_ptr<std::optional<common::Result<common::Done>>>;

Rebuilding begin_rebuild(Shop& shop) {
  Rebuilding rebuilding = shop.home.begin(shop.engine->rebuild(shop.home, kScope, false));
  shop.quiet();
  return rebuilding;
}

/// Takes a slot at the gate as a node would that then stops in the middle of its request.
Grant take_only(Shop& shop, std::int64_t member) {
  TakeRequest request{.scope = kScope, .allotment = {'i', 1}, .member = MemberId{member}};
  request.epoch = shop.scope->epoch();
  request.fresh_id.bytes[0] = static_cast<std::uint8_t>(member);
  request.now = shop.clock.now();
  const auto answer = wait_here(shop.local->take(std::move(request)));
  const GateEntry entry = std::get<Taken>(*answer).entry;
  Grant grant;
  grant.id = entry.id;
  grant.allotment = entry.allotment;
  grant.scope = kScope;
  grant.epoch = entry.epoch;
  grant.member = MemberId{member};
  grant.slot = entry.slot;
  grant.nth = entry.nth;
  grant.slot_limit = shop.options.quantity;
  grant.per_member = shop.options.per_member;
  grant.amount = 1000;
  grant.taken_at = entry.taken_at;
  grant.expires_at = entry.expires_at;
  grant.hold = shop.options.hold;
  return grant;
}
void append(Shop& shop, Grant grant) {
  ASSERT_TRUE(shop.journal->reserve_seat());
  ASSERT_TRUE(wait_here(shop.journal->append(std::move(grant))));
  shop.quiet();
}

TEST(Rebuild, AtRuntimeKeepsEveryEntryAndItsDeadline) {
  Shop shop;
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  const DeskAnswer two = shop.take(2);
  const DeskAnswer three = shop.take(3);
  shop.pay_row(grant_of(two));
  shop.end_row(grant_of(three).id, "PENDING", "CANCELED");
  const Epoch before = shop.scope->epoch();
  const Rebuilding rebuilt = begin_rebuild(shop);
  ASSERT_TRUE(rebuilt->has_value() && **rebuilt);
  EXPECT_EQ(shop.scope->epoch(), Epoch{before.value() + 1});
  EXPECT_EQ(shop.free(), 8);
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(one).id);
  EXPECT_EQ(std::get<Holding>(again).expires_at, grant_of(one).expires_at);
  EXPECT_EQ(std::get<Holding>(again).epoch, before) << "part of its order id for ever";
  EXPECT_EQ(words(shop.take(2)), "holding");
  EXPECT_EQ(words(shop.take(3)), "granted 3") << "the hole";
  shop.advance(seconds{11});
  EXPECT_EQ(words(shop.take(1)), "granted 1") << "an unpaid hold still ends";
  EXPECT_EQ(words(shop.take(2)), "holding") << "a paid one does not";
}

// S6: the drain. Take consumed_to_end() out of Rebuild::steps() and member 1, whose grant was in
// the journal, is fenced and answered busy.
TEST(Rebuild, WaitsForWhatIsInTheJournalAndTellsNobodySoldOutMeanwhile) {
  Shop shop({.quantity = 2});
  shop.prepare();
  ASSERT_EQ(words(shop.take(9)), "granted 1");
  shop.ledger->hold(Op::kRecord);
  const auto in_flight = shop.ask(1);
  shop.quiet();
  const Rebuilding rebuilt = begin_rebuild(shop);
  EXPECT_FALSE(rebuilt->has_value());
  EXPECT_EQ(shop.reading().state, GateState::kDraining);
  EXPECT_EQ(words(shop.take(9)), "holding") << "a holder gets the normal answer";
  EXPECT_EQ(words(shop.take(2)), "busy: rebuilding") << "never sold out";
  EXPECT_EQ(words(shop.take(1)), "busy: rebuilding") << "not a second unit either (schedule 18)";
  shop.advance(seconds{2});
  EXPECT_EQ(words(shop.buy(2)), "busy: rebuilding") << "no flag either";

  shop.ledger->release(Op::kRecord);
  shop.home.until([&] { return rebuilt->has_value() && in_flight->has_value(); });
  EXPECT_TRUE(**rebuilt);
  ASSERT_EQ(words(**in_flight), "granted 2");
  const DeskAnswer again = shop.take(1);
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(**in_flight).id);
  EXPECT_EQ(std::get<Holding>(again).expires_at, grant_of(**in_flight).expires_at);
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
}

// S6: the fence. Take raise_min_epoch() out and the late row is recorded, on a slot that is free at
// the gate as well.
TEST(Rebuild, AGrantThatWasTakenBeforeItAndArrivesAfterItIsFenced) {
  Shop shop({.quantity = 1});
  shop.prepare();
  const Grant late = take_only(shop, 1);
  const Rebuilding rebuilt = begin_rebuild(shop);
  ASSERT_TRUE(rebuilt->has_value() && **rebuilt);
  append(shop, late);
  EXPECT_EQ(words(shop.take(2)), "granted 1");
  append(shop, late);
  EXPECT_EQ(shop.held(), 1);
  EXPECT_THAT(shop.rows("SELECT member || ' ' || state || ' ' || coalesce(reason, '-') FROM "
                        "flash_sale_order ORDER BY member"),
              ElementsAre("1 REJECTED FENCED", "2 PENDING -"));
  shop.advance(seconds{3});
  EXPECT_EQ(shop.metric("engine_watch_misses_total"), 0);
}

// S9. Let LocalGate::load() accept any number and the returned slot is counted twice: as a hole,
// and by its return.
TEST(Rebuild, AReturnBetweenReadingAndLoadIsAppliedOnce) {
  Shop shop({.quantity = 3});
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  ASSERT_EQ(words(shop.take(2)), "granted 2");
  shop.ledger->hold(Op::kRaiseMinEpoch);
  const Rebuilding rebuilt = begin_rebuild(shop);
  shop.ledger->hold_answers(Op::kSnapshot);
  shop.ledger->release(Op::kRaiseMinEpoch);
  shop.home.until([&] { return shop.ledger->waiting(Op::kSnapshot) == 1; });
  // The second reading says that member 1 holds; then the order ends and its return is applied.
  shop.end_row(grant_of(one).id, "PENDING", "CANCELED");
  EXPECT_FALSE(rebuilt->has_value());
  shop.ledger->release(Op::kSnapshot);
  shop.home.until([&] { return rebuilt->has_value(); });
  EXPECT_TRUE(**rebuilt);
  EXPECT_EQ(shop.free(), 2);
  EXPECT_EQ(shop.reading().entries, 1U);
  EXPECT_EQ(words(shop.take(1)), "granted 1") << "not blocked by a dead grant";
  EXPECT_EQ(words(shop.take(2)), "holding");
  EXPECT_EQ(words(shop.take(3)), "granted 3");
  EXPECT_EQ(words(shop.take(4)), "sold out, may come back");
}

TEST(Rebuild, TwoAtOnceEndInOneOpenGate) {
  Shop shop;
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  const auto one = shop.home.begin(shop.engine->rebuild(shop.home, kScope, false));
  const auto two = shop.home.begin(shop.engine->rebuild(shop.home, kScope, false));
  shop.home.until([&] { return one->has_value() && two->has_value(); });
  EXPECT_TRUE(**one || **two);
  shop.advance(seconds{3});
  EXPECT_EQ(shop.reading().state, GateState::kOpen);
  EXPECT_EQ(shop.free(), 9);
  EXPECT_EQ(shop.superseded, 0);
  EXPECT_EQ(words(shop.take(1)), "holding");
  EXPECT_EQ(words(shop.take(2)), "granted 2");
}

// The rebuild that raises the epoch last may have begun before the scope was prepared anew.
TEST(Rebuild, OfAScopeThatIsPreparedAnewMeanwhileIsMadeForTheNewOne) {
  Shop shop({.quantity = 3});
  shop.prepare();
  shop.ledger->hold(Op::kRaiseEpoch);
  const Rebuilding before = begin_rebuild(shop);
  const auto anew = shop.home.begin(shop.engine->prepare(shop.home, shop.rules()));
  shop.quiet();
  ASSERT_EQ(shop.ledger->waiting(Op::kRaiseEpoch), 2U);
  shop.ledger->release_last(Op::kRaiseEpoch);
  shop.quiet();
  shop.ledger->release(Op::kRaiseEpoch);
  shop.home.until([&] { return before->has_value() && anew->has_value(); });
  shop.quiet();
  shop.scope = shop.engine->find(ScopeId{'s', 1});
  EXPECT_EQ(shop.scope->epoch(), shop.reading().epoch);
  EXPECT_EQ(words(shop.take(1)), "granted 1");
  shop.advance(seconds{3});
  EXPECT_EQ(shop.superseded, 0);
}

TEST(Rebuild, OfAnUnknownScopeIsNotFound) {
  Shop shop;
  const auto missing = shop.home.wait(shop.engine->rebuild(shop.home, ScopeId{'s', 7}, false));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, common::ErrorCode::kNotFound);
}

// I5. Take the second try out of Watch::run() and the scope answers busy for ever.
TEST(Rebuild, ThatFailsAtAnyStepIsTriedAgainUntilItEnds) {
  for (const Op op : {Op::kRaiseEpoch, Op::kSnapshot, Op::kRaiseMinEpoch}) {
    Shop shop({.quantity = 3});
    shop.prepare();
    ASSERT_EQ(words(shop.take(1)), "granted 1");
    shop.ledger->fail_next(op, 2);
    const Rebuilding rebuilt = begin_rebuild(shop);
    ASSERT_TRUE(rebuilt->has_value());
    EXPECT_EQ((*rebuilt)->error().code, common::ErrorCode::kIo);
    shop.advance(seconds{5});
    EXPECT_EQ(shop.reading().state, GateState::kOpen);
    EXPECT_EQ(words(shop.take(1)), "holding");
    EXPECT_EQ(words(shop.take(2)), "granted 2");
    EXPECT_EQ(shop.free(), 1);
    EXPECT_EQ(shop.superseded, 0) << "the epoch was raised by ourselves";
  }
}

TEST(Rebuild, ByHandAfterAFailedOneIsNotOvertakenByTheWatch) {
  Shop shop;
  shop.prepare();
  shop.ledger->fail_next(Op::kRaiseEpoch, 1);
  ASSERT_FALSE(**begin_rebuild(shop));
  const int before = shop.ledger->calls(Op::kRaiseEpoch);
  shop.ledger->hold(Op::kSnapshot);
  const Rebuilding rebuilt = begin_rebuild(shop);
  shop.advance(seconds{3});
  EXPECT_EQ(shop.ledger->calls(Op::kRaiseEpoch), before + 1);
  shop.ledger->release(Op::kSnapshot);
  shop.home.until([&] { return rebuilt->has_value(); });
  EXPECT_TRUE(**rebuilt);
}

TEST(Rebuild, WhoseCommitIsUnknownIsNotTakenForAnotherServer) {
  for (const Op op : {Op::kRaiseEpoch, Op::kRaiseMinEpoch}) {
    Shop shop({.quantity = 3});
    shop.prepare();
    ASSERT_EQ(words(shop.take(1)), "granted 1");
    shop.ledger->lose_answers(op, 1);
    const Rebuilding rebuilt = begin_rebuild(shop);
    ASSERT_TRUE(rebuilt->has_value());
    EXPECT_EQ((*rebuilt)->error().proof, common::Proof::kUnknown);
    shop.advance(seconds{5});
    EXPECT_EQ(shop.superseded, 0);
    EXPECT_EQ(words(shop.take(1)), "holding");
    EXPECT_EQ(words(shop.take(2)), "granted 2");
  }
}

// A1 of the promises: prepare() from a file that a former process left.
TEST(Restart, WithTheSameFileLosesNothing) {
  Shop shop;
  shop.prepare();
  const DeskAnswer one = shop.take(1, "key");
  const DeskAnswer two = shop.take(2);
  const DeskAnswer three = shop.take(3);
  shop.pay_row(grant_of(two));
  shop.end_row(grant_of(three).id, "PENDING", "CANCELED");
  shop.restart();
  EXPECT_EQ(shop.free(), 8);
  const DeskAnswer again = shop.take(1, "key");
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(one).id);
  EXPECT_EQ(std::get<Holding>(again).expires_at, grant_of(one).expires_at);
  EXPECT_EQ(words(shop.take(2)), "holding");
  EXPECT_EQ(words(shop.take(3)), "granted 3");
  EXPECT_EQ(words(shop.take(4)), "granted 4");
  EXPECT_EQ(shop.superseded, 0);
}

TEST(Restart, AUnitThatWasTakenAndNeverRecordedIsSoldAgain) {
  Shop shop({.quantity = 1});
  shop.prepare();
  take_only(shop, 1);
  EXPECT_EQ(words(shop.take(2)), "sold out, may come back");
  shop.restart();
  EXPECT_EQ(words(shop.take(2)), "granted 1");
}

TEST(Restart, AReturnThatWasNotDeliveredIsNotLostAndNotDoubled) {
  Shop shop({.quantity = 1});
  shop.prepare();
  const DeskAnswer one = shop.take(1);
  shop.ledger->hold(Op::kUndelivered);
  shop.write([&](db::Session& session) -> common::Result<common::Done> {
    const auto ended = end_grant(session, order_table(), grant_of(one).id, "PENDING", "CANCELED",
                                 "TEST", shop.clock.now());
    EXPECT_TRUE(ended && *ended);
    return common::Done{};
  });
  EXPECT_EQ(shop.number("SELECT count(*) FROM outbox"), 1);
  shop.restart();
  EXPECT_EQ(shop.free(), 1);
  EXPECT_EQ(words(shop.take(2)), "granted 1");
  shop.advance(seconds{3});
  EXPECT_EQ(shop.number("SELECT count(*) FROM outbox"), 0);
  EXPECT_EQ(shop.free(), 0);
  EXPECT_EQ(words(shop.take(2)), "holding");
  EXPECT_EQ(words(shop.take(3)), "sold out, may come back");
  EXPECT_EQ(shop.metric("engine_watch_misses_total"), 0);
}

TEST(Restart, HoldsThatEndedMeanwhileAreSoldAgain) {
  Shop shop({.quantity = 1});
  shop.prepare();
  ASSERT_EQ(words(shop.take(1)), "granted 1");
  shop.end();
  shop.clock.advance(seconds{60});
  shop.restart();
  shop.advance(seconds{1});
  EXPECT_EQ(words(shop.take(2)), "granted 1");
}

TEST(Restart, EachOneRaisesTheEpoch) {
  Shop shop;
  shop.prepare();
  const Epoch first = shop.scope->epoch();
  shop.restart();
  shop.restart();
  EXPECT_EQ(shop.scope->epoch(), Epoch{first.value() + 2});
}

TEST(Stop, EndsAlsoWhenARebuildWaitsForAWriterThatGaveUp) {
  Shop shop;
  shop.prepare();
  shop.ledger->fail_next(Op::kRecord, 1'000'000);
  const auto asked = shop.ask(1);
  shop.quiet();
  const Rebuilding rebuilt = begin_rebuild(shop);
  ASSERT_FALSE(rebuilt->has_value()) << "it drains";
  std::atomic<bool> stopped{false};
  std::thread other([&] {
    shop.engine->stop(milliseconds{1});
    stopped.store(true);
    shop.home.post([] {});
  });
  while (!stopped.load()) {
    shop.clock.advance(milliseconds{10});
    shop.home.run_ready();
    std::this_thread::yield();
  }
  other.join();
  shop.home.until([&] { return rebuilt->has_value(); });
  ASSERT_FALSE(**rebuilt);
  EXPECT_EQ((*rebuilt)->error().code, common::ErrorCode::kUnavailable);
  EXPECT_TRUE(std::holds_alternative<Busy>(**asked));
}

}  // namespace
}  // namespace doorbuster::engine::testing

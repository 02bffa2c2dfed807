#include "engine/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using common::Done;
using common::ErrorCode;
using common::Result;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ScopeId kScope{'s', 1};
constexpr AllotmentId kItem{'i', 1};
constexpr std::chrono::microseconds kTick{1};

GrantId id_of(int n) {
  GrantId id;
  id.bytes[0] = 1;
  id.bytes[14] = static_cast<std::uint8_t>(n >> 8);
  id.bytes[15] = static_cast<std::uint8_t>(n & 0xFF);
  return id;
}

/// The SQL ledger over a SQLite file of its own, its scope in epoch 1.
struct Books : Store {
  explicit Books(StoreOptions wanted = {}, std::int32_t lease_chunk = 0) : Store(wanted) {
    ledger = make_sql_ledger(*database, home, clock, *metrics, order_table());
    EXPECT_EQ(raise(lease_chunk), Epoch{1});
  }

  Epoch raise(std::int32_t lease_chunk = 0) {
    NewEpoch wanted{.rules = rules(), .gate = "local", .lease_chunk = lease_chunk, .reopens = true};
    const Result<Epoch> epoch = home.wait(ledger->raise_epoch(std::move(wanted)));
    EXPECT_TRUE(epoch);
    return *epoch;
  }
  Result<Epoch> raise_from(std::int64_t from, std::string memory = {}) {
    NewEpoch wanted{.rules = rules(),
                    .gate = "remote",
                    .memory = std::move(memory),
                    .from = Epoch{from},
                    .lease_chunk = 3};
    return home.wait(ledger->raise_epoch(std::move(wanted)));
  }
  void lease(std::int32_t number, std::int32_t units, AllotmentId allotment = kItem,
             ScopeId scope = kScope) {
    EXPECT_TRUE(home.wait(ledger->lease(scope, allotment, number, units)));
  }
  /// "item number: first-last"
  std::vector<std::string> leases() {
    const Result<Leases> all = home.wait(ledger->leases(kScope));
    EXPECT_TRUE(all);
    std::vector<std::string> list;
    for (const Lease& one : all->list) {
      list.push_back(fmt::format("{} {}: {}-{}", to_string(one.allotment), one.number,
                                 one.first.value(), one.last.value()));
    }
    return list;
  }
  Standing standing(std::vector<GrantId> ids) {
    const Result<Standing> standing = home.wait(ledger->standing(kScope, std::move(ids)));
    EXPECT_TRUE(standing);
    return *standing;
  }

  Grant grant(int id, std::int64_t member, std::int32_t slot) const {
    Grant one;
    one.id = id_of(id);
    one.allotment = kItem;
    one.scope = kScope;
    one.epoch = Epoch{1};
    one.member = MemberId{member};
    one.slot = Slot{slot};
    one.nth = Nth{1};
    one.slot_limit = options.quantity;
    one.per_member = options.per_member;
    one.amount = 1000;
    one.taken_at = clock.now();
    one.expires_at = clock.now() + options.hold;
    one.hold = options.hold;
    return one;
  }
  std::vector<RecordOutcome> record(std::vector<Grant> batch) {
    const Result<std::vector<RecordOutcome>> outcomes = home.wait(ledger->record(std::move(batch)));
    EXPECT_TRUE(outcomes) << outcomes.error().message;
    return *outcomes;
  }
  RecordOutcome record(const Grant& grant) { return record(std::vector{grant}).at(0); }
  LedgerReading read(std::vector<GrantId> ids = {}, std::int64_t applied = 0) {
    const Result<LedgerReading> reading =
        home.wait(ledger->read(kScope, std::move(ids), SequenceNumber{applied}));
    EXPECT_TRUE(reading);
    return *reading;
  }
  Undelivered undelivered(std::size_t limit = 100) {
    const Result<Undelivered> steps = home.wait(ledger->undelivered(kScope, limit));
    EXPECT_TRUE(steps);
    return *steps;
  }
  ShardSnapshot snapshot() {
    const Result<ShardSnapshot> rows = home.wait(ledger->snapshot(kScope));
    EXPECT_TRUE(rows);
    return *rows;
  }
  std::size_t expire(std::size_t limit = 100) {
    const Result<std::vector<ExpiredHold>> ended =
        home.wait(ledger->expire_due(clock.now(), limit));
    EXPECT_TRUE(ended);
    return ended->size();
  }
  bool end(int id, std::string_view from, std::string_view to) {
    bool ended = false;
    write([&](db::Session& session) -> Result<Done> {
      const Result<bool> done =
          end_grant(session, order_table(), id_of(id), from, to, "TEST", clock.now());
      if (!done) return common::fail(done.error());
      ended = *done;
      return Done{};
    });
    return ended;
  }

  std::vector<std::string> orders() const {
    return rows(
        "SELECT member || ' ' || state || ' ' || coalesce(slot, '-') || ' ' || "
        "coalesce(nth, '-') || ' ' || coalesce(reason, '-') FROM flash_sale_order ORDER BY id");
  }
  std::vector<std::string> history() const {
    return rows(
        "SELECT coalesce(from_state, '-') || '>' || to_state FROM flash_sale_order_history "
        "ORDER BY order_id, at, to_state <> 'PENDING'");
  }
  std::vector<std::string> outbox() const {
    return rows(
        "SELECT number || ' ' || kind || ' ' || member || ' ' || slot FROM outbox "
        "ORDER BY number");
  }
  std::int64_t sold(int item = 1) const {
    return number(fmt::format("SELECT sold FROM flash_sale_item WHERE id = {}", item));
  }
  std::int64_t dead_letters() const { return number("SELECT count(*) FROM dead_letter"); }

  StepExecutor home{clock};
  std::unique_ptr<Ledger> ledger;
};

TEST(LedgerContract, RecordsAGrantWithItsHistoryAndItsCount) {
  Books b;
  const RecordOutcome outcome = b.record(b.grant(1, 11, 4));
  EXPECT_EQ(outcome.kind, RecordKind::kRecorded);
  EXPECT_EQ(outcome.slot, Slot{4});
  EXPECT_EQ(outcome.nth, Nth{1});
  EXPECT_EQ(outcome.due_at, kStart + seconds{10});
  EXPECT_THAT(b.orders(), ElementsAre("11 PENDING 4 1 -"));
  EXPECT_THAT(b.history(), ElementsAre("->PENDING"));
  EXPECT_THAT(b.outbox(), IsEmpty());
  EXPECT_EQ(b.sold(), 1);
}

TEST(LedgerContract, OutcomesComeInTheOrderOfTheBatch) {
  Books b;
  const auto outcomes =
      b.record({b.grant(1, 11, 9), b.grant(2, 12, 3), b.grant(3, 13, 9), b.grant(4, 14, 1)});
  ASSERT_EQ(outcomes.size(), 4U);
  EXPECT_EQ(outcomes[0].slot, Slot{9});
  EXPECT_EQ(outcomes[1].slot, Slot{3});
  EXPECT_EQ(outcomes[2].kind, RecordKind::kSlotHeld) << "by the first of this very batch";
  EXPECT_EQ(outcomes[3].slot, Slot{1});
  EXPECT_EQ(b.sold(), 3);
}

TEST(LedgerContract, ADeadlineIsRecordingPlusHoldAndNeverBeforeThePromise) {
  Books b;
  Grant late = b.grant(1, 11, 1);
  Grant ahead = b.grant(2, 12, 2);
  ahead.expires_at += seconds{60};
  b.clock.advance(seconds{4});
  EXPECT_EQ(b.record(late).due_at, kStart + seconds{14}) << "the journal does not eat the time";
  EXPECT_EQ(b.record(ahead).due_at, kStart + seconds{70});
}

TEST(LedgerContract, TheSameGrantAgainIsTheSameRow) {
  Books b;
  const Grant grant = b.grant(1, 11, 4);
  b.record(grant);
  b.clock.advance(seconds{1});
  const RecordOutcome again = b.record(grant);
  EXPECT_EQ(again.kind, RecordKind::kSameHolds);
  EXPECT_EQ(again.slot, Slot{4});
  EXPECT_EQ(again.nth, Nth{1});
  EXPECT_EQ(again.due_at, kStart + seconds{10}) << "the first recording's deadline";
  const auto twice = b.record({b.grant(2, 12, 5), b.grant(2, 12, 5)});
  EXPECT_EQ(twice[0].kind, RecordKind::kRecorded);
  EXPECT_EQ(twice[1].kind, RecordKind::kSameHolds);
  EXPECT_EQ(b.sold(), 2);
  EXPECT_EQ(b.history().size(), 2U);
}

TEST(LedgerContract, ARowThatIsOverStaysOverAndNothingIsReturnedTwice) {
  // Schedule 5: redelivery of a grant that ended, when its slot is somebody else's.
  Books b;
  const Grant grant = b.grant(1, 11, 4);
  b.record(grant);
  ASSERT_TRUE(b.end(1, "PENDING", "CANCELED"));
  EXPECT_EQ(b.record(grant).kind, RecordKind::kSameTerminal);
  EXPECT_EQ(b.record(b.grant(2, 12, 4)).kind, RecordKind::kRecorded);
  EXPECT_EQ(b.record(grant).kind, RecordKind::kSameTerminal);
  EXPECT_THAT(b.orders(), ElementsAre("11 CANCELED 4 1 -", "12 PENDING 4 1 -"));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 11 4"));
  EXPECT_EQ(b.sold(), 1);
}

TEST(LedgerContract, ASamePaidRowHasNoDeadline) {
  Books b;
  const Grant grant = b.grant(1, 11, 4);
  b.record(grant);
  b.run("UPDATE flash_sale_order SET state = 'PAID'");
  const RecordOutcome again = b.record(grant);
  EXPECT_EQ(again.kind, RecordKind::kSameHolds);
  EXPECT_EQ(again.due_at, kNever);
}

TEST(LedgerContract, AnOlderEpochIsFencedAndReturnsNothing) {
  // Schedules 9 and 16.
  Books b;
  const Grant before = b.grant(1, 11, 1);
  b.record(before);
  ASSERT_EQ(b.raise(), Epoch{2});
  EXPECT_EQ(b.record(b.grant(2, 12, 2)).kind, RecordKind::kRecorded)
      << "raised, but the drain is not over";
  ASSERT_TRUE(b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{2})));
  const RecordOutcome fenced = b.record(b.grant(3, 13, 3));
  EXPECT_EQ(fenced.kind, RecordKind::kFenced);
  EXPECT_EQ(b.record(before).kind, RecordKind::kSameHolds) << "a row that is there is not fenced";
  EXPECT_THAT(b.orders(),
              ElementsAre("11 PENDING 1 1 -", "12 PENDING 2 1 -", "13 REJECTED - - FENCED"));
  EXPECT_THAT(b.outbox(), IsEmpty()) << "its slot may be somebody else's by now";
  EXPECT_EQ(b.record(b.grant(3, 13, 3)).kind, RecordKind::kSameTerminal);
  Grant current = b.grant(4, 14, 3);
  current.epoch = Epoch{2};
  EXPECT_EQ(b.record(current).kind, RecordKind::kRecorded);
  EXPECT_EQ(b.sold(), 3);
}

TEST(LedgerContract, ASlotOfAnotherGrantIsLeftAlone) {
  Books b;
  b.record(b.grant(1, 11, 1));
  const RecordOutcome held = b.record(b.grant(2, 12, 1));
  EXPECT_EQ(held.kind, RecordKind::kSlotHeld);
  EXPECT_THAT(b.orders(), ElementsAre("11 PENDING 1 1 -")) << "no row until it has a slot";
  Grant other = b.grant(2, 12, 2);
  EXPECT_EQ(b.record(other).kind, RecordKind::kRecorded);
}

TEST(LedgerContract, AMembersSecondGrantIsMergedIntoTheFirst) {
  Books b;
  b.record(b.grant(1, 11, 1));
  const RecordOutcome merged = b.record(b.grant(2, 11, 2));
  EXPECT_EQ(merged.kind, RecordKind::kMerged);
  EXPECT_EQ(merged.other, id_of(1));
  EXPECT_THAT(b.orders(), ElementsAre("11 PENDING 1 1 -", "11 REJECTED - - MERGED"));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 11 2", "2 LOAD 11 2")) << "in this order (S3)";
  EXPECT_EQ(b.sold(), 1);

  const Undelivered steps = b.undelivered();
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_EQ(steps.epoch, Epoch{1});
  EXPECT_EQ(steps.steps[0].kind, SequenceKind::kReturn);
  EXPECT_EQ(steps.steps[0].grant, id_of(2));
  EXPECT_EQ(steps.steps[0].slot, Slot{2});
  const SequenceEntry& load = steps.steps[1];
  EXPECT_EQ(load.kind, SequenceKind::kLoad);
  EXPECT_TRUE(load.holds);
  EXPECT_EQ(load.grant, id_of(1));
  EXPECT_EQ(load.slot, Slot{1}) << "the row's, not the merged grant's";
  EXPECT_EQ(load.nth, Nth{1});
  EXPECT_EQ(load.epoch, Epoch{1});
  EXPECT_EQ(load.due_at, kStart + seconds{10});

  const RecordOutcome again = b.record(b.grant(2, 11, 2));
  EXPECT_EQ(again.kind, RecordKind::kSameTerminal);
  EXPECT_EQ(again.other, id_of(1)) << "whoever asks late is still led to the grant that counts";
  EXPECT_EQ(b.outbox().size(), 2U);
}

TEST(LedgerContract, ALoadNamesTheItemOfTheGrantThatCounts) {
  Books b({.items = 2});
  b.record(b.grant(1, 11, 3));
  Grant other = b.grant(2, 11, 1);
  other.allotment = AllotmentId{'i', 2};
  EXPECT_EQ(b.record(other).kind, RecordKind::kMerged) << "one unit a member in the whole scope";
  const Undelivered steps = b.undelivered();
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_EQ(steps.steps[0].allotment, (AllotmentId{'i', 2}));
  EXPECT_EQ(steps.steps[1].allotment, kItem);
  EXPECT_EQ(steps.steps[1].slot, Slot{3});
}

TEST(LedgerContract, ALoadWhoseGrantEndedMeanwhileOnlyAdvances) {
  Books b;
  b.record(b.grant(1, 11, 1));
  b.record(b.grant(2, 11, 2));
  ASSERT_TRUE(b.end(1, "PENDING", "CANCELED"));
  const Undelivered steps = b.undelivered();
  ASSERT_EQ(steps.steps.size(), 3U);
  EXPECT_EQ(steps.steps[1].kind, SequenceKind::kLoad);
  EXPECT_FALSE(steps.steps[1].holds);
  EXPECT_EQ(steps.steps[2].kind, SequenceKind::kReturn);
}

TEST(LedgerContract, AKeyIsUsedOnceByItsMemberAlsoByAnOrderThatIsOver) {
  Books b({.per_member = 3});
  Grant one = b.grant(1, 11, 1);
  one.key = "a";
  ASSERT_EQ(b.record(one).kind, RecordKind::kRecorded);
  Grant two = b.grant(2, 11, 2);
  two.key = "a";
  two.nth = Nth{2};
  EXPECT_EQ(b.record(two).kind, RecordKind::kMerged);
  ASSERT_TRUE(b.end(1, "PENDING", "CANCELED"));
  Grant three = b.grant(3, 11, 3);
  three.key = "a";
  const RecordOutcome dead = b.record(three);
  EXPECT_EQ(dead.kind, RecordKind::kMerged);
  EXPECT_EQ(dead.other, id_of(1));
  Grant others = b.grant(4, 12, 4);
  others.key = "a";
  EXPECT_EQ(b.record(others).kind, RecordKind::kRecorded) << "another member's key";
  Grant free = b.grant(5, 11, 5);
  free.key = "b";
  EXPECT_EQ(b.record(free).kind, RecordKind::kRecorded);
}

TEST(LedgerContract, AKeyThatOnlyRejectedRowsCarryMayBeUsedAgain) {
  Books b;
  ASSERT_EQ(b.raise(), Epoch{2});
  ASSERT_TRUE(b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{2})));
  Grant fenced = b.grant(1, 11, 1);
  fenced.key = "a";
  ASSERT_EQ(b.record(fenced).kind, RecordKind::kFenced);
  Grant again = b.grant(2, 11, 1);
  again.key = "a";
  again.epoch = Epoch{2};
  EXPECT_EQ(b.record(again).kind, RecordKind::kRecorded);
}

TEST(LedgerContract, AKeyOfAnotherAllotmentIsAnotherKey) {
  Books b({.per_member = 2, .items = 2});
  Grant one = b.grant(1, 11, 1);
  one.key = "a";
  b.record(one);
  Grant two = b.grant(2, 11, 1);
  two.allotment = {'i', 2};
  two.key = "a";
  two.nth = Nth{2};
  EXPECT_EQ(b.record(two).kind, RecordKind::kRecorded);
}

TEST(LedgerContract, ATakenPlaceAmongTheMembersUnitsIsMoved) {
  Books b({.per_member = 3});
  b.record(b.grant(1, 11, 1));
  Grant two = b.grant(2, 11, 2);
  two.key = "b";
  two.nth = Nth{1};
  const RecordOutcome moved = b.record(two);
  EXPECT_EQ(moved.kind, RecordKind::kRecorded);
  EXPECT_EQ(moved.nth, Nth{2});
  Grant three = b.grant(3, 11, 3);
  three.nth = Nth{2};
  EXPECT_EQ(b.record(three).nth, Nth{3});
  Grant four = b.grant(4, 11, 4);
  four.nth = Nth{2};
  const RecordOutcome full = b.record(four);
  EXPECT_EQ(full.kind, RecordKind::kMerged) << "none of 1..3 is free";
  EXPECT_EQ(full.other, id_of(3));
  ASSERT_TRUE(b.end(2, "PENDING", "CANCELED"));
  Grant five = b.grant(5, 11, 5);
  five.nth = Nth{3};
  EXPECT_EQ(b.record(five).nth, Nth{2}) << "the lowest free one";
  EXPECT_EQ(b.sold(), 3);
}

TEST(LedgerContract, ABrokenRuleIsARejectedRowADeadLetterAndAReturn) {
  struct Case {
    const char* what;
    std::function<void(Grant&)> wrong;
  };
  const Case cases[] = {
      {"a limit that is not the allotment's", [](Grant& g) { g.slot_limit = 11; }},
      {"a member's limit that is not the allotment's", [](Grant& g) { g.per_member = 2; }},
      {"a slot outside", [](Grant& g) { g.slot = Slot{11}; }},
      {"slot 0", [](Grant& g) { g.slot = Slot{0}; }},
      {"a place outside", [](Grant& g) { g.nth = Nth{2}; }},
  };
  for (const Case& one : cases) {
    Books b;
    Grant grant = b.grant(1, 11, 5);
    one.wrong(grant);
    const auto outcomes = b.record({grant, b.grant(2, 12, 6)});
    EXPECT_EQ(outcomes[0].kind, RecordKind::kRuleBroken) << one.what;
    EXPECT_EQ(outcomes[0].reason, "RULE_BROKEN");
    EXPECT_EQ(outcomes[1].kind, RecordKind::kRecorded) << "the rest of the batch is not harmed";
    EXPECT_THAT(b.orders(), ElementsAre("11 REJECTED - - RULE_BROKEN", "12 PENDING 6 1 -"))
        << one.what;
    EXPECT_THAT(b.outbox(), ElementsAre(fmt::format("1 RETURN 11 {}", grant.slot.value())));
    EXPECT_EQ(b.dead_letters(), 1) << one.what;
    EXPECT_EQ(b.sold(), 1);
    // S1: whatever comes later under that id changes nothing.
    EXPECT_EQ(b.record(grant).kind, RecordKind::kSameTerminal) << one.what;
    EXPECT_EQ(b.dead_letters(), 1) << one.what;
    EXPECT_EQ(b.outbox().size(), 1U);
  }
}

TEST(LedgerContract, ABrokenGrantDoesNotFreeASlotThatAnotherRowHolds) {
  Books b;
  b.record(b.grant(1, 11, 5));
  Grant broken = b.grant(2, 12, 5);
  broken.nth = Nth{2};
  EXPECT_EQ(b.record(broken).kind, RecordKind::kRuleBroken);
  EXPECT_THAT(b.outbox(), ElementsAre("1 DEPARTURE 12 5")) << "the entry goes, the slot does not";
}

TEST(LedgerContract, TheSoldCounterFollowsTheRowsInTheSameTransactions) {
  Books b({.items = 2});
  Grant other = b.grant(3, 13, 1);
  other.allotment = {'i', 2};
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2), other});
  EXPECT_EQ(b.sold(1), 2);
  EXPECT_EQ(b.sold(2), 1);
  ASSERT_TRUE(b.end(1, "PENDING", "CANCELED"));
  EXPECT_FALSE(b.end(1, "PENDING", "CANCELED")) << "once only (I8)";
  EXPECT_EQ(b.sold(1), 1);
  const LedgerReading reading = b.read();
  EXPECT_EQ(reading.allotments.at(0).sold, 1);
  EXPECT_EQ(reading.allotments.at(0).keep_slot, 1);
  EXPECT_EQ(reading.allotments.at(1).sold, 1);
}

TEST(LedgerContract, ACounterThatRefusesRaisesAnAlarmAndRejectsNothing) {
  Books b({.quantity = 3});
  b.record(b.grant(1, 11, 1));
  b.run("UPDATE flash_sale_item SET sold = 3");
  const auto alarms = [&] { return b.metrics->counter("engine_count_alarms_total", "").value(); };
  ASSERT_EQ(alarms(), 0);
  EXPECT_EQ(b.record(b.grant(2, 12, 2)).kind, RecordKind::kRecorded);
  EXPECT_EQ(alarms(), 1);
  EXPECT_EQ(b.sold(), 3);
  EXPECT_EQ(b.read().allotments.at(0).keep_slot, 2);
  ASSERT_TRUE(b.home.wait(b.ledger->recount(kScope)));
  EXPECT_EQ(b.sold(), 2);
  EXPECT_EQ(b.record(b.grant(3, 13, 3)).kind, RecordKind::kRecorded);
  EXPECT_EQ(b.sold(), 3);
  EXPECT_EQ(alarms(), 1);
}

TEST(LedgerContract, HoldsExpireFromTheInstantOfTheirDeadlineOn) {
  Books b;
  b.record(b.grant(1, 11, 1));
  b.clock.advance(seconds{10} - kTick);
  EXPECT_EQ(b.expire(), 0U);
  EXPECT_THAT(b.orders(), ElementsAre("11 PENDING 1 1 -"));
  b.clock.advance(kTick);
  EXPECT_EQ(b.expire(), 1U);
  EXPECT_THAT(b.orders(), ElementsAre("11 EXPIRED 1 1 -"));
  EXPECT_THAT(b.history(), ElementsAre("->PENDING", "PENDING>EXPIRED"));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 11 1"));
  EXPECT_EQ(b.sold(), 0);
  EXPECT_EQ(b.expire(), 0U) << "once only";
  b.clock.advance(seconds{100});
  EXPECT_EQ(b.expire(), 0U);
  EXPECT_EQ(b.outbox().size(), 1U);
}

TEST(LedgerContract, ExpiryEndsAtMostTheLimitAndNamesWhatItEnded) {
  Books b;
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2), b.grant(3, 13, 3)});
  b.clock.advance(seconds{10});
  EXPECT_EQ(b.expire(2), 2U);
  EXPECT_EQ(b.expire(2), 1U);
  EXPECT_EQ(b.expire(2), 0U);
}

TEST(LedgerContract, PaidOrdersAndSettledScopesDoNotExpire) {
  Books b;
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2)});
  b.run("UPDATE flash_sale_order SET state = 'PAID' WHERE member = 11");
  b.run("UPDATE engine_shard SET state = 'SETTLED'");
  b.clock.advance(seconds{10});
  EXPECT_EQ(b.expire(), 0U);
  ASSERT_EQ(b.raise(), Epoch{2}) << "open again";
  EXPECT_EQ(b.expire(), 1U);
  EXPECT_THAT(b.orders(), ElementsAre("11 PAID 1 1 -", "12 EXPIRED 2 1 -"));
}

TEST(LedgerContract, SettlesOnlyAsItWasReadAndFencesWhatStillArrives) {
  Books b;
  const auto close = [&](std::int64_t epoch, std::int64_t number) {
    return b.home.wait(b.ledger->close(kScope, Epoch{epoch}, SequenceNumber{number}));
  };
  const auto settle = [&] { return b.home.wait(b.ledger->settle(kScope)); };
  b.record(b.grant(1, 11, 1));
  ASSERT_FALSE(close(1, 0)) << "a hold is open";
  EXPECT_EQ(close(1, 0).error().code, common::ErrorCode::kStaleEpoch);
  b.clock.advance(seconds{10});
  EXPECT_EQ(b.expire(), 1U);
  EXPECT_FALSE(close(1, 0)) << "a return was written since";
  EXPECT_FALSE(close(2, 1)) << "another epoch";
  EXPECT_FALSE(settle()) << "not closed yet";
  ASSERT_TRUE(close(1, 1));
  EXPECT_FALSE(close(2, 1)) << "it is closing already";
  EXPECT_EQ(b.read().epoch, Epoch{2}) << "so that no grant of before passes the check";
  EXPECT_EQ(b.read().state, ShardState::kClosing);
  EXPECT_FALSE(b.raise_from(2)) << "a rebuild that comes too late";
  // What was in the journal is still recorded, and has its time.
  EXPECT_EQ(b.record(b.grant(3, 13, 1)).kind, RecordKind::kRecorded);
  EXPECT_FALSE(settle()) << "its hold is open";
  b.run("UPDATE flash_sale_order SET state = 'PAID' WHERE member = 13");
  ASSERT_TRUE(settle());
  EXPECT_EQ(b.read().state, ShardState::kSettled);
  // Taken before and late: no hold may come to life in a settled scope, where nobody would end it.
  const auto late = b.record(b.grant(2, 12, 2));
  EXPECT_EQ(late.kind, RecordKind::kFenced);
  EXPECT_THAT(b.orders(), ElementsAre("11 EXPIRED 1 1 -", ::testing::StartsWith("12 REJECTED"),
                                      "13 PAID 1 1 -"));
}

// Found by simulation: the second grant was taken while the first one waited in the journal of a
// gate that was lost, so the gate knows the second one only. Take load_others() out and its member
// is unknown there once that one is ended.
TEST(LedgerContract, AnAbandonedGrantWhoseMemberHoldsAnotherHasThatOneLoadedBehindItsReturn) {
  Books b;
  b.record(b.grant(1, 11, 1));
  const Grant second = b.grant(2, 11, 2);
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({second.id})));
  ASSERT_TRUE(b.home.wait(b.ledger->finish_reclaim({second})));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 11 2", "2 LOAD 11 2"));
  const auto steps = b.home.wait(b.ledger->undelivered(kScope, 10));
  ASSERT_TRUE(steps && steps->steps.size() == 2);
  EXPECT_EQ(steps->steps[1].grant, id_of(1));
}

TEST(LedgerContract, AnOpenPaymentHoldsExpiryBackUntilItsMaximumAndNoLonger) {
  Books b;
  b.record(b.grant(1, 11, 1));
  b.run(
      fmt::format("UPDATE flash_sale_order SET held_back_by = x'00112233445566778899aabbccddeeff', "
                  "held_back_until = {}",
                  common::to_micros(kStart + seconds{30})));
  b.clock.advance(seconds{10});
  EXPECT_EQ(b.expire(), 0U);
  b.clock.advance(seconds{20} - kTick);
  EXPECT_EQ(b.expire(), 0U);
  b.clock.advance(kTick);
  EXPECT_EQ(b.expire(), 1U);
  EXPECT_EQ(b.number("SELECT count(*) FROM flash_sale_order WHERE held_back_by IS NOT NULL"), 0);
}

TEST(LedgerContract, AReleasedPaymentLetsADueHoldExpireAtOnce) {
  Books b;
  b.record(b.grant(1, 11, 1));
  b.run(
      fmt::format("UPDATE flash_sale_order SET held_back_by = x'00112233445566778899aabbccddeeff', "
                  "held_back_until = {}",
                  common::to_micros(kStart + seconds{30})));
  b.clock.advance(seconds{15});
  ASSERT_EQ(b.expire(), 0U);
  b.run("UPDATE flash_sale_order SET held_back_by = NULL, held_back_until = NULL");
  EXPECT_EQ(b.expire(), 1U);
}

TEST(LedgerContract, ReclaimingAGrantWithoutARowRejectsItAndReturnsItsSlot) {
  Books b;
  const Grant grant = b.grant(1, 11, 4);
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({grant.id})));
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({grant.id}))) << "anyone may repeat it";
  EXPECT_EQ(b.number("SELECT count(*) FROM reclaim_mark"), 1);
  auto outcomes = b.home.wait(b.ledger->finish_reclaim({grant}));
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->at(0).kind, RecordKind::kSameTerminal);
  EXPECT_EQ(b.number("SELECT count(*) FROM reclaim_mark"), 0);
  EXPECT_THAT(b.orders(), ElementsAre("11 REJECTED - - ABANDONED"));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 11 4"));
  // Schedule 4: its writer was only paused.
  EXPECT_EQ(b.record(grant).kind, RecordKind::kSameTerminal);
  outcomes = b.home.wait(b.ledger->finish_reclaim({grant}));
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->at(0).kind, RecordKind::kSameTerminal);
  EXPECT_EQ(b.outbox().size(), 1U);
  EXPECT_EQ(b.sold(), 0);
}

TEST(LedgerContract, ReclaimingAGrantThatHasARowConfirmsIt) {
  Books b;
  const Grant grant = b.grant(1, 11, 4);
  b.record(grant);
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({grant.id})));
  const auto outcomes = b.home.wait(b.ledger->finish_reclaim({grant}));
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->at(0).kind, RecordKind::kSameHolds);
  EXPECT_EQ(outcomes->at(0).slot, Slot{4});
  EXPECT_EQ(outcomes->at(0).due_at, kStart + seconds{10});
  EXPECT_EQ(b.number("SELECT count(*) FROM reclaim_mark"), 0);
  EXPECT_THAT(b.outbox(), IsEmpty());
}

TEST(LedgerContract, ReclaimingAGrantOfAnOlderEpochReturnsNoSlot) {
  // Schedule 9: the slot went to somebody else in between.
  Books b;
  const Grant old = b.grant(1, 11, 4);
  ASSERT_EQ(b.raise(), Epoch{2});
  ASSERT_TRUE(b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{2})));
  const auto outcomes = b.home.wait(b.ledger->finish_reclaim({old}));
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->at(0).kind, RecordKind::kSameTerminal);
  EXPECT_THAT(b.outbox(), IsEmpty());
}

TEST(LedgerContract, ReclaimingAGrantWhoseSlotAnotherRowHoldsFreesNothing) {
  Books b;
  b.record(b.grant(1, 11, 4));
  const auto outcomes = b.home.wait(b.ledger->finish_reclaim({b.grant(2, 12, 4)}));
  ASSERT_TRUE(outcomes);
  EXPECT_EQ(outcomes->at(0).kind, RecordKind::kSameTerminal);
  EXPECT_THAT(b.outbox(), ElementsAre("1 DEPARTURE 12 4"));
}

TEST(LedgerContract, ASnapshotHasTheRowsThatKeepASlotAndTheNumbersOfTheSameMoment) {
  Books b({.items = 2});
  Grant one = b.grant(1, 11, 1);
  one.key = "k";
  b.record({one, b.grant(2, 12, 2), b.grant(3, 13, 3)});
  b.run("UPDATE flash_sale_order SET state = 'PAID' WHERE member = 12");
  ASSERT_TRUE(b.end(3, "PENDING", "CANCELED"));
  const ShardSnapshot snapshot = b.snapshot();
  EXPECT_EQ(snapshot.epoch, Epoch{1});
  EXPECT_EQ(snapshot.min_epoch, Epoch{1});
  EXPECT_EQ(snapshot.last_number, SequenceNumber{1});
  ASSERT_EQ(snapshot.allotments.size(), 2U);
  EXPECT_EQ(snapshot.allotments[0].id, kItem);
  EXPECT_EQ(snapshot.allotments[0].quantity, 10);
  EXPECT_EQ(snapshot.allotments[0].leased_to, 10);
  ASSERT_EQ(snapshot.rows.size(), 2U);
  const bool first = snapshot.rows[0].member == MemberId{11};
  const HeldRow& pending = snapshot.rows[first ? 0 : 1];
  const HeldRow& paid = snapshot.rows[first ? 1 : 0];
  EXPECT_EQ(pending.id, id_of(1));
  EXPECT_EQ(pending.key, "k");
  EXPECT_EQ(pending.slot, Slot{1});
  EXPECT_EQ(pending.epoch, Epoch{1});
  EXPECT_EQ(pending.expires_at, kStart + seconds{10});
  EXPECT_EQ(pending.due_at, kStart + seconds{10});
  EXPECT_EQ(paid.member, MemberId{12});
  EXPECT_EQ(paid.due_at, kNever);
}

TEST(LedgerContract, StepsStayUndeliveredInOrderUntilTheGateHasThem) {
  Books b;
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2), b.grant(3, 13, 3)});
  for (const int id : {2, 1, 3}) ASSERT_TRUE(b.end(id, "PENDING", "CANCELED"));
  EXPECT_THAT(b.outbox(), ElementsAre("1 RETURN 12 2", "2 RETURN 11 1", "3 RETURN 13 3"));
  EXPECT_EQ(b.undelivered(2).steps.size(), 2U);
  EXPECT_EQ(b.undelivered(2).steps[0].number, SequenceNumber{1});
  EXPECT_EQ(b.read().allotments.at(0).undelivered, 3);
  ASSERT_TRUE(b.home.wait(b.ledger->delivered(kScope, SequenceNumber{2})));
  ASSERT_TRUE(b.home.wait(b.ledger->delivered(kScope, SequenceNumber{1}))) << "late and harmless";
  EXPECT_THAT(b.outbox(), ElementsAre("3 RETURN 13 3"));
  EXPECT_EQ(b.read().allotments.at(0).undelivered, 1);
  EXPECT_EQ(b.read().last_number, SequenceNumber{3});
  ASSERT_TRUE(b.home.wait(b.ledger->delivered(kScope, SequenceNumber{3})));
  EXPECT_THAT(b.undelivered().steps, IsEmpty());
}

TEST(LedgerContract, StepsCarryTheEpochOfTheirOwnReading) {
  // Schedule 31.
  Books b;
  b.record(b.grant(1, 11, 1));
  ASSERT_TRUE(b.end(1, "PENDING", "CANCELED"));
  EXPECT_EQ(b.undelivered().epoch, Epoch{1});
  ASSERT_EQ(b.raise(), Epoch{2});
  EXPECT_EQ(b.undelivered().epoch, Epoch{2});
}

TEST(LedgerContract, AReadingCountsHoldsAndTellsOfEachIdThatIsAskedFor) {
  Books b;
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2), b.grant(3, 13, 3)});
  b.run("UPDATE flash_sale_order SET state = 'PAID' WHERE member = 12");
  ASSERT_TRUE(b.end(3, "PENDING", "CANCELED"));
  const LedgerReading reading = b.read({id_of(3), id_of(9), id_of(1), id_of(2)});
  EXPECT_THAT(reading.asked, ElementsAre(RowState::kTerminal, RowState::kNone, RowState::kHolds,
                                         RowState::kHolds));
  EXPECT_EQ(reading.epoch, Epoch{1});
  ASSERT_EQ(reading.allotments.size(), 1U);
  EXPECT_EQ(reading.allotments[0].keep_slot, 2);
  EXPECT_EQ(reading.allotments[0].open_holds, 1);
  EXPECT_EQ(reading.allotments[0].undelivered, 1);
  EXPECT_EQ(reading.allotments[0].leased_to, 10);
}

TEST(LedgerContract, AReadingCountsOnlyReturnsThatTheGateHasNotApplied) {
  Books b({.items = 2});
  Grant other = b.grant(4, 14, 1);
  other.allotment = {'i', 2};
  b.record({b.grant(1, 11, 1), b.grant(2, 12, 2), other});
  ASSERT_EQ(b.record(b.grant(3, 11, 3)).kind, RecordKind::kMerged);
  ASSERT_TRUE(b.end(4, "PENDING", "CANCELED"));
  ASSERT_TRUE(b.end(2, "PENDING", "CANCELED"));
  ASSERT_THAT(b.outbox(),
              ElementsAre("1 RETURN 11 3", "2 LOAD 11 3", "3 RETURN 14 1", "4 RETURN 12 2"));
  const auto undelivered = [&](std::int64_t applied) {
    const LedgerReading reading = b.read({}, applied);
    return std::pair(reading.allotments.at(0).undelivered, reading.allotments.at(1).undelivered);
  };
  EXPECT_EQ(undelivered(0), std::pair(2, 1));
  EXPECT_EQ(undelivered(1), std::pair(1, 1));
  EXPECT_EQ(undelivered(2), std::pair(1, 1)) << "a load brings no unit";
  EXPECT_EQ(undelivered(3), std::pair(1, 0));
  EXPECT_EQ(undelivered(4), std::pair(0, 0)) << "all of them are still in the outbox";
  EXPECT_EQ(b.read({}, 4).last_number, SequenceNumber{4});
}

// S4. Take the WHERE out of the raising and two nodes that see one loss rebuild twice.
TEST(LedgerContract, AnEpochIsRaisedFromTheOneThatWasReadOrNotAtAll) {
  Books b;
  const auto shard = [&] {
    return b.rows(
        "SELECT epoch || ' ' || min_epoch || ' ' || gate || ' ' || memory || ' ' || state "
        "FROM engine_shard");
  };
  ASSERT_EQ(b.raise_from(1, "run7"), Epoch{2});
  ASSERT_THAT(shard(), ElementsAre("2 1 remote run7 OPEN"));
  for (const std::int64_t from : {1, 3}) {
    const Result<Epoch> stale = b.raise_from(from, "run8");
    ASSERT_FALSE(stale) << from;
    EXPECT_EQ(stale.error().code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(stale.error().proof, common::Proof::kDidNotHappen);
    EXPECT_THAT(shard(), ElementsAre("2 1 remote run7 OPEN")) << "nothing has changed";
  }
  EXPECT_EQ(b.raise_from(2, "run8"), Epoch{3});
  EXPECT_EQ(b.raise(), Epoch{4}) << "without one, from whatever is there";
}

TEST(LedgerContract, ARaisingThatComesTooLateDoesNotOpenASettledScope) {
  Books b;
  ASSERT_TRUE(b.home.wait(b.ledger->close(kScope, Epoch{1}, SequenceNumber{0})));
  ASSERT_TRUE(b.home.wait(b.ledger->settle(kScope)));
  EXPECT_FALSE(b.raise_from(1));
  EXPECT_FALSE(b.raise_from(2));
  NewEpoch by_hand{.rules = b.rules(), .gate = "local"};
  EXPECT_FALSE(b.home.wait(b.ledger->raise_epoch(std::move(by_hand))));
  EXPECT_THAT(b.rows("SELECT state FROM engine_shard"), ElementsAre("SETTLED"));
}

TEST(LedgerContract, AnEpochIsKeptWithTheMemoryThatItWasLoadedInto) {
  Books b;
  EXPECT_EQ(b.read().memory, "") << "a gate in this process";
  ASSERT_EQ(b.raise_from(1, "run7"), Epoch{2});
  EXPECT_EQ(b.read().memory, "run7");
  EXPECT_EQ(b.read().epoch, Epoch{2});
  ASSERT_EQ(b.raise_from(2, "run8"), Epoch{3});
  EXPECT_EQ(b.read().memory, "run8");
}

TEST(LedgerContract, TheFirstLeaseIsOneChunkAndStaysAsItIs) {
  Books b({.quantity = 10, .items = 2}, 4);
  EXPECT_THAT(b.leases(), ElementsAre("i1 1: 1-4", "i2 1: 1-4"));
  EXPECT_EQ(b.snapshot().allotments.at(0).leased_to, 4);
  EXPECT_EQ(b.snapshot().allotments.at(0).lease_number, 1);
  EXPECT_EQ(b.read().allotments.at(1).leased_to, 4);
  EXPECT_EQ(b.read().allotments.at(1).lease_number, 1);
  for (const std::int32_t chunk : {4, 2, 9}) b.raise(chunk);
  EXPECT_THAT(b.leases(), ElementsAre("i1 1: 1-4", "i2 1: 1-4"));
}

TEST(LedgerContract, AFirstLeaseIsNeverMoreThanTheQuantity) {
  for (const std::int32_t chunk : {10, 11, 1000}) {
    Books b({.quantity = 10}, chunk);
    EXPECT_THAT(b.leases(), ElementsAre("i1 1: 1-10")) << chunk;
  }
  Books one({.quantity = 1}, 1);
  EXPECT_THAT(one.leases(), ElementsAre("i1 1: 1-1"));
}

TEST(LedgerContract, WithoutChunksTheLeaseIsTheWholeQuantityAlsoWhenThatChanges) {
  Books b({.quantity = 10});
  EXPECT_THAT(b.leases(), ElementsAre("i1 1: 1-10"));
  for (const std::int32_t quantity : {7, 12}) {
    b.options.quantity = quantity;
    b.run(fmt::format("UPDATE flash_sale_item SET quantity = {}", quantity));
    b.raise();
    EXPECT_THAT(b.leases(), ElementsAre(fmt::format("i1 1: 1-{}", quantity)));
  }
}

TEST(LedgerContract, LeasesFollowEachOtherWithoutAGapUpToTheQuantity) {
  Books b({.quantity = 10, .items = 2}, 4);
  b.lease(2, 3);
  b.lease(3, 1);
  EXPECT_THAT(b.leases(), ElementsAre("i1 1: 1-4", "i1 2: 5-7", "i1 3: 8-8", "i2 1: 1-4"));
  EXPECT_EQ(b.read().allotments.at(0).leased_to, 8);
  EXPECT_EQ(b.snapshot().allotments.at(0).lease_number, 3);
  b.lease(4, 5);
  EXPECT_THAT(b.leases(),
              ElementsAre("i1 1: 1-4", "i1 2: 5-7", "i1 3: 8-8", "i1 4: 9-10", "i2 1: 1-4"));
  b.lease(5, 1);
  EXPECT_EQ(b.leases().size(), 5U) << "all of it is leased";
  EXPECT_EQ(b.read().allotments.at(0).leased_to, 10);
  EXPECT_EQ(b.read().allotments.at(1).leased_to, 4) << "each allotment has its own";
  b.lease(2, 100, {'i', 2});
  EXPECT_EQ(b.leases().back(), "i2 2: 5-10");
}

TEST(LedgerContract, ALeaseThatIsThereOrIsNotTheNextOneChangesNothing) {
  Books b({.quantity = 10}, 4);
  b.lease(2, 3);
  const std::vector<std::string> before = b.leases();
  for (const std::int32_t units : {3, 1, 6}) b.lease(2, units);
  b.lease(1, 2);
  b.lease(4, 1);  // a gap in the numbers
  b.lease(0, 1);
  b.lease(3, 1, {'i', 9});
  b.lease(3, 1, kItem, {'s', 2});
  EXPECT_EQ(b.leases(), before);
  b.lease(3, 1);
  EXPECT_EQ(b.leases().back(), "i1 3: 8-8");
}

TEST(LedgerContract, LeasesCarryTheEpochOfTheirOwnReading) {
  Books b({}, 4);
  EXPECT_EQ(b.home.wait(b.ledger->leases(kScope))->epoch, Epoch{1});
  ASSERT_EQ(b.raise(4), Epoch{2});
  EXPECT_EQ(b.home.wait(b.ledger->leases(kScope))->epoch, Epoch{2});
  const auto unknown = b.home.wait(b.ledger->leases(ScopeId{'s', 99}));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
}

TEST(LedgerContract, StandingTellsTheEpochInForceAndWhichIdsAreMarked) {
  Books b;
  b.record(b.grant(1, 11, 1));
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({id_of(2), id_of(4)})));
  const Standing standing = b.standing({id_of(2), id_of(1), id_of(9), id_of(4)});
  EXPECT_EQ(standing.epoch, Epoch{1});
  EXPECT_THAT(standing.marked, ElementsAre(true, false, false, true))
      << "one that holds and one that nobody knows are not";
  ASSERT_EQ(b.raise(), Epoch{2});
  EXPECT_EQ(b.standing({}).epoch, Epoch{2});
  EXPECT_THAT(b.standing({}).marked, IsEmpty());
  const auto unknown = b.home.wait(b.ledger->standing(ScopeId{'s', 99}, {}));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
}

TEST(LedgerContract, AFinishedReclaimIsSeenByItsRowWhenItsMarkIsGone) {
  // Schedule 8: a reading between the two would answer a grant that is over.
  Books b;
  const Grant abandoned = b.grant(1, 11, 1);
  const Grant recorded = b.grant(2, 12, 2);
  b.record(recorded);
  ASSERT_TRUE(b.home.wait(b.ledger->mark_reclaim({abandoned.id, recorded.id})));
  EXPECT_THAT(b.standing({abandoned.id, recorded.id}).marked, ElementsAre(true, true));
  ASSERT_TRUE(b.home.wait(b.ledger->finish_reclaim({abandoned, recorded})));
  ASSERT_EQ(b.number("SELECT count(*) FROM reclaim_mark"), 0);
  EXPECT_THAT(b.standing({abandoned.id, recorded.id}).marked, ElementsAre(true, false))
      << "the one was rejected, the other holds";
  ASSERT_TRUE(b.end(2, "PENDING", "CANCELED"));
  EXPECT_THAT(b.standing({recorded.id}).marked, ElementsAre(true)) << "over as well";
}

TEST(LedgerContract, AnEpochIsFencedOnlyWhileItIsInForce) {
  Books b;
  ASSERT_EQ(b.raise(), Epoch{2});
  const auto stale = b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{1}));
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kStaleEpoch);
  const auto ahead = b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{3}));
  ASSERT_FALSE(ahead);
  EXPECT_EQ(ahead.error().code, ErrorCode::kStaleEpoch);
  EXPECT_TRUE(b.home.wait(b.ledger->raise_min_epoch(kScope, Epoch{2})));
  EXPECT_EQ(b.snapshot().min_epoch, Epoch{2});
}

TEST(LedgerContract, AScopeThatWasNeverPreparedIsNotFound) {
  Books b;
  const auto missing = b.home.wait(b.ledger->snapshot(ScopeId{'s', 99}));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(LedgerContract, ABatchIsOneTransaction) {
  // A scope without a shard row stops the batch: nothing of it may stay.
  Books b;
  Grant lost = b.grant(2, 12, 2);
  lost.scope = {'s', 99};
  const auto outcomes = b.home.wait(b.ledger->record({b.grant(1, 11, 1), lost}));
  ASSERT_FALSE(outcomes);
  EXPECT_EQ(outcomes.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(b.orders(), IsEmpty());
  EXPECT_EQ(b.sold(), 0);
}

}  // namespace
}  // namespace doorbuster::engine::testing

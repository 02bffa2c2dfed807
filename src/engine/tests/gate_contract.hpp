#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <set>
#include <thread>

#include "common/random.hpp"
#include "engine/gate.hpp"
#include "engine/tests/support.hpp"

// The contract of every gate: a test program includes this once and adds one
// INSTANTIATE_TEST_SUITE_P for each implementation that it can reach.

namespace doorbuster::engine::testing {

/// One implementation of the gate under the contract suite.
struct GateMaker {
  std::string name;
  std::function<std::unique_ptr<Gate>()> make;
};

class GateContract : public ::testing::TestWithParam<GateMaker> {};

using common::Done;
using common::ErrorCode;
using common::Result;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

inline constexpr ScopeId kScope{'s', 1};
inline constexpr AllotmentId kItem{'i', 1};
inline constexpr AllotmentId kOther{'i', 2};
inline constexpr seconds kHold{600};

/// One gate with one scope in it, and calls that read well.
class Bench {
 public:
  explicit Bench(std::unique_ptr<Gate> gate) : gate_(std::move(gate)) {}

  Gate& gate() { return *gate_; }

  ScopeRules rules(std::int32_t quantity, std::int32_t per_member = 1) const {
    return {.id = kScope,
            .per_member = per_member,
            .allotments = {{.id = kItem, .quantity = quantity, .amount = 1000, .hold = kHold},
                           {.id = kOther, .quantity = 2, .amount = 500, .hold = kHold}}};
  }
  ShardSnapshot rows(const ScopeRules& rules, std::vector<HeldRow> held = {},
                     std::int64_t last_number = 0) const {
    ShardSnapshot snapshot{.epoch = epoch,
                           .min_epoch = epoch,
                           .last_number = SequenceNumber{last_number},
                           .allotments = {},
                           .rows = std::move(held)};
    for (const AllotmentRules& one : rules.allotments) {
      snapshot.allotments.push_back({one.id, one.quantity, one.quantity});
    }
    return snapshot;
  }
  /// The same while only slots up to `leased_to` of kItem are leased.
  ShardSnapshot leased(const ScopeRules& rules, std::int32_t leased_to, std::int32_t lease_number,
                       std::vector<HeldRow> held = {}) const {
    ShardSnapshot snapshot = rows(rules, std::move(held));
    snapshot.allotments[0].leased_to = leased_to;
    snapshot.allotments[0].lease_number = lease_number;
    return snapshot;
  }
  Result<Done> begin(const ScopeRules& rules, ShardSnapshot snapshot) {
    return wait_here(gate_->begin_epoch(rules, std::move(snapshot)));
  }
  Result<Done> load(ShardSnapshot snapshot) {
    return wait_here(gate_->load(kScope, std::move(snapshot)));
  }
  void open(std::int32_t quantity, std::int32_t per_member = 1, std::vector<HeldRow> held = {}) {
    const ScopeRules wanted = rules(quantity, per_member);
    ASSERT_TRUE(begin(wanted, rows(wanted, held)));
    ASSERT_TRUE(load(rows(wanted, held)));
  }

  /// Open, with `quantity` units of kItem of which the first lease has `chunk`.
  void open_with_chunk(std::int32_t quantity, std::int32_t chunk) {
    const ScopeRules wanted = rules(quantity);
    ASSERT_TRUE(begin(wanted, leased(wanted, chunk, 1)));
    ASSERT_TRUE(load(leased(wanted, chunk, 1)));
  }
  static Lease chunk(std::int32_t number, std::int32_t first, std::int32_t last,
                     AllotmentId allotment = kItem) {
    return {allotment, number, Slot{first}, Slot{last}};
  }
  Result<Done> lease(std::vector<Lease> leases) {
    return wait_here(gate_->apply_leases(kScope, epoch, std::move(leases)));
  }

  TakeAnswer take(std::int64_t member, std::string key = {}, AllotmentId allotment = kItem) {
    TakeRequest request{.scope = kScope,
                        .allotment = allotment,
                        .member = MemberId{member},
                        .key = std::move(key),
                        .epoch = epoch,
                        .fresh_id = ids_.make(),
                        .now = now,
                        .node = node};
    const Result<TakeAnswer> answer = wait_here(gate_->take(std::move(request)));
    EXPECT_TRUE(answer);
    return *answer;
  }
  GateEntry taken(std::int64_t member, std::string key = {}, AllotmentId allotment = kItem) {
    const TakeAnswer answer = take(member, std::move(key), allotment);
    const auto* got = std::get_if<Taken>(&answer);
    EXPECT_NE(got, nullptr) << "a slot was expected";
    return got == nullptr ? GateEntry{} : got->entry;
  }
  Result<Done> confirm(std::int64_t member, const GateEntry& entry, Instant due) {
    std::vector<Confirmation> list{{MemberId{member}, entry.id, entry.slot, entry.nth, due}};
    return wait_here(gate_->confirm(kScope, epoch, std::move(list)));
  }
  Result<SequenceNumber> apply(std::vector<SequenceEntry> steps) {
    return wait_here(gate_->apply(kScope, epoch, std::move(steps)));
  }
  static SequenceEntry step(std::int64_t number, SequenceKind kind, std::int64_t member,
                            const GateEntry& entry) {
    return {.number = SequenceNumber{number},
            .kind = kind,
            .grant = entry.id,
            .allotment = entry.allotment,
            .member = MemberId{member},
            .slot = entry.slot};
  }
  static SequenceEntry back(std::int64_t number, std::int64_t member, const GateEntry& entry) {
    return step(number, SequenceKind::kReturn, member, entry);
  }
  static HeldRow row(std::int64_t member, std::int32_t slot, std::string key = {}) {
    HeldRow held;
    held.id.bytes[0] = 0xAA;
    held.id.bytes[15] = static_cast<std::uint8_t>(slot);
    held.allotment = kItem;
    held.member = MemberId{member};
    held.slot = Slot{slot};
    held.nth = Nth{1};
    held.key = std::move(key);
    held.epoch = Epoch{1};
    held.taken_at = kStart;
    held.expires_at = kStart + kHold;
    held.due_at = kStart + kHold;
    return held;
  }
  GateReading read() {
    const Result<GateReading> reading = wait_here(gate_->read(kScope));
    EXPECT_TRUE(reading);
    return *reading;
  }
  std::int32_t free(std::size_t index = 0) { return read().allotments.at(index).free; }

  Epoch epoch{1};
  Instant now = kStart;
  NodeId node{1};

 private:
  std::unique_ptr<Gate> gate_;
  common::SystemClock clock_;
  common::GrantIdMaker ids_{clock_};
};

inline bool is_not_now(const TakeAnswer& answer, NotNow why) {
  const auto* not_now = std::get_if<NotNow>(&answer);
  return not_now != nullptr && *not_now == why;
}
inline bool is_past_due(const TakeAnswer& answer, const GrantId& id) {
  const auto* past = std::get_if<PastDue>(&answer);
  return past != nullptr && past->entry.id == id;
}
inline bool is_dry(const TakeAnswer& answer) { return std::holds_alternative<Dry>(answer); }

TEST_P(GateContract, AnswersNotPreparedBeforeItKnowsTheScopeAndForAForeignAllotment) {
  Bench b(GetParam().make());
  EXPECT_TRUE(is_not_now(b.take(1), NotNow::kNotPrepared));
  EXPECT_EQ(b.read().state, GateState::kAbsent);
  b.open(1);
  EXPECT_TRUE(is_not_now(b.take(1, {}, AllotmentId{'i', 99}), NotNow::kNotPrepared));
  EXPECT_TRUE(is_not_now(b.take(1, {}, AllotmentId{'c', 1}), NotNow::kNotPrepared));
  EXPECT_EQ(b.free(), 1);
}

TEST_P(GateContract, G1GivesEachSlotOnceAndThenIsDry) {
  Bench b(GetParam().make());
  b.open(3);
  std::set<std::int32_t> slots;
  for (std::int64_t member = 1; member <= 3; ++member) {
    slots.insert(b.taken(member).slot.value());
  }
  EXPECT_THAT(slots, ElementsAre(1, 2, 3));
  EXPECT_TRUE(is_dry(b.take(4)));
  EXPECT_EQ(b.free(), 0);
  EXPECT_EQ(b.free(1), 2) << "the other allotment has its own units";
}

TEST_P(GateContract, G1AReturnedSlotIsFreeOnlyOnce) {
  Bench b(GetParam().make());
  b.open(2);
  const GateEntry first = b.taken(1);
  EXPECT_EQ(b.apply({Bench::back(1, 1, first)}), SequenceNumber{1});
  EXPECT_EQ(b.apply({Bench::back(2, 1, first)}), SequenceNumber{2})
      << "a second return of the same grant is another number";
  EXPECT_EQ(b.free(), 2);
}

TEST_P(GateContract, G2GivesTheLowestNumberFirstAlsoAmongHoles) {
  Bench b(GetParam().make());
  b.open(200);
  std::vector<GateEntry> entries;
  for (std::int64_t member = 1; member <= 150; ++member) {
    entries.push_back(b.taken(member));
    EXPECT_EQ(entries.back().slot, Slot{static_cast<std::int32_t>(member)});
  }
  // In an order of their own, over several words of a bit map.
  EXPECT_EQ(b.apply({Bench::back(1, 140, entries[139]), Bench::back(2, 64, entries[63]),
                     Bench::back(3, 3, entries[2]), Bench::back(4, 65, entries[64])}),
            SequenceNumber{4});
  EXPECT_EQ(b.taken(1001).slot, Slot{3});
  EXPECT_EQ(b.taken(1002).slot, Slot{64});
  EXPECT_EQ(b.taken(1003).slot, Slot{65});
  EXPECT_EQ(b.taken(1004).slot, Slot{140});
  EXPECT_EQ(b.taken(1005).slot, Slot{151});
}

TEST_P(GateContract, G2HolesOfALoadAreGivenLowestFirst) {
  Bench b(GetParam().make());
  b.open(5, 1, {Bench::row(1, 2), Bench::row(2, 4)});
  EXPECT_EQ(b.taken(11).slot, Slot{1});
  EXPECT_EQ(b.taken(12).slot, Slot{3});
  EXPECT_EQ(b.taken(13).slot, Slot{5});
  EXPECT_TRUE(is_dry(b.take(14)));
}

TEST_P(GateContract, G3AConfirmMarksAndNeverCreates) {
  Bench b(GetParam().make());
  b.open(2);
  GateEntry invented;
  invented.id.bytes[3] = 7;
  invented.slot = Slot{1};
  invented.nth = Nth{1};
  EXPECT_TRUE(b.confirm(5, invented, kNever)) << "an id without an entry is ignored";
  EXPECT_EQ(b.read().entries, 0U);
  EXPECT_EQ(b.free(), 2);

  const GateEntry entry = b.taken(1);
  EXPECT_EQ(b.read().in_flight.size(), 1U);
  EXPECT_TRUE(b.confirm(1, entry, kStart + kHold));
  EXPECT_THAT(b.read().in_flight, IsEmpty());
  EXPECT_EQ(b.read().entries, 1U);
}

TEST_P(GateContract, G3ALateConfirmDoesNotBringBackAReturnedEntry) {
  Bench b(GetParam().make());
  b.open(1);
  const GateEntry entry = b.taken(1);
  ASSERT_TRUE(b.apply({Bench::back(1, 1, entry)}));
  EXPECT_TRUE(b.confirm(1, entry, kStart + kHold));
  EXPECT_EQ(b.read().entries, 0U);
  EXPECT_EQ(b.taken(2).slot, Slot{1});
}

TEST_P(GateContract, G4OneUnitAMemberWhateverTheKeyOrAllotment) {
  Bench b(GetParam().make());
  b.open(5);
  const GateEntry mine = b.taken(1, "a");
  for (const auto& [key, allotment] : {std::pair("a", kItem), std::pair("b", kItem),
                                       std::pair("", kItem), std::pair("a", kOther)}) {
    const TakeAnswer again = b.take(1, key, allotment);
    const auto* same = std::get_if<AlreadyTaken>(&again);
    ASSERT_NE(same, nullptr);
    EXPECT_EQ(same->entry.id, mine.id);
    EXPECT_EQ(same->entry.slot, mine.slot);
    EXPECT_EQ(same->entry.allotment, kItem);
  }
  EXPECT_EQ(b.free(), 4);
  EXPECT_EQ(b.free(1), 2);
}

TEST_P(GateContract, G4AskingLaterRepeatsTheFirstDeadline) {
  Bench b(GetParam().make());
  b.open(1);
  const GateEntry mine = b.taken(1);
  EXPECT_EQ(mine.expires_at, kStart + kHold);
  b.now += seconds{30};
  const TakeAnswer again = b.take(1);
  EXPECT_EQ(std::get<AlreadyTaken>(again).entry.expires_at, kStart + kHold);
  EXPECT_EQ(std::get<AlreadyTaken>(again).entry.taken_at, kStart);
}

TEST_P(GateContract, G4SeveralUnitsAMemberAreToldApartByTheirKeys) {
  Bench b(GetParam().make());
  b.open(5, 2);
  const GateEntry one = b.taken(1, "a");
  const GateEntry two = b.taken(1, "b");
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(one.nth, Nth{1});
  EXPECT_EQ(two.nth, Nth{2});
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1, "a")).entry.id, one.id);
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1, "b")).entry.id, two.id);
  const TakeAnswer third = b.take(1, "c");
  EXPECT_EQ(std::get<LimitReached>(third).newest.id, two.id);
  EXPECT_EQ(b.free(), 3);

  // The first one comes back: its place among the member's units is the lowest free one again.
  ASSERT_TRUE(b.apply({Bench::back(1, 1, one)}));
  const GateEntry again = b.taken(1, "a");
  EXPECT_NE(again.id, one.id);
  EXPECT_EQ(again.nth, Nth{1});
}

TEST_P(GateContract, G4AKeyNamesAUnitOfItsOwnAllotment) {
  Bench b(GetParam().make());
  b.open(5, 2);
  const GateEntry one = b.taken(1, "a");
  const GateEntry two = b.taken(1, "a", kOther);
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(two.slot, Slot{1});
  EXPECT_EQ(two.nth, Nth{2}) << "counted in the scope, over all allotments";
  EXPECT_TRUE(std::holds_alternative<LimitReached>(b.take(1, "b")));
}

TEST_P(GateContract, G5ARepeatedConfirmOrNumberChangesNothing) {
  Bench b(GetParam().make());
  b.open(2);
  const GateEntry one = b.taken(1);
  ASSERT_TRUE(b.confirm(1, one, kStart + kHold));
  ASSERT_TRUE(b.confirm(1, one, kStart + kHold));
  EXPECT_EQ(b.read().entries, 1U);
  ASSERT_EQ(b.apply({Bench::back(1, 1, one)}), SequenceNumber{1});
  const GateEntry next = b.taken(2);
  ASSERT_EQ(next.slot, one.slot);
  // The same step once more, when its slot belongs to somebody else.
  EXPECT_EQ(b.apply({Bench::back(1, 1, one)}), SequenceNumber{1});
  EXPECT_EQ(b.free(), 1);
  EXPECT_EQ(b.read().entries, 1U);
  EXPECT_EQ(b.taken(3).slot, Slot{2});
}

TEST_P(GateContract, G5ARepeatedLoadChangesNothing) {
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(3);
  const std::vector<HeldRow> held{Bench::row(1, 2)};
  b.open(3, 1, held);
  ASSERT_EQ(b.taken(2).slot, Slot{1});
  ASSERT_TRUE(b.load(b.rows(wanted, held)));
  EXPECT_EQ(b.free(), 1) << "the slot given since is not a hole";
  EXPECT_EQ(b.read().entries, 2U);
  EXPECT_EQ(b.taken(3).slot, Slot{3});
}

TEST_P(GateContract, NumbersAreAppliedInOrderUpToTheFirstGap) {
  Bench b(GetParam().make());
  b.open(4);
  std::vector<GateEntry> entries;
  for (std::int64_t member = 1; member <= 4; ++member) entries.push_back(b.taken(member));

  EXPECT_EQ(b.apply({Bench::back(2, 2, entries[1])}), SequenceNumber{0}) << "1 is missing";
  EXPECT_EQ(b.free(), 0);
  EXPECT_EQ(b.apply({Bench::back(1, 1, entries[0]), Bench::back(3, 3, entries[2])}),
            SequenceNumber{1});
  EXPECT_EQ(b.free(), 1);
  EXPECT_EQ(b.read().applied, SequenceNumber{1});
  // Repeated and new ones in one call.
  EXPECT_EQ(b.apply({Bench::back(1, 1, entries[0]), Bench::back(2, 2, entries[1]),
                     Bench::back(3, 3, entries[2])}),
            SequenceNumber{3});
  EXPECT_EQ(b.free(), 3);
  EXPECT_EQ(b.apply({}), SequenceNumber{3});
}

TEST_P(GateContract, ADepartureRemovesTheEntryAndFreesNothing) {
  Bench b(GetParam().make());
  b.open(1);
  const GateEntry entry = b.taken(1);
  ASSERT_TRUE(b.apply({Bench::step(1, SequenceKind::kDeparture, 1, entry)}));
  EXPECT_EQ(b.read().entries, 0U);
  EXPECT_EQ(b.free(), 0);
  EXPECT_TRUE(is_dry(b.take(1))) << "no entry, so no grant to come back to";
}

TEST_P(GateContract, AReturnWhoseEntryWasNeverSeenFreesItsSlot) {
  // Schedule 2: recorded after a rebuild's reading, expired before its load.
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(1);
  ASSERT_TRUE(b.begin(wanted, b.rows(wanted)));
  GateEntry unseen;
  unseen.allotment = kItem;
  unseen.slot = Slot{1};
  EXPECT_EQ(b.apply({Bench::back(1, 1, unseen)}), SequenceNumber{1});
  ASSERT_TRUE(b.load(b.rows(wanted, {}, 1)));
  EXPECT_EQ(b.free(), 1);
  EXPECT_EQ(b.taken(2).slot, Slot{1});
  EXPECT_TRUE(is_dry(b.take(3)));
}

TEST_P(GateContract, ALoadStepMakesAnEntryOfARowThatHoldsAndNothingElse) {
  Bench b(GetParam().make());
  b.open(3);
  SequenceEntry load{.number = SequenceNumber{1}, .kind = SequenceKind::kLoad};
  load.grant.bytes[1] = 9;
  load.allotment = kItem;
  load.member = MemberId{7};
  load.slot = Slot{3};
  load.nth = Nth{1};
  load.epoch = Epoch{1};
  load.expires_at = kStart + kHold;
  load.due_at = kStart + kHold;
  ASSERT_EQ(b.apply({load}), SequenceNumber{1});
  EXPECT_EQ(b.read().entries, 0U) << "a load of a grant that is over only advances";

  load.number = SequenceNumber{2};
  load.holds = true;
  ASSERT_EQ(b.apply({load}), SequenceNumber{2});
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(7)).entry.id, load.grant);
  load.number = SequenceNumber{3};
  load.grant.bytes[1] = 10;
  ASSERT_EQ(b.apply({load}), SequenceNumber{3});
  EXPECT_EQ(b.read().entries, 1U) << "the member has one already";
}

TEST_P(GateContract, WhileDrainingHoldersGetTheirsAndNobodyIsToldDry) {
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(2);
  const std::vector<HeldRow> held{Bench::row(1, 1)};
  ASSERT_TRUE(b.begin(wanted, b.rows(wanted, held)));
  EXPECT_EQ(b.read().state, GateState::kDraining);
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1)).entry.id, held[0].id);
  EXPECT_TRUE(is_not_now(b.take(2), NotNow::kDraining)) << "no hole is free yet";
  ASSERT_TRUE(b.load(b.rows(wanted, held)));
  EXPECT_EQ(b.read().state, GateState::kOpen);
  EXPECT_EQ(b.taken(2).slot, Slot{2});
}

TEST_P(GateContract, TheSecondLoadBringsRowsThatTheFirstDidNotHave) {
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(3);
  ASSERT_TRUE(b.begin(wanted, b.rows(wanted, {Bench::row(1, 1)})));
  // Recorded while it drained.
  ASSERT_TRUE(b.load(b.rows(wanted, {Bench::row(1, 1), Bench::row(2, 3)})));
  EXPECT_EQ(b.read().entries, 2U);
  EXPECT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(2)));
  EXPECT_EQ(b.taken(3).slot, Slot{2});
  EXPECT_TRUE(is_dry(b.take(4)));
}

TEST_P(GateContract, ALoadIsRefusedUnlessItsReadingIsAtTheAppliedNumber) {
  // S9; schedules 28 and 29.
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(2);
  const std::vector<HeldRow> held{Bench::row(1, 1)};
  ASSERT_TRUE(b.begin(wanted, b.rows(wanted, held, 4)));
  EXPECT_EQ(b.read().applied, SequenceNumber{4});
  for (const std::int64_t number : {3, 5}) {
    const Result<Done> loaded = b.load(b.rows(wanted, held, number));
    ASSERT_FALSE(loaded) << number;
    EXPECT_EQ(loaded.error().code, ErrorCode::kConflict);
    EXPECT_EQ(loaded.error().proof, common::Proof::kDidNotHappen);
    EXPECT_EQ(b.read().state, GateState::kDraining);
  }
  GateEntry ended;
  ended.id = held[0].id;
  ended.allotment = kItem;
  ended.slot = Slot{1};
  ASSERT_EQ(b.apply({Bench::back(5, 1, ended)}), SequenceNumber{5});
  ASSERT_TRUE(b.load(b.rows(wanted, {}, 5)));
  EXPECT_EQ(b.read().applied, SequenceNumber{5}) << "a load does not change the number";
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.read().entries, 0U);
}

TEST_P(GateContract, ACallOfAnotherEpochChangesNothing) {
  Bench b(GetParam().make());
  b.open(3);
  const GateEntry entry = b.taken(1);
  for (const std::int64_t epoch : {0, 2}) {
    b.epoch = Epoch{epoch};
    const std::uint64_t version = b.read().version;
    EXPECT_TRUE(is_not_now(b.take(2), NotNow::kStaleEpoch));
    EXPECT_TRUE(is_not_now(b.take(1), NotNow::kStaleEpoch)) << "a holder too";
    EXPECT_EQ(b.confirm(1, entry, kNever).error().code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(b.apply({Bench::back(1, 1, entry)}).error().code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(b.load(b.rows(b.rules(3))).error().code, ErrorCode::kStaleEpoch);
    const auto replaced =
        wait_here(b.gate().replace(kScope, b.epoch, MemberId{1}, entry.id, entry.slot));
    EXPECT_EQ(replaced.error().code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(b.lease({Bench::chunk(1, 1, 3)}).error().code, ErrorCode::kStaleEpoch);
    const auto holders = wait_here(b.gate().holders(kScope, b.epoch));
    ASSERT_FALSE(holders) << "its list would be taken for that of the epoch that was asked for";
    EXPECT_EQ(holders.error().code, ErrorCode::kStaleEpoch);
    EXPECT_EQ(b.read().version, version);
  }
}

TEST_P(GateContract, AnEpochBeginsOnlyAboveTheOneThatIsThere) {
  Bench b(GetParam().make());
  b.epoch = Epoch{3};
  b.open(3);
  ASSERT_EQ(b.taken(1).epoch, Epoch{3});
  const ScopeRules wanted = b.rules(3);
  for (const std::int64_t epoch : {2, 3}) {
    b.epoch = Epoch{epoch};
    EXPECT_EQ(b.begin(wanted, b.rows(wanted)).error().code, ErrorCode::kStaleEpoch);
  }
  EXPECT_EQ(b.read().entries, 1U);
  b.epoch = Epoch{4};
  ASSERT_TRUE(b.begin(wanted, b.rows(wanted)));
  EXPECT_EQ(b.read().entries, 0U) << "what it knew is forgotten; the rows say what there is";
  EXPECT_EQ(b.read().epoch, Epoch{4});
}

TEST_P(GateContract, AHoldPastItsDeadlineIsOnItsWayBack) {
  Bench b(GetParam().make());
  b.open(3);
  const GateEntry entry = b.taken(1);
  ASSERT_TRUE(b.confirm(1, entry, kStart + kHold));
  b.now = kStart + kHold - std::chrono::microseconds{1};
  EXPECT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(1)));
  b.now = kStart + kHold;
  EXPECT_TRUE(is_past_due(b.take(1), entry.id));
  EXPECT_TRUE(is_past_due(b.take(1, {}, kOther), entry.id));
  // Paid: it has no deadline any more, also when a confirm of before comes late.
  ASSERT_TRUE(b.confirm(1, entry, kNever));
  EXPECT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(1)));
  ASSERT_TRUE(b.confirm(1, entry, kStart + kHold));
  EXPECT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(1)));
}

TEST_P(GateContract, AGrantInFlightIsNotOverEvenPastItsPromise) {
  // Its row's deadline is not known yet, and never earlier than the promise.
  Bench b(GetParam().make());
  b.open(1);
  ASSERT_EQ(b.taken(1).slot, Slot{1});
  b.now = kStart + 2 * kHold;
  EXPECT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(1)));
}

TEST_P(GateContract, WithSeveralUnitsAReturningOneMeansNotNowRatherThanTheLimit) {
  Bench b(GetParam().make());
  b.open(5, 2);
  const GateEntry one = b.taken(1, "a");
  const GateEntry two = b.taken(1, "b");
  ASSERT_TRUE(b.confirm(1, one, kStart + kHold));
  ASSERT_TRUE(b.confirm(1, two, kNever));
  b.now = kStart + kHold;
  EXPECT_TRUE(is_past_due(b.take(1, "c"), one.id));
  EXPECT_TRUE(is_past_due(b.take(1, "a"), one.id));
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1, "b")).entry.id, two.id);
}

TEST_P(GateContract, ReplacingGivesAnotherSlotForTheSameGrantOnce) {
  Bench b(GetParam().make());
  b.open(3);
  const GateEntry entry = b.taken(1);
  ASSERT_EQ(entry.slot, Slot{1});
  const auto replace = [&](std::int32_t held) {
    const auto slot =
        wait_here(b.gate().replace(kScope, b.epoch, MemberId{1}, entry.id, Slot{held}));
    EXPECT_TRUE(slot);
    return slot->value_or(Slot{0});
  };
  ASSERT_EQ(replace(1), Slot{2});
  ASSERT_EQ(replace(1), Slot{2}) << "a repeat gives the same slot";
  EXPECT_EQ(b.free(), 1) << "slot 1 is somebody else's row, not free";
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1)).entry.slot, Slot{2});
  ASSERT_EQ(replace(2), Slot{3});
  EXPECT_EQ(replace(3), Slot{0}) << "none is left";
  EXPECT_EQ(replace(3), Slot{0});
  const auto unknown = wait_here(b.gate().replace(kScope, b.epoch, MemberId{2}, entry.id, Slot{3}));
  EXPECT_EQ(unknown.error().code, ErrorCode::kConflict);
}

TEST_P(GateContract, ARemovedScopeIsForgottenAndCanBePreparedAgain) {
  Bench b(GetParam().make());
  b.open(2);
  const GateEntry entry = b.taken(1);
  ASSERT_TRUE(wait_here(b.gate().remove(kScope)));
  EXPECT_EQ(b.read().state, GateState::kAbsent);
  EXPECT_EQ(b.read().entries, 0U);
  EXPECT_TRUE(is_not_now(b.take(1), NotNow::kNotPrepared));
  EXPECT_EQ(b.confirm(1, entry, kNever).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(b.apply({Bench::back(1, 1, entry)}).error().code, ErrorCode::kUnavailable);
  const auto holders = wait_here(b.gate().holders(kScope, b.epoch));
  EXPECT_EQ(holders.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(b.lease({Bench::chunk(1, 1, 2)}).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(wait_here(b.gate().remove(ScopeId{'s', 99}))) << "an unknown one is no error";
  b.epoch = Epoch{2};
  b.open(2);
  EXPECT_EQ(b.taken(1).slot, Slot{1});
}

TEST_P(GateContract, OnlyLeasedSlotsAreGiven) {
  Bench b(GetParam().make());
  b.open_with_chunk(5, 2);
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.read().allotments[0].leased_to, 2);
  EXPECT_EQ(b.read().allotments[0].lease_number, 1);
  EXPECT_EQ(b.taken(1).slot, Slot{1});
  EXPECT_EQ(b.taken(2).slot, Slot{2});
  EXPECT_TRUE(is_dry(b.take(3)));
}

// S5. Take the look at the lease's number out of GateMemory::apply_leases() and slots 3 and 4 are
// given twice.
TEST_P(GateContract, ALeaseIsGivenOnceHoweverOftenItIsApplied) {
  Bench b(GetParam().make());
  b.open_with_chunk(6, 2);
  ASSERT_EQ(b.taken(1).slot, Slot{1});
  ASSERT_EQ(b.taken(2).slot, Slot{2});
  const std::uint64_t before = b.read().version;
  ASSERT_TRUE(b.lease({Bench::chunk(2, 3, 4)}));
  EXPECT_NE(b.read().version, before);
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.read().allotments[0].leased_to, 4);
  EXPECT_EQ(b.read().allotments[0].lease_number, 2);
  ASSERT_EQ(b.taken(3).slot, Slot{3});

  const std::uint64_t version = b.read().version;
  ASSERT_TRUE(b.lease({Bench::chunk(1, 1, 2), Bench::chunk(2, 3, 4)}));
  EXPECT_EQ(b.read().version, version);
  EXPECT_EQ(b.free(), 1);
  EXPECT_EQ(b.taken(4).slot, Slot{4});
  EXPECT_TRUE(is_dry(b.take(5)));
}

TEST_P(GateContract, ALeaseThatWouldLeaveAGapWaits) {
  // Schedule 22: the chunk in between would be one that nobody gives.
  Bench b(GetParam().make());
  b.open_with_chunk(6, 1);
  const std::uint64_t version = b.read().version;
  ASSERT_TRUE(b.lease({Bench::chunk(3, 4, 6)}));
  EXPECT_EQ(b.read().version, version);
  EXPECT_EQ(b.free(), 1);
  EXPECT_EQ(b.read().allotments[0].leased_to, 1);
  EXPECT_EQ(b.read().allotments[0].lease_number, 1);
  ASSERT_TRUE(b.lease({Bench::chunk(2, 2, 3), Bench::chunk(3, 4, 6)}));
  EXPECT_EQ(b.free(), 6);
  EXPECT_EQ(b.read().allotments[0].leased_to, 6);
  EXPECT_EQ(b.read().allotments[0].lease_number, 3);
  for (std::int64_t member = 1; member <= 6; ++member) {
    EXPECT_EQ(b.taken(member).slot, Slot{static_cast<std::int32_t>(member)});
  }
}

TEST_P(GateContract, LeasesAreNumberedInEachAllotmentAndAnUnknownOneIsIgnored) {
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(6);
  ShardSnapshot snapshot = b.leased(wanted, 2, 2);
  snapshot.allotments[1].leased_to = 1;
  snapshot.allotments[1].lease_number = 1;
  ASSERT_TRUE(b.begin(wanted, snapshot));
  ASSERT_TRUE(b.load(snapshot));
  ASSERT_TRUE(b.lease(
      {Bench::chunk(3, 1, 5, {'i', 99}), Bench::chunk(3, 3, 4), Bench::chunk(3, 2, 2, kOther)}));
  const GateReading reading = b.read();
  ASSERT_EQ(reading.allotments.size(), 2U);
  EXPECT_EQ(reading.allotments[0].free, 4);
  EXPECT_EQ(reading.allotments[0].lease_number, 3);
  EXPECT_EQ(reading.allotments[1].free, 1) << "2 is the next one there";
  EXPECT_EQ(reading.allotments[1].lease_number, 1);
  ASSERT_TRUE(b.lease({Bench::chunk(2, 2, 2, kOther)}));
  EXPECT_EQ(b.free(0), 4);
  EXPECT_EQ(b.free(1), 2);
}

TEST_P(GateContract, WhatIsLeasedWhileDrainingCanBeGivenAtOnce) {
  // S6: new slots start above what the gate before had, and only holes must wait for the drain.
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(5);
  const std::vector<HeldRow> held{Bench::row(1, 1)};
  ASSERT_TRUE(b.begin(wanted, b.leased(wanted, 2, 1, held)));
  EXPECT_TRUE(is_not_now(b.take(2), NotNow::kDraining));
  ASSERT_TRUE(b.lease({Bench::chunk(2, 3, 4)}));
  EXPECT_EQ(b.read().state, GateState::kDraining);
  EXPECT_EQ(b.taken(2).slot, Slot{3});
  ASSERT_TRUE(b.load(b.leased(wanted, 4, 2, held)));
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.taken(3).slot, Slot{2}) << "the hole";
  EXPECT_EQ(b.taken(4).slot, Slot{4});
  EXPECT_TRUE(is_dry(b.take(5)));
}

// S6, "ahead in a lease, applied or not". Let GateMemory::load() free holes up to the reading's
// leased_to and slots 3 to 5 are given twice.
TEST_P(GateContract, ALoadFreesNoSlotOfALeaseThatWasNotAppliedHere) {
  Bench b(GetParam().make());
  const ScopeRules wanted = b.rules(5);
  ASSERT_TRUE(b.begin(wanted, b.leased(wanted, 2, 1)));
  ASSERT_TRUE(b.load(b.leased(wanted, 5, 2))) << "written since";
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.read().allotments[0].leased_to, 2);
  EXPECT_EQ(b.read().allotments[0].lease_number, 1);
  for (std::int64_t member = 1; member <= 2; ++member) {
    EXPECT_EQ(b.taken(member).slot, Slot{static_cast<std::int32_t>(member)});
  }
  ASSERT_TRUE(b.lease({Bench::chunk(2, 3, 5)}));
  for (std::int64_t member = 3; member <= 5; ++member) {
    EXPECT_EQ(b.taken(member).slot, Slot{static_cast<std::int32_t>(member)});
  }
  EXPECT_TRUE(is_dry(b.take(6)));
}

TEST_P(GateContract, AnEpochBeginsAboveTheLeasesOfItsReading) {
  Bench b(GetParam().make());
  b.open_with_chunk(6, 2);
  b.epoch = Epoch{2};
  const ScopeRules wanted = b.rules(6);
  ASSERT_TRUE(b.begin(wanted, b.leased(wanted, 4, 2)));
  EXPECT_EQ(b.read().allotments[0].leased_to, 4);
  EXPECT_EQ(b.read().allotments[0].lease_number, 2);
  ASSERT_TRUE(b.lease({Bench::chunk(2, 3, 4)}));
  EXPECT_EQ(b.free(), 0) << "the gate before may have given them: they are holes";
  ASSERT_TRUE(b.lease({Bench::chunk(3, 5, 6)}));
  EXPECT_EQ(b.free(), 2);
  EXPECT_EQ(b.taken(1).slot, Slot{5});
}

TEST_P(GateContract, AReturnOfALeasedSlotIsFreeAgainAndIsNotLeasedTwice) {
  Bench b(GetParam().make());
  b.open_with_chunk(4, 1);
  const GateEntry first = b.taken(1);
  ASSERT_TRUE(b.lease({Bench::chunk(2, 2, 3)}));
  ASSERT_EQ(b.apply({Bench::back(1, 1, first)}), SequenceNumber{1});
  ASSERT_TRUE(b.lease({Bench::chunk(2, 2, 3)}));
  EXPECT_EQ(b.free(), 3);
  EXPECT_EQ(b.read().allotments[0].leased_to, 3);
  EXPECT_EQ(b.taken(2).slot, Slot{1});
}

TEST_P(GateContract, AnEntryTellsWhichNodeTookIt) {
  Bench b(GetParam().make());
  b.open(3, 1, {Bench::row(9, 3)});
  b.node = NodeId{7};
  EXPECT_EQ(b.taken(1).node, NodeId{7});
  b.node = NodeId{8};
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(1)).entry.node, NodeId{7})
      << "who asks again took nothing";
  EXPECT_EQ(b.taken(2).node, NodeId{8});
  std::map<MemberId, NodeId> nodes;
  for (const auto& [member, entry] : b.read().in_flight) nodes[member] = entry.node;
  EXPECT_THAT(nodes, UnorderedElementsAre(std::pair(MemberId{1}, NodeId{7}),
                                          std::pair(MemberId{2}, NodeId{8})));
  EXPECT_EQ(std::get<AlreadyTaken>(b.take(9)).entry.node, NodeId{0}) << "loaded from its row";
}

TEST_P(GateContract, HoldersAreTheMembersWithAnEntryInFlightOrNot) {
  Bench b(GetParam().make());
  b.open(5, 2, {Bench::row(1, 1, "a")});
  const GateEntry two = b.taken(2, "a");
  b.taken(2, "b");
  b.taken(3, "a", kOther);
  auto holders = wait_here(b.gate().holders(kScope, b.epoch));
  EXPECT_THAT(*holders, UnorderedElementsAre(MemberId{1}, MemberId{2}, MemberId{3}));
  ASSERT_TRUE(b.apply({Bench::back(1, 2, two)}));
  holders = wait_here(b.gate().holders(kScope, b.epoch));
  EXPECT_THAT(*holders, UnorderedElementsAre(MemberId{1}, MemberId{2}, MemberId{3}))
      << "member 2 has another one";
}

TEST_P(GateContract, TheVersionChangesWithEveryChangeAndOnlyThen) {
  Bench b(GetParam().make());
  b.open(2);
  std::uint64_t last = b.read().version;
  const auto changed = [&] { return std::exchange(last, b.read().version) != last; };
  const GateEntry entry = b.taken(1);
  EXPECT_TRUE(changed());
  ASSERT_TRUE(std::holds_alternative<AlreadyTaken>(b.take(1)));
  EXPECT_FALSE(changed());
  ASSERT_TRUE(b.confirm(1, entry, kNever));
  EXPECT_TRUE(changed());
  ASSERT_TRUE(b.apply({Bench::back(1, 1, entry)}));
  EXPECT_TRUE(changed());
  ASSERT_TRUE(b.apply({Bench::back(1, 1, entry)}));
  EXPECT_FALSE(changed());
}

// A2. Remove the lock_guard in LocalGate::decide() (or let take_lowest() forget to clear the bit)
// and this fails within the first runs.
TEST_P(GateContract, AThousandThreadsGetAHundredUnitsAHundredTimesInARow) {
  constexpr int kThreads = 1000;
  constexpr int kUnits = 100;
  constexpr int kRuns = 100;
  Bench b(GetParam().make());
  std::vector<std::int32_t> slots(kThreads);
  std::barrier start(kThreads + 1);
  std::barrier end(kThreads + 1);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns; ++run) {
        start.arrive_and_wait();
        TakeRequest request{.scope = kScope,
                            .allotment = kItem,
                            .member = MemberId{static_cast<std::int64_t>(i) + 1}};
        request.epoch = b.epoch;
        request.fresh_id.bytes[0] = static_cast<std::uint8_t>(i / 256);
        request.fresh_id.bytes[1] = static_cast<std::uint8_t>(i % 256);
        request.now = kStart;
        const Result<TakeAnswer> answer = wait_here(b.gate().take(std::move(request)));
        const auto* got = answer ? std::get_if<Taken>(&*answer) : nullptr;
        slots[i] = got != nullptr ? got->entry.slot.value() : answer && is_dry(*answer) ? 0 : -1;
        end.arrive_and_wait();
      }
    });
  }
  int good = 0;
  for (int run = 1; run <= kRuns; ++run) {
    b.epoch = Epoch{run};
    b.open(kUnits);
    start.arrive_and_wait();
    end.arrive_and_wait();
    const std::set<std::int32_t> given(slots.begin(), slots.end());
    const auto got = std::count_if(slots.begin(), slots.end(), [](int s) { return s > 0; });
    const auto wrong = std::count(slots.begin(), slots.end(), -1);
    EXPECT_EQ(got, kUnits);
    EXPECT_EQ(wrong, 0) << "the others are told dry";
    EXPECT_EQ(given.size(), kUnits + 1U);
    EXPECT_EQ(*given.begin(), 0);
    EXPECT_EQ(*given.rbegin(), kUnits);
    if (got == kUnits && wrong == 0 && given.size() == kUnits + 1U) ++good;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kRuns);
}

TEST_P(GateContract, OneMemberAskingFromManyThreadsGetsOneGrant) {
  constexpr int kThreads = 64;
  for (int run = 1; run <= 50; ++run) {
    Bench b(GetParam().make());
    b.open(10);
    std::vector<GrantId> ids(kThreads);
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    std::atomic<int> taken{0};
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        TakeRequest request{.scope = kScope, .allotment = kItem, .member = MemberId{1}};
        request.epoch = b.epoch;
        request.fresh_id.bytes[2] = static_cast<std::uint8_t>(i + 1);
        request.now = kStart;
        const Result<TakeAnswer> answer = wait_here(b.gate().take(std::move(request)));
        if (const auto* got = std::get_if<Taken>(&*answer)) {
          ++taken;
          ids[i] = got->entry.id;
        } else {
          ids[i] = std::get<AlreadyTaken>(*answer).entry.id;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(taken.load(), 1);
    EXPECT_EQ(std::set<GrantId>(ids.begin(), ids.end()).size(), 1U);
    EXPECT_EQ(b.free(), 9);
  }
}

}  // namespace doorbuster::engine::testing

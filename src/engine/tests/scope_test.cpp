#include "engine/scope.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace doorbuster::engine {
namespace {

ScopeRules rules() {
  return {.id = {'s', 1},
          .per_member = 1,
          .allotments = {{.id = {'i', 1}, .quantity = 100}, {.id = {'i', 2}, .quantity = 5}}};
}

TEST(HolderFilter, KnowsEveryMemberWhoWasAddedAndFewOthers) {
  HolderFilter filter(10'000);
  for (std::int64_t member = 1; member <= 10'000; ++member) filter.add(MemberId{member});
  int wrong = 0;
  for (std::int64_t member = 1; member <= 10'000; ++member) {
    ASSERT_TRUE(filter.may_contain(MemberId{member})) << member;
    if (filter.may_contain(MemberId{1'000'000 + member})) ++wrong;
  }
  EXPECT_LT(wrong, 400) << "about 2 % at the size it was made for";
}

TEST(HolderFilter, AnEmptyOneContainsNobodyAlsoWhenItExpectsNobody) {
  const HolderFilter filter(0);
  for (std::int64_t member = 1; member <= 1000; ++member) {
    EXPECT_FALSE(filter.may_contain(MemberId{member}));
  }
}

TEST(HolderFilter, AResetForgetsWhoHoldsNothingMore) {
  HolderFilter filter(100);
  filter.add(MemberId{1});
  filter.add(MemberId{2});
  filter.begin_reset();
  filter.finish_reset({MemberId{2}});
  EXPECT_FALSE(filter.may_contain(MemberId{1}));
  EXPECT_TRUE(filter.may_contain(MemberId{2}));
}

// Take `recent_` out of finish_reset() and this fails: the list was read before member 3 came.
TEST(HolderFilter, WhoIsAddedDuringAResetStaysIn) {
  HolderFilter filter(100);
  filter.begin_reset();
  filter.add(MemberId{3});
  EXPECT_TRUE(filter.may_contain(MemberId{3}));
  filter.finish_reset({});
  EXPECT_TRUE(filter.may_contain(MemberId{3}));
  filter.begin_reset();
  filter.finish_reset({});
  EXPECT_FALSE(filter.may_contain(MemberId{3})) << "a reset that began later knows better";
}

TEST(HolderFilter, AResetThatNeverFinishedChangesNothing) {
  HolderFilter filter(100);
  filter.add(MemberId{1});
  filter.begin_reset();
  filter.begin_reset();
  EXPECT_TRUE(filter.may_contain(MemberId{1}));
  filter.finish_reset({MemberId{1}});
  EXPECT_TRUE(filter.may_contain(MemberId{1}));
}

// Clear the table in use instead of the spare one and a reader meets a half-made table.
TEST(HolderFilter, NeverAnswersAWrongNoWhileItIsResetAndFilled) {
  constexpr std::int64_t kOld = 2'000;
  constexpr std::int64_t kNew = 20'000;
  HolderFilter filter(static_cast<std::size_t>(kOld + kNew));
  std::vector<MemberId> holders;
  for (std::int64_t member = 1; member <= kOld; ++member) {
    filter.add(MemberId{member});
    holders.emplace_back(member);
  }
  // The gate's entry comes before add(), and the answer after it, as in the desk.
  std::atomic<std::int64_t> at_gate{kOld};
  std::atomic<std::int64_t> added{kOld};
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> looks{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&, i] {
      std::int64_t at = i;
      while (!over.load()) {
        const std::int64_t known = added.load();
        at = at * 7 % known + 1;
        if (!filter.may_contain(MemberId{at})) ++wrong;
        ++looks;
      }
    });
  }
  std::thread adder([&] {
    for (std::int64_t member = kOld + 1; member <= kOld + kNew; ++member) {
      at_gate.store(member);
      filter.add(MemberId{member});
      added.store(member);
    }
  });
  int resets = 0;
  while (added.load() < kOld + kNew || looks.load() < 100'000 || resets <= 10) {
    filter.begin_reset();
    // As the gate's list: whoever has an entry when it is read.
    const std::int64_t known = at_gate.load();
    std::vector<MemberId> list = holders;
    for (std::int64_t member = kOld + 1; member <= known; ++member) list.emplace_back(member);
    filter.finish_reset(list);
    ++resets;
  }
  adder.join();
  over.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0) << "in " << resets << " resets and " << looks.load() << " looks";
  EXPECT_GT(resets, 10);
}

// Leave out the second look at turn_ in may_contain(): a reader that is stopped between the two,
// for as long as two resets take, looks at a table that is being cleared.
TEST(HolderFilter, AReaderThatIsStoppedHalfWayIsNotFooledByTwoResets) {
  constexpr std::int64_t kHolders = 100;
  // Large, so that clearing is most of a reset; more readers than cores, so that they are stopped.
  HolderFilter filter(1'000'000);
  std::vector<MemberId> holders;
  for (std::int64_t member = 1; member <= kHolders; ++member) {
    filter.add(MemberId{member});
    holders.emplace_back(member);
  }
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&, i] {
      std::int64_t at = i;
      while (!over.load()) {
        at = (at + 1) % kHolders;
        if (!filter.may_contain(MemberId{at + 1})) ++wrong;
      }
    });
  }
  for (int reset = 0; reset < 80; ++reset) {
    filter.begin_reset();
    filter.finish_reset(holders);
  }
  over.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Scope, FindsAnAllotmentsPlace) {
  const Scope scope(rules());
  EXPECT_EQ(scope.index_of({'i', 1}), 0);
  EXPECT_EQ(scope.index_of({'i', 2}), 1);
  EXPECT_EQ(scope.index_of({'c', 1}), -1);
  EXPECT_EQ(scope.epoch(), Epoch{0});
  EXPECT_EQ(scope.remaining(0), -1) << "before the first probe";
}

constexpr common::Steady kNow{std::chrono::seconds{100}};

TEST(Scope, AFlagThatIsNotFinalGoesStale) {
  Scope scope(rules());
  scope.set_fresh_until(kNow);
  ASSERT_TRUE(scope.raise(scope.generation(), 0, Flag::kUp));
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow), Flag::kUp);
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow + std::chrono::nanoseconds{1}), Flag::kDown);
  ASSERT_TRUE(scope.raise(scope.generation(), 0, Flag::kFinal));
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow + std::chrono::hours{1}), Flag::kDown)
      << "who holds another item of the scope is no stranger";

  ScopeRules one = rules();
  one.allotments.resize(1);
  Scope alone(one);
  alone.set_fresh_until(kNow);
  ASSERT_TRUE(alone.raise(alone.generation(), 0, Flag::kFinal));
  EXPECT_EQ(alone.refuse(0, MemberId{2}, kNow + std::chrono::hours{1}), Flag::kFinal);
}

TEST(Scope, RefusesStrangersOnlyAndOnlyWhileTheFlagIsUp) {
  Scope scope(rules());
  scope.saw_holder(MemberId{1});
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow), Flag::kDown);
  ASSERT_TRUE(scope.raise(scope.generation(), 0, Flag::kUp));
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow), Flag::kUp);
  EXPECT_EQ(scope.refuse(0, MemberId{1}, kNow), Flag::kDown) << "the gate answers a holder";
  EXPECT_EQ(scope.refuse(1, MemberId{2}, kNow), Flag::kDown) << "each allotment has its own flag";
  ASSERT_TRUE(scope.raise(scope.generation(), 0, Flag::kFinal));
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow), Flag::kFinal);
  EXPECT_EQ(scope.refuse(0, MemberId{1}, kNow), Flag::kDown);
  scope.lower(0);
  EXPECT_EQ(scope.refuse(0, MemberId{2}, kNow), Flag::kDown);
}

TEST(Scope, AFlagIsNotRaisedFromAReadingOlderThanItsLastLowering) {
  Scope scope(rules());
  const std::uint64_t before = scope.generation();
  scope.lower(1);
  EXPECT_FALSE(scope.raise(before, 0, Flag::kUp)) << "any lowering counts";
  EXPECT_EQ(scope.flag(0), Flag::kDown);
  EXPECT_TRUE(scope.raise(scope.generation(), 0, Flag::kUp));
  const std::uint64_t second = scope.generation();
  scope.lower_all();
  EXPECT_EQ(scope.flag(0), Flag::kDown);
  EXPECT_FALSE(scope.raise(second, 0, Flag::kFinal));
}

// It may have raised the epoch before it failed, and then the one that ended well is of the past.
TEST(Scope, ARebuildThatEndsWellSaysNothingAboutOneThatFailedSinceItBegan) {
  Scope scope(rules());
  const int first = scope.rebuild_begins();
  const int second = scope.rebuild_begins();
  scope.rebuild_ends(Scope::RebuildEnd::kFailed, second);
  scope.rebuild_ends(Scope::RebuildEnd::kDone, first);
  EXPECT_TRUE(scope.rebuild_failed());
  EXPECT_FALSE(scope.rebuilding());
  Scope anew(rules());
  anew.succeed(scope);
  EXPECT_TRUE(anew.rebuild_failed()) << "it was prepared anew in between";
  const int third = scope.rebuild_begins();
  scope.rebuild_ends(Scope::RebuildEnd::kDone, third);
  EXPECT_FALSE(scope.rebuild_failed());
}

}  // namespace
}  // namespace doorbuster::engine

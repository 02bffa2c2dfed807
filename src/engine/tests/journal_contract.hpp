#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "engine/journal.hpp"
#include "engine/tests/support.hpp"

// The contract of every journal; see gate_contract.hpp for how an implementation joins.

namespace doorbuster::engine::testing {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct JournalMaker {
  std::string name;
  std::function<std::unique_ptr<Journal>(common::Executor& consumer, std::size_t seats)> make;
};

class JournalContract : public ::testing::TestWithParam<JournalMaker> {
 protected:
  std::unique_ptr<Journal> make(std::size_t seats) { return GetParam().make(home_, seats); }

  static Grant grant(std::int32_t slot) {
    Grant one;
    one.id.bytes[0] = static_cast<std::uint8_t>(slot >> 8);
    one.id.bytes[1] = static_cast<std::uint8_t>(slot & 0xFF);
    one.slot = Slot{slot};
    return one;
  }
  void append(Journal& journal, std::int32_t slot) {
    ASSERT_TRUE(journal.reserve_seat());
    ASSERT_TRUE(wait_here(journal.append(grant(slot))));
  }
  static std::vector<std::int32_t> slots(const std::vector<Grant>& batch) {
    std::vector<std::int32_t> list;
    for (const Grant& one : batch) list.push_back(one.slot.value());
    return list;
  }

  common::ManualClock clock_{kStart};
  StepExecutor home_{clock_};
};

TEST_P(JournalContract, J1HandsOutWhatWasAppendedInOrderAndEachOnce) {
  const auto journal = make(10);
  for (const std::int32_t slot : {3, 1, 2}) append(*journal, slot);
  EXPECT_EQ(journal->depth(), 3U);
  EXPECT_THAT(slots(home_.wait(journal->next_batch(10))), ElementsAre(3, 1, 2));
  journal->commit();
  EXPECT_EQ(journal->depth(), 0U);
  append(*journal, 4);
  EXPECT_THAT(slots(home_.wait(journal->next_batch(10))), ElementsAre(4));
}

TEST_P(JournalContract, ABatchIsAtMostAsLargeAsAsked) {
  const auto journal = make(10);
  for (std::int32_t slot = 1; slot <= 5; ++slot) append(*journal, slot);
  EXPECT_THAT(slots(home_.wait(journal->next_batch(2))), ElementsAre(1, 2));
  journal->commit();
  EXPECT_THAT(slots(home_.wait(journal->next_batch(2))), ElementsAre(3, 4));
  journal->commit();
  EXPECT_THAT(slots(home_.wait(journal->next_batch(2))), ElementsAre(5));
  journal->commit();
}

TEST_P(JournalContract, ABatchWaitsForNothingButAFirstGrant) {
  const auto journal = make(10);
  const auto batch = home_.begin(journal->next_batch(10));
  home_.run_ready();
  EXPECT_FALSE(batch->has_value());
  append(*journal, 1);
  home_.run_ready();
  ASSERT_TRUE(batch->has_value());
  EXPECT_THAT(slots(**batch), ElementsAre(1));
}

TEST_P(JournalContract, J2HasExactlyAsManySeatsAsItWasMadeWith) {
  const auto journal = make(2);
  EXPECT_TRUE(journal->reserve_seat());
  EXPECT_TRUE(journal->reserve_seat());
  EXPECT_FALSE(journal->reserve_seat());
  EXPECT_FALSE(journal->reserve_seat());
  journal->release_seat();
  EXPECT_TRUE(journal->reserve_seat());
  EXPECT_FALSE(journal->reserve_seat());
}

TEST_P(JournalContract, J2ASeatIsTakenUntilItsGrantIsCommitted) {
  const auto journal = make(2);
  append(*journal, 1);
  append(*journal, 2);
  EXPECT_FALSE(journal->reserve_seat()) << "both are queued";
  EXPECT_THAT(home_.wait(journal->next_batch(1)), ::testing::SizeIs(1));
  EXPECT_FALSE(journal->reserve_seat()) << "one is in the writer's hand";
  EXPECT_EQ(journal->depth(), 2U);
  journal->commit();
  EXPECT_TRUE(journal->reserve_seat());
  EXPECT_FALSE(journal->reserve_seat());
}

TEST_P(JournalContract, J2ManyThreadsNeverGetMoreSeatsThanThereAre) {
  const auto journal = make(100);
  std::atomic<int> seated{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        if (journal->reserve_seat()) ++seated;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seated.load(), 100);
}

TEST_P(JournalContract, J1NothingIsLostOrDoubledWhenManyThreadsAppend) {
  constexpr std::int32_t kThreads = 8;
  constexpr std::int32_t kEach = 200;
  const auto journal = make(kThreads * kEach);
  std::vector<std::thread> threads;
  for (std::int32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::int32_t j = 0; j < kEach; ++j) {
        EXPECT_TRUE(journal->reserve_seat());
        EXPECT_TRUE(wait_here(journal->append(grant(i * kEach + j + 1))));
      }
    });
  }
  std::multiset<std::int32_t> seen;
  std::vector<std::int32_t> newest(kThreads, 0);
  while (seen.size() < kThreads * kEach) {
    for (const std::int32_t slot : slots(home_.wait(journal->next_batch(64)))) {
      seen.insert(slot);
      std::int32_t& last = newest[static_cast<std::size_t>((slot - 1) / kEach)];
      EXPECT_LT(last, slot) << "in each thread's order";
      last = slot;
    }
    journal->commit();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::int32_t>(seen.begin(), seen.end()).size(), seen.size());
}

TEST_P(JournalContract, TheDrainWaitsForWhatWasAppendedBeforeItAndForNothingLater) {
  const auto journal = make(10);
  EXPECT_TRUE(home_.wait(journal->consumed_to_end())) << "nothing to wait for";
  append(*journal, 1);
  append(*journal, 2);
  const auto drained = home_.begin(journal->consumed_to_end());
  append(*journal, 3);
  home_.run_ready();
  EXPECT_FALSE(drained->has_value());
  EXPECT_THAT(slots(home_.wait(journal->next_batch(1))), ElementsAre(1));
  journal->commit();
  home_.run_ready();
  EXPECT_FALSE(drained->has_value()) << "2 is not committed";
  EXPECT_THAT(slots(home_.wait(journal->next_batch(1))), ElementsAre(2));
  home_.run_ready();
  EXPECT_FALSE(drained->has_value()) << "handed out is not recorded";
  journal->commit();
  home_.run_ready();
  ASSERT_TRUE(drained->has_value());
  EXPECT_TRUE(**drained);
  EXPECT_EQ(journal->depth(), 1U);
}

TEST_P(JournalContract, AStoppedJournalHandsOutTheRestRefusesMoreAndEndsEmpty) {
  const auto journal = make(2);
  append(*journal, 1);
  ASSERT_TRUE(journal->reserve_seat());
  journal->stop();
  const auto refused = wait_here(journal->append(grant(2)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, common::ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().proof, common::Proof::kDidNotHappen);
  EXPECT_TRUE(journal->reserve_seat()) << "the refused one's seat is free again";
  EXPECT_THAT(slots(home_.wait(journal->next_batch(10))), ElementsAre(1));
  journal->commit();
  EXPECT_THAT(home_.wait(journal->next_batch(10)), IsEmpty());
}

TEST_P(JournalContract, StoppingWakesAConsumerThatWaits) {
  const auto journal = make(2);
  const auto batch = home_.begin(journal->next_batch(10));
  home_.run_ready();
  ASSERT_FALSE(batch->has_value());
  journal->stop();
  home_.run_ready();
  ASSERT_TRUE(batch->has_value());
  EXPECT_THAT(**batch, IsEmpty());
}

TEST_P(JournalContract, AnAbandonedJournalTellsWhoWaitsForItsEnd) {
  // Else a rebuild or reclaim that waits for a writer which gave up would never end, nor the stop.
  const auto journal = make(3);
  append(*journal, 1);
  const auto drained = home_.begin(journal->consumed_to_end());
  home_.run_ready();
  ASSERT_FALSE(drained->has_value());
  journal->stop();
  journal->abandon();
  home_.run_ready();
  ASSERT_TRUE(drained->has_value());
  ASSERT_FALSE(**drained);
  EXPECT_EQ((*drained)->error().code, common::ErrorCode::kUnavailable);
  const auto later = home_.wait(journal->consumed_to_end());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, common::ErrorCode::kUnavailable);
}

}  // namespace doorbuster::engine::testing

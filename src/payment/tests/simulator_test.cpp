#include "payment/simulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/support.hpp"
#include "payment/attempt_store.hpp"

namespace doorbuster::payment {
namespace {

using common::ErrorCode;
using common::Money;
using common::Result;
using engine::testing::kStart;
using engine::testing::milliseconds;
using engine::testing::seconds;
using engine::testing::StepExecutor;
using engine::testing::Store;
using ::testing::ElementsAre;

AttemptId attempt(std::uint8_t n) {
  AttemptId id;
  id.bytes[15] = n;
  return id;
}

struct Bank : Store {
  ChargeResult charge(std::uint8_t n, const std::string& card) {
    ChargeRequest request{attempt(n), Money{1000, {}}, card};
    return home.wait(gateway->charge(home, std::move(request), clock.steady() + seconds{5}));
  }
  InquiryResult tell(std::uint8_t n) {
    return home.wait(gateway->cancel_or_tell(home, attempt(n)));
  }
  bool refund(std::uint8_t n) { return home.wait(gateway->refund(home, attempt(n))); }
  std::vector<std::string> book() const {
    return rows(
        "SELECT state || ' ' || amount || ' ' || charges FROM simulated_charge "
        "ORDER BY attempt_id");
  }
  StepExecutor home{clock};
  std::unique_ptr<PaymentGateway> gateway = make_simulator(*database, clock);
};

TEST(Simulator, ApprovesAndDeclinesByCardNumber) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000000"), ChargeResult::kApproved);
  EXPECT_EQ(bank.charge(2, "4000000000000002"), ChargeResult::kDeclined);
  EXPECT_THAT(bank.book(), ElementsAre("CHARGED 1000 1", "DECLINED 1000 0"));
  EXPECT_EQ(bank.tell(1), InquiryResult::kCharged);
  EXPECT_EQ(bank.tell(2), InquiryResult::kDeclined);
}

TEST(Simulator, WhatIsDecidedUnderAnIdStaysDecided) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000002"), ChargeResult::kDeclined);
  EXPECT_EQ(bank.charge(1, "4000000000000000"), ChargeResult::kDeclined);
  EXPECT_THAT(bank.book(), ElementsAre("DECLINED 1000 0"));
}

TEST(Simulator, ToldTwiceItChargesOnce) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000085"), ChargeResult::kApproved);
  EXPECT_EQ(bank.charge(1, "4000000000000085"), ChargeResult::kApproved);
  EXPECT_THAT(bank.book(), ElementsAre("CHARGED 1000 1"));
}

TEST(Simulator, ASilentChargeIsToldWhenAskedFor) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000119"), ChargeResult::kUnknown);
  EXPECT_EQ(bank.tell(1), InquiryResult::kCharged);
}

TEST(Simulator, AChargeThatNeverArrivedIsCancelledForGood) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000127"), ChargeResult::kUnknown);
  EXPECT_EQ(bank.tell(1), InquiryResult::kCanceled);
  EXPECT_EQ(bank.charge(1, "4000000000000000"), ChargeResult::kDeclined);
  EXPECT_EQ(bank.tell(1), InquiryResult::kCanceled);
}

TEST(Simulator, ASlowCardTakesThreeSecondsAndCanBeCancelledMeanwhile) {
  Bank bank;
  const auto slow = [&](std::uint8_t n) {
    ChargeRequest request{attempt(n), Money{1000, {}}, "4000000000000077"};
    return bank.home.begin(
        bank.gateway->charge(bank.home, std::move(request), bank.clock.steady() + seconds{5}));
  };
  const auto one = slow(1);
  const auto two = slow(2);
  EXPECT_EQ(bank.tell(2), InquiryResult::kCanceled);
  bank.clock.advance(seconds{3} - std::chrono::microseconds{1});
  bank.home.run_ready();
  EXPECT_FALSE(one->has_value());
  bank.clock.advance(std::chrono::microseconds{1});
  bank.home.until([&] { return one->has_value() && two->has_value(); });
  EXPECT_EQ(**one, ChargeResult::kApproved);
  EXPECT_EQ(**two, ChargeResult::kDeclined);
}

TEST(Simulator, RefundsOnceAndOnlyWhatWasCharged) {
  Bank bank;
  EXPECT_EQ(bank.charge(1, "4000000000000000"), ChargeResult::kApproved);
  EXPECT_EQ(bank.charge(2, "4000000000000002"), ChargeResult::kDeclined);
  EXPECT_TRUE(bank.refund(1));
  EXPECT_TRUE(bank.refund(1));
  EXPECT_TRUE(bank.refund(2));
  EXPECT_THAT(bank.book(), ElementsAre("REFUNDED 1000 1", "DECLINED 1000 0"));
}

/// Attempts of one order, whose row stands in the file.
struct Attempts : Store {
  Attempts() {
    run("INSERT INTO flash_sale_order (id, allotment, scope, epoch, member, slot, slot_limit, nth, "
        "per_member, state, amount, recorded_at, expires_at, due_at, updated_at) VALUES "
        "(x'00112233445566778899aabbccddeeff', 'i1', 's1', 1, 1, 1, 10, 1, 1, 'PENDING', 1000, 0, "
        "1, "
        "1, 0)");
    order = *common::parse_grant_id("00112233445566778899aabbccddeeff");
  }
  template <class T>
  Result<T> call(const std::function<Result<T>(db::Session&)>& work) const {
    std::optional<Result<T>> answer;
    write([&](db::Session& session) -> Result<common::Done> {
      answer.emplace(work(session));
      return common::Done{};
    });
    return std::move(*answer);
  }
  Result<common::Done> insert(std::uint8_t n) const {
    return call<common::Done>([&](db::Session& s) {
      return insert_attempt(s, {attempt(n), order, Money{1000, {}}}, "4242", kStart);
    });
  }
  bool decide(std::uint8_t n, AttemptState to) const {
    return *call<bool>([&](db::Session& s) { return decide_attempt(s, attempt(n), to, kStart); });
  }
  std::vector<AttemptId> undecided() const {
    const auto attempts =
        call<std::vector<Attempt>>([](db::Session& s) { return undecided_attempts(s, 10); });
    std::vector<AttemptId> list;
    for (const Attempt& one : *attempts) list.push_back(one.id);
    return list;
  }
  std::optional<Attempt> approved() const {
    return *call<std::optional<Attempt>>(
        [&](db::Session& s) { return approved_attempt(s, order); });
  }
  bool want(std::uint8_t n) const {
    return *call<bool>(
        [&](db::Session& s) { return want_refund(s, attempt(n), 1000, "WHY", kStart); });
  }
  std::vector<AttemptId> wanted() const {
    return *call<std::vector<AttemptId>>([](db::Session& s) { return wanted_refunds(s, 10); });
  }
  common::GrantId order;
};

TEST(AttemptStore, AnOrderHasOneOpenAttempt) {
  Attempts a;
  EXPECT_TRUE(a.insert(1));
  EXPECT_EQ(a.insert(2).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(a.decide(1, AttemptState::kDeclined));
  EXPECT_TRUE(a.insert(2));
  EXPECT_TRUE(a.decide(2, AttemptState::kUnknown));
  EXPECT_EQ(a.insert(3).error().code, ErrorCode::kConflict) << "an unknown one may yet be charged";
}

TEST(AttemptStore, AnAttemptIsDecidedOnce) {
  Attempts a;
  ASSERT_TRUE(a.insert(1));
  EXPECT_THAT(a.undecided(), ElementsAre(attempt(1)));
  EXPECT_TRUE(a.decide(1, AttemptState::kUnknown));
  EXPECT_THAT(a.undecided(), ElementsAre(attempt(1)));
  EXPECT_TRUE(a.decide(1, AttemptState::kApproved));
  for (const AttemptState to :
       {AttemptState::kDeclined, AttemptState::kCanceled, AttemptState::kApproved}) {
    EXPECT_FALSE(a.decide(1, to));
  }
  EXPECT_FALSE(a.decide(9, AttemptState::kApproved)) << "one that is not there";
  EXPECT_TRUE(a.undecided().empty());
  EXPECT_EQ(a.approved()->id, attempt(1));
  EXPECT_EQ(a.approved()->amount.amount, 1000);
}

TEST(AttemptStore, ARefundIsWantedOnceAndDoneOnce) {
  Attempts a;
  ASSERT_TRUE(a.insert(1));
  ASSERT_TRUE(a.decide(1, AttemptState::kApproved));
  EXPECT_TRUE(a.want(1));
  EXPECT_FALSE(a.want(1));
  EXPECT_THAT(a.wanted(), ElementsAre(attempt(1)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(
        a.call<common::Done>([](db::Session& s) { return refund_done(s, attempt(1), kStart); }));
    EXPECT_TRUE(a.wanted().empty());
  }
  EXPECT_FALSE(a.want(1)) << "a refund that is done is not wanted again";
}

TEST(AttemptStore, OfSeveralApprovedAttemptsTheOneThatIsNotRefundedCounts) {
  Attempts a;
  ASSERT_TRUE(a.insert(1));
  ASSERT_TRUE(a.decide(1, AttemptState::kApproved));
  ASSERT_TRUE(a.want(1));
  EXPECT_EQ(a.approved()->id, attempt(1));
  ASSERT_TRUE(a.insert(2));
  ASSERT_TRUE(a.decide(2, AttemptState::kApproved));
  EXPECT_EQ(a.approved()->id, attempt(2));
}

}  // namespace
}  // namespace doorbuster::payment

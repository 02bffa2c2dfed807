#include "sale/pay.hpp"

#include <gtest/gtest.h>

namespace doorbuster::sale {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr Instant kDue = common::from_micros(1'800'000'010'000'000);
constexpr Instant kMost = kDue + seconds{20};
constexpr microseconds kTick{1};

Order order(OrderState state, bool paying = false) {
  Order one;
  one.state = state;
  one.recorded_at = kDue - seconds{10};
  one.expires_at = kDue - seconds{1};
  one.due_at = kDue;
  if (paying) {
    one.attempt = engine::GrantId{};
    one.held_back_until = kMost;
  }
  return one;
}

TEST(DecideCall, AHoldIsLateFromTheInstantOfItsDeadlineOn) {
  const Order hold = order(OrderState::kPending);
  EXPECT_EQ(decide_call(hold, kDue - seconds{5}), OrderCall::kAllowed);
  EXPECT_EQ(decide_call(hold, kDue - kTick), OrderCall::kAllowed);
  EXPECT_EQ(decide_call(hold, kDue), OrderCall::kHoldExpired);
  EXPECT_EQ(decide_call(hold, kDue + kTick), OrderCall::kHoldExpired);
}

TEST(DecideCall, TheDeadlineInForceCountsAndNotTheEarlierPromise) {
  const Order hold = order(OrderState::kPending);
  ASSERT_LT(hold.expires_at, hold.due_at);
  EXPECT_EQ(decide_call(hold, hold.expires_at), OrderCall::kAllowed);
}

TEST(DecideCall, AnOpenAttemptIsInProgressUntilItsAbsoluteMaximum) {
  const Order paying = order(OrderState::kPending, true);
  for (const Instant now : {kDue - kTick, kDue, kDue + kTick, kMost - kTick}) {
    EXPECT_EQ(decide_call(paying, now), OrderCall::kInProgress);
  }
  EXPECT_EQ(decide_call(paying, kMost), OrderCall::kHoldExpired);
  EXPECT_EQ(decide_call(paying, kMost + kTick), OrderCall::kHoldExpired);
}

TEST(DecideCall, AStateThatIsOverIsAnsweredAtAnyTime) {
  struct Case {
    OrderState state;
    OrderCall call;
  };
  for (const Case& one : {Case{OrderState::kPaid, OrderCall::kAlreadyPaid},
                          Case{OrderState::kExpired, OrderCall::kHoldExpired},
                          Case{OrderState::kCanceled, OrderCall::kCanceled},
                          Case{OrderState::kRejected, OrderCall::kRejected}}) {
    for (const Instant now : {kDue - kTick, kDue, kDue + kTick, kMost, kMost + kTick}) {
      EXPECT_EQ(decide_call(order(one.state), now), one.call) << to_string(one.state);
      EXPECT_EQ(visible_state(order(one.state), now), one.state);
      EXPECT_FALSE(payable(order(one.state), now));
    }
  }
}

TEST(VisibleState, ADueHoldIsExpiredAlthoughTheJobHasNotBeenThere) {
  const Order hold = order(OrderState::kPending);
  EXPECT_EQ(visible_state(hold, kDue - kTick), OrderState::kPending);
  EXPECT_TRUE(payable(hold, kDue - kTick));
  EXPECT_EQ(visible_state(hold, kDue), OrderState::kExpired);
  EXPECT_FALSE(payable(hold, kDue));
}

TEST(VisibleState, AnOrderThatIsBeingPaidIsPendingAndNotPayable) {
  const Order paying = order(OrderState::kPending, true);
  EXPECT_EQ(visible_state(paying, kMost - kTick), OrderState::kPending);
  EXPECT_FALSE(payable(paying, kDue - kTick));
  EXPECT_EQ(visible_state(paying, kMost), OrderState::kExpired);
}

}  // namespace
}  // namespace doorbuster::sale

#include "rush/buyer.hpp"

#include <gtest/gtest.h>

namespace doorbuster::rush {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr Manners kPatient{.patience = seconds{60}};

struct Situation {
  Buyer buyer{.since_ns = 0};
  Random random{1};
  common::Instant now = common::from_micros(1'000'000'000);

  Move after(Step step, Answer answer, const Manners& manners = kPatient,
             nanoseconds spent = seconds{1}) {
    return decide(step, answer, manners, spent.count(), now, buyer, random);
  }
};

Answer of(AnswerKind kind) {
  Answer answer;
  answer.kind = kind;
  return answer;
}

TEST(Buyer, GoesHomeWithOneUnit) {
  Situation s;
  EXPECT_EQ(s.after(Step::kBuy, of(AnswerKind::kGranted)), Move{});
  EXPECT_EQ(s.buyer.ending, Ending::kGot);
}

TEST(Buyer, WhoHasOneAlreadyHasGotOne) {
  Situation s;
  EXPECT_EQ(s.after(Step::kBuy, of(AnswerKind::kAlready)), Move{});
  EXPECT_EQ(s.buyer.ending, Ending::kGot);
}

TEST(Buyer, TriesAgainAfterEverythingThatProvesNothing) {
  for (const AnswerKind kind :
       {AnswerKind::kBusy, AnswerKind::kLimited, AnswerKind::kServerError, AnswerKind::kPaused,
        AnswerKind::kConnectFailed, AnswerKind::kCut, AnswerKind::kNoAnswer}) {
    Situation s;
    const Move move = s.after(Step::kBuy, of(kind));
    EXPECT_EQ(move.step, Step::kBuy) << to_string(kind);
    EXPECT_GE(move.wait, milliseconds{200});
    EXPECT_LE(move.wait, milliseconds{1000});
    EXPECT_EQ(s.buyer.ending, Ending::kUnfinished);
  }
}

TEST(Buyer, WaitsAsLongAsRetryAfterSaysAndAtMostAFifthMore) {
  Situation s;
  Answer busy = of(AnswerKind::kBusy);
  busy.retry_after = seconds{5};
  for (int i = 0; i < 100; ++i) {
    const Move move = s.after(Step::kBuy, busy);
    EXPECT_GE(move.wait, seconds{5});
    EXPECT_LE(move.wait, seconds{6});
  }
}

TEST(Buyer, GivesUpWhenTheNextTryWouldBeAfterThePatience) {
  Answer busy = of(AnswerKind::kBusy);
  busy.retry_after = seconds{0};
  Situation in_time;
  EXPECT_EQ(in_time.after(Step::kBuy, busy, kPatient, seconds{60}).step, Step::kBuy);
  Situation late;
  EXPECT_EQ(late.after(Step::kBuy, busy, kPatient, seconds{60} + nanoseconds{1}), Move{});
  EXPECT_EQ(late.buyer.ending, Ending::kGaveUp);
}

TEST(Buyer, DoesNotComeBackAfterFinal) {
  const Manners returning{.patience = seconds{60}, .come_back = seconds{2}};
  Answer gone = of(AnswerKind::kSoldOut);
  Situation maybe;
  EXPECT_EQ(maybe.after(Step::kBuy, gone, returning), (Move{Step::kBuy, seconds{2}}));
  EXPECT_EQ(maybe.buyer.ending, Ending::kUnfinished);
  Situation never;
  EXPECT_EQ(never.after(Step::kBuy, gone), Move{});
  EXPECT_EQ(never.buyer.ending, Ending::kSoldOut);
  Situation tired;
  EXPECT_EQ(tired.after(Step::kBuy, gone, returning, seconds{59}), Move{});
  EXPECT_EQ(tired.buyer.ending, Ending::kSoldOut);
  gone.final = true;
  Situation final;
  EXPECT_EQ(final.after(Step::kBuy, gone, returning), Move{});
  EXPECT_EQ(final.buyer.ending, Ending::kSoldOut);
}

TEST(Buyer, WaitsForTheOpeningUnlessItIsBeyondThePatience) {
  Situation s;
  Answer closed = of(AnswerKind::kNotOpen);
  closed.opens_us = common::to_micros(s.now + seconds{10});
  const Move move = s.after(Step::kBuy, closed);
  EXPECT_EQ(move.step, Step::kBuy);
  EXPECT_GE(move.wait, seconds{10});
  EXPECT_LE(move.wait, seconds{10} + milliseconds{50});
  closed.opens_us = common::to_micros(s.now + seconds{3600});
  EXPECT_EQ(s.after(Step::kBuy, closed), Move{});
  EXPECT_EQ(s.buyer.ending, Ending::kRefused);
}

TEST(Buyer, DoesNotAskAgainWhereThatCannotHelp) {
  for (const AnswerKind kind :
       {AnswerKind::kClosed, AnswerKind::kForbidden, AnswerKind::kUnauthorized,
        AnswerKind::kNotFound, AnswerKind::kOther}) {
    Situation s;
    EXPECT_EQ(s.after(Step::kBuy, of(kind)), Move{}) << to_string(kind);
    EXPECT_EQ(s.buyer.ending, Ending::kRefused);
  }
}

TEST(Buyer, AsksAgainLooksAndPays) {
  const Manners all{.patience = seconds{60}, .pay_share = 1, .ask_again_share = 1};
  Situation s;
  EXPECT_EQ(s.after(Step::kBuy, of(AnswerKind::kGranted), all).step, Step::kAskAgain);
  EXPECT_EQ(s.buyer.since_ns, -1) << "each step has a patience of its own";
  EXPECT_EQ(s.after(Step::kAskAgain, of(AnswerKind::kAlready), all).step, Step::kLook);
  Answer order = of(AnswerKind::kOrder);
  order.status = OrderStatus::kPending;
  EXPECT_EQ(s.after(Step::kLook, order, all).step, Step::kLook) << "not payable yet";
  order.payable = true;
  EXPECT_EQ(s.after(Step::kLook, order, all).step, Step::kPay);
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kNotReady), all).step, Step::kPay);
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kCut), all).step, Step::kPay);
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kPayUnknown), all).step, Step::kLookAfter);
  EXPECT_EQ(s.after(Step::kLookAfter, order, all).step, Step::kLookAfter);
  order.status = OrderStatus::kPaid;
  EXPECT_EQ(s.after(Step::kLookAfter, order, all), Move{});
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kPaid), all), Move{});
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kDeclined), all), Move{});
  EXPECT_EQ(s.after(Step::kPay, of(AnswerKind::kPayRefused), all), Move{});
  EXPECT_EQ(s.buyer.ending, Ending::kGot);
}

TEST(Buyer, WhoHoldsAndIsToldSoldOutStillHolds) {
  Situation s;
  EXPECT_EQ(
      s.after(Step::kBuy, of(AnswerKind::kGranted), {.patience = seconds{60}, .ask_again_share = 1})
          .step,
      Step::kAskAgain);
  EXPECT_EQ(s.after(Step::kAskAgain, of(AnswerKind::kSoldOut)), Move{});
  EXPECT_EQ(s.buyer.ending, Ending::kGot);
}

}  // namespace
}  // namespace doorbuster::rush

#include "payment/payments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "payment/tests/fake_gateway.hpp"
#include "sale/tests/support.hpp"

namespace doorbuster::payment::testing {
namespace {

using common::GrantId;
using common::Money;
using engine::testing::kStart;
using engine::testing::milliseconds;
using engine::testing::seconds;
using engine::testing::words;
using sale::Order;
using sale::OrderCall;
using sale::OrderState;
using sale::testing::kTick;
using sale::testing::SaleShop;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Payments::Kind;
using Entry = FakeGateway::Entry;

constexpr std::int64_t kPrice = 1000;

/// A shop with member 1's hold of 10 s, payments, and a gateway that the test controls.
struct Till : SaleShop {
  explicit Till(engine::testing::StoreOptions wanted = {.quantity = 3}) : SaleShop(wanted) {
    prepare();
    id = bought(1).id;
  }

  Payments::PayRequest request(const GrantId& order, std::string idempotency = {},
                               std::string body = "body", std::int64_t amount = kPrice) const {
    return {.order = order,
            .amount = Money{amount, {}},
            .card_number = "4000000000000000",
            .subject = "m1",
            .route = "POST /pay/" + common::to_string(order),
            .key = std::move(idempotency),
            .body = std::move(body)};
  }
  using Paying = std::shared_ptr<std::optional<Payments::Outcome>>;
  [[nodiscard]] Paying begin_pay(Payments::PayRequest wanted) {
    return home.begin(payments.pay(home, std::move(wanted)));
  }
  [[nodiscard]] Paying begin_pay() { return begin_pay(request(id)); }
  Payments::Outcome finish(const Paying& paying) {
    home.until([&] { return paying->has_value(); });
    quiet();
    return **paying;
  }
  Payments::Outcome pay(Payments::PayRequest wanted) {
    return finish(begin_pay(std::move(wanted)));
  }
  Payments::Outcome pay() { return pay(request(id)); }
  /// A payment whose charge is at the gateway and not decided.
  [[nodiscard]] Paying pay_slowly() {
    gateway.hold_charges();
    Paying paying = begin_pay();
    home.until([&] { return gateway.waiting() == 1; });
    return paying;
  }

  bool cancel(const GrantId& order) {
    const bool canceled = in_write<bool>(
        [&](db::Session& session) { return sale::cancel_order(session, order, clock.now()); });
    engine->steps_written();
    quiet();
    return canceled;
  }
  std::int64_t reconcile() {
    const auto changed = home.wait(payments.reconcile(home));
    EXPECT_TRUE(changed);
    quiet();
    return *changed;
  }
  [[nodiscard]] OrderState state() const { return order(id).state; }
  [[nodiscard]] std::vector<std::string> attempts() const {
    return rows("SELECT state FROM payment_attempt ORDER BY id");
  }
  [[nodiscard]] std::vector<std::string> refund_rows() const {
    return rows("SELECT state || ' ' || reason FROM refund");
  }

  /// M2, M3: as much money is kept as PAID orders cost, each by one approved attempt, and each
  /// state was entered once.
  void expect_money_matches_orders(const std::string& where = {}) {
    const std::int64_t paid = number("SELECT count(*) FROM flash_sale_order WHERE state = 'PAID'");
    EXPECT_EQ(gateway.money_kept(), paid * kPrice) << where;
    EXPECT_EQ(number("SELECT count(*) FROM flash_sale_order o WHERE o.state = 'PAID' AND 1 <> "
                     "(SELECT count(*) FROM payment_attempt a LEFT JOIN refund r ON r.attempt_id = "
                     "a.id WHERE a.order_id = o.id AND a.state = 'APPROVED' AND r.attempt_id IS "
                     "NULL)"),
              0)
        << where;
    EXPECT_EQ(number("SELECT count(*) FROM refund WHERE state = 'WANTED'"), 0) << where;
    EXPECT_EQ(number("SELECT count(*) FROM payment_attempt WHERE state IN ('OPEN', 'UNKNOWN')"), 0)
        << where;
    EXPECT_EQ(number("SELECT count(*) FROM flash_sale_order_history"),
              number("SELECT count(*) + sum(state <> 'PENDING') FROM flash_sale_order"))
        << where;
    EXPECT_EQ(free() + held(), options.quantity) << where;
  }

  GrantId id;
  FakeGateway gateway;
  Payments payments{parts, gateway, home, milliseconds{5000}};
};

TEST(Payments, AnApprovedPaymentMakesTheOrderPaidForGood) {
  Till till;
  const Payments::Outcome outcome = till.pay();
  EXPECT_EQ(outcome.kind, Kind::kPaid);
  EXPECT_EQ(outcome.order->state, OrderState::kPaid);
  EXPECT_THAT(till.attempts(), ElementsAre("APPROVED"));
  till.advance(seconds{60});
  EXPECT_EQ(till.state(), OrderState::kPaid);
  EXPECT_EQ(words(till.take(1)), "holding") << "the gate knows that it has no deadline";
  till.expect_money_matches_orders();
}

TEST(Payments, ADeclinedPaymentLeavesTheHoldAsItWas) {
  Till till;
  till.gateway.decline_next();
  EXPECT_EQ(till.pay().kind, Kind::kDeclined);
  EXPECT_EQ(till.state(), OrderState::kPending);
  EXPECT_FALSE(till.order(till.id).attempt);
  EXPECT_EQ(till.order(till.id).due_at, kStart + seconds{10});
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  EXPECT_THAT(till.attempts(), ElementsAre("DECLINED", "APPROVED"));
  till.expect_money_matches_orders();
}

TEST(Payments, ADeclineAfterTheDeadlineEndsTheHold) {
  Till till;
  till.gateway.decline_next();
  const auto paying = till.pay_slowly();
  till.advance(seconds{15});
  EXPECT_EQ(till.state(), OrderState::kPending) << "held back";
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kDeclined);
  till.advance(seconds{1});
  EXPECT_EQ(till.state(), OrderState::kExpired);
  till.expect_money_matches_orders();
}

// M1. Let pay() call the gateway before its write and this row is not there yet.
TEST(Payments, AnAttemptRowExistsBeforeTheGatewayIsCalled) {
  Till till;
  const auto paying = till.pay_slowly();
  EXPECT_THAT(till.rows("SELECT state || ' ' || card_last4 FROM payment_attempt"),
              ElementsAre("OPEN 0000"));
  EXPECT_TRUE(till.order(till.id).attempt);
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kPaid);
}

TEST(Payments, TheCardNumberIsNotStored) {
  Till till;
  till.pay();
  EXPECT_EQ(till.number("SELECT count(*) FROM payment_attempt WHERE length(card_last4) > 4"), 0);
}

TEST(Payments, AWrongAmountOrCurrencyChargesNothing) {
  Till till;
  for (const std::int64_t amount : {kPrice - 1, kPrice + 1, std::int64_t{0}}) {
    EXPECT_EQ(till.pay(till.request(till.id, {}, "body", amount)).kind, Kind::kWrongAmount);
  }
  Payments::PayRequest dollars = till.request(till.id);
  dollars.amount.currency = *common::parse_currency("USD");
  EXPECT_EQ(till.pay(dollars).kind, Kind::kWrongAmount);
  EXPECT_EQ(till.gateway.charges(), 0U);
  EXPECT_THAT(till.attempts(), IsEmpty());
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
}

TEST(Payments, AnOrderWithoutARowIsNotReady) {
  Till till;
  EXPECT_EQ(till.pay(till.request(GrantId{})).kind, Kind::kNoOrder);
  EXPECT_EQ(till.gateway.charges(), 0U);
}

TEST(Payments, AreAcceptedUntilJustBeforeTheDeadlineAndNotAtIt) {
  {
    Till till;
    till.clock.advance(seconds{10} - kTick);
    EXPECT_EQ(till.pay().kind, Kind::kPaid);
  }
  Till till;
  till.clock.advance(seconds{10});
  const Payments::Outcome late = till.pay();
  EXPECT_EQ(late.kind, Kind::kRefused);
  EXPECT_EQ(late.refusal, OrderCall::kHoldExpired);
  EXPECT_EQ(till.gateway.charges(), 0U);
}

// A4, each pair in each forced order. The second one always comes while the first is decided
// already or is at the gateway.

TEST(Race, ASecondPaymentWhileTheFirstIsAtTheGateway) {
  Till till;
  const auto first = till.pay_slowly();
  const Payments::Outcome second = till.pay();
  EXPECT_EQ(second.kind, Kind::kRefused);
  EXPECT_EQ(second.refusal, OrderCall::kInProgress);
  till.gateway.let_go();
  EXPECT_EQ(till.finish(first).kind, Kind::kPaid);
  EXPECT_EQ(till.gateway.charges(), 1U);
  till.expect_money_matches_orders();
}

TEST(Race, ASecondPaymentAfterTheFirst) {
  Till till;
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  const Payments::Outcome second = till.pay();
  EXPECT_EQ(second.kind, Kind::kRefused);
  EXPECT_EQ(second.refusal, OrderCall::kAlreadyPaid);
  EXPECT_EQ(till.gateway.charges(), 1U);
  till.expect_money_matches_orders();
}

TEST(Race, TwoPaymentsAtTheSameInstant) {
  // Schedule 24.
  Till till;
  const auto one = till.begin_pay();
  const auto two = till.begin_pay();
  const Payments::Outcome first = till.finish(one);
  const Payments::Outcome second = till.finish(two);
  EXPECT_EQ((first.kind == Kind::kPaid) + (second.kind == Kind::kPaid), 1);
  EXPECT_EQ(till.gateway.charges(), 1U);
  till.expect_money_matches_orders();
}

TEST(Race, ACancelWhileThePaymentIsAtTheGatewayLoses) {
  Till till;
  const auto paying = till.pay_slowly();
  EXPECT_FALSE(till.cancel(till.id));
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kPaid);
  till.expect_money_matches_orders();
}

TEST(Race, ACancelBeforeThePaymentWins) {
  Till till;
  EXPECT_TRUE(till.cancel(till.id));
  const Payments::Outcome outcome = till.pay();
  EXPECT_EQ(outcome.kind, Kind::kRefused);
  EXPECT_EQ(outcome.refusal, OrderCall::kCanceled);
  EXPECT_EQ(till.gateway.charges(), 0U);
  till.expect_money_matches_orders();
}

TEST(Race, ACancelAfterThePaymentLoses) {
  Till till;
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  EXPECT_FALSE(till.cancel(till.id));
  till.expect_money_matches_orders();
}

TEST(Race, ExpiryWaitsForAPaymentThatIsAtTheGateway) {
  Till till;
  const auto paying = till.pay_slowly();
  till.advance(seconds{30} - kTick);
  EXPECT_EQ(till.state(), OrderState::kPending);
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kPaid);
  till.expect_money_matches_orders();
}

// M3. Take want_refund() out of settle() and the money stays.
TEST(Race, APaymentThatIsApprovedAfterTheAbsoluteMaximumIsRefunded) {
  Till till;
  const auto paying = till.pay_slowly();
  till.advance(seconds{31});
  EXPECT_EQ(till.state(), OrderState::kExpired);
  till.gateway.let_go();
  const Payments::Outcome outcome = till.finish(paying);
  EXPECT_EQ(outcome.kind, Kind::kRefused);
  EXPECT_EQ(outcome.refusal, OrderCall::kHoldExpired);
  EXPECT_EQ(till.gateway.count(Entry::kRefunded), 1U);
  EXPECT_THAT(till.refund_rows(), ElementsAre("DONE ORDER_ENDED"));
  till.expect_money_matches_orders();
}

TEST(Race, AtTheAbsoluteMaximumItIsLateAlsoBeforeTheJobHasBeenThere) {
  Till till;
  till.ledger->hold(engine::testing::Op::kExpire);
  const auto paying = till.pay_slowly();
  till.clock.advance(seconds{30});
  ASSERT_EQ(till.state(), OrderState::kPending);
  till.gateway.let_go();
  const Payments::Outcome outcome = till.finish(paying);
  EXPECT_EQ(outcome.kind, Kind::kRefused);
  EXPECT_EQ(outcome.refusal, OrderCall::kHoldExpired);
  EXPECT_EQ(till.gateway.money_kept(), 0);
  till.ledger->release(engine::testing::Op::kExpire);
  till.advance(seconds{2});
  EXPECT_EQ(till.state(), OrderState::kExpired);
  till.expect_money_matches_orders();
}

TEST(Race, ExpiryBeforeThePaymentWins) {
  Till till;
  till.advance(seconds{11});
  EXPECT_EQ(till.state(), OrderState::kExpired);
  const Payments::Outcome outcome = till.pay();
  EXPECT_EQ(outcome.refusal, OrderCall::kHoldExpired);
  EXPECT_EQ(till.gateway.charges(), 0U);
  till.expect_money_matches_orders();
}

TEST(Race, ALatePaymentOfAnOldHoldDoesNotTouchTheNewOne) {
  // Case 6: the unit is sold to another (b), and the member holds a newer one (c).
  Till till({.quantity = 2});
  const auto paying = till.pay_slowly();
  till.advance(seconds{31});
  const GrantId others = till.bought(2).id;
  const GrantId newer = till.bought(1).id;
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kRefused);
  EXPECT_EQ(till.order(newer).state, OrderState::kPending);
  EXPECT_EQ(till.order(others).state, OrderState::kPending);
  EXPECT_EQ(till.pay(till.request(newer)).kind, Kind::kPaid);
  EXPECT_EQ(till.gateway.count(Entry::kRefunded), 1U);
  till.expect_money_matches_orders();
}

// Every order of four things that can happen to a hold, each at the gateway's mercy.
TEST(Race, InEveryOrderOfPaymentCancelExpiryAndSecondPaymentNoMoneyIsKeptWithoutAPaidOrder) {
  std::string events = "1CE2";
  std::sort(events.begin(), events.end());
  do {
    for (const bool answered_last : {false, true}) {
      Till till;
      // With answered_last the charges stay at the gateway until everything else has happened.
      if (answered_last) till.gateway.hold_charges();
      std::vector<Till::Paying> paying;
      int canceled = 0;
      for (const char event : events) {
        switch (event) {
          case 'C':
            canceled += till.cancel(till.id) ? 1 : 0;
            break;
          case 'E':
            till.advance(seconds{31});
            break;
          default:
            paying.push_back(till.begin_pay());
            till.home.until(
                [&] { return paying.back()->has_value() || till.gateway.waiting() > 0; });
        }
      }
      till.gateway.let_go();
      int paid = 0;
      for (const auto& one : paying) paid += till.finish(one).kind == Kind::kPaid ? 1 : 0;
      const std::string where = events + (answered_last ? ", answered last" : "");
      till.advance(seconds{31});
      const OrderState state = till.state();
      EXPECT_EQ(paid, state == OrderState::kPaid ? 1 : 0) << where;
      EXPECT_EQ(canceled, state == OrderState::kCanceled ? 1 : 0) << where;
      EXPECT_NE(state, OrderState::kPending) << where;
      till.expect_money_matches_orders(where);
      // The first event decides, but for a payment that the gateway sits on for too long.
      const char first = events[0];
      const bool too_slow = answered_last;
      const OrderState expected = first == 'C'   ? OrderState::kCanceled
                                  : first == 'E' ? OrderState::kExpired
                                  : too_slow     ? OrderState::kExpired
                                                 : OrderState::kPaid;
      EXPECT_EQ(state, expected) << where;
    }
  } while (std::next_permutation(events.begin(), events.end()));
}

// M4.

TEST(Unknown, AChargeWhoseAnswerWasLostIsFoundAndTheOrderIsPaid) {
  Till till;
  till.gateway.lose_next_answer();
  EXPECT_EQ(till.pay().kind, Kind::kUnknown);
  EXPECT_EQ(till.state(), OrderState::kPending);
  const Payments::Outcome meanwhile = till.pay();
  EXPECT_EQ(meanwhile.refusal, OrderCall::kInProgress) << "nobody pays twice for want of an answer";
  EXPECT_FALSE(till.cancel(till.id));
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_EQ(till.state(), OrderState::kPaid);
  EXPECT_EQ(till.reconcile(), 0);
  till.expect_money_matches_orders();
}

TEST(Unknown, AChargeThatNeverArrivedIsCancelledAndTheOrderMayBePaidAgain) {
  Till till;
  till.gateway.lose_next_request();
  EXPECT_EQ(till.pay().kind, Kind::kUnknown);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_EQ(till.state(), OrderState::kPending);
  EXPECT_THAT(till.attempts(), ElementsAre("CANCELED"));
  EXPECT_EQ(till.gateway.count(Entry::kCanceled), 1U) << "it cannot be charged later";
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  till.expect_money_matches_orders();
}

TEST(Unknown, IsNeverGuessedWhileTheGatewayIsSilent) {
  Till till;
  till.gateway.lose_next_answer();
  EXPECT_EQ(till.pay().kind, Kind::kUnknown);
  till.gateway.set_silent(true);
  EXPECT_EQ(till.reconcile(), 0);
  EXPECT_EQ(till.state(), OrderState::kPending);
  EXPECT_THAT(till.attempts(), ElementsAre("OPEN"));
  till.advance(seconds{31});
  EXPECT_EQ(till.state(), OrderState::kExpired) << "the absolute maximum";
  EXPECT_EQ(till.reconcile(), 0);
  till.gateway.set_silent(false);
  EXPECT_GE(till.reconcile(), 1);
  EXPECT_EQ(till.gateway.money_kept(), 0) << "charged, too late, given back";
  till.expect_money_matches_orders();
}

TEST(Unknown, ADeclineWhoseAnswerWasLostReleasesTheHold) {
  Till till;
  till.gateway.decline_next();
  till.gateway.lose_next_answer();
  EXPECT_EQ(till.pay().kind, Kind::kUnknown);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_THAT(till.attempts(), ElementsAre("DECLINED"));
  EXPECT_FALSE(till.order(till.id).attempt);
  till.expect_money_matches_orders();
}

// Take the look at running_ out of reconcile() and the job cancels a charge under a waiting
// request.
TEST(Reconcile, LeavesAttemptsAloneThatARequestWaitsFor) {
  Till till;
  const auto paying = till.pay_slowly();
  EXPECT_EQ(till.reconcile(), 0);
  EXPECT_EQ(till.gateway.inquiries(), 0U);
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kPaid);
}

TEST(Reconcile, TwiceAtOnceDecidesOnce) {
  Till till;
  till.gateway.lose_next_answer();
  EXPECT_EQ(till.pay().kind, Kind::kUnknown);
  const auto one = till.home.begin(till.payments.reconcile(till.home));
  const auto two = till.home.begin(till.payments.reconcile(till.home));
  till.home.until([&] { return one->has_value() && two->has_value(); });
  EXPECT_EQ(***one + ***two, 1);
  EXPECT_EQ(till.state(), OrderState::kPaid);
  till.expect_money_matches_orders();
}

/// What a process leaves that is killed between its attempt row and the gateway's answer.
AttemptId attempt_of_a_killed_process(Till& till) {
  AttemptId attempt;
  attempt.bytes[0] = 0xC0;
  till.write([&](db::Session& session) -> common::Result<common::Done> {
    const auto begun = sale::begin_payment(session, till.id, attempt, till.clock.now());
    EXPECT_TRUE(begun && *begun);
    return insert_attempt(session, {attempt, till.id, Money{kPrice, {}}}, "0000", till.clock.now());
  });
  return attempt;
}

TEST(Crash, AnOpenAttemptThatWasChargedBecomesAPaidOrder) {
  Till till;
  till.gateway.charged_before(attempt_of_a_killed_process(till), kPrice);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_EQ(till.state(), OrderState::kPaid);
  EXPECT_EQ(till.reconcile(), 0);
  till.expect_money_matches_orders();
}

TEST(Crash, AnOpenAttemptThatNeverReachedTheGatewayIsReleased) {
  Till till;
  attempt_of_a_killed_process(till);
  EXPECT_EQ(till.pay().refusal, OrderCall::kInProgress);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_THAT(till.attempts(), ElementsAre("CANCELED"));
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  till.expect_money_matches_orders();
}

TEST(Crash, AChargeWhoseHoldIsOverIsRefunded) {
  Till till;
  till.gateway.charged_before(attempt_of_a_killed_process(till), kPrice);
  till.advance(seconds{31});
  ASSERT_EQ(till.state(), OrderState::kExpired);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_EQ(till.gateway.count(Entry::kRefunded), 1U);
  till.expect_money_matches_orders();
}

TEST(Crash, ARefundThatWasWantedAndNotSentIsSent) {
  Till till;
  const auto paying = till.pay_slowly();
  till.advance(seconds{31});
  till.gateway.fail_refunds(1);
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kRefused);
  EXPECT_THAT(till.refund_rows(), ElementsAre("WANTED ORDER_ENDED"));
  EXPECT_EQ(till.gateway.money_kept(), kPrice);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_THAT(till.refund_rows(), ElementsAre("DONE ORDER_ENDED"));
  EXPECT_EQ(till.reconcile(), 0);
  EXPECT_EQ(till.gateway.refund_calls(), 2U);
  till.expect_money_matches_orders();
}

TEST(Job, ReconcilesAtOnceAndAfterEachUnknownOutcomeUntilItIsStopped) {
  Till till;
  till.gateway.charged_before(attempt_of_a_killed_process(till), kPrice);
  common::WaitGroup running;
  running.start(till.home, [&] { return till.payments.run(); });
  till.home.until([&] { return till.state() == OrderState::kPaid; });
  const GrantId second = till.bought(2).id;
  till.gateway.lose_next_answer();
  EXPECT_EQ(till.pay(till.request(second)).kind, Kind::kUnknown);
  till.advance(seconds{2});
  till.home.until([&] { return till.order(second).state == OrderState::kPaid; });
  till.payments.stop();
  till.home.until([&] { return running.running() == 0; });
  till.expect_money_matches_orders();
}

TEST(Keys, TheSamePaymentAgainIsAnsweredAsTheFirstTime) {
  Till till;
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kPaid);
  till.clock.advance(seconds{3600});
  const Payments::Outcome again = till.pay(till.request(till.id, "k"));
  ASSERT_EQ(again.kind, Kind::kReplayed);
  EXPECT_EQ(again.replay->status, 200);
  EXPECT_THAT(again.replay->body, ::testing::HasSubstr(R"("status":"PAID")"));
  EXPECT_EQ(till.gateway.charges(), 1U);
}

TEST(Keys, ADeclineIsReplayedAndAnotherKeyIsAnotherTry) {
  Till till;
  till.gateway.decline_next();
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kDeclined);
  const Payments::Outcome again = till.pay(till.request(till.id, "k"));
  ASSERT_EQ(again.kind, Kind::kReplayed);
  EXPECT_EQ(again.replay->status, 402);
  EXPECT_EQ(till.gateway.charges(), 1U);
  EXPECT_EQ(till.pay(till.request(till.id, "other")).kind, Kind::kPaid);
}

TEST(Keys, AnotherBodyUnderTheSameKeyIsRefused) {
  Till till;
  EXPECT_EQ(till.pay(till.request(till.id, "k", "one")).kind, Kind::kPaid);
  EXPECT_EQ(till.pay(till.request(till.id, "k", "two")).kind, Kind::kKeyReused);
  EXPECT_EQ(till.gateway.charges(), 1U);
}

TEST(Keys, AreIndependentByMemberAndRoute) {
  Till till;
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kPaid);
  const GrantId second = till.bought(2).id;
  Payments::PayRequest others = till.request(second, "k");
  others.subject = "m2";
  EXPECT_EQ(till.pay(others).kind, Kind::kPaid);
  Payments::PayRequest stranger = till.request(till.id, "k");
  stranger.subject = "m3";
  EXPECT_EQ(till.pay(stranger).kind, Kind::kRefused) << "not another member's answer";
}

TEST(Keys, AnUnknownOutcomeAndARefusalAreNotKept) {
  Till till;
  till.gateway.lose_next_request();
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kUnknown);
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kRefused) << "in progress";
  till.reconcile();
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kPaid);
  EXPECT_EQ(till.pay(till.request(till.id, "k")).kind, Kind::kReplayed);
}

TEST(Keys, WithoutAKeyNothingIsReplayed) {
  Till till;
  EXPECT_EQ(till.pay().kind, Kind::kPaid);
  EXPECT_EQ(till.pay().kind, Kind::kRefused);
  EXPECT_EQ(till.number("SELECT count(*) FROM idempotency_answer"), 0);
}

TEST(Keys, ARefusedLatePaymentIsNotKeptAsPaid) {
  Till till;
  till.gateway.hold_charges();
  const auto paying = till.begin_pay(till.request(till.id, "k"));
  till.home.until([&] { return till.gateway.waiting() == 1; });
  till.advance(seconds{31});
  till.gateway.let_go();
  EXPECT_EQ(till.finish(paying).kind, Kind::kRefused);
  EXPECT_EQ(till.number("SELECT count(*) FROM idempotency_answer"), 0);
}

const admin::Actor kAdmin{"alice", "r-1"};

TEST(Refund, OfAPaidOrderGivesTheMoneyBackOnceAndKeepsTheSlot) {
  Till till;
  const auto refund = [&] {
    const auto done = till.home.wait(till.payments.refund(till.home, till.id, kAdmin, "broken"));
    EXPECT_TRUE(done);
    return *done;
  };
  EXPECT_FALSE(refund()) << "not paid";
  ASSERT_EQ(till.pay().kind, Kind::kPaid);
  for (int i = 0; i < 2; ++i) {
    const auto done = refund();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->amount.amount, kPrice);
    EXPECT_TRUE(done->done);
  }
  EXPECT_EQ(till.gateway.money_kept(), 0);
  EXPECT_EQ(till.gateway.count(Entry::kRefunded), 1U);
  EXPECT_EQ(till.state(), OrderState::kPaid);
  EXPECT_EQ(till.free(), 2);
  EXPECT_THAT(till.refund_rows(), ElementsAre("DONE broken"));
  EXPECT_THAT(till.rows("SELECT admin || ' ' || action || ' ' || detail FROM audit_log"),
              ElementsAre(R"(alice order.refund {"reason":"broken"})"));
}

TEST(Refund, WhereTheSaleSellsRefundsAgainTheUnitComesBack) {
  Till till;
  till.run("UPDATE flash_sale SET resell_refunds = 1");
  till.advance(seconds{1});
  ASSERT_EQ(till.pay().kind, Kind::kPaid);
  till.advance(seconds{1});
  ASSERT_TRUE(till.home.wait(till.payments.refund(till.home, till.id, kAdmin, "broken")));
  till.quiet();
  EXPECT_EQ(till.state(), OrderState::kCanceled);
  EXPECT_EQ(till.free(), 3);
  EXPECT_EQ(words(till.take(1)), "granted 1");
  EXPECT_EQ(till.gateway.money_kept(), 0);
  EXPECT_THAT(till.history(till.id), ElementsAre("PENDING", "PAID", "CANCELED"));
}

TEST(Refund, ThatTheGatewayDoesNotTakeNowIsWantedUntilItDoes) {
  Till till;
  ASSERT_EQ(till.pay().kind, Kind::kPaid);
  till.gateway.fail_refunds(1);
  const auto wanted = till.home.wait(till.payments.refund(till.home, till.id, kAdmin, "broken"));
  ASSERT_TRUE(wanted && *wanted);
  EXPECT_FALSE((*wanted)->done);
  EXPECT_EQ(till.reconcile(), 1);
  EXPECT_EQ(till.gateway.money_kept(), 0);
}

}  // namespace
}  // namespace doorbuster::payment::testing

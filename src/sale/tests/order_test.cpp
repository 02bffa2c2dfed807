#include "sale/order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sale/pay.hpp"
#include "sale/tests/support.hpp"

namespace doorbuster::sale::testing {
namespace {

using common::Result;
using engine::GrantId;
using ::testing::ElementsAre;

GrantId attempt(std::uint8_t n) {
  GrantId id;
  id.bytes[0] = 0xA0;
  id.bytes[15] = n;
  return id;
}

bool begins(const SaleShop& shop, const GrantId& id, std::uint8_t n) {
  return shop.in_write<bool>(
      [&](db::Session& s) { return begin_payment(s, id, attempt(n), shop.clock.now()); });
}
bool settles(const SaleShop& shop, const GrantId& id, std::uint8_t n) {
  return shop.in_write<bool>(
      [&](db::Session& s) { return settle_paid(s, id, attempt(n), shop.clock.now()); });
}
void releases(const SaleShop& shop, const GrantId& id, std::uint8_t n) {
  shop.in_write<common::Done>(
      [&](db::Session& s) { return release_payment(s, id, attempt(n), shop.clock.now()); });
}
bool cancels(const SaleShop& shop, const GrantId& id) {
  return shop.in_write<bool>([&](db::Session& s) { return cancel_order(s, id, shop.clock.now()); });
}
bool refunds(const SaleShop& shop, const GrantId& id) {
  return shop.in_write<bool>([&](db::Session& s) { return refund_order(s, id, shop.clock.now()); });
}
std::int64_t returns(const SaleShop& shop, const GrantId& id) {
  return shop.number(
      fmt::format("SELECT count(*) FROM outbox WHERE grant_id = x'{}'", common::to_string(id)));
}

/// A shop whose relay and expiry stand still, so that the rows alone are looked at.
engine::EngineConfig rows_only() {
  engine::EngineConfig config;
  config.expiry_every = config.relay_every = std::chrono::hours{1};
  return config;
}

struct OrderShop : SaleShop {
  OrderShop() : SaleShop({.quantity = 2}, rows_only()) {
    prepare();
    id = bought(1).id;
  }
  GrantId id;
};

TEST(OrderStore, ReadsAnOrderAsItWasRecorded) {
  OrderShop shop;
  const Order order = shop.order(shop.id);
  EXPECT_EQ(order.id, shop.id);
  EXPECT_EQ(order.allotment, (engine::AllotmentId{'i', 1}));
  EXPECT_EQ(order.scope, (engine::ScopeId{'s', 1}));
  EXPECT_EQ(order.member, MemberId{1});
  EXPECT_EQ(order.slot, engine::Slot{1});
  EXPECT_EQ(order.nth, engine::Nth{1});
  EXPECT_EQ(order.state, OrderState::kPending);
  EXPECT_EQ(order.amount, (Money{1000, {}}));
  EXPECT_EQ(order.recorded_at, kStart);
  EXPECT_EQ(order.due_at, kStart + seconds{10});
  EXPECT_FALSE(order.attempt);
  EXPECT_EQ(order.reason, "");
  const auto missing =
      shop.in_write<std::optional<Order>>([](db::Session& s) { return find_order(s, attempt(9)); });
  EXPECT_FALSE(missing);
}

TEST(OrderStore, TheAmountIsTheOneOfTheMomentOfBuying) {
  // Case 13.
  OrderShop shop;
  shop.run("UPDATE flash_sale_item SET sale_price = 1, name = 'other'");
  EXPECT_EQ(shop.order(shop.id).amount.amount, 1000);
}

TEST(BeginPayment, IsAllowedUntilJustBeforeTheDeadline) {
  OrderShop shop;
  shop.clock.advance(seconds{10} - kTick);
  EXPECT_TRUE(begins(shop, shop.id, 1));
  const Order order = shop.order(shop.id);
  EXPECT_EQ(order.attempt, attempt(1));
  EXPECT_EQ(order.held_back_until, kStart + seconds{30}) << "counted from recording";
}

TEST(BeginPayment, IsLateAtTheDeadlineAlthoughTheJobHasNotBeenThere) {
  OrderShop shop;
  shop.clock.advance(seconds{10});
  EXPECT_FALSE(begins(shop, shop.id, 1));
  EXPECT_EQ(shop.order(shop.id).state, OrderState::kPending);
  EXPECT_EQ(decide_call(shop.order(shop.id), shop.clock.now()), OrderCall::kHoldExpired);
}

TEST(BeginPayment, OneAttemptAtATimeAndAnotherAfterItsEnd) {
  OrderShop shop;
  EXPECT_TRUE(begins(shop, shop.id, 1));
  EXPECT_FALSE(begins(shop, shop.id, 2));
  EXPECT_FALSE(begins(shop, shop.id, 1));
  releases(shop, shop.id, 2);
  EXPECT_EQ(shop.order(shop.id).attempt, attempt(1)) << "another attempt's end is not its end";
  releases(shop, shop.id, 1);
  releases(shop, shop.id, 1);
  EXPECT_FALSE(shop.order(shop.id).attempt);
  EXPECT_TRUE(begins(shop, shop.id, 2));
}

TEST(SettlePaid, HappensOnceAndForTheAttemptThatIsOpen) {
  OrderShop shop;
  EXPECT_FALSE(settles(shop, shop.id, 1)) << "no attempt";
  ASSERT_TRUE(begins(shop, shop.id, 1));
  EXPECT_FALSE(settles(shop, shop.id, 2));
  EXPECT_TRUE(settles(shop, shop.id, 1));
  EXPECT_FALSE(settles(shop, shop.id, 1));
  EXPECT_EQ(shop.order(shop.id).state, OrderState::kPaid);
  EXPECT_THAT(shop.history(shop.id), ElementsAre("PENDING", "PAID"));
  EXPECT_EQ(returns(shop, shop.id), 0);
}

TEST(SettlePaid, AnAttemptThatBeganInTimeMayEndAfterTheDeadline) {
  OrderShop shop;
  ASSERT_TRUE(begins(shop, shop.id, 1));
  shop.clock.advance(seconds{15});
  EXPECT_TRUE(settles(shop, shop.id, 1));
}

// Take the look at held_back_until out of settle_paid() and an order that its owner has seen
// EXPIRED becomes PAID.
TEST(SettlePaid, IsLateFromTheAbsoluteMaximumOnAlthoughTheJobHasNotBeenThere) {
  {
    OrderShop shop;
    ASSERT_TRUE(begins(shop, shop.id, 1));
    shop.clock.advance(seconds{30} - kTick);
    EXPECT_TRUE(settles(shop, shop.id, 1));
  }
  OrderShop shop;
  ASSERT_TRUE(begins(shop, shop.id, 1));
  shop.clock.advance(seconds{30});
  EXPECT_EQ(visible_state(shop.order(shop.id), shop.clock.now()), OrderState::kExpired);
  EXPECT_FALSE(settles(shop, shop.id, 1));
  EXPECT_EQ(shop.order(shop.id).state, OrderState::kPending) << "expiry ends it";
}

TEST(CancelOrder, FreesTheUnitOnceUntilJustBeforeTheDeadline) {
  OrderShop shop;
  shop.clock.advance(seconds{10} - kTick);
  EXPECT_TRUE(cancels(shop, shop.id));
  EXPECT_FALSE(cancels(shop, shop.id));
  EXPECT_EQ(shop.order(shop.id).state, OrderState::kCanceled);
  EXPECT_EQ(shop.order(shop.id).reason, "") << "why is in the history";
  EXPECT_THAT(shop.history(shop.id), ElementsAre("PENDING", "CANCELED"));
  EXPECT_EQ(returns(shop, shop.id), 1);
  EXPECT_FALSE(begins(shop, shop.id, 1));
}

TEST(CancelOrder, IsLateAtTheDeadline) {
  OrderShop shop;
  shop.clock.advance(seconds{10});
  EXPECT_FALSE(cancels(shop, shop.id));
  EXPECT_EQ(returns(shop, shop.id), 0);
}

TEST(CancelOrder, NeitherWhileItIsBeingPaidNorAfterThat) {
  OrderShop shop;
  ASSERT_TRUE(begins(shop, shop.id, 1));
  EXPECT_FALSE(cancels(shop, shop.id));
  ASSERT_TRUE(settles(shop, shop.id, 1));
  EXPECT_FALSE(cancels(shop, shop.id));
  EXPECT_EQ(shop.order(shop.id).state, OrderState::kPaid);
  EXPECT_EQ(returns(shop, shop.id), 0);
}

TEST(RefundOrder, KeepsTheUnitUnlessTheSaleSellsRefundsAgain) {
  for (const bool resells : {false, true}) {
    OrderShop shop;
    shop.run(fmt::format("UPDATE flash_sale SET resell_refunds = {}", resells ? 1 : 0));
    EXPECT_FALSE(refunds(shop, shop.id)) << "not paid";
    ASSERT_TRUE(begins(shop, shop.id, 1));
    ASSERT_TRUE(settles(shop, shop.id, 1));
    EXPECT_EQ(refunds(shop, shop.id), resells);
    EXPECT_FALSE(refunds(shop, shop.id)) << "once";
    EXPECT_EQ(shop.order(shop.id).state, resells ? OrderState::kCanceled : OrderState::kPaid);
    EXPECT_EQ(returns(shop, shop.id), resells ? 1 : 0);
    EXPECT_EQ(shop.number("SELECT sold FROM flash_sale_item"), resells ? 0 : 1);
  }
}

// Case 5: every edge of the state machine, and no other.
TEST(OrderStates, OnlyPendingIsLeftButForARefund) {
  struct State {
    const char* name;
    OrderState state;
  };
  for (const State& one : {State{"PAID", OrderState::kPaid}, State{"EXPIRED", OrderState::kExpired},
                           State{"CANCELED", OrderState::kCanceled}}) {
    OrderShop shop;
    shop.run(fmt::format("UPDATE flash_sale_order SET state = '{}'", one.name));
    EXPECT_FALSE(begins(shop, shop.id, 1)) << one.name;
    EXPECT_FALSE(settles(shop, shop.id, 1)) << one.name;
    releases(shop, shop.id, 1);
    EXPECT_FALSE(cancels(shop, shop.id)) << one.name;
    shop.clock.advance(seconds{60});
    EXPECT_EQ(*shop.home.wait(shop.engine->expire_now(shop.home)), 0) << one.name;
    EXPECT_EQ(shop.order(shop.id).state, one.state);
    EXPECT_EQ(returns(shop, shop.id), 0);
  }
}

TEST(OrderLists, AMembersOrdersAreListedOldestFirstWithoutMergedOnes) {
  OrderShop shop;
  ASSERT_TRUE(cancels(shop, shop.id));
  shop.engine->steps_written();
  shop.quiet();
  shop.clock.advance(milliseconds{5});
  const GrantId second = shop.bought(1).id;
  const GrantId others = shop.bought(2).id;
  const auto mine = [&](std::int64_t sale, std::int64_t member, std::int64_t limit) {
    std::vector<GrantId> list;
    for (const Order& order : shop.in_write<std::vector<Order>>(
             [&](db::Session& s) { return orders_of(s, SaleId{sale}, MemberId{member}, limit); })) {
      list.push_back(order.id);
    }
    return list;
  };
  EXPECT_THAT(mine(1, 1, 10), ElementsAre(shop.id, second));
  EXPECT_THAT(mine(1, 1, 1), ElementsAre(shop.id));
  EXPECT_THAT(mine(2, 1, 10), ElementsAre());
  EXPECT_THAT(mine(1, 2, 10), ElementsAre(others));
  shop.run(fmt::format("UPDATE flash_sale_order SET merged_into = x'{}' WHERE id = x'{}'",
                       common::to_string(second), common::to_string(shop.id)));
  EXPECT_THAT(mine(1, 1, 10), ElementsAre(second));
}

TEST(OrderLists, AnItemsOrdersComeInPagesByTheirIds) {
  SaleShop shop({.quantity = 5}, rows_only());
  shop.prepare();
  std::vector<GrantId> bought;
  for (std::int64_t member = 1; member <= 5; ++member) bought.push_back(shop.bought(member).id);
  std::vector<GrantId> seen;
  std::optional<GrantId> after;
  for (;;) {
    const auto page = shop.in_write<std::vector<Order>>(
        [&](db::Session& s) { return orders_after(s, {'i', 1}, after, 2); });
    for (const Order& order : page) seen.push_back(order.id);
    if (page.size() < 2) break;
    after = page.back().id;
  }
  EXPECT_EQ(seen, bought);
  EXPECT_TRUE(shop.in_write<std::vector<Order>>(
                      [&](db::Session& s) { return orders_after(s, {'i', 2}, std::nullopt, 2); })
                  .empty());
}

}  // namespace
}  // namespace doorbuster::sale::testing

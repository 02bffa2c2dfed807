#include "sale/sale.hpp"

#include <gtest/gtest.h>

namespace doorbuster::sale {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr Instant kOpens = common::from_micros(1'800'000'000'000'000);
constexpr Instant kCloses = kOpens + seconds{3600};
constexpr microseconds kTick{1};

Sale sale(SaleState state) {
  Sale one;
  one.state = state;
  one.opens_at = kOpens;
  one.closes_at = kCloses;
  return one;
}

TEST(Admission, IsHalfOpenByTheServersClock) {
  const Sale open = sale(SaleState::kOpen);
  EXPECT_EQ(admit(open, kOpens - kTick), Admission::kNotOpen);
  EXPECT_EQ(admit(open, kOpens), Admission::kOpen);
  EXPECT_EQ(admit(open, kOpens + kTick), Admission::kOpen);
  EXPECT_EQ(admit(open, kCloses - kTick), Admission::kOpen);
  EXPECT_EQ(admit(open, kCloses), Admission::kClosed);
  EXPECT_EQ(admit(open, kCloses + kTick), Admission::kClosed);
}

TEST(Admission, APausedSaleSaysSoOnlyInItsWindow) {
  const Sale paused = sale(SaleState::kPaused);
  EXPECT_EQ(admit(paused, kOpens - kTick), Admission::kNotOpen);
  EXPECT_EQ(admit(paused, kOpens), Admission::kPaused);
  EXPECT_EQ(admit(paused, kCloses - kTick), Admission::kPaused);
  EXPECT_EQ(admit(paused, kCloses), Admission::kClosed);
}

TEST(Admission, ADraftIsHiddenAndAClosedOrSettledSaleIsClosedAtAnyTime) {
  for (const Instant now : {kOpens - kTick, kOpens, kCloses - kTick, kCloses, kCloses + kTick}) {
    EXPECT_EQ(admit(sale(SaleState::kDraft), now), Admission::kHidden);
    EXPECT_EQ(admit(sale(SaleState::kClosed), now), Admission::kClosed);
    EXPECT_EQ(admit(sale(SaleState::kSettled), now), Admission::kClosed);
  }
}

TEST(Beginning, IsTheMarginBeforeTheOpeningAndNeverForADraft) {
  for (const SaleState state :
       {SaleState::kOpen, SaleState::kPaused, SaleState::kClosed, SaleState::kSettled}) {
    EXPECT_FALSE(has_begun(sale(state), kOpens - kChangeMargin - kTick));
    EXPECT_TRUE(has_begun(sale(state), kOpens - kChangeMargin));
    EXPECT_TRUE(has_begun(sale(state), kOpens + seconds{1}));
  }
  EXPECT_FALSE(has_begun(sale(SaleState::kDraft), kCloses));
}

TEST(SaleStates, HaveOneSpellingEach) {
  for (const SaleState state : {SaleState::kDraft, SaleState::kOpen, SaleState::kPaused,
                                SaleState::kClosed, SaleState::kSettled}) {
    EXPECT_EQ(parse_sale_state(to_string(state)), state);
  }
  EXPECT_DEATH(static_cast<void>(parse_sale_state("OPENED")), "the schema allows only these");
}

Item item(std::int64_t id, engine::ScopeId scope) {
  Item one;
  one.id = ItemId{id};
  one.allotment = {'i', id};
  one.scope = scope;
  one.sale_price = Money{id * 100, {}};
  one.quantity = static_cast<std::int32_t>(id);
  return one;
}

TEST(Scopes, ASalesLimitIsOneScopeWithAllItems) {
  Sale one = sale(SaleState::kOpen);
  one.per_member = 2;
  one.hold = seconds{77};
  one.items = {item(3, {'s', 9}), item(4, {'s', 9})};
  const auto scopes = scope_rules(one);
  ASSERT_EQ(scopes.size(), 1U);
  EXPECT_EQ(scopes[0].id, (engine::ScopeId{'s', 9}));
  EXPECT_EQ(scopes[0].per_member, 2);
  ASSERT_EQ(scopes[0].allotments.size(), 2U);
  EXPECT_EQ(scopes[0].allotments[1].id, (engine::AllotmentId{'i', 4}));
  EXPECT_EQ(scopes[0].allotments[1].quantity, 4);
  EXPECT_EQ(scopes[0].allotments[1].amount, 400);
  EXPECT_EQ(scopes[0].allotments[1].hold, seconds{77});
}

TEST(Scopes, AnItemsLimitIsAScopeForEachItem) {
  Sale one = sale(SaleState::kOpen);
  one.limit_scope = LimitScope::kItem;
  one.items = {item(3, {'i', 3}), item(4, {'i', 4})};
  const auto scopes = scope_rules(one);
  ASSERT_EQ(scopes.size(), 2U);
  EXPECT_EQ(scopes[0].id, (engine::ScopeId{'i', 3}));
  EXPECT_EQ(scopes[1].id, (engine::ScopeId{'i', 4}));
  EXPECT_EQ(scopes[1].allotments.size(), 1U);
}

TEST(Scopes, NothingIsFinalWhereRefundedUnitsAreSoldAgain) {
  Sale one = sale(SaleState::kOpen);
  one.items = {item(3, {'s', 9})};
  EXPECT_TRUE(scope_rules(one)[0].allotments[0].may_become_final);
  one.resell_refunds = true;
  EXPECT_FALSE(scope_rules(one)[0].allotments[0].may_become_final);
}

}  // namespace
}  // namespace doorbuster::sale

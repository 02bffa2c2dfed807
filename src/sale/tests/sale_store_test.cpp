#include "sale/sale_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sale/tests/support.hpp"

namespace doorbuster::sale::testing {
namespace {

using common::Done;
using common::ErrorCode;
using common::Result;
using ::testing::ElementsAre;

/// A migrated file whose seeded sale is gone.
struct EmptyStore : engine::testing::Store {
  EmptyStore() {
    run("DELETE FROM flash_sale_item");
    run("DELETE FROM flash_sale");
  }
  template <class T>
  Result<T> attempt(const std::function<Result<T>(db::Session&)>& work) const {
    std::optional<Result<T>> answer;
    write([&](db::Session& session) -> Result<Done> {
      answer.emplace(work(session));
      return Done{};
    });
    return std::move(*answer);
  }
  template <class T>
  T must(const std::function<Result<T>(db::Session&)>& work) const {
    Result<T> answer = attempt<T>(work);
    DOORBUSTER_ENSURE(answer.has_value(), "the test's call succeeds");
    return std::move(*answer);
  }

  Sale draft() const {
    Sale sale;
    sale.name = "first rush";
    sale.opens_at = kStart + seconds{60};
    sale.closes_at = kStart + seconds{120};
    sale.per_member = 2;
    sale.hold = seconds{300};
    sale.hold_max = seconds{900};
    sale.resell_refunds = true;
    return sale;
  }
  SaleId insert(const Sale& sale) const {
    return must<SaleId>([&](db::Session& s) { return insert_sale(s, sale, kStart); });
  }
  ItemId insert(const Sale& sale, const Item& item) const {
    return must<ItemId>([&](db::Session& s) { return insert_item(s, sale, item, kStart); });
  }
  std::optional<Sale> find(SaleId id) const {
    return must<std::optional<Sale>>([&](db::Session& s) { return find_sale(s, id); });
  }
  static Item thing() {
    Item item;
    item.name = "thing";
    item.list_price = Money{2000, {}};
    item.sale_price = Money{1500, {}};
    item.quantity = 7;
    return item;
  }
  static std::vector<std::int64_t> numbers(const std::vector<Sale>& sales) {
    std::vector<std::int64_t> list;
    for (const Sale& sale : sales) list.push_back(sale.id.value());
    return list;
  }
};

TEST(SaleStore, KeepsASaleWithItsItems) {
  EmptyStore store;
  Sale sale = store.draft();
  sale.id = store.insert(sale);
  const ItemId one = store.insert(sale, EmptyStore::thing());
  const ItemId two = store.insert(sale, EmptyStore::thing());
  const std::optional<Sale> found = store.find(sale.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "first rush");
  EXPECT_EQ(found->state, SaleState::kDraft);
  EXPECT_EQ(found->opens_at, sale.opens_at);
  EXPECT_EQ(found->closes_at, sale.closes_at);
  EXPECT_EQ(found->limit_scope, LimitScope::kSale);
  EXPECT_EQ(found->per_member, 2);
  EXPECT_EQ(found->hold, seconds{300});
  EXPECT_EQ(found->hold_max, seconds{900});
  EXPECT_TRUE(found->resell_refunds);
  ASSERT_EQ(found->items.size(), 2U);
  EXPECT_EQ(found->items[0].id, one);
  EXPECT_EQ(found->items[1].id, two);
  EXPECT_EQ(found->items[0].allotment, (engine::AllotmentId{'i', one.value()}));
  EXPECT_EQ(found->items[0].scope, (engine::ScopeId{'s', sale.id.value()}));
  EXPECT_EQ(found->items[0].per_member, 2) << "the sale's";
  EXPECT_EQ(found->items[0].sale_price, (Money{1500, {}}));
  EXPECT_EQ(found->items[0].quantity, 7);
  EXPECT_FALSE(store.find(SaleId{sale.id.value() + 1}));
}

TEST(SaleStore, WithALimitPerItemEachItemIsItsOwnScope) {
  EmptyStore store;
  Sale sale = store.draft();
  sale.limit_scope = LimitScope::kItem;
  sale.id = store.insert(sale);
  const ItemId one = store.insert(sale, EmptyStore::thing());
  const std::optional<Sale> found = store.find(sale.id);
  EXPECT_EQ(found->limit_scope, LimitScope::kItem);
  EXPECT_EQ(found->items[0].scope, (engine::ScopeId{'i', one.value()}));
}

TEST(SaleStore, FindsTheSaleOfAnItem) {
  EmptyStore store;
  Sale sale = store.draft();
  sale.id = store.insert(sale);
  const ItemId one = store.insert(sale, EmptyStore::thing());
  const auto of = [&](std::int64_t id) {
    return store.must<std::optional<Sale>>(
        [&](db::Session& s) { return find_sale_of_item(s, ItemId{id}); });
  };
  EXPECT_EQ(of(one.value())->id, sale.id);
  EXPECT_FALSE(of(one.value() + 1));
}

TEST(SaleStore, AChangedLimitReachesTheItems) {
  EmptyStore store;
  Sale sale = store.draft();
  sale.id = store.insert(sale);
  store.insert(sale, EmptyStore::thing());
  sale.per_member = 5;
  sale.name = "renamed";
  store.must<Done>([&](db::Session& s) { return update_sale(s, sale, kStart); });
  const std::optional<Sale> found = store.find(sale.id);
  EXPECT_EQ(found->name, "renamed");
  EXPECT_EQ(found->per_member, 5);
  EXPECT_EQ(found->items[0].per_member, 5);
  sale.id = SaleId{99};
  EXPECT_EQ(store.attempt<Done>([&](db::Session& s) { return update_sale(s, sale, kStart); })
                .error()
                .code,
            ErrorCode::kNotFound);
}

TEST(SaleStore, ItemsAreChangedAndDeleted) {
  EmptyStore store;
  Sale sale = store.draft();
  sale.id = store.insert(sale);
  Item item = EmptyStore::thing();
  item.id = store.insert(sale, item);
  item.name = "other";
  item.quantity = 9;
  item.sale_price.amount = 1;
  store.must<Done>([&](db::Session& s) { return update_item(s, item, kStart); });
  EXPECT_EQ(store.find(sale.id)->items[0].name, "other");
  EXPECT_EQ(store.find(sale.id)->items[0].quantity, 9);
  EXPECT_EQ(store.find(sale.id)->items[0].sale_price.amount, 1);
  store.must<Done>([&](db::Session& s) { return delete_item(s, item.id); });
  EXPECT_TRUE(store.find(sale.id)->items.empty());
  EXPECT_EQ(
      store.attempt<Done>([&](db::Session& s) { return delete_item(s, item.id); }).error().code,
      ErrorCode::kNotFound);
  EXPECT_EQ(store.attempt<Done>([&](db::Session& s) { return update_item(s, item, kStart); })
                .error()
                .code,
            ErrorCode::kNotFound);
}

TEST(SaleStore, AnItemWithOrdersKeepsQuantityAndLimit) {
  // The foreign key of every order repeats the limits, so nothing can widen them afterwards.
  SaleShop shop({.quantity = 2});
  shop.prepare();
  shop.bought(1);
  const auto attempt = [&](const std::function<Result<Done>(db::Session&)>& work) {
    std::optional<Result<Done>> answer;
    shop.write([&](db::Session& session) -> Result<Done> {
      answer.emplace(work(session));
      return Done{};
    });
    return *answer;
  };
  Sale sale =
      *shop.in_write<std::optional<Sale>>([](db::Session& s) { return find_sale(s, SaleId{1}); });
  sale.items[0].quantity = 3;
  EXPECT_EQ(
      attempt([&](db::Session& s) { return update_item(s, sale.items[0], kStart); }).error().code,
      ErrorCode::kConflict);
  EXPECT_EQ(attempt([&](db::Session& s) { return delete_item(s, ItemId{1}); }).error().code,
            ErrorCode::kConflict);
  sale.per_member = 2;
  EXPECT_EQ(attempt([&](db::Session& s) { return update_sale(s, sale, kStart); }).error().code,
            ErrorCode::kConflict);
}

TEST(SaleStore, AStateChangesOnlyFromTheOneThatIsNamed) {
  EmptyStore store;
  const SaleId id = store.insert(store.draft());
  const auto change = [&](SaleState from, SaleState to) {
    return store.must<bool>(
        [&](db::Session& s) { return change_sale_state(s, id, from, to, kStart); });
  };
  EXPECT_FALSE(change(SaleState::kOpen, SaleState::kPaused));
  EXPECT_TRUE(change(SaleState::kDraft, SaleState::kOpen));
  EXPECT_FALSE(change(SaleState::kDraft, SaleState::kOpen)) << "two administrators at once";
  EXPECT_EQ(store.find(id)->state, SaleState::kOpen);
}

TEST(SaleStore, PagesOfSalesHideDraftsFromBuyers) {
  EmptyStore store;
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(store.insert(store.draft()).value());
  store.run(
      fmt::format("UPDATE flash_sale SET state = 'OPEN' WHERE id IN ({}, {})", ids[1], ids[3]));
  const auto page = [&](std::int64_t after, std::int64_t limit, bool drafts) {
    return EmptyStore::numbers(store.must<std::vector<Sale>>(
        [&](db::Session& s) { return sales_after(s, after, limit, drafts); }));
  };
  EXPECT_EQ(page(0, 10, true), ids);
  EXPECT_THAT(page(0, 10, false), ElementsAre(ids[1], ids[3]));
  EXPECT_THAT(page(ids[1], 10, false), ElementsAre(ids[3]));
  EXPECT_THAT(page(0, 2, true), ElementsAre(ids[0], ids[1]));
  EXPECT_TRUE(page(ids[3], 10, true).empty());
}

TEST(SaleStore, TheCatalogsListHasTheNewestOfTheSettledOnes) {
  EmptyStore store;
  const SaleId live = store.insert(store.draft());
  std::vector<std::int64_t> settled;
  for (int i = 0; i < kSettledListed + 3; ++i)
    settled.push_back(store.insert(store.draft()).value());
  store.run(fmt::format("UPDATE flash_sale SET state = 'SETTLED' WHERE id <> {}", live.value()));
  const auto list = EmptyStore::numbers(
      store.must<std::vector<Sale>>([](db::Session& s) { return live_sales(s); }));
  ASSERT_EQ(list.size(), static_cast<std::size_t>(kSettledListed) + 1);
  EXPECT_EQ(list.front(), live.value());
  EXPECT_EQ(list[1], settled[3]);
  EXPECT_EQ(list.back(), settled.back());
}

}  // namespace
}  // namespace doorbuster::sale::testing

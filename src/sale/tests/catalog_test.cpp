#include "sale/catalog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>

#include "sale/jobs.hpp"
#include "sale/tests/support.hpp"

namespace doorbuster::sale::testing {
namespace {

using ::testing::ElementsAre;

void reload(SaleShop& shop, Catalog& catalog) {
  ASSERT_TRUE(shop.home.wait(catalog.reload(shop.home)));
}

TEST(Catalog, IsEmptyBeforeItsFirstReading) {
  SaleShop shop;
  EXPECT_TRUE(shop.catalog.current().sales.empty());
  EXPECT_TRUE(shop.catalog.current().items.empty());
  EXPECT_EQ(shop.catalog.current().find(SaleId{1}), nullptr);
}

TEST(Catalog, PreparesTheGateOfEverySaleThatIsSwitchedOn) {
  for (const auto& [state, prepared] :
       {std::pair("DRAFT", false), std::pair("OPEN", true), std::pair("PAUSED", true),
        std::pair("CLOSED", true), std::pair("SETTLED", false)}) {
    SaleShop shop;
    shop.run(fmt::format("UPDATE flash_sale SET state = '{}'", state));
    ASSERT_TRUE(shop.home.wait(shop.catalog.prepare_all(shop.home)));
    const Snapshot& snapshot = shop.catalog.current();
    ASSERT_NE(snapshot.find(SaleId{1}), nullptr);
    ASSERT_TRUE(snapshot.items.contains(1));
    EXPECT_EQ(snapshot.items.at(1).scope != nullptr, prepared) << state;
    EXPECT_EQ(shop.engine->find({'s', 1}) != nullptr, prepared) << state;
  }
}

TEST(Catalog, AnItemsViewLeadsToItsPlaceInTheScope) {
  SaleShop shop({.items = 3});
  ASSERT_TRUE(shop.home.wait(shop.catalog.prepare_all(shop.home)));
  for (std::int64_t id = 1; id <= 3; ++id) {
    const ItemView& view = shop.catalog.current().items.at(id);
    EXPECT_EQ(view.get().id, ItemId{id});
    ASSERT_NE(view.scope, nullptr);
    EXPECT_EQ(view.scope->rules().allotments[view.index].id, (engine::AllotmentId{'i', id}));
  }
}

TEST(Catalog, AReadingChangesNothingUntilItIsMadeAndThenEverything) {
  SaleShop shop;
  reload(shop, shop.catalog);
  EXPECT_EQ(shop.catalog.current().items.at(1).scope, nullptr) << "not prepared";
  const auto before = shop.catalog.current().find(SaleId{1});
  shop.run("UPDATE flash_sale SET state = 'PAUSED'");
  EXPECT_EQ(shop.catalog.current().find(SaleId{1})->state, SaleState::kOpen);
  shop.prepare();
  reload(shop, shop.catalog);
  EXPECT_EQ(shop.catalog.current().find(SaleId{1})->state, SaleState::kPaused);
  EXPECT_NE(shop.catalog.current().items.at(1).scope, nullptr);
  EXPECT_EQ(before->state, SaleState::kOpen) << "who holds the old one reads on in it";
}

TEST(Catalog, EachThreadSeesANewReading) {
  SaleShop shop;
  reload(shop, shop.catalog);
  const auto state = [&] { return shop.catalog.current().find(SaleId{1})->state; };
  std::atomic<int> step{0};
  std::thread other([&] {
    EXPECT_EQ(state(), SaleState::kOpen);
    step.store(1);
    step.notify_all();
    step.wait(1);
    EXPECT_EQ(state(), SaleState::kPaused);
  });
  step.wait(0);
  shop.run("UPDATE flash_sale SET state = 'PAUSED'");
  reload(shop, shop.catalog);
  step.store(2);
  step.notify_all();
  other.join();
}

// Recognise a catalog by its address alone and the second one shows the first one's sales.
TEST(Catalog, AnotherOneAtTheSameAddressIsAnotherOne) {
  SaleShop shop;
  alignas(Catalog) std::array<std::byte, sizeof(Catalog)> place{};
  Catalog* catalog = new (place.data()) Catalog(*shop.database, *shop.engine);
  reload(shop, *catalog);
  ASSERT_EQ(catalog->current().sales.size(), 1U);
  std::destroy_at(catalog);
  shop.run("UPDATE flash_sale SET state = 'PAUSED'");
  catalog = new (place.data()) Catalog(*shop.database, *shop.engine);
  EXPECT_TRUE(catalog->current().sales.empty());
  reload(shop, *catalog);
  EXPECT_EQ(catalog->current().sales.at(0)->state, SaleState::kPaused);
  std::destroy_at(catalog);
}

struct JobShop : SaleShop {
  JobShop() : SaleShop({.quantity = 3}) {
    run(fmt::format("UPDATE flash_sale SET opens_at = {}, closes_at = {}",
                    common::to_micros(kStart), common::to_micros(kStart + seconds{5})));
    EXPECT_TRUE(home.wait(catalog.prepare_all(home)));
    scope = engine->find({'s', 1});
  }
  std::int64_t close() {
    const auto changed = home.wait(jobs.close_events_for(home));
    EXPECT_TRUE(changed);
    return *changed;
  }
  std::string state() const { return rows("SELECT state FROM flash_sale").at(0); }
  SaleJobs jobs{parts, home};
};

TEST(SaleJobs, CloseASaleFromTheInstantOfItsEndOn) {
  JobShop shop;
  shop.clock.advance(seconds{5} - kTick);
  EXPECT_EQ(shop.close(), 0);
  EXPECT_EQ(shop.state(), "OPEN");
  shop.clock.advance(kTick);
  EXPECT_EQ(shop.close(), 1);
  EXPECT_EQ(shop.state(), "CLOSED");
  EXPECT_EQ(shop.catalog.current().find(SaleId{1})->state, SaleState::kClosed);
  EXPECT_THAT(shop.rows("SELECT admin || ' ' || action || ' ' || target FROM audit_log"),
              ElementsAre("system flash-sale.close s1"));
}

TEST(SaleJobs, APausedSaleIsClosedToo) {
  JobShop shop;
  shop.run("UPDATE flash_sale SET state = 'PAUSED'");
  reload(shop, shop.catalog);
  shop.clock.advance(seconds{5});
  EXPECT_EQ(shop.close(), 1);
  EXPECT_EQ(shop.state(), "CLOSED");
}

TEST(SaleJobs, SettleAClosedSaleOnceNothingIsOpenAnyMore) {
  JobShop shop;
  const engine::Grant hold = shop.bought(1);
  const engine::Grant paid = shop.bought(2);
  shop.pay_row(paid);
  shop.clock.advance(seconds{5});
  EXPECT_EQ(shop.close(), 1);
  EXPECT_EQ(shop.close(), 0) << "member 1 may still pay";
  EXPECT_EQ(shop.state(), "CLOSED");
  shop.advance(seconds{6});
  ASSERT_EQ(shop.order(hold.id).state, OrderState::kExpired);
  EXPECT_EQ(shop.close(), 1);
  EXPECT_EQ(shop.state(), "SETTLED");
  EXPECT_EQ(shop.close(), 0);
  EXPECT_EQ(shop.engine->find({'s', 1}), nullptr);
  EXPECT_EQ(shop.order(paid.id).state, OrderState::kPaid);
}

TEST(SaleJobs, DraftsAreLeftAlone) {
  SaleShop shop;
  shop.run(fmt::format("UPDATE flash_sale SET state = 'DRAFT', closes_at = {}",
                       common::to_micros(kStart)));
  reload(shop, shop.catalog);
  SaleJobs jobs(shop.parts, shop.home);
  shop.clock.advance(seconds{5});
  EXPECT_EQ(*shop.home.wait(jobs.close_events()), 0);
}

TEST(SaleJobs, RunEachSecondUntilTheyAreStopped) {
  JobShop shop;
  shop.bought(1);  // its hold keeps the sale from being settled
  common::WaitGroup running;
  running.start(shop.home, [&] { return shop.jobs.run(); });
  shop.advance(seconds{6});
  shop.home.until([&] { return shop.state() == "CLOSED"; });
  shop.jobs.stop();
  shop.home.until([&] { return running.running() == 0; });
}

}  // namespace
}  // namespace doorbuster::sale::testing

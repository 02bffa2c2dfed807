#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <set>
#include <thread>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

/// The engine as a server runs it: the machine's clock, its own loop, several loops that ask.
struct Server : Store {
  explicit Server(StoreOptions wanted) : Store(wanted) {
    gate = make_local_gate();
    journal = make_direct_journal(*home, 4096);
    ledger = make_sql_ledger(*database, *home, time, *metrics, order_table());
    engine = make_engine({}, *home, time, *gate, *journal, *ledger, nullptr, *metrics, [] {});
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    engine->stop(seconds{10});
    for (const auto& loop : loops) loop->stop();
    home->stop();
  }

  std::shared_ptr<engine::Scope> prepare(ScopeRules rules) {
    const std::function<common::Task<common::Result<std::shared_ptr<engine::Scope>>>()> make = [&] {
      return engine->prepare(*loops[0], rules);
    };
    const auto scope = wait_on<common::Result<std::shared_ptr<engine::Scope>>>(*loops[0], make);
    EXPECT_TRUE(scope) << scope.error().message;
    return *scope;
  }
  DeskAnswer take(std::size_t loop, std::shared_ptr<engine::Scope> scope, std::int64_t member) {
    common::Executor& caller = *loops[loop % loops.size()];
    const std::function<common::Task<DeskAnswer>()> make = [&] {
      Desk::Ask ask{.scope = scope, .index = 0, .member = MemberId{member}, .key = {}};
      return engine->take(caller, std::move(ask));
    };
    return wait_on<DeskAnswer>(caller, make);
  }

  common::SystemClock time;
  std::unique_ptr<common::Loop> home = common::make_loop(time, "engine");
  std::vector<std::unique_ptr<common::Loop>> loops = [this] {
    std::vector<std::unique_ptr<common::Loop>> list;
    for (int i = 0; i < 4; ++i) list.push_back(common::make_loop(time, "asker"));
    return list;
  }();
  std::unique_ptr<Gate> gate;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<Engine> engine;
};

// A2, through the whole path to the durable row.
TEST(Race, AThousandThreadsBuyAHundredUnitsAHundredTimesInARow) {
  constexpr int kThreads = 1000;
  constexpr int kUnits = 100;
  constexpr int kRuns = 100;
  Server server({.quantity = kUnits, .hold = seconds{3600}});
  std::shared_ptr<engine::Scope> scope;
  std::vector<DeskAnswer> answers(kThreads);
  std::barrier start(kThreads + 1);
  std::barrier end(kThreads + 1);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns; ++run) {
        start.arrive_and_wait();
        answers[i] = server.take(i, scope, static_cast<std::int64_t>(i) + 1);
        end.arrive_and_wait();
      }
    });
  }
  int good = 0;
  for (int run = 1; run <= kRuns; ++run) {
    ScopeRules rules = server.rules();
    rules.id = {'s', run};
    rules.allotments[0].id = {'i', run};
    if (run > 1) server.add_item(run, fmt::format("s{}", run), kUnits);
    scope = server.prepare(rules);
    start.arrive_and_wait();
    end.arrive_and_wait();
    std::set<std::int32_t> slots;
    int sold_out = 0;
    for (const DeskAnswer& answer : answers) {
      if (const auto* granted = std::get_if<Granted>(&answer)) {
        slots.insert(granted->grant.slot.value());
      } else if (words(answer) == "sold out, may come back") {
        ++sold_out;
      } else {
        ADD_FAILURE() << words(answer);
      }
    }
    const std::int64_t rows = server.number(fmt::format(
        "SELECT count(DISTINCT slot) FROM flash_sale_order WHERE allotment = 'i{}' AND state = "
        "'PENDING' AND slot BETWEEN 1 AND {}",
        run, kUnits));
    EXPECT_EQ(slots.size(), static_cast<std::size_t>(kUnits));
    EXPECT_EQ(sold_out, kThreads - kUnits);
    EXPECT_EQ(rows, kUnits);
    EXPECT_EQ(server.number(fmt::format("SELECT sold FROM flash_sale_item WHERE id = {}", run)),
              kUnits);
    if (slots.size() == kUnits && sold_out == kThreads - kUnits && rows == kUnits) ++good;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kRuns);
}

TEST(Race, OneMembersManyRequestsBuyOneUnit) {
  // Case 3.
  constexpr int kThreads = 64;
  Server server({.quantity = 10, .hold = seconds{3600}});
  const auto scope = server.prepare(server.rules());
  std::vector<DeskAnswer> answers(kThreads);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      answers[i] = server.take(i, scope, 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<GrantId> ids;
  for (const DeskAnswer& answer : answers) {
    if (const auto* granted = std::get_if<Granted>(&answer)) {
      ids.insert(granted->grant.id);
    } else if (const auto* holding = std::get_if<Holding>(&answer)) {
      ids.insert(holding->id);
    } else {
      ADD_FAILURE() << words(answer);
    }
  }
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_EQ(server.number("SELECT count(*) FROM flash_sale_order"), 1);
}

}  // namespace
}  // namespace doorbuster::engine::testing

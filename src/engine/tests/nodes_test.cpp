#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/node_table.hpp"
#include "engine/tests/support.hpp"

// Several nodes of the engine over one gate and one file.

namespace doorbuster::engine::testing {
namespace {

using common::Result;
using common::Task;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ScopeId kScope{'s', 1};
constexpr milliseconds kTtl{4000};
constexpr seconds kPatienceForOthers{5};

const Grant& grant_of(const DeskAnswer& answer) { return std::get<Granted>(answer).grant; }

/// The real table, and how many of its calls are under way.
class CountedTable final : public NodeTable {
 public:
  explicit CountedTable(std::unique_ptr<NodeTable> real) : real_(std::move(real)) {}
  Task<Result<NodeId>> enlist(std::string name) override {
    return count(real_->enlist(std::move(name)));
  }
  Task<Result<std::vector<NodeBeat>>> beat(NodeId node, bool reaches_gate) override {
    return count(real_->beat(node, reaches_gate));
  }
  [[nodiscard]] int outstanding() const { return outstanding_; }

 private:
  template <class T>
  Task<Result<T>> count(Task<Result<T>> real) {
    ++outstanding_;
    Result<T> answer = co_await real;
    --outstanding_;
    co_return answer;
  }
  std::unique_ptr<NodeTable> real_;
  int outstanding_ = 0;
};

/// One process: everything but the gate and the file is its own.
struct Node {
  Node(Store& store, StepExecutor& home, Gate& gate, EngineConfig config)
      : sql(make_sql_ledger(*store.database, home, store.clock, *metrics, order_table())),
        ledger(std::make_unique<FaultyLedger>(*sql, home)),
        journal(make_direct_journal(home, config.budget.queue_size)),
        table(make_sql_node_table(*store.database, home, store.clock)),
        engine(make_engine(std::move(config), home, store.clock, gate, *journal, *ledger, &table,
                           *metrics, [this] { ++superseded; })) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] std::int64_t metric(const std::string& name) {
    return metrics->counter(name, "").value();
  }

  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  std::unique_ptr<Ledger> sql;
  std::unique_ptr<FaultyLedger> ledger;
  std::unique_ptr<Journal> journal;
  CountedTable table;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Scope> scope;
  int superseded = 0;
};

/// Nodes that come and go, driven step by step on one executor.
struct Cluster : Store {
  explicit Cluster(StoreOptions wanted = {}, EngineConfig settings = {}) : Store(wanted) {
    config = std::move(settings);
    config.node.ttl = kTtl;
    config.rebuild_patience = kPatienceForOthers;
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster() {
    for (const auto& node : nodes) {
      node->ledger->set_down(false);
      release_all(*node);
      node->engine->begin_stop(false);
    }
    // Whoever still waits for an answer gives up now.
    for (int i = 0; i < 10; ++i) advance(config.budget.request_budget);
    for (const auto& node : nodes) EXPECT_TRUE(node->engine->has_stopped());
    // No engine may go while another one's calls are on their way to the gate.
    nodes.clear();
  }

  /// A process of that name starts.
  Node& start(std::string name) {
    EngineConfig mine = config;
    mine.node.name = std::move(name);
    nodes.push_back(std::make_unique<Node>(*this, home, *gate, std::move(mine)));
    quiet();
    return *nodes.back();
  }
  Result<std::shared_ptr<Scope>> try_prepare(Node& node) {
    Result<std::shared_ptr<Scope>> prepared = home.wait(node.engine->prepare(home, rules()));
    if (prepared) node.scope = *prepared;
    quiet();
    return prepared;
  }
  Node& start_prepared(std::string name) {
    Node& node = start(std::move(name));
    const auto prepared = try_prepare(node);
    EXPECT_TRUE(prepared) << prepared.error().message;
    return node;
  }
  /// It dies: what it has not written is never written. Its objects stay, for whoever still waits.
  void die(Node& node) {
    node.ledger->set_down(true);
    release_all(node);
    node.engine->begin_stop(true);
    // The writer only gives up between two tries, so time must go on.
    for (int i = 0; i < 100 && !node.engine->has_stopped(); ++i) advance(milliseconds{10});
    EXPECT_TRUE(node.engine->has_stopped());
  }
  static void release_all(Node& node) {
    for (std::size_t op = 0; op < kOps; ++op) node.ledger->release(static_cast<Op>(op));
  }

  /// Until nothing is under way at the ledger and nobody can run; the clock stands still.
  void quiet() {
    home.until([&] {
      return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return node->ledger->outstanding() == 0 && node->table.outstanding() == 0;
      });
    });
  }
  /// Moves the clock, stopping at every timer on the way.
  void advance(std::chrono::microseconds by) {
    const common::Steady end = clock.steady() + by;
    quiet();
    while (clock.steady() < end) {
      const common::Steady next = std::min(home.next_timer().value_or(end), end);
      const auto step = std::chrono::ceil<std::chrono::microseconds>(next - clock.steady());
      clock.advance(std::max(step, std::chrono::microseconds{0}));
      quiet();
    }
  }

  using Pending = std::shared_ptr<std::optional<DeskAnswer>>;
  [[nodiscard]] Pending ask(Node& node, std::int64_t member) {
    Desk::Ask wanted{.scope = node.scope, .index = 0, .member = MemberId{member}, .key = {}};
    return home.begin(node.engine->take(home, std::move(wanted)));
  }
  [[nodiscard]] DeskAnswer take(Node& node, std::int64_t member) {
    const Pending pending = ask(node, member);
    home.until([&] { return pending->has_value(); });
    return **pending;
  }
  /// As a buyer who comes back when told to.
  [[nodiscard]] DeskAnswer insist(Node& node, std::int64_t member) {
    DeskAnswer answer = take(node, member);
    for (int again = 0; again < 3 && std::holds_alternative<Busy>(answer); ++again) {
      quiet();
      answer = take(node, member);
    }
    return answer;
  }
  void rebuild(Node& node) {
    const auto rebuilt = home.wait(node.engine->rebuild(home, kScope, false));
    EXPECT_TRUE(rebuilt);
    quiet();
  }
  [[nodiscard]] GateReading reading() { return *wait_here(gate->read(kScope)); }
  [[nodiscard]] std::int32_t free() { return reading().allotments.at(0).free; }
  /// The epoch that the ledger says is in force.
  [[nodiscard]] std::int64_t epoch() const { return number("SELECT epoch FROM engine_shard"); }
  [[nodiscard]] std::vector<std::string> orders() const {
    return rows(
        "SELECT member || ' ' || state || ' ' || coalesce(reason, '-') FROM flash_sale_order "
        "ORDER BY member, id");
  }
  [[nodiscard]] std::int64_t held() const {
    return number("SELECT count(*) FROM flash_sale_order WHERE state IN ('PENDING', 'PAID')");
  }
  [[nodiscard]] std::int64_t misses() const {
    std::int64_t sum = 0;
    for (const auto& node : nodes) sum += node->metric("engine_watch_misses_total");
    return sum;
  }

  EngineConfig config;
  StepExecutor home{clock};
  std::unique_ptr<Gate> gate = make_local_gate();
  std::vector<std::unique_ptr<Node>> nodes;
};

constexpr StoreOptions kTen{.quantity = 10, .hold = seconds{600}};

TEST(Nodes, ASecondNodeFollowsTheGateOfTheFirstWithoutARebuild) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  ASSERT_EQ(c.epoch(), 1);
  const DeskAnswer mine = c.take(a, 1);
  ASSERT_EQ(words(mine), "granted 1");
  Node& b = c.start_prepared("b");
  EXPECT_EQ(c.epoch(), 1);
  EXPECT_EQ(b.scope->epoch(), Epoch{1});
  EXPECT_EQ(b.metric("engine_rebuilds_total"), 0);
  EXPECT_EQ(words(c.take(b, 2)), "granted 2");
  EXPECT_EQ(words(c.take(a, 3)), "granted 3");
  const DeskAnswer again = c.take(b, 1);
  ASSERT_EQ(words(again), "holding");
  EXPECT_EQ(std::get<Holding>(again).id, grant_of(mine).id);
  c.advance(seconds{5});
  EXPECT_EQ(c.epoch(), 1);
  EXPECT_EQ(c.misses(), 0);
  EXPECT_EQ(a.superseded + b.superseded, 0);
}

TEST(Nodes, AMemberWhoAsksAnotherNodeJoinsTheGrantThatIsInFlight) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  a.ledger->hold(Op::kRecord);
  const auto first = c.ask(a, 1);
  c.quiet();
  const DeskAnswer second = c.take(b, 1);
  ASSERT_EQ(words(second), "granted 1");
  EXPECT_FALSE(first->has_value());
  a.ledger->release(Op::kRecord);
  c.home.until([&] { return first->has_value(); });
  ASSERT_EQ(words(**first), "granted 1");
  EXPECT_EQ(grant_of(**first).id, grant_of(second).id);
  EXPECT_EQ(grant_of(**first).expires_at, grant_of(second).expires_at);
  EXPECT_EQ(c.held(), 1);
}

// Take the lowering out of Watch::look() and b goes on refusing by a list of holders of the epoch
// before.
TEST(Nodes, AfterARebuildTheOtherNodeFollowsInItsNextRoundWithItsFlagsDown) {
  EngineConfig config;
  config.probe_every = std::chrono::hours{1};
  Cluster c({.quantity = 1, .hold = seconds{600}}, config);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  ASSERT_EQ(words(c.take(a, 1)), "granted 1");
  ASSERT_EQ(words(c.take(b, 2)), "sold out, may come back");
  ASSERT_EQ(b.scope->flag(0), Flag::kUp);
  c.advance(seconds{2});
  ASSERT_EQ(b.scope->flag(0), Flag::kUp);

  c.rebuild(a);
  EXPECT_EQ(c.epoch(), 2);
  EXPECT_EQ(a.scope->epoch(), Epoch{2});
  EXPECT_EQ(b.scope->epoch(), Epoch{1}) << "it has not looked yet";
  c.advance(seconds{1});
  EXPECT_EQ(b.scope->epoch(), Epoch{2});
  EXPECT_EQ(b.scope->flag(0), Flag::kDown);
  EXPECT_EQ(b.metric("engine_rebuilds_total"), 0);
  EXPECT_EQ(words(c.take(b, 1)), "holding");
  EXPECT_EQ(words(c.take(b, 2)), "sold out, may come back");
  c.advance(seconds{5});
  EXPECT_EQ(c.epoch(), 2);
  EXPECT_EQ(a.superseded + b.superseded, 0) << "one of several is not replaced by a higher epoch";
}

TEST(Nodes, ARebuildThatBeginsWhileAnotherNodeComparesReplacesNobody) {
  EngineConfig config;
  config.probe_every = std::chrono::hours{1};
  Cluster c(kTen, config);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  b.ledger->hold(Op::kRead);
  c.advance(seconds{1});
  ASSERT_EQ(b.ledger->waiting(Op::kRead), 1U);
  // It looks, and finds its gate in charge; then it compares.
  b.ledger->release(Op::kRead);
  b.ledger->hold(Op::kRead);
  c.quiet();
  ASSERT_EQ(b.ledger->waiting(Op::kRead), 1U);
  a.ledger->hold(Op::kSnapshot);
  const auto rebuilt = c.home.begin(a.engine->rebuild(c.home, kScope, false));
  c.quiet();
  ASSERT_EQ(c.epoch(), 2);
  ASSERT_EQ(c.reading().epoch, Epoch{1});
  b.ledger->release(Op::kRead);
  c.quiet();
  EXPECT_EQ(b.superseded, 0);
  a.ledger->release(Op::kSnapshot);
  c.home.until([&] { return rebuilt->has_value(); });
  EXPECT_TRUE(**rebuilt);
  c.advance(seconds{2});
  EXPECT_EQ(b.scope->epoch(), Epoch{2});
  EXPECT_EQ(a.superseded + b.superseded, 0);
}

TEST(Nodes, ANodeThatStartsReclaimsWhatItsFormerSelfLeftAtOnce) {
  Cluster c({.quantity = 1, .hold = seconds{600}});
  Node& former = c.start_prepared("a");
  former.ledger->hold(Op::kRecord);
  const auto lost = c.ask(former, 1);
  c.quiet();
  c.die(former);
  Node& a = c.start_prepared("a");
  c.advance(seconds{3});
  EXPECT_EQ(words(c.insist(a, 2)), "granted 1");
}

TEST(Nodes, WhatOneNodeHasSettledTheOthersForgetAndNobodyOpensAgain) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  const auto settled = c.home.wait(a.engine->settle(c.home, kScope));
  ASSERT_TRUE(settled && *settled);
  c.advance(seconds{3});
  EXPECT_EQ(b.engine->find(kScope), nullptr);
  EXPECT_EQ(c.reading().state, GateState::kAbsent);
  EXPECT_EQ(c.number("SELECT count(*) FROM engine_shard WHERE state = 'SETTLED'"), 1);
  EXPECT_TRUE(*c.home.wait(b.engine->settle(c.home, kScope)));
  // Also one that starts before the sale's own row says so.
  Node& d = c.start_prepared("d");
  ASSERT_NE(d.scope, nullptr);
  EXPECT_EQ(words(c.take(d, 1)), "busy: not_prepared");
  EXPECT_EQ(c.number("SELECT count(*) FROM engine_shard WHERE state = 'SETTLED'"), 1);
}

TEST(Nodes, ATakeThatMeetsALaterEpochHasItsNodeFollowAtOnce) {
  EngineConfig config;
  config.watch_every = std::chrono::hours{1};
  Cluster c(kTen, config);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  c.rebuild(a);
  EXPECT_EQ(words(c.take(b, 1)), "busy: rebuilding");
  c.quiet();
  EXPECT_EQ(words(c.take(b, 1)), "granted 1");
  EXPECT_EQ(c.epoch(), 2);
}

TEST(Nodes, AGateThatIsGoneIsRebuiltOnceByAllWhoSeeIt) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  Node& d = c.start_prepared("d");
  ASSERT_EQ(words(c.take(a, 1)), "granted 1");
  ASSERT_TRUE(wait_here(c.gate->remove(kScope)));
  for (Node* node : {&a, &b, &d}) EXPECT_EQ(words(c.take(*node, 2)), "busy: not_prepared");
  c.quiet();
  EXPECT_EQ(c.reading().state, GateState::kOpen);
  EXPECT_EQ(c.epoch(), 2);
  c.advance(seconds{3});
  EXPECT_EQ(c.epoch(), 2);
  for (Node* node : {&a, &b, &d}) EXPECT_EQ(words(c.take(*node, 1)), "holding");
  EXPECT_EQ(words(c.take(d, 2)), "granted 2");
  EXPECT_EQ(c.misses(), 0);
}

TEST(Nodes, OneThatDiesInTheMiddleOfARebuildIsRelievedAfterAWhile) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  ASSERT_EQ(words(c.take(a, 1)), "granted 1");
  a.ledger->hold(Op::kRaiseMinEpoch);
  const auto rebuilt = c.home.begin(a.engine->rebuild(c.home, kScope, false));
  c.quiet();
  ASSERT_EQ(c.reading().state, GateState::kDraining);
  c.die(a);
  ASSERT_TRUE(rebuilt->has_value());
  EXPECT_FALSE(**rebuilt);
  EXPECT_EQ(c.epoch(), 2);
  c.advance(kPatienceForOthers - seconds{1});
  EXPECT_EQ(c.epoch(), 2) << "it may only be slow";
  EXPECT_EQ(words(c.take(b, 1)), "holding") << "holders are known already";
  EXPECT_EQ(words(c.take(b, 2)), "busy: rebuilding");
  c.advance(seconds{3});
  EXPECT_EQ(c.epoch(), 3);
  EXPECT_EQ(c.reading().state, GateState::kOpen);
  EXPECT_EQ(words(c.take(b, 1)), "holding");
  EXPECT_EQ(words(c.take(b, 2)), "granted 2");
}

TEST(Nodes, ANodeThatMeetsARebuildWaitsForItInsteadOfRebuildingToo) {
  Cluster c(kTen);
  Node& a = c.start_prepared("a");
  Node& b = c.start("b");
  a.ledger->hold(Op::kRaiseMinEpoch);
  const auto rebuilt = c.home.begin(a.engine->rebuild(c.home, kScope, false));
  c.quiet();
  ASSERT_TRUE(c.try_prepare(b)) << "the gate is there, and knows its holders";
  EXPECT_EQ(words(c.take(b, 1)), "busy: rebuilding");
  c.advance(seconds{2});
  EXPECT_EQ(c.epoch(), 2);
  a.ledger->release(Op::kRaiseMinEpoch);
  c.home.until([&] { return rebuilt->has_value(); });
  EXPECT_TRUE(**rebuilt);
  EXPECT_EQ(words(c.take(b, 1)), "granted 1");
  c.advance(seconds{3});
  EXPECT_EQ(c.epoch(), 2);
}

// S7, S11. Take has_ended() out of Reclaim::nobody_finishes() and the unit stays away for a minute.
TEST(Nodes, AGrantOfANodeWhoseHeartbeatHasEndedIsReclaimed) {
  Cluster c({.quantity = 1, .hold = seconds{600}});
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  c.advance(seconds{1});
  a.ledger->hold(Op::kRecord);
  const auto lost = c.ask(a, 1);
  c.quiet();
  c.die(a);
  c.advance(kTtl - seconds{1});
  EXPECT_THAT(c.orders(), IsEmpty()) << "it may only be slow";
  EXPECT_FALSE(std::holds_alternative<Granted>(c.take(b, 2)));
  c.advance(seconds{3});
  EXPECT_THAT(c.orders(), ElementsAre("1 REJECTED ABANDONED"));
  EXPECT_EQ(words(c.take(b, 2)), "granted 1") << "its slot came back";
  EXPECT_EQ(b.metric("engine_reclaimed_total"), 1);
  EXPECT_EQ(c.misses(), 0);
  EXPECT_FALSE(lost->has_value() && std::holds_alternative<Granted>(**lost));
}

TEST(Nodes, AGrantOfANodeThatLivesIsLeftToIt) {
  Cluster c({.quantity = 2, .hold = seconds{600}});
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  Node& d = c.start_prepared("d");
  c.advance(seconds{1});
  a.ledger->hold(Op::kRecord);
  const auto slow = c.ask(a, 1);
  c.die(d);
  c.advance(3 * kTtl);
  EXPECT_THAT(c.orders(), IsEmpty()) << "it was the third one that has ended";
  EXPECT_EQ(words(c.take(b, 2)), "granted 2");
  a.ledger->release(Op::kRecord);
  c.quiet();
  EXPECT_THAT(c.orders(), ElementsAre("1 PENDING -", "2 PENDING -"));
  EXPECT_EQ(c.misses(), 0);
}

TEST(Nodes, WhenANodeComesBackTheOthersReclaimItsFormerGrantsAtOnce) {
  Cluster c({.quantity = 1, .hold = seconds{600}});
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  c.advance(seconds{1});
  a.ledger->hold(Op::kRecord);
  const auto lost = c.ask(a, 1);
  c.quiet();
  c.die(a);
  c.start_prepared("a");
  c.advance(seconds{1});
  EXPECT_THAT(c.orders(), ElementsAre("1 REJECTED ABANDONED"));
  EXPECT_EQ(words(c.take(b, 2)), "granted 1");
  EXPECT_EQ(c.epoch(), 1) << "nobody had to rebuild";
  EXPECT_FALSE(lost->has_value() && std::holds_alternative<Granted>(**lost));
}

TEST(Nodes, AProcessWhoseNameWasTakenIsToldOnce) {
  Cluster c(kTen);
  Node& former = c.start_prepared("a");
  Node& successor = c.start_prepared("a");
  c.advance(seconds{5});
  EXPECT_EQ(former.superseded, 1);
  EXPECT_EQ(successor.superseded, 0);
}

// S5, two at once.
TEST(Nodes, EveryUnitIsSoldOnceWhenBothLeaseChunks) {
  EngineConfig config;
  config.lease_chunk = 2;
  Cluster c(kTen, config);
  Node& a = c.start_prepared("a");
  Node& b = c.start_prepared("b");
  for (std::int64_t member = 1; member <= 10; member += 2) {
    const auto one = c.ask(a, member);
    const auto two = c.ask(b, member + 1);
    c.home.until([&] { return one->has_value() && two->has_value(); });
    for (const DeskAnswer& answer : {c.insist(a, member), c.insist(b, member + 1)}) {
      EXPECT_FALSE(std::holds_alternative<Busy>(answer)) << words(answer);
      EXPECT_FALSE(std::holds_alternative<SoldOutAnswer>(answer));
    }
  }
  EXPECT_EQ(c.held(), 10);
  EXPECT_EQ(c.number("SELECT count(DISTINCT slot) FROM flash_sale_order"), 10);
  EXPECT_EQ(words(c.take(a, 11)), "sold out, may come back");
  EXPECT_EQ(words(c.take(b, 11)), "sold out, may come back");
  EXPECT_EQ(c.number("SELECT sum(last_slot - first_slot + 1) FROM engine_lease"), 10);
  c.advance(seconds{3});
  EXPECT_EQ(c.misses(), 0);
  EXPECT_EQ(c.epoch(), 1);
}

}  // namespace
}  // namespace doorbuster::engine::testing

#include "engine/roster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tests/support.hpp"

namespace doorbuster::engine::testing {
namespace {

using common::ErrorCode;
using common::Result;
using common::Task;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr milliseconds kEvery{500};
constexpr milliseconds kTtl{4000};
constexpr std::chrono::microseconds kTick{1};
constexpr NodeId kSelf{5};

/// What the ledger would say, as a test writes it.
class FakeNodes final : public NodeTable {
 public:
  Task<Result<NodeId>> enlist(std::string name) override {
    names.push_back(std::move(name));
    if (down) co_return common::fail(ErrorCode::kIo, "the test's disk refuses");
    counters[kSelf] = 0;
    co_return kSelf;
  }
  Task<Result<std::vector<NodeBeat>>> beat(NodeId node, bool reaches_gate) override {
    ++beats;
    EXPECT_EQ(node, kSelf);
    reaches = reaches_gate;
    if (down) co_return common::fail(ErrorCode::kIo, "the test's disk refuses");
    if (!counters.contains(kSelf)) co_return common::fail(ErrorCode::kNotFound, "was ended");
    ++counters[kSelf];
    for (const NodeId one : lively) ++counters[one];
    std::vector<NodeBeat> list;
    list.reserve(counters.size());
    for (const auto& [id, counter] : counters) list.push_back({id, counter, true});
    co_return list;
  }

  std::map<NodeId, std::int64_t> counters;  ///< of whoever is listed
  std::vector<NodeId> lively;               ///< others that live
  bool down = false;
  std::vector<std::string> names;
  int beats = 0;
  bool reaches = true;
};

/// One node's roster, on a clock that stands still.
struct Watcher {
  struct Options {
    bool alone = false;
    bool ledger_down = false;
  };
  explicit Watcher(Options options)
      : roster(home, options.alone ? nullptr : &table,
               {.name = "here", .every = kEvery, .ttl = kTtl}, *metrics) {
    table.down = options.ledger_down;
    common::start(run());
    home.run_ready();
  }
  Watcher() : Watcher(Options{}) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() {
    roster.stop();
    home.run_ready();
    EXPECT_TRUE(over);
  }

  Task<void> run() {
    std::function<void()> on_end = [this] { ++ended; };
    std::function<void()> on_replaced = [this] { ++replaced; };
    std::function<void()> on_begin = [this] { ++begun; };
    co_await roster.run(std::move(on_begin), std::move(on_end), std::move(on_replaced));
    over = true;
  }

  /// Moves the clock, stopping at every timer on the way.
  void advance(std::chrono::microseconds by) {
    const common::Steady end = clock.steady() + by;
    while (clock.steady() < end) {
      const common::Steady next = std::min(home.next_timer().value_or(end), end);
      clock.advance(std::chrono::ceil<std::chrono::microseconds>(next - clock.steady()));
      home.run_ready();
    }
  }
  /// Enlisted, and everybody who is listed read for the first time.
  void first_reading() {
    advance(kEvery);
    ASSERT_EQ(table.beats, 1);
  }
  /// The whole process stands still, then goes on.
  void pause(std::chrono::microseconds by) {
    clock.advance(by);
    home.run_ready();
  }
  double alive() { return metrics->gauge("engine_nodes_alive", "").value(); }

  common::ManualClock clock{kStart};
  StepExecutor home{clock};
  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  FakeNodes table;
  Roster roster;
  int begun = 0;
  int ended = 0;
  int replaced = 0;
  bool over = false;
};

TEST(Roster, EnlistsOnceTheLedgerTakesItAndOnlyOnce) {
  Watcher w;
  EXPECT_THAT(w.table.names, ElementsAre("here"));
  EXPECT_EQ(w.roster.self(), kSelf);
  EXPECT_EQ(w.table.beats, 0);
  w.advance(seconds{10});
  EXPECT_EQ(w.table.names.size(), 1U);
  EXPECT_EQ(w.table.beats, 20) << "one every half second";
  EXPECT_FALSE(w.roster.alone());
}

TEST(Roster, SaysOnceThatItCanTellWhoHasEnded) {
  Watcher w;
  w.table.down = true;
  w.advance(3 * kEvery);
  EXPECT_EQ(w.begun, 0);
  w.table.down = false;
  w.advance(3 * kEvery);
  EXPECT_EQ(w.begun, 1);
}

TEST(Roster, TriesToEnlistAgainUntilItCan) {
  Watcher w({.ledger_down = true});
  w.advance(2 * kEvery);
  EXPECT_EQ(w.table.names.size(), 3U);
  EXPECT_EQ(w.roster.self(), NodeId{0});
  EXPECT_EQ(w.table.beats, 0);
  w.table.down = false;
  w.advance(kEvery);
  EXPECT_EQ(w.roster.self(), kSelf);
  w.advance(2 * kEvery);
  EXPECT_EQ(w.table.names.size(), 4U);
  EXPECT_EQ(w.table.beats, 2);
  EXPECT_EQ(w.ended + w.replaced, 0);
}

// N1.
TEST(Roster, ACounterThatStandsStillForTheWholeTtlEndsItsNode) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl - kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 0);
  EXPECT_EQ(w.alive(), 2);
  w.advance(kTick);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1);
  EXPECT_EQ(w.alive(), 1);
  w.advance(3 * kTtl);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1) << "news only once";
}

TEST(Roster, ACounterThatGrowsEndsNobody) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.table.counters[NodeId{8}] = 1;
  w.table.lively = {NodeId{3}, NodeId{8}};
  w.first_reading();
  w.advance(5 * kTtl);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  EXPECT_FALSE(w.roster.has_ended(NodeId{8}));
  EXPECT_EQ(w.ended, 0);
  EXPECT_EQ(w.alive(), 3);
}

TEST(Roster, OneBeatWithinTheTtlBeginsTheCountAgain) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl - kEvery);
  ++w.table.counters[NodeId{3}];
  w.advance(kEvery);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  w.advance(kTtl - kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  w.advance(kTick);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1);
}

// Schedule 23. Take the reset of last_read_ out of Roster::run() and a ledger that was away ends
// everybody.
TEST(Roster, AFailedReadingBeginsTheCountAgain) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl - 2 * kEvery);
  w.table.down = true;
  w.advance(kEvery);
  w.table.down = false;
  w.advance(kEvery);  // the first reading since
  w.advance(kTtl - kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 0);
  w.advance(kTick);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1);
}

TEST(Roster, WhileTheLedgerIsAwayNobodyIsTakenAsEnded) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.table.counters[NodeId{4}] = 17;
  w.first_reading();
  w.advance(kTtl);
  ASSERT_TRUE(w.roster.has_ended(NodeId{3}));
  ASSERT_EQ(w.ended, 1);
  w.table.down = true;
  w.advance(3 * kTtl);
  EXPECT_FALSE(w.roster.has_ended(NodeId{2})) << "not listed, but when was that?";
  EXPECT_EQ(w.ended, 1);
  EXPECT_EQ(w.replaced, 0);
}

TEST(Roster, ALongGapBetweenTwoReadingsBeginsTheCountAgain) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl - kEvery);
  w.pause(4 * kEvery + kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3})) << "our own pause, perhaps of the whole machine";
  EXPECT_EQ(w.ended, 0);
  w.advance(kTtl - kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  w.advance(kTick);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
}

TEST(Roster, ReadingsThatFollowEachOtherCloselyCountAlsoWhenTheyAreLate) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.pause(4 * kEvery);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  w.pause(4 * kEvery);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
}

TEST(Roster, ANodeThatBeatsAgainLives) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl);
  ASSERT_TRUE(w.roster.has_ended(NodeId{3}));
  ++w.table.counters[NodeId{3}];
  w.advance(kEvery);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.alive(), 2);
  w.advance(kTtl - kTick);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
  w.advance(kTick);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 2) << "news again";
}

TEST(Roster, OneThatIsNotListedAnyMoreHasEndedAtOnce) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.table.counters[NodeId{8}] = 1;
  w.table.lively = {NodeId{3}, NodeId{8}};
  w.first_reading();
  w.table.lively = {NodeId{8}};
  w.table.counters.erase(NodeId{3});
  w.advance(kEvery);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1);
  w.advance(3 * kTtl);
  EXPECT_EQ(w.ended, 1);
  EXPECT_FALSE(w.roster.has_ended(NodeId{8}));
}

TEST(Roster, OneThatHadEndedAndIsTakenOffTheListIsNoNews) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.advance(kTtl);
  ASSERT_EQ(w.ended, 1);
  w.table.counters.erase(NodeId{3});
  w.advance(2 * kEvery);
  EXPECT_TRUE(w.roster.has_ended(NodeId{3}));
  EXPECT_EQ(w.ended, 1);
}

TEST(Roster, ANumberBelowTheHighestThatIsNotListedHasEndedAndANewerOneHasNot) {
  Watcher w;
  w.table.counters[NodeId{8}] = 1;
  w.table.lively = {NodeId{8}};
  EXPECT_FALSE(w.roster.has_ended(NodeId{3})) << "nothing was read yet";
  w.first_reading();
  for (const std::int64_t former : {1, 3, 4, 6, 7}) {
    EXPECT_TRUE(w.roster.has_ended(NodeId{former})) << former;
  }
  EXPECT_FALSE(w.roster.has_ended(NodeId{8}));
  EXPECT_FALSE(w.roster.has_ended(NodeId{9})) << "made since the reading, perhaps";
  // The highest one ends: its number stays the highest that was seen.
  w.table.counters.erase(NodeId{8});
  w.table.lively.clear();
  w.advance(kEvery);
  EXPECT_TRUE(w.roster.has_ended(NodeId{7}));
  EXPECT_FALSE(w.roster.has_ended(NodeId{9}));
}

TEST(Roster, NeitherThisNodeNorNobodyEverEnds) {
  Watcher w;
  w.first_reading();
  w.advance(kTtl);
  EXPECT_FALSE(w.roster.has_ended(kSelf));
  EXPECT_FALSE(w.roster.has_ended(NodeId{0})) << "a grant that was loaded from its row";
}

TEST(Roster, AloneNobodyHasEverEnded) {
  Watcher w({.alone = true});
  EXPECT_TRUE(w.over) << "there is nothing to do";
  EXPECT_TRUE(w.roster.alone());
  EXPECT_EQ(w.roster.self(), NodeId{0});
  for (const std::int64_t node : {0, 1, 5, 9}) EXPECT_FALSE(w.roster.has_ended(NodeId{node}));
  EXPECT_EQ(w.alive(), 1);
  EXPECT_THAT(w.table.names, IsEmpty());
}

TEST(Roster, WhoeverIsReplacedIsToldOnceAndBeatsNoMore) {
  Watcher w;
  w.table.counters[NodeId{3}] = 17;
  w.first_reading();
  w.table.counters.erase(kSelf);
  w.advance(kEvery);
  EXPECT_EQ(w.replaced, 1);
  EXPECT_TRUE(w.over);
  const int beats = w.table.beats;
  w.advance(3 * kTtl);
  EXPECT_EQ(w.replaced, 1);
  EXPECT_EQ(w.table.beats, beats);
  EXPECT_EQ(w.table.names.size(), 1U) << "it does not take the name back";
  EXPECT_EQ(w.ended, 0);
  EXPECT_FALSE(w.roster.has_ended(NodeId{3}));
}

TEST(Roster, ALedgerThatIsAwayReplacesNobody) {
  Watcher w;
  w.first_reading();
  w.table.down = true;
  w.advance(3 * kTtl);
  EXPECT_EQ(w.replaced, 0);
  w.table.down = false;
  const int beats = w.table.beats;
  w.advance(kEvery);
  EXPECT_EQ(w.table.beats, beats + 1);
  EXPECT_EQ(w.table.names.size(), 1U);
}

TEST(Roster, EachBeatSaysWhetherTheGateIsReached) {
  Watcher w;
  w.first_reading();
  EXPECT_TRUE(w.table.reaches);
  w.roster.set_reaches_gate(false);
  w.advance(kEvery);
  EXPECT_FALSE(w.table.reaches);
  w.roster.set_reaches_gate(true);
  w.advance(kEvery);
  EXPECT_TRUE(w.table.reaches);
}

/// The real table, over a file of its own.
struct Registry : Store {
  NodeId enlist(std::string name) {
    const Result<NodeId> made = home.wait(table->enlist(std::move(name)));
    EXPECT_TRUE(made);
    return made.value_or(NodeId{0});
  }
  Result<std::vector<NodeBeat>> beat(NodeId node, bool reaches_gate = true) {
    return home.wait(table->beat(node, reaches_gate));
  }
  /// "number: counter", and "cut" where the gate is not reached
  std::vector<std::string> listed(NodeId reader) {
    const Result<std::vector<NodeBeat>> beats = beat(reader);
    EXPECT_TRUE(beats);
    std::vector<std::string> list;
    for (const NodeBeat& one : *beats) {
      list.push_back(
          fmt::format("{}: {}{}", one.id.value(), one.counter, one.reaches_gate ? "" : " cut"));
    }
    return list;
  }

  StepExecutor home{clock};
  std::unique_ptr<NodeTable> table = make_sql_node_table(*database, home, clock);
};

TEST(SqlNodeTable, EveryProcessIsANewNodeWithAHigherNumber) {
  Registry r;
  const NodeId a = r.enlist("a");
  const NodeId b = r.enlist("b");
  const NodeId again = r.enlist("a");
  EXPECT_GT(a, NodeId{0}) << "0 is nobody";
  EXPECT_LT(a, b);
  EXPECT_LT(b, again);
}

TEST(SqlNodeTable, ABeatRaisesItsOwnCounterAndListsEverybody) {
  Registry r;
  const NodeId a = r.enlist("a");
  const NodeId b = r.enlist("b");
  ASSERT_TRUE(r.beat(b, false));
  EXPECT_THAT(r.listed(a), UnorderedElementsAre(fmt::format("{}: 1", a.value()),
                                                fmt::format("{}: 1 cut", b.value())));
  EXPECT_THAT(r.listed(a), UnorderedElementsAre(fmt::format("{}: 2", a.value()),
                                                fmt::format("{}: 1 cut", b.value())));
  EXPECT_THAT(r.listed(b), UnorderedElementsAre(fmt::format("{}: 2", a.value()),
                                                fmt::format("{}: 2", b.value())));
}

TEST(SqlNodeTable, ANewNodeEndsTheFormerOnesOfItsNameAndNobodyElse) {
  Registry r;
  const NodeId former = r.enlist("a");
  const NodeId other = r.enlist("b");
  const NodeId successor = r.enlist("a");
  EXPECT_THAT(r.listed(other), UnorderedElementsAre(fmt::format("{}: 1", other.value()),
                                                    fmt::format("{}: 0", successor.value())));
  const Result<std::vector<NodeBeat>> replaced = r.beat(former);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(replaced.error().proof, common::Proof::kDidNotHappen);
  EXPECT_THAT(r.listed(successor), UnorderedElementsAre(fmt::format("{}: 1", other.value()),
                                                        fmt::format("{}: 1", successor.value())));
}

TEST(SqlNodeTable, ABeatOfANumberThatWasNeverGivenIsNotFound) {
  Registry r;
  const NodeId a = r.enlist("a");
  const Result<std::vector<NodeBeat>> unknown = r.beat(NodeId{a.value() + 1});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
}

// A crash between two processes: the file is what they share.
TEST(SqlNodeTable, IsKeptInTheFile) {
  Registry r;
  const NodeId a = r.enlist("a");
  const NodeId b = r.enlist("b");
  r.table.reset();
  r.database->stop();
  r.database.reset();
  r.open();
  r.table = make_sql_node_table(*r.database, r.home, r.clock);
  const NodeId again = r.enlist("a");
  EXPECT_LT(b, again) << "a number is never given twice";
  EXPECT_FALSE(r.beat(a));
  EXPECT_TRUE(r.beat(b));
}

}  // namespace
}  // namespace doorbuster::engine::testing

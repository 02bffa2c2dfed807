#include "common/task.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/loop.hpp"

namespace doorbuster::common {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

/// Runs only when the test says so, on the test's thread, so that every order of events can be
/// told.
class StepExecutor final : public Executor {
 public:
  void post(Function function) override { posted_.push_back(std::move(function)); }
  TimerId post_at(Steady at, Function function) override {
    timers_.emplace(std::pair{at, ++last_}, std::move(function));
    return last_;
  }
  void cancel(TimerId id) override {
    std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
  }
  [[nodiscard]] bool is_current() const noexcept override { return true; }
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  [[nodiscard]] Steady in(std::chrono::nanoseconds wait) const { return clock_.steady() + wait; }
  [[nodiscard]] std::size_t timers() const { return timers_.size(); }
  [[nodiscard]] std::size_t posted() const { return posted_.size(); }

  void run_posted() {
    while (!posted_.empty()) {
      const Function next = std::move(posted_.front());
      posted_.pop_front();
      next();
    }
  }
  /// Moves the clock and runs the timers that are due, but not what was posted.
  void advance(microseconds by) {
    clock_.advance(by);
    while (!timers_.empty() && timers_.begin()->first.first <= clock_.steady()) {
      const auto due = timers_.extract(timers_.begin());
      due.mapped()();
    }
  }

 private:
  ManualClock clock_{Instant{}};
  std::deque<Function> posted_;
  std::map<std::pair<Steady, TimerId>, Function> timers_;
  TimerId last_ = 0;
};

using Story = std::vector<std::string>;

// ---- Task

Task<int> give(int value) { co_return value; }

Task<void> tell(Story& story, std::string line) {
  story.push_back(std::move(line));
  co_return;
}

TEST(Task, StartsWhenItIsAwaitedAndNotBefore) {
  Story story;
  const auto teller = [](Story& out) -> Task<void> {
    Task<void> later = tell(out, "awaited");
    out.emplace_back("made");
    co_await later;
    out.emplace_back("back");
  };
  start(teller(story));
  EXPECT_THAT(story, ElementsAre("made", "awaited", "back"));
}

TEST(Task, BringsItsValueToTheAwaiter) {
  int sum = 0;
  const auto add = [](int& out) -> Task<void> {
    const int a = co_await give(40);
    const int b = co_await give(2);
    out = a + b;
  };
  start(add(sum));
  EXPECT_EQ(sum, 42);
}

TEST(Task, MovesValuesThatCannotBeCopied) {
  std::unique_ptr<int> got;
  const auto make = []() -> Task<std::unique_ptr<int>> { co_return std::make_unique<int>(7); };
  const auto take = [&make](std::unique_ptr<int>& out) -> Task<void> {
    std::unique_ptr<int> value = co_await make();
    out = std::move(value);
  };
  start(take(got));
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, 7);
}

Task<Result<std::string>> checked(int value) {
  if (value < 0) co_return fail(ErrorCode::kInvalid, "negative");
  co_return std::to_string(value);
}

TEST(Task, CarriesResultsThroughSeveralLevels) {
  Story story;
  const auto level = [](int value) -> Task<Result<std::string>> {
    Result<std::string> text = co_await checked(value);
    if (!text) co_return fail(text.error());
    co_return *text + "!";
  };
  const auto top = [&level](Story& out) -> Task<void> {
    const Result<std::string> good = co_await level(7);
    out.push_back(good.value());
    const Result<std::string> bad = co_await level(-1);
    out.push_back(bad.error().message);
  };
  start(top(story));
  EXPECT_THAT(story, ElementsAre("7!", "negative"));
}

TEST(Task, ReleasesItsArgumentsAlsoWhenNobodyAwaitsIt) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  {
    const auto use = [](std::shared_ptr<int> value) -> Task<int> { co_return *value; };
    const Task<int> never = use(std::move(held));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Task, MayBeAwaitedTenThousandTimesWithoutAWaitInBetween) {
  std::int64_t sum = 0;
  const auto add = [](std::int64_t& out) -> Task<void> {
    for (int i = 1; i <= 10'000; ++i) {
      const int one = co_await give(i);
      out += one;
    }
  };
  start(add(sum));
  EXPECT_EQ(sum, 50'005'000);
}

TEST(TaskDeathTest, EndsTheProcessWhenAnExceptionLeavesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto thrower = []() -> Task<void> {
    throw std::runtime_error("a bug");
    co_return;
  };
  EXPECT_DEATH(start(thrower()), "a bug");
}

// ---- Completion, in every order

Task<void> wait_for(Completion<int> arrival, Story& story) {
  const int value = co_await arrival.wait();
  story.push_back("value " + std::to_string(value));
}

Task<void> wait_for_until(Completion<int> arrival, Steady deadline, Story& story) {
  const std::optional<int> value = co_await arrival.wait_until(deadline);
  story.push_back(value ? "value " + std::to_string(*value) : "deadline");
}

TEST(Completion, GoesOnAtOnceWhenTheValueIsThereAlready) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  EXPECT_TRUE(arrival.complete(1));
  start(wait_for(arrival, story));
  EXPECT_THAT(story, ElementsAre("value 1"));
  EXPECT_EQ(home.posted(), 0U);
}

TEST(Completion, ResumesTheWaiterOnItsExecutorAndNotInsideComplete) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  start(wait_for(arrival, story));
  EXPECT_TRUE(arrival.complete(1));
  EXPECT_THAT(story, ElementsAre());
  home.run_posted();
  EXPECT_THAT(story, ElementsAre("value 1"));
}

TEST(Completion, TakesTheFirstValueOnly) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  start(wait_for(arrival, story));
  EXPECT_TRUE(arrival.complete(1));
  EXPECT_FALSE(arrival.complete(2));
  home.run_posted();
  EXPECT_FALSE(arrival.complete(3));
  EXPECT_THAT(story, ElementsAre("value 1"));
  EXPECT_EQ(home.posted(), 0U);
}

TEST(Completion, OwnsItsValueExactlyOnce) {
  StepExecutor home;
  auto held = std::make_shared<int>();
  std::weak_ptr<int> watched = held;
  {
    const Completion<std::shared_ptr<int>> arrival(home);
    const auto waiter = [](Completion<std::shared_ptr<int>> from,
                           std::weak_ptr<int> seen) -> Task<void> {
      const std::shared_ptr<int> value = co_await from.wait();
      EXPECT_EQ(seen.use_count(), 1);
    };
    start(waiter(arrival, watched));
    EXPECT_TRUE(arrival.complete(std::move(held)));
    home.run_posted();
  }
  EXPECT_TRUE(watched.expired());
}

TEST(CompletionWithDeadline, BringsTheValueAndForgetsTheTimer) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  start(wait_for_until(arrival, home.in(seconds{1}), story));
  home.advance(seconds{1} - microseconds{1});
  EXPECT_THAT(story, ElementsAre());
  EXPECT_TRUE(arrival.complete(1));
  home.run_posted();
  EXPECT_THAT(story, ElementsAre("value 1"));
  EXPECT_EQ(home.timers(), 0U);
}

TEST(CompletionWithDeadline, BringsAValueThatIsThereAlreadyAlsoAfterTheDeadline) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  EXPECT_TRUE(arrival.complete(1));
  start(wait_for_until(arrival, home.in(-seconds{1}), story));
  EXPECT_THAT(story, ElementsAre("value 1"));
  EXPECT_EQ(home.timers(), 0U);
}

TEST(CompletionWithDeadline, GivesUpAtTheDeadlineAndTellsALateValueSo) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  start(wait_for_until(arrival, home.in(seconds{1}), story));
  home.advance(seconds{1});
  EXPECT_THAT(story, ElementsAre("deadline"));
  EXPECT_FALSE(arrival.complete(1));
  EXPECT_EQ(home.posted(), 0U);
}

TEST(CompletionWithDeadline, KeepsItsWordWhenTheDeadlinePassesBeforeTheWaiterRuns) {
  StepExecutor home;
  Story story;
  const Completion<int> arrival(home);
  start(wait_for_until(arrival, home.in(seconds{1}), story));
  EXPECT_TRUE(arrival.complete(1));  // said to have been delivered
  home.advance(seconds{2});          // the timer runs first
  home.run_posted();
  EXPECT_THAT(story, ElementsAre("value 1"));
}

/// A loop of its own, and coroutines on it that the test waits for.
class TaskThreads : public ::testing::Test {
 protected:
  ~TaskThreads() override {
    group_.wait();
    home_->stop();
  }
  void run(std::function<Task<void>()> make) { group_.start(*home_, std::move(make)); }

  SystemClock clock_;
  std::unique_ptr<Loop> home_ = make_loop(clock_, "home");
  WaitGroup group_;
};

TEST_F(TaskThreads, ACompletionMeetsItsWaiterWhicheverComesFirst) {
  constexpr int rounds = 3'000;
  std::atomic<int> round{0};
  std::vector<Completion<int>> arrivals;
  for (int i = 0; i < rounds; ++i) arrivals.emplace_back(*home_);
  std::int64_t sum = 0;
  const auto waiter = [&]() -> Task<void> {
    for (int i = 0; i < rounds; ++i) {
      round = i + 1;  // lets the other thread go for this one now
      const int value = co_await arrivals[static_cast<std::size_t>(i)].wait();
      EXPECT_TRUE(home_->is_current());
      sum += value;
    }
  };
  run(waiter);
  for (int i = 0; i < rounds; ++i) {
    while (round.load() <= i) std::this_thread::yield();
    EXPECT_TRUE(arrivals[static_cast<std::size_t>(i)].complete(i));
  }
  group_.wait();
  EXPECT_EQ(sum, std::int64_t{rounds} * (rounds - 1) / 2);
}

TEST_F(TaskThreads, BothSidesAgreeWhenValueAndDeadlineComeTogether) {
  constexpr int rounds = 1'500;
  std::atomic<int> round{0};
  std::vector<Completion<int>> arrivals;
  for (int i = 0; i < rounds; ++i) arrivals.emplace_back(*home_);
  std::vector<char> received(rounds, 0);
  std::vector<char> delivered(rounds, 0);
  const auto waiter = [&]() -> Task<void> {
    for (std::size_t i = 0; i < rounds; ++i) {
      // From "passed already" to "hardly ever first".
      const Steady deadline = clock_.steady() + microseconds{i % 60};
      round = static_cast<int>(i) + 1;
      const std::optional<int> value = co_await arrivals[i].wait_until(deadline);
      received[i] = value.has_value() ? 1 : 0;
      EXPECT_EQ(value.value_or(static_cast<int>(i)), static_cast<int>(i));
    }
  };
  run(waiter);
  for (int i = 0; i < rounds; ++i) {
    while (round.load() <= i) std::this_thread::yield();
    delivered[static_cast<std::size_t>(i)] =
        arrivals[static_cast<std::size_t>(i)].complete(i) ? 1 : 0;
  }
  group_.wait();
  EXPECT_EQ(received, delivered);
}

TEST_F(TaskThreads, OnlyOneOfTwoThreadsCompletes) {
  for (int i = 0; i < 500; ++i) {
    const Completion<int> arrival(*home_);
    int value = 0;
    run([&]() -> Task<void> {
      const int got = co_await arrival.wait();
      value = got;
    });
    bool other_first = false;
    std::thread other([&] { other_first = arrival.complete(1); });
    const bool first = arrival.complete(2);
    other.join();
    group_.wait();
    ASSERT_NE(first, other_first);
    ASSERT_EQ(value, first ? 2 : 1);
  }
}

// ---- Signal

Task<void> wait_signal(Signal& signal, Steady deadline, Story& story) {
  const bool woken = co_await signal.wait_until(deadline);
  story.emplace_back(woken ? "set" : "deadline");
}

TEST(Signal, RemembersSetsThatComeWhileNobodyWaitsAsOne) {
  StepExecutor home;
  Story story;
  Signal signal(home);
  signal.set();
  signal.set();
  start(wait_signal(signal, home.in(seconds{1}), story));
  EXPECT_THAT(story, ElementsAre("set"));
  start(wait_signal(signal, home.in(seconds{1}), story));
  home.run_posted();
  EXPECT_THAT(story, ElementsAre("set"));
  home.advance(seconds{1});
  EXPECT_THAT(story, ElementsAre("set", "deadline"));
}

TEST(Signal, WakesTheWaiterOnItsExecutor) {
  StepExecutor home;
  Story story;
  Signal signal(home);
  start(wait_signal(signal, home.in(seconds{1}), story));
  signal.set();
  EXPECT_THAT(story, ElementsAre());
  home.run_posted();
  EXPECT_THAT(story, ElementsAre("set"));
  EXPECT_EQ(home.timers(), 0U);
}

TEST(Signal, KeepsASetThatComesBetweenWakingAndRunning) {
  StepExecutor home;
  Story story;
  Signal signal(home);
  start(wait_signal(signal, home.in(seconds{1}), story));
  signal.set();
  signal.set();  // the waiter was told, but has not looked yet
  home.run_posted();
  start(wait_signal(signal, home.in(seconds{1}), story));
  EXPECT_THAT(story, ElementsAre("set", "set"));
}

TEST(Signal, IsNotSetByADeadline) {
  StepExecutor home;
  Story story;
  Signal signal(home);
  start(wait_signal(signal, home.in(seconds{1}), story));
  home.advance(seconds{1});
  signal.set();
  start(wait_signal(signal, home.in(seconds{1}), story));
  EXPECT_THAT(story, ElementsAre("deadline", "set"));
}

TEST_F(TaskThreads, ASetIsNeverLostHoweverItMeetsTheDeadline) {
  // A waiter that went to sleep for an hour with work left would hang this test.
  Signal signal(*home_);
  constexpr int total = 20'000;
  std::atomic<int> offered{0};
  int seen = 0;
  run([&]() -> Task<void> {
    for (int i = 0; seen < total; ++i) {
      const bool rarely = i % 2 == 0;
      const Steady deadline =
          clock_.steady() + (rarely ? hours{1} : hours{0}) + microseconds{i % 7};
      const bool woken = co_await signal.wait_until(deadline);
      EXPECT_TRUE(woken || !rarely);
      seen = offered.load();
    }
  });
  for (int i = 0; i < total; ++i) {
    offered.fetch_add(1);
    signal.set();
  }
  group_.wait();
  EXPECT_EQ(seen, total);
}

TEST_F(TaskThreads, ASignalTakesSetsFromSeveralThreads) {
  Signal signal(*home_);
  std::atomic<int> offered{0};
  constexpr int each = 3'000;
  run([&]() -> Task<void> {
    while (offered.load() < 2 * each) {
      const bool woken = co_await signal.wait_until(clock_.steady() + hours{1});
      EXPECT_TRUE(woken);
    }
  });
  const auto offer = [&] {
    for (int i = 0; i < each; ++i) {
      offered.fetch_add(1);
      signal.set();
    }
  };
  std::thread other(offer);
  offer();
  other.join();
  group_.wait();
  EXPECT_EQ(offered.load(), 2 * each);
}

// ---- sleep_until, ResumeOn

Task<void> sleep_and_tell(StepExecutor& home, Steady at, Story& story, std::string name) {
  co_await sleep_until(home, at);
  story.push_back(std::move(name));
}

TEST(SleepUntil, ResumesSleepersByTimeAndNotBefore) {
  StepExecutor home;
  Story story;
  start(sleep_and_tell(home, home.in(seconds{2}), story, "two"));
  start(sleep_and_tell(home, home.in(seconds{1}), story, "one"));
  home.advance(seconds{1} - microseconds{1});
  EXPECT_THAT(story, ElementsAre());
  home.advance(microseconds{1});
  EXPECT_THAT(story, ElementsAre("one"));
  home.advance(seconds{1});
  EXPECT_THAT(story, ElementsAre("one", "two"));
}

TEST_F(TaskThreads, ResumeOnMovesTheCoroutineAndStaysWhereItIsAlready) {
  const std::unique_ptr<Loop> away = make_loop(clock_, "away");
  bool was_away = false;
  bool came_back = false;
  run([&]() -> Task<void> {
    ResumeOn to_away{*away};
    co_await to_away;
    was_away = away->is_current();
    ResumeOn stay{*away};
    co_await stay;
    was_away = was_away && away->is_current();
    ResumeOn back{*home_};
    co_await back;
    came_back = home_->is_current();
  });
  group_.wait();
  EXPECT_TRUE(was_away);
  EXPECT_TRUE(came_back);
}

TEST_F(TaskThreads, ATaskGoesOnWhereWhatItAwaitedEnded) {
  const std::unique_ptr<Loop> away = make_loop(clock_, "away");
  const auto move = [](Executor& to) -> Task<int> {
    ResumeOn there{to};
    co_await there;
    co_return 1;
  };
  int ended_away = 0;
  run([&]() -> Task<void> {
    for (int i = 0; i < 500; ++i) {
      const int one = co_await move(*away);
      if (away->is_current()) ended_away += one;
      const int two = co_await move(*home_);
      if (!home_->is_current()) ended_away -= two;
    }
  });
  group_.wait();
  EXPECT_EQ(ended_away, 500);
}

// ---- WaitGroup

TEST(WaitGroup, CountsFromTheStartToTheEndOfEachCoroutine) {
  StepExecutor home;
  WaitGroup group;
  const Completion<int> first(home);
  const Completion<int> second(home);
  Story story;
  group.start(home, [&] { return wait_for(first, story); });
  group.start(home, [&] { return wait_for(second, story); });
  EXPECT_EQ(group.running(), 2U);
  home.run_posted();
  EXPECT_EQ(group.running(), 2U);
  first.complete(1);
  home.run_posted();
  EXPECT_EQ(group.running(), 1U);
  EXPECT_FALSE(group.wait_for(milliseconds{0}));
  second.complete(2);
  home.run_posted();
  EXPECT_EQ(group.running(), 0U);
  EXPECT_TRUE(group.wait_for(milliseconds{0}));
  EXPECT_THAT(story, ElementsAre("value 1", "value 2"));
}

TEST(WaitGroup, HasLetGoOfEverythingWhenTheWaitIsOver) {
  const SystemClock clock;
  const std::unique_ptr<Loop> home = make_loop(clock, "home");
  for (int i = 0; i < 300; ++i) {
    WaitGroup group;
    auto captured = std::make_shared<int>();
    auto argument = std::make_shared<int>();
    const std::weak_ptr<int> watched_capture = captured;
    const std::weak_ptr<int> watched_argument = argument;
    const auto use = [](std::shared_ptr<int> value, Executor& on) -> Task<void> {
      co_await sleep_until(on, on.clock().steady() + microseconds{1});
      *value = 1;
    };
    group.start(*home, [captured = std::move(captured), argument = std::move(argument), use,
                        &home]() mutable { return use(std::move(argument), *home); });
    group.wait();
    ASSERT_TRUE(watched_capture.expired());
    ASSERT_TRUE(watched_argument.expired());
  }
}

TEST(WaitGroup, CountsNothingThatAStoppedLoopDrops) {
  const SystemClock clock;
  const std::unique_ptr<Loop> home = make_loop(clock, "home");
  home->stop();
  WaitGroup group;
  Story story;
  group.start(*home, [&] { return tell(story, "ran"); });
  group.wait();
  EXPECT_THAT(story, ElementsAre());
}

TEST(WaitGroupDeathTest, MayNotBeDestroyedWhileACoroutineRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  StepExecutor home;
  EXPECT_DEATH(
      {
        WaitGroup group;
        group.start(home, []() -> Task<void> { co_return; });
      },
      "no coroutine outlives its wait group");
}

}  // namespace
}  // namespace doorbuster::common

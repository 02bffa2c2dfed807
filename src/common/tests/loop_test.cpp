#include "common/loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace doorbuster::common {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

class LoopTest : public ::testing::Test {
 protected:
  /// Runs `function` on the loop and waits for its end.
  void run(std::function<void()> function) {
    std::promise<void> ended;
    loop_->post([&] {
      function();
      ended.set_value();
    });
    ended.get_future().wait();
  }

  [[nodiscard]] Steady in(std::chrono::nanoseconds wait) const { return clock_.steady() + wait; }

  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = make_loop(clock_, "loop-test");
};

TEST_F(LoopTest, RunsWhatOneThreadPostsInOrderAndNeverInsideTheCall) {
  std::vector<int> order;
  std::promise<void> ended;
  loop_->post([&] {
    for (int i = 1; i <= 3; ++i) loop_->post([&order, i] { order.push_back(i); });
    loop_->post([&ended] { ended.set_value(); });
    order.push_back(0);
  });
  ended.get_future().wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST_F(LoopTest, KnowsWhetherTheCallerRunsOnIt) {
  const std::unique_ptr<Loop> other = make_loop(clock_, "other");
  EXPECT_FALSE(loop_->is_current());
  bool mine = false;
  bool others = true;
  run([&] {
    mine = loop_->is_current();
    others = other->is_current();
  });
  EXPECT_TRUE(mine);
  EXPECT_FALSE(others);
}

TEST_F(LoopTest, NamesItsThreadForDebuggersInFifteenCharacters) {
  const std::unique_ptr<Loop> loop = make_loop(clock_, "a-name-of-more-than-fifteen");
  std::promise<std::string> name;
  loop->post([&] {
    char text[16] = {};
    pthread_getname_np(pthread_self(), text, sizeof text);
    name.set_value(text);
  });
  EXPECT_EQ(name.get_future().get(), "a-name-of-more-");
}

TEST_F(LoopTest, RunsTimersByTimeAndThoseOfOneTimeAsTheyWereSet) {
  std::vector<int> order;
  std::promise<void> ended;
  run([&] {
    const Steady at = in(milliseconds{5});
    loop_->post_at(at + microseconds{2}, [&] {
      order.push_back(4);
      ended.set_value();
    });
    loop_->post_at(at, [&] { order.push_back(2); });
    loop_->post_at(at, [&] { order.push_back(3); });
    loop_->post_at(at - hours{1}, [&] { order.push_back(1); });
  });
  ended.get_future().wait();
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4));
}

TEST_F(LoopTest, NeverRunsATimerBeforeItsTime) {
  std::promise<Steady> ran;
  Steady at;
  run([&] {
    at = in(milliseconds{3});
    loop_->post_at(at, [&] { ran.set_value(clock_.steady()); });
  });
  EXPECT_GE(ran.get_future().get(), at);
}

TEST_F(LoopTest, DoesNotRunWhatWasCancelled) {
  std::vector<int> order;
  std::promise<void> ended;
  run([&] {
    const Steady at = in(milliseconds{1});
    const Executor::TimerId first = loop_->post_at(at, [&] { order.push_back(1); });
    const auto third = std::make_shared<Executor::TimerId>();
    loop_->post_at(at, [&, third] {
      order.push_back(2);
      loop_->cancel(*third);  // due already, but not run yet
    });
    *third = loop_->post_at(at, [&] { order.push_back(3); });
    loop_->post_at(at + microseconds{1}, [&] { ended.set_value(); });
    loop_->cancel(first);
    loop_->cancel(first);
    loop_->cancel(987'654'321);
  });
  ended.get_future().wait();
  EXPECT_THAT(order, ElementsAre(2));
}

TEST_F(LoopTest, IgnoresACancelOfATimerThatHasRunOrRuns) {
  std::promise<void> ended;
  run([&] {
    auto id = std::make_shared<Executor::TimerId>();
    *id = loop_->post_at(in(microseconds{1}), [&, id] {
      loop_->cancel(*id);
      loop_->post([&, id] {
        loop_->cancel(*id);
        ended.set_value();
      });
    });
  });
  ended.get_future().wait();
}

TEST_F(LoopTest, LetsOthersRunBetweenTimersThatSetThemselvesForNow) {
  // Ends only when a posted function gets a turn while the timer is always due.
  std::atomic<bool> enough{false};
  std::function<void()> again = [&] {
    if (!enough) loop_->post_at(in(-hours{1}), again);
  };
  run([&] { loop_->post_at(in(-hours{1}), again); });
  run([&] { enough = true; });
  loop_->stop();
  EXPECT_TRUE(enough);
}

TEST_F(LoopTest, TakesTimesThatNeverCome) {
  std::promise<void> ended;
  run([&] {
    loop_->post_at(Steady::max(), [] { FAIL() << "the end of time has come"; });
    loop_->post_at(in(microseconds{1}), [&] { ended.set_value(); });
  });
  ended.get_future().wait();
}

TEST_F(LoopTest, AsksItsClockWhetherATimerIsDue) {
  ManualClock clock(Instant{});
  const std::unique_ptr<Loop> loop = make_loop(clock, "manual");
  std::promise<void> set;
  std::promise<Steady> ran;
  const Steady at = clock.steady() + milliseconds{2};
  loop->post([&] {
    loop->post_at(at, [&] { ran.set_value(clock.steady()); });
    set.set_value();
  });
  set.get_future().wait();
  clock.advance(microseconds{1999});
  clock.advance(microseconds{1});
  EXPECT_EQ(ran.get_future().get(), at);
}

TEST_F(LoopTest, StopRunsWhatWasPostedBeforeAndDropsWhatComesLater) {
  int before = 0;
  for (int i = 0; i < 100; ++i) loop_->post([&before] { ++before; });
  loop_->stop();
  EXPECT_EQ(before, 100);
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  loop_->post([held = std::move(held)] { FAIL() << "ran after the end"; });
  EXPECT_TRUE(watched.expired()) << "dropped at once, with what it holds";
  loop_->stop();
}

TEST_F(LoopTest, StopAlsoRunsWhatTheLoopPostedToItselfBefore) {
  for (int i = 0; i < 200; ++i) {
    const std::unique_ptr<Loop> loop = make_loop(clock_, "stopped");
    std::promise<void> posted;
    bool ran = false;
    loop->post([&] {
      loop->post([&] { ran = true; });
      posted.set_value();
    });
    posted.get_future().wait();
    loop->stop();
    ASSERT_TRUE(ran);
  }
}

TEST_F(LoopTest, StopLetsGoOfTimersWithoutRunningThem) {
  std::weak_ptr<int> watched;
  run([&] {
    auto held = std::make_shared<int>();
    watched = held;
    loop_->post_at(in(hours{1}), [held = std::move(held)] { FAIL(); });
  });
  EXPECT_FALSE(watched.expired());
  loop_->stop();
  EXPECT_TRUE(watched.expired());
}

TEST_F(LoopTest, MayBeStoppedByTwoThreads) {
  std::thread other([&] { loop_->stop(); });
  loop_->stop();
  other.join();
}

using LoopDeathTest = LoopTest;

TEST_F(LoopDeathTest, RefusesTimersFromElsewhereAndItsOwnStop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(loop_->post_at(in(hours{1}), [] {}), "timers are set on their own loop");
  EXPECT_DEATH(loop_->cancel(1), "timers are cancelled on their own loop");
  EXPECT_DEATH(run([&] { loop_->stop(); }), "a loop cannot stop itself");
}

}  // namespace
}  // namespace doorbuster::common

#include "common/loop.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/result.hpp"

namespace doorbuster::common {
namespace {

class AsioLoop;
thread_local const AsioLoop* current = nullptr;

class AsioLoop final : public Loop {
 public:
  AsioLoop(const Clock& clock, const std::string& name)
      : clock_(clock), io_(1), work_(io_.get_executor()), timer_(io_) {
    thread_ = std::thread([this, name] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      current = this;
      io_.run();
    });
  }

  ~AsioLoop() override { stop(); }

  void post(Function function) override {
    // What comes in the very moment of stop() may be kept until the destructor; nothing runs it.
    if (closed_.load(std::memory_order_relaxed)) return;
    boost::asio::post(io_, std::move(function));
  }

  TimerId post_at(Steady at, Function function) override {
    DOORBUSTER_ENSURE(is_current(), "timers are set on their own loop");
    const TimerId id = next_++;
    const bool first = timers_.empty() || at < timers_.begin()->first.first;
    timers_.emplace(std::pair{at, id}, std::move(function));
    due_.emplace(id, at);
    if (first) arm();
    return id;
  }

  void cancel(TimerId id) override {
    DOORBUSTER_ENSURE(is_current(), "timers are cancelled on their own loop");
    const auto found = due_.find(id);
    if (found == due_.end()) return;
    timers_.erase({found->second, id});
    due_.erase(found);
  }

  bool is_current() const noexcept override { return current == this; }
  const Clock& clock() const noexcept override { return clock_; }
  boost::asio::io_context& io() noexcept override { return io_; }

  void stop() override {
    DOORBUSTER_ENSURE(!is_current(), "a loop cannot stop itself");
    std::call_once(stopped_, [this] {
      closed_.store(true, std::memory_order_relaxed);
      // Asio keeps what a function posts to its own loop apart until that function ends, so the end
      // may overtake it. Posted once more from the loop itself, it is behind all of that.
      boost::asio::post(io_, [this] {
        boost::asio::post(io_, [this] {
          timers_.clear();
          due_.clear();
          io_.stop();
        });
      });
      thread_.join();
    });
  }

 private:
  // One Asio timer for all: most are cancelled long before they are due, which then costs two map
  // operations and no system call.
  void arm() {
    if (timers_.empty()) return;
    // How long, not until when: the clock that says when may be another one than Asio's. Woken too
    // early, run_due() arms again; that is also why a bound is harmless, and without it the sum
    // could overflow.
    const std::chrono::nanoseconds wait = timers_.begin()->first.first - clock_.steady();
    timer_.expires_after(std::min<std::chrono::nanoseconds>(wait, kLongestWait));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) run_due();
    });
  }

  void run_due() {
    // Those that are set meanwhile wait for the next turn, so that one that sets itself again for
    // now cannot keep everything else from running.
    const TimerId end = next_;
    while (!timers_.empty()) {
      const auto first = timers_.begin();
      if (first->first.first > clock_.steady() || first->first.second >= end) break;
      auto due = timers_.extract(first);
      due_.erase(due.key().second);
      due.mapped()();
    }
    arm();
  }

  static constexpr std::chrono::hours kLongestWait{1};

  const Clock& clock_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  std::map<std::pair<Steady, TimerId>, Function> timers_;  // only touched on the loop
  std::map<TimerId, Steady> due_;                          // only touched on the loop
  TimerId next_ = 1;                                       // only touched on the loop
  std::once_flag stopped_;
  std::atomic<bool> closed_{false};  // only stops posts early, so its order does not matter
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Loop> make_loop(const Clock& clock, const std::string& name) {
  return std::make_unique<AsioLoop>(clock, name);
}

}  // namespace doorbuster::common

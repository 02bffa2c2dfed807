#include "common/loop.hpp"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
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

  void post(Function function) override { boost::asio::post(io_, std::move(function)); }

  TimerId post_at(Steady at, Function function) override {
    const TimerId id = next_++;
    const bool first = timers_.empty() || at < timers_.begin()->first.first;
    timers_.emplace(std::pair{at, id}, std::move(function));
    due_.emplace(id, at);
    if (first) arm();
    return id;
  }

  void cancel(TimerId id) override {
    const auto found = due_.find(id);
    if (found == due_.end()) return;
    timers_.erase({found->second, id});
    due_.erase(found);
  }

  bool is_current() const noexcept override { return current == this; }
  const Clock& clock() const noexcept override { return clock_; }
  boost::asio::io_context& io() noexcept override { return io_; }

  void stop() override {
    if (!thread_.joinable()) return;
    DOORBUSTER_ENSURE(!is_current(), "a loop cannot stop itself");
    boost::asio::post(io_, [this] {
      timers_.clear();
      due_.clear();
      io_.stop();
    });
    thread_.join();
  }

 private:
  // One Asio timer for all: most are cancelled long before they are due, which then costs two map
  // operations and no system call.
  void arm() {
    if (timers_.empty()) return;
    const Steady at = timers_.begin()->first.first;
    timer_.expires_at(std::chrono::steady_clock::time_point{
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(at.time_since_epoch())});
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) run_due();
    });
  }

  void run_due() {
    while (!timers_.empty() && timers_.begin()->first.first <= clock_.steady()) {
      auto first = timers_.extract(timers_.begin());
      due_.erase(first.key().second);
      first.mapped()();
    }
    arm();
  }

  const Clock& clock_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  std::map<std::pair<Steady, TimerId>, Function> timers_;  // only touched on the loop
  std::map<TimerId, Steady> due_;                          // only touched on the loop
  TimerId next_ = 1;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Loop> make_loop(const Clock& clock, const std::string& name) {
  return std::make_unique<AsioLoop>(clock, name);
}

}  // namespace doorbuster::common

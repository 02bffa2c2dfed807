#include "common/task.hpp"

namespace doorbuster::common {

/// One of these lives as long as one started coroutine, or the function that would have started it.
class WaitGroup::Ticket {
 public:
  explicit Ticket(WaitGroup& group) : group_(group) {
    const std::lock_guard lock(group_.mutex_);
    ++group_.running_;
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    const std::lock_guard lock(group_.mutex_);
    // Told under the lock: whoever waits may destroy the group as soon as it has the lock.
    if (--group_.running_ == 0) group_.none_running_.notify_all();
  }

 private:
  WaitGroup& group_;
};

WaitGroup::~WaitGroup() {
  DOORBUSTER_ENSURE(running() == 0, "no coroutine outlives its wait group");
}

void WaitGroup::start(Executor& home, std::function<Task<void>()> make) {
  auto ticket = std::make_shared<const Ticket>(*this);
  home.post([ticket = std::move(ticket), make = std::move(make)]() mutable {
    run(std::move(ticket), std::move(make));
  });
}

detail::Detached WaitGroup::run(std::shared_ptr<const Ticket> ticket,
                                std::function<Task<void>()> make) {
  {
    Task<void> task = make();
    co_await task;
  }
  // The ticket goes last: what the coroutine held may belong to whoever waits for the group.
  make = nullptr;
  ticket.reset();
}

std::size_t WaitGroup::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void WaitGroup::wait() const {
  std::unique_lock lock(mutex_);
  none_running_.wait(lock, [this] { return running_ == 0; });
}

bool WaitGroup::wait_for(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  return none_running_.wait_for(lock, patience, [this] { return running_ == 0; });
}

void Signal::set() {
  std::optional<Completion<Done>> waiter;
  {
    const std::lock_guard lock(mutex_);
    if (waiter_) {
      waiter = std::exchange(waiter_, std::nullopt);
    } else {
      set_ = true;
      return;
    }
  }
  // A waiter whose deadline has just passed misses this one: it must not be lost.
  if (!waiter->complete(Done{})) set();
}

Task<bool> Signal::wait_until(Steady deadline) {
  Completion<Done> arrival(home_);
  {
    const std::lock_guard lock(mutex_);
    if (set_) {
      set_ = false;
      co_return true;
    }
    waiter_ = arrival;
  }
  const std::optional<Done> arrived = co_await arrival.wait_until(deadline);
  {
    const std::lock_guard lock(mutex_);
    waiter_.reset();
  }
  co_return arrived.has_value();
}

Task<void> sleep_until(Executor& home, Steady at) {
  const Completion<Done> never(home);
  const std::optional<Done> arrived = co_await never.wait_until(at);
  static_cast<void>(arrived);
}

}  // namespace doorbuster::common

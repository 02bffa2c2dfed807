#include "common/task.hpp"

namespace doorbuster::common {

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

#pragma once

#include <cstdint>
#include <functional>

#include "common/clock.hpp"

namespace doorbuster::common {

/// Runs functions, now or at a time. Everything that waits does so through one of these, so that
/// the real engine code runs on a simulated one.
///
/// E1: functions of one executor never run at the same time (it is one thread, or acts like one).
/// E2: functions posted by one thread run in the order in which they were posted.
class Executor {
 public:
  using Function = std::function<void()>;
  using TimerId = std::uint64_t;

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// Callable from any thread; never runs `function` inside the call.
  virtual void post(Function function) = 0;

  /// Runs `function` once `at` has come. Only callable on the executor itself.
  virtual TimerId post_at(Steady at, Function function) = 0;

  /// After this returns the function will not run. Only callable on the executor itself; an id that
  /// has run is ignored.
  virtual void cancel(TimerId id) = 0;

  /// Whether the caller runs on this executor.
  [[nodiscard]] virtual bool is_current() const noexcept = 0;

  [[nodiscard]] virtual const Clock& clock() const noexcept = 0;
};

}  // namespace doorbuster::common

#pragma once

#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/executor.hpp"
#include "common/frames.hpp"
#include "common/result.hpp"

namespace doorbuster::common {

template <class T>
class Task;

namespace detail {

/// What the promises of all tasks share: at its end a task passes control to its awaiter.
class TaskPromiseBase : public PooledFrame {
 public:
  struct Final {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      const TaskPromiseBase& promise = ended.promise();
      return promise.awaiter_;
    }
    void await_resume() noexcept {}
  };

  std::suspend_always initial_suspend() noexcept { return {}; }
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }

  void set_awaiter(std::coroutine_handle<> awaiter) noexcept { awaiter_ = awaiter; }

 private:
  std::coroutine_handle<> awaiter_ = std::noop_coroutine();
};

template <class T>
class TaskPromise : public TaskPromiseBase {
 public:
  Task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& result) {
    value_.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromise<void> : public TaskPromiseBase {
 public:
  Task<void> get_return_object() noexcept;
  void return_void() noexcept {}
  void take() noexcept {}
};

}  // namespace detail

/// A lazy coroutine: starts when it is awaited, and resumes its awaiter when it ends. It must be
/// awaited at most once, by whoever owns it. An exception that leaves it is a bug and ends the
/// process (STYLE: failures are values), so a signature tells the whole story.
///
/// Name what goes into an await and what comes out: g++ 12 destroys an unnamed struct that owns
/// memory, or a capturing lambda, inside `co_await` twice; nothing warns.
///
/// A loop over tasks none of which ever waits needs constant stack with -O2; without optimization
/// g++ 12 makes no tail call of a transfer, and some ten thousand of them in one go are the limit.
template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;

  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().set_awaiter(awaiter);
    return handle_;
  }
  T await_resume() { return handle_.promise().take(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <class T>
Task<T> detail::TaskPromise<T>::get_return_object() noexcept {
  return Task<T>{std::coroutine_handle<TaskPromise>::from_promise(*this)};
}
inline Task<void> detail::TaskPromise<void>::get_return_object() noexcept {
  return Task<void>{std::coroutine_handle<TaskPromise>::from_promise(*this)};
}

namespace detail {
/// Owns itself: the frame goes when the coroutine ends.
struct Detached {
  struct promise_type : PooledFrame {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

inline Detached run_detached(Task<void> task) { co_await task; }
}  // namespace detail

/// Runs `task` in the calling thread up to its first wait; then wherever what it waits for resumes
/// it. Whoever starts one must be able to wait for its end (see WaitGroup): nothing else owns it.
inline void start(Task<void> task) { detail::run_detached(std::move(task)); }

/// Counts coroutines that nobody awaits, so that their owner can wait for the last one to end: what
/// was started must not outlive what it uses. Callable from any thread. Destroying a group with one
/// still running is a bug.
class WaitGroup {
 public:
  WaitGroup() = default;
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;
  ~WaitGroup();

  /// Calls `make` on `home` and runs what it returns there. `make` lives until that has ended, so
  /// it may be a capturing lambda. It counts from now on; a `home` that was stopped drops it, which
  /// ends it.
  void start(Executor& home, std::function<Task<void>()> make);

  [[nodiscard]] std::size_t running() const;

  /// Blocks until none is running: the last one's frame and arguments are gone then. Not callable
  /// on an executor that one of them needs.
  void wait() const;
  /// The same for at most `patience`; false when one is still running then.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds patience) const;

 private:
  class Ticket;
  static detail::Detached run(std::shared_ptr<const Ticket> ticket,
                              std::function<Task<void>()> make);

  mutable std::mutex mutex_;
  mutable std::condition_variable none_running_;
  std::size_t running_ = 0;  // Guarded by mutex_.
};

/// A value that arrives once, from any thread, and resumes its one waiter on the waiter's executor.
/// Copies share the same arrival.
template <class T>
class Completion {
 public:
  /// `home` is where the waiter runs; it must outlive the completion's last use.
  explicit Completion(Executor& home) : state_(std::make_shared<State>(home)) {}

  /// Delivers the value. True for the first call only; later ones change nothing. Any thread.
  bool complete(T value) const {
    std::coroutine_handle<> waiter;
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->value || state_->abandoned) return false;
      state_->value.emplace(std::move(value));
      waiter = std::exchange(state_->waiter, nullptr);
    }
    if (waiter) state_->home.post([waiter] { waiter.resume(); });
    return true;
  }

  /// Waits for the value; to be awaited on the home executor, by one coroutine, once.
  [[nodiscard]] auto wait() const { return Awaiter{state_}; }

  /// Waits for the value until `deadline`; nothing when it passed first, and then a later
  /// complete() returns false. To be awaited on the home executor, by one coroutine, once.
  [[nodiscard]] Task<std::optional<T>> wait_until(Steady deadline) const {
    return wait_until_impl(state_, deadline);
  }

 private:
  struct State {
    explicit State(Executor& executor) : home(executor) {}
    Executor& home;
    std::mutex mutex;
    std::optional<T> value;          // Guarded by mutex.
    std::coroutine_handle<> waiter;  // Guarded by mutex.
    bool abandoned = false;          // Guarded by mutex: the deadline came first.
  };

  /// Resumes once there is a value or the deadline has passed.
  class Settled {
   public:
    explicit Settled(std::shared_ptr<State> state) : state_(std::move(state)) {}
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) const {
      const std::lock_guard lock(state_->mutex);
      DOORBUSTER_ENSURE(!state_->waiter, "a completion has one waiter");
      if (state_->value || state_->abandoned) return false;
      state_->waiter = handle;
      return true;
    }
    void await_resume() const noexcept {}

   protected:
    std::shared_ptr<State> state_;
  };

  class Awaiter : public Settled {
   public:
    using Settled::Settled;
    T await_resume() const {
      const std::lock_guard lock(this->state_->mutex);
      DOORBUSTER_ENSURE(this->state_->value, "a completion is not waited for after its deadline");
      return std::move(*this->state_->value);
    }
  };

  static std::optional<T> take(State& state) {
    const std::lock_guard lock(state.mutex);
    return std::move(state.value);
  }

  static Task<std::optional<T>> wait_until_impl(std::shared_ptr<State> state, Steady deadline) {
    const Executor::TimerId timer = state->home.post_at(deadline, [state] {
      std::coroutine_handle<> waiter;
      {
        const std::lock_guard lock(state->mutex);
        if (state->value) return;
        state->abandoned = true;
        waiter = std::exchange(state->waiter, nullptr);
      }
      if (waiter) waiter.resume();
    });
    Settled settled(state);
    co_await settled;
    state->home.cancel(timer);
    std::optional<T> arrived = take(*state);
    co_return arrived;
  }

  std::shared_ptr<State> state_;
};

/// Wakes one waiting loop, any number of times; sets that arrive while nobody waits are remembered
/// as one. set() from any thread, waits only on the home executor and one at a time.
class Signal {
 public:
  explicit Signal(Executor& home) : home_(home) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() = default;

  void set();
  /// True when it was set, false when `deadline` passed first.
  [[nodiscard]] Task<bool> wait_until(Steady deadline);

 private:
  Executor& home_;
  std::mutex mutex_;
  bool set_ = false;                        // Guarded by mutex_.
  std::optional<Completion<Done>> waiter_;  // Guarded by mutex_.
};

/// Resumes at `at`; to be awaited on `home`.
[[nodiscard]] Task<void> sleep_until(Executor& home, Steady at);

/// Moves the coroutine to `home`.
struct ResumeOn {
  Executor& home;
  bool await_ready() const noexcept { return home.is_current(); }
  void await_suspend(std::coroutine_handle<> handle) const {
    home.post([handle] { handle.resume(); });
  }
  void await_resume() const noexcept {}
};

}  // namespace doorbuster::common

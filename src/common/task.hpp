#pragma once

#include <coroutine>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/executor.hpp"
#include "common/result.hpp"

namespace doorbuster::common {

/// A lazy coroutine: starts when it is awaited, and resumes its awaiter when it ends. It must be
/// awaited at most once, by whoever owns it. An exception that leaves it is a bug and ends the process
/// (STYLE: failures are values), so a signature tells the whole story.
///
/// Name what goes into an await and what comes out: g++ 12 destroys an unnamed struct that owns memory,
/// or a capturing lambda, inside `co_await` twice; nothing warns.
template <class T>
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> awaiter = std::noop_coroutine();
    std::optional<T> value;

    Task get_return_object() {
      return Task{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
        return ended.promise().awaiter;
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    template <class U>
    void return_value(U&& result) {
      value.emplace(std::forward<U>(result));
    }
    void unhandled_exception() noexcept { std::terminate(); }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  T await_resume() { return std::move(*handle_.promise().value); }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

template <>
class [[nodiscard]] Task<void> {
 public:
  struct promise_type {
    std::coroutine_handle<> awaiter = std::noop_coroutine();
    Task get_return_object() {
      return Task{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
        return ended.promise().awaiter;
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  void await_resume() noexcept {}

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

namespace detail {
/// Owns itself: the frame goes when the coroutine ends.
struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

inline Detached run_detached(Task<void> task) { co_await task; }
}  // namespace detail

/// Runs `task` in the calling thread up to its first wait; then wherever what it waits for resumes it.
/// Whoever starts one must be able to wait for its end (see WaitGroup): nothing else owns it.
inline void start(Task<void> task) { detail::run_detached(std::move(task)); }

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

  /// Waits for the value; to be awaited on the home executor.
  [[nodiscard]] auto wait() const { return Awaiter{state_}; }

  /// Waits for the value until `deadline`; nothing when it passed first, and then a later complete()
  /// returns false. To be awaited on the home executor.
  [[nodiscard]] Task<std::optional<T>> wait_until(Steady deadline) const {
    return wait_until_impl(state_, deadline);
  }

 private:
  struct State {
    explicit State(Executor& executor) : home(executor) {}
    Executor& home;
    std::mutex mutex;
    std::optional<T> value;           // Guarded by mutex.
    std::coroutine_handle<> waiter;   // Guarded by mutex.
    bool abandoned = false;           // Guarded by mutex.
  };

  struct Awaiter {
    std::shared_ptr<State> state;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) const {
      const std::lock_guard lock(state->mutex);
      if (state->value || state->abandoned) return false;
      state->waiter = handle;
      return true;
    }
    T await_resume() const {
      const std::lock_guard lock(state->mutex);
      return std::move(*state->value);
    }
  };

  struct QuietAwaiter {
    std::shared_ptr<State> state;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) const {
      const std::lock_guard lock(state->mutex);
      if (state->value || state->abandoned) return false;
      state->waiter = handle;
      return true;
    }
    void await_resume() const noexcept {}
  };

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
    QuietAwaiter awaiter{state};
    co_await awaiter;
    state->home.cancel(timer);
    std::optional<T> arrived;
    {
      const std::lock_guard lock(state->mutex);
      arrived = std::move(state->value);
    }
    co_return arrived;
  }

  std::shared_ptr<State> state_;
};

/// Wakes one waiting loop, any number of times; sets that arrive while nobody waits are remembered as
/// one. set() from any thread, waits only on the home executor and one at a time.
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
  bool set_ = false;                              // Guarded by mutex_.
  std::optional<Completion<Done>> waiter_;        // Guarded by mutex_.
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

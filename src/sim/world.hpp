#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/executor.hpp"

namespace doorbuster::sim {

/// Microseconds of simulated time.
using Micros = std::int64_t;
inline constexpr Micros kMillisecond = 1000;
inline constexpr Micros kSecond = 1'000'000;

/// The one source of chance of a run: the same seed draws the same numbers, on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] std::uint64_t next() noexcept;
  /// 0 to `bound` - 1; 0 for a bound of 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept;
  /// `low` to `high`, both included.
  [[nodiscard]] std::int64_t between(std::int64_t low, std::int64_t high) noexcept;
  [[nodiscard]] bool chance(double probability) noexcept;
  void fill(std::span<std::uint8_t> out) noexcept;

 private:
  std::uint64_t state_;
};

/// Simulated time, and everything that is to happen in it. One thread.
class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] Micros now() const noexcept { return now_; }
  [[nodiscard]] Random& random() noexcept { return random_; }
  /// What happens at the same microsecond happens in the order in which it was asked for.
  void at(Micros when, std::function<void()> event);
  void after(Micros delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }
  /// Runs what is due until `end`, and stops the clock there.
  void run_until(Micros end);
  /// Runs until `done`, but not beyond `end`; whether it is done.
  bool run_until(Micros end, const std::function<bool()>& done);
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }

  /// One line of the run's story, kept only while `tracing`.
  template <class F>
  void trace(F&& line) {
    if (tracing) tell(std::forward<F>(line)());
  }
  bool tracing = false;

  /// The run came through this row of the page of schedules.
  void reached(int schedule) { ++schedules[schedule]; }
  std::map<int, int> schedules;

 private:
  struct Event {
    Micros when;
    std::uint64_t order;
    std::function<void()> run;
  };
  static bool later(const Event& a, const Event& b) noexcept {
    return std::pair(a.when, a.order) > std::pair(b.when, b.order);
  }
  void step();
  void tell(const std::string& line) const;

  Micros now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  std::vector<Event> heap_;
  Random random_;
};

/// A node's clock: simulated time, off by what its machine is off.
class SimClock final : public common::Clock {
 public:
  SimClock(const World& world, Micros off) : world_(world), off_(off) {}
  [[nodiscard]] common::Instant now() const noexcept override;
  [[nodiscard]] common::Steady steady() const noexcept override;
  /// The machine's calendar is set; what is steady stays so.
  void set_off(Micros off) noexcept { off_ = off; }
  /// Moves only this clock: for a process that is over and must still be wound up.
  void skip_to(common::Steady at) noexcept;

 private:
  const World& world_;
  Micros off_;
  Micros skipped_ = 0;
};

/// The calendar at simulated time 0.
inline constexpr common::Instant kEpochStart = common::from_micros(1'800'000'000'000'000);

/// A node's executor: one function at a time, some time after it was posted. It can be stopped and
/// continued (SIGSTOP), and it can end (kill -9).
class SimExecutor final : public common::Executor {
 public:
  /// `jitter`: a posted function waits up to so long.
  SimExecutor(World& world, SimClock& clock, Micros jitter);

  void post(Function function) override;
  TimerId post_at(common::Steady at, Function function) override;
  void cancel(TimerId id) override;
  [[nodiscard]] bool is_current() const noexcept override;
  [[nodiscard]] const common::Clock& clock() const noexcept override { return clock_; }

  void pause() { paused_ = true; }
  void resume();
  [[nodiscard]] bool paused() const noexcept { return paused_; }
  /// The process is over: what still waits is run now, one after another and without its time
  /// passing, until nothing is left or `done`. Whatever it calls must be dead already.
  void wind_up(const std::function<bool()>& done);
  [[nodiscard]] bool over() const noexcept { return over_; }

 private:
  void schedule();
  void drain();
  void run(Function& function);
  void due(TimerId id);

  World& world_;
  SimClock& clock_;
  const Micros jitter_;
  std::deque<Function> queue_;
  bool scheduled_ = false;
  bool paused_ = false;
  bool over_ = false;
  TimerId next_ = 1;
  std::map<TimerId, std::pair<common::Steady, Function>> timers_;
};

}  // namespace doorbuster::sim

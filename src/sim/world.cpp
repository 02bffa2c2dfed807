#include "sim/world.hpp"

#include <algorithm>
#include <cstdio>

#include "common/result.hpp"

namespace doorbuster::sim {
namespace {

// Whose function runs now; there is one thread, but the tests of a library may use several.
thread_local const SimExecutor* current = nullptr;

}  // namespace

std::uint64_t Random::next() noexcept {
  // SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t Random::below(std::uint64_t bound) noexcept {
  return bound == 0 ? 0 : next() % bound;
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) noexcept {
  return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1)));
}

bool Random::chance(double probability) noexcept {
  return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
}

void Random::fill(std::span<std::uint8_t> out) noexcept {
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(next());
}

void World::at(Micros when, std::function<void()> event) {
  heap_.push_back({std::max(when, now_), order_++, std::move(event)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void World::step() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Event event = std::move(heap_.back());
  heap_.pop_back();
  now_ = event.when;
  ++events_;
  event.run();
}

void World::run_until(Micros end) {
  while (!heap_.empty() && heap_.front().when <= end) step();
  now_ = std::max(now_, end);
}

bool World::run_until(Micros end, const std::function<bool()>& done) {
  while (!done()) {
    if (heap_.empty() || heap_.front().when > end) return false;
    step();
  }
  return true;
}

void World::tell(const std::string& line) const {
  std::fprintf(stderr, "%10.6f  %s\n", static_cast<double>(now_) / 1e6, line.c_str());
}

common::Instant SimClock::now() const noexcept {
  return kEpochStart + std::chrono::microseconds{world_.now() + off_ + skipped_};
}

common::Steady SimClock::steady() const noexcept {
  return common::Steady{std::chrono::seconds{1} +
                        std::chrono::microseconds{world_.now() + skipped_}};
}

void SimClock::skip_to(common::Steady at) noexcept {
  const auto ahead = std::chrono::ceil<std::chrono::microseconds>(at - steady());
  skipped_ += std::max<Micros>(ahead.count(), 0);
}

SimExecutor::SimExecutor(World& world, SimClock& clock, Micros jitter)
    : world_(world), clock_(clock), jitter_(jitter) {}

void SimExecutor::post(Function function) {
  queue_.push_back(std::move(function));
  schedule();
}

void SimExecutor::schedule() {
  if (scheduled_ || paused_ || over_ || queue_.empty()) return;
  scheduled_ = true;
  world_.after(world_.random().between(0, jitter_), [this] { drain(); });
}

void SimExecutor::drain() {
  scheduled_ = false;
  if (paused_ || over_ || queue_.empty()) return;
  Function next = std::move(queue_.front());
  queue_.pop_front();
  run(next);
  schedule();
}

void SimExecutor::run(Function& function) {
  const SimExecutor* before = std::exchange(current, this);
  function();
  function = nullptr;
  current = before;
}

common::Executor::TimerId SimExecutor::post_at(common::Steady at, Function function) {
  DOORBUSTER_ENSURE(is_current(), "timers are set on their own executor");
  const TimerId id = next_++;
  timers_.emplace(id, std::pair{at, std::move(function)});
  const auto wait = std::chrono::ceil<std::chrono::microseconds>(at - clock_.steady());
  world_.after(std::max<Micros>(wait.count(), 0), [this, id] { due(id); });
  return id;
}

void SimExecutor::due(TimerId id) {
  if (paused_ || over_) return;
  auto timer = timers_.extract(id);
  if (timer.empty()) return;
  run(timer.mapped().second);
}

void SimExecutor::cancel(TimerId id) { timers_.erase(id); }

bool SimExecutor::is_current() const noexcept { return current == this; }

void SimExecutor::resume() {
  if (!paused_ || over_) return;
  paused_ = false;
  std::vector<TimerId> late;
  for (const auto& [id, timer] : timers_) {
    if (timer.first <= clock_.steady()) late.push_back(id);
  }
  for (const TimerId id : late) world_.after(0, [this, id] { due(id); });
  schedule();
}

void SimExecutor::wind_up(const std::function<bool()>& done) {
  over_ = true;
  for (;;) {
    if (!queue_.empty()) {
      Function next = std::move(queue_.front());
      queue_.pop_front();
      run(next);
      continue;
    }
    if (done() || timers_.empty()) return;
    const auto first = std::min_element(timers_.begin(), timers_.end(), [](auto& a, auto& b) {
      return std::pair(a.second.first, a.first) < std::pair(b.second.first, b.first);
    });
    clock_.skip_to(first->second.first);
    auto timer = timers_.extract(first);
    run(timer.mapped().second);
  }
}

}  // namespace doorbuster::sim

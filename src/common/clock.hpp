#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace doorbuster::common {

/// A point on the calendar, in UTC microseconds: what is stored and compared with deadlines.
using Instant = std::chrono::sys_time<std::chrono::microseconds>;
/// A point on the clock that never steps: what timers and timeouts use.
using Steady = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

/// Microseconds since 1970-01-01T00:00Z; how instants are stored.
[[nodiscard]] constexpr std::int64_t to_micros(Instant at) noexcept {
  return at.time_since_epoch().count();
}
[[nodiscard]] constexpr Instant from_micros(std::int64_t micros) noexcept {
  return Instant{std::chrono::microseconds{micros}};
}

/// RFC 3339 in UTC: "2026-11-30T01:02:03Z", with ".123456" when there is a fraction. It has four
/// digits for the year; what is outside of 0 to 9999 is shown as the nearest instant that has them.
[[nodiscard]] std::string to_rfc3339(Instant at);
/// Accepts RFC 3339 with 'Z' or a numeric offset and up to 9 fraction digits (cut to microseconds);
/// years 1970 to 9999. Anything else: nothing.
[[nodiscard]] std::optional<Instant> parse_rfc3339(std::string_view text) noexcept;

/// The only place from which the product learns the time. Callable from any thread.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual Instant now() const noexcept = 0;
  [[nodiscard]] virtual Steady steady() const noexcept = 0;
};

/// The machine's clocks.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] Instant now() const noexcept override;
  [[nodiscard]] Steady steady() const noexcept override;
};

/// Stands still until it is moved.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Instant start) : now_(to_micros(start)) {}
  [[nodiscard]] Instant now() const noexcept override { return from_micros(now_.load()); }
  [[nodiscard]] Steady steady() const noexcept override {
    return Steady{std::chrono::nanoseconds{steady_.load()}};
  }
  /// Moves both clocks forward.
  void advance(std::chrono::microseconds by) noexcept {
    now_ += by.count();
    steady_ += std::chrono::nanoseconds{by}.count();
  }

 private:
  std::atomic<std::int64_t> now_;  // sequentially consistent: tests read it from many threads
  std::atomic<std::int64_t> steady_{1'000'000'000};
};

}  // namespace doorbuster::common

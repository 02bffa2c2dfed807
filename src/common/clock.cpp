#include "common/clock.hpp"

#include <algorithm>
#include <cstdint>

namespace doorbuster::common {
namespace {

using std::chrono::day;
using std::chrono::month;
using std::chrono::sys_days;
using std::chrono::year;
using std::chrono::year_month_day;

/// Exactly `count` digits at `text[at]`, or -1.
int digits(std::string_view text, std::size_t at, std::size_t count) noexcept {
  if (at + count > text.size()) return -1;
  int value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

}  // namespace

std::string to_rfc3339(Instant at) {
  using std::chrono::sys_days;
  constexpr Instant kFirst = sys_days{std::chrono::year{0} / 1 / 1};
  constexpr Instant kLast =
      sys_days{std::chrono::year{10000} / 1 / 1} - std::chrono::microseconds{1};
  at = std::clamp(at, kFirst, kLast);
  const auto date = std::chrono::floor<std::chrono::days>(at);
  const year_month_day ymd{date};
  const std::chrono::hh_mm_ss time{at - date};
  // Written by hand: an order says when it ends, and printf takes ten times as long.
  std::string out = "0000-00-00T00:00:00";
  const auto put = [&out](std::size_t begin, std::size_t count, std::int64_t value) {
    for (std::size_t i = count; i-- > 0; value /= 10) {
      out[begin + i] = static_cast<char>('0' + value % 10);
    }
  };
  put(0, 4, static_cast<int>(ymd.year()));
  put(5, 2, static_cast<unsigned>(ymd.month()));
  put(8, 2, static_cast<unsigned>(ymd.day()));
  put(11, 2, time.hours().count());
  put(14, 2, time.minutes().count());
  put(17, 2, time.seconds().count());
  if (time.subseconds().count() != 0) {
    out += ".000000";
    put(20, 6, time.subseconds().count());
  }
  out += 'Z';
  return out;
}

std::optional<Instant> parse_rfc3339(std::string_view text) noexcept {
  // 2026-11-30T01:02:03 is 19 characters; then a fraction, then Z or an offset.
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' ||
      (text[10] != 'T' && text[10] != 't') || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const int y = digits(text, 0, 4);
  const int mo = digits(text, 5, 2);
  const int d = digits(text, 8, 2);
  const int h = digits(text, 11, 2);
  const int mi = digits(text, 14, 2);
  const int s = digits(text, 17, 2);
  if (y < 1970 || mo < 1 || d < 1 || h < 0 || h > 23 || mi < 0 || mi > 59 || s < 0 || s > 59) {
    return std::nullopt;
  }
  const year_month_day ymd{year{y}, month{static_cast<unsigned>(mo)},
                           day{static_cast<unsigned>(d)}};
  if (!ymd.ok()) return std::nullopt;

  std::size_t at = 19;
  std::int64_t micros = 0;
  if (text[at] == '.') {
    ++at;
    std::size_t count = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, ++count) {
      if (count < 6) micros = micros * 10 + (text[at] - '0');
    }
    if (count == 0 || count > 9) return std::nullopt;
    for (; count < 6; ++count) micros *= 10;
  }
  std::chrono::minutes offset{0};
  if (at >= text.size()) return std::nullopt;
  if (text[at] == 'Z' || text[at] == 'z') {
    if (at + 1 != text.size()) return std::nullopt;
  } else if (text[at] == '+' || text[at] == '-') {
    const int oh = digits(text, at + 1, 2);
    const int om = digits(text, at + 4, 2);
    if (at + 6 != text.size() || text[at + 3] != ':' || oh < 0 || oh > 23 || om < 0 || om > 59) {
      return std::nullopt;
    }
    offset = std::chrono::minutes{oh * 60 + om};
    if (text[at] == '-') offset = -offset;
  } else {
    return std::nullopt;
  }
  const Instant local = sys_days{ymd} + std::chrono::hours{h} + std::chrono::minutes{mi} +
                        std::chrono::seconds{s} + std::chrono::microseconds{micros};
  const Instant instant = local - offset;
  // The offset may lead out of the years that the text names.
  if (instant < Instant{} || instant >= sys_days{year{10000} / 1 / 1}) return std::nullopt;
  return instant;
}

Instant SystemClock::now() const noexcept {
  return std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
}

Steady SystemClock::steady() const noexcept { return std::chrono::steady_clock::now(); }

}  // namespace doorbuster::common

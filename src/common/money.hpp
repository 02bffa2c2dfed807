#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace doorbuster::common {

/// ISO 4217 code, such as "KRW".
struct Currency {
  std::array<char, 3> code{'K', 'R', 'W'};
  [[nodiscard]] std::string_view text() const noexcept { return {code.data(), code.size()}; }
  friend constexpr bool operator==(const Currency&, const Currency&) = default;
};

/// Three upper-case letters, or nothing.
[[nodiscard]] std::optional<Currency> parse_currency(std::string_view text) noexcept;

/// An amount in its currency's smallest unit; never floating point.
struct Money {
  std::int64_t amount = 0;
  Currency currency;
  friend constexpr bool operator==(const Money&, const Money&) = default;
};

}  // namespace doorbuster::common

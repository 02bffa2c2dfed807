#include "common/money.hpp"

#include <algorithm>

namespace doorbuster::common {

std::optional<Currency> parse_currency(std::string_view text) noexcept {
  Currency currency;
  if (text.size() != currency.code.size()) return std::nullopt;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
    return std::nullopt;
  }
  std::copy(text.begin(), text.end(), currency.code.begin());
  return currency;
}

}  // namespace doorbuster::common

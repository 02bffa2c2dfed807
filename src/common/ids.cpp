#include "common/ids.hpp"

#include <limits>

#include "common/text.hpp"

namespace doorbuster::common {

std::string to_string(AllotmentId id) { return id.kind + std::to_string(id.number); }
std::string to_string(ScopeId id) { return id.kind + std::to_string(id.number); }

std::optional<std::int64_t> parse_id_number(std::string_view text) noexcept {
  if (text.empty() || text.size() > 19 || text[0] == '0') return std::nullopt;
  // 19 digits fit without a sign, so one comparison at the end is enough: divisions are slow.
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<AllotmentId> parse_allotment_id(std::string_view text) noexcept {
  if (text.empty() || (text[0] != 'i' && text[0] != 'c')) return std::nullopt;
  const auto number = parse_id_number(text.substr(1));
  if (!number) return std::nullopt;
  return AllotmentId{text[0], *number};
}

std::optional<ScopeId> parse_scope_id(std::string_view text) noexcept {
  if (text.empty() || (text[0] != 's' && text[0] != 'i' && text[0] != 'c')) return std::nullopt;
  const auto number = parse_id_number(text.substr(1));
  if (!number) return std::nullopt;
  return ScopeId{text[0], *number};
}

std::string to_string(const GrantId& id) { return hex_encode(id.bytes); }

std::optional<GrantId> parse_grant_id(std::string_view text) noexcept {
  if (text.size() != 32) return std::nullopt;
  GrantId id;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    id.bytes[i / 2] = static_cast<std::uint8_t>(id.bytes[i / 2] * 16 + digit);
  }
  return id;
}

}  // namespace doorbuster::common

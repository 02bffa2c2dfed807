#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace doorbuster::common {

/// A number with a meaning of its own: two swapped integers compile, two swapped types do not.
template <class Tag, class Rep>
class Strong {
 public:
  using rep = Rep;
  constexpr Strong() = default;
  constexpr explicit Strong(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const noexcept { return value_; }
  friend constexpr auto operator<=>(Strong, Strong) = default;

 private:
  Rep value_{};
};

/// A buyer: the subject of the token, 1 to 2^63-1.
using MemberId = Strong<struct MemberTag, std::int64_t>;
using SaleId = Strong<struct SaleTag, std::int64_t>;
using ItemId = Strong<struct ItemTag, std::int64_t>;
/// The number of one unit, 1..quantity.
using Slot = Strong<struct SlotTag, std::int32_t>;
/// Which of a member's 1..N units in a scope this one is.
using Nth = Strong<struct NthTag, std::int32_t>;
/// The life of one gate's memory; the ledger counts them from 1.
using Epoch = Strong<struct EpochTag, std::int64_t>;
/// One process of the product; a restarted one is another node (S11).
using NodeId = Strong<struct NodeTag, std::int64_t>;
/// The place of a return, departure or load in its shard's sequence (S3), from 1.
using SequenceNumber = Strong<struct SequenceTag, std::int64_t>;

/// Something with a fixed number of units. The kind is part of the id everywhere: "i7", "c7".
struct AllotmentId {
  char kind = 'i';  ///< 'i' a flash-sale item, 'c' a coupon
  std::int64_t number = 0;
  friend constexpr auto operator<=>(const AllotmentId&, const AllotmentId&) = default;
};

/// Where the limit per member is counted: "s7" a sale, "i7" an item, "c7" a coupon.
struct ScopeId {
  char kind = 's';
  std::int64_t number = 0;
  friend constexpr auto operator<=>(const ScopeId&, const ScopeId&) = default;
};

[[nodiscard]] std::string to_string(AllotmentId id);
[[nodiscard]] std::string to_string(ScopeId id);
/// Parses "i7" or "c7"; nothing else (no sign, no leading zero, number 1 to 2^63-1).
[[nodiscard]] std::optional<AllotmentId> parse_allotment_id(std::string_view text) noexcept;
/// Parses "s7", "i7" or "c7".
[[nodiscard]] std::optional<ScopeId> parse_scope_id(std::string_view text) noexcept;
/// Parses a decimal id in a path or token: 1 to 2^63-1, no sign, no leading zero.
[[nodiscard]] std::optional<std::int64_t> parse_id_number(std::string_view text) noexcept;

/// One grant, for ever: one id names one slot (engine page, section 4). 16 bytes in UUIDv7 layout,
/// so that index inserts stay local: 48 bits of Unix milliseconds, then a counter and random bits.
struct GrantId {
  std::array<std::uint8_t, 16> bytes{};
  friend constexpr auto operator<=>(const GrantId&, const GrantId&) = default;
};

/// Lower-case hexadecimal, 32 characters; for logs and tools.
[[nodiscard]] std::string to_string(const GrantId& id);
/// The reverse; nothing when the text is anything else.
[[nodiscard]] std::optional<GrantId> parse_grant_id(std::string_view text) noexcept;

}  // namespace doorbuster::common

namespace doorbuster::common::detail {
/// Sequential ids are the normal case, and members choose theirs: spreads them.
[[nodiscard]] constexpr std::size_t spread(std::uint64_t x) noexcept {
  x *= 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(x ^ (x >> 29));
}
}  // namespace doorbuster::common::detail

template <class Tag, class Rep>
struct std::hash<doorbuster::common::Strong<Tag, Rep>> {
  std::size_t operator()(doorbuster::common::Strong<Tag, Rep> id) const noexcept {
    return doorbuster::common::detail::spread(static_cast<std::uint64_t>(id.value()));
  }
};

template <>
struct std::hash<doorbuster::common::AllotmentId> {
  std::size_t operator()(const doorbuster::common::AllotmentId& id) const noexcept {
    return doorbuster::common::detail::spread(static_cast<std::uint64_t>(id.number) * 128 +
                                              static_cast<unsigned char>(id.kind));
  }
};

template <>
struct std::hash<doorbuster::common::ScopeId> {
  std::size_t operator()(const doorbuster::common::ScopeId& id) const noexcept {
    return doorbuster::common::detail::spread(static_cast<std::uint64_t>(id.number) * 128 +
                                              static_cast<unsigned char>(id.kind));
  }
};

template <>
struct std::hash<doorbuster::common::GrantId> {
  std::size_t operator()(const doorbuster::common::GrantId& id) const noexcept {
    // Both halves count: the first has the time, the second differs among makers, and the counter
    // is cut in two by the layout.
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      high = (high << 8) | id.bytes[i];
      low = (low << 8) | id.bytes[i + 8];
    }
    return doorbuster::common::detail::spread(doorbuster::common::detail::spread(high) ^ low);
  }
};

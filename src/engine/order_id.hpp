#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/types.hpp"

namespace doorbuster::engine {

/// What a public order id says about itself.
struct OrderRef {
  GrantId grant;
  AllotmentId allotment;
  Epoch epoch;
};

/// Public order ids: opaque text of 55 characters that names grant, allotment and epoch, with a MAC
/// over these and the member. So an invented id or a stranger's is known as such at once, on any
/// node, without a look at the ledger (engine page, section 4). Callable from any thread.
class OrderIdCodec {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  explicit OrderIdCodec(const std::array<std::uint8_t, kKeyBytes>& key) : key_(key) {}

  [[nodiscard]] std::string encode(const OrderRef& order, MemberId member) const;
  /// Nothing when the text is no order id of this member.
  [[nodiscard]] std::optional<OrderRef> decode(std::string_view text, MemberId member) const;

 private:
  std::array<std::uint8_t, kKeyBytes> key_;
};

}  // namespace doorbuster::engine

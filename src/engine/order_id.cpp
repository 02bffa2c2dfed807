#include "engine/order_id.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <span>

#include "common/result.hpp"
#include "common/text.hpp"

namespace doorbuster::engine {
namespace {

// 16 grant id, 1 kind, 8 allotment, 4 epoch, 12 MAC.
constexpr std::size_t kPlain = 29;
constexpr std::size_t kMac = 12;

void put(std::span<std::uint8_t> out, std::uint64_t value) {
  for (std::size_t i = out.size(); i-- > 0; value >>= 8) out[i] = static_cast<std::uint8_t>(value);
}

std::uint64_t get(std::span<const std::uint8_t> in) {
  std::uint64_t value = 0;
  for (const std::uint8_t byte : in) value = (value << 8) | byte;
  return value;
}

std::array<std::uint8_t, kMac> mac_of(std::span<const std::uint8_t> key,
                                      std::span<const std::uint8_t, kPlain> plain,
                                      MemberId member) {
  std::array<std::uint8_t, kPlain + 8> input{};
  std::copy(plain.begin(), plain.end(), input.begin());
  put(std::span(input).subspan(kPlain), static_cast<std::uint64_t>(member.value()));
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> full{};
  unsigned int size = 0;
  DOORBUSTER_ENSURE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), input.data(),
                         input.size(), full.data(), &size) != nullptr,
                    "HMAC-SHA256 is available");
  std::array<std::uint8_t, kMac> mac{};
  std::copy_n(full.begin(), kMac, mac.begin());
  return mac;
}

}  // namespace

std::string OrderIdCodec::encode(const OrderRef& order, MemberId member) const {
  std::array<std::uint8_t, kPlain + kMac> bytes{};
  const std::span<std::uint8_t> all(bytes);
  std::copy(order.grant.bytes.begin(), order.grant.bytes.end(), bytes.begin());
  bytes[16] = static_cast<std::uint8_t>(order.allotment.kind);
  put(all.subspan(17, 8), static_cast<std::uint64_t>(order.allotment.number));
  put(all.subspan(25, 4), static_cast<std::uint64_t>(order.epoch.value()));
  const auto mac =
      mac_of(key_, std::span<const std::uint8_t, kPlain>(bytes.data(), kPlain), member);
  std::copy(mac.begin(), mac.end(), bytes.begin() + kPlain);
  return common::base64url_encode(bytes);
}

std::optional<OrderRef> OrderIdCodec::decode(std::string_view text, MemberId member) const {
  if (text.size() != (kPlain + kMac) * 4 / 3 + 1) return std::nullopt;
  const std::optional<common::Bytes> bytes = common::base64url_decode(text);
  if (!bytes || bytes->size() != kPlain + kMac) return std::nullopt;
  const auto mac =
      mac_of(key_, std::span<const std::uint8_t, kPlain>(bytes->data(), kPlain), member);
  const auto as_text = [](const std::uint8_t* data) {
    return std::string_view(reinterpret_cast<const char*>(data), kMac);
  };
  if (!common::equal_constant_time(as_text(mac.data()), as_text(bytes->data() + kPlain))) {
    return std::nullopt;
  }
  const std::span<const std::uint8_t> all(*bytes);
  OrderRef order;
  std::copy_n(bytes->begin(), 16, order.grant.bytes.begin());
  order.allotment.kind = static_cast<char>((*bytes)[16]);
  order.allotment.number = static_cast<std::int64_t>(get(all.subspan(17, 8)));
  order.epoch = Epoch{static_cast<std::int64_t>(get(all.subspan(25, 4)))};
  return order;
}

}  // namespace doorbuster::engine

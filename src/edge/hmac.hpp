#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace doorbuster::edge {

/// HMAC-SHA256 (RFC 2104) with one key. What depends on the key alone is computed once; threads may
/// share it.
class HmacSha256 {
 public:
  using Mac = std::array<std::uint8_t, 32>;

  explicit HmacSha256(std::string_view key) noexcept;
  [[nodiscard]] Mac of(std::string_view text) const noexcept;

 private:
  using State = std::array<std::uint32_t, 8>;
  State inner_;  ///< SHA-256 after the key's block
  State outer_;
};

}  // namespace doorbuster::edge

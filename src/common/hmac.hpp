#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace doorbuster::common {

/// HMAC-SHA256 (RFC 2104) with one key. What depends on the key alone is computed once; threads may
/// share it.
class HmacSha256 {
 public:
  using Mac = std::array<std::uint8_t, 32>;
  using State = std::array<std::uint32_t, 8>;
  static constexpr std::size_t kBlock = 64;

  /// How the last text began, and what was computed of that. Tokens of one issuer begin alike, and
  /// where the first block is the same to the letter it need not be hashed again. For one key and
  /// one thread.
  struct Beginning {
    std::array<char, kBlock> text{};
    State state{};
    bool known = false;
  };

  explicit HmacSha256(std::string_view key) noexcept;
  [[nodiscard]] Mac of(std::string_view text) const noexcept;
  [[nodiscard]] Mac of(std::string_view text, Beginning& beginning) const noexcept;

 private:
  State inner_;  ///< SHA-256 after the key's block
  State outer_;
};

}  // namespace doorbuster::common

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doorbuster::common {

using Bytes = std::vector<std::uint8_t>;

/// RFC 4648 section 5 without padding.
[[nodiscard]] std::string base64url_encode(std::span<const std::uint8_t> bytes);
/// Strict: refuses padding, other characters, and non-zero unused bits (so each value has one
/// spelling).
[[nodiscard]] std::optional<Bytes> base64url_decode(std::string_view text);
/// The same without allocation: into `out`, whose used part is `size`. False also when `out` is too
/// small.
[[nodiscard]] bool base64url_decode_into(std::string_view text, std::span<std::uint8_t> out,
                                         std::size_t& size) noexcept;
[[nodiscard]] std::string hex_encode(std::span<const std::uint8_t> bytes);

/// For secrets: the time does not depend on where two equally long texts differ.
[[nodiscard]] bool equal_constant_time(std::string_view a, std::string_view b) noexcept;

/// The known word with the smallest edit distance, for "did you mean"; nothing when none is near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> known);

/// Whether the bytes are well-formed UTF-8 without NUL.
[[nodiscard]] bool is_plain_utf8(std::string_view text) noexcept;

}  // namespace doorbuster::common

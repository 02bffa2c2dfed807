#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace doorbuster::rush {

/// One answer. The views point into the bytes that were parsed, or into the caller's scratch text.
struct ResponseView {
  int status = 0;
  std::string_view body;
  int retry_after_s = -1;   ///< -1: not said in seconds
  bool keep_alive = true;
  std::size_t size = 0;     ///< bytes of the whole answer
};

enum class ParseState : std::uint8_t {
  kDone,      ///< `view` is filled
  kNeedMore,  ///< a proper beginning; call again with more bytes behind it
  kBad,       ///< not an HTTP/1.x answer, or beyond the bounds; the connection is of no use any more
};

inline constexpr std::size_t kMaxResponseHead = 16 * 1024;
inline constexpr std::size_t kMaxResponseBody = 8 * 1024 * 1024;

/// Parses the answer that `bytes` begins with; what follows it belongs to the next one. Interim answers (1xx) are
/// skipped. Bodies by Content-Length or chunked (joined in `scratch`); an answer that ends with the connection is
/// kBad, since a cut one looks the same. Keeps no state, so a caller whose bytes come in pieces calls again.
[[nodiscard]] ParseState parse_response(std::string_view bytes, std::string& scratch,
                                        ResponseView& view);

/// The text of a string member, or the digits or word of another scalar, of a flat JSON object: `"name": value`.
/// Nothing when it is absent or a string with an escape. Much cheaper than a JSON parser, and enough for the
/// few opaque values that a buyer looks at: inside of a string a quote is always escaped, so `"name"` followed by
/// a colon cannot be part of one.
[[nodiscard]] std::optional<std::string_view> find_scalar(std::string_view json,
                                                          std::string_view name) noexcept;

}  // namespace doorbuster::rush

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "http/request.hpp"
#include "http/response.hpp"

namespace doorbuster::http {

struct ParserLimits {
  std::size_t max_header_bytes = 8 * 1024;
  std::size_t max_target_bytes = 2 * 1024;
};

/// Our own strict reader of HTTP/1.1 requests: it accepts the plain form that every client sends
/// and refuses the rest, because two servers that read one request differently are a hole (request
/// smuggling).
///
/// P1: reads the head in place, without allocation and without state: called again with more bytes
///     until the head is whole.
/// P2: refuses (400, connection closed): bare LF or CR, obs-fold, white space before ':', control
///     characters, no or several Host, several or signed or non-decimal Content-Length,
///     Content-Length together with Transfer-Encoding, any Transfer-Encoding but exactly "chunked",
///     chunk extensions and trailers, a target that does not start with '/', HTTP versions other
///     than 1.1 and 1.0 (505), unknown methods (501).
/// P3: too long: target 414, headers or more than RequestView::kMaxHeaders of them 431; "Expect"
///     other than 100-continue 417.
enum class ParseState { kNeedMore, kDone, kRefused };

struct Head {
  ParseState state = ParseState::kNeedMore;
  std::size_t bytes = 0;           ///< length of the head when done
  std::size_t content_length = 0;  ///< 0 when absent
  bool chunked = false;
  bool version_1_0 = false;
  bool expect_continue = false;
  int status = 0;           ///< when refused
  std::string_view reason;  ///< when refused: static English text for the error's message
};

/// Reads one request head from the front of `buffer`. Fills every field of `view` but the body;
/// request_id is empty when the client sent none that is usable (the caller then adds its own).
[[nodiscard]] Head parse_head(std::string_view buffer, const ParserLimits& limits,
                              RequestView& view);

/// How far the decoding of a chunked body has come. Start with a fresh one for each body.
struct ChunkedBody {
  ParseState state = ParseState::kNeedMore;
  std::size_t consumed = 0;  ///< raw bytes of the whole chunks so far; of the whole body when done
  std::size_t size = 0;      ///< decoded bytes
  bool too_large = false;    ///< when refused: passed `max_body` (413); else malformed (400)
};

/// Decodes a chunked body at the front of `buffer`, which each time holds all bytes after the head.
/// Continues behind the chunks that were decoded before, so that a body which comes byte by byte
/// costs no more than one that comes at once. `decoded` receives the bytes as their chunks become
/// whole. Refuses chunk extensions, trailers, leading zeros, bare LF, and more than `max_body` + 4
/// KiB of framing.
void parse_chunked(std::string_view buffer, std::size_t max_body, ChunkedBody& body,
                   std::string& decoded);

}  // namespace doorbuster::http

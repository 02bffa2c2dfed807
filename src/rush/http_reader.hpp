#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace doorbuster::rush {

/// One answer of a server, as views into the buffer that it was read from.
struct HttpAnswer {
  int status = 0;
  std::string_view body;
  std::optional<std::chrono::seconds>
      retry_after;        ///< the number form of Retry-After; its date form is ignored
  bool close = false;     ///< the server closes after this answer
  std::size_t bytes = 0;  ///< what the answer took from the buffer
};

enum class ReadState {
  kNeedMore,
  kDone,
  kBad,  ///< not HTTP/1.x, or beyond a limit: nothing after it can be understood either
};

struct HttpLimits {
  std::size_t max_head = 16UL * 1024;
  std::size_t max_body = 1024UL * 1024;
};

/// Reads the first answer in `buffer`: keeps no state, and is called again with more bytes until
/// the answer is whole. Understands Content-Length, chunked bodies (decoded into `decoded`, which
/// `out.body` then views) and bodies that end with the connection (whole once `ended`). Interim 1xx
/// answers are skipped.
[[nodiscard]] ReadState read_http_answer(std::string_view buffer, bool ended,
                                         const HttpLimits& limits, std::string& decoded,
                                         HttpAnswer& out);

}  // namespace doorbuster::rush

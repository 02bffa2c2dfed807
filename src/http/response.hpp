#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/request.hpp"

namespace doorbuster::http {

/// What a handler answers. The server adds Date, X-Request-Id, Content-Length, Connection and the
/// security headers (X-Content-Type-Options: nosniff; Cache-Control: no-store unless the handler
/// set one).
struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;

  /// When set, the answer is a stream of server-sent events: asked once a second on the
  /// connection's loop for the next chunk (complete SSE lines); an empty string sends a comment as
  /// a sign of life, nothing ends the stream.
  std::function<std::optional<std::string>()> events;
};

/// A public error: a stable code and a message for people in both languages, nothing internal.
struct PublicError {
  int status = 500;
  std::string_view code;
  std::string_view english;
  std::string_view korean;
};

/// `{"error": CODE, "message": ..., <extra>}`; `extra` is JSON members without braces, such as
/// `"final":true`, or empty. 429 and 503 get `Retry-After: retry_after_s` (1 when not given).
[[nodiscard]] Response error_response(const PublicError& error, Language language,
                                      std::string_view extra = {}, int retry_after_s = 0);

/// Errors of the HTTP layer itself; the OpenAPI file lists them for every route.
extern const PublicError
    kInvalidBody;  ///< 400: not JSON, wrong type, unknown or missing field (names it)
extern const PublicError kInvalidParameter;      ///< 400: path or query
extern const PublicError kUnauthorized;          ///< 401
extern const PublicError kForbidden;             ///< 403: the token is good but not for this
extern const PublicError kNotFound;              ///< 404
extern const PublicError kMethodNotAllowed;      ///< 405
extern const PublicError kPayloadTooLarge;       ///< 413
extern const PublicError kUnsupportedMediaType;  ///< 415
extern const PublicError kKeyReused;             ///< 422: Idempotency-Key with another body
extern const PublicError kInternalError;         ///< 500
extern const PublicError kBusy;                  ///< 503 with Retry-After

/// JSON string literal with quotes, for bodies that are put together by hand.
[[nodiscard]] std::string json_quote(std::string_view text);

}  // namespace doorbuster::http

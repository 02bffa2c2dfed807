#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/executor.hpp"

namespace doorbuster::http {

enum class Method : std::uint8_t { kGet, kHead, kPost, kPut, kPatch, kDelete, kOptions };

[[nodiscard]] std::string_view to_string(Method method) noexcept;

/// Language of messages for people, by Accept-Language.
enum class Language : std::uint8_t { kEnglish, kKorean };

/// A request as the parser left it: views into the connection's buffer, valid during the call only.
/// Header names compare without case. The parser has refused everything ambiguous before
/// (parser.hpp).
struct RequestView {
  static constexpr std::size_t kMaxHeaders = 64;

  Method method = Method::kGet;
  std::string_view target;  ///< path and query as sent, "/a/b?x=1"
  std::string_view path;    ///< without the query, still percent-encoded
  std::string_view query;   ///< without the '?'
  std::string_view body;
  std::string_view
      request_id;  ///< the caller's if it is usable (1 to 64 of [A-Za-z0-9._-]), else ours
  std::string_view authorization;    ///< the header's value, empty when absent
  std::string_view idempotency_key;  ///< the header's value, empty when absent
  std::string_view content_type;
  std::string_view traceparent;  ///< W3C trace context when well-formed, else empty
  Language language = Language::kEnglish;
  bool keep_alive = true;
  std::array<std::pair<std::string_view, std::string_view>, kMaxHeaders> headers;
  std::size_t header_count = 0;

  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;
};

/// A request that outlives the call: it owns one copy of its bytes, and every view points into
/// that.
class Request {
 public:
  /// `route` and `params` come from the router.
  Request(const RequestView& view, common::Executor& home, std::string peer);
  Request(Request&&) noexcept = default;
  Request& operator=(Request&&) noexcept = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() = default;

  [[nodiscard]] Method method() const noexcept { return method_; }
  [[nodiscard]] std::string_view path() const noexcept { return at(path_); }
  [[nodiscard]] std::string_view body() const noexcept { return at(body_); }
  [[nodiscard]] std::string_view request_id() const noexcept { return at(request_id_); }
  [[nodiscard]] std::string_view authorization() const noexcept { return at(authorization_); }
  [[nodiscard]] std::string_view idempotency_key() const noexcept { return at(idempotency_key_); }
  [[nodiscard]] std::string_view content_type() const noexcept { return at(content_type_); }
  [[nodiscard]] std::string_view traceparent() const noexcept { return at(traceparent_); }
  [[nodiscard]] Language language() const noexcept { return language_; }
  /// The client's address without port.
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  /// The loop that the connection lives on; handlers start on it, and their answer is taken there.
  [[nodiscard]] common::Executor& home() const noexcept { return *home_; }

  /// The path's {name}, percent-decoded; empty when the route has none of that name.
  [[nodiscard]] std::string_view param(std::string_view name) const noexcept;
  /// A query parameter, percent-decoded. Nothing when absent; the router has refused repeated ones
  /// and broken escapes with 400 INVALID_PARAMETER.
  [[nodiscard]] std::optional<std::string> query(std::string_view name) const;
  /// Names of all query parameters, so that a handler can refuse unknown ones.
  [[nodiscard]] std::vector<std::string> query_names() const;

 private:
  friend class Router;
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  [[nodiscard]] std::string_view at(Range range) const noexcept {
    return std::string_view(bytes_).substr(range.begin, range.size);
  }
  Range keep(std::string_view text);

  std::string bytes_;
  Method method_;
  Language language_;
  Range path_, query_, body_, request_id_, authorization_, idempotency_key_, content_type_,
      traceparent_;
  std::string peer_;
  common::Executor* home_;
  std::vector<std::pair<std::string, std::string>> params_;
  std::vector<std::pair<std::string, std::string>> query_values_;
};

}  // namespace doorbuster::http

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "http/request.hpp"
#include "http/response.hpp"

namespace doorbuster::http {

/// Reads a bounded JSON object field by field, and says precisely which field is wrong. The first
/// problem wins; after it every getter returns a harmless value, so that a handler reads all and
/// asks once.
///
///   BodyReader body(request);                       // empty body counts as {}
///   const auto quantity = body.integer("quantity", 1, 1'000'000);
///   const auto name = body.text("name", 1, 200);
///   if (auto refusal = body.finish()) co_return *std::move(refusal);   // unknown fields too
///
/// Bounds: depth 8, 1,000 members, and the route's max_body. Integers are JSON integers: 1.5, 1e3,
/// "1" and numbers outside int64 are refused with the field's name (case 8). Text must be UTF-8
/// without NUL, and its bounds count characters (code points). Null, and a field that comes twice,
/// are refused. A Content-Type that is there and not application/json is 415
/// UNSUPPORTED_MEDIA_TYPE.
class BodyReader {
 public:
  explicit BodyReader(const Request& request);
  ~BodyReader();
  BodyReader(const BodyReader&) = delete;
  BodyReader& operator=(const BodyReader&) = delete;

  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t min, std::int64_t max);
  [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view name,
                                                             std::int64_t min, std::int64_t max);
  [[nodiscard]] std::string text(std::string_view name, std::size_t min, std::size_t max);
  [[nodiscard]] std::optional<std::string> optional_text(std::string_view name, std::size_t min,
                                                         std::size_t max);
  [[nodiscard]] bool boolean(std::string_view name, bool when_absent);
  [[nodiscard]] common::Instant instant(std::string_view name);
  [[nodiscard]] std::optional<common::Instant> optional_instant(std::string_view name);

  /// Refuses with a message of the handler's own about one field.
  void refuse(std::string_view field, std::string_view problem);

  /// 400 INVALID_BODY with `"field": name` (absent when the body as a whole is wrong), or nothing.
  [[nodiscard]] std::optional<Response> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Keyset pagination: `?after=cursor&limit=` (1 to 1000, 100 when absent). A cursor is opaque to
/// clients: base64url of the text that `next_cursor` was given.
struct Page {
  std::optional<std::string> after;
  std::int64_t limit = 100;
};
/// The page, or the 400 that names the parameter. Other query parameters are refused unless in
/// `also`.
[[nodiscard]] tl::expected<Page, Response> read_page(const Request& request,
                                                     const std::vector<std::string>& also = {});
[[nodiscard]] std::string make_cursor(std::string_view text);
/// 400 INVALID_PARAMETER for a path or query parameter.
[[nodiscard]] Response invalid_parameter(std::string_view name, Language language);

}  // namespace doorbuster::http

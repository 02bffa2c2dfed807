#include "http/json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <boost/json.hpp>
#include <set>

#include "common/ids.hpp"
#include "common/text.hpp"

namespace doorbuster::http {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxMembers = 1000;

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  std::string lower;
  for (const char c : type) {
    if (c != ' ') lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return lower == "application/json";
}

}  // namespace

struct BodyReader::Impl {
  json::object object;
  Language language = Language::kEnglish;
  std::set<std::string, std::less<>> read;
  std::optional<Response> refusal;

  void refuse(std::string_view field, std::string_view problem) {
    if (refusal) return;
    const std::string_view lead = language == Language::kKorean ? "올바르지 않은 필드: " : "Field ";
    const PublicError error = kInvalidBody;
    const std::string text = fmt::format("{}{}: {}", lead, field, problem);
    Response response;
    response.status = error.status;
    response.body = fmt::format(R"({{"error":"{}","message":{},"field":{}}})", error.code, json_quote(text),
                                json_quote(field));
    refusal = std::move(response);
  }

  void refuse_whole(std::string_view problem) {
    if (refusal) return;
    Response response;
    response.status = kInvalidBody.status;
    response.body = fmt::format(
        R"({{"error":"{}","message":{}}})", kInvalidBody.code,
        json_quote(fmt::format("{} {}", language == Language::kKorean ? kInvalidBody.korean
                                                                       : kInvalidBody.english,
                               problem)));
    refusal = std::move(response);
  }

  /// The field, noted as known; null when absent. A JSON null counts as absent.
  const json::value* find(std::string_view name) {
    read.insert(std::string(name));
    const json::value* value = object.if_contains(name);
    return value != nullptr && value->is_null() ? nullptr : value;
  }
};

BodyReader::BodyReader(const Request& request) : impl_(std::make_unique<Impl>()) {
  impl_->language = request.language();
  const std::string_view body = request.body();
  if (body.empty()) return;
  if (!is_json(request.content_type())) {
    impl_->refusal = error_response(kUnsupportedMediaType, request.language());
    return;
  }
  if (!common::is_plain_utf8(body)) {
    impl_->refuse_whole("It is not UTF-8.");
    return;
  }
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::value parsed = json::parse(json::string_view(body.data(), body.size()), error, {}, options);
  if (error) {
    impl_->refuse_whole("It is not JSON: " + error.message() + ".");
  } else if (!parsed.is_object()) {
    impl_->refuse_whole("It is not a JSON object.");
  } else if (parsed.get_object().size() > kMaxMembers) {
    impl_->refuse_whole("It has too many fields.");
  } else {
    impl_->object = std::move(parsed.get_object());
  }
}

BodyReader::~BodyReader() = default;

std::optional<std::int64_t> BodyReader::optional_integer(std::string_view name, std::int64_t min,
                                                         std::int64_t max) {
  const json::value* value = impl_->find(name);
  if (value == nullptr) return std::nullopt;
  // 1.0 and 1e3 are doubles to the parser, what is above int64 an unsigned or a double: all refused.
  if (!value->is_int64()) {
    impl_->refuse(name, fmt::format("must be a whole number from {} to {}", min, max));
    return std::nullopt;
  }
  const std::int64_t number = value->get_int64();
  if (number < min || number > max) {
    impl_->refuse(name, fmt::format("must be from {} to {}", min, max));
    return std::nullopt;
  }
  return number;
}

std::int64_t BodyReader::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const auto value = optional_integer(name, min, max);
  if (!value) impl_->refuse(name, "is required");
  return value.value_or(min);
}

std::optional<std::string> BodyReader::optional_text(std::string_view name, std::size_t min,
                                                     std::size_t max) {
  const json::value* value = impl_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    impl_->refuse(name, "must be text");
    return std::nullopt;
  }
  const json::string& text = value->get_string();
  // An escaped NUL passes the check of the raw bytes.
  if (text.size() < min || text.size() > max || !common::is_plain_utf8({text.data(), text.size()})) {
    impl_->refuse(name, fmt::format("must have {} to {} bytes, without NUL", min, max));
    return std::nullopt;
  }
  return std::string(text.data(), text.size());
}

std::string BodyReader::text(std::string_view name, std::size_t min, std::size_t max) {
  auto value = optional_text(name, min, max);
  if (!value) impl_->refuse(name, "is required");
  return std::move(value).value_or(std::string());
}

bool BodyReader::boolean(std::string_view name, bool when_absent) {
  const json::value* value = impl_->find(name);
  if (value == nullptr) return when_absent;
  if (!value->is_bool()) {
    impl_->refuse(name, "must be true or false");
    return when_absent;
  }
  return value->get_bool();
}

std::optional<common::Instant> BodyReader::optional_instant(std::string_view name) {
  const auto text = optional_text(name, 1, 64);
  if (!text) return std::nullopt;
  const auto instant = common::parse_rfc3339(*text);
  if (!instant) impl_->refuse(name, "must be an RFC 3339 instant such as 2026-11-30T01:02:03Z");
  return instant;
}

common::Instant BodyReader::instant(std::string_view name) {
  const auto value = optional_instant(name);
  if (!value) impl_->refuse(name, "is required");
  return value.value_or(common::Instant{});
}

void BodyReader::refuse(std::string_view field, std::string_view problem) { impl_->refuse(field, problem); }

std::optional<Response> BodyReader::finish() {
  for (const auto& member : impl_->object) {
    const std::string_view name(member.key().data(), member.key().size());
    if (!impl_->read.contains(name)) impl_->refuse(name, "is not known here");
  }
  return impl_->refusal;
}

Response invalid_parameter(std::string_view name, Language language) {
  return error_response(kInvalidParameter, language, fmt::format("\"field\":{}", json_quote(name)));
}

tl::expected<Page, Response> read_page(const Request& request, const std::vector<std::string>& also) {
  for (const std::string& name : request.query_names()) {
    if (name == "after" || name == "limit") continue;
    if (std::find(also.begin(), also.end(), name) == also.end()) {
      return tl::make_unexpected(invalid_parameter(name, request.language()));
    }
  }
  Page page;
  if (const auto limit = request.query("limit")) {
    const auto number = common::parse_id_number(*limit);
    if (!number || *number > 1000) return tl::make_unexpected(invalid_parameter("limit", request.language()));
    page.limit = *number;
  }
  if (const auto after = request.query("after")) {
    const auto bytes = after->size() <= 256 ? common::base64url_decode(*after) : std::nullopt;
    if (!bytes || bytes->empty()) return tl::make_unexpected(invalid_parameter("after", request.language()));
    page.after.emplace(bytes->begin(), bytes->end());
  }
  return page;
}

std::string make_cursor(std::string_view text) {
  return common::base64url_encode({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

}  // namespace doorbuster::http

#include "http/json.hpp"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <map>
#include <utility>

#include "common/text.hpp"

namespace doorbuster::http {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxMembers = 1000;
constexpr std::size_t kMaxCursor = 512;

enum class Kind { kInteger, kText, kBoolean, kOther };

struct Value {
  Kind kind = Kind::kOther;
  std::int64_t number = 0;
  std::string text;
  bool used = false;  ///< a getter asked for it, so the field is known
};

/// Keeps the scalar members of the outermost object. It is not a DOM: that would drop the first of
/// two members with one name, and a proxy in front may have looked at that one.
class Collector {
 public:
  static constexpr std::size_t max_object_size = kMaxMembers;
  static constexpr std::size_t max_array_size = kMaxMembers;
  static constexpr std::size_t max_key_size = 256;
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  std::map<std::string, Value, std::less<>> members;
  std::string key;  ///< the outermost object's member that is being read
  std::optional<std::string> repeated;
  bool object = false;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    object = object || depth_ == 0;
    return begin();
  }
  bool on_object_end(std::size_t, json::error_code&) { return end(); }
  bool on_array_begin(json::error_code&) { return begin(); }
  bool on_array_end(std::size_t, json::error_code&) { return end(); }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) { return add(part); }
  bool on_key(json::string_view part, std::size_t, json::error_code&) {
    add(part);
    if (depth_ == 1) key = part_;
    part_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) { return add(part); }
  bool on_string(json::string_view part, std::size_t, json::error_code&) {
    add(part);
    return keep({.kind = Kind::kText, .text = std::exchange(part_, {})});
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, json::error_code&) {
    return keep({.kind = Kind::kInteger, .number = number});
  }
  // Beyond int64, or written with a fraction or an exponent: no integer of ours.
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return keep({}); }
  bool on_double(double, json::string_view, json::error_code&) { return keep({}); }
  bool on_bool(bool yes, json::error_code&) {
    return keep({.kind = Kind::kBoolean, .number = yes ? 1 : 0});
  }
  bool on_null(json::error_code&) { return keep({}); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool add(json::string_view part) {
    part_.append(part.data(), part.size());
    return true;
  }
  bool keep(Value value) {
    if (depth_ != 1 || !object) return true;
    const bool fresh = members.emplace(key, std::move(value)).second;
    if (!fresh && !repeated) repeated = key;
    return true;
  }
  bool begin() {
    keep({});
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
  std::string part_;  ///< the key or string that is being read
};

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// "application/json", also with parameters, of which a charset may only be UTF-8. No Content-Type
/// at all is taken as JSON, since there is nothing else that a body could be here.
bool is_json(std::string_view content_type) {
  std::string text;
  for (const char c : content_type) {
    if (c != ' ' && c != '\t' && c != '"') text += lower(c);
  }
  if (text.empty()) return true;
  const std::size_t semicolon = text.find(';');
  if (text.substr(0, semicolon) != "application/json") return false;
  const std::size_t charset = text.find(";charset=");
  if (charset == std::string::npos) return true;
  const std::string value = text.substr(charset + 9);
  return value.substr(0, value.find(';')) == "utf-8";
}

/// Characters and not bytes, so that a limit means the same in every language.
std::size_t count_characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

Response refuse_field(std::string_view code, std::string_view field, std::string_view english,
                      std::string_view korean, Language language) {
  const PublicError error{400, code, english, korean};
  return error_response(error, language, "\"field\":" + json_quote(field));
}

}  // namespace

struct BodyReader::Impl {
  Language language = Language::kEnglish;
  Collector body;
  std::optional<Response> problem;

  void refuse(std::string_view field, const std::string& english, const std::string& korean) {
    if (problem) return;
    problem = refuse_field(kInvalidBody.code, field, std::string(field) + ' ' + english,
                           std::string(field) + ": " + korean, language);
  }

  void refuse_whole() {
    if (!problem) problem = error_response(kInvalidBody, language);
  }

  /// The member, or nothing when it is absent or the body is refused already.
  Value* find(std::string_view name, bool required) {
    if (problem) return nullptr;
    const auto found = body.members.find(name);
    if (found == body.members.end()) {
      if (required) refuse(name, "is missing", "필수 항목입니다");
      return nullptr;
    }
    found->second.used = true;
    return &found->second;
  }

  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max,
                                      bool required) {
    const Value* value = find(name, required);
    if (value == nullptr) return std::nullopt;
    if (value->kind == Kind::kInteger && value->number >= min && value->number <= max) {
      return value->number;
    }
    const std::string low = std::to_string(min);
    const std::string high = std::to_string(max);
    refuse(name, "must be an integer from " + low + " to " + high,
           low + "에서 " + high + "까지의 정수여야 합니다");
    return std::nullopt;
  }

  std::optional<std::string> text(std::string_view name, std::size_t min, std::size_t max,
                                  bool required) {
    const Value* value = find(name, required);
    if (value == nullptr) return std::nullopt;
    if (value->kind == Kind::kText && common::is_plain_utf8(value->text)) {
      const std::size_t length = count_characters(value->text);
      if (length >= min && length <= max) return value->text;
    }
    const std::string low = std::to_string(min);
    const std::string high = std::to_string(max);
    refuse(name, "must be text of " + low + " to " + high + " characters",
           low + "자에서 " + high + "자까지의 문자열이어야 합니다");
    return std::nullopt;
  }

  std::optional<common::Instant> instant(std::string_view name, bool required) {
    const Value* value = find(name, required);
    if (value == nullptr) return std::nullopt;
    if (value->kind == Kind::kText) {
      if (const auto at = common::parse_rfc3339(value->text)) return at;
    }
    refuse(name, "must be an instant such as 2026-11-30T01:00:00Z",
           "2026-11-30T01:00:00Z와 같은 시각이어야 합니다");
    return std::nullopt;
  }
};

BodyReader::BodyReader(const Request& request) : impl_(std::make_unique<Impl>()) {
  impl_->language = request.language();
  const std::string_view text = request.body();
  if (text.empty()) return;
  if (!is_json(request.content_type())) {
    impl_->problem = error_response(kUnsupportedMediaType, request.language());
    return;
  }
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::basic_parser<Collector> parser(options);
  json::error_code error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  impl_->body = std::move(parser.handler());
  const Collector& body = impl_->body;
  if (error == json::error::exponent_overflow && body.object) {
    impl_->refuse(body.key, "is a number out of range", "숫자의 범위를 벗어났습니다");
  } else if (error || used != text.size() || !body.object) {
    impl_->refuse_whole();
  } else if (body.repeated) {
    impl_->refuse(*body.repeated, "is there twice", "두 번 나왔습니다");
  }
}

BodyReader::~BodyReader() = default;

std::int64_t BodyReader::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  return impl_->integer(name, min, max, true).value_or(min);
}

std::optional<std::int64_t> BodyReader::optional_integer(std::string_view name, std::int64_t min,
                                                         std::int64_t max) {
  return impl_->integer(name, min, max, false);
}

std::string BodyReader::text(std::string_view name, std::size_t min, std::size_t max) {
  return impl_->text(name, min, max, true).value_or(std::string());
}

std::optional<std::string> BodyReader::optional_text(std::string_view name, std::size_t min,
                                                     std::size_t max) {
  return impl_->text(name, min, max, false);
}

bool BodyReader::boolean(std::string_view name, bool when_absent) {
  const Value* value = impl_->find(name, false);
  if (value == nullptr) return when_absent;
  if (value->kind == Kind::kBoolean) return value->number == 1;
  impl_->refuse(name, "must be true or false", "true 또는 false여야 합니다");
  return when_absent;
}

common::Instant BodyReader::instant(std::string_view name) {
  return impl_->instant(name, true).value_or(common::Instant{});
}

std::optional<common::Instant> BodyReader::optional_instant(std::string_view name) {
  return impl_->instant(name, false);
}

void BodyReader::refuse(std::string_view field, std::string_view problem) {
  impl_->refuse(field, std::string(problem),
                "값이 올바르지 않습니다 (" + std::string(problem) + ")");
}

std::optional<Response> BodyReader::finish() {
  if (!impl_->problem) {
    for (const auto& [name, value] : impl_->body.members) {
      if (!value.used) impl_->refuse(name, "is not known here", "알 수 없는 항목입니다");
    }
  }
  return impl_->problem;
}

tl::expected<Page, Response> read_page(const Request& request,
                                       const std::vector<std::string>& also) {
  const auto refuse = [&request](std::string_view name) {
    return tl::make_unexpected(invalid_parameter(name, request.language()));
  };
  for (const std::string& name : request.query_names()) {
    const bool known = name == "after" || name == "limit" ||
                       std::find(also.begin(), also.end(), name) != also.end();
    if (!known) return refuse(name);
  }
  Page page;
  if (const std::optional<std::string> limit = request.query("limit")) {
    const char* const end = limit->data() + limit->size();
    const auto [stop, error] = std::from_chars(limit->data(), end, page.limit);
    if (error != std::errc{} || stop != end || page.limit < 1 || page.limit > 1000) {
      return refuse("limit");
    }
  }
  if (const std::optional<std::string> after = request.query("after")) {
    if (after->empty() || after->size() > kMaxCursor) return refuse("after");
    const std::optional<common::Bytes> bytes = common::base64url_decode(*after);
    if (!bytes) return refuse("after");
    page.after.emplace(bytes->begin(), bytes->end());
    if (!common::is_plain_utf8(*page.after)) return refuse("after");
  }
  return page;
}

std::string make_cursor(std::string_view text) {
  const common::Bytes bytes(text.begin(), text.end());
  return common::base64url_encode(bytes);
}

Response invalid_parameter(std::string_view name, Language language) {
  return refuse_field(kInvalidParameter.code, name, std::string(name) + " is malformed",
                      std::string(name) + ": 형식이 올바르지 않습니다", language);
}

}  // namespace doorbuster::http

#include <array>
#include <boost/json.hpp>
#include <set>

#include "common/text.hpp"
#include "edge/json_reader.hpp"
#include "fuzz/fuzz.hpp"
#include "http/json.hpp"

/// Bodies of requests, and the JSON that answers are made of.
///
/// - BodyReader accepts a body exactly when the project's other JSON reader (edge::JsonReader,
/// which
///   shares no code with it) finds an object of the expected fields in it, and reads the same
///   values.
/// - A refusal is 400 or 415 with an error, a message and perhaps a field, and is JSON itself.
/// - Where a field must be there, the first one that is absent is named.
/// - json_quote gives back what was quoted, to both readers and to Boost.JSON, and bytes that are
/// no
///   text as U+FFFD; what it writes has no control characters.
namespace doorbuster::fuzz {
namespace {

using common::Instant;
using edge::JsonReader;
namespace json = boost::json;

constexpr std::int64_t kMin = -5;
constexpr std::int64_t kMax = 1'000'000'000'000;
constexpr std::size_t kMinText = 1;
constexpr std::size_t kMaxText = 12;
constexpr std::size_t kMaxNote = 4096;

struct Fields {
  std::optional<std::int64_t> count;
  std::optional<std::string> name;
  std::optional<std::string> note;
  bool on = true;
  std::optional<Instant> at;

  friend bool operator==(const Fields&, const Fields&) = default;
};

http::Request request_of(std::string_view body, std::string_view content_type,
                         http::Language language) {
  static NoExecutor nowhere;
  http::RequestView view;
  view.method = http::Method::kPost;
  view.path = "/";
  view.body = body;
  view.content_type = content_type;
  view.language = language;
  return {view, nowhere, "192.0.2.1"};
}

void check_refusal(const http::Response& refusal, bool wrong_type) {
  DOORBUSTER_ENSURE(refusal.status == (wrong_type ? 415 : 400), "400, or 415 for another type");
  DOORBUSTER_ENSURE(common::is_plain_utf8(refusal.body), "a refusal is text");
  json::error_code error;
  const json::value parsed = json::parse(refusal.body, error);
  DOORBUSTER_ENSURE(!error && parsed.is_object(), "a refusal is a JSON object");
  const json::object& object = parsed.get_object();
  const json::value* code = object.if_contains("error");
  const json::value* message = object.if_contains("message");
  const json::value* field = object.if_contains("field");
  DOORBUSTER_ENSURE(code && *code == (wrong_type ? "UNSUPPORTED_MEDIA_TYPE" : "INVALID_BODY") &&
                        message && message->is_string() && object.size() == (field ? 3U : 2U) &&
                        (!field || field->is_string()),
                    "error, message, and perhaps the field");
}

std::optional<Fields> read_body(std::string_view text, std::string_view content_type,
                                bool wrong_type, http::Language language) {
  const http::Request request = request_of(text, content_type, language);
  http::BodyReader body(request);
  Fields fields;
  fields.count = body.optional_integer("count", kMin, kMax);
  fields.name = body.optional_text("name", kMinText, kMaxText);
  fields.note = body.optional_text("note", 0, kMaxNote);
  fields.on = body.boolean("on", true);
  fields.at = body.optional_instant("at");
  const std::optional<http::Response> refusal = body.finish();
  if (!refusal) return fields;
  check_refusal(*refusal, wrong_type);
  return std::nullopt;
}

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) == 0x80U ? 0U : 1U;
  return count;
}

/// The same through the other reader.
std::optional<Fields> reference(std::string_view text) {
  Fields fields;
  if (text.empty()) return fields;
  Exact copy(text);
  JsonReader in(copy.bytes());
  if (!in.begin_object()) return std::nullopt;
  std::set<std::string, std::less<>> names;
  std::string_view name;
  bool good = true;
  const auto text_of = [&](std::size_t min, std::size_t max) {
    good = good && in.peek() == JsonReader::Kind::kString;
    const std::string value(in.read_string());
    good = good && characters(value) >= min && characters(value) <= max;
    return value;
  };
  while (good && in.next_name(name)) {
    good = names.emplace(name).second;
    if (name == "count") {
      good = good && in.peek() == JsonReader::Kind::kNumber;
      fields.count = in.read_number().whole;
      good = good && fields.count && *fields.count >= kMin && *fields.count <= kMax;
    } else if (name == "name") {
      fields.name = text_of(kMinText, kMaxText);
    } else if (name == "note") {
      fields.note = text_of(0, kMaxNote);
    } else if (name == "at") {
      fields.at = common::parse_rfc3339(text_of(0, kMaxNote));
      good = good && fields.at;
    } else if (name == "on") {
      // The reader has no words for literals: which one it is, Boost.JSON says.
      good = good && in.peek() == JsonReader::Kind::kLiteral;
      in.skip();
      json::error_code error;
      const json::value whole = json::parse(json::string_view(text.data(), text.size()), error);
      const json::value* on =
          error || !whole.is_object() ? nullptr : whole.get_object().if_contains("on");
      good = good && on && on->is_bool();
      fields.on = good && on->get_bool();
    } else {
      good = false;
    }
  }
  if (!good || !in.finish()) return std::nullopt;
  return fields;
}

/// The same fields, all of them wanted: the first that is absent is refused, and every getter gives
/// something harmless all the same.
void check_required(std::string_view text, const Fields& fields) {
  const http::Request request = request_of(text, {}, http::Language::kEnglish);
  http::BodyReader body(request);
  const std::int64_t count = body.integer("count", kMin, kMax);
  const std::string name = body.text("name", kMinText, kMaxText);
  const std::string note = body.text("note", 0, kMaxNote);
  const Instant at = body.instant("at");
  DOORBUSTER_ENSURE(body.boolean("on", true) == fields.on || !fields.on, "as sent, or its default");
  const std::optional<http::Response> refusal = body.finish();
  const char* missing = !fields.count  ? "count"
                        : !fields.name ? "name"
                        : !fields.note ? "note"
                        : !fields.at   ? "at"
                                       : nullptr;
  DOORBUSTER_ENSURE(refusal.has_value() == (missing != nullptr), "all of them, or a refusal");
  DOORBUSTER_ENSURE(count == fields.count.value_or(kMin), "the number or a harmless one");
  if (!refusal) {
    DOORBUSTER_ENSURE(name == *fields.name && note == *fields.note && at == *fields.at, "as sent");
    return;
  }
  check_refusal(*refusal, false);
  DOORBUSTER_ENSURE(json::parse(refusal->body).at("field") == missing, "the first that is absent");
}

/// What a JSON string literal says; nothing when it is none.
std::optional<std::string> unquote(std::string_view literal) {
  json::error_code error;
  const json::value parsed = json::parse(json::string_view(literal.data(), literal.size()), error);
  if (error || !parsed.is_string()) return std::nullopt;
  return std::string(parsed.get_string());
}

void check_quote(std::string_view text) {
  const std::string quoted = http::json_quote(text);
  for (const char c : quoted) {
    const auto byte = static_cast<unsigned char>(c);
    DOORBUSTER_ENSURE(byte >= 0x20 && byte != 0x7F, "no control characters");
  }
  const std::optional<std::string> back = unquote(quoted);
  DOORBUSTER_ENSURE(back && common::is_plain_utf8(quoted), "a literal");
  DOORBUSTER_ENSURE(unquote(http::json_quote(*back)) == back, "what came back stays as it is");
  if (!common::is_plain_utf8(text)) return;
  DOORBUSTER_ENSURE(*back == text, "what was quoted comes back");
  Exact copy(quoted);
  JsonReader in(copy.bytes());
  DOORBUSTER_ENSURE(in.read_string() == text && in.finish(), "also from the other reader");
  const bool fits = characters(text) <= kMaxNote;
  const auto fields = read_body("{\"note\":" + quoted + "}", {}, false, http::Language::kEnglish);
  DOORBUSTER_ENSURE(fields.has_value() == fits && (!fits || fields->note == text),
                    "and from a body");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  struct Type {
    const char* text;
    bool accepted;
  };
  constexpr std::array kTypes{Type{"application/json", true},
                              Type{"", true},
                              Type{"Application/JSON ; charset=\"UTF-8\"", true},
                              Type{"text/plain", false},
                              Type{"application/json;charset=euc-kr", false},
                              Type{"application/jsonp", false}};
  const Type& type = kTypes[in.ConsumeIntegralInRange<std::size_t>(0, kTypes.size() - 1)];
  const auto language =
      in.ConsumeBool() ? doorbuster::http::Language::kKorean : doorbuster::http::Language::kEnglish;
  const Exact text(in.ConsumeRemainingBytesAsString());

  const auto fields =
      read_body(text.view(), type.text, !type.accepted && !text.view().empty(), language);
  const auto expected = reference(text.view());
  if (type.accepted || text.view().empty()) {
    DOORBUSTER_ENSURE(fields == expected, "both readers find the same fields, or refuse");
    if (fields) check_required(text.view(), *fields);
  } else {
    DOORBUSTER_ENSURE(!fields, "another type is refused");
  }
  check_quote(text.view());
  return 0;
}

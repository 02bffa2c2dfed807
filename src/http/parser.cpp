#include "http/parser.hpp"

#include <array>
#include <cstdint>

namespace doorbuster::http {
namespace {

Head refuse(int status, std::string_view reason) {
  Head head;
  head.state = ParseState::kRefused;
  head.status = status;
  head.reason = reason;
  return head;
}

/// RFC 9110, section 5.6.2.
constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<unsigned char>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kToken = make_token_table();

bool is_token(char c) { return kToken[static_cast<unsigned char>(c)]; }

/// Visible characters, space, tab and obs-text: what a field value may hold.
bool is_value(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7F) || c == '\t';
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool same_name(std::string_view a, std::string_view lower_case) {
  if (a.size() != lower_case.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower_case[i]) return false;
  }
  return true;
}

struct MethodName {
  std::string_view name;
  Method method;
};
constexpr MethodName kMethods[] = {{"GET", Method::kGet},       {"POST", Method::kPost},
                                   {"HEAD", Method::kHead},     {"PUT", Method::kPut},
                                   {"PATCH", Method::kPatch},   {"DELETE", Method::kDelete},
                                   {"OPTIONS", Method::kOptions}};

bool is_request_id(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (const char c : text) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!fine) return false;
  }
  return true;
}

/// "00-<32 hex>-<16 hex>-<2 hex>", not all zero (W3C Trace Context, version 00).
bool is_traceparent(std::string_view text) {
  if (text.size() != 55 || text.substr(0, 3) != "00-" || text[35] != '-' || text[52] != '-') return false;
  bool trace = false;
  bool span = false;
  for (std::size_t i = 3; i < text.size(); ++i) {
    if (i == 35 || i == 52) continue;
    const char c = text[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    if (c != '0' && i < 35) trace = true;
    if (c != '0' && i > 35 && i < 52) span = true;
  }
  return trace && span;
}

/// Digits only, below 2^53, so that no arithmetic on it can overflow.
bool read_length(std::string_view text, std::size_t& length) {
  if (text.empty() || text.size() > 15) return false;
  length = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    length = length * 10 + static_cast<std::size_t>(c - '0');
  }
  return true;
}

/// Korean when it is preferred to English; a full weighing of languages would serve nobody more.
Language read_language(std::string_view value) {
  const auto find = [&](std::string_view tag) {
    for (std::size_t i = 0; i + tag.size() <= value.size(); ++i) {
      const bool begins = i == 0 || value[i - 1] == ',' || value[i - 1] == ' ';
      if (begins && lower(value[i]) == tag[0] && lower(value[i + 1]) == tag[1]) return i;
    }
    return std::string_view::npos;
  };
  const std::size_t korean = find("ko");
  if (korean == std::string_view::npos) return Language::kEnglish;
  return find("en") < korean ? Language::kEnglish : Language::kKorean;
}

/// What the headers have said so far.
struct Seen {
  int hosts = 0;
  int lengths = 0;
  int encodings = 0;
  bool close = false;
  bool keep_alive = false;
};

/// Status and reason where the header is refused; status 0 where it is fine.
struct Refusal {
  int status = 0;
  std::string_view reason;
};

Refusal note_connection(std::string_view value, Seen& seen) {
  while (!value.empty()) {
    const std::size_t comma = value.find(',');
    std::string_view one = value.substr(0, comma);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (same_name(one, "close")) seen.close = true;
    if (same_name(one, "keep-alive")) seen.keep_alive = true;
    if (comma == std::string_view::npos) break;
    value.remove_prefix(comma + 1);
  }
  return {};
}

/// Headers that mean something to the server. The first letters sort out all others.
Refusal note_header(std::string_view name, std::string_view value, Head& head, RequestView& view, Seen& seen) {
  switch (lower(name[0])) {
    case 'h':
      if (same_name(name, "host") && ++seen.hosts > 1) return {400, "more than one Host"};
      break;
    case 'c':
      if (same_name(name, "content-length")) {
        if (++seen.lengths > 1) return {400, "more than one Content-Length"};
        if (!read_length(value, head.content_length)) return {400, "Content-Length is no plain number"};
      } else if (same_name(name, "content-type")) {
        view.content_type = value;
      } else if (same_name(name, "connection")) {
        return note_connection(value, seen);
      }
      break;
    case 't':
      if (same_name(name, "transfer-encoding")) {
        if (++seen.encodings > 1 || !same_name(value, "chunked")) {
          return {400, "Transfer-Encoding other than chunked"};
        }
        head.chunked = true;
      } else if (same_name(name, "traceparent") && is_traceparent(value)) {
        view.traceparent = value;
      }
      break;
    case 'a':
      if (same_name(name, "authorization")) {
        if (!view.authorization.empty()) return {400, "more than one Authorization"};
        view.authorization = value;
      } else if (same_name(name, "accept-language")) {
        view.language = read_language(value);
      }
      break;
    case 'i':
      if (same_name(name, "idempotency-key")) {
        if (!view.idempotency_key.empty()) return {400, "more than one Idempotency-Key"};
        view.idempotency_key = value;
      }
      break;
    case 'x':
      if (same_name(name, "x-request-id") && is_request_id(value)) view.request_id = value;
      break;
    case 'e':
      if (same_name(name, "expect")) {
        if (!same_name(value, "100-continue")) return {417, "Expect other than 100-continue"};
        head.expect_continue = true;
      }
      break;
    default: break;
  }
  return {};
}

}  // namespace

Head parse_head(std::string_view buffer, const ParserLimits& limits, RequestView& view) {
  view = RequestView{};
  Head head;
  const std::size_t size = buffer.size();
  std::size_t at = 0;

  // Request line: METHOD SP target SP HTTP/1.x CRLF
  while (at < size && is_token(buffer[at])) {
    // The longest method is OPTIONS.
    if (++at > 16) return refuse(501, "unknown method");
  }
  if (at == size) return head;
  if (buffer[at] != ' ' || at == 0) return refuse(400, "broken request line");
  const std::string_view method = buffer.substr(0, at);
  bool known = false;
  for (const MethodName& one : kMethods) {
    if (one.name == method) {
      view.method = one.method;
      known = true;
      break;
    }
  }
  if (!known) return refuse(501, "unknown method");

  const std::size_t target_begin = ++at;
  std::size_t question = std::string_view::npos;
  while (at < size && buffer[at] != ' ') {
    const auto byte = static_cast<unsigned char>(buffer[at]);
    // RFC 3986 allows visible ASCII only, and never a fragment.
    if (byte <= 0x20 || byte >= 0x7F || buffer[at] == '#' || buffer[at] == '\\') {
      return refuse(400, "broken target");
    }
    if (buffer[at] == '?' && question == std::string_view::npos) question = at;
    if (++at - target_begin > limits.max_target_bytes) return refuse(414, "the target is too long");
  }
  if (at > target_begin && buffer[target_begin] != '/') return refuse(400, "the target does not begin with /");
  if (at == size) return head;
  if (at == target_begin) return refuse(400, "broken request line");
  view.target = buffer.substr(target_begin, at - target_begin);
  const std::size_t path_end = question == std::string_view::npos ? at : question;
  view.path = buffer.substr(target_begin, path_end - target_begin);
  view.query = question == std::string_view::npos ? std::string_view()
                                                  : buffer.substr(question + 1, at - question - 1);
  ++at;

  constexpr std::string_view version = "HTTP/1.";
  for (std::size_t i = 0; i < version.size(); ++i, ++at) {
    if (at == size) return head;
    if (buffer[at] != version[i]) {
      return i < 5 ? refuse(400, "broken request line") : refuse(505, "only HTTP/1.1 and HTTP/1.0");
    }
  }
  if (at == size) return head;
  if (buffer[at] != '1' && buffer[at] != '0') return refuse(505, "only HTTP/1.1 and HTTP/1.0");
  const bool http11 = buffer[at] == '1';
  ++at;
  if (at < size && buffer[at] != '\r') return refuse(400, "broken request line");
  if (at + 1 < size && buffer[at + 1] != '\n') return refuse(400, "broken request line");
  if (at + 1 >= size) return head;
  at += 2;

  Seen seen;
  for (;;) {
    if (at > limits.max_header_bytes) return refuse(431, "the headers are too long");
    if (at == size) break;
    if (buffer[at] == '\r') {
      if (at + 1 == size) break;
      if (buffer[at + 1] != '\n') return refuse(400, "a CR without LF");
      at += 2;
      if (at > limits.max_header_bytes) return refuse(431, "the headers are too long");
      if (seen.hosts == 0 && http11) return refuse(400, "no Host");
      if (head.chunked && seen.lengths > 0) {
        return refuse(400, "Content-Length together with Transfer-Encoding");
      }
      if (head.chunked && !http11) return refuse(400, "Transfer-Encoding in HTTP/1.0");
      view.keep_alive = !seen.close && (http11 || seen.keep_alive);
      head.bytes = at;
      head.state = ParseState::kDone;
      return head;
    }
    const std::size_t name_begin = at;
    while (at < size && is_token(buffer[at])) ++at;
    if (at == size) break;
    // White space here is obs-fold at the line's beginning, or the space before ':' that some servers skip.
    if (buffer[at] != ':' || at == name_begin) return refuse(400, "broken header name");
    const std::string_view name = buffer.substr(name_begin, at - name_begin);
    ++at;
    while (at < size && (buffer[at] == ' ' || buffer[at] == '\t')) ++at;
    const std::size_t value_begin = at;
    while (at < size && is_value(buffer[at])) ++at;
    if (at == size) break;
    if (buffer[at] != '\r') return refuse(400, "a control character in a header");
    if (at + 1 == size) break;
    if (buffer[at + 1] != '\n') return refuse(400, "a CR without LF");
    std::size_t value_end = at;
    while (value_end > value_begin && (buffer[value_end - 1] == ' ' || buffer[value_end - 1] == '\t')) --value_end;
    at += 2;
    if (view.header_count == RequestView::kMaxHeaders) return refuse(431, "too many headers");
    const std::string_view value = buffer.substr(value_begin, value_end - value_begin);
    view.headers[view.header_count++] = {name, value};
    const Refusal refusal = note_header(name, value, head, view, seen);
    if (refusal.status != 0) return refuse(refusal.status, refusal.reason);
  }
  if (size > limits.max_header_bytes) return refuse(431, "the headers are too long");
  return Head{};
}

ChunkedBody parse_chunked(std::string_view buffer, std::size_t max_body, std::string& decoded) {
  ChunkedBody body;
  decoded.clear();
  std::size_t at = 0;
  const auto refused = [&] {
    body.state = ParseState::kRefused;
    return body;
  };
  for (;;) {
    std::size_t length = 0;
    std::size_t digits = 0;
    for (; at < buffer.size(); ++at, ++digits) {
      const char c = lower(buffer[at]);
      if (c >= '0' && c <= '9') {
        length = length * 16 + static_cast<std::size_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        length = length * 16 + static_cast<std::size_t>(c - 'a' + 10);
      } else {
        break;
      }
      if (digits >= 8) return refused();
    }
    if (at == buffer.size()) return body;
    // Anything but CR here would be an extension.
    if (digits == 0 || buffer[at] != '\r') return refused();
    if (at + 1 == buffer.size()) return body;
    if (buffer[at + 1] != '\n') return refused();
    at += 2;
    if (decoded.size() + length > max_body) {
      body.too_large = true;
      return refused();
    }
    if (length == 0) {
      // No trailers: the empty line ends the body.
      if (at < buffer.size() && buffer[at] != '\r') return refused();
      if (at + 1 < buffer.size() && buffer[at + 1] != '\n') return refused();
      if (at + 2 > buffer.size()) return body;
      body.state = ParseState::kDone;
      body.consumed = at + 2;
      body.size = decoded.size();
      return body;
    }
    const std::size_t have = buffer.size() - at;
    if (have < length) return body;
    decoded.append(buffer.substr(at, length));
    at += length;
    if (at < buffer.size() && buffer[at] != '\r') return refused();
    if (at + 1 < buffer.size() && buffer[at + 1] != '\n') return refused();
    if (at + 2 > buffer.size()) return body;
    at += 2;
  }
}

}  // namespace doorbuster::http

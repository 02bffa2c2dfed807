#include "rush/response_parser.hpp"

#include <charconv>

namespace doorbuster::rush {
namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// `name` is in lower case.
bool same_name(std::string_view text, std::string_view name) noexcept {
  if (text.size() != name.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (lower(text[i]) != name[i]) return false;
  }
  return true;
}

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// All of the text as a number, or nothing.
std::optional<std::uint64_t> number(std::string_view text, int base = 10) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Head {
  int status = 0;
  std::optional<std::size_t> length;
  bool chunked = false;
  bool keep_alive = true;
  int retry_after_s = -1;
  std::size_t size = 0;
};

bool read_field(std::string_view line, Head& head) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trim(line.substr(colon + 1));
  // Only four fields matter; their lengths tell most others apart at once.
  switch (name.size()) {
    case 14:
      if (same_name(name, "content-length")) {
        const auto length = number(value);
        if (!length || *length > kMaxResponseBody || (head.length && *head.length != *length)) return false;
        head.length = static_cast<std::size_t>(*length);
      }
      break;
    case 17:
      if (same_name(name, "transfer-encoding")) {
        if (!same_name(value, "chunked")) return false;
        head.chunked = true;
      }
      break;
    case 10:
      if (same_name(name, "connection") && same_name(value, "close")) head.keep_alive = false;
      break;
    case 11:
      if (same_name(name, "retry-after")) {
        // The other form, a date, is left alone: nobody's clock is trusted here.
        const auto seconds = number(value);
        if (seconds) head.retry_after_s = *seconds > 86'400 ? 86'400 : static_cast<int>(*seconds);
      }
      break;
    default: break;
  }
  return true;
}

ParseState read_head(std::string_view bytes, Head& head) {
  constexpr std::string_view kVersion = "HTTP/1.";
  if (bytes.substr(0, kVersion.size()) != kVersion.substr(0, std::min(bytes.size(), kVersion.size()))) {
    return ParseState::kBad;
  }
  const std::size_t end = bytes.substr(0, kMaxResponseHead).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    return bytes.size() >= kMaxResponseHead ? ParseState::kBad : ParseState::kNeedMore;
  }
  head = Head{};
  head.size = end + 4;
  std::string_view rest = bytes.substr(0, end);
  // "HTTP/1.1 200", then a reason or nothing.
  if (rest.size() < 12 || rest[8] != ' ') return ParseState::kBad;
  const auto status = number(rest.substr(9, 3));
  if (!status || *status < 100 || (rest.size() > 12 && rest[12] != ' ' && rest[12] != '\r')) {
    return ParseState::kBad;
  }
  head.status = static_cast<int>(*status);
  head.keep_alive = rest[7] != '0';
  std::size_t line_end = rest.find("\r\n");
  while (line_end != std::string_view::npos) {
    rest.remove_prefix(line_end + 2);
    line_end = rest.find("\r\n");
    if (!read_field(rest.substr(0, line_end), head)) return ParseState::kBad;
  }
  return ParseState::kDone;
}

/// `bytes` begin with the first chunk.
ParseState read_chunks(std::string_view bytes, std::string& body, std::size_t& size) {
  body.clear();
  std::size_t at = 0;
  for (;;) {
    const std::size_t line_end = bytes.find("\r\n", at);
    if (line_end == std::string_view::npos) {
      return bytes.size() - at > 1024 ? ParseState::kBad : ParseState::kNeedMore;
    }
    std::string_view line = bytes.substr(at, line_end - at);
    line = trim(line.substr(0, line.find(';')));
    const auto length = number(line, 16);
    if (!length || *length > kMaxResponseBody || body.size() + *length > kMaxResponseBody) {
      return ParseState::kBad;
    }
    at = line_end + 2;
    if (*length == 0) break;
    if (bytes.size() < at + *length + 2) return ParseState::kNeedMore;
    body.append(bytes.substr(at, *length));
    at += *length;
    if (bytes.substr(at, 2) != "\r\n") return ParseState::kBad;
    at += 2;
  }
  // Trailers, up to an empty line.
  for (;;) {
    const std::size_t line_end = bytes.find("\r\n", at);
    if (line_end == std::string_view::npos) {
      return bytes.size() - at > kMaxResponseHead ? ParseState::kBad : ParseState::kNeedMore;
    }
    const bool last = line_end == at;
    at = line_end + 2;
    if (last) break;
  }
  size = at;
  return ParseState::kDone;
}

}  // namespace

ParseState parse_response(std::string_view bytes, std::string& scratch, ResponseView& view) {
  std::size_t skipped = 0;
  Head head;
  for (;;) {
    const ParseState state = read_head(bytes.substr(skipped), head);
    if (state != ParseState::kDone) return state;
    if (head.status >= 200) break;
    if (head.status == 101) return ParseState::kBad;
    skipped += head.size;
    if (skipped > kMaxResponseHead) return ParseState::kBad;
  }
  const std::string_view rest = bytes.substr(skipped + head.size);
  view = ResponseView{.status = head.status,
                      .retry_after_s = head.retry_after_s,
                      .keep_alive = head.keep_alive,
                      .size = skipped + head.size};
  if (head.status == 204 || head.status == 304) return ParseState::kDone;
  if (head.chunked) {
    std::size_t size = 0;
    const ParseState state = read_chunks(rest, scratch, size);
    view.body = scratch;
    view.size += size;
    return state;
  }
  if (!head.length) return ParseState::kBad;
  if (rest.size() < *head.length) return ParseState::kNeedMore;
  view.body = rest.substr(0, *head.length);
  view.size += *head.length;
  return ParseState::kDone;
}

std::optional<std::string_view> find_scalar(std::string_view json, std::string_view name) noexcept {
  const auto skip = [&](std::size_t from) {
    while (from < json.size() && (json[from] == ' ' || json[from] == '\n' || json[from] == '\r' ||
                                  json[from] == '\t')) {
      ++from;
    }
    return from;
  };
  for (std::size_t at = json.find(name); at != std::string_view::npos; at = json.find(name, at + 1)) {
    const std::size_t behind = at + name.size();
    if (at == 0 || json[at - 1] != '"' || behind >= json.size() || json[behind] != '"') continue;
    if (at >= 2 && json[at - 2] == '\\') continue;
    std::size_t from = skip(behind + 1);
    if (from >= json.size() || json[from] != ':') continue;
    from = skip(from + 1);
    if (from >= json.size()) return std::nullopt;
    if (json[from] == '"') {
      const std::size_t end = json.find('"', from + 1);
      if (end == std::string_view::npos) return std::nullopt;
      const std::string_view text = json.substr(from + 1, end - from - 1);
      if (text.find('\\') != std::string_view::npos) return std::nullopt;
      return text;
    }
    std::size_t end = from;
    while (end < json.size() && (lower(json[end]) != json[end] || (json[end] >= 'a' && json[end] <= 'z') ||
                                 (json[end] >= '0' && json[end] <= '9') || json[end] == '-' ||
                                 json[end] == '+' || json[end] == '.')) {
      ++end;
    }
    if (end == from) return std::nullopt;
    return json.substr(from, end - from);
  }
  return std::nullopt;
}

}  // namespace doorbuster::rush

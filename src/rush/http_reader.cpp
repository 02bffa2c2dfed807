#include "rush/http_reader.hpp"

#include <charconv>
#include <cstdint>

namespace doorbuster::rush {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// `word` is lower-case.
bool same(std::string_view text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (lower(text[i]) != word[i]) return false;
  }
  return true;
}

/// Whether a comma-separated list has the (lower-case) word.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    if (same(one, word)) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

std::optional<std::uint64_t> number(std::string_view text, int base = 10) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Head {
  int minor = 1;
  int status = 0;
  std::optional<std::uint64_t> length;
  bool chunked = false;
  bool close = false;
  bool keep_alive = false;
  std::optional<std::chrono::seconds> retry_after;
};

bool read_head(std::string_view text, Head& head) {
  // "HTTP/1.1 200" and then a space or the end of the line.
  if (text.size() < 12 || text.substr(0, 7) != "HTTP/1." || text[8] != ' ') return false;
  if (text[7] != '0' && text[7] != '1') return false;
  head.minor = text[7] - '0';
  const auto status = number(text.substr(9, 3));
  if (!status || *status < 100 || *status > 999) return false;
  if (text.size() > 12 && text[12] != ' ' && text[12] != '\r') return false;
  head.status = static_cast<int>(*status);

  std::size_t at = text.find("\r\n");
  while (at != std::string_view::npos && at + 2 < text.size()) {
    const std::size_t next = text.find("\r\n", at + 2);
    const std::string_view line =
        text.substr(at + 2, next == std::string_view::npos ? next : next - at - 2);
    at = next;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    if (same(name, "content-length")) {
      const auto length = number(value);
      if (!length || (head.length && *head.length != *length)) return false;
      head.length = length;
    } else if (same(name, "transfer-encoding")) {
      if (!same(value, "chunked")) return false;
      head.chunked = true;
    } else if (same(name, "connection")) {
      head.close = head.close || lists(value, "close");
      head.keep_alive = head.keep_alive || lists(value, "keep-alive");
    } else if (same(name, "retry-after")) {
      const auto seconds = number(value);
      // A day is longer than anybody's patience, and keeps the sums small.
      if (seconds) head.retry_after = std::chrono::seconds{*seconds < 86'400 ? *seconds : 86'400};
    }
  }
  return true;
}

ReadState read_chunks(std::string_view rest, const HttpLimits& limits, std::string& decoded,
                      std::size_t& used) {
  decoded.clear();
  std::size_t at = 0;
  for (;;) {
    const std::size_t end = rest.find("\r\n", at);
    if (end == std::string_view::npos) {
      return rest.size() - at > limits.max_head ? ReadState::kBad : ReadState::kNeedMore;
    }
    const std::string_view line = rest.substr(at, end - at);
    const auto size = number(line.substr(0, line.find(';')), 16);
    if (!size || *size > limits.max_body - decoded.size()) return ReadState::kBad;
    at = end + 2;
    if (*size == 0) break;
    const auto bytes = static_cast<std::size_t>(*size);
    if (rest.size() < at + bytes + 2) return ReadState::kNeedMore;
    if (rest.substr(at + bytes, 2) != "\r\n") return ReadState::kBad;
    decoded.append(rest.substr(at, bytes));
    at += bytes + 2;
  }
  // Trailers, which mean nothing here, up to an empty line.
  for (;;) {
    const std::size_t end = rest.find("\r\n", at);
    if (end == std::string_view::npos) {
      return rest.size() - at > limits.max_head ? ReadState::kBad : ReadState::kNeedMore;
    }
    const bool last = end == at;
    at = end + 2;
    if (last) break;
  }
  used = at;
  return ReadState::kDone;
}

}  // namespace

ReadState read_http_answer(std::string_view buffer, bool ended, const HttpLimits& limits,
                           std::string& decoded, HttpAnswer& out) {
  std::size_t skipped = 0;
  for (;;) {
    const std::string_view text = buffer.substr(skipped);
    const std::size_t end = text.find("\r\n\r\n");
    if (end == std::string_view::npos) {
      if (text.size() > limits.max_head) return ReadState::kBad;
      // What cannot become an answer is told at once, and not waited for.
      const std::string_view start = text.substr(0, 7);
      return std::string_view("HTTP/1.").substr(0, start.size()) == start ? ReadState::kNeedMore
                                                                          : ReadState::kBad;
    }
    if (end > limits.max_head) return ReadState::kBad;
    Head head;
    if (!read_head(text.substr(0, end), head)) return ReadState::kBad;
    const std::size_t body_at = skipped + end + 4;
    if (head.status < 200) {
      if (head.status == 101) return ReadState::kBad;
      skipped = body_at;
      continue;
    }

    out = HttpAnswer{.status = head.status,
                     .retry_after = head.retry_after,
                     .close = head.close || (head.minor == 0 && !head.keep_alive)};
    const std::string_view rest = buffer.substr(body_at);
    if (head.status == 204 || head.status == 304) {
      out.bytes = body_at;
      return ReadState::kDone;
    }
    if (head.chunked) {
      std::size_t used = 0;
      const ReadState state = read_chunks(rest, limits, decoded, used);
      if (state != ReadState::kDone) return state;
      out.body = decoded;
      out.bytes = body_at + used;
      return ReadState::kDone;
    }
    if (head.length) {
      if (*head.length > limits.max_body) return ReadState::kBad;
      const auto length = static_cast<std::size_t>(*head.length);
      if (rest.size() < length) return ReadState::kNeedMore;
      out.body = rest.substr(0, length);
      out.bytes = body_at + length;
      return ReadState::kDone;
    }
    if (rest.size() > limits.max_body) return ReadState::kBad;
    if (!ended) return ReadState::kNeedMore;
    out.body = rest;
    out.bytes = buffer.size();
    out.close = true;
    return ReadState::kDone;
  }
}

}  // namespace doorbuster::rush

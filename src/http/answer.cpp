#include "http/answer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "common/result.hpp"

namespace doorbuster::http {
namespace {

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 402:
      return "Payment Required";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

bool same_name(std::string_view a, std::string_view b) noexcept {
  const auto lower = [](char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [lower](char x, char y) noexcept { return lower(x) == lower(y); });
}

bool is_token(std::string_view name) noexcept {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool has_controls(std::string_view value) noexcept {
  return std::any_of(value.begin(), value.end(), [](char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7F;
  });
}

void append_number(std::string& out, std::size_t number, int base = 10) {
  std::array<char, 24> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, base).ptr;
  out.append(text.data(), end);
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

/// Status line and all headers but those that frame the body.
void append_head(std::string& out, const Response& response) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::size_t>(response.status));
  out += ' ';
  out += reason_phrase(response.status);
  out += "\r\n";
  const bool bodyless = response.status == 204 || response.status == 304;
  if (!bodyless && !response.content_type.empty()) {
    append_header(out, "Content-Type", response.content_type);
  }
  bool cached = false;
  for (const auto& [name, value] : response.headers) {
    cached = cached || same_name(name, "cache-control");
    append_header(out, name, value);
  }
  if (!cached) append_header(out, "Cache-Control", "no-store");
  append_header(out, "X-Content-Type-Options", "nosniff");
}

void append_frame(std::string& out, const AnswerFrame& frame) {
  append_header(out, "Date", frame.date);
  if (!frame.request_id.empty()) append_header(out, "X-Request-Id", frame.request_id);
  if (frame.close) out += "Connection: close\r\n";
}

/// A small buffer on the stack: pieces of known length become a few moves there, where each append
/// to a string would be a call.
class Pieces {
 public:
  void add(std::string_view text) noexcept {
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void add(std::size_t number) noexcept {
    char* const begin = bytes_.data() + size_;
    size_ += static_cast<std::size_t>(std::to_chars(begin, begin + 20, number).ptr - begin);
  }
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::array<char, 256> bytes_;  // on purpose not set to anything before it is written
  std::size_t size_ = 0;
};

}  // namespace

std::string http_date(common::Instant at) {
  using namespace std::chrono;  // NOLINT(google-build-using-namespace): the calendar's operators
  constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const sys_days day = floor<days>(at);
  const year_month_day date{day};
  const hh_mm_ss time{floor<seconds>(at - day)};
  std::array<char, 48> text{};
  const int size = std::snprintf(
      text.data(), text.size(), "%s, %02u %s %04d %02d:%02d:%02d GMT",
      kDays[weekday{day}.c_encoding()], static_cast<unsigned>(date.day()),
      kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()),
      static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
      static_cast<int>(time.seconds().count()));
  return {text.data(), static_cast<std::size_t>(std::max(size, 0))};
}

bool is_sendable(const Response& response) noexcept {
  if (response.status < 200 || response.status > 599) return false;
  if (has_controls(response.content_type)) return false;
  constexpr std::array<std::string_view, 9> kOurs{
      "connection",        "content-length",         "content-type", "date",   "keep-alive",
      "transfer-encoding", "x-content-type-options", "x-request-id", "upgrade"};
  return std::all_of(response.headers.begin(), response.headers.end(), [&](const auto& header) {
    return is_token(header.first) && !has_controls(header.second) &&
           std::none_of(kOurs.begin(), kOurs.end(),
                        [&](std::string_view ours) { return same_name(header.first, ours); });
  });
}

void append_answer(std::string& out, const Response& response, const AnswerFrame& frame) {
  append_head(out, response);
  append_frame(out, frame);
  const bool bodyless = response.status == 204 || response.status == 304;
  if (!bodyless) {
    out += "Content-Length: ";
    append_number(out, response.body.size());
    out += "\r\n";
  }
  out += "\r\n";
  if (!bodyless && !frame.head_only) out += response.body;
}

void append_prepared(std::string& out, std::string_view head, std::string_view body,
                     const AnswerFrame& frame) {
  // 29 bytes of date and 64 of request id at most: it fits.
  DOORBUSTER_ENSURE(frame.date.size() + frame.request_id.size() <= 100, "the frame is short");
  Pieces pieces;
  pieces.add("Date: ");
  pieces.add(frame.date);
  pieces.add("\r\nX-Request-Id: ");
  pieces.add(frame.request_id);
  if (frame.close) pieces.add("\r\nConnection: close");
  pieces.add("\r\nContent-Length: ");
  pieces.add(body.size());
  pieces.add("\r\n\r\n");
  out.append(head);
  out.append(pieces.text());
  if (!frame.head_only) out.append(body);
}

void append_stream_head(std::string& out, const Response& response, const AnswerFrame& frame,
                        bool chunked) {
  append_head(out, response);
  append_frame(out, frame);
  if (chunked) out += "Transfer-Encoding: chunked\r\n";
  // nginx would collect the events otherwise.
  out += "X-Accel-Buffering: no\r\n\r\n";
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  append_number(out, data.size(), 16);
  out += "\r\n";
  out += data;
  out += "\r\n";
}

Response refuse_request(int status, std::string_view english, Language language) {
  PublicError error{status, "INVALID_REQUEST", "The request is malformed.",
                    "요청의 형식이 올바르지 않습니다."};
  switch (status) {
    case 408:
      error = {status, "REQUEST_TIMEOUT", "The request took too long to arrive.",
               "요청이 시간 안에 도착하지 않았습니다."};
      break;
    case 413:
      error = kPayloadTooLarge;
      break;
    case 414:
      error = {status, "URI_TOO_LONG", "The request's target is too long.",
               "요청 주소가 너무 깁니다."};
      break;
    case 417:
      error = {status, "EXPECTATION_FAILED", "Only 'Expect: 100-continue' is understood.",
               "지원하지 않는 Expect 헤더입니다."};
      break;
    case 431:
      error = {status, "HEADERS_TOO_LARGE", "The request's headers are too large.",
               "요청 헤더가 너무 큽니다."};
      break;
    case 501:
      error = {status, "NOT_IMPLEMENTED", "This method is not implemented.",
               "지원하지 않는 메서드입니다."};
      break;
    case 505:
      error = {status, "VERSION_NOT_SUPPORTED", "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
               "지원하지 않는 HTTP 버전입니다."};
      break;
    default:
      break;
  }
  if (!english.empty()) error.english = english;
  return error_response(error, language);
}

}  // namespace doorbuster::http

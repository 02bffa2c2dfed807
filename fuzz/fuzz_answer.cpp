#include <algorithm>
#include <array>

#include "common/text.hpp"
#include "fuzz/fuzz.hpp"
#include "http/answer.hpp"

/// Answers as bytes. An input is headers "name: value", each with a bar at its end, one more
/// bar, and a body.
///
/// - What is_sendable() lets through is read back by a client as it was meant: one head, exactly
/// the
///   headers that were set and the server's own, a Content-Length that is true. So no text that got
///   into a header can end it (response splitting).
/// - A line's end in a name, value or type is never sendable.
/// - What a stream's chunks are made of comes back from them.
namespace doorbuster::fuzz {
namespace {

using http::AnswerFrame;
using http::Response;

constexpr std::string_view kDate = "Mon, 30 Nov 2026 01:02:03 GMT";

struct Read {
  std::string status;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view body;

  [[nodiscard]] std::size_t count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(headers, [name](const auto& one) { return one.first == name; }));
  }
  [[nodiscard]] std::string value(std::string_view name) const {
    for (const auto& [known, value] : headers) {
      if (known == name) return value;
    }
    return {};
  }
};

/// As a client reads it: lines end with CRLF, or, as many clients have it, with LF alone.
Read read(std::string_view bytes) {
  Read answer;
  const auto line = [&bytes] {
    std::string_view one = take_until(bytes, "\n");
    DOORBUSTER_ENSURE(one.ends_with('\r'), "a line ends with CRLF");
    one.remove_suffix(1);
    DOORBUSTER_ENSURE(one.find('\r') == std::string_view::npos, "no bare CR");
    return one;
  };
  answer.status = line();
  while (true) {
    std::string_view one = line();
    if (one.empty()) break;
    const std::string name(take_until(one, ": "));
    DOORBUSTER_ENSURE(!name.empty() && name.find_first_of(" \t:") == std::string::npos, "a name");
    answer.headers.emplace_back(name, one);
  }
  answer.body = bytes;
  return answer;
}

void check_answer(const Response& response, const AnswerFrame& frame) {
  std::string bytes = "before";
  http::append_answer(bytes, response, frame);
  DOORBUSTER_ENSURE(bytes.starts_with("before"), "it is appended");
  const Read answer = read(std::string_view(bytes).substr(6));
  DOORBUSTER_ENSURE(answer.status.starts_with("HTTP/1.1 " + std::to_string(response.status) + ' '),
                    "the status");
  for (const auto& [name, value] : response.headers) {
    const auto sent = std::ranges::find(answer.headers, std::pair(name, value));
    DOORBUSTER_ENSURE(sent != answer.headers.end(), "each header is there");
  }
  const bool bodyless = response.status == 204 || response.status == 304;
  const std::size_t typed = bodyless || response.content_type.empty() ? 0 : 1;
  DOORBUSTER_ENSURE(answer.count("Content-Type") == typed, "one type, where there is a body");
  DOORBUSTER_ENSURE(answer.count("Content-Length") == (bodyless ? 0 : 1), "one length, or none");
  if (typed == 1) {
    DOORBUSTER_ENSURE(answer.value("Content-Type") == response.content_type, "the type");
  }
  if (!bodyless) {
    DOORBUSTER_ENSURE(answer.value("Content-Length") == std::to_string(response.body.size()),
                      "a true length");
  }
  DOORBUSTER_ENSURE(answer.body == (bodyless || frame.head_only ? std::string_view{}
                                                                : std::string_view(response.body)),
                    "the body, where one belongs");
  DOORBUSTER_ENSURE(answer.value("Date") == frame.date && answer.count("Date") == 1, "the date");
  DOORBUSTER_ENSURE(answer.count("Connection") == (frame.close ? 1 : 0), "closed when it is said");
  DOORBUSTER_ENSURE(answer.value("X-Request-Id") == frame.request_id, "the request's id");
  const bool caches = std::ranges::any_of(response.headers, [](const auto& header) {
    return header.first.size() == 13 && (header.first[0] == 'C' || header.first[0] == 'c');
  });
  DOORBUSTER_ENSURE(caches || answer.value("Cache-Control") == "no-store", "not cached unasked");
}

void check_chunks(std::string_view body, std::size_t size) {
  std::string bytes;
  for (std::string_view rest = body; !rest.empty();) {
    const std::size_t one = std::min(size, rest.size());
    http::append_chunk(bytes, rest.substr(0, one));
    rest.remove_prefix(one);
  }
  http::append_chunk(bytes, {});
  bytes += http::kLastChunk;
  http::ChunkedBody state;
  std::string decoded;
  // Half of what is allowed is framing, at most.
  http::parse_chunked(bytes, bytes.size(), state, decoded);
  DOORBUSTER_ENSURE(
      state.state == http::ParseState::kDone && state.consumed == bytes.size() && decoded == body,
      "what was put into chunks comes out of them");
}

bool ends_a_line(std::string_view text) { return text.find_first_of("\r\n") != text.npos; }

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster;        // NOLINT(google-build-using-namespace)
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  http::Response response;
  response.status = in.ConsumeIntegralInRange<int>(190, 610);
  const http::AnswerFrame frame{.date = kDate,
                                .request_id = in.ConsumeBool() ? "r-1" : "",
                                .close = in.ConsumeBool(),
                                .head_only = in.ConsumeBool()};
  const auto chunk = in.ConsumeIntegralInRange<std::size_t>(1, 300);
  const bool typed = in.ConsumeBool();
  const std::string text = in.ConsumeRemainingBytesAsString();
  std::string_view rest = text;
  // A bar ends a header here, so that line ends can get into one.
  while (!rest.empty() && response.headers.size() < 20) {
    std::string_view value = take_until(rest, "|");
    if (value.empty()) break;
    const std::string name(take_until(value, ": "));
    if (typed && name == "type") {
      response.content_type = value;
    } else {
      response.headers.emplace_back(name, value);
    }
  }
  response.body = rest;
  const bool line_end = ends_a_line(response.content_type) ||
                        std::ranges::any_of(response.headers, [](const auto& one) {
                          return ends_a_line(one.first) || ends_a_line(one.second);
                        });
  const bool sendable = http::is_sendable(response);
  DOORBUSTER_ENSURE(!sendable || !line_end, "no line's end in a header");
  DOORBUSTER_ENSURE(!sendable || (response.status >= 200 && response.status <= 599), "a status");
  if (sendable) check_answer(response, frame);
  check_chunks(rest, chunk);
  return 0;
}

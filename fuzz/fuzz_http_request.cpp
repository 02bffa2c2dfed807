#include <algorithm>
#include <array>
#include <map>

#include "fuzz/fuzz.hpp"
#include "http/parser.hpp"

/// Requests as a connection gets them: heads, bodies of both kinds, several behind each other.
///
/// - Cut into pieces anywhere, the bytes mean what they mean whole: same requests, same refusal.
/// - A request that was accepted means the same alone, and twice when it is sent twice; no part of
///   it that ends early is accepted or refused.
/// - A second reader, written without a look at the first one, finds the same lines in an accepted
///   head, and none of what P2 in parser.hpp refuses: bare CR or LF, folded lines, blanks before
///   ':', control characters, two lengths, two of a header that may come once.
/// - The copy of a request that a handler gets says the same.
/// - No limit is ever exceeded: head, target, number of headers, body, framing of chunks.
namespace doorbuster::fuzz {
namespace {

using http::Head;
using http::ParserLimits;
using http::ParseState;
using http::RequestView;

constexpr std::size_t kMaxFraming = 4096;

struct Limits {
  ParserLimits head;
  std::size_t max_body = 0;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool only(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

#define FUZZ_ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kTokenChars = FUZZ_ALNUM "!#$%&'*+-.^_`|~";
constexpr std::string_view kTargetChars = FUZZ_ALNUM "-._~!$&'()*+,;=:@/?%";
constexpr std::string_view kIdChars = FUZZ_ALNUM "-._";
#undef FUZZ_ALNUM

/// The second reader. `raw` is exactly the head.
void check_head(std::string_view raw, const Head& head, const RequestView& view,
                const ParserLimits& limits) {
  DOORBUSTER_ENSURE(raw.size() <= limits.max_header_bytes, "the head is within its limit");
  DOORBUSTER_ENSURE(raw.find("\r\n\r\n") + 4 == raw.size(), "the first empty line ends the head");
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const auto byte = static_cast<unsigned char>(raw[i]);
    if (raw[i] == '\r') DOORBUSTER_ENSURE(raw[i + 1] == '\n', "no bare CR");
    if (raw[i] == '\n') DOORBUSTER_ENSURE(i > 0 && raw[i - 1] == '\r', "no bare LF");
    DOORBUSTER_ENSURE(
        (byte >= 0x20 && byte != 0x7F) || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n',
        "no control characters");
  }

  std::string_view rest = raw.substr(0, raw.size() - 2);
  std::string_view line = take_until(rest, "\r\n");
  DOORBUSTER_ENSURE(take_until(line, " ") == http::to_string(view.method), "the method is as sent");
  DOORBUSTER_ENSURE(take_until(line, " ") == view.target, "the target is as sent");
  DOORBUSTER_ENSURE(line == (head.version_1_0 ? "HTTP/1.0" : "HTTP/1.1"), "the version is as sent");
  DOORBUSTER_ENSURE(view.target.starts_with('/') && only(view.target, kTargetChars),
                    "the target is a path");
  DOORBUSTER_ENSURE(view.target.size() <= limits.max_target_bytes, "the target is within limits");
  std::string joined(view.path);
  if (view.target.find('?') != std::string_view::npos) joined.append("?").append(view.query);
  DOORBUSTER_ENSURE(joined == view.target, "path and query are the target");
  DOORBUSTER_ENSURE(view.path.find('?') == std::string_view::npos, "the first '?' ends the path");

  std::map<std::string, std::vector<std::string_view>> headers;
  std::size_t count = 0;
  while (!rest.empty()) {
    line = take_until(rest, "\r\n");
    const std::size_t colon = line.find(':');
    DOORBUSTER_ENSURE(colon != std::string_view::npos && colon > 0, "a header has a name");
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    DOORBUSTER_ENSURE(only(name, kTokenChars), "no folded line, no blank in a name");
    DOORBUSTER_ENSURE(count < view.header_count && view.headers[count].first == name &&
                          view.headers[count].second == value,
                      "each header is there, in order");
    headers[lower(name)].push_back(value);
    ++count;
  }
  DOORBUSTER_ENSURE(count == view.header_count && count <= RequestView::kMaxHeaders,
                    "no header but those that were sent");

  const auto values = [&headers](const char* name) {
    const auto found = headers.find(name);
    return found == headers.end() ? std::vector<std::string_view>{} : found->second;
  };
  const auto once = [&](const char* name) {
    const auto all = values(name);
    DOORBUSTER_ENSURE(all.size() <= 1, "what may come once came once");
    if (!all.empty()) DOORBUSTER_ENSURE(view.header(name) == all[0], "found by its name");
    return all.empty() ? std::string_view{} : all[0];
  };
  DOORBUSTER_ENSURE(values("host").size() == 1 && !once("host").empty(), "exactly one Host");
  DOORBUSTER_ENSURE(once("authorization") == view.authorization, "as sent");
  DOORBUSTER_ENSURE(once("idempotency-key") == view.idempotency_key, "as sent");
  DOORBUSTER_ENSURE(once("content-type") == view.content_type, "as sent");

  const auto lengths = values("content-length");
  const auto codings = values("transfer-encoding");
  DOORBUSTER_ENSURE(lengths.size() + codings.size() <= 1, "one statement of the body's length");
  DOORBUSTER_ENSURE(head.chunked == !codings.empty(), "chunked when said so");
  if (head.chunked) {
    DOORBUSTER_ENSURE(codings[0] == "chunked" && !head.version_1_0, "exactly chunked, in 1.1");
  }
  if (!lengths.empty()) {
    DOORBUSTER_ENSURE(only(lengths[0], kDigits) && lengths[0].size() <= 18, "a plain number");
    DOORBUSTER_ENSURE(std::to_string(head.content_length) == lengths[0],
                      "the number that was sent");
  } else {
    DOORBUSTER_ENSURE(head.content_length == 0, "no length, no body");
  }

  const std::string_view expectation = once("expect");
  DOORBUSTER_ENSURE(expectation.empty() || lower(expectation) == "100-continue", "known");
  DOORBUSTER_ENSURE(head.expect_continue == (!expectation.empty() && !head.version_1_0), "as sent");
  bool keep_alive = !head.version_1_0;
  for (std::string_view list : values("connection")) {
    while (!list.empty()) {
      if (lower(trimmed(take_until(list, ","))) == "close") keep_alive = false;
    }
  }
  DOORBUSTER_ENSURE(view.keep_alive == keep_alive, "closed when either side says so");

  const auto ids = values("x-request-id");
  const bool usable =
      ids.size() == 1 && !ids[0].empty() && ids[0].size() <= 64 && only(ids[0], kIdChars);
  DOORBUSTER_ENSURE(view.request_id == (usable ? ids[0] : std::string_view{}), "taken over or not");
  const auto traces = values("traceparent");
  DOORBUSTER_ENSURE(
      view.traceparent.empty() ||
          (traces.size() == 1 && traces[0] == view.traceparent && view.traceparent.size() >= 55 &&
           only(view.traceparent.substr(0, 55), "0123456789abcdef-")),
      "one and well-formed, or none");
}

/// The second reader of a whole chunked body.
std::string check_chunks(std::string_view raw) {
  std::string decoded;
  while (true) {
    const std::string number(take_until(raw, "\r\n"));
    DOORBUSTER_ENSURE(!number.empty() && only(number, "0123456789abcdefABCDEF"),
                      "a chunk's size is hexadecimal, without extension");
    DOORBUSTER_ENSURE(number == "0" || number[0] != '0', "no leading zeros");
    const std::size_t size = std::stoull(number, nullptr, 16);
    DOORBUSTER_ENSURE(raw.size() >= size + 2 && raw.substr(size, 2) == "\r\n",
                      "a chunk ends with its line");
    decoded.append(raw.substr(0, size));
    raw.remove_prefix(size + 2);
    if (size == 0) break;
  }
  DOORBUSTER_ENSURE(raw.empty(), "the last chunk ends the body");
  return decoded;
}

/// Everything that a handler could see of a request, as one comparable text.
std::string summary(const Head& head, const RequestView& view, std::string_view body) {
  std::string text = std::to_string(head.bytes) + ' ' + std::to_string(head.content_length) +
                     (head.chunked ? 'c' : '-') + (head.expect_continue ? 'e' : '-') +
                     (view.keep_alive ? 'k' : '-') + std::to_string(static_cast<int>(view.method)) +
                     std::to_string(static_cast<int>(view.language));
  for (const std::string_view field :
       {view.target, view.path, view.query, view.request_id, view.authorization,
        view.idempotency_key, view.content_type, view.traceparent, body}) {
    text.append("\n").append(field);
  }
  for (std::size_t i = 0; i < view.header_count; ++i) {
    text.append("\n").append(view.headers[i].first).append("=").append(view.headers[i].second);
  }
  return text;
}

/// The copy that a handler gets says the same, and needs nothing of the connection's bytes.
http::Request copy_of(RequestView view, std::string_view body) {
  static NoExecutor nowhere;
  view.body = body;
  return {view, nowhere, "192.0.2.1"};
}

void check_copy(const http::Request& copy, const RequestView& view, std::string_view body) {
  DOORBUSTER_ENSURE(copy.method() == view.method && copy.path() == view.path &&
                        copy.body() == body && copy.request_id() == view.request_id &&
                        copy.authorization() == view.authorization &&
                        copy.idempotency_key() == view.idempotency_key &&
                        copy.content_type() == view.content_type &&
                        copy.traceparent() == view.traceparent && copy.language() == view.language,
                    "a copy says the same");
}

struct Request {
  std::string bytes;    ///< as they came
  std::string summary;  ///< what they mean
};

struct Outcome {
  std::vector<Request> requests;
  std::string end;  ///< "more", or why the rest was refused

  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.end == b.end && std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(),
                                        b.requests.end(), [](const Request& x, const Request& y) {
                                          return x.bytes == y.bytes && x.summary == y.summary;
                                        });
  }
};

/// What server.cpp does with a connection's bytes, without its sockets.
class Connection {
 public:
  explicit Connection(const Limits& limits) : limits_(limits) {}

  /// False when the connection is closed: what comes now is not read any more.
  bool take(std::string_view piece) {
    unread_.append(piece);
    while (outcome_.end.empty() && take_one()) {
    }
    return outcome_.end.empty();
  }

  Outcome finish() {
    if (outcome_.end.empty()) outcome_.end = "more";
    return std::move(outcome_);
  }

 private:
  bool take_one() {
    const Exact bytes(unread_);
    RequestView view;
    const Head head = http::parse_head(bytes.view(), limits_.head, view);
    if (head.state == ParseState::kNeedMore) {
      DOORBUSTER_ENSURE(unread_.size() < limits_.head.max_header_bytes, "no head without an end");
      return false;
    }
    if (head.state == ParseState::kRefused) {
      constexpr std::array kStatuses{400, 413, 414, 417, 431, 501, 505};
      DOORBUSTER_ENSURE(
          std::find(kStatuses.begin(), kStatuses.end(), head.status) != kStatuses.end() &&
              !head.reason.empty(),
          "a refusal has a known status and a reason");
      outcome_.end = std::to_string(head.status) + ' ' + std::string(head.reason);
      return false;
    }
    check_head(bytes.view().substr(0, head.bytes), head, view, limits_.head);
    if (head.content_length > limits_.max_body) {
      outcome_.end = "413";
      return false;
    }
    const Exact rest(bytes.view().substr(head.bytes));
    std::string_view body;
    std::size_t body_bytes = head.content_length;
    if (head.chunked) {
      http::parse_chunked(rest.view(), limits_.max_body, chunks_, decoded_);
      DOORBUSTER_ENSURE(decoded_.size() == chunks_.size && chunks_.size <= limits_.max_body,
                        "a decoded body is within its limit");
      DOORBUSTER_ENSURE(chunks_.consumed <= rest.view().size(), "only what is there is read");
      if (chunks_.state == ParseState::kRefused) {
        outcome_.end = chunks_.too_large ? "413 chunks" : "400 chunks";
        return false;
      }
      DOORBUSTER_ENSURE(chunks_.consumed - chunks_.size <= limits_.max_body + kMaxFraming,
                        "framing is bounded");
      if (chunks_.state == ParseState::kNeedMore) return false;
      body_bytes = chunks_.consumed;
      body = decoded_;
      DOORBUSTER_ENSURE(check_chunks(rest.view().substr(0, body_bytes)) == decoded_,
                        "both readers find the same body");
    } else {
      if (rest.view().size() < head.content_length) return false;
      body = rest.view().substr(0, head.content_length);
    }
    const std::size_t size = head.bytes + body_bytes;
    check_copy(copy_of(view, body), view, body);
    outcome_.requests.push_back({unread_.substr(0, size), summary(head, view, body)});
    unread_.erase(0, size);
    chunks_ = {};
    decoded_.clear();
    return true;
  }

  const Limits& limits_;
  std::string unread_;
  http::ChunkedBody chunks_;
  std::string decoded_;
  Outcome outcome_;
};

/// `cuts` rise.
Outcome read(std::string_view bytes, const std::vector<std::size_t>& cuts, const Limits& limits) {
  Connection connection(limits);
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    if (!connection.take(bytes.substr(at, cut - at))) return connection.finish();
    at = cut;
  }
  connection.take(bytes.substr(at));
  return connection.finish();
}

void check_one(const Request& request, std::size_t cut, const Limits& limits) {
  const Outcome alone = read(request.bytes, {}, limits);
  DOORBUSTER_ENSURE(alone.requests.size() == 1 && alone.requests[0].summary == request.summary &&
                        alone.end == "more",
                    "a request means the same alone");
  const std::size_t size = request.bytes.size();
  const Outcome twice = read(request.bytes + request.bytes, {size + cut % size}, limits);
  DOORBUSTER_ENSURE(twice.requests.size() == 2 && twice.requests[0].summary == request.summary &&
                        twice.requests[1].summary == request.summary && twice.end == "more",
                    "a request that is sent twice comes twice");
  const Outcome early = read(std::string_view(request.bytes).substr(0, cut % size), {}, limits);
  DOORBUSTER_ENSURE(early.requests.empty() && early.end == "more",
                    "the beginning of a request decides nothing");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  constexpr std::array<Limits, 4> kLimits{
      Limits{{.max_header_bytes = 8192, .max_target_bytes = 2048}, 16 * 1024},
      Limits{{.max_header_bytes = 200, .max_target_bytes = 40}, 64},
      Limits{{.max_header_bytes = 1024, .max_target_bytes = 256}, 5},
      Limits{{.max_header_bytes = 100, .max_target_bytes = 20}, 0}};
  const Limits& limits = kLimits[in.ConsumeIntegralInRange<std::size_t>(0, kLimits.size() - 1)];
  const auto pieces = in.ConsumeIntegralInRange<std::size_t>(2, 5);
  std::vector<std::size_t> places;
  for (std::size_t i = 1; i < pieces; ++i) places.push_back(in.ConsumeIntegral<std::uint16_t>());
  const std::string text = in.ConsumeRemainingBytesAsString();

  const Outcome whole = read(text, {}, limits);
  std::vector<std::size_t> cuts;
  for (const std::size_t place : places) cuts.push_back(place % (text.size() + 1));
  std::sort(cuts.begin(), cuts.end());
  const Outcome cut = read(text, cuts, limits);
  DOORBUSTER_ENSURE(cut == whole, "pieces mean what the whole means");
  for (const Request& request : whole.requests) check_one(request, places[0], limits);
  return 0;
}

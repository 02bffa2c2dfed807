#include "http/parser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace doorbuster::http {
namespace {

using testing::IsEmpty;

constexpr std::string_view kPurchase =
    "POST /api/flash-sales/items/42/purchase?from=app HTTP/1.1\r\n"
    "Host: shop.example:8080\r\n"
    "User-Agent: app/3.1 (phone)\r\n"
    "Accept-Language: ko-KR,ko;q=0.9,en;q=0.8\r\n"
    "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl\r\n"
    "Idempotency-Key: k-1\r\n"
    "Content-Type: application/json\r\n"
    "X-Request-Id: req.1_a-B\r\n"
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
    "Content-Length: 2\r\n"
    "\r\n"
    "{}";

struct Parsed {
  /// What the views point into: a copy of exactly the text's size, so that a sanitizer sees a read
  /// behind it.
  std::shared_ptr<const std::vector<char>> bytes;
  Head head;
  RequestView view;
};

Parsed parse(std::string_view text, ParserLimits limits = {}) {
  Parsed parsed;
  parsed.bytes = std::make_shared<const std::vector<char>>(text.begin(), text.end());
  parsed.head = parse_head({parsed.bytes->data(), parsed.bytes->size()}, limits, parsed.view);
  return parsed;
}

/// A request that is fine but for the lines given.
std::string with(std::string_view lines) {
  return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(lines) + "\r\n";
}

/// 0 when the request is accepted, -1 when more is wanted.
int status_of(std::string_view text, ParserLimits limits = {}) {
  const Head head = parse(text, limits).head;
  if (head.state == ParseState::kNeedMore) return -1;
  return head.status;
}

TEST(ParseHead, TakesARequestApart) {
  const Parsed parsed = parse(kPurchase);
  ASSERT_EQ(parsed.head.state, ParseState::kDone);
  EXPECT_EQ(parsed.head.bytes, kPurchase.size() - 2);
  EXPECT_EQ(parsed.head.content_length, 2U);
  EXPECT_FALSE(parsed.head.chunked);
  EXPECT_FALSE(parsed.head.expect_continue);
  EXPECT_FALSE(parsed.head.version_1_0);
  const RequestView& view = parsed.view;
  EXPECT_EQ(view.method, Method::kPost);
  EXPECT_EQ(view.target, "/api/flash-sales/items/42/purchase?from=app");
  EXPECT_EQ(view.path, "/api/flash-sales/items/42/purchase");
  EXPECT_EQ(view.query, "from=app");
  EXPECT_THAT(view.body, IsEmpty());
  EXPECT_EQ(view.request_id, "req.1_a-B");
  EXPECT_EQ(view.authorization, "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl");
  EXPECT_EQ(view.idempotency_key, "k-1");
  EXPECT_EQ(view.content_type, "application/json");
  EXPECT_EQ(view.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  EXPECT_EQ(view.language, Language::kKorean);
  EXPECT_TRUE(view.keep_alive);
  EXPECT_EQ(view.header_count, 9U);
  EXPECT_EQ(view.header("USER-agent"), "app/3.1 (phone)");
  EXPECT_EQ(view.header("user-agen"), "");
}

TEST(ParseHead, LeavesNothingBehindFromTheRequestBefore) {
  RequestView view;
  ASSERT_EQ(parse_head(kPurchase, {}, view).state, ParseState::kDone);
  view.body = "x";
  ASSERT_EQ(parse_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n", {}, view).state, ParseState::kDone);
  EXPECT_EQ(view.method, Method::kGet);
  EXPECT_EQ(view.header_count, 1U);
  for (const std::string_view field : {view.query, view.body, view.request_id, view.authorization,
                                       view.idempotency_key, view.content_type, view.traceparent}) {
    EXPECT_EQ(field, "");
  }
  EXPECT_EQ(view.language, Language::kEnglish);
}

TEST(ParseHead, StopsAtTheEndOfTheHead) {
  const std::string one = with("");
  EXPECT_EQ(parse(one + one).head.bytes, one.size());
  EXPECT_EQ(parse(one + "\x16 garbage").head.bytes, one.size());
}

/// The whole outcome in one comparable text.
std::string outcome(const Parsed& parsed) {
  std::string text = std::to_string(static_cast<int>(parsed.head.state)) + '/' +
                     std::to_string(parsed.head.status) + '/' + std::string(parsed.head.reason);
  if (parsed.head.state != ParseState::kDone) return text;
  const RequestView& view = parsed.view;
  text += '/' + std::to_string(parsed.head.bytes) + '/' +
          std::to_string(parsed.head.content_length) + (parsed.head.chunked ? "c" : "-") +
          (parsed.head.expect_continue ? "e" : "-") + (view.keep_alive ? "k" : "-") +
          std::to_string(static_cast<int>(view.method)) +
          std::to_string(static_cast<int>(view.language));
  for (const std::string_view field :
       {view.target, view.path, view.query, view.request_id, view.authorization,
        view.idempotency_key, view.content_type, view.traceparent}) {
    text += '|' + std::string(field);
  }
  for (std::size_t i = 0; i < view.header_count; ++i) {
    text += '\n' + std::string(view.headers[i].first) + '=' + std::string(view.headers[i].second);
  }
  return text;
}

/// Feeds the text byte by byte, as slow clients do, and returns the first decision.
std::string outcome_byte_by_byte(std::string_view text, ParserLimits limits) {
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const Parsed parsed = parse(text.substr(0, size), limits);
    if (parsed.head.state != ParseState::kNeedMore || size == text.size()) return outcome(parsed);
  }
  return {};
}

TEST(ParseHead, DecidesTheSameHoweverTheBytesAreCut) {
  for (const std::string& text :
       {std::string(kPurchase), with("Transfer-Encoding: chunked\r\n"), with(" folded\r\n"),
        with("A : b\r\n"), with("A: b\n"), with("Content-Length: +5\r\n"),
        std::string("GET / HTTP/2.0\r\n\r\n"), std::string("BREW / HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01"),
        std::string("GET /%zz HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n\r\n")}) {
    EXPECT_EQ(outcome_byte_by_byte(text, {}), outcome(parse(text))) << text;
  }
}

// Requests put together from good and bad pieces, with small limits, so that every refusal is met.
TEST(ParseHead, DecidesTheSameHoweverTheBytesAreCutForAnyMixture) {
  const std::vector<std::string> lines{"GET / HTTP/1.1\r\n",
                                       "POST /a/b?c=d HTTP/1.1\r\n",
                                       "PUT /a HTTP/1.0\r\n",
                                       "Host: a\r\n",
                                       "host: [::1]:80\r\n",
                                       "Content-Length: 5\r\n",
                                       "Transfer-Encoding: chunked\r\n",
                                       "Connection: close\r\n",
                                       "X: \t y z \t\r\n",
                                       "Empty:\r\n",
                                       "\r\n",
                                       " folded\r\n",
                                       "Bad : x\r\n",
                                       "Bare: lf\n",
                                       "Odd: \r\r\n",
                                       "Bell: \a\r\n",
                                       "Bytes: \xC3\xA9\xFF\r\n",
                                       "Expect: 100-continue\r\n",
                                       "Expect: else\r\n",
                                       ": nameless\r\n",
                                       "No colon\r\n",
                                       "A-long-one: 0123456789012345678901234567890123456789\r\n"};
  EXPECT_TRUE(rc::check("byte by byte is the same as at once", [&] {
    std::string text = *rc::gen::elementOf(std::vector<std::string>{lines[0], lines[1], lines[2]});
    if (*rc::gen::arbitrary<bool>()) text += lines[3];
    for (const std::size_t at : *rc::gen::container<std::vector<std::size_t>>(
             rc::gen::inRange<std::size_t>(0, lines.size()))) {
      text += lines[at];
    }
    if (*rc::gen::arbitrary<bool>()) text += "\r\n";
    if (*rc::gen::inRange(0, 4) == 0 && !text.empty()) {
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
    }
    const ParserLimits limits{.max_header_bytes = *rc::gen::inRange<std::size_t>(1, 400),
                              .max_target_bytes = *rc::gen::inRange<std::size_t>(1, 20)};
    RC_ASSERT(outcome_byte_by_byte(text, limits) == outcome(parse(text, limits)));
  }));
}

TEST(ParseHead, SurvivesAnyBytes) {
  EXPECT_TRUE(rc::check("never reads behind the end", [](const std::vector<char>& bytes) {
    const Head head = parse({bytes.data(), bytes.size()}).head;
    RC_ASSERT(head.state != ParseState::kDone || head.bytes <= bytes.size());
  }));
}

TEST(ParseHead, KnowsSevenMethodsAndNoOther) {
  const std::vector<std::pair<std::string, Method>> known{
      {"GET", Method::kGet},        {"HEAD", Method::kHead},   {"POST", Method::kPost},
      {"PUT", Method::kPut},        {"PATCH", Method::kPatch}, {"DELETE", Method::kDelete},
      {"OPTIONS", Method::kOptions}};
  for (const auto& [name, method] : known) {
    const Parsed parsed = parse(name + " / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(parsed.head.state, ParseState::kDone) << name;
    EXPECT_EQ(parsed.view.method, method);
    EXPECT_EQ(to_string(method), name);
  }
  for (const std::string name : {"get", "Get", "TRACE", "CONNECT", "PRI", "GETT", "BREW"}) {
    EXPECT_EQ(status_of(name + " / HTTP/1.1\r\nHost: a\r\n\r\n"), 501) << name;
  }
  // Without waiting for the end of a word that nobody can mean.
  EXPECT_EQ(status_of("ABCDEFGHIJKLMNOP"), -1);
  EXPECT_EQ(status_of("ABCDEFGHIJKLMNOPQ"), 501);
}

TEST(ParseHead, RefusesBrokenRequestLines) {
  for (const std::string_view text :
       {" GET / HTTP/1.1\r\n", "\r\nGET / HTTP/1.1\r\n", "GET  / HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n", "GET / HTTP/1.1 \r\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\r",
        "GET /\r\n", "GET / \r\n", "GET / http/1.1\r\n", "GET / HTTP/1,1\r\n",
        "GET / HTTP/1.10\r\n", "GET / HTTP/11\r\n", "GET /  HTTP/1.1\r\n", "GET /a b HTTP/1.1\r\n",
        "G\x01T / HTTP/1.1\r\n", "\x16\x03\x01\x02"}) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(ParseHead, SpeaksTwoVersions) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
  const Parsed old = parse("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.head.state, ParseState::kDone);
  EXPECT_TRUE(old.head.version_1_0);
  EXPECT_FALSE(old.view.keep_alive) << "always closed: the simplest thing that is right";
  for (const std::string_view version : {"0.9", "1.2", "2.0", "3.0", "9.9"}) {
    EXPECT_EQ(status_of("GET / HTTP/" + std::string(version) + "\r\nHost: a\r\n\r\n"), 505)
        << version;
  }
}

TEST(ParseHead, WantsATargetThatIsAPath) {
  for (const std::string_view target : {"*", "http://a/", "a", "?a", "a:443"}) {
    EXPECT_EQ(status_of("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400)
        << target;
  }
  // What RFC 3986 does not allow, browsers encode; a fragment is never sent.
  for (const std::string_view target : {"/a#b", "/a\"b", "/a<b", "/a\\b", "/a^b", "/a`b", "/a{b}",
                                        "/a|b", "/a[b]", "/\xC3\xA9", "/a\x7F", "/a\tb"}) {
    EXPECT_EQ(status_of("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400)
        << target;
  }
  const Parsed odd = parse("GET //a/../b;c=d/%C3%A9?x=1?y&z=%2F HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(odd.view.path, "//a/../b;c=d/%C3%A9");
  EXPECT_EQ(odd.view.query, "x=1?y&z=%2F");
  EXPECT_EQ(parse("GET /? HTTP/1.1\r\nHost: a\r\n\r\n").view.query, "");
}

TEST(ParseHead, RefusesWhatTwoServersCouldReadDifferently) {
  const std::vector<std::string> lines{
      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
      "Content-Length: 5\r\nContent-Length: 5\r\n",
      "Content-Length: 5\r\ncontent-length: 6\r\n",
      "Content-Length: 5, 5\r\n",
      "Content-Length: +5\r\n",
      "Content-Length: -5\r\n",
      "Content-Length: 0x5\r\n",
      "Content-Length: 5 5\r\n",
      "Content-Length: 5.0\r\n",
      "Content-Length: 05\r\n",
      "Content-Length:\r\n",
      "Content-Length: \xEF\xBC\x95\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: Chunked\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: chunked, identity\r\n",
      "Transfer-Encoding: identity\r\n",
      "Transfer-Encoding: xchunked\r\n",
      "Transfer-Encoding: \vchunked\r\n",
      "Transfer-Encoding:\r\n",
      "Transfer-Encoding : chunked\r\n",
      "Content-Length : 5\r\n",
      "Content-Length\t: 5\r\n",
      " Content-Length: 5\r\n",
      "X: a\r\n b\r\n",
      "X: a\r\n\tb\r\n",
      "X: a\n",
      "X: a\rY: b\r\n",
      "X: a\r\r\n",
      std::string("X: a\0b\r\n", 8),
      "X: a\x7F\r\n",
      "X: a\x1B[2J\r\n",
      "X\x01: a\r\n",
      "X(y): a\r\n",
      "X\xC3\xA9: a\r\n",
      ": a\r\n",
      "X\r\n",
      "Host: a\r\n",
      "HOST: b\r\n",
      "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
      "Idempotency-Key: a\r\nIdempotency-Key: b\r\n",
      "Content-Type: application/json\r\nContent-Type: text/plain\r\n"};
  for (const std::string& line : lines) EXPECT_EQ(status_of(with(line)), 400) << line;

  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  for (const std::string_view host : {"", " ", "a b", "a/b", "a@b", "a,b", "a\\b", "\xC3\xA9"}) {
    const bool fine = host == "a,b";  // a sub-delimiter is allowed in a registered name
    EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"),
              fine ? 0 : 400)
        << host;
  }
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(ParseHead, AcceptsThePlainFormsOfLengths) {
  EXPECT_EQ(parse(with("Content-Length: 0\r\n")).head.content_length, 0U);
  EXPECT_EQ(parse(with("content-LENGTH:12 \t\r\n")).head.content_length, 12U);
  EXPECT_EQ(parse(with("Content-Length: 999999999999999999\r\n")).head.content_length,
            999'999'999'999'999'999U);
  EXPECT_EQ(status_of(with("Content-Length: 1000000000000000000\r\n")), 413);
  EXPECT_EQ(status_of(with("Content-Length: 18446744073709551621\r\n")), 413) << "5 + 2^64";
  EXPECT_TRUE(parse(with("transfer-encoding:chunked\r\n")).head.chunked);
}

TEST(ParseHead, TrimsValuesAndKeepsTheirInside) {
  const Parsed parsed = parse(with("A:b\r\nC: \t d \t e\xC3\xA9 \t \r\nEmpty: \t\r\n"));
  ASSERT_EQ(parsed.head.state, ParseState::kDone);
  EXPECT_EQ(parsed.view.header("a"), "b");
  EXPECT_EQ(parsed.view.header("c"), "d \t e\xC3\xA9");
  EXPECT_EQ(parsed.view.headers[3].second, "");
}

TEST(ParseHead, ReadsWhoWantsToGoOn) {
  const auto keeps = [](std::string_view line) { return parse(with(line)).view.keep_alive; };
  EXPECT_TRUE(keeps(""));
  EXPECT_TRUE(keeps("Connection: keep-alive\r\n"));
  EXPECT_TRUE(keeps("Connection: closed\r\n"));
  EXPECT_FALSE(keeps("Connection: close\r\n"));
  EXPECT_FALSE(keeps("Connection: keep-alive , CLOSE\r\n"));
  EXPECT_FALSE(keeps("Connection: x\r\nConnection: close\r\n"));
}

TEST(ParseHead, UnderstandsOneExpectation) {
  EXPECT_TRUE(parse(with("Expect: 100-Continue\r\n")).head.expect_continue);
  EXPECT_EQ(status_of(with("Expect: 200-ok\r\n")), 417);
  const Parsed old = parse("GET / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(old.head.state, ParseState::kDone);
  EXPECT_FALSE(old.head.expect_continue);
}

TEST(ParseHead, TakesOverUsableRequestIdsOnly) {
  const auto id = [](const std::string& value) {
    return std::string(parse(with("X-Request-Id: " + value + "\r\n")).view.request_id);
  };
  EXPECT_EQ(id("a"), "a");
  EXPECT_EQ(id(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(id(std::string(65, 'x')), "");
  EXPECT_EQ(id("a b"), "");
  EXPECT_EQ(id("a/b"), "");
  EXPECT_EQ(id("\xC3\xA9"), "");
  EXPECT_EQ(parse(with("X-Request-Id: a\r\nX-Request-Id: b\r\n")).view.request_id, "");
}

TEST(ParseHead, TakesOverWellFormedTraceContextOnly) {
  const auto trace = [](const std::string& value) {
    return std::string(parse(with("traceparent: " + value + "\r\n")).view.traceparent);
  };
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(trace(good), good);
  EXPECT_EQ(trace("cc" + good.substr(2) + "-more"), "cc" + good.substr(2) + "-more");
  EXPECT_EQ(trace("cc" + good.substr(2)), "cc" + good.substr(2));
  EXPECT_EQ(trace(good + "-more"), "") << "version 00 has nothing more";
  EXPECT_EQ(trace("cc" + good.substr(2) + "more"), "");
  EXPECT_EQ(trace("ff" + good.substr(2)), "");
  EXPECT_EQ(trace("00-00000000000000000000000000000000-b7ad6b7169203331-01"), "");
  EXPECT_EQ(trace("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"), "");
  EXPECT_EQ(trace("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), "");
  EXPECT_EQ(trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"), "");
  EXPECT_EQ(
      parse(with("traceparent: " + good + "\r\ntraceparent: " + good + "\r\n")).view.traceparent,
      "");
}

TEST(ParseHead, ChoosesTheLanguage) {
  const auto language = [](const std::string& value) {
    return parse(with("Accept-Language: " + value + "\r\n")).view.language;
  };
  for (const std::string korean :
       {"ko", "ko-KR", "KO", "ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", "en;q=0.5, ko;q=0.501", "ko,en",
        "fr, ko;q=0.1", "en;q=0, ko;q=0.001", "ko;q=1.000, en;q=0.9"}) {
    EXPECT_EQ(language(korean), Language::kKorean) << korean;
  }
  for (const std::string english : {"en", "en-US,en;q=0.9,ko;q=0.8", "fr", "*", "", "kok", "en,ko",
                                    "ko;q=0", "ko;q=0.0, en;q=0", "ko;q=2", "ko;q=0.1234", "ko;x=1",
                                    "ko;q=", "ko;q=0.5, en;q=0.5001, en;q=0.6", ",,;;,"}) {
    EXPECT_EQ(language(english), Language::kEnglish) << english;
  }
}

TEST(ParseHead, RefusesLongTargetsAtTheLimit) {
  const ParserLimits limits{.max_header_bytes = 200, .max_target_bytes = 20};
  const auto of_size = [](std::size_t size) {
    return "GET /" + std::string(size - 1, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  EXPECT_EQ(status_of(of_size(19), limits), 0);
  EXPECT_EQ(status_of(of_size(20), limits), 0);
  EXPECT_EQ(status_of(of_size(21), limits), 414);
  EXPECT_EQ(status_of("GET /" + std::string(19, 'a'), limits), -1);
  EXPECT_EQ(status_of("GET /" + std::string(20, 'a'), limits), 414);
}

TEST(ParseHead, RefusesLargeHeadsAtTheLimit) {
  const ParserLimits limits{.max_header_bytes = 200, .max_target_bytes = 100};
  const std::size_t empty = with("X: \r\n").size();
  const auto of_size = [empty](std::size_t size) {
    return with("X: " + std::string(size - empty, 'a') + "\r\n");
  };
  for (const std::size_t fine : {199U, 200U}) {
    EXPECT_EQ(parse(of_size(fine), limits).head.bytes, fine);
    EXPECT_EQ(parse(of_size(fine) + std::string(500, 'b'), limits).head.bytes, fine)
        << "a body is no part of it";
  }
  EXPECT_EQ(status_of(of_size(201), limits), 431);
  EXPECT_EQ(status_of(of_size(300).substr(0, 199), limits), -1);
  EXPECT_EQ(status_of(of_size(300).substr(0, 200), limits), 431);
}

TEST(ParseHead, RefusesMoreHeadersThanItKeeps) {
  std::string lines;
  for (std::size_t i = 1; i < RequestView::kMaxHeaders; ++i) lines += "a: b\r\n";
  EXPECT_EQ(parse(with(lines)).view.header_count, RequestView::kMaxHeaders);
  EXPECT_EQ(status_of(with(lines + "a: b\r\n")), 431);
}

// --- chunked bodies ---

struct Decoded {
  ChunkedBody body;
  std::string text;
};

Decoded decode(std::string_view raw, std::size_t max_body = 100) {
  Decoded decoded;
  parse_chunked(raw, max_body, decoded.body, decoded.text);
  return decoded;
}

TEST(ParseChunked, PutsTheChunksTogether) {
  const std::string raw = "5\r\nhello\r\nA\r\n, it is me\r\n0\r\n\r\n";
  const Decoded decoded = decode(raw + "GET / HTTP/1.1\r\n");
  EXPECT_EQ(decoded.body.state, ParseState::kDone);
  EXPECT_EQ(decoded.text, "hello, it is me");
  EXPECT_EQ(decoded.body.size, 15U);
  EXPECT_EQ(decoded.body.consumed, raw.size()) << "the next request stays";
  EXPECT_EQ(decode("0\r\n\r\n").body.state, ParseState::kDone);
}

TEST(ParseChunked, DecidesTheSameHoweverTheBytesAreCut) {
  for (const std::string raw :
       {"3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\nGET", "3\r\nabcd\r\n0\r\n\r\n",
        "3;x=y\r\nabc\r\n", "5\r\nab", "0\r\nTrailer: x\r\n\r\n", "65\r\n"}) {
    const Decoded at_once = decode(raw);
    Decoded slowly;
    for (std::size_t size = 0; size <= raw.size(); ++size) {
      const std::vector<char> piece(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(size));
      parse_chunked({piece.data(), piece.size()}, 100, slowly.body, slowly.text);
      if (slowly.body.state != ParseState::kNeedMore) break;
    }
    EXPECT_EQ(slowly.body.state, at_once.body.state) << raw;
    EXPECT_EQ(slowly.body.too_large, at_once.body.too_large) << raw;
    EXPECT_EQ(slowly.body.consumed, at_once.body.consumed) << raw;
    EXPECT_EQ(slowly.text, at_once.text) << raw;
  }
}

TEST(ParseChunked, RefusesWhatTwoServersCouldReadDifferently) {
  for (const std::string_view raw :
       {"3;x=y\r\nabc\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n", " 3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "03\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "g\r\n", "\r\n",
        "-1\r\n", "00\r\n\r\n", "0\r\nA: b\r\n\r\n", "3\r\nabc\r\n0\r\nX: y\r\n\r\n", "0\r\n\n",
        "123456789\r\n", "3\rabc"}) {
    const ChunkedBody body = decode(raw).body;
    EXPECT_EQ(body.state, ParseState::kRefused) << raw;
    EXPECT_FALSE(body.too_large) << raw;
  }
}

TEST(ParseChunked, RefusesLargeBodiesAtTheLimitWithoutWaitingForThem) {
  EXPECT_EQ(decode("63\r\n").body.state, ParseState::kNeedMore);
  EXPECT_EQ(decode("64\r\n").body.state, ParseState::kNeedMore);
  EXPECT_EQ(decode("65\r\n").body.state, ParseState::kRefused);
  EXPECT_TRUE(decode("65\r\n").body.too_large);
  EXPECT_TRUE(decode("ffffffff\r\n").body.too_large);
  const std::string full = "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(decode(full + "0\r\n\r\n").body.state, ParseState::kDone);
  EXPECT_TRUE(decode(full + "1\r\n").body.too_large);
}

TEST(ParseChunked, RefusesMoreFramingThanBody) {
  // One byte a chunk: 5 bytes of framing for each.
  const auto bytes = [](std::size_t count) {
    std::string raw;
    for (std::size_t i = 0; i < count; ++i) raw += "1\r\nx\r\n";
    return raw;
  };
  constexpr std::size_t kLimit = 2000;
  constexpr std::size_t kFraming = kLimit + 4096;
  EXPECT_EQ(decode(bytes(kFraming / 5), kLimit).body.state, ParseState::kNeedMore);
  const ChunkedBody body = decode(bytes(kFraming / 5 + 1), kLimit).body;
  EXPECT_EQ(body.state, ParseState::kRefused);
  EXPECT_TRUE(body.too_large);
}

TEST(ParseChunked, GivesBackAnyBodyHoweverItIsCut) {
  EXPECT_TRUE(rc::check("decode(encode(x)) == x", [](const std::vector<std::string>& pieces) {
    std::string raw;
    std::string whole;
    for (const std::string& piece : pieces) {
      if (piece.empty()) continue;
      constexpr std::string_view kHex = "0123456789abcdef";
      std::string size;
      for (std::size_t rest = piece.size(); rest > 0; rest /= 16)
        size.insert(0, 1, kHex[rest % 16]);
      raw += size + "\r\n" + piece + "\r\n";
      whole += piece;
    }
    raw += "0\r\n\r\n";
    Decoded decoded;
    const std::size_t cut = *rc::gen::inRange<std::size_t>(0, raw.size() + 1);
    parse_chunked(std::string_view(raw).substr(0, cut), 1'000'000, decoded.body, decoded.text);
    RC_ASSERT((decoded.body.state == ParseState::kDone) == (cut == raw.size()));
    if (cut < raw.size()) parse_chunked(raw, 1'000'000, decoded.body, decoded.text);
    RC_ASSERT(decoded.body.state == ParseState::kDone);
    RC_ASSERT(decoded.text == whole);
    RC_ASSERT(decoded.body.consumed == raw.size());
  }));
}

}  // namespace
}  // namespace doorbuster::http

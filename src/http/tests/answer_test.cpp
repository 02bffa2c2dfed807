#include "http/answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "http/router.hpp"

namespace {
// Counted for the whole test program; read by the tests that promise "no allocation".
thread_local std::size_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: g++ would see a free() for what it believes to come from the built-in operator, and
// warn.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace doorbuster::http {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kDate = "Mon, 30 Nov 2026 01:02:03 GMT";

TEST(HttpDate, IsTheFixedForm) {
  const auto at = [](std::string_view text) { return http_date(*common::parse_rfc3339(text)); };
  EXPECT_EQ(at("2026-11-30T01:02:03Z"), kDate);
  EXPECT_EQ(at("2026-11-30T01:02:03.999999Z"), kDate);
  EXPECT_EQ(at("1994-11-06T08:49:37Z"), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(at("2028-02-29T23:59:59Z"), "Tue, 29 Feb 2028 23:59:59 GMT");
  EXPECT_EQ(at("1970-01-01T00:00:00Z"), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(AppendAnswer, WritesTheWholeMessage) {
  std::string out = "before";
  append_answer(out, {.status = 201, .body = "{}", .headers = {{"Location", "/a"}}},
                {.date = kDate, .request_id = "id-1"});
  EXPECT_EQ(out,
            "beforeHTTP/1.1 201 Created\r\n"
            "Content-Type: application/json\r\n"
            "Location: /a\r\n"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\n"
            "X-Request-Id: id-1\r\n"
            "Content-Length: 2\r\n"
            "\r\n"
            "{}");
}

TEST(AppendAnswer, LeavesCachingToTheHandlerThatSpeaksOfIt) {
  std::string out;
  append_answer(out, {.headers = {{"cache-control", "public, max-age=1"}}}, {.date = kDate});
  EXPECT_THAT(out, HasSubstr("cache-control: public, max-age=1\r\n"));
  EXPECT_THAT(out, Not(HasSubstr("no-store")));
  EXPECT_THAT(out, Not(HasSubstr("X-Request-Id")));
}

TEST(AppendAnswer, LeavesTheBodyOutForHead) {
  std::string out;
  append_answer(out, {.body = "12345"}, {.date = kDate, .close = true, .head_only = true});
  EXPECT_THAT(out, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(out, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(out.ends_with("\r\n\r\n"));
}

TEST(AppendAnswer, HasNoBodyWhereThereCannotBeOne) {
  for (const int status : {204, 304}) {
    std::string out;
    append_answer(out, {.status = status, .body = "ignored"}, {.date = kDate});
    EXPECT_THAT(out, Not(HasSubstr("Content-Length")));
    EXPECT_THAT(out, Not(HasSubstr("\nContent-Type")));
    EXPECT_TRUE(out.ends_with("\r\n\r\n"));
  }
}

TEST(IsSendable, RefusesWhatWouldBreakTheMessage) {
  EXPECT_TRUE(is_sendable({}));
  EXPECT_TRUE(is_sendable({.headers = {{"X-Thing", "a\tb \xC3\xA9"}}}));
  for (const int status : {0, 100, 199, 600, 999, -1}) {
    EXPECT_FALSE(is_sendable({.status = status})) << status;
  }
  EXPECT_TRUE(is_sendable({.status = 200}));
  EXPECT_TRUE(is_sendable({.status = 599}));
  using Header = std::pair<std::string, std::string>;
  for (const Header& header :
       {Header{"Location", "/a\r\nSet-Cookie: x=y"}, Header{"Location", "/a\n"},
        Header{"Location", std::string("a\0b", 3)}, Header{"A b", "c"}, Header{"A:", "c"},
        Header{"", "c"}, Header{"content-length", "5"}, Header{"Transfer-Encoding", "chunked"},
        Header{"Connection", "close"}, Header{"Date", "now"}, Header{"X-Request-Id", "a"},
        Header{"Content-Type", "a"}}) {
    EXPECT_FALSE(is_sendable({.headers = {header}})) << header.first;
  }
  EXPECT_FALSE(is_sendable({.content_type = "a\r\nb"}));
}

TEST(AppendPrepared, AddsTheServersHeadersToAFastAnswer) {
  std::string out;
  append_prepared(out, "HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\n", "{}",
                  {.date = kDate, .request_id = "r"});
  EXPECT_EQ(
      out,
      "HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\n"
      "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\nX-Request-Id: r\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(AppendChunk, SkipsTheChunkThatWouldEndTheStream) {
  std::string out;
  append_chunk(out, "");
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(RefuseRequest, HasACodeForEachStatus) {
  const auto code = [](int status) {
    const Response response = refuse_request(status, "why", Language::kEnglish);
    EXPECT_EQ(response.status, status);
    EXPECT_THAT(response.body, HasSubstr(R"("message":"why")"));
    const std::size_t begin = response.body.find(R"(:")") + 2;
    return response.body.substr(begin, response.body.find('"', begin) - begin);
  };
  EXPECT_EQ(code(400), "INVALID_REQUEST");
  EXPECT_EQ(code(408), "REQUEST_TIMEOUT");
  EXPECT_EQ(code(413), "PAYLOAD_TOO_LARGE");
  EXPECT_EQ(code(414), "URI_TOO_LONG");
  EXPECT_EQ(code(417), "EXPECTATION_FAILED");
  EXPECT_EQ(code(431), "HEADERS_TOO_LARGE");
  EXPECT_EQ(code(501), "NOT_IMPLEMENTED");
  EXPECT_EQ(code(505), "VERSION_NOT_SUPPORTED");
  EXPECT_THAT(refuse_request(431, {}, Language::kKorean).body,
              HasSubstr("요청 헤더가 너무 큽니다."));
}

/// The whole way of a refused purchase but the sockets: no memory is asked for (ceilings: "no
/// allocation").
TEST(FastPath, AllocatesNothing) {
  Router router;
  router.add({.method = Method::kPost,
              .pattern = "/api/flash-sales/items/{itemId}/purchase",
              .handler = [](Request request) -> common::Task<Response> {
                static_cast<void>(request);
                co_return Response{};
              },
              .fast = {}});
  constexpr std::string_view kRequest =
      "POST /api/flash-sales/items/42/purchase HTTP/1.1\r\nHost: a\r\n"
      "Authorization: Bearer x\r\nAccept-Language: ko\r\nContent-Length: 0\r\n\r\n";
  auto view = std::make_unique<RequestView>();
  std::string out;
  out.reserve(4096);
  std::size_t param_size = 0;
  const std::size_t before = allocations;
  const Head head = parse_head(kRequest, {}, *view);
  {
    const Router::Match match = router.find(view->method, view->path);
    param_size = match.params[0].size();
    append_prepared(out, "HTTP/1.1 410 Gone\r\n", "{}", {.date = kDate, .request_id = "r"});
  }
  const std::size_t after = allocations;
  EXPECT_EQ(after - before, 0U);
  EXPECT_EQ(head.state, ParseState::kDone);
  EXPECT_EQ(param_size, 2U);
  EXPECT_THAT(out, HasSubstr("Content-Length: 2"));
}

}  // namespace
}  // namespace doorbuster::http

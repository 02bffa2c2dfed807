#include "http/router.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock.hpp"

namespace doorbuster::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Runs nothing; requests only need to know their home.
class NoExecutor final : public common::Executor {
 public:
  void post(Function) override { ADD_FAILURE() << "nothing is posted here"; }
  TimerId post_at(common::Steady, Function) override { return 0; }
  void cancel(TimerId) override {}
  bool is_current() const noexcept override { return true; }
  const common::Clock& clock() const noexcept override { return clock_; }

 private:
  common::SystemClock clock_;
};

common::Task<Response> nothing(Request request) {
  static_cast<void>(request);
  co_return Response{};
}

Route route(Method method, std::string pattern) {
  return {.method = method, .pattern = std::move(pattern), .handler = nothing, .fast = {}};
}

/// The pattern that a path leads to, with its parameters: "/a/{x}(1)"; or the status and Allow.
std::string where(const Router& router, Method method, std::string_view path) {
  const Router::Match match = router.find(method, path);
  if (match.route == nullptr) {
    return std::to_string(match.refusal->status) + (match.allow.empty() ? "" : " ") + match.allow;
  }
  EXPECT_EQ(&router.at(match.index), match.route);
  std::string text = match.route->pattern;
  for (std::size_t i = 0; i < match.param_count; ++i) {
    text += '(' + std::string(match.params[i]) + ')';
  }
  return text;
}

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    for (const std::string pattern :
         {"/", "/api/time", "/api/flash-sales", "/api/flash-sales/{saleId}",
          "/api/flash-sales/{saleId}/mine", "/api/flash-sales/orders/{orderId}",
          "/a/{x}/b/{y}/c/{z}/d/{w}"}) {
      router.add(route(Method::kGet, pattern));
    }
    router.add(route(Method::kDelete, "/api/flash-sales/orders/{orderId}"));
    router.add(route(Method::kPost, "/api/flash-sales/items/{itemId}/purchase"));
    router.add(route(Method::kPost, "/api/flash-sales/{saleId}/mine"));
    router.add(route(Method::kHead, "/head-only"));
  }
  Router router;
};

TEST_F(RouterTest, FindsRoutesAndTheirParameters) {
  EXPECT_EQ(where(router, Method::kGet, "/"), "/");
  EXPECT_EQ(where(router, Method::kGet, "/api/time"), "/api/time");
  EXPECT_EQ(where(router, Method::kGet, "/api/flash-sales/7"), "/api/flash-sales/{saleId}(7)");
  EXPECT_EQ(where(router, Method::kPost, "/api/flash-sales/items/42/purchase"),
            "/api/flash-sales/items/{itemId}/purchase(42)");
  EXPECT_EQ(where(router, Method::kGet, "/a/1/b/2/c/3/d/4"),
            "/a/{x}/b/{y}/c/{z}/d/{w}(1)(2)(3)(4)");
  EXPECT_EQ(where(router, Method::kGet, "/api/flash-sales/a%2Fb"),
            "/api/flash-sales/{saleId}(a%2Fb)");
}

TEST_F(RouterTest, PrefersALiteralSegmentAndComesBackWhenItLeadsNowhere) {
  EXPECT_EQ(where(router, Method::kGet, "/api/flash-sales/orders/mine"),
            "/api/flash-sales/orders/{orderId}(mine)");
  EXPECT_EQ(where(router, Method::kGet, "/api/flash-sales/orders"),
            "/api/flash-sales/{saleId}(orders)");
  EXPECT_EQ(where(router, Method::kPost, "/api/flash-sales/orders/mine"),
            "/api/flash-sales/{saleId}/mine(orders)")
      << "the literal one has no POST";
}

TEST_F(RouterTest, RefusesUnknownPaths) {
  for (const std::string_view path :
       {"/api", "/api/", "/api/time/", "//api/time", "/api//time", "/API/time", "/api/tim%65",
        "/api/flash-sales/", "/api/flash-sales//mine", "/api/flash-sales/1/2/3", "/a/1/b/2/c/3/d",
        "/x", ""}) {
    EXPECT_EQ(where(router, Method::kGet, path), "404") << path;
  }
}

TEST_F(RouterTest, NamesTheMethodsOfAKnownPath) {
  EXPECT_EQ(where(router, Method::kPost, "/api/time"), "405 GET, HEAD");
  EXPECT_EQ(where(router, Method::kOptions, "/api/time"), "405 GET, HEAD");
  EXPECT_EQ(where(router, Method::kPut, "/api/flash-sales/orders/5"), "405 GET, HEAD, DELETE");
  EXPECT_EQ(where(router, Method::kPut, "/api/flash-sales/orders/mine"),
            "405 GET, HEAD, POST, DELETE")
      << "of every pattern that matches";
  EXPECT_EQ(where(router, Method::kGet, "/head-only"), "405 HEAD");
}

TEST_F(RouterTest, AnswersHeadWithTheGetRoute) {
  EXPECT_EQ(where(router, Method::kHead, "/api/time"), "/api/time");
  EXPECT_EQ(where(router, Method::kHead, "/head-only"), "/head-only");
  EXPECT_EQ(where(router, Method::kHead, "/api/flash-sales/items/1/purchase"), "405 POST");
}

TEST_F(RouterTest, ListsItsRoutesSorted) {
  Router small;
  small.add(route(Method::kPost, "/b"));
  small.add(route(Method::kGet, "/b"));
  small.add(route(Method::kGet, "/a/{x}"));
  EXPECT_THAT(small.routes(), ElementsAre("GET /a/{x}", "GET /b", "POST /b"));
  EXPECT_EQ(small.size(), 3U);
  EXPECT_EQ(small.at(0).method, Method::kPost);
}

TEST(RouterDeathTest, RefusesRoutesThatAreBugs) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        Router router;
        router.add(route(Method::kGet, "/a/{x}"));
        router.add(route(Method::kGet, "/a/{y}"));
      },
      "two routes match");
  EXPECT_DEATH(
      {
        Router router;
        router.add(route(Method::kGet, "a"));
      },
      "begins with");
  EXPECT_DEATH(
      {
        Router router;
        router.add(route(Method::kGet, "/{a}/{b}/{c}/{d}/{e}"));
      },
      "at most 4");
  EXPECT_DEATH(
      {
        Router router;
        router.add({.method = Method::kGet, .pattern = "/a", .handler = {}, .fast = {}});
      },
      "has a handler");
}

class FillTest : public testing::Test {
 protected:
  FillTest() { router.add(route(Method::kGet, "/s/{name}/t/{other}")); }

  /// The request as a handler would see it, or nothing when fill() refuses.
  std::optional<Request> fill(std::string_view path, std::string_view query = {}) {
    RequestView view;
    view.path = path;
    view.query = query;
    Request request(view, home, "192.0.2.1");
    const Router::Match match = router.find(Method::kGet, path);
    EXPECT_NE(match.route, nullptr) << path;
    if (!Router::fill(request, match)) return std::nullopt;
    return request;
  }

  NoExecutor home;
  Router router;
};

TEST_F(FillTest, DecodesParameters) {
  const auto request = fill("/s/a%20b%2Fc+d/t/%EA%B0%80");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->param("name"), "a b/c+d") << "'+' is a plus in a path";
  EXPECT_EQ(request->param("other"), "\xEA\xB0\x80");
  EXPECT_EQ(request->param("nothing"), "");
}

TEST_F(FillTest, DecodesTheQuery) {
  const auto request = fill("/s/a/t/b", "x=1&y=a+b%2Bc&empty=&flag&%C3%A9=%26%3D&z=a=b");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->query("x"), "1");
  EXPECT_EQ(request->query("y"), "a b+c");
  EXPECT_EQ(request->query("empty"), "");
  EXPECT_EQ(request->query("flag"), "");
  EXPECT_EQ(request->query("\xC3\xA9"), "&=");
  EXPECT_EQ(request->query("z"), "a=b");
  EXPECT_EQ(request->query("w"), std::nullopt);
  EXPECT_THAT(request->query_names(), ElementsAre("x", "y", "empty", "flag", "\xC3\xA9", "z"));
  const auto without = fill("/s/a/t/b");
  ASSERT_TRUE(without);
  EXPECT_THAT(without->query_names(), IsEmpty());
}

TEST_F(FillTest, RefusesWhatCannotBeDecoded) {
  for (const std::string_view bad :
       {"%", "%4", "%zz", "%4g", "a%", "%00", "%FF", "%C3", "%ED%A0%80"}) {
    EXPECT_FALSE(fill("/s/" + std::string(bad) + "/t/b")) << bad;
    EXPECT_FALSE(fill("/s/a/t/b", "x=" + std::string(bad))) << bad;
    EXPECT_FALSE(fill("/s/a/t/b", std::string(bad) + "=x")) << bad;
  }
}

TEST_F(FillTest, RefusesQueriesThatTwoReadersCouldReadDifferently) {
  EXPECT_FALSE(fill("/s/a/t/b", "x=1&x=2"));
  EXPECT_FALSE(fill("/s/a/t/b", "x=1&%78=2"));
  EXPECT_FALSE(fill("/s/a/t/b", "=1"));
  EXPECT_FALSE(fill("/s/a/t/b", "x=1&&y=2"));
  EXPECT_TRUE(fill("/s/a/t/b", "x=1&X=2"));
  EXPECT_TRUE(fill("/s/a/t/b", "x=1&"));
}

TEST_F(FillTest, TakesThirtyTwoQueryParameters) {
  std::string query = "p0=";
  for (int i = 1; i < 32; ++i) query += "&p" + std::to_string(i) + '=';
  const auto request = fill("/s/a/t/b", query);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->query_names().size(), 32U);
  EXPECT_FALSE(fill("/s/a/t/b", query + "&p32="));
}

TEST(Request, KeepsItsOwnCopyOfEverything) {
  NoExecutor home;
  std::string source = "/p?q=1 body id auth key type trace";
  const auto part = [&source](std::string_view text) {
    return std::string_view(source).substr(source.find(text), text.size());
  };
  RequestView view;
  view.method = Method::kPatch;
  view.language = Language::kKorean;
  view.path = part("/p");
  view.query = part("q=1");
  view.body = part("body");
  view.request_id = part("id");
  view.authorization = part("auth");
  view.idempotency_key = part("key");
  view.content_type = part("type");
  view.traceparent = part("trace");
  Request first(view, home, "2001:db8::1");
  source.assign(source.size(), '#');
  const Request request = std::move(first);
  EXPECT_EQ(request.method(), Method::kPatch);
  EXPECT_EQ(request.language(), Language::kKorean);
  EXPECT_EQ(request.path(), "/p");
  EXPECT_EQ(request.body(), "body");
  EXPECT_EQ(request.request_id(), "id");
  EXPECT_EQ(request.authorization(), "auth");
  EXPECT_EQ(request.idempotency_key(), "key");
  EXPECT_EQ(request.content_type(), "type");
  EXPECT_EQ(request.traceparent(), "trace");
  EXPECT_EQ(request.peer(), "2001:db8::1");
  EXPECT_EQ(&request.home(), &home);
}

}  // namespace
}  // namespace doorbuster::http

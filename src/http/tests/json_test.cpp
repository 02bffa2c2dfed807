#include "http/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "http/router.hpp"

namespace doorbuster::http {
namespace {

using testing::HasSubstr;
using testing::Not;

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

NoExecutor home;

Request request_with(std::string_view body, Language language = Language::kEnglish,
                     std::string_view type = "application/json") {
  RequestView view;
  view.method = Method::kPost;
  view.body = body;
  view.content_type = type;
  view.language = language;
  return Request(view, home, "192.0.2.1");
}

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

/// What a handler that wants one integer `n` from 1 to 100 answers to the body; "" when it is
/// content.
std::string integer_answer(std::string_view body) {
  const Request request = request_with(body);
  BodyReader reader(request);
  static_cast<void>(reader.integer("n", 1, 100));
  const auto refusal = reader.finish();
  if (!refusal) return "";
  EXPECT_EQ(refusal->status, 400);
  return refusal->body;
}

TEST(BodyReader, ReadsEachKindOfField) {
  const Request request = request_with(
      R"({"n":-7,"big":9223372036854775807,"t":"가\u00e9\"","yes":true,"no":false,"at":"2026-11-30T10:00:00+09:00"})");
  BodyReader body(request);
  EXPECT_EQ(body.integer("n", -10, 10), -7);
  EXPECT_EQ(body.optional_integer("big", 0, kMax), kMax);
  EXPECT_EQ(body.text("t", 1, 3), "가é\"");
  EXPECT_TRUE(body.boolean("yes", false));
  EXPECT_FALSE(body.boolean("no", true));
  EXPECT_EQ(common::to_rfc3339(body.instant("at")), "2026-11-30T01:00:00Z");
  EXPECT_EQ(body.finish(), std::nullopt);
}

TEST(BodyReader, LeavesAbsentOptionalFieldsOut) {
  const Request request = request_with("");
  BodyReader body(request);
  EXPECT_EQ(body.optional_integer("n", 1, 2), std::nullopt);
  EXPECT_EQ(body.optional_text("t", 1, 2), std::nullopt);
  EXPECT_EQ(body.optional_instant("at"), std::nullopt);
  EXPECT_TRUE(body.boolean("b", true));
  EXPECT_EQ(body.finish(), std::nullopt);
}

TEST(BodyReader, NamesAMissingField) {
  const std::string expected = R"({"error":"INVALID_BODY","message":"n is missing","field":"n"})";
  EXPECT_EQ(integer_answer(""), expected) << "no body counts as {}";
  EXPECT_EQ(integer_answer("{}"), expected);
}

TEST(BodyReader, NamesAFieldThatIsNoIntegerInRange) {
  const std::string expected =
      R"({"error":"INVALID_BODY","message":"n must be an integer from 1 to 100","field":"n"})";
  for (const std::string_view value : {"0",
                                       "-1",
                                       "101",
                                       "1.5",
                                       "1.0",
                                       "1e1",
                                       "1E0",
                                       "\"1\"",
                                       "true",
                                       "null",
                                       "[1]",
                                       "{\"n\":1}",
                                       "2147483648",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "-9223372036854775809",
                                       "1e400",
                                       "-1e400",
                                       "1e-400",
                                       "123456789012345678901234567890"}) {
    EXPECT_EQ(integer_answer("{\"n\":" + std::string(value) + "}"), expected) << value;
  }
  EXPECT_EQ(integer_answer(R"({"n":1})"), "");
  EXPECT_EQ(integer_answer(R"( {"n" : 100} )"), "");
  EXPECT_THAT(integer_answer(R"({"n":1e99999999999})"), HasSubstr(R"("field":"n")"))
      << "a number that even a floating one cannot hold";
}

TEST(BodyReader, HoldsTheWholeRangeOfIntegers) {
  const Request request = request_with(R"({"a":-9223372036854775808,"b":9223372036854775807})");
  BodyReader body(request);
  EXPECT_EQ(body.integer("a", kMin, kMax), kMin);
  EXPECT_EQ(body.integer("b", kMin, kMax), kMax);
  EXPECT_EQ(body.finish(), std::nullopt);
}

TEST(BodyReader, CountsCharactersAtTheLimitsOfText) {
  const auto answer = [](std::string_view value) {
    const Request request = request_with("{\"t\":" + std::string(value) + "}");
    BodyReader body(request);
    static_cast<void>(body.text("t", 2, 3));
    const auto refusal = body.finish();
    return refusal ? refusal->body : "";
  };
  const std::string expected =
      R"({"error":"INVALID_BODY","message":"t must be text of 2 to 3 characters","field":"t"})";
  EXPECT_EQ(answer(R"("가")"), expected);
  EXPECT_EQ(answer(R"("가나")"), "");
  EXPECT_EQ(answer(R"("가나😀")"), "");
  EXPECT_EQ(answer(R"("가나다라")"), expected);
  EXPECT_EQ(answer(R"("a\u0000b")"), expected) << "NUL";
  EXPECT_EQ(answer("12"), expected);
  EXPECT_EQ(answer("null"), expected);
}

TEST(BodyReader, NamesOtherWrongFields) {
  const Request request = request_with(R"({"b":1})");
  BodyReader boolean(request);
  EXPECT_TRUE(boolean.boolean("b", true));
  EXPECT_THAT(boolean.finish()->body, HasSubstr("b must be true or false"));

  for (const std::string_view value :
       {"\"2026-11-30\"", "\"2026-11-30T01:00:00\"", "1700000000", "null", "\"\""}) {
    const Request other = request_with("{\"at\":" + std::string(value) + "}");
    BodyReader body(other);
    EXPECT_EQ(body.instant("at"), common::Instant{});
    EXPECT_THAT(body.finish()->body,
                HasSubstr(R"("at must be an instant such as 2026-11-30T01:00:00Z","field":"at")"));
    BodyReader optional(other);
    EXPECT_EQ(optional.optional_instant("at"), std::nullopt);
    EXPECT_TRUE(optional.finish());
  }
}

TEST(BodyReader, RefusesUnknownFields) {
  EXPECT_EQ(integer_answer(R"({"n":1,"m\"x":2})"),
            R"({"error":"INVALID_BODY","message":"m\"x is not known here","field":"m\"x"})");
  EXPECT_THAT(integer_answer(R"({"n":1,"":2})"), HasSubstr(R"("field":"")"));
  EXPECT_THAT(integer_answer(R"({"N":1})"), HasSubstr("n is missing")) << "case counts";
}

TEST(BodyReader, RefusesAFieldThatComesTwice) {
  EXPECT_EQ(integer_answer(R"({"n":1,"n":2})"),
            R"({"error":"INVALID_BODY","message":"n is there twice","field":"n"})");
  EXPECT_THAT(integer_answer(R"({"n":1,"\u006e":1})"), HasSubstr("twice"));
}

TEST(BodyReader, RefusesABodyThatIsNoJsonObjectWithoutAField) {
  for (const std::string_view body : {"[]",
                                      "1",
                                      "null",
                                      "\"n\"",
                                      "{",
                                      "{\"n\":1",
                                      "{\"n\":1}}",
                                      "{\"n\":1} x",
                                      "{\"n\":1,}",
                                      "{n:1}",
                                      "{'n':1}",
                                      "{\"n\":01}",
                                      "{\"n\":+1}",
                                      "{\"n\":0x1}",
                                      "{\"n\":NaN}",
                                      "{\"n\":.5}",
                                      "// c\n{\"n\":1}",
                                      "\xEF\xBB\xBF{\"n\":1}",
                                      "{\"n\":\"\xFF\"}",
                                      "{\"n\":\"\xED\xA0\x80\"}",
                                      "{\"n\":\"a\nb\"}",
                                      " ",
                                      "[{\"n\":1}]"}) {
    const std::string answer = integer_answer(body);
    EXPECT_THAT(answer, HasSubstr(R"("error":"INVALID_BODY")")) << body;
    EXPECT_THAT(answer, Not(HasSubstr("\"field\""))) << body;
  }
}

TEST(BodyReader, BoundsDepthAndMembers) {
  const auto nested = [](std::size_t depth) {
    return "{\"n\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  // Eight levels are readable, and then the wrong type; nine are not even read.
  EXPECT_THAT(integer_answer(nested(8)), HasSubstr(R"("field":"n")"));
  EXPECT_THAT(integer_answer(nested(9)), Not(HasSubstr("\"field\"")));

  const auto wide = [](std::size_t members) {
    std::string body = "{\"n\":1";
    for (std::size_t i = 1; i < members; ++i) body += ",\"m" + std::to_string(i) + "\":1";
    return body + "}";
  };
  EXPECT_THAT(integer_answer(wide(1000)), HasSubstr("m1 is not known here"));
  EXPECT_THAT(integer_answer(wide(1001)), Not(HasSubstr("\"field\"")));
}

TEST(BodyReader, KeepsTheFirstProblemAndGivesHarmlessValuesAfterIt) {
  const Request request = request_with(R"({"a":0,"b":"x","c":5})");
  BodyReader body(request);
  EXPECT_EQ(body.integer("a", 1, 9), 1);
  EXPECT_EQ(body.integer("b", 3, 9), 3);
  EXPECT_EQ(body.text("c", 1, 2), "");
  body.refuse("c", "is odd");
  EXPECT_THAT(body.finish()->body, HasSubstr(R"("field":"a")"));
  EXPECT_THAT(body.finish()->body, HasSubstr(R"("field":"a")")) << "asking twice is harmless";
}

TEST(BodyReader, RefusesWithTheHandlersOwnWords) {
  const Request request = request_with("{}");
  BodyReader body(request);
  body.refuse("closesAt", "must be after opensAt");
  EXPECT_EQ(
      body.finish()->body,
      R"({"error":"INVALID_BODY","message":"closesAt must be after opensAt","field":"closesAt"})");
}

TEST(BodyReader, SpeaksKorean) {
  const auto answer = [](std::string_view text) {
    const Request request = request_with(text, Language::kKorean);
    BodyReader body(request);
    static_cast<void>(body.integer("n", 1, 100));
    return body.finish()->body;
  };
  EXPECT_EQ(
      answer(R"({"n":0})"),
      R"({"error":"INVALID_BODY","message":"n: 1에서 100까지의 정수여야 합니다","field":"n"})");
  EXPECT_THAT(answer("x"), HasSubstr("본문이 올바른 형식의 JSON 객체가 아닙니다."));
}

TEST(BodyReader, WantsJson) {
  const auto status = [](std::string_view type, std::string_view text = "{}") {
    const Request request = request_with(text, Language::kEnglish, type);
    BodyReader body(request);
    const auto refusal = body.finish();
    return refusal ? refusal->status : 0;
  };
  for (const std::string_view fine :
       {"application/json", "Application/JSON", "application/json;charset=utf-8",
        "application/json; charset=\"UTF-8\"", "application/json ; x=y", ""}) {
    EXPECT_EQ(status(fine), 0) << fine;
  }
  for (const std::string_view other :
       {"text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/json",
        "application/json; charset=euc-kr", "application/json, text/plain"}) {
    EXPECT_EQ(status(other), 415) << other;
  }
  EXPECT_EQ(status("text/plain", ""), 0) << "without a body its type says nothing";
}

// --- pages ---

class PageTest : public testing::Test {
 protected:
  PageTest() {
    router.add({.method = Method::kGet,
                .pattern = "/list",
                .handler = [](Request request) { return nothing(std::move(request)); },
                .fast = {}});
  }

  static common::Task<Response> nothing(Request request) {
    static_cast<void>(request);
    co_return Response{};
  }

  tl::expected<Page, Response> page(std::string_view query,
                                    const std::vector<std::string>& also = {}) {
    RequestView view;
    view.path = "/list";
    view.query = query;
    Request request(view, home, "192.0.2.1");
    EXPECT_TRUE(Router::fill(request, router.find(Method::kGet, "/list"))) << query;
    return read_page(request, also);
  }

  std::string refused(std::string_view query) {
    const auto read = page(query);
    if (read) return "";
    EXPECT_EQ(read.error().status, 400);
    return read.error().body;
  }

  Router router;
};

TEST_F(PageTest, HasDefaults) {
  const auto read = page("");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->after, std::nullopt);
  EXPECT_EQ(read->limit, 100);
}

TEST_F(PageTest, TakesBackTheCursorThatItGave) {
  for (const std::string_view text : {"1", "a/b?c", "가나다", "~~~"}) {
    const auto read = page("after=" + make_cursor(text) + "&limit=1");
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->after, text);
    EXPECT_EQ(read->limit, 1);
  }
}

TEST_F(PageTest, NamesAWrongLimit) {
  for (const std::string_view limit :
       {"0", "-1", "1001", "1.5", "abc", "", "+1", "1x", "%201", "99999999999999999999"}) {
    EXPECT_EQ(refused("limit=" + std::string(limit)),
              R"({"error":"INVALID_PARAMETER","message":"limit is malformed","field":"limit"})")
        << limit;
  }
  EXPECT_EQ(page("limit=1000")->limit, 1000);
}

TEST_F(PageTest, NamesAWrongCursor) {
  for (const std::string& cursor :
       {std::string(), std::string("MQ=="), std::string("M"), std::string("a b"), std::string("MR"),
        std::string("_w"), std::string("AA"), std::string(516, 'A')}) {
    std::string query = "after=" + cursor;
    if (const std::size_t blank = query.find(' '); blank != std::string::npos) query[blank] = '+';
    EXPECT_THAT(refused(query), HasSubstr(R"("field":"after")")) << cursor;
  }
}

TEST_F(PageTest, RefusesOtherParametersUnlessTheRouteHasThem) {
  EXPECT_THAT(refused("offset=5"), HasSubstr(R"("field":"offset")"));
  EXPECT_TRUE(page("state=PAID", {"state"}));
}

TEST(InvalidParameter, NamesItInBothLanguages) {
  EXPECT_EQ(invalid_parameter("saleId", Language::kEnglish).body,
            R"({"error":"INVALID_PARAMETER","message":"saleId is malformed","field":"saleId"})");
  EXPECT_THAT(invalid_parameter("saleId", Language::kKorean).body,
              HasSubstr("saleId: 형식이 올바르지 않습니다"));
}

// --- errors and literals ---

TEST(ErrorResponse, HasCodeMessageAndWhatTheCallerAdds) {
  const Response response = error_response(kNotFound, Language::kEnglish, R"("final":true,"x":1)");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(
      response.body,
      R"({"error":"NOT_FOUND","message":"There is nothing of this name.","final":true,"x":1})");
  EXPECT_TRUE(response.headers.empty());
  EXPECT_THAT(error_response(kNotFound, Language::kKorean).body,
              HasSubstr("요청하신 항목을 찾을 수 없습니다."));
}

TEST(ErrorResponse, SaysWhenToComeBack) {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  const PublicError limited{429, "LIMITED", "a", "b"};
  const auto retry = [](const Response& response) { return response.headers; };
  EXPECT_EQ(retry(error_response(kBusy, Language::kEnglish)), (Headers{{"Retry-After", "1"}}));
  EXPECT_EQ(retry(error_response(limited, Language::kEnglish, {}, 7)),
            (Headers{{"Retry-After", "7"}}));
  EXPECT_EQ(retry(error_response(kKeyReused, Language::kEnglish, {}, 2)),
            (Headers{{"Retry-After", "2"}}));
  EXPECT_EQ(retry(error_response(kUnauthorized, Language::kEnglish)),
            (Headers{{"WWW-Authenticate", "Bearer"}}));
}

TEST(JsonQuote, EscapesWhatJsonWants) {
  EXPECT_EQ(json_quote(""), R"("")");
  EXPECT_EQ(json_quote("a\"b\\c/d"), R"("a\"b\\c/d")");
  EXPECT_EQ(json_quote("\n\r\t\b\x1F\x7F"), R"("\n\r\t\u0008\u001f\u007f")");
  EXPECT_EQ(json_quote(std::string_view("a\0b", 3)), R"("a\u0000b")");
  EXPECT_EQ(json_quote("가é😀"), "\"가é😀\"");
}

TEST(JsonQuote, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(json_quote("a\xFF"
                       "b"),
            R"("a\ufffdb")");
  EXPECT_EQ(json_quote("\xC3"), R"("\ufffd")");
  EXPECT_EQ(json_quote("\xC0\x80"), R"("\ufffd\ufffd")") << "overlong";
  EXPECT_EQ(json_quote("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")") << "surrogate";
  EXPECT_EQ(json_quote("\xF4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")") << "beyond U+10FFFF";
}

}  // namespace
}  // namespace doorbuster::http

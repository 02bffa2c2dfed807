#include "rush/http_reader.hpp"

#include <gtest/gtest.h>

#include "rush/answer.hpp"

namespace doorbuster::rush {
namespace {

struct Got {
  ReadState state;
  HttpAnswer answer;
  std::string body;
};

Got read(std::string_view text, bool ended = false, HttpLimits limits = {}) {
  Got got{};
  std::string decoded;
  got.state = read_http_answer(text, ended, limits, decoded, got.answer);
  got.body = got.answer.body;
  return got;
}

TEST(HttpReader, ReadsAnAnswerAndLeavesWhatFollows) {
  const std::string one =
      "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\ncontent-length:  5 \r\n\r\nhello";
  const Got got = read(one + "HTTP/1.1 410 Gone\r\n");
  EXPECT_EQ(got.state, ReadState::kDone);
  EXPECT_EQ(got.answer.status, 202);
  EXPECT_EQ(got.body, "hello");
  EXPECT_EQ(got.answer.bytes, one.size());
  EXPECT_FALSE(got.answer.close);
  EXPECT_FALSE(got.answer.retry_after);
}

TEST(HttpReader, WaitsForEveryLastByte) {
  for (const std::string whole : {"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nConnection: Keep-Alive, "
                                  "Close\r\nContent-Length: 2\r\n\r\nno",
                                  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "
                                  "OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n"
                                  "0123456789\r\n0\r\nTrailer: 1\r\n\r\n"}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_EQ(read(whole.substr(0, size)).state, ReadState::kNeedMore) << size;
    }
    EXPECT_EQ(read(whole).state, ReadState::kDone);
    EXPECT_EQ(read(whole).answer.bytes, whole.size());
  }
}

TEST(HttpReader, TellsRetryAfterAndClose) {
  const Got got =
      read("HTTP/1.1 503 Busy\r\nretry-after: 7\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(got.answer.retry_after, std::chrono::seconds{7});
  EXPECT_TRUE(got.answer.close);
  const Got date = read(
      "HTTP/1.1 503 B\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n");
  EXPECT_FALSE(date.answer.retry_after);
  const Got old = read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(old.answer.close);
  const Got kept = read("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
  EXPECT_FALSE(kept.answer.close);
}

TEST(HttpReader, DecodesChunks) {
  const Got got = read(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\nX");
  EXPECT_EQ(got.state, ReadState::kDone);
  EXPECT_EQ(got.body, "abc0123456789");
}

TEST(HttpReader, EndsABodyWithoutLengthWithTheConnection) {
  const std::string text = "HTTP/1.1 200 OK\r\n\r\nall of it";
  EXPECT_EQ(read(text).state, ReadState::kNeedMore);
  const Got got = read(text, true);
  EXPECT_EQ(got.state, ReadState::kDone);
  EXPECT_EQ(got.body, "all of it");
  EXPECT_TRUE(got.answer.close);
  EXPECT_EQ(read("HTTP/1.1 204 No Content\r\n\r\n").state, ReadState::kDone);
}

TEST(HttpReader, RefusesWhatIsNotHttp) {
  for (const std::string_view text :
       {"SSH-2.0-x", "HTTP/2 200\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n"}) {
    EXPECT_EQ(read(text).state, ReadState::kBad) << text;
  }
}

TEST(HttpReader, RefusesWhatIsBeyondALimit) {
  const HttpLimits limits{.max_head = 40, .max_body = 4};
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd", false, limits).state,
            ReadState::kDone);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, limits).state,
            ReadState::kBad);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n" + std::string(30, 'a'), false, limits).state,
            ReadState::kBad);
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const HttpLimits four{.max_head = 100, .max_body = 4};
  EXPECT_EQ(read(chunked + "4\r\nabcd\r\n0\r\n\r\n", false, four).state, ReadState::kDone);
  EXPECT_EQ(read(chunked + "4\r\nabcd\r\n1\r\n", false, four).state, ReadState::kBad);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n\r\nabcde", true, four).state, ReadState::kBad);
}

Answer answer(Ask ask, int status, std::string_view body) {
  AnswerReader reader;
  return reader.read(ask, HttpAnswer{.status = status, .body = body});
}

TEST(AnswerReader, KnowsEveryAnswerToAPurchase) {
  const auto kind = [](int status, std::string_view body) {
    return answer(Ask::kPurchase, status, body).kind;
  };
  EXPECT_EQ(kind(202, R"({"orderId":"a","status":"PENDING"})"), AnswerKind::kGranted);
  EXPECT_EQ(kind(202, R"({"requestId":"a"})"), AnswerKind::kOther);
  EXPECT_EQ(kind(202, "no json"), AnswerKind::kOther);
  EXPECT_EQ(kind(409, R"({"error":"ALREADY_PURCHASED","orderId":"a"})"), AnswerKind::kAlready);
  EXPECT_EQ(kind(409, R"({"error":"WRONG_MODE"})"), AnswerKind::kOther);
  EXPECT_EQ(kind(410, R"({"error":"SOLD_OUT","final":false})"), AnswerKind::kSoldOut);
  EXPECT_EQ(kind(403, R"({"error":"NOT_OPEN"})"), AnswerKind::kNotOpen);
  EXPECT_EQ(kind(403, R"({"error":"PAUSED"})"), AnswerKind::kPaused);
  EXPECT_EQ(kind(403, R"({"error":"CLOSED"})"), AnswerKind::kClosed);
  EXPECT_EQ(kind(403, R"({"error":"NOT_ELIGIBLE"})"), AnswerKind::kForbidden);
  EXPECT_EQ(kind(503, ""), AnswerKind::kBusy);
  EXPECT_EQ(kind(429, ""), AnswerKind::kLimited);
  EXPECT_EQ(kind(401, ""), AnswerKind::kUnauthorized);
  EXPECT_EQ(kind(404, ""), AnswerKind::kNotFound);
  EXPECT_EQ(kind(500, ""), AnswerKind::kServerError);
  EXPECT_EQ(kind(502, ""), AnswerKind::kServerError);
  EXPECT_EQ(kind(400, R"({"error":"KEY_REQUIRED"})"), AnswerKind::kOther);
}

TEST(AnswerReader, ReadsTheOrder) {
  const Answer got =
      answer(Ask::kRead, 200,
             R"({"orderId":"ab-_1","status":"PAID","payable":true,)"
             R"("expiresAt":"1970-01-01T00:00:02Z","amount":{"amount":12000,"currency":"KRW"}})");
  EXPECT_EQ(got.kind, AnswerKind::kOrder);
  EXPECT_EQ(got.order, "ab-_1");
  EXPECT_EQ(got.status, OrderStatus::kPaid);
  EXPECT_TRUE(got.payable);
  EXPECT_EQ(got.expires_us, 2'000'000);
  EXPECT_EQ(got.amount, 12000);
  EXPECT_EQ(got.currency, "KRW");
}

TEST(AnswerReader, TakesNoIdThatWouldMeanSomethingInAPath) {
  EXPECT_EQ(answer(Ask::kPurchase, 202, R"({"orderId":"a/../b"})").kind, AnswerKind::kOther);
  EXPECT_EQ(answer(Ask::kPurchase, 202, R"({"orderId":"a\r\nX: y"})").kind, AnswerKind::kOther);
  EXPECT_EQ(answer(Ask::kPurchase, 202, "{\"orderId\":\"" + std::string(201, 'a') + "\"}").kind,
            AnswerKind::kOther);
  EXPECT_EQ(answer(Ask::kPurchase, 202, "{\"orderId\":\"" + std::string(200, 'a') + "\"}").kind,
            AnswerKind::kGranted);
}

TEST(AnswerReader, KnowsEveryAnswerToAPayment) {
  const auto kind = [](int status, std::string_view body) {
    return answer(Ask::kPay, status, body).kind;
  };
  EXPECT_EQ(kind(200, R"({"orderId":"a","status":"PAID"})"), AnswerKind::kPaid);
  EXPECT_EQ(kind(202, R"({"error":"PAYMENT_UNKNOWN"})"), AnswerKind::kPayUnknown);
  EXPECT_EQ(kind(402, R"({"error":"PAYMENT_DECLINED"})"), AnswerKind::kDeclined);
  EXPECT_EQ(kind(409, R"({"error":"ALREADY_PAID"})"), AnswerKind::kPaid);
  EXPECT_EQ(kind(409, R"({"error":"NOT_READY"})"), AnswerKind::kNotReady);
  EXPECT_EQ(kind(409, R"({"error":"PAYMENT_IN_PROGRESS"})"), AnswerKind::kNotReady);
  EXPECT_EQ(kind(409, R"({"error":"HOLD_EXPIRED"})"), AnswerKind::kPayRefused);
  EXPECT_EQ(kind(400, R"({"error":"INVALID_BODY"})"), AnswerKind::kOther);
}

TEST(AnswerReader, TellsFinalFromNotFinalAlsoWhenItRemembersTheBody) {
  AnswerReader reader;
  const std::string no = R"({"error":"SOLD_OUT","message":"x","final":false})";
  const std::string yes = R"({"error":"SOLD_OUT","message":"x","final":true})";
  for (const bool final : {false, false, true, true, false, true}) {
    const HttpAnswer http{.status = 410,
                          .body = final ? yes : no,
                          .retry_after = std::chrono::seconds{final ? 1 : 2}};
    const Answer got = reader.read(Ask::kPurchase, http);
    EXPECT_EQ(got.kind, AnswerKind::kSoldOut);
    EXPECT_EQ(got.final, final);
    EXPECT_EQ(got.retry_after, http.retry_after);
  }
  // The same bytes under another status mean something else.
  EXPECT_EQ(reader.read(Ask::kPurchase, HttpAnswer{.status = 403, .body = yes}).kind,
            AnswerKind::kForbidden);
}

}  // namespace
}  // namespace doorbuster::rush

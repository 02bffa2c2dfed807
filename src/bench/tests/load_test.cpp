#include "bench/load.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "bench/bare_loop.hpp"
#include "bench/machine.hpp"
#include "bench/shop.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;

const common::SystemClock kClock;

std::string answer_of(int status, std::string_view body, std::string_view more = {}) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

/// A bare loop in a process of its own.
struct Bare {
  explicit Bare(std::size_t request_size, const std::string& answer) {
    const int socket = listen_on_loopback(port);
    EXPECT_GE(socket, 0);
    auto started = Process::fork([&] { serve_bare(socket, request_size, answer); });
    ::close(socket);
    EXPECT_TRUE(started);
    process = std::move(*started);
  }
  std::uint16_t port = 0;
  std::unique_ptr<Process> process;
};

Requests requests_of(std::size_t size, std::size_t count) {
  return {.bytes = std::string(size * count, 'x'), .size = size};
}

TEST(AnswerCutter, CutsAnswersOfChangingShapes) {
  AnswerCutter cutter;
  const std::string first = answer_of(410, "gone");
  const std::string longer = answer_of(410, "gone!");
  const std::string other = answer_of(409, "have", "A: b\r\n");
  const std::string all = first + first + longer + other + first;
  std::string_view rest = all;
  for (const auto& [status, body] : std::vector<std::pair<int, std::string>>{
           {410, "gone"}, {410, "gone"}, {410, "gone!"}, {409, "have"}, {410, "gone"}}) {
    const AnswerCutter::Answer answer = cutter.next(rest);
    EXPECT_FALSE(answer.bad);
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.body, body);
    ASSERT_GT(answer.bytes, 0U);
    rest.remove_prefix(answer.bytes);
  }
  EXPECT_EQ(rest, "");
}

TEST(AnswerCutter, WaitsForTheWholeAnswerWhereverItIsCut) {
  const std::string whole = answer_of(410, "gone", "Date: today\r\n");
  AnswerCutter used;
  EXPECT_EQ(used.next(whole).bytes, whole.size());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    AnswerCutter fresh;
    for (AnswerCutter* cutter : {&fresh, &used}) {
      const AnswerCutter::Answer answer = cutter->next(std::string_view(whole).substr(0, size));
      EXPECT_EQ(answer.bytes, 0U) << size;
      EXPECT_FALSE(answer.bad) << size;
    }
  }
  EXPECT_EQ(used.next(whole + "HTTP").bytes, whole.size());
}

TEST(AnswerCutter, RefusesWhatIsNoAnswerWithALength) {
  EXPECT_TRUE(AnswerCutter().next("SSH-2.0-something").bad);
  EXPECT_TRUE(AnswerCutter().next("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").bad);
  EXPECT_TRUE(AnswerCutter().next("HTTP/1.1 200 OK\r\n" + std::string(20'000, 'a')).bad);
}

TEST(Load, GetsAnAnswerForEachRequestAndNoMore) {
  const Bare bare(50, answer_of(410, "gone"));
  const Requests requests = requests_of(50, 1003);
  for (const std::size_t pipelined : {1U, 16U}) {
    const LoadPlan plan{
        .port = bare.port, .connections = 7, .pipelined = pipelined, .count = requests.count()};
    const auto result = run_load(plan, requests, kClock);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->usual, 1003U);
    EXPECT_EQ(result->other, 0U);
    EXPECT_EQ(result->times.count(), 1003U);
    EXPECT_GT(result->seconds, 0);
  }
}

TEST(Load, NamesTheRequestOfEachUnusualAnswer) {
  const Bare bare(50, answer_of(409, "mine"));
  const Requests requests = requests_of(50, 100);
  std::map<std::size_t, int> seen;
  LoadPlan plan{.port = bare.port, .connections = 3, .pipelined = 4, .first = 10, .count = 50};
  plan.other = [&](std::size_t request, int status, std::string_view body) {
    EXPECT_EQ(status, 409);
    EXPECT_EQ(body, "mine");
    ++seen[request];
  };
  const auto result = run_load(plan, requests, kClock);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->other, 50U);
  ASSERT_EQ(seen.size(), 50U);
  EXPECT_EQ(seen.begin()->first, 10U);
  EXPECT_EQ(seen.rbegin()->first, 59U);
}

TEST(Load, SaysWhenNobodyListensOrWhatComesIsNoHttp) {
  const auto port = free_port();
  ASSERT_TRUE(port);
  const Requests requests = requests_of(50, 1);
  const auto refused = run_load({.port = *port, .connections = 1, .count = 1}, requests, kClock);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  const Bare bare(50, "this is no answer in any protocol");
  const auto noise = run_load({.port = bare.port, .connections = 1, .count = 1}, requests, kClock);
  ASSERT_FALSE(noise);
  EXPECT_EQ(noise.error().code, ErrorCode::kCorrupt);
}

TEST(Purchases, AreEquallyLongAndEachTokenIsNew) {
  const Requests requests = purchases(
      7, {{kFirstMember, 0}, {kFirstMember, 1}, {10 * kFirstMember - 1, 1}}, kClock.now());
  ASSERT_EQ(requests.count(), 3U);
  const auto one = [&](std::size_t i) {
    return requests.bytes.substr(i * kRequestBytes, kRequestBytes);
  };
  EXPECT_NE(one(0), one(1));
  EXPECT_NE(one(1), one(2));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(one(i).starts_with("POST /api/flash-sales/items/7/purchase HTTP/1.1\r\n"));
    EXPECT_TRUE(one(i).ends_with("\r\n\r\n"));
  }
}

TEST(JsonText, FindsAStringByItsName) {
  EXPECT_EQ(json_text(R"({"a":"b","orderId":"x-1"})", "orderId"), "x-1");
  EXPECT_EQ(json_text(R"({"a":"b"})", "orderId"), "");
}

}  // namespace
}  // namespace doorbuster::bench

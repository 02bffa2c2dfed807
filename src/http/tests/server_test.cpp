#include "http/server.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "common/clock.hpp"

namespace doorbuster::http {
namespace {

using common::Done;
using common::Executor;
using common::Task;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

/// Longer than anything here takes, also on a busy machine under a sanitizer.
constexpr seconds kPatience{30};

/// Waits for something that another thread brings about and does not announce.
template <class F>
bool eventually(F&& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds{1});
  }
  return true;
}

/// Handlers that wait here end when the test says so.
class Gates {
 public:
  Task<void> pass(std::string name, Executor& home) {
    const common::Completion<Done> opened(home);
    {
      const std::lock_guard lock(mutex_);
      if (!all_open_) {
        waiting_.emplace(name, opened);
      } else {
        opened.complete({});
      }
      ++inside_;
      changed_.notify_all();
    }
    auto wait = opened.wait();
    const Done done = co_await wait;
    static_cast<void>(done);
    const std::lock_guard lock(mutex_);
    --inside_;
    ++passed_;
    changed_.notify_all();
  }

  /// Opens one gate, once somebody stands before it.
  void open(const std::string& name) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return waiting_.contains(name); }))
        << name;
    const auto found = waiting_.find(name);
    found->second.complete({});
    waiting_.erase(found);
  }
  void await_waiting(const std::string& name) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return waiting_.contains(name); }))
        << name;
  }
  bool is_waiting(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return waiting_.contains(name);
  }
  void await_passed(int count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return passed_ >= count; }));
  }
  void open_all() {
    std::unique_lock lock(mutex_);
    all_open_ = true;
    for (const auto& [name, gate] : waiting_) gate.complete({});
    waiting_.clear();
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return inside_ == 0; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::string, common::Completion<Done>> waiting_;
  bool all_open_ = false;
  int inside_ = 0;
  int passed_ = 0;
};

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// A client that blocks, with a deadline for each wait.
class Client {
 public:
  explicit Client(std::uint16_t port, SSL_CTX* tls = nullptr, int receive_buffer = 0,
                  int family = AF_INET)
      : socket_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    if (family == AF_INET6) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_addr = in6addr_loopback;
      address.sin6_port = htons(port);
      connected_ =
          ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      connected_ =
          ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    if (tls != nullptr && connected_) {
      ssl_ = SSL_new(tls);
      SSL_set_fd(ssl_, socket_);
      shaken_ = SSL_connect(ssl_) == 1;
    }
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool shaken() const { return shaken_; }

  void close() {
    if (ssl_ != nullptr) SSL_free(std::exchange(ssl_, nullptr));
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }

  /// False when the server is gone.
  bool send_urgent(std::string_view byte) {
    return ::send(socket_, byte.data(), byte.size(), MSG_NOSIGNAL | MSG_OOB) == 1;
  }
  bool send(std::string_view text) {
    while (!text.empty()) {
      std::size_t sent = 0;
      if (ssl_ != nullptr) {
        if (SSL_write_ex(ssl_, text.data(), text.size(), &sent) != 1) return false;
      } else {
        const ssize_t got = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
        if (got <= 0) return false;
        sent = static_cast<std::size_t>(got);
      }
      text.remove_prefix(sent);
    }
    return true;
  }

  /// One read of whatever is there; 0 at the end, nothing at a reset or after kPatience.
  std::optional<std::size_t> receive() {
    std::array<char, 65536> bytes{};
    if (ssl_ != nullptr) {
      std::size_t size = 0;
      if (SSL_read_ex(ssl_, bytes.data(), bytes.size(), &size) == 1) {
        text_.append(bytes.data(), size);
        return size;
      }
      if (SSL_get_error(ssl_, 0) == SSL_ERROR_ZERO_RETURN) return 0;
      return std::nullopt;
    }
    const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (size < 0) return std::nullopt;
    text_.append(bytes.data(), static_cast<std::size_t>(size));
    return static_cast<std::size_t>(size);
  }

  /// Everything up to `end`, which is taken away too.
  std::string read_to(std::string_view end) {
    std::size_t at = text_.find(end);
    while (at == std::string::npos) {
      const auto got = receive();
      if (!got || *got == 0) {
        ADD_FAILURE() << "the connection ended before " << end << ", after: " << text_;
        return std::exchange(text_, {});
      }
      at = text_.find(end);
    }
    std::string part = text_.substr(0, at);
    text_.erase(0, at + end.size());
    return part;
  }

  std::string read_bytes(std::size_t size) {
    while (text_.size() < size) {
      const auto got = receive();
      if (!got || *got == 0) {
        ADD_FAILURE() << "the connection ended after " << text_.size() << " of " << size;
        return std::exchange(text_, {});
      }
    }
    std::string part = text_.substr(0, size);
    text_.erase(0, size);
    return part;
  }

  /// The head of the next answer.
  Answer head() {
    Answer answer;
    std::string rest = read_to("\r\n\r\n") + "\r\n";
    const std::size_t line = rest.find("\r\n");
    if (rest.rfind("HTTP/1.1 ", 0) != 0) {
      ADD_FAILURE() << "no status line: " << rest;
      return answer;
    }
    answer.status = std::atoi(rest.c_str() + 9);
    rest.erase(0, line + 2);
    while (!rest.empty()) {
      const std::size_t end = rest.find("\r\n");
      const std::size_t colon = rest.find(": ");
      std::string name = rest.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return static_cast<char>(std::tolower(c)); });
      EXPECT_FALSE(answer.headers.contains(name)) << name << " came twice";
      answer.headers[name] = rest.substr(colon + 2, end - colon - 2);
      rest.erase(0, end + 2);
    }
    return answer;
  }

  Answer answer() {
    Answer answer = head();
    if (answer.status >= 200) {
      EXPECT_NE(answer.header("content-length"), "");
      answer.body = read_bytes(std::stoul("0" + answer.header("content-length")));
    }
    return answer;
  }

  std::string chunk() {
    const std::size_t size = std::stoul(read_to("\r\n"), nullptr, 16);
    std::string data = read_bytes(size);
    EXPECT_EQ(read_bytes(2), "\r\n");
    return data;
  }

  Answer ask(std::string_view text) {
    EXPECT_TRUE(send(text));
    return answer();
  }

  /// Whether the server ends the connection properly (and not by a reset), without a further byte.
  bool at_end() {
    if (!text_.empty()) return false;
    const auto got = receive();
    return got && *got == 0;
  }
  /// Reads to the end, however it comes.
  std::string rest() {
    for (auto got = receive(); got && *got > 0;) got = receive();
    return std::exchange(text_, {});
  }
  [[nodiscard]] const std::string& unread() const { return text_; }

 private:
  int socket_;
  SSL* ssl_ = nullptr;
  std::string text_;
  bool connected_ = false;
  bool shaken_ = false;
};

std::string get(std::string_view path, std::string_view more = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(more) + "\r\n";
}
std::string post(std::string_view path, std::string_view body, std::string_view more = {}) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(more) + "\r\n" + std::string(body);
}

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    add(Method::kGet, "/hello", [](Request r) { return hello(std::move(r)); });
    add(Method::kPost, "/echo", [](Request r) { return echo(std::move(r)); });
    add(Method::kGet, "/slow/{name}", [this](Request r) { return slow(std::move(r)); });
    add(Method::kPost, "/slow/{name}", [this](Request r) { return slow(std::move(r)); });
    add(Method::kGet, "/elsewhere", [this](Request r) { return elsewhere(std::move(r)); });
    add(Method::kGet, "/big/{size}", [](Request r) { return big(std::move(r)); });
    add(Method::kGet, "/peer", [](Request r) { return peer(std::move(r)); });
    add(Method::kGet, "/injected", [](Request r) { return injected(std::move(r)); });
    add(Method::kGet, "/events", [this](Request r) { return events(std::move(r)); });
    router.add({.method = Method::kPost,
                .pattern = "/fast/{number}",
                .handler = [](Request r) { return echo(std::move(r)); },
                .fast =
                    [](const RequestView& view, std::span<const std::string_view> params,
                       FastOutput& out) {
                      if (params[0] == "handler") return false;
                      const std::string body = std::string(params[0]) +
                                               (view.language == Language::kKorean ? "ko" : "en");
                      out.answer(410, "HTTP/1.1 410 Gone\r\nContent-Type: text/plain\r\n", body);
                      return true;
                    },
                .max_body = 100});
  }

  ~ServerTest() override {
    gates.open_all();
    server.reset();
    other.reset();
    loops.clear();
  }

  void add(Method method, std::string pattern, Handler handler) {
    router.add({.method = method,
                .pattern = std::move(pattern),
                .handler = std::move(handler),
                .fast = {}});
  }

  static Task<Response> hello(Request request) {
    static_cast<void>(request);
    co_return Response{.body = "hello", .content_type = "text/plain"};
  }
  static Task<Response> echo(Request request) {
    co_return Response{.body = std::string(request.body()), .content_type = "text/plain"};
  }
  Task<Response> slow(Request request) {
    const std::string name(request.param("name"));
    Task<void> pass = gates.pass(name, request.home());
    co_await pass;
    co_return Response{.body = name, .content_type = "text/plain"};
  }
  /// Ends on a loop that is not its connection's.
  Task<Response> elsewhere(Request request) {
    common::ResumeOn away{*other};
    co_await away;
    co_return Response{.body = request.home().is_current() ? "home" : "away"};
  }
  static Task<Response> big(Request request) {
    const std::size_t size = std::stoul(std::string(request.param("size")));
    co_return Response{.body = std::string(size, 'x')};
  }
  static Task<Response> peer(Request request) { co_return Response{.body = request.peer()}; }
  static Task<Response> injected(Request request) {
    co_return Response{
        .headers = {{"Location", "/a\r\nSet-Cookie: " + std::string(request.path())}}};
  }
  /// Ends, says nothing, or says its number, as the test has put down.
  Task<Response> events(Request request) {
    static_cast<void>(request);
    Response response{.content_type = "text/event-stream"};
    response.events = [this]() -> std::optional<std::string> {
      const int number = ++asked;
      if (number == end_at) return std::nullopt;
      if (number == silent_at) return "";
      return "data: " + std::to_string(number) + "\n\n";
    };
    co_return response;
  }

  void start(ServerConfig config = {}, std::size_t count = 1) {
    config.port = 0;
    const common::Clock& used = real_clock ? static_cast<const common::Clock&>(system) : clock;
    std::vector<common::Loop*> all;
    for (std::size_t i = 0; i < count; ++i) {
      loops.push_back(common::make_loop(used, "test"));
      all.push_back(loops.back().get());
    }
    other = common::make_loop(used, "other");
    auto started = start_server(config, router, all, *metrics);
    ASSERT_TRUE(started) << started.error().message;
    server = *std::move(started);
    port = server->port();
  }

  /// Afterwards the loops have done all that they had to do before. With a clock that stands still
  /// a test can then say where on the time line it is.
  void barrier() {
    for (const auto& loop : loops) {
      std::promise<void> reached;
      loop->post([&reached] { reached.set_value(); });
      ASSERT_EQ(reached.get_future().wait_for(kPatience), std::future_status::ready);
    }
  }

  std::int64_t count(const std::string& name, const common::Labels& labels) {
    return metrics->counter(name, "", labels).value();
  }
  std::int64_t answered(const std::string& route, int status) {
    return count("http_requests_total", {{"route", route}, {"status", std::to_string(status)}});
  }
  std::int64_t timed_out(const std::string& kind) {
    return count("http_timeouts_total", {{"kind", kind}});
  }
  std::int64_t refused(const std::string& reason) {
    return count("http_refused_total", {{"reason", reason}});
  }
  double connections() { return metrics->gauge("http_connections", "").value(); }

  common::SystemClock system;
  common::ManualClock clock{*common::parse_rfc3339("2026-11-30T01:02:03Z")};
  bool real_clock = false;
  Gates gates;
  std::atomic<int> asked{0};
  std::atomic<int> end_at{-1};
  std::atomic<int> silent_at{-1};
  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  Router router;
  std::vector<std::unique_ptr<common::Loop>> loops;
  std::unique_ptr<common::Loop> other;
  std::unique_ptr<Server> server;
  std::uint16_t port = 0;
};

// --- the plain way ---

TEST_F(ServerTest, AnswersAndKeepsTheConnection) {
  start();
  Client client(port);
  const Answer first = client.ask(get("/hello"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "hello");
  EXPECT_EQ(first.header("content-type"), "text/plain");
  EXPECT_EQ(first.header("date"), "Mon, 30 Nov 2026 01:02:03 GMT");
  EXPECT_EQ(first.header("cache-control"), "no-store");
  EXPECT_EQ(first.header("x-content-type-options"), "nosniff");
  EXPECT_EQ(first.header("connection"), "");
  EXPECT_THAT(first.header("x-request-id"), MatchesRegex("[0-9a-f]{8}-0-[0-9a-f]+"));
  const Answer second = client.ask(post("/echo", "again"));
  EXPECT_EQ(second.body, "again");
  EXPECT_NE(second.header("x-request-id"), first.header("x-request-id"));
  EXPECT_EQ(answered("GET /hello", 200), 1);
  EXPECT_EQ(answered("POST /echo", 200), 1);
  EXPECT_TRUE(eventually([this] { return connections() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([this] { return connections() == 0; }));
}

TEST_F(ServerTest, MovesTheDateWithTheClock) {
  start();
  Client client(port);
  clock.advance(seconds{1});
  EXPECT_TRUE(eventually(
      [&] { return client.ask(get("/hello")).header("date") == "Mon, 30 Nov 2026 01:02:04 GMT"; }));
}

TEST_F(ServerTest, TakesOverTheCallersRequestId) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/hello", "X-Request-Id: mine-1\r\n")).header("x-request-id"), "mine-1");
  EXPECT_EQ(client.ask(post("/fast/1", "", "X-Request-Id: mine-2\r\n")).header("x-request-id"),
            "mine-2");
  EXPECT_EQ(client.ask(get("/nothing", "X-Request-Id: mine-3\r\n")).header("x-request-id"),
            "mine-3");
  EXPECT_THAT(client.ask(get("/hello", "X-Request-Id: not/mine\r\n")).header("x-request-id"),
              MatchesRegex("[0-9a-f]{8}-0-[0-9a-f]+"));
}

TEST_F(ServerTest, TriesTheFastHandlerFirst) {
  start();
  Client client(port);
  const Answer fast = client.ask(post("/fast/7", "", "Accept-Language: ko\r\n"));
  EXPECT_EQ(fast.status, 410);
  EXPECT_EQ(fast.body, "7ko");
  EXPECT_EQ(fast.header("content-type"), "text/plain");
  EXPECT_EQ(fast.header("date"), "Mon, 30 Nov 2026 01:02:03 GMT");
  const Answer handled = client.ask(post("/fast/handler", "body"));
  EXPECT_EQ(handled.status, 200);
  EXPECT_EQ(handled.body, "body");
  EXPECT_EQ(answered("POST /fast/{number}", 410), 1);
  EXPECT_EQ(answered("POST /fast/{number}", 200), 1);
}

TEST_F(ServerTest, AnswersHeadWithoutABody) {
  start();
  Client client(port);
  ASSERT_TRUE(
      client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\nHEAD /nothing HTTP/1.1\r\nHost: "
                  "a\r\n\r\n" +
                  get("/hello")));
  const Answer found = client.head();
  EXPECT_EQ(found.status, 200);
  EXPECT_EQ(found.header("content-length"), "5");
  EXPECT_EQ(client.head().status, 404);
  EXPECT_EQ(client.answer().body, "hello") << "nothing stood between the heads";
}

TEST_F(ServerTest, ClosesWhenTheClientWantsItTo) {
  start();
  for (const std::string& text :
       {get("/hello", "Connection: close\r\n"),
        std::string("GET /hello HTTP/1.0\r\nHost: a\r\n\r\n"),
        post("/fast/1", "", "Connection: close\r\n"), get("/nothing", "Connection: close\r\n")}) {
    Client client(port);
    ASSERT_TRUE(client.send(text + get("/hello")));
    EXPECT_EQ(client.answer().header("connection"), "close");
    EXPECT_TRUE(client.at_end()) << "what comes behind it is not answered: " << text;
  }
}

TEST_F(ServerTest, RefusesUnknownPathsAndMethodsAndGoesOn) {
  start();
  Client client(port);
  const Answer missing = client.ask(post("/nothing", "body", "Accept-Language: ko\r\n"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body, R"({"error":"NOT_FOUND","message":"요청하신 항목을 찾을 수 없습니다."})");
  const Answer method = client.ask(post("/hello", ""));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.header("allow"), "GET, HEAD");
  EXPECT_THAT(method.body, HasSubstr("METHOD_NOT_ALLOWED"));
  const Answer escape = client.ask(get("/slow/%zz"));
  EXPECT_EQ(escape.status, 400);
  EXPECT_THAT(escape.body, HasSubstr("INVALID_PARAMETER"));
  EXPECT_EQ(client.ask(get("/hello")).status, 200);
  EXPECT_EQ(answered("none", 404), 1);
  EXPECT_EQ(answered("none", 405), 1);
  EXPECT_EQ(answered("GET /slow/{name}", 400), 1);
}

TEST_F(ServerTest, TellsHandlersWhoAsks) {
  start({.address = "::"});
  Client v4(port);
  EXPECT_EQ(v4.ask(get("/peer")).body, "127.0.0.1");
  Client v6(port, nullptr, 0, AF_INET6);
  ASSERT_TRUE(v6.connected());
  EXPECT_EQ(v6.ask(get("/peer")).body, "::1");
}

TEST_F(ServerTest, TakesAnAnswerThatWasGivenOnAnotherThread) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/elsewhere")).body, "away");
  EXPECT_EQ(client.ask(get("/hello")).body, "hello");
}

TEST_F(ServerTest, SendsNoAnswerThatAHandlerHasBroken) {
  start();
  Client client(port);
  const Answer answer = client.ask(get("/injected"));
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("\"INTERNAL\""));
  EXPECT_EQ(answer.header("set-cookie"), "");
  EXPECT_EQ(answered("GET /injected", 500), 1);
}

// --- pipelining ---

TEST_F(ServerTest, AnswersPipelinedRequestsInOneWrite) {
  start();
  Client client(port);
  std::string text;
  for (int i = 0; i < 16; ++i) text += post("/fast/" + std::to_string(i), "");
  ASSERT_TRUE(client.send(text));
  ASSERT_TRUE(client.receive());
  EXPECT_THAT(client.unread(), HasSubstr("15en")) << "the first read did not bring all of them";
  for (int i = 0; i < 16; ++i) EXPECT_EQ(client.answer().body, std::to_string(i) + "en");
}

TEST_F(ServerTest, KeepsTheOrderWithSlowHandlersInBetween) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(post("/fast/1", "") + get("/slow/a") + post("/fast/2", "") +
                          post("/echo", "three") + get("/slow/b") + get("/nothing") +
                          post("/fast/4", "")));
  EXPECT_EQ(client.answer().body, "1en");
  gates.await_waiting("a");
  barrier();
  EXPECT_FALSE(gates.is_waiting("b")) << "one handler at a time";
  EXPECT_EQ(answered("POST /fast/{number}", 410), 1) << "nothing behind it was begun";
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  EXPECT_EQ(client.answer().body, "2en");
  EXPECT_EQ(client.answer().body, "three");
  gates.open("b");
  EXPECT_EQ(client.answer().body, "b");
  EXPECT_EQ(client.answer().status, 404);
  EXPECT_EQ(client.answer().body, "4en");
}

TEST_F(ServerTest, AnswersTheSameHoweverTheBytesAreCut) {
  start();
  const std::string text = post("/echo", "abc") + get("/hello") +
                           "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" +
                           post("/fast/1", "x");
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    Client client(port);
    ASSERT_TRUE(client.send(text.substr(0, cut)));
    barrier();
    ASSERT_TRUE(client.send(text.substr(cut)));
    EXPECT_EQ(client.answer().body, "abc") << cut;
    EXPECT_EQ(client.answer().body, "hello") << cut;
    EXPECT_EQ(client.answer().body, "abcde") << cut;
    EXPECT_EQ(client.answer().body, "1en") << cut;
  }
}

TEST_F(ServerTest, AnswersARequestThatComesByteByByte) {
  start();
  Client client(port);
  for (const char c : post("/echo", "slowly")) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.answer().body, "slowly");
}

// --- what is refused ---

TEST_F(ServerTest, RefusesAmbiguousRequestsAndCloses) {
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: a\r\n";
  for (const std::string& text :
       {head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        head + "Content-Length: +5\r\n\r\nabcde", head + "Content-Length : 3\r\n\r\nabc",
        head + "X: a\r\n b\r\n\r\n", head + "Host: b\r\n\r\n",
        std::string("POST /echo HTTP/1.1\nHost: a\n\n"),
        std::string("POST /echo HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
        head + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"}) {
    Client client(port);
    ASSERT_TRUE(client.send(text + get("/hello")));
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, 400) << text;
    EXPECT_THAT(answer.body, HasSubstr(R"("error":"INVALID_REQUEST")"));
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_NE(answer.header("x-request-id"), "");
    EXPECT_TRUE(client.at_end()) << "what follows may be smuggled: " << text;
  }
  EXPECT_EQ(refused("malformed"), 13);
  EXPECT_EQ(answered("none", 400), 13);
}

TEST_F(ServerTest, RefusesWhatIsTooLargeOrUnknown) {
  start({.max_header_bytes = 1000, .max_target_bytes = 100});
  struct Case {
    std::string text;
    int status;
    std::string code;
    std::string reason;
  };
  const std::string large(16 * 1024 + 1, 'x');
  for (const Case& c : std::vector<Case>{
           {get("/" + std::string(100, 'a')), 414, "URI_TOO_LONG", "target_too_long"},
           {get("/hello", "X: " + std::string(1000, 'a') + "\r\n"), 431, "HEADERS_TOO_LARGE",
            "headers_too_large"},
           {post("/echo", large), 413, "PAYLOAD_TOO_LARGE", "body_too_large"},
           {post("/fast/1", std::string(101, 'x')), 413, "PAYLOAD_TOO_LARGE", "body_too_large"},
           {post("/nothing", large), 413, "PAYLOAD_TOO_LARGE", "body_too_large"},
           {"POST /fast/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n", 413,
            "PAYLOAD_TOO_LARGE", "body_too_large"},
           {get("/hello", "Expect: magic\r\n"), 417, "EXPECTATION_FAILED", "expectation"},
           {"BREW /hello HTTP/1.1\r\nHost: a\r\n\r\n", 501, "NOT_IMPLEMENTED", "method"},
           {"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", 505, "VERSION_NOT_SUPPORTED", "version"}}) {
    const std::int64_t before = refused(c.reason);
    Client client(port);
    ASSERT_TRUE(client.send(c.text));
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, c.status);
    EXPECT_THAT(answer.body, HasSubstr("\"" + c.code + "\""));
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(client.at_end()) << c.code;
    EXPECT_EQ(refused(c.reason), before + 1) << c.reason;
  }
  Client client(port);
  EXPECT_EQ(client.ask(post("/echo", large.substr(1))).body.size(), 16U * 1024) << "at the limit";
  EXPECT_EQ(client.ask(post("/fast/1", std::string(100, 'x'))).status, 410);
}

TEST_F(ServerTest, RefusesAHeadRequestWithoutABody) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"));
  EXPECT_EQ(client.head().status, 400);
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, LetsTheClientReadWhyItWasRefusedWhileItStillSends) {
  start();
  Client client(port);
  // Closing with unread bytes would reset the connection, and the reset would overtake the answer.
  ASSERT_TRUE(client.send(post("/echo", std::string(400'000, 'x'))));
  EXPECT_EQ(client.answer().status, 413);
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, InvitesABodyThatWaitsForIt) {
  start();
  Client client(port);
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.ask(head).status, 100);
    ASSERT_TRUE(client.send("ab"));
    barrier();
    EXPECT_EQ(client.ask("cde").body, "abcde");
  }
  EXPECT_EQ(client.ask(head + "abcde").status, 200) << "a body that is there needs no invitation";
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(client.answer().status, 100);
  EXPECT_EQ(client.ask("1\r\nz\r\n0\r\n\r\n").body, "z");
  const Answer missing = client.ask(
      "POST /nothing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(missing.status, 404) << "no body is asked for in vain";
  EXPECT_EQ(missing.header("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

// --- time ---

TEST_F(ServerTest, ClosesAConnectionThatIsIdleForTooLong) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/hello")).status, 200);
  barrier();
  clock.advance(seconds{75} - milliseconds{1});
  EXPECT_EQ(client.ask(get("/hello")).status, 200) << "one request begins the time anew";
  barrier();
  EXPECT_EQ(timed_out("idle"), 0);
  clock.advance(seconds{75});
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(timed_out("idle"), 1);
}

TEST_F(ServerTest, RefusesAHeadThatDoesNotCome) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/hello") + "GET /he").status, 200);
  barrier();
  clock.advance(seconds{10} - milliseconds{1});
  // Another byte proves that it is open, and gives no more time.
  ASSERT_TRUE(client.send("l"));
  barrier();
  clock.advance(milliseconds{1});
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(answer.body, HasSubstr("REQUEST_TIMEOUT"));
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(timed_out("header"), 1);
}

TEST_F(ServerTest, RefusesABodyThatDoesNotCome) {
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: a\r\n";
  for (const std::string& text : {head + "Content-Length: 5\r\n\r\nabc",
                                  head + "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"}) {
    Client client(port);
    EXPECT_EQ(client.ask(get("/hello") + text).status, 200);
    barrier();
    clock.advance(seconds{20} - milliseconds{1});
    ASSERT_TRUE(client.send("d"));
    barrier();
    clock.advance(milliseconds{1});
    EXPECT_EQ(client.answer().status, 408) << text;
    EXPECT_TRUE(client.at_end());
  }
  EXPECT_EQ(timed_out("body"), 2);
}

TEST_F(ServerTest, KeepsShortTimeoutsOnARealClock) {
  real_clock = true;
  start({.header_timeout = milliseconds{100},
         .body_timeout = milliseconds{100},
         .idle_timeout = milliseconds{100}});
  const auto begin = std::chrono::steady_clock::now();
  Client head(port);
  ASSERT_TRUE(head.send("GET /hello HTTP/1.1\r\nHo"));
  Client body(port);
  ASSERT_TRUE(body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc"));
  Client idle(port);
  EXPECT_EQ(head.answer().status, 408);
  EXPECT_EQ(body.answer().status, 408);
  EXPECT_TRUE(idle.at_end());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{100});
}

TEST_F(ServerTest, AnswersForAHandlerThatDoesNot) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a", "X-Request-Id: late\r\n") + get("/hello")));
  gates.await_waiting("a");
  barrier();
  clock.advance(seconds{30});
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_EQ(answer.header("x-request-id"), "late");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(timed_out("request"), 1);
  EXPECT_EQ(answered("GET /slow/{name}", 503), 1);
  gates.open("a");
  gates.await_passed(1);
  barrier();
  EXPECT_EQ(answered("GET /slow/{name}", 200), 0) << "its late answer goes nowhere";
}

// --- slow readers ---

TEST_F(ServerTest, ClosesAConnectionWhoseAnswersAreNotTaken) {
  start();
  Client client(port, nullptr, 4096);
  ASSERT_TRUE(client.send(get("/big/33554432")));
  ASSERT_TRUE(eventually([this] { return answered("GET /big/{size}", 200) == 1; }));
  barrier();
  clock.advance(seconds{20});
  EXPECT_TRUE(eventually([this] { return timed_out("write") == 1; }));
  EXPECT_LT(client.rest().size(), 33'554'432U);
}

TEST_F(ServerTest, HasPatienceWithAReaderThatGoesOn) {
  start();
  Client client(port, nullptr, 4096);
  ASSERT_TRUE(client.send(get("/big/50331648") + get("/hello")));
  const Answer head = client.head();
  EXPECT_EQ(head.status, 200);
  std::size_t left = 50'331'648;
  while (left > 0) {
    // More than the kernel's buffers hold: the server has sent some of it since the last step.
    const std::size_t step = std::min<std::size_t>(left, 16 * 1024 * 1024);
    ASSERT_EQ(client.read_bytes(step).size(), step);
    left -= step;
    barrier();
    clock.advance(seconds{19});
  }
  EXPECT_EQ(client.answer().body, "hello");
  EXPECT_EQ(timed_out("write"), 0);
}

TEST_F(ServerTest, BeginsNothingWhileAnswersAreUnsent) {
  start();
  Client client(port, nullptr, 4096);
  constexpr int kRequests = 1000;
  std::string text;
  for (int i = 0; i < kRequests; ++i) text += get("/big/65536");
  ASSERT_TRUE(client.send(text));
  ASSERT_TRUE(eventually([this] { return answered("GET /big/{size}", 200) > 0; }));
  for (int i = 0; i < 10; ++i) barrier();
  EXPECT_LT(answered("GET /big/{size}", 200), kRequests / 2)
      << "64 MiB do not fit into the kernel's buffers, so they would be in ours";
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.answer().body.size(), 65'536U) << i;
  EXPECT_EQ(client.ask(get("/hello")).body, "hello");
}

// --- what is told once only ---

TEST_F(ServerTest, LosesNothingThatComesWhileAHandlerRuns) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a")));
  gates.await_waiting("a");
  ASSERT_TRUE(client.send(get("/slow/b") + get("/hello")));
  // The loop has been told of these by now, and will not be told again.
  for (int i = 0; i < 10; ++i) barrier();
  EXPECT_FALSE(gates.is_waiting("b"));
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  gates.open("b");
  EXPECT_EQ(client.answer().body, "b");
  EXPECT_EQ(client.answer().body, "hello");
}

// A read stops short at urgent data, whatever stands behind it.
TEST_F(ServerTest, LosesNothingBehindAByteThatIsMarkedUrgent) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a")));
  gates.await_waiting("a");
  const std::string text = get("/hello");
  ASSERT_TRUE(client.send(text.substr(0, 9)));
  ASSERT_TRUE(client.send_urgent("!"));
  ASSERT_TRUE(client.send(text.substr(9)));
  for (int i = 0; i < 10; ++i) barrier();
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  EXPECT_EQ(client.answer().body, "hello");
}

TEST_F(ServerTest, ReadsOnWhereOneReadDoesNotBringAll) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a")));
  gates.await_waiting("a");
  // Gathers in the kernel, several times what one read takes.
  constexpr int kRequests = 500;
  const std::string body(1000, 'b');
  std::string text;
  for (int i = 0; i < kRequests; ++i) text += post("/echo", body);
  std::thread sender([&] { EXPECT_TRUE(client.send(text)); });
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.answer().body, body) << i;
  sender.join();
  EXPECT_EQ(client.ask(get("/hello")).body, "hello");
}

TEST_F(ServerTest, AnswersOthersWhileOneSendsWithoutEnd) {
  start();
  Client busy(port);
  Client other_client(port);
  std::atomic<bool> enough{false};
  std::string text;
  for (int i = 0; i < 1000; ++i) text += post("/fast/1", "");
  std::thread sender([&] {
    while (!enough) EXPECT_TRUE(busy.send(text));
    busy.half_close();
  });
  std::thread reader([&] { busy.rest(); });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(other_client.ask(get("/hello")).body, "hello");
  enough = true;
  sender.join();
  reader.join();
}

TEST_F(ServerTest, SeesTheEndThatCameTogetherWithARequest) {
  start();
  for (int i = 0; i < 50; ++i) {
    Client client(port);
    ASSERT_TRUE(client.send(get("/hello")));
    client.half_close();
    EXPECT_EQ(client.answer().body, "hello");
    EXPECT_TRUE(client.at_end());
  }
  EXPECT_TRUE(eventually([this] { return connections() == 0; }));
}

// --- clients that leave ---

TEST_F(ServerTest, RunsAHandlerToItsEndAfterTheClientHasGone) {
  start();
  {
    Client client(port);
    ASSERT_TRUE(client.send(get("/slow/a")));
    gates.await_waiting("a");
  }
  gates.open("a");
  gates.await_passed(1);
  EXPECT_TRUE(eventually([this] { return answered("GET /slow/{name}", 200) == 1; }));
  EXPECT_TRUE(eventually([this] { return connections() == 0; }));
  Client next(port);
  EXPECT_EQ(next.ask(get("/hello")).body, "hello");
}

TEST_F(ServerTest, AnswersAClientThatHasOnlyClosedItsSide) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a") + get("/hello")));
  client.half_close();
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  EXPECT_EQ(client.answer().body, "hello");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, ForgetsAClientThatLeavesInTheMiddleOfARequest) {
  start();
  {
    Client client(port);
    ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"));
    ASSERT_TRUE(eventually([this] { return connections() == 1; }));
  }
  EXPECT_TRUE(eventually([this] { return connections() == 0; }));
}

// --- limits of the whole server ---

TEST_F(ServerTest, RefusesConnectionsBeyondTheLimit) {
  start({.max_connections = 2}, 2);
  auto first = std::make_unique<Client>(port);
  Client second(port);
  EXPECT_EQ(first->ask(get("/hello")).status, 200);
  EXPECT_EQ(second.ask(get("/hello")).status, 200);
  {
    Client third(port);
    ASSERT_TRUE(third.send(get("/hello")));
    const Answer answer = third.answer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.header("retry-after"), "1");
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(third.at_end());
  }
  EXPECT_EQ(refused("connections"), 1);
  first.reset();
  EXPECT_TRUE(eventually([this] {
    Client later(port);
    return later.ask(get("/hello")).status == 200;
  }));
  EXPECT_EQ(second.ask(get("/hello")).status, 200);
}

TEST_F(ServerTest, WaitsWhenThereAreNoFileDescriptorsAndDoesNotSpin) {
  start();
  Client before(port);
  EXPECT_EQ(before.ask(get("/hello")).status, 200);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  // The client's own descriptor comes first; the next free number is then the limit.
  const int reserved = ::dup(0);
  ASSERT_GE(reserved, 0);
  ::close(reserved);
  const auto begin = std::chrono::steady_clock::now();
  rlimit tight = usual;
  tight.rlim_cur = static_cast<rlim_t>(reserved) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  Client client(port);
  const bool met = eventually([this] { return refused("accept_error") >= 3; });
  const auto took = std::chrono::steady_clock::now() - begin;
  const std::int64_t tries = refused("accept_error");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(met);
  EXPECT_LE(tries, took / milliseconds{100} + 1);
  EXPECT_EQ(before.ask(get("/hello")).status, 200) << "open connections go on";
  EXPECT_EQ(client.ask(get("/hello")).status, 200) << "and the new one was not lost";
}

TEST_F(ServerTest, AnswersTenThousandRequestsOverAHundredConnections) {
  real_clock = true;
  start({}, 2);
  constexpr int kThreads = 4;
  constexpr int kConnections = 25;  // each thread
  constexpr int kRounds = 10;
  constexpr int kPipelined = 10;
  std::atomic<int> right{0};
  std::mutex mutex;
  std::set<std::string> loops_seen;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::unique_ptr<Client>> clients;
      for (int c = 0; c < kConnections; ++c) clients.push_back(std::make_unique<Client>(port));
      for (int round = 0; round < kRounds; ++round) {
        for (int c = 0; c < kConnections; ++c) {
          std::string text;
          for (int i = 0; i < kPipelined; ++i) {
            const std::string mark = std::to_string(((t * 100 + c) * 100 + round) * 100 + i);
            text += i % 2 == 0 ? post("/fast/" + mark, "") : post("/echo", mark);
          }
          clients[static_cast<std::size_t>(c)]->send(text);
        }
        for (int c = 0; c < kConnections; ++c) {
          for (int i = 0; i < kPipelined; ++i) {
            const std::string mark = std::to_string(((t * 100 + c) * 100 + round) * 100 + i);
            const Answer answer = clients[static_cast<std::size_t>(c)]->answer();
            const bool fine = i % 2 == 0 ? answer.status == 410 && answer.body == mark + "en"
                                         : answer.status == 200 && answer.body == mark;
            right += fine ? 1 : 0;
            const std::string id = answer.header("x-request-id");
            const std::lock_guard lock(mutex);
            loops_seen.insert(id.substr(0, id.rfind('-')));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * kConnections * kRounds * kPipelined);
  EXPECT_EQ(loops_seen.size(), 2U) << "both loops served";
  EXPECT_EQ(answered("POST /fast/{number}", 410), 5000);
  EXPECT_EQ(answered("POST /echo", 200), 5000);
}

// --- server-sent events ---

TEST_F(ServerTest, StreamsEventsOnceASecond) {
  silent_at = 3;
  end_at = 4;
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/events") + get("/hello")));
  const Answer head = client.head();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-type"), "text/event-stream");
  EXPECT_EQ(head.header("transfer-encoding"), "chunked");
  EXPECT_EQ(head.header("content-length"), "");
  EXPECT_EQ(client.chunk(), "data: 1\n\n") << "the first one at once";
  barrier();
  EXPECT_EQ(asked, 1);
  clock.advance(seconds{1} - milliseconds{1});
  barrier();
  clock.advance(milliseconds{1});
  EXPECT_EQ(client.chunk(), "data: 2\n\n");
  barrier();
  clock.advance(seconds{1});
  EXPECT_EQ(client.chunk(), ": \n\n") << "a sign of life";
  barrier();
  clock.advance(seconds{1});
  EXPECT_EQ(client.chunk(), "") << "the end of the stream";
  EXPECT_EQ(client.answer().body, "hello") << "and what was asked behind it";
  EXPECT_EQ(answered("GET /events", 200), 1);
}

TEST_F(ServerTest, BoundsEventStreamsAndFreesTheirPlaces) {
  start({.max_event_streams = 1});
  auto first = std::make_unique<Client>(port);
  ASSERT_TRUE(first->send(get("/events")));
  EXPECT_EQ(first->head().status, 200);
  Client second(port);
  const Answer busy = second.ask(get("/events"));
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.header("retry-after"), "1");
  EXPECT_EQ(refused("event_streams"), 1);
  // A client that leaves is noticed although nothing is sent to it.
  first.reset();
  EXPECT_TRUE(eventually([&] {
    Client later(port);
    return later.send(get("/events")) && later.head().status == 200;
  }));
}

TEST_F(ServerTest, StreamsToOldClientsUntilTheEndOfTheConnection) {
  end_at = 2;
  start();
  Client client(port);
  ASSERT_TRUE(client.send("GET /events HTTP/1.0\r\nHost: a\r\n\r\n"));
  const Answer head = client.head();
  EXPECT_EQ(head.header("transfer-encoding"), "");
  EXPECT_EQ(head.header("connection"), "close");
  EXPECT_EQ(client.read_bytes(9), "data: 1\n\n");
  barrier();
  clock.advance(seconds{1});
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, AnswersHeadOnAStreamWithItsHeadersOnly) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n" + get("/hello")));
  EXPECT_EQ(client.head().header("content-type"), "text/event-stream");
  EXPECT_EQ(client.answer().body, "hello");
  EXPECT_EQ(asked, 0);
}

// --- the end ---

TEST_F(ServerTest, StopsWithoutBreakingWhatIsInFlight) {
  start({}, 2);
  Client idle(port);
  EXPECT_EQ(idle.ask(get("/hello")).status, 200);
  Client streaming(port);
  ASSERT_TRUE(streaming.send(get("/events")));
  EXPECT_EQ(streaming.head().status, 200);
  EXPECT_EQ(streaming.chunk(), "data: 1\n\n");
  Client busy(port);
  ASSERT_TRUE(busy.send(get("/slow/a") + get("/hello")));
  Client half(port);
  EXPECT_EQ(half.ask(get("/hello") + "GET /hel").status, 200);
  gates.await_waiting("a");
  std::thread stopping([this] { server->stop(kPatience); });
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(streaming.chunk(), "");
  EXPECT_TRUE(streaming.at_end());
  EXPECT_FALSE(Client(port).connected()) << "nobody is accepted any more";
  ASSERT_TRUE(half.send("lo HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(half.answer().header("connection"), "close") << "what had begun is answered";
  EXPECT_TRUE(half.at_end());
  gates.open("a");
  const Answer answer = busy.answer();
  EXPECT_EQ(answer.body, "a");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(busy.at_end());
  idle.close();
  streaming.close();
  busy.close();
  half.close();
  stopping.join();
  EXPECT_EQ(connections(), 0);
}

TEST_F(ServerTest, StopsOnceTheLastAnswerIsTaken) {
  start();
  Client slow_reader(port, nullptr, 4096);
  ASSERT_TRUE(slow_reader.send(get("/big/33554432")));
  ASSERT_TRUE(eventually([this] { return answered("GET /big/{size}", 200) == 1; }));
  barrier();
  std::promise<void> stopped;
  std::thread stopping([&] {
    server->stop(kPatience * 2);
    stopped.set_value();
  });
  EXPECT_EQ(slow_reader.answer().body.size(), 33'554'432U);
  EXPECT_TRUE(slow_reader.at_end()) << "it has nothing more to wait for";
  slow_reader.close();
  EXPECT_EQ(stopped.get_future().wait_for(kPatience), std::future_status::ready);
  stopping.join();
}

TEST_F(ServerTest, StopsAfterTheGraceWhateverIsStillRunning) {
  start();
  Client client(port);
  ASSERT_TRUE(client.send(get("/slow/a")));
  gates.await_waiting("a");
  server->stop(milliseconds{20});
  EXPECT_EQ(client.rest(), "");
  server.reset();
  gates.open("a");
  gates.await_passed(1);
  barrier();
  EXPECT_EQ(answered("GET /slow/{name}", 200), 1) << "the handler ran to its end";
}

TEST_F(ServerTest, StopsTwiceAndAfterItsLoops) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/hello")).status, 200);
  loops[0]->stop();
  server->stop(milliseconds{0});
  server->stop(milliseconds{0});
}

// --- starting ---

TEST_F(ServerTest, DoesNotShareAPort) {
  start();
  const auto second = start_server({.port = port}, router, {loops[0].get()}, *metrics);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, common::ErrorCode::kBusy);
  EXPECT_THAT(second.error().message, HasSubstr("127.0.0.1 port " + std::to_string(port)));
}

TEST_F(ServerTest, GivesItsPortBackAtOnce) {
  start();
  Client client(port);
  EXPECT_EQ(client.ask(get("/hello")).status, 200);
  server.reset();
  const auto again = start_server({.port = port}, router, {loops[0].get()}, *metrics);
  ASSERT_TRUE(again) << again.error().message;
  Client next(port);
  EXPECT_EQ(next.ask(get("/hello")).status, 200);
}

TEST_F(ServerTest, RefusesSettingsThatCannotWork) {
  start();
  const auto error = [this](const ServerConfig& config) {
    const auto started = start_server(config, router, {loops[0].get()}, *metrics);
    return started ? common::ErrorCode::kInternal : started.error().code;
  };
  using common::ErrorCode;
  EXPECT_EQ(error({.address = "localhost", .port = 0}), ErrorCode::kInvalid);
  EXPECT_EQ(error({.address = "", .port = 0}), ErrorCode::kInvalid);
  EXPECT_EQ(error({.address = "192.0.2.1", .port = 0}), ErrorCode::kInvalid) << "not ours";
  EXPECT_EQ(error({.port = 0, .tls_certificate = "/nowhere.pem"}), ErrorCode::kInvalid);
  EXPECT_EQ(error({.port = 0, .tls_key = "/nowhere.pem"}), ErrorCode::kInvalid);
  EXPECT_EQ(error({.port = 0, .tls_certificate = "/nowhere.pem", .tls_key = "/nowhere.pem"}),
            ErrorCode::kInvalid);
}

// --- TLS ---

/// A self-signed certificate and its key in two files, which go with it.
class Certificate {
 public:
  Certificate() {
    static std::atomic<int> number{0};
    directory_ = std::filesystem::temp_directory_path() /
                 ("doorbuster-http-" + std::to_string(::getpid()) + "-" + std::to_string(++number));
    std::filesystem::create_directory(directory_);
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* const name = X509_get_subject_name(certificate);
    constexpr unsigned char kName[] = "localhost";
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, kName, -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    std::FILE* file = std::fopen(certificate_file().c_str(), "w");
    EXPECT_EQ(PEM_write_X509(file, certificate), 1);
    std::fclose(file);
    file = std::fopen(key_file().c_str(), "w");
    EXPECT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~Certificate() { std::filesystem::remove_all(directory_); }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  [[nodiscard]] std::string certificate_file() const { return directory_ / "certificate.pem"; }
  [[nodiscard]] std::string key_file() const { return directory_ / "key.pem"; }

 private:
  std::filesystem::path directory_;
};

class TlsTest : public ServerTest {
 protected:
  TlsTest() : context(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_locations(context, certificate.certificate_file().c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  ~TlsTest() override { SSL_CTX_free(context); }

  void start_tls(ServerConfig config = {}) {
    config.tls_certificate = certificate.certificate_file();
    config.tls_key = certificate.key_file();
    start(config);
  }

  Certificate certificate;
  SSL_CTX* context;
};

TEST_F(TlsTest, AnswersOverTls) {
  start_tls();
  Client client(port, context);
  ASSERT_TRUE(client.shaken());
  EXPECT_EQ(client.ask(get("/hello")).body, "hello");
  ASSERT_TRUE(client.send(post("/fast/1", "") + get("/slow/a") + post("/echo", "three")));
  EXPECT_EQ(client.answer().body, "1en");
  gates.open("a");
  EXPECT_EQ(client.answer().body, "a");
  EXPECT_EQ(client.answer().body, "three");
  EXPECT_EQ(client.ask(get("/big/5000000")).body.size(), 5'000'000U);
  for (const char c : post("/echo", "slowly")) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.answer().body, "slowly");
  EXPECT_EQ(client.ask(get("/hello", "Connection: close\r\n")).header("connection"), "close");
  EXPECT_TRUE(client.at_end()) << "with a goodbye, so that nobody can have cut it short";
}

TEST_F(TlsTest, HandlesRefusalsTimeoutsAndStreams) {
  end_at = 3;
  start_tls();
  Client bad(port, context);
  EXPECT_EQ(bad.ask("GET / HTTP/1.1\n").status, 400);
  EXPECT_TRUE(bad.at_end());
  Client slow(port, context);
  EXPECT_EQ(slow.ask(get("/hello") + "GET").status, 200);
  Client idle(port, context);
  EXPECT_EQ(idle.ask(get("/hello")).status, 200);
  barrier();
  clock.advance(seconds{10});
  EXPECT_EQ(slow.answer().status, 408);
  EXPECT_TRUE(slow.at_end());
  clock.advance(seconds{65});
  EXPECT_TRUE(idle.at_end());
  Client stream(port, context);
  ASSERT_TRUE(stream.send(get("/events")));
  EXPECT_EQ(stream.head().status, 200);
  EXPECT_EQ(stream.chunk(), "data: 1\n\n");
  barrier();
  clock.advance(seconds{1});
  EXPECT_EQ(stream.chunk(), "data: 2\n\n");
  barrier();
  clock.advance(seconds{1});
  EXPECT_EQ(stream.chunk(), "");
}

TEST_F(TlsTest, EndsAHandshakeThatDoesNot) {
  start_tls();
  Client client(port);
  ASSERT_TRUE(eventually([this] { return connections() == 1; }));
  barrier();
  clock.advance(seconds{10});
  EXPECT_EQ(client.rest(), "");
  EXPECT_EQ(timed_out("header"), 1);
}

TEST_F(TlsTest, RefusesPlainHttpAndOldVersions) {
  start_tls();
  Client plain(port);
  ASSERT_TRUE(plain.send(get("/hello")));
  EXPECT_THAT(plain.rest(), Not(HasSubstr("HTTP/1.1")));
  SSL_CTX_set_max_proto_version(context, TLS1_1_VERSION);
  SSL_CTX_set_security_level(context, 0);
  EXPECT_FALSE(Client(port, context).shaken());
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  Client fine(port, context);
  EXPECT_EQ(fine.ask(get("/hello")).body, "hello");
}

TEST_F(TlsTest, SurvivesAClientThatLeavesWithoutAWord) {
  start_tls();
  {
    Client client(port, context);
    ASSERT_TRUE(client.send(get("/slow/a")));
    gates.await_waiting("a");
  }
  gates.open("a");
  gates.await_passed(1);
  EXPECT_TRUE(eventually([this] { return connections() == 0; }));
  Client next(port, context);
  EXPECT_EQ(next.ask(get("/hello")).body, "hello");
}

TEST_F(TlsTest, WantsAKeyThatIsTheCertificates) {
  const Certificate stranger;
  start();
  const auto started = start_server({.port = 0,
                                     .tls_certificate = certificate.certificate_file(),
                                     .tls_key = stranger.key_file()},
                                    router, {loops[0].get()}, *metrics);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, common::ErrorCode::kInvalid);
}

}  // namespace
}  // namespace doorbuster::http

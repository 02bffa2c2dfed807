#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "edge/tests/support.hpp"
#include "edge/token.hpp"

namespace doorbuster::edge {
namespace {

using common::ErrorCode;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::base64;
using testing::Signer;

const std::string kSecret(32, 's');
std::string oct(const std::string& secret, const std::string& more = "") {
  return R"({"kty":"oct","k":")" + base64(secret) + "\"" + more + "}";
}

/// The only key in `text`, or what is wrong with it.
common::Result<VerificationKey> one(const std::string& text) {
  auto keys = parse_keys(text);
  if (!keys) return common::fail(keys.error());
  EXPECT_EQ(keys->size(), 1U);
  return keys->front();
}

ErrorCode error_of(const std::string& text) {
  const auto key = one(text);
  EXPECT_FALSE(key) << text;
  return key ? ErrorCode::kInternal : key.error().code;
}

// ---- parse_keys

TEST(Keys, AreReadFromAJwkOfEachKindAndPinnedToItsAlgorithm) {
  const auto secret = one(oct(kSecret, R"(,"kid":"k1")"));
  ASSERT_TRUE(secret);
  EXPECT_EQ(secret->algorithm, Algorithm::kHs256);
  EXPECT_EQ(secret->secret, kSecret);
  EXPECT_EQ(secret->kid, "k1");
  for (const Signer* signer : {&Signer::rsa(), &Signer::p256(), &Signer::ed25519()}) {
    const auto key = one(signer->jwk() + R"(,"kid":"k2","use":"sig"})");
    ASSERT_TRUE(key);
    EXPECT_EQ(*key, signer->key("k2"));
    EXPECT_TRUE(key->secret.empty());
  }
}

TEST(Keys, AreReadFromASetInWhichUnusableOnesAreSkipped) {
  const std::string set = R"({"keys":[)" + oct(kSecret, R"(,"kid":"a")") + R"(,{"kty":"new"},7,)" +
                          Signer::p256().jwk() + R"(,"kid":"b"},)" + Signer::rsa().jwk() +
                          R"(,"kid":"c","use":"enc"}]})";
  const auto keys = parse_keys(set);
  ASSERT_TRUE(keys);
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].kid, "a");
  EXPECT_EQ((*keys)[1].kid, "b");
}

TEST(Keys, AreReadFromOnePublicKeyInPem) {
  for (const Signer* signer : {&Signer::rsa(), &Signer::p256(), &Signer::ed25519()}) {
    const auto key = one("# made by hand\n" + signer->pem());
    ASSERT_TRUE(key);
    EXPECT_EQ(*key, signer->key(""));
  }
}

TEST(Keys, AreRefusedWhenNoneCanVerify) {
  for (const char* no : {"", "{", "[]", "null", "7", "hello", R"({"keys":[]})", R"({"keys":{}})",
                         R"({"keys":[7]})", "{}", R"({"kty":"oct"})", R"({"kty":7})",
                         "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
                         "-----BEGIN PUBLIC KEY-----", "-----BEGIN CERTIFICATE-----\n"}) {
    EXPECT_EQ(error_of(no), ErrorCode::kInvalid) << no;
  }
}

TEST(Keys, OfHs256HaveThirtyTwoBytesOrMore) {
  EXPECT_TRUE(one(oct(std::string(32, 'x'))));
  EXPECT_EQ(error_of(oct(std::string(31, 'x'))), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(oct("")), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(R"({"kty":"oct","k":")" + base64(kSecret) + R"(="})"), ErrorCode::kInvalid);
}

TEST(Keys, OfRsaHave2048To8192Bits) {
  const auto pem_of = [](unsigned bits) {
    return Signer(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", static_cast<std::size_t>(bits)),
                  Algorithm::kRs256)
        .pem();
  };
  EXPECT_TRUE(one(pem_of(2048)));
  EXPECT_EQ(error_of(pem_of(2040)), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(pem_of(1024)), ErrorCode::kInvalid);
  const auto modulus_of = [](std::size_t bytes) {
    return R"({"kty":"RSA","e":"AQAB","n":")" + base64(std::string(bytes, '\xFF')) + "\"}";
  };
  EXPECT_TRUE(one(modulus_of(1024)));
  EXPECT_EQ(error_of(modulus_of(1025)), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(modulus_of(255)), ErrorCode::kInvalid);
}

TEST(Keys, OfRsaHaveAnExponentThatSigns) {
  const std::string modulus = base64(std::string(256, '\xFF'));
  const auto with_exponent = [&](std::string_view e) {
    return R"({"kty":"RSA","n":")" + modulus + R"(","e":")" + std::string(e) + "\"}";
  };
  EXPECT_TRUE(one(with_exponent("Aw")));
  EXPECT_EQ(error_of(with_exponent("AQ")), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(with_exponent("AAE")), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(with_exponent("AA")), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(with_exponent("")), ErrorCode::kInvalid);
}

TEST(Keys, OfOtherCurvesAreRefused) {
  for (const char* curve : {"P-384", "P-521", "secp256k1"}) {
    EXPECT_EQ(error_of(Signer(EVP_EC_gen(curve), Algorithm::kEs256).pem()), ErrorCode::kInvalid);
  }
  EXPECT_EQ(error_of(Signer(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED448"), Algorithm::kEdDsa).pem()),
            ErrorCode::kInvalid);
  EXPECT_EQ(
      error_of(Signer(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"), Algorithm::kEdDsa).pem()),
      ErrorCode::kInvalid);
  std::string p384 = Signer::p256().jwk() + "}";
  p384.replace(p384.find("P-256"), 5, "P-384");
  EXPECT_EQ(error_of(p384), ErrorCode::kInvalid);
}

TEST(Keys, OfAPointThatIsNotOnTheCurveAreRefused) {
  const std::string coordinate = base64(std::string(32, '\x01'));
  EXPECT_EQ(error_of(R"({"kty":"EC","crv":"P-256","x":")" + coordinate + R"(","y":")" + coordinate +
                     "\"}"),
            ErrorCode::kInvalid);
}

TEST(Keys, ForOtherPurposesOrAlgorithmsAreRefused) {
  const std::string rsa = Signer::rsa().jwk();
  EXPECT_TRUE(one(rsa + R"(,"alg":"RS256"})"));
  EXPECT_TRUE(one(rsa + R"(,"key_ops":["sign","verify"]})"));
  EXPECT_EQ(error_of(rsa + R"(,"alg":"RS512"})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(rsa + R"(,"alg":"PS256"})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(rsa + R"(,"alg":"HS256"})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(rsa + R"(,"use":"enc"})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(rsa + R"(,"key_ops":["encrypt"]})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(rsa + R"(,"key_ops":"verify"})"), ErrorCode::kInvalid);
  EXPECT_EQ(error_of(oct(kSecret, R"(,"alg":"HS512")")), ErrorCode::kInvalid);
}

// ---- where keys come from

/// A file of its own that goes with the test.
class KeyFile {
 public:
  KeyFile() {
    std::string pattern = std::filesystem::temp_directory_path() / "doorbuster-keys-XXXXXX";
    const int file = ::mkstemp(pattern.data());
    EXPECT_GE(file, 0);
    ::close(file);
    path_ = pattern;
  }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  ~KeyFile() { std::filesystem::remove(path_); }

  void write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// An HTTP server on this machine that gives the same answer to every request.
class KeyServer {
 public:
  KeyServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  KeyServer(const KeyServer&) = delete;
  KeyServer& operator=(const KeyServer&) = delete;
  ~KeyServer() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/keys.json";
  }
  void answer(const std::string& body, const std::string& status = "200 OK",
              const std::string& headers = "") {
    const std::lock_guard lock(mutex_);
    answer_ = "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + headers +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  /// From now on requests are taken and not answered.
  void keep_silent() {
    const std::lock_guard lock(mutex_);
    answer_.clear();
  }
  void wait_for_requests(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_ >= count; });
  }
  /// Whether one more request than `count` comes within `patience`.
  [[nodiscard]] bool more_than(int count, milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return requests_ > count; });
  }
  [[nodiscard]] std::string last_request() {
    const std::lock_guard lock(mutex_);
    return last_request_;
  }

 private:
  void run() {
    for (;;) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      serve(client);
      ::close(client);
    }
  }

  void serve(int client) {
    std::string request;
    char buffer[1024];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      request.append(buffer, static_cast<std::size_t>(got));
    }
    std::unique_lock lock(mutex_);
    ++requests_;
    last_request_ = request;
    changed_.notify_all();
    if (answer_.empty()) {
      // Until the client hangs up or the test ends.
      while (!stopping_) {
        pollfd hangup{client, POLLIN, 0};
        lock.unlock();
        const int gone = ::poll(&hangup, 1, 5);
        lock.lock();
        if (gone > 0) break;
      }
      return;
    }
    const std::string answer = answer_;
    lock.unlock();
    for (std::size_t sent = 0; sent < answer.size();) {
      const ssize_t more = ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<std::size_t>(more);
    }
  }

  int listener_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string answer_;        // Guarded by mutex_.
  std::string last_request_;  // Guarded by mutex_.
  int requests_ = 0;          // Guarded by mutex_.
  bool stopping_ = false;     // Guarded by mutex_.
  std::thread thread_;
};

class KeySourceTest : public ::testing::Test {
 protected:
  KeySourceTest() {
    // A proxy of the environment has no business with this machine's own addresses.
    ::setenv("no_proxy", "*", 1);
    config_.location = server_.url();
  }

  common::Result<std::vector<VerificationKey>> fetch() const { return fetch_keys(config_); }

  KeyServer server_;
  KeySourceConfig config_;
};

TEST_F(KeySourceTest, ReadsAFile) {
  const KeyFile file;
  file.write(oct(kSecret));
  config_.location = file.path();
  const auto keys = fetch();
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->front().secret, kSecret);
}

TEST_F(KeySourceTest, ReadsAFileOfJustTheLargestSizeAndNoLarger) {
  const KeyFile file;
  const std::string text = oct(kSecret);
  file.write(text);
  config_.location = file.path();
  config_.max_bytes = text.size();
  EXPECT_TRUE(fetch());
  config_.max_bytes = text.size() - 1;
  EXPECT_EQ(fetch().error().code, ErrorCode::kInvalid);
  EXPECT_THAT(fetch().error().message, ::testing::HasSubstr("has more than"));
}

TEST_F(KeySourceTest, SaysWhenThereIsNoFile) {
  config_.location = "/nonexistent/keys.json";
  EXPECT_EQ(fetch().error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fetch().error().message,
            "token keys in /nonexistent/keys.json: the file cannot be opened");
}

TEST_F(KeySourceTest, TakesOnlyHttpAndHttpsForUrls) {
  for (const char* location :
       {"file:///etc/hostname", "ftp://127.0.0.1/keys", "gopher://127.0.0.1/"}) {
    config_.location = location;
    EXPECT_EQ(fetch().error().code, ErrorCode::kNotFound) << "read as a path: " << location;
  }
}

TEST_F(KeySourceTest, FetchesAUrl) {
  server_.answer(R"({"keys":[)" + Signer::p256().jwk() + R"(,"kid":"k1"}]})");
  const auto keys = fetch();
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->front(), Signer::p256().key("k1"));
  EXPECT_THAT(server_.last_request(), ::testing::StartsWith("GET /keys.json HTTP/1.1\r\n"));
}

TEST_F(KeySourceTest, TakesOnlyAnAnswerOf200) {
  for (const char* status : {"201 Created", "204 No Content", "404 Not Found", "500 Oops"}) {
    server_.answer(oct(kSecret), status);
    EXPECT_EQ(fetch().error().code, ErrorCode::kUnavailable) << status;
  }
}

TEST_F(KeySourceTest, FollowsNoRedirect) {
  KeyServer elsewhere;
  elsewhere.answer(oct(kSecret));
  server_.answer("", "302 Found", "Location: " + elsewhere.url() + "\r\n");
  EXPECT_EQ(fetch().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(elsewhere.last_request(), "");
}

TEST_F(KeySourceTest, TakesAnAnswerOfJustTheLargestSizeAndNoLarger) {
  const std::string text = oct(kSecret);
  server_.answer(text);
  config_.max_bytes = text.size();
  EXPECT_TRUE(fetch());
  config_.max_bytes = text.size() - 1;
  EXPECT_EQ(fetch().error().code, ErrorCode::kInvalid);
  EXPECT_THAT(fetch().error().message, ::testing::HasSubstr("has more than"));
}

TEST_F(KeySourceTest, GivesUpWhenNoAnswerComesInTime) {
  server_.keep_silent();
  config_.timeout = milliseconds{50};
  EXPECT_EQ(fetch().error().code, ErrorCode::kTimeout);
}

TEST_F(KeySourceTest, SaysWhenNobodyListens) {
  {
    const KeyServer gone;
    config_.location = gone.url();
  }
  EXPECT_EQ(fetch().error().code, ErrorCode::kUnavailable);
}

TEST_F(KeySourceTest, SaysWhenTheAnswerIsNoKey) {
  server_.answer("<html>log in</html>");
  EXPECT_EQ(fetch().error().code, ErrorCode::kInvalid);
}

/// A verifier that only notes what it is given.
class FakeVerifier final : public TokenVerifier {
 public:
  tl::expected<common::MemberId, TokenRefusal> member(std::string_view, common::Instant) override {
    return tl::make_unexpected(TokenRefusal::kMissing);
  }
  tl::expected<std::string, TokenRefusal> admin(std::string_view, common::Instant) override {
    return tl::make_unexpected(TokenRefusal::kMissing);
  }
  void replace_keys(std::vector<VerificationKey> keys) override {
    const std::lock_guard lock(mutex_);
    given_.push_back(keys.front().kid);
    changed_.notify_all();
  }
  void on_unknown_key(std::function<void()>) override {}

  /// The kid of the keys given as the `count`-th.
  [[nodiscard]] std::string wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return given_.size() >= count; });
    return given_[count - 1];
  }
  [[nodiscard]] std::size_t given() {
    const std::lock_guard lock(mutex_);
    return given_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> given_;  // Guarded by mutex_.
};

class RunningKeySource : public KeySourceTest {
 protected:
  RunningKeySource() {
    config_.refresh = hours{1};
    config_.min_interval = seconds{10};
    server_.answer(oct(kSecret, R"(,"kid":"first")"));
  }
  std::unique_ptr<KeySource> run() {
    return start_key_source(config_, verifier_, clock_, *metrics_);
  }
  [[nodiscard]] std::int64_t refreshes(const char* result) {
    return metrics_->counter("edge_key_refreshes_total", "", {{"result", result}}).value();
  }

  common::ManualClock clock_{testing::kNow};
  std::unique_ptr<common::Metrics> metrics_ = common::make_metrics();
  FakeVerifier verifier_;
};

TEST_F(RunningKeySource, ReadsTheKeysAgainAndAgain) {
  config_.refresh = seconds{0};
  const auto source = run();
  EXPECT_EQ(verifier_.wait_for(1), "first");
  server_.answer(oct(kSecret, R"(,"kid":"second")"));
  std::size_t next = verifier_.given() + 1;
  while (verifier_.wait_for(next) != "second") ++next;
  source->stop();
  EXPECT_EQ(refreshes("ok"), static_cast<std::int64_t>(verifier_.given()));
  EXPECT_EQ(refreshes("failed"), 0);
}

TEST_F(RunningKeySource, ReadsThemAtOnceWhenAskedAndTheLastTimeIsLongEnoughAgo) {
  const auto source = run();
  clock_.advance(config_.min_interval);
  source->want_refresh();
  EXPECT_EQ(verifier_.wait_for(1), "first");
  clock_.advance(config_.min_interval);
  server_.answer(oct(kSecret, R"(,"kid":"second")"));
  source->want_refresh();
  EXPECT_EQ(verifier_.wait_for(2), "second");
}

TEST_F(RunningKeySource, DoesNotLetAFloodOfUnknownKeysThroughToTheProvider) {
  const auto source = run();
  clock_.advance(config_.min_interval);
  for (int i = 0; i < 1000; ++i) source->want_refresh();
  server_.wait_for_requests(1);
  static_cast<void>(verifier_.wait_for(1));
  clock_.advance(config_.min_interval - seconds{1});
  for (int i = 0; i < 1000; ++i) source->want_refresh();
  EXPECT_FALSE(server_.more_than(1, milliseconds{100}));
}

TEST_F(RunningKeySource, KeepsTheOldKeysWhenARefreshFails) {
  const auto source = run();
  server_.answer("", "503 Service Unavailable");
  clock_.advance(config_.min_interval);
  source->want_refresh();
  server_.wait_for_requests(1);
  server_.answer(oct(kSecret, R"(,"kid":"again")"));
  while (refreshes("failed") == 0) std::this_thread::yield();
  EXPECT_EQ(verifier_.given(), 0U);
  clock_.advance(config_.min_interval);
  source->want_refresh();
  EXPECT_EQ(verifier_.wait_for(1), "again") << "and now it works again";
  source->stop();
  EXPECT_EQ(refreshes("failed"), 1);
  EXPECT_EQ(refreshes("ok"), 1);
}

TEST_F(RunningKeySource, StopsWithoutWaitingForAnAnswerThatDoesNotCome) {
  config_.timeout = hours{1};
  server_.keep_silent();
  const auto source = run();
  clock_.advance(config_.min_interval);
  source->want_refresh();
  server_.wait_for_requests(1);
  source->stop();  // the test would end with the hour
  source->stop();
  source->want_refresh();
  EXPECT_EQ(refreshes("failed"), 0) << "stopping is no failure";
}

TEST_F(RunningKeySource, StopsWhileItHoldsARefreshBack) {
  const auto source = run();
  source->want_refresh();  // too early, so it waits for its time
  source->stop();
  EXPECT_FALSE(server_.more_than(0, milliseconds{0}));
}

}  // namespace
}  // namespace doorbuster::edge

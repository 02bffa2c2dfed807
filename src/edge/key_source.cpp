#include <curl/curl.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "common/log.hpp"
#include "edge/token.hpp"

namespace doorbuster::edge {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

bool is_url(const std::string& location) {
  return location.rfind("http://", 0) == 0 || location.rfind("https://", 0) == 0;
}

/// What the callbacks of one transfer share.
struct Download {
  std::string body;
  std::size_t max_bytes = 0;
  bool too_large = false;
  const std::atomic<bool>* stopping = nullptr;
};

extern "C" std::size_t take_bytes(char* data, std::size_t size, std::size_t count, void* to) {
  auto* download = static_cast<Download*>(to);
  const std::size_t bytes = size * count;
  if (bytes > download->max_bytes - download->body.size()) {
    // Fewer bytes taken than offered end the transfer.
    download->too_large = true;
    return 0;
  }
  download->body.append(data, bytes);
  return bytes;
}

/// Called about once a second, also while nothing arrives; anything but 0 ends the transfer.
extern "C" int ask_whether_to_end(void* to, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const Download*>(to)->stopping->load() ? 1 : 0;
}

struct EasyCleanup {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

Result<std::string> download(const KeySourceConfig& config, const std::atomic<bool>& stopping) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  const std::unique_ptr<CURL, EasyCleanup> curl(ready ? curl_easy_init() : nullptr);
  if (!curl) return fail(ErrorCode::kInternal, "the HTTP client cannot start");
  Download to{.body = {}, .max_bytes = config.max_bytes, .too_large = false, .stopping = &stopping};
  curl_easy_setopt(curl.get(), CURLOPT_URL, config.location.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  // Whoever can answer with a redirect must not choose whose keys are trusted.
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 0L);
  // A timeout by signal would hit the whole process.
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(config.timeout.count()));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &to);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, ask_whether_to_end);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &to);
  const CURLcode code = curl_easy_perform(curl.get());
  if (to.too_large) {
    return fail(ErrorCode::kInvalid,
                "the answer has more than " + std::to_string(config.max_bytes) + " bytes");
  }
  if (code != CURLE_OK) {
    return fail(code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kUnavailable,
                curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    return fail(ErrorCode::kUnavailable, "the answer was " + std::to_string(status) + ", not 200");
  }
  return std::move(to.body);
}

Result<std::string> read_file(const KeySourceConfig& config) {
  std::ifstream file(config.location, std::ios::binary);
  if (!file) return fail(ErrorCode::kNotFound, "the file cannot be opened");
  // One byte more than allowed tells a file that is too large from one that just fits.
  std::string text(config.max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::kIo, "the file cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > config.max_bytes) {
    return fail(ErrorCode::kInvalid,
                "the file has more than " + std::to_string(config.max_bytes) + " bytes");
  }
  return text;
}

Result<std::vector<VerificationKey>> fetch(const KeySourceConfig& config,
                                           const std::atomic<bool>& stopping) {
  const Result<std::string> text =
      is_url(config.location) ? download(config, stopping) : read_file(config);
  Result<std::vector<VerificationKey>> keys =
      text ? parse_keys(*text) : Result<std::vector<VerificationKey>>(fail(text.error()));
  // A URL may carry a password, so only a file is named.
  const std::string where = is_url(config.location) ? "" : " in " + config.location;
  if (!keys) keys.error().message.insert(0, "token keys" + where + ": ");
  return keys;
}

class Source final : public KeySource {
 public:
  Source(KeySourceConfig config, TokenVerifier& verifier, const common::Clock& clock,
         common::Metrics& metrics)
      : config_(std::move(config)),
        verifier_(verifier),
        clock_(clock),
        refreshed_(metrics.counter("edge_key_refreshes_total",
                                   "Refreshes of the token keys, by result", {{"result", "ok"}})),
        failed_(metrics.counter("edge_key_refreshes_total",
                                "Refreshes of the token keys, by result", {{"result", "failed"}})),
        last_(clock.steady()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Source() override { stop(); }

  void want_refresh() noexcept override {
    const std::lock_guard lock(mutex_);
    // Said already: a flood of tokens with invented kids wakes nobody up again.
    if (wanted_) return;
    wanted_ = true;
    woken_.notify_one();
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_.store(true);
    }
    woken_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      woken_.wait_for(lock, config_.refresh, [this] { return stopping_.load() || wanted_; });
      if (wanted_) {
        // Tokens with invented kids must not turn into a request to the provider each.
        const auto next = last_ + config_.min_interval;
        while (!stopping_.load() && clock_.steady() < next) {
          woken_.wait_for(lock, next - clock_.steady());
        }
      }
      if (stopping_.load()) return;
      wanted_ = false;
      last_ = clock_.steady();
      lock.unlock();
      refresh();
      lock.lock();
    }
  }

  void refresh() {
    Result<std::vector<VerificationKey>> keys = fetch(config_, stopping_);
    if (keys) {
      verifier_.replace_keys(std::move(*keys));
      refreshed_.add();
      return;
    }
    if (stopping_.load()) return;
    failed_.add();
    common::log(common::LogLevel::kWarn, "token keys could not be refreshed; the old ones stay",
                {{"why", std::string_view(keys.error().message)}});
  }

  const KeySourceConfig config_;
  TokenVerifier& verifier_;
  const common::Clock& clock_;
  common::Counter& refreshed_;
  common::Counter& failed_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wanted_ = false;  // Guarded by mutex_.
  // Set under mutex_, so that no wait misses it; also read without, by a transfer that is under
  // way.
  std::atomic<bool> stopping_{false};
  common::Steady last_;  // Only touched by the thread and the constructor.
  std::thread thread_;
};

}  // namespace

Result<std::vector<VerificationKey>> fetch_keys(const KeySourceConfig& config) {
  const std::atomic<bool> never{false};
  return fetch(config, never);
}

std::unique_ptr<KeySource> start_key_source(const KeySourceConfig& config, TokenVerifier& verifier,
                                            const common::Clock& clock, common::Metrics& metrics) {
  return std::make_unique<Source>(config, verifier, clock, metrics);
}

}  // namespace doorbuster::edge

#include <curl/curl.h>

#include <condition_variable>
#include <fstream>
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

struct Download {
  std::string body;
  std::size_t max = 0;
};

extern "C" std::size_t take_bytes(char* data, std::size_t size, std::size_t count, void* to) {
  auto* download = static_cast<Download*>(to);
  const std::size_t bytes = size * count;
  // Fewer bytes taken than offered end the transfer.
  if (download->body.size() + bytes > download->max) return 0;
  download->body.append(data, bytes);
  return bytes;
}

Result<std::string> download(const KeySourceConfig& config) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  CURL* curl = ready ? curl_easy_init() : nullptr;
  if (curl == nullptr) return fail(ErrorCode::kInternal, "the HTTP client cannot start");
  Download to{{}, config.max_bytes};
  curl_easy_setopt(curl, CURLOPT_URL, config.location.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(config.timeout.count()));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &to);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(curl);
  if (code != CURLE_OK) {
    return fail(code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kUnavailable,
                config.location + ": " + curl_easy_strerror(code));
  }
  if (status != 200) {
    return fail(ErrorCode::kUnavailable, config.location + " answered " + std::to_string(status));
  }
  return std::move(to.body);
}

Result<std::string> read_file(const KeySourceConfig& config) {
  std::ifstream file(config.location, std::ios::binary);
  if (!file) return fail(ErrorCode::kNotFound, config.location + " cannot be read");
  std::string text(config.max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > config.max_bytes) return fail(ErrorCode::kInvalid, config.location + " is too large");
  return text;
}

class Source final : public KeySource {
 public:
  Source(KeySourceConfig config, TokenVerifier& verifier, const common::Clock& clock,
         common::Metrics& metrics)
      : config_(std::move(config)),
        verifier_(verifier),
        clock_(clock),
        refreshed_(metrics.counter("edge_key_refreshes_total", "Refreshes of the token keys, by result",
                                   {{"result", "ok"}})),
        failed_(metrics.counter("edge_key_refreshes_total", "Refreshes of the token keys, by result",
                                {{"result", "failed"}})),
        last_(clock.steady()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Source() override { stop(); }

  void want_refresh() noexcept override {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
    woken_.notify_one();
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    woken_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      woken_.wait_for(lock, config_.refresh, [this] { return stopping_ || wanted_; });
      if (stopping_) return;
      if (wanted_) {
        // Tokens with invented kids must not turn into requests to the provider.
        const auto since = clock_.steady() - last_;
        if (since < config_.min_interval) {
          woken_.wait_for(lock, config_.min_interval - since, [this] { return stopping_; });
          if (stopping_) return;
        }
      }
      wanted_ = false;
      last_ = clock_.steady();
      lock.unlock();
      refresh();
      lock.lock();
    }
  }

  void refresh() {
    Result<std::vector<VerificationKey>> keys = fetch_keys(config_);
    if (keys) {
      verifier_.replace_keys(std::move(*keys));
      refreshed_.add();
      return;
    }
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
  bool wanted_ = false;     // Guarded by mutex_.
  bool stopping_ = false;   // Guarded by mutex_.
  common::Steady last_;     // Only touched by the thread and the constructor.
  std::thread thread_;
};

}  // namespace

Result<std::vector<VerificationKey>> fetch_keys(const KeySourceConfig& config) {
  const Result<std::string> text = is_url(config.location) ? download(config) : read_file(config);
  if (!text) return fail(text.error());
  return parse_keys(*text);
}

std::unique_ptr<KeySource> start_key_source(const KeySourceConfig& config, TokenVerifier& verifier,
                                            const common::Clock& clock, common::Metrics& metrics) {
  return std::make_unique<Source>(config, verifier, clock, metrics);
}

}  // namespace doorbuster::edge

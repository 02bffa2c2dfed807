#include "app/api_client.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include "common/clock.hpp"
#include "edge/token.hpp"

namespace doorbuster::app {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

constexpr long kTimeoutMs = 60'000;  // a rebuild of a large sale may take a while
constexpr std::size_t kMaxAnswer = 64 * 1024 * 1024;

extern "C" std::size_t append_bytes(char* data, std::size_t size, std::size_t count, void* to) {
  auto* body = static_cast<std::string*>(to);
  if (body->size() + size * count > kMaxAnswer) return 0;
  body->append(data, size * count);
  return size * count;
}

}  // namespace

ApiClient::ApiClient(std::string url, std::string token)
    : url_(std::move(url)), token_(std::move(token)) {
  if (token_.empty()) {
    const common::Instant now = common::SystemClock().now();
    token_ = edge::make_hs256_token({.subject = "command-line",
                                     .audience = "doorbuster-admin",
                                     .issued_at = now,
                                     .expires_at = now + std::chrono::hours{1}},
                                    edge::development_key());
  }
}

Result<ApiClient::Answer> ApiClient::call(std::string_view method, const std::string& path,
                                          const std::string& body) const {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  CURL* curl = ready ? curl_easy_init() : nullptr;
  if (curl == nullptr) return fail(ErrorCode::kInternal, "the HTTP client cannot start");
  Answer answer;
  const std::string url = url_ + path;
  const std::string verb(method);
  curl_slist* headers = curl_slist_append(nullptr, ("Authorization: Bearer " + token_).c_str());
  headers = curl_slist_append(headers, "Content-Type: application/json");
  headers = curl_slist_append(headers, "Expect:");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, verb.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (method != "GET") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append_bytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(curl);
  curl_slist_free_all(headers);
  answer.status = static_cast<int>(status);
  if (code == CURLE_OK) return answer;
  return fail(code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kUnavailable,
              fmt::format("{} does not answer ({}); is the server running?", url_,
                          curl_easy_strerror(code)));
}

Result<std::string> ApiClient::expect_ok(std::string_view method, const std::string& path,
                                         const std::string& body) const {
  Result<Answer> answer = call(method, path, body);
  if (!answer) return fail(answer.error());
  if (answer->status >= 200 && answer->status < 300) return std::move(answer->body);
  return fail(ErrorCode::kConflict,
              fmt::format("{} {} answered {}: {}", method, path, answer->status, answer->body));
}

}  // namespace doorbuster::app

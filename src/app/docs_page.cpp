#include "app/docs_page.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "common/result.hpp"

namespace doorbuster::app {
namespace {

using common::Task;
using http::Request;
using http::Response;

/// A new version of the program brings a new contract, so nobody may keep the old one for long.
constexpr std::string_view kCacheControl = "public, max-age=300";

std::string style_hash(std::string_view html) {
  constexpr std::string_view kBegin = "<style>";
  const std::size_t begin = html.find(kBegin) + kBegin.size();
  const std::size_t end = html.find("</style>", begin);
  DOORBUSTER_ENSURE(end != std::string_view::npos, "the page was made with its style inside");
  const std::string_view style = html.substr(begin, end - begin);

  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  DOORBUSTER_ENSURE(
      EVP_Digest(style.data(), style.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1,
      "OpenSSL has SHA-256");
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> base64{};
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(size));
  return std::string(base64.begin(), base64.begin() + length);
}

Response contract() {
  return Response{.status = 200,
                  .body = std::string(openapi_yaml()),
                  .content_type = "application/yaml",
                  .headers = {{"Cache-Control", std::string(kCacheControl)}},
                  .events = {}};
}

Response page() {
  return Response{.status = 200,
                  .body = std::string(docs_html()),
                  .content_type = "text/html; charset=utf-8",
                  .headers = {{"Cache-Control", std::string(kCacheControl)},
                              {"Content-Security-Policy", docs_content_security_policy()},
                              {"Referrer-Policy", "no-referrer"}},
                  .events = {}};
}

// A coroutine owns its request although it does not look at it: that is the handler's contract.
Task<Response> answer_contract([[maybe_unused]] Request request) { co_return contract(); }
Task<Response> answer_page([[maybe_unused]] Request request) { co_return page(); }

}  // namespace

const std::string& docs_content_security_policy() {
  static const std::string policy = fmt::format(
      "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'",
      style_hash(docs_html()));
  return policy;
}

void add_docs_routes(http::Router& router) {
  router.add({.method = http::Method::kGet,
              .pattern = "/openapi.yaml",
              .handler = answer_contract,
              .fast = {}});
  router.add(
      {.method = http::Method::kGet, .pattern = "/docs", .handler = answer_page, .fast = {}});
}

}  // namespace doorbuster::app

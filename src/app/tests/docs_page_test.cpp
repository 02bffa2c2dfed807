#include "app/docs_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace doorbuster::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

YAML::Node contract() { return YAML::Load(std::string(openapi_yaml())); }

/// Walks the contract's operations.
template <class Function>
void for_each_operation(const YAML::Node& root, Function function) {
  for (const auto& item : root["paths"]) {
    for (const auto& entry : item.second) {
      if (entry.first.Scalar() == "parameters") continue;
      function(upper(entry.first.Scalar()) + " " + item.first.Scalar(), entry.second);
    }
  }
}

/// All error codes that a schema allows in its field "error".
void collect_codes(const YAML::Node& schema, std::set<std::string>& codes) {
  if (!schema) return;
  if (const YAML::Node all = schema["allOf"]) {
    for (const auto& part : all) collect_codes(part, codes);
  }
  if (const YAML::Node properties = schema["properties"]) {
    const YAML::Node error = properties["error"];
    if (error && error["const"]) codes.insert(error["const"].Scalar());
    if (error && error["enum"]) {
      for (const auto& code : error["enum"]) codes.insert(code.Scalar());
    }
  }
}

TEST(Contract, IsServedAsItStandsInTheFile) {
  std::ifstream file(DOORBUSTER_SOURCE_DIR "/api/openapi.yaml", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(openapi_yaml(), text.str());
}

TEST(Contract, ListsItsRoutesSortedForTheRoutersComparison) {
  std::vector<std::string> wanted;
  for_each_operation(contract(),
                     [&](const std::string& route, const YAML::Node&) { wanted.push_back(route); });
  std::sort(wanted.begin(), wanted.end());
  const std::vector<std::string> listed(openapi_routes().begin(), openapi_routes().end());
  EXPECT_EQ(listed, wanted);
  EXPECT_THAT(listed, testing::Contains("POST /api/flash-sales/items/{itemId}/purchase"));
}

TEST(Contract, GivesOneCodeOneStatusEverywhere) {
  const YAML::Node root = contract();
  std::map<std::string, std::set<std::string>> statuses;
  for_each_operation(root, [&](const std::string& route, const YAML::Node& operation) {
    for (const auto& entry : operation["responses"]) {
      YAML::Node response = entry.second;
      if (const YAML::Node ref = response["$ref"]) {
        const std::string name = ref.Scalar().substr(ref.Scalar().rfind('/') + 1);
        response = root["components"]["responses"][name];
      }
      std::set<std::string> codes;
      collect_codes(response["content"]["application/json"]["schema"], codes);
      const std::string status = entry.first.Scalar();
      EXPECT_TRUE(status < "400" || !codes.empty()) << route << " " << status << " names no code";
      for (const std::string& code : codes) statuses[code].insert(status);
    }
  });
  // Programs out there branch on these: a code that goes, moves or comes is a decision, made here
  // too.
  const std::map<std::string, std::set<std::string>> promised{{"INVALID_BODY", {"400"}},
                                                              {"INVALID_PARAMETER", {"400"}},
                                                              {"KEY_REQUIRED", {"400"}},
                                                              {"UNAUTHORIZED", {"401"}},
                                                              {"PAYMENT_DECLINED", {"402"}},
                                                              {"FORBIDDEN", {"403"}},
                                                              {"NOT_OPEN", {"403"}},
                                                              {"PAUSED", {"403"}},
                                                              {"CLOSED", {"403"}},
                                                              {"NOT_FOUND", {"404"}},
                                                              {"ALREADY_PURCHASED", {"409"}},
                                                              {"NOT_READY", {"409"}},
                                                              {"PAYMENT_IN_PROGRESS", {"409"}},
                                                              {"ALREADY_PAID", {"409"}},
                                                              {"HOLD_EXPIRED", {"409"}},
                                                              {"CANCELED", {"409"}},
                                                              {"REJECTED", {"409"}},
                                                              {"ALREADY_BEGUN", {"409"}},
                                                              {"WRONG_STATE", {"409"}},
                                                              {"NO_ITEMS", {"409"}},
                                                              {"SOLD_OUT", {"410"}},
                                                              {"PAYLOAD_TOO_LARGE", {"413"}},
                                                              {"UNSUPPORTED_MEDIA_TYPE", {"415"}},
                                                              {"KEY_REUSED", {"422"}},
                                                              {"AMOUNT_MISMATCH", {"422"}},
                                                              {"INTERNAL", {"500"}},
                                                              {"BUSY", {"503"}},
                                                              {"PAYMENT_UNKNOWN", {"202"}},
                                                              {"UNAVAILABLE", {"503"}}};
  EXPECT_EQ(statuses, promised);
}

TEST(Contract, EveryRouteCanSayThatItIsBusyOrBroken) {
  for_each_operation(contract(), [](const std::string& route, const YAML::Node& operation) {
    EXPECT_TRUE(operation["responses"]["500"]) << route;
    EXPECT_TRUE(operation["responses"]["503"]) << route;
    const bool guarded = operation["security"] && operation["security"].size() > 0;
    EXPECT_EQ(static_cast<bool>(operation["responses"]["401"]), guarded) << route;
  });
}

TEST(DocsPage, ShowsEveryRouteWithASectionOfItsOwn) {
  for_each_operation(contract(), [](const std::string& route, const YAML::Node& operation) {
    const std::string id = operation["operationId"].Scalar();
    EXPECT_THAT(std::string(docs_html()), HasSubstr("<h3 id=\"" + id + "\">")) << route;
    EXPECT_THAT(std::string(docs_html()), HasSubstr("<a href=\"#" + id + "\">")) << route;
  });
}

TEST(DocsPage, LoadsNothingAndRunsNothing) {
  const std::string html(docs_html());
  for (const char* foreign : {"<script", "<link", "<img", "<iframe", "src=", "http://", "https://",
                              "@import", "url(", "style="}) {
    EXPECT_THAT(html, Not(HasSubstr(foreign)));
  }
  // An event handler is one only inside a tag; outside, "on" is a word.
  std::string tags;
  bool inside = false;
  for (const char c : html) {
    if (c == '<') inside = true;
    if (inside) tags += c;
    if (c == '>') inside = false;
  }
  EXPECT_THAT(tags, Not(HasSubstr(" on")));
}

TEST(DocsPage, EveryLinkInsideThePageHasItsTarget) {
  const std::string html(docs_html());
  std::size_t links = 0;
  for (std::size_t at = html.find("href=\"#"); at != std::string::npos;
       at = html.find("href=\"#", at + 1)) {
    const std::size_t begin = at + 7;
    const std::string target = html.substr(begin, html.find('"', begin) - begin);
    EXPECT_THAT(html, HasSubstr(" id=\"" + target + "\"")) << target;
    ++links;
  }
  EXPECT_GT(links, openapi_routes().size());
}

TEST(DocsPage, ItsPolicyAllowsItsOwnStyleOnly) {
  const std::string& policy = docs_content_security_policy();
  ASSERT_THAT(policy,
              testing::MatchesRegex(
                  "default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]+='; base-uri 'none'; "
                  "form-action 'none'; frame-ancestors 'none'"));
  const std::size_t begin = policy.find("sha256-") + 7;
  const std::string hash = policy.substr(begin, policy.find('\'', begin) - begin);
  ASSERT_EQ(hash.size(), 44U);
  std::array<unsigned char, 33> decoded{};  // a digest and the byte that the padding stands for
  ASSERT_EQ(
      EVP_DecodeBlock(decoded.data(), reinterpret_cast<const unsigned char*>(hash.data()), 44), 33);

  const std::string html(docs_html());
  const std::string after = html.substr(html.find("<style>") + 7);
  const std::string style = after.substr(0, after.find("</style>"));
  EXPECT_EQ(after.find("<style>"), std::string::npos) << "one style block";
  std::array<unsigned char, 32> digest{};
  ASSERT_EQ(EVP_Digest(style.data(), style.size(), digest.data(), nullptr, EVP_sha256(), nullptr),
            1);
  EXPECT_TRUE(std::equal(digest.begin(), digest.end(), decoded.begin()));
}

TEST(DocsPage, AddsItsTwoRoutes) {
  http::Router router;
  add_docs_routes(router);
  EXPECT_THAT(router.routes(), ElementsAre("GET /docs", "GET /openapi.yaml"));
}

}  // namespace
}  // namespace doorbuster::app

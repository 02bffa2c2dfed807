#include <algorithm>
#include <array>
#include <set>

#include "common/text.hpp"
#include "fuzz/fuzz.hpp"
#include "http/response.hpp"
#include "http/router.hpp"

/// Paths and queries: which route a path belongs to, and what its parameters say.
///
/// - A second router, which tries every pattern, finds the same route, parameters, 404, 405 and
///   Allow.
/// - A second decoder agrees on which escapes are broken and on every decoded value; decoded text
/// is
///   UTF-8 without NUL, names of a query are not empty, not repeated, and no more than 32.
/// - Text that is percent-encoded, each byte or only where it must be, comes back as it was.
namespace doorbuster::fuzz {
namespace {

using http::Method;
using http::Router;

constexpr std::size_t kMethods = 7;

struct Pattern {
  Method method;
  const char* text;
};

/// Patterns that get in each other's way, with the product's among them.
constexpr std::array kPatterns{
    Pattern{Method::kGet, "/"},
    Pattern{Method::kGet, "/a"},
    Pattern{Method::kPut, "/a"},
    Pattern{Method::kGet, "/a/"},
    Pattern{Method::kGet, "//a"},
    Pattern{Method::kGet, "/{one}"},
    Pattern{Method::kDelete, "/{one}"},
    Pattern{Method::kPost, "/a/{two}"},
    Pattern{Method::kGet, "/{one}/b"},
    Pattern{Method::kGet, "/{one}/{two}/{three}/{four}"},
    Pattern{Method::kPatch, "/a/b/{three}/d"},
    Pattern{Method::kOptions, "/a/{}/c"},
    Pattern{Method::kGet, "/api/flash-sales"},
    Pattern{Method::kGet, "/api/flash-sales/{saleId}"},
    Pattern{Method::kGet, "/api/flash-sales/{saleId}/mine"},
    Pattern{Method::kGet, "/api/flash-sales/orders/{orderId}"},
    Pattern{Method::kDelete, "/api/flash-sales/orders/{orderId}"},
    Pattern{Method::kPost, "/api/flash-sales/orders/{orderId}/payment"},
    Pattern{Method::kPost, "/api/flash-sales/items/{itemId}/purchase"},
};

const Router& router() {
  static const Router& made = []() -> const Router& {
    static Router one;
    for (const Pattern& pattern : kPatterns) {
      one.add({.method = pattern.method,
               .pattern = pattern.text,
               .handler = [](http::Request) -> common::Task<http::Response> {
                 co_return http::Response{};
               },
               .fast = {}});
    }
    return one;
  }();
  return made;
}

std::vector<std::string_view> segments(std::string_view path) {
  std::vector<std::string_view> all;
  path.remove_prefix(1);
  while (true) {
    const std::size_t slash = path.find('/');
    all.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return all;
    path.remove_prefix(slash + 1);
  }
}

bool is_parameter(std::string_view segment) {
  return segment.size() > 2 && segment.starts_with('{') && segment.ends_with('}');
}

/// What a path leads to, the best one first: a text with 'l' for each literal and 'p' for each
/// parameter sorts as the leftmost literal wins.
struct Reference {
  std::set<std::pair<std::string, std::size_t>> matches;
  std::set<Method> methods;
};

Reference reference(Method method, std::string_view path) {
  Reference found;
  if (!path.starts_with('/')) return found;
  const auto have = segments(path);
  for (std::size_t i = 0; i < kPatterns.size(); ++i) {
    const auto want = segments(kPatterns[i].text);
    if (want.size() != have.size()) continue;
    std::string kinds;
    bool fits = true;
    for (std::size_t k = 0; k < want.size(); ++k) {
      kinds += is_parameter(want[k]) ? 'p' : 'l';
      fits = fits && (is_parameter(want[k]) ? !have[k].empty() : want[k] == have[k]);
    }
    if (!fits) continue;
    found.methods.insert(kPatterns[i].method);
    if (kPatterns[i].method == Method::kGet) found.methods.insert(Method::kHead);
    if (kPatterns[i].method == method ||
        (method == Method::kHead && kPatterns[i].method == Method::kGet)) {
      found.matches.emplace(kinds, i);
    }
  }
  return found;
}

/// Nothing when an escape is broken or the text is none.
std::optional<std::string> reference_decode(std::string_view text, bool form) {
  std::string out;
  while (!text.empty()) {
    if (text[0] == '%') {
      const std::string digits(text.substr(1, 2));
      if (digits.size() < 2 ||
          digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        return std::nullopt;
      }
      out += static_cast<char>(std::stoi(digits, nullptr, 16));
      text.remove_prefix(3);
    } else {
      out += text[0] == '+' && form ? ' ' : text[0];
      text.remove_prefix(1);
    }
  }
  if (!common::is_plain_utf8(out)) return std::nullopt;
  return out;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::optional<Pairs> reference_query(std::string_view query) {
  Pairs pairs;
  while (!query.empty()) {
    std::string_view value = take_until(query, "&");
    const std::string_view name = take_until(value, "=");
    const auto name_text = reference_decode(name, true);
    const auto value_text = reference_decode(value, true);
    if (!name_text || !value_text || name_text->empty() || pairs.size() == 32) return std::nullopt;
    for (const auto& [known, unused] : pairs) {
      if (known == *name_text) return std::nullopt;
    }
    pairs.emplace_back(*name_text, *value_text);
  }
  return pairs;
}

std::string encode(std::string_view text, bool everything) {
  constexpr std::string_view kPlain =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~";
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!everything && kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4U], kHex[byte & 0xFU]};
    }
  }
  return out;
}

/// A request as the server makes it; nothing where fill() refuses.
struct Filled {
  Router::Match match;
  std::optional<http::Request> request;
};

Filled fill(Method method, std::string_view path, std::string_view query) {
  static NoExecutor nowhere;
  Filled filled{router().find(method, path), std::nullopt};
  if (filled.match.route == nullptr) return filled;
  http::RequestView view;
  view.method = method;
  view.path = path;
  view.query = query;
  http::Request request(view, nowhere, "192.0.2.1");
  if (Router::fill(request, filled.match)) filled.request = std::move(request);
  return filled;
}

void check_target(Method method, std::string_view path, std::string_view query) {
  const Reference expected = reference(method, path);
  const Filled filled = fill(method, path, query);
  const Router::Match& match = filled.match;
  if (expected.matches.empty()) {
    DOORBUSTER_ENSURE(match.route == nullptr, "no pattern, no route");
    DOORBUSTER_ENSURE(
        match.refusal == (expected.methods.empty() ? &http::kNotFound : &http::kMethodNotAllowed),
        "404 or 405");
    std::string allow;
    for (const Method one : expected.methods) {
      if (!allow.empty()) allow += ", ";
      allow += http::to_string(one);
    }
    DOORBUSTER_ENSURE(match.allow == allow, "Allow names the methods of this path");
    return;
  }
  const std::size_t index = expected.matches.begin()->second;
  DOORBUSTER_ENSURE(match.route != nullptr && match.index == index && match.refusal == nullptr,
                    "both routers find the same route");

  const auto want = segments(kPatterns[index].text);
  const auto have = segments(path);
  std::size_t count = 0;
  bool decodes = true;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!is_parameter(want[i])) continue;
    DOORBUSTER_ENSURE(count < match.param_count && match.params[count] == have[i],
                      "a parameter is its segment");
    ++count;
    const auto value = reference_decode(have[i], false);
    decodes = decodes && value;
    if (!filled.request) continue;
    DOORBUSTER_ENSURE(
        value && filled.request->param(want[i].substr(1, want[i].size() - 2)) == *value,
        "both decoders find the same value");
  }
  DOORBUSTER_ENSURE(count == match.param_count, "no parameter but the pattern's");

  const auto pairs = reference_query(query);
  DOORBUSTER_ENSURE(filled.request.has_value() == (decodes && pairs), "both decoders refuse alike");
  if (!filled.request) return;
  DOORBUSTER_ENSURE(filled.request->path() == path, "the path is kept as sent");
  const std::vector<std::string> names = filled.request->query_names();
  DOORBUSTER_ENSURE(names.size() == pairs->size(), "no name but those that were sent");
  for (std::size_t i = 0; i < names.size(); ++i) {
    DOORBUSTER_ENSURE(
        names[i] == (*pairs)[i].first && filled.request->query(names[i]) == (*pairs)[i].second,
        "both decoders find the same pair");
  }
}

void check_encoding(std::string_view text, bool everything) {
  if (text.empty()) return;
  const std::string encoded = encode(text, everything);
  const Filled filled = fill(Method::kGet, "/api/flash-sales/" + encoded, encoded + "=" + encoded);
  const bool readable = common::is_plain_utf8(text);
  DOORBUSTER_ENSURE(filled.request.has_value() == readable,
                    "text is accepted, other bytes are not");
  if (!readable) return;
  DOORBUSTER_ENSURE(filled.request->param("saleId") == text, "the path's text comes back");
  DOORBUSTER_ENSURE(filled.request->query(text) == text, "the query's text comes back");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  const auto method = static_cast<Method>(in.ConsumeIntegralInRange<std::size_t>(0, kMethods - 1));
  const bool everything = in.ConsumeBool();
  const std::string text = in.ConsumeRemainingBytesAsString();
  std::string_view rest = text;
  const Exact path(take_until(rest, "?"));
  const Exact query(rest);
  check_target(method, path.view(), query.view());
  check_encoding(std::string_view(text).substr(0, 1024), everything);
  return 0;
}

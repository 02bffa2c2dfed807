#include "http/router.hpp"

#include <algorithm>
#include <map>

namespace doorbuster::http {
namespace {

constexpr std::size_t kMaxSegments = 12;
constexpr std::size_t kMaxQueryParameters = 32;

/// "/a/b" into "a", "b". False when there are too many or the path does not begin with '/'.
bool split(std::string_view path, std::array<std::string_view, kMaxSegments>& segments, std::size_t& count) {
  count = 0;
  if (path.empty() || path[0] != '/') return false;
  std::size_t at = 1;
  for (;;) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (count == kMaxSegments) return false;
    segments[count++] = path.substr(at, end - at);
    if (end == path.size()) return true;
    at = end + 1;
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Nothing when an escape is broken.
std::optional<std::string> decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

/// A segment of the tree: literal children first, then the one that takes any text.
struct Node {
  std::map<std::string, std::unique_ptr<Node>, std::less<>> literal;
  std::unique_ptr<Node> any;
  std::vector<std::unique_ptr<Route>> routes;   ///< one for each method
};

}  // namespace

struct Router::Impl {
  Node root;
  std::vector<std::string> names;

  /// The node for the path's segments from `at` on; literals win over parameters.
  static const Node* walk(const Node& node, const std::array<std::string_view, kMaxSegments>& segments,
                          std::size_t count, std::size_t at, Match& match) {
    if (at == count) return node.routes.empty() ? nullptr : &node;
    const auto child = node.literal.find(segments[at]);
    if (child != node.literal.end()) {
      const std::size_t params = match.param_count;
      if (const Node* found = walk(*child->second, segments, count, at + 1, match)) return found;
      match.param_count = params;
    }
    if (node.any && !segments[at].empty() && match.param_count < match.params.size()) {
      match.params[match.param_count++] = segments[at];
      if (const Node* found = walk(*node.any, segments, count, at + 1, match)) return found;
      --match.param_count;
    }
    return nullptr;
  }
};

Router::Router() : impl_(std::make_unique<Impl>()) {}
Router::~Router() = default;

void Router::add(Route route) {
  std::array<std::string_view, kMaxSegments> segments;
  std::size_t count = 0;
  DOORBUSTER_ENSURE(split(route.pattern, segments, count), "a route's pattern is a path");
  Node* node = &impl_->root;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view segment = segments[i];
    std::unique_ptr<Node>& next = segment.starts_with('{') ? node->any : node->literal[std::string(segment)];
    if (!next) next = std::make_unique<Node>();
    node = next.get();
  }
  for (const auto& one : node->routes) {
    DOORBUSTER_ENSURE(one->method != route.method, "one route for a path and method");
  }
  impl_->names.push_back(std::string(to_string(route.method)) + " " + route.pattern);
  node->routes.push_back(std::make_unique<Route>(std::move(route)));
}

std::vector<std::string> Router::routes() const {
  std::vector<std::string> sorted = impl_->names;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Router::Match Router::find(Method method, std::string_view path) const {
  Match match;
  std::array<std::string_view, kMaxSegments> segments;
  std::size_t count = 0;
  const Node* node =
      split(path, segments, count) ? Impl::walk(impl_->root, segments, count, 0, match) : nullptr;
  if (node == nullptr) {
    match.refusal = &kNotFound;
    return match;
  }
  const Method wanted = method == Method::kHead ? Method::kGet : method;
  for (const auto& route : node->routes) {
    if (route->method == wanted) {
      match.route = route.get();
      return match;
    }
  }
  match.refusal = &kMethodNotAllowed;
  for (const auto& route : node->routes) {
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += to_string(route->method);
    if (route->method == Method::kGet) match.allow += ", HEAD";
  }
  return match;
}

bool Router::fill(Request& request, const Match& match) {
  std::size_t param = 0;
  std::string_view pattern = match.route->pattern;
  for (std::size_t open = pattern.find('{'); open != std::string_view::npos; open = pattern.find('{')) {
    const std::size_t close = pattern.find('}', open);
    auto value = decode(match.params[param++]);
    if (!value) return false;
    request.params_.emplace_back(std::string(pattern.substr(open + 1, close - open - 1)), std::move(*value));
    pattern.remove_prefix(close + 1);
  }
  std::string_view query = request.at(request.query_);
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    auto name = decode(pair.substr(0, equals));
    auto value = decode(pair.substr(std::min(equals + 1, pair.size())));
    if (!name || !value || name->empty() || request.query_values_.size() == kMaxQueryParameters) return false;
    for (const auto& [known, ignored] : request.query_values_) {
      if (known == *name) return false;
    }
    request.query_values_.emplace_back(std::move(*name), std::move(*value));
  }
  return true;
}

}  // namespace doorbuster::http

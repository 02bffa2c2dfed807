#include "http/router.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/result.hpp"
#include "common/text.hpp"

namespace doorbuster::http {
namespace {

constexpr std::size_t kMethods = 7;
constexpr std::size_t kMaxQueryParameters = 32;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

std::size_t place(Method method) noexcept { return static_cast<std::size_t>(method); }

/// Takes the first segment off `rest`, which begins behind a '/'. `last` becomes true with the last
/// one.
std::string_view next_segment(std::string_view& rest, bool& last) noexcept {
  const std::size_t slash = rest.find('/');
  const std::string_view segment = rest.substr(0, slash);
  last = slash == std::string_view::npos;
  rest = last ? std::string_view{} : rest.substr(slash + 1);
  return segment;
}

bool is_parameter(std::string_view segment) noexcept {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text, bool form) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_value(text[i + 1]);
      const int low = hex_value(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += form && text[i] == '+' ? ' ' : text[i];
    }
  }
  if (!common::is_plain_utf8(out)) return std::nullopt;
  return out;
}

}  // namespace

struct Router::Impl {
  struct Node {
    std::vector<std::pair<std::string, std::size_t>> literals;  ///< segment, place in `nodes`
    std::size_t parameter = kNone;                              ///< place in `nodes`
    std::array<std::size_t, kMethods> routes{kNone, kNone, kNone, kNone, kNone, kNone, kNone};
  };
  std::deque<Route> routes;    // a deque, since Match hands out pointers
  std::vector<Node> nodes{1};  // the first one is the root

  std::size_t child(std::size_t node, std::string_view segment) {
    if (is_parameter(segment)) {
      if (nodes[node].parameter == kNone) {
        nodes.emplace_back();
        nodes[node].parameter = nodes.size() - 1;
      }
      return nodes[node].parameter;
    }
    for (const auto& [text, place_of] : nodes[node].literals) {
      if (text == segment) return place_of;
    }
    nodes.emplace_back();
    nodes[node].literals.emplace_back(segment, nodes.size() - 1);
    return nodes.size() - 1;
  }

  /// Calls `at_end(node)` for every node that the path leads to, best match first, until it returns
  /// true. `rest` begins with a '/' or is empty. The parameters on the way are in `match` then.
  template <class F>
  bool walk(std::size_t at, std::string_view rest, Match& match, F& at_end) const {
    const Node& node = nodes[at];
    if (rest.empty()) return at_end(node);
    rest.remove_prefix(1);
    for (const auto& [text, next] : node.literals) {
      // The first character tells most of them apart, without a call.
      if (!text.empty() && (rest.empty() || rest[0] != text[0])) continue;
      if (!rest.starts_with(text)) continue;
      const std::string_view behind = rest.substr(text.size());
      if (!behind.empty() && behind[0] != '/') continue;
      if (walk(next, behind, match, at_end)) return true;
      break;
    }
    if (node.parameter == kNone) return false;
    const std::size_t size = std::min(rest.find('/'), rest.size());
    if (size == 0) return false;
    match.params[match.param_count++] = rest.substr(0, size);
    if (walk(node.parameter, rest.substr(size), match, at_end)) return true;
    --match.param_count;
    return false;
  }
};

Router::Router() : impl_(std::make_unique<Impl>()) {}
Router::~Router() = default;

void Router::add(Route route) {
  DOORBUSTER_ENSURE(!route.pattern.empty() && route.pattern[0] == '/', "a pattern begins with '/'");
  DOORBUSTER_ENSURE(route.handler, "a route has a handler");
  std::string_view rest = std::string_view(route.pattern).substr(1);
  std::size_t node = 0;
  std::size_t params = 0;
  for (bool last = false; !last;) {
    const std::string_view segment = next_segment(rest, last);
    params += is_parameter(segment) ? 1U : 0U;
    node = impl_->child(node, segment);
  }
  DOORBUSTER_ENSURE(params <= kMaxParams, "a pattern has at most 4 parameters");
  std::size_t& held = impl_->nodes[node].routes[place(route.method)];
  DOORBUSTER_ENSURE(held == kNone, "two routes match the same method and path");
  held = impl_->routes.size();
  impl_->routes.push_back(std::move(route));
}

std::size_t Router::size() const noexcept { return impl_->routes.size(); }

const Route& Router::at(std::size_t index) const { return impl_->routes.at(index); }

std::vector<std::string> Router::routes() const {
  std::vector<std::string> names;
  for (const Route& route : impl_->routes) {
    names.push_back(std::string(to_string(route.method)) + ' ' + route.pattern);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Router::Match Router::find(Method method, std::string_view path) const {
  Match match;
  if (path.empty() || path[0] != '/') {
    match.refusal = &kNotFound;
    return match;
  }
  const auto take = [&](const Impl::Node& node) noexcept {
    std::size_t found = node.routes[place(method)];
    if (found == kNone && method == Method::kHead) found = node.routes[place(Method::kGet)];
    if (found == kNone) return false;
    match.route = &impl_->routes[found];
    match.index = found;
    return true;
  };
  if (impl_->walk(0, path, match, take)) return match;

  std::array<bool, kMethods> allowed{};
  const auto collect = [&allowed](const Impl::Node& node) noexcept {
    for (std::size_t i = 0; i < kMethods; ++i) allowed[i] = allowed[i] || node.routes[i] != kNone;
    return false;
  };
  impl_->walk(0, path, match, collect);
  allowed[place(Method::kHead)] = allowed[place(Method::kHead)] || allowed[place(Method::kGet)];
  for (std::size_t i = 0; i < kMethods; ++i) {
    if (!allowed[i]) continue;
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += to_string(static_cast<Method>(i));
  }
  match.refusal = match.allow.empty() ? &kNotFound : &kMethodNotAllowed;
  return match;
}

bool Router::fill(Request& request, const Match& match) {
  std::string_view pattern = std::string_view(match.route->pattern).substr(1);
  std::size_t param = 0;
  for (bool last = false; !last;) {
    const std::string_view segment = next_segment(pattern, last);
    if (!is_parameter(segment)) continue;
    std::optional<std::string> value = decode(match.params[param++], false);
    if (!value) return false;
    request.params_.emplace_back(segment.substr(1, segment.size() - 2), *std::move(value));
  }

  std::string_view rest = request.at(request.query_);
  while (!rest.empty()) {
    const std::size_t ampersand = rest.find('&');
    const std::string_view pair = rest.substr(0, ampersand);
    rest = ampersand == std::string_view::npos ? std::string_view{} : rest.substr(ampersand + 1);
    const std::size_t equals = pair.find('=');
    std::optional<std::string> name = decode(pair.substr(0, equals), true);
    std::optional<std::string> value = decode(
        equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1), true);
    if (!name || !value || name->empty() || request.query(*name) ||
        request.query_values_.size() == kMaxQueryParameters) {
      return false;
    }
    request.query_values_.emplace_back(*std::move(name), *std::move(value));
  }
  return true;
}

}  // namespace doorbuster::http

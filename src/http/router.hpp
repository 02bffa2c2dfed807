#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/task.hpp"
#include "http/request.hpp"
#include "http/response.hpp"

namespace doorbuster::http {

/// Starts on `request.home()` and must answer there (common::ResumeOn). Taken by value: coroutines
/// own it.
using Handler = std::function<common::Task<Response>(Request request)>;

/// Where a fast handler writes a whole HTTP/1.1 answer (status line to body). Appends to the
/// connection's output, so that many pipelined answers leave in one write.
class FastOutput {
 public:
  virtual ~FastOutput() = default;
  /// A complete answer. `status_line_and_fixed_headers` ends with "\r\n" and already holds
  /// content-type and the like; the server adds Date, X-Request-Id, Content-Length and Connection,
  /// then `body`.
  virtual void answer(int status, std::string_view status_line_and_fixed_headers,
                      std::string_view body) = 0;
};

/// Tried before the route's handler, in place, without a copy of the request: the path's parameters
/// come as views in the order of the pattern. Returns false to leave the request to the handler.
/// Must not block, wait or keep a view.
using FastHandler = std::function<bool(const RequestView& view,
                                       std::span<const std::string_view> params, FastOutput& out)>;

struct Route {
  Method method = Method::kGet;
  std::string pattern;  ///< "/api/flash-sales/items/{itemId}/purchase"
  Handler handler;
  FastHandler fast;                  ///< optional
  std::size_t max_body = 16 * 1024;  ///< bytes; more is 413
};

/// Finds the handler for a request. Built before the server starts, then only read.
/// A HEAD on a GET route is answered as GET without the body. Trailing slashes are not ignored. An
/// unknown path is 404 NOT_FOUND, a known one with another method 405 METHOD_NOT_ALLOWED with
/// Allow. Where several patterns match a path, a literal segment wins over a {parameter}, the
/// leftmost first:
/// "/sales/orders/{orderId}" before "/sales/{saleId}/mine". A parameter is one segment and never
/// empty.
class Router {
 public:
  Router();
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  /// A bug (ensure): two routes of one method whose patterns differ in nothing but the parameters'
  /// names, more than 4 parameters, a route without handler, a pattern that does not begin with
  /// '/'.
  void add(Route route);
  /// "GET /api/time" and so on, sorted; what the OpenAPI file is compared with.
  [[nodiscard]] std::vector<std::string> routes() const;

  [[nodiscard]] std::size_t size() const noexcept;
  /// The route that was added as number `index`, from 0. It stays where it is.
  [[nodiscard]] const Route& at(std::size_t index) const;

  static constexpr std::size_t kMaxParams = 4;
  struct Match {
    const Route* route = nullptr;                     ///< null: `refusal` says why
    std::size_t index = 0;                            ///< the route's number
    std::array<std::string_view, kMaxParams> params;  ///< still percent-encoded
    std::size_t param_count = 0;
    const PublicError* refusal = nullptr;
    std::string allow;  ///< for 405
  };
  /// No allocation when it matches.
  [[nodiscard]] Match find(Method method, std::string_view path) const;
  /// Decodes params and query into `request`; in a query '+' is a blank, as forms send it. False
  /// when an escape is broken, the text is not UTF-8 without NUL, a query parameter is repeated or
  /// nameless, or there are more than 32 (400 INVALID_PARAMETER).
  [[nodiscard]] static bool fill(Request& request, const Match& match);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace doorbuster::http

#include "admin/routes.hpp"

#include <fmt/format.h>

#include "admin/guard.hpp"
#include "common/ids.hpp"
#include "http/json.hpp"

namespace doorbuster::admin {
namespace {

using common::Result;
using common::Task;
using http::json_quote;

class Routes {
 public:
  Routes(db::Database& database, edge::TokenVerifier& tokens, const common::Clock& clock)
      : database_(database), tokens_(tokens), clock_(clock) {}

  Task<http::Response> audit(http::Request request) const {
    const auto actor = require_admin(tokens_, request, clock_.now());
    if (!actor) co_return actor.error();
    const auto page = http::read_page(request);
    if (!page) co_return page.error();
    std::int64_t after = 0;
    if (page->after) {
      const auto number = common::parse_id_number(*page->after);
      if (!number) co_return http::invalid_parameter("after", request.language());
      after = *number;
    }
    const std::int64_t limit = page->limit;
    std::function<Result<db::Rows>(db::Session&)> work = [after, limit](db::Session& session) {
      return session.query(
          "SELECT id, admin, action, target, detail, request_id, at FROM audit_log WHERE id > $1 "
          "ORDER BY id LIMIT $2",
          {after, limit});
    };
    const Result<db::Rows> rows =
        co_await database_.read<db::Rows>(request.home(), std::move(work));
    if (!rows) co_return http::error_response(http::kBusy, request.language());
    std::string body = "{\"entries\":[";
    for (const db::Row& row : *rows) {
      if (&row != &rows->front()) body += ',';
      body += fmt::format(
          R"({{"id":{},"admin":{},"action":{},"target":{},"detail":{},"requestId":{},"at":"{}"}})",
          row.integer(0), json_quote(row.text(1)), json_quote(row.text(2)), json_quote(row.text(3)),
          row.text(4), json_quote(row.text(5)),
          common::to_rfc3339(common::from_micros(row.integer(6))));
    }
    const bool more = static_cast<std::int64_t>(rows->size()) == limit;
    body += fmt::format(
        "],\"next\":{}}}",
        more ? json_quote(http::make_cursor(std::to_string(rows->back().integer(0)))) : "null");
    co_return http::Response{.status = 200, .body = std::move(body)};
  }

 private:
  db::Database& database_;
  edge::TokenVerifier& tokens_;
  const common::Clock& clock_;
};

}  // namespace

void add_routes(http::Router& router, db::Database& database, edge::TokenVerifier& tokens,
                const common::Clock& clock) {
  auto routes = std::make_shared<Routes>(database, tokens, clock);
  router.add({.method = http::Method::kGet,
              .pattern = "/api/admin/audit",
              .handler = [routes](http::Request r) { return routes->audit(std::move(r)); }});
}

}  // namespace doorbuster::admin

#include "app/service_routes.hpp"

#include <fmt/format.h>

#include "admin/guard.hpp"
#include "app/verify.hpp"

namespace doorbuster::app {
namespace {

using common::Done;
using common::Instant;
using common::Result;
using common::Task;
using http::error_response;
using http::Request;
using http::Response;

const http::PublicError kUnavailable{503, "UNAVAILABLE", "Not now; ask again soon.",
                                     "지금은 이용할 수 없습니다. 잠시 후 다시 시도해 주세요."};

class Routes {
 public:
  explicit Routes(ServiceParts parts) : p_(parts) {}

  Task<Response> time(Request) const {
    co_return Response{
        .status = 200,
        .body = fmt::format(R"({{"serverTime":"{}"}})", common::to_rfc3339(p_.sale.clock.now()))};
  }

  Task<Response> live(Request) const {
    co_return Response{.status = 200, .body = R"({"status":"live"})"};
  }

  Task<Response> ready(Request request) const {
    std::string_view reason;
    switch (p_.readiness.state.load()) {
      case Readiness::State::kStarting:
        reason = "starting";
        break;
      case Readiness::State::kStopping:
        reason = "stopping";
        break;
      case Readiness::State::kReady:
        if (p_.sale.engine.ledger_down() || p_.sale.database.trouble()) reason = "ledger";
        break;
    }
    if (reason.empty()) co_return Response{.status = 200, .body = R"({"status":"ready"})"};
    co_return error_response(kUnavailable, request.language(),
                             fmt::format(R"("reason":"{}")", reason), 1);
  }

  Task<Response> metrics(Request) const {
    co_return Response{.status = 200,
                       .body = p_.sale.metrics.text(),
                       .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }

  Task<Response> job(Request request) const {
    const auto actor = admin::require_admin(p_.sale.tokens, request, p_.sale.clock.now());
    if (!actor) co_return actor.error();
    const std::string name(request.param("name"));
    common::Executor& home = request.home();
    const Instant begun = p_.sale.clock.now();
    Result<std::int64_t> changed = common::fail(common::ErrorCode::kNotFound, "no such job");
    if (name == "expire-holds") {
      changed = co_await p_.sale.engine.expire_now(home);
    } else if (name == "reclaim") {
      changed = co_await p_.sale.engine.reclaim_now(home);
    } else if (name == "close-events") {
      changed = co_await p_.sale_jobs.close_events_for(home);
    } else if (name == "reconcile-payments") {
      changed = co_await p_.payments.reconcile(home);
    } else {
      co_return error_response(http::kNotFound, request.language());
    }
    if (!changed) co_return error_response(http::kBusy, request.language(), {}, 1);
    const Instant ended = p_.sale.clock.now();
    const std::int64_t count = *changed;
    const admin::Actor who = *actor;
    std::function<Result<Done>(db::Session&)> work = [=](db::Session& session) -> Result<Done> {
      const Result<std::int64_t> run = session.execute(
          "INSERT INTO job_run (job, started_at, finished_at, changed) VALUES ($1, $2, $3, $4)",
          {std::string_view(name), common::to_micros(begun), common::to_micros(ended), count});
      if (!run) return common::fail(run.error());
      return admin::write_audit(session, who, "job.run", name, "{}", ended);
    };
    const Result<Done> noted =
        co_await p_.sale.database.write<Done>(home, db::Priority::kRest, std::move(work));
    if (!noted) co_return error_response(http::kBusy, request.language(), {}, 1);
    co_return Response{
        .status = 200,
        .body = fmt::format(R"({{"job":"{}","changed":{},"startedAt":"{}","finishedAt":"{}"}})",
                            name, count, common::to_rfc3339(begun), common::to_rfc3339(ended))};
  }

  Task<Response> verify_now(Request request) const {
    const auto actor = admin::require_admin(p_.sale.tokens, request, p_.sale.clock.now());
    if (!actor) co_return actor.error();
    std::function<Result<VerifyReport>(db::Session&)> work = verify;
    const Result<VerifyReport> report =
        co_await p_.sale.database.read<VerifyReport>(request.home(), std::move(work));
    if (!report) co_return error_response(http::kBusy, request.language(), {}, 1);
    co_return Response{.status = 200, .body = to_json(*report)};
  }

 private:
  ServiceParts p_;
};

}  // namespace

void add_service_routes(http::Router& router, ServiceParts parts) {
  auto routes = std::make_shared<Routes>(parts);
  using http::Method;
  const auto add = [&](Method method, std::string pattern,
                       Task<Response> (Routes::*handler)(Request) const) {
    router.add(
        {.method = method, .pattern = std::move(pattern), .handler = [routes, handler](Request r) {
           return (*routes.*handler)(std::move(r));
         }});
  };
  add(Method::kGet, "/api/time", &Routes::time);
  add(Method::kGet, "/health/live", &Routes::live);
  add(Method::kGet, "/health/ready", &Routes::ready);
  add(Method::kGet, "/metrics", &Routes::metrics);
  add(Method::kPost, "/api/admin/jobs/{name}", &Routes::job);
  add(Method::kGet, "/api/admin/verify", &Routes::verify_now);
}

}  // namespace doorbuster::app

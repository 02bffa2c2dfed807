#include "payment/routes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "admin/guard.hpp"
#include "http/json.hpp"
#include "sale/answers.hpp"

namespace doorbuster::payment {
namespace {

using common::Result;
using common::Task;
using http::error_response;
using http::Request;
using http::Response;

const http::PublicError kPaymentUnknown{
    202, "PAYMENT_UNKNOWN", "The payment is being checked. The order shows what comes of it.",
    "결제 결과를 확인하고 있습니다. 주문에서 결과를 확인해 주세요."};

const http::PublicError kAmountMismatch{422, "AMOUNT_MISMATCH", "The amount is not the order's.",
                                        "결제 금액이 주문 금액과 다릅니다."};

class Routes {
 public:
  Routes(sale::RouteParts parts, Payments& payments) : p_(parts), payments_(payments) {}

  Task<Response> pay(Request request) const {
    const http::Language language = request.language();
    const auto member = p_.tokens.member(request.authorization(), p_.clock.now());
    if (!member) co_return error_response(http::kUnauthorized, language);
    const auto ref = p_.order_ids.decode(request.param("orderId"), *member);
    if (!ref) co_return error_response(http::kNotFound, language);
    http::BodyReader body(request);
    const std::string card = body.text("cardNumber", 12, 19);
    if (!std::all_of(card.begin(), card.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      body.refuse("cardNumber", "must be 12 to 19 digits");
    }
    const std::int64_t amount = body.integer("amount", 0, 1'000'000'000'000);
    const auto currency = common::parse_currency(body.text("currency", 3, 3));
    if (!currency) body.refuse("currency", "must be three upper-case letters");
    if (auto refusal = body.finish()) co_return *std::move(refusal);
    if (request.idempotency_key().size() > 255) {
      co_return http::invalid_parameter("Idempotency-Key", language);
    }

    Payments::PayRequest pay{.order = ref->grant,
                             .amount = common::Money{amount, *currency},
                             .card_number = card,
                             .subject = fmt::format("m{}", member->value()),
                             .route = fmt::format("POST {}", request.path()),
                             .key = std::string(request.idempotency_key()),
                             .body = std::string(request.body())};
    const Payments::Outcome outcome = co_await payments_.pay(request.home(), std::move(pay));
    const common::Instant now = p_.clock.now();
    switch (outcome.kind) {
      case Payments::Kind::kPaid:
        co_return Response{.status = 200, .body = paid_body(*outcome.order, p_.order_ids, now)};
      case Payments::Kind::kDeclined:
        co_return Response{.status = 402, .body = declined_body(language)};
      case Payments::Kind::kUnknown:
        co_return error_response(
            kPaymentUnknown, language,
            fmt::format(R"("orderId":{})", http::json_quote(request.param("orderId"))));
      case Payments::Kind::kRefused:
        if (!outcome.order) co_return error_response(sale::kNotReady, language, {}, 1);
        co_return sale::refuse_call(outcome.refusal, *outcome.order, p_.order_ids, language);
      case Payments::Kind::kNoOrder:
        co_return error_response(sale::kNotReady, language, {}, 1);
      case Payments::Kind::kWrongAmount:
        co_return error_response(kAmountMismatch, language);
      case Payments::Kind::kReplayed:
        co_return Response{.status = outcome.replay->status, .body = outcome.replay->body};
      case Payments::Kind::kKeyReused:
        co_return error_response(http::kKeyReused, language);
      case Payments::Kind::kBusy:
        break;
    }
    co_return error_response(http::kBusy, language, {}, 1);
  }

  Task<Response> refund(Request request) const {
    const http::Language language = request.language();
    const auto actor = admin::require_admin(p_.tokens, request, p_.clock.now());
    if (!actor) co_return actor.error();
    const auto id = common::parse_grant_id(request.param("grantId"));
    if (!id) co_return error_response(http::kNotFound, language);
    http::BodyReader body(request);
    const std::string reason = body.optional_text("reason", 1, 200).value_or("BY_ADMINISTRATOR");
    if (auto refusal = body.finish()) co_return *std::move(refusal);
    const common::GrantId grant = *id;
    std::function<Result<std::optional<sale::Order>>(db::Session&)> find =
        [grant](db::Session& session) { return sale::find_order(session, grant); };
    const Result<std::optional<sale::Order>> order =
        co_await p_.database.read<std::optional<sale::Order>>(request.home(), std::move(find));
    if (!order) co_return error_response(http::kBusy, language, {}, 1);
    if (!*order) co_return error_response(http::kNotFound, language);
    const admin::Actor who = *actor;
    const Result<std::optional<Payments::Refund>> refunded =
        co_await payments_.refund(request.home(), grant, who, reason);
    if (!refunded) co_return error_response(http::kBusy, language, {}, 1);
    if (!*refunded) co_return error_response(sale::kWrongState, language);
    co_return Response{.status = 200,
                       .body = fmt::format(R"({{"orderId":"{}","amount":{},"state":"{}"}})",
                                           sale::public_order_id(**order, p_.order_ids),
                                           sale::money_json((*refunded)->amount),
                                           (*refunded)->done ? "DONE" : "WANTED")};
  }

 private:
  sale::RouteParts p_;
  Payments& payments_;
};

}  // namespace

void add_routes(http::Router& router, sale::RouteParts parts, Payments& payments) {
  auto routes = std::make_shared<Routes>(parts, payments);
  router.add({.method = http::Method::kPost,
              .pattern = "/api/flash-sales/orders/{orderId}/payment",
              .handler = [routes](Request r) { return routes->pay(std::move(r)); }});
  router.add({.method = http::Method::kPost,
              .pattern = "/api/admin/flash-sales/orders/{grantId}/refund",
              .handler = [routes](Request r) { return routes->refund(std::move(r)); }});
}

}  // namespace doorbuster::payment

#include "sale/routes.hpp"

#include <fmt/format.h>

#include <array>

#include "common/text.hpp"
#include "http/json.hpp"
#include "sale/answers.hpp"
#include "sale/sale_store.hpp"

namespace doorbuster::sale {
namespace {

using common::Result;
using common::Task;
using engine::Flag;
using http::error_response;
using http::Language;
using http::Request;
using http::Response;

/// Orders that one answer of `mine` lists; a member may have more only by buying and cancelling all
/// day.
constexpr std::int64_t kMineLimit = 1000;

constexpr std::string_view kGoneHead =
    "HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\n"
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";

class Routes {
 public:
  explicit Routes(RouteParts parts)
      : p_(parts),
        refused_(parts.metrics.counter("sale_refused_total", "Purchases refused, by reason",
                                       {{"reason", "sold_out"}})),
        refused_window_(parts.metrics.counter("sale_refused_total", "Purchases refused, by reason",
                                              {{"reason", "window"}})),
        refused_holder_(parts.metrics.counter("sale_refused_total", "Purchases refused, by reason",
                                              {{"reason", "already"}})) {
    for (const bool final : {false, true}) {
      for (const Language language : {Language::kEnglish, Language::kKorean}) {
        gone_[place(final, language)] =
            error_response(kSoldOut, language, final ? "\"final\":true" : "\"final\":false").body;
      }
    }
  }

  /// The cheapest thing that the server does: a stranger, a raised flag, one prepared answer.
  bool purchase_fast(const http::RequestView& view, std::span<const std::string_view> params,
                     http::FastOutput& out) const {
    const auto id = common::parse_id_number(params[0]);
    if (!id || !view.body.empty()) return false;
    const Snapshot& snapshot = p_.catalog.current();
    const auto found = snapshot.items.find(*id);
    if (found == snapshot.items.end()) return false;
    const ItemView& item = found->second;
    if (!item.scope || item.scope->flag(item.index) == Flag::kDown) return false;
    const Instant now = p_.clock.now();
    const Sale& sale = *item.sale;
    if (admit(sale, now) != Admission::kOpen) return false;
    if (sale.per_member > 1 && view.idempotency_key.empty()) return false;
    const auto member = p_.tokens.member(view.authorization, now);
    if (!member) return false;
    const Flag flag = item.scope->refuse(item.index, *member, p_.clock.steady());
    if (flag == Flag::kDown) return false;
    refused_.add();
    out.answer(410, kGoneHead, gone_[place(flag == Flag::kFinal, view.language)]);
    return true;
  }

  Task<Response> purchase(Request request) const {
    const Instant now = p_.clock.now();
    const Language language = request.language();
    const auto member = p_.tokens.member(request.authorization(), now);
    if (!member) co_return error_response(http::kUnauthorized, language);
    const auto id = common::parse_id_number(request.param("itemId"));
    if (!id) co_return error_response(http::kNotFound, language);
    {
      http::BodyReader body(request);
      if (auto refusal = body.finish()) co_return *std::move(refusal);
    }
    if (request.idempotency_key().size() > 255 ||
        !common::is_plain_utf8(request.idempotency_key())) {
      co_return http::invalid_parameter("Idempotency-Key", language);
    }
    const Snapshot& snapshot = p_.catalog.current();
    const auto found = snapshot.items.find(*id);
    if (found == snapshot.items.end()) co_return error_response(http::kNotFound, language);
    // A copy: the snapshot may be swapped while this request waits.
    const ItemView item = found->second;
    switch (admit(*item.sale, now)) {
      case Admission::kHidden:
        co_return error_response(http::kNotFound, language);
      case Admission::kNotOpen:
        refused_window_.add();
        co_return error_response(
            kNotOpen, language,
            fmt::format(R"("opensAt":"{}")", common::to_rfc3339(item.sale->opens_at)));
      case Admission::kPaused:
        refused_window_.add();
        co_return error_response(kPaused, language);
      case Admission::kClosed:
        refused_window_.add();
        co_return error_response(kClosed, language);
      case Admission::kOpen:
        break;
    }
    if (item.sale->per_member > 1 && request.idempotency_key().empty()) {
      co_return error_response(kKeyRequired, language);
    }
    if (!item.scope) co_return error_response(http::kBusy, language, {}, 1);
    const Flag flag = item.scope->refuse(item.index, *member, p_.clock.steady());
    if (flag != Flag::kDown) co_return sold_out(flag == Flag::kFinal, language);

    engine::Desk::Ask ask{.scope = item.scope,
                          .index = item.index,
                          .member = *member,
                          .key = std::string(request.idempotency_key())};
    engine::DeskAnswer answer = co_await p_.engine.take(request.home(), std::move(ask));
    if (const auto* granted = std::get_if<engine::Granted>(&answer)) {
      const engine::Grant& grant = granted->grant;
      const std::string order_id =
          p_.order_ids.encode({grant.id, grant.allotment, grant.epoch}, *member);
      co_return Response{
          .status = 202,
          .body = fmt::format(
              R"({{"orderId":"{}","status":"PENDING","payable":true,"expiresAt":"{}"}})", order_id,
              common::to_rfc3339(grant.expires_at))};
    }
    if (const auto* gone = std::get_if<engine::SoldOutAnswer>(&answer)) {
      co_return sold_out(gone->final, language);
    }
    if (const auto* holding = std::get_if<engine::Holding>(&answer)) {
      Response response = co_await already(request.home(), *holding, *member,
                                           std::string(request.idempotency_key()), language);
      co_return response;
    }
    co_return error_response(http::kBusy, language, {}, 1);
  }

  Task<Response> order(Request request) const {
    Found found = co_await find(request);
    if (found.refusal) co_return *std::move(found.refusal);
    const Instant now = p_.clock.now();
    if (!found.order) {
      // Ours by its MAC, and not recorded: it is on its way, or its node died and it never was
      // answered.
      co_return Response{
          .status = 200,
          .body = fmt::format(
              R"({{"orderId":{},"status":"PENDING","payable":false,"expiresAt":null,"amount":null,"itemId":{}}})",
              http::json_quote(request.param("orderId")), found.allotment.number)};
    }
    co_return Response{.status = 200, .body = order_json(*found.order, p_.order_ids, now)};
  }

  Task<Response> cancel(Request request) const {
    Found found = co_await find(request);
    if (found.refusal) co_return *std::move(found.refusal);
    const Language language = request.language();
    if (!found.order) co_return error_response(kNotReady, language, {}, 1);
    const engine::GrantId id = found.order->id;
    const Instant now = p_.clock.now();
    struct Outcome {
      bool canceled = false;
      std::optional<Order> order;
    };
    std::function<Result<Outcome>(db::Session&)> work =
        [id, now](db::Session& session) -> Result<Outcome> {
      const Result<bool> canceled = cancel_order(session, id, now);
      if (!canceled) return common::fail(canceled.error());
      Result<std::optional<Order>> after = find_order(session, id);
      if (!after) return common::fail(std::move(after.error()));
      return Outcome{*canceled, std::move(*after)};
    };
    const Result<Outcome> outcome =
        co_await p_.database.write<Outcome>(request.home(), db::Priority::kRest, std::move(work));
    if (!outcome || !outcome->order) co_return error_response(http::kBusy, language, {}, 1);
    const Order& order = *outcome->order;
    if (outcome->canceled) p_.engine.steps_written();
    if (order.state == OrderState::kCanceled) {
      co_return Response{.status = 200, .body = order_json(order, p_.order_ids, now)};
    }
    co_return refuse_call(decide_call(order, now), order, p_.order_ids, language);
  }

  Task<Response> mine(Request request) const {
    const Instant now = p_.clock.now();
    const Language language = request.language();
    const auto member = p_.tokens.member(request.authorization(), now);
    if (!member) co_return error_response(http::kUnauthorized, language);
    const auto number = common::parse_id_number(request.param("saleId"));
    if (!number) co_return error_response(http::kNotFound, language);
    const SaleId id{*number};
    const MemberId who = *member;
    // From the rows, also long after the sale: an order that somebody has must be found.
    using Mine = std::optional<std::vector<Order>>;
    std::function<Result<Mine>(db::Session&)> work = [id,
                                                      who](db::Session& session) -> Result<Mine> {
      const Result<std::optional<Sale>> sale = find_sale(session, id);
      if (!sale) return common::fail(sale.error());
      if (!*sale || (*sale)->state == SaleState::kDraft) return Mine{};
      Result<std::vector<Order>> orders = orders_of(session, id, who, kMineLimit);
      if (!orders) return common::fail(std::move(orders.error()));
      return Mine{std::move(*orders)};
    };
    const Result<Mine> orders = co_await p_.database.read<Mine>(request.home(), std::move(work));
    if (!orders) co_return error_response(http::kBusy, language, {}, 1);
    if (!*orders) co_return error_response(http::kNotFound, language);
    std::string body = "{\"orders\":[";
    for (const Order& order : **orders) {
      if (&order != &(*orders)->front()) body += ',';
      body += order_json(order, p_.order_ids, now);
    }
    body += "]}";
    co_return Response{.status = 200, .body = std::move(body)};
  }

  Task<Response> list(Request request) const {
    const auto page = http::read_page(request);
    if (!page) co_return page.error();
    std::int64_t after = 0;
    if (page->after) {
      const auto number = common::parse_id_number(*page->after);
      if (!number) co_return http::invalid_parameter("after", request.language());
      after = *number;
    }
    const Instant now = p_.clock.now();
    const Snapshot& snapshot = p_.catalog.current();
    std::string body = "{\"sales\":[";
    std::int64_t count = 0;
    std::int64_t last = 0;
    bool more = false;
    for (const auto& sale : snapshot.sales) {
      const bool hidden = sale->state == SaleState::kDraft || sale->state == SaleState::kSettled;
      if (sale->id.value() <= after || hidden) continue;
      if (count == page->limit) {
        more = true;
        break;
      }
      if (count++ > 0) body += ',';
      body += sale_json(*sale, remaining(snapshot, *sale), now);
      last = sale->id.value();
    }
    body += fmt::format("],\"next\":{}}}",
                        more ? http::json_quote(http::make_cursor(std::to_string(last))) : "null");
    co_return cacheable(std::move(body));
  }

  Task<Response> one(Request request) const {
    const std::shared_ptr<const Sale> sale = visible_sale(request);
    if (!sale) co_return error_response(http::kNotFound, request.language());
    co_return cacheable(sale_json(*sale, remaining(p_.catalog.current(), *sale), p_.clock.now()));
  }

  Task<Response> events(Request request) const {
    const auto allotment = common::parse_allotment_id(request.param("allotment"));
    const Snapshot& snapshot = p_.catalog.current();
    const auto found = allotment && allotment->kind == 'i' ? snapshot.items.find(allotment->number)
                                                           : snapshot.items.end();
    if (found == snapshot.items.end() || found->second.sale->state == SaleState::kDraft) {
      co_return error_response(http::kNotFound, request.language());
    }
    const std::int64_t item = allotment->number;
    struct Last {
      std::int32_t left = -1;
    };
    auto last = std::make_shared<Last>();
    Response response{.status = 200, .content_type = "text/event-stream"};
    response.events = [this, item, last]() -> std::optional<std::string> {
      const Snapshot& now_known = p_.catalog.current();
      const auto view = now_known.items.find(item);
      // Settled: nothing more will happen.
      if (view == now_known.items.end() || view->second.sale->state == SaleState::kSettled)
        return std::nullopt;
      const ItemView& one_item = view->second;
      const std::int32_t left = one_item.scope ? one_item.scope->remaining(one_item.index) : -1;
      const Flag flag = one_item.scope ? one_item.scope->flag(one_item.index) : Flag::kDown;
      const std::int32_t given = last->left >= 0 && left >= 0 ? std::max(0, last->left - left) : 0;
      last->left = left;
      static constexpr std::string_view kNames[] = {"OPEN", "HIDDEN", "NOT_OPEN", "PAUSED",
                                                    "CLOSED"};
      const std::string_view state =
          flag == Flag::kDown
              ? kNames[static_cast<std::size_t>(admit(*one_item.sale, p_.clock.now()))]
          : flag == Flag::kUp ? "SOLD_OUT_FOR_NOW"
                              : "SOLD_OUT";
      return fmt::format(
          "event: stock\ndata: {{\"remaining\":{},\"grantedPerSecond\":{},\"state\":\"{}\"}}\n\n",
          left < 0 ? std::string("null") : std::to_string(left), given, state);
    };
    co_return response;
  }

 private:
  struct Found {
    engine::AllotmentId allotment;  ///< as the order id says
    std::optional<Order> order;
    std::optional<Response> refusal;
  };

  static std::size_t place(bool final, Language language) {
    return (final ? 2U : 0U) + (language == Language::kKorean ? 1U : 0U);
  }

  Response sold_out(bool final, Language language) const {
    refused_.add();
    return Response{.status = 410, .body = gone_[place(final, language)]};
  }

  static Response cacheable(std::string body) {
    // Remaining units are bounded in staleness by the probe; a CDN may add a second.
    return Response{.status = 200,
                    .body = std::move(body),
                    .headers = {{"Cache-Control", "public, max-age=1"}}};
  }

  std::shared_ptr<const Sale> visible_sale(const Request& request) const {
    const auto id = common::parse_id_number(request.param("saleId"));
    if (!id) return nullptr;
    std::shared_ptr<const Sale> sale = p_.catalog.current().find(SaleId{*id});
    const bool shown =
        sale && sale->state != SaleState::kDraft && sale->state != SaleState::kSettled;
    return shown ? sale : nullptr;
  }

  static std::vector<std::int32_t> remaining(const Snapshot& snapshot, const Sale& sale) {
    std::vector<std::int32_t> list;
    for (const Item& item : sale.items) {
      const auto view = snapshot.items.find(item.id.value());
      list.push_back(view != snapshot.items.end() && view->second.scope
                         ? view->second.scope->remaining(view->second.index)
                         : -1);
    }
    return list;
  }

  /// The order of this member that the path names; a merged one leads to the one that counts.
  Task<Found> find(const Request& request) const {
    Found found;
    const Language language = request.language();
    const auto member = p_.tokens.member(request.authorization(), p_.clock.now());
    if (!member) {
      found.refusal = error_response(http::kUnauthorized, language);
      co_return found;
    }
    const auto ref = p_.order_ids.decode(request.param("orderId"), *member);
    if (!ref) {
      found.refusal = error_response(http::kNotFound, language);
      co_return found;
    }
    found.allotment = ref->allotment;
    const engine::GrantId id = ref->grant;
    const bool follow =
        request.method() == http::Method::kGet || request.method() == http::Method::kHead;
    std::function<Result<std::optional<Order>>(db::Session&)> work =
        [id, follow](db::Session& session) -> Result<std::optional<Order>> {
      Result<std::optional<Order>> order = find_order(session, id);
      if (!order || !*order || !follow || !(*order)->merged_into) return order;
      const engine::GrantId other = *(*order)->merged_into;
      return find_order(session, other);
    };
    Result<std::optional<Order>> order =
        co_await p_.database.read<std::optional<Order>>(request.home(), std::move(work));
    if (!order) {
      found.refusal = error_response(http::kBusy, language, {}, 1);
    } else {
      found.order = std::move(*order);
    }
    co_return found;
  }

  /// The member has a grant: 409 with it as it is now.
  Task<Response> already(common::Executor& home, engine::Holding holding, MemberId member,
                         std::string key, Language language) const {
    const engine::GrantId id = holding.id;
    std::function<Result<std::optional<Order>>(db::Session&)> work = [id](db::Session& session) {
      return find_order(session, id);
    };
    const Result<std::optional<Order>> order =
        co_await p_.database.read<std::optional<Order>>(home, std::move(work));
    if (!order) co_return error_response(http::kBusy, language, {}, 1);
    const Instant now = p_.clock.now();
    if (!*order) {
      // In flight, and asked for as another allotment of the scope: its id, not payable yet.
      if (holding.epoch == engine::Epoch{0}) co_return error_response(http::kBusy, language, {}, 1);
      refused_holder_.add();
      co_return error_response(
          kAlreadyPurchased, language,
          fmt::format(R"("orderId":"{}","status":"PENDING","payable":false,"expiresAt":"{}")",
                      p_.order_ids.encode({id, holding.allotment, holding.epoch}, member),
                      common::to_rfc3339(holding.expires_at)));
    }
    const Order& held = **order;
    const OrderState state = visible_state(held, now);
    const bool over = state != OrderState::kPending && state != OrderState::kPaid;
    // A dead order answers only who names it by its key; to others its unit is on the way back.
    if (over && (key.empty() || held.key != key)) {
      co_return error_response(http::kBusy, language, {}, 1);
    }
    refused_holder_.add();
    co_return error_response(kAlreadyPurchased, language, order_members(held, p_.order_ids, now));
  }

  RouteParts p_;
  common::Counter& refused_;
  common::Counter& refused_window_;
  common::Counter& refused_holder_;
  std::array<std::string, 4> gone_;
};

}  // namespace

void add_routes(http::Router& router, RouteParts parts) {
  auto routes = std::make_shared<Routes>(parts);
  using http::Method;
  router.add(
      {.method = Method::kPost,
       .pattern = "/api/flash-sales/items/{itemId}/purchase",
       .handler = [routes](Request r) { return routes->purchase(std::move(r)); },
       .fast = [routes](const http::RequestView& view, std::span<const std::string_view> params,
                        http::FastOutput& out) { return routes->purchase_fast(view, params, out); },
       .max_body = 1024});
  router.add({.method = Method::kGet,
              .pattern = "/api/flash-sales/orders/{orderId}",
              .handler = [routes](Request r) { return routes->order(std::move(r)); }});
  router.add({.method = Method::kDelete,
              .pattern = "/api/flash-sales/orders/{orderId}",
              .handler = [routes](Request r) { return routes->cancel(std::move(r)); }});
  router.add({.method = Method::kGet,
              .pattern = "/api/flash-sales",
              .handler = [routes](Request r) { return routes->list(std::move(r)); }});
  router.add({.method = Method::kGet,
              .pattern = "/api/flash-sales/{saleId}",
              .handler = [routes](Request r) { return routes->one(std::move(r)); }});
  router.add({.method = Method::kGet,
              .pattern = "/api/flash-sales/{saleId}/mine",
              .handler = [routes](Request r) { return routes->mine(std::move(r)); }});
  router.add({.method = Method::kGet,
              .pattern = "/api/events/{allotment}",
              .handler = [routes](Request r) { return routes->events(std::move(r)); }});
}

}  // namespace doorbuster::sale

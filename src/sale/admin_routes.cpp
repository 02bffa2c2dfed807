#include <fmt/format.h>

#include "admin/guard.hpp"
#include "db/idempotency.hpp"
#include "http/json.hpp"
#include "sale/answers.hpp"
#include "sale/routes.hpp"
#include "sale/sale_store.hpp"

namespace doorbuster::sale {
namespace {

using common::Done;
using common::ErrorCode;
using common::Result;
using common::Task;
using http::error_response;
using http::Request;
using http::Response;

constexpr std::int64_t kMaxPrice = 1'000'000'000'000;

/// What an administrative transaction came to.
struct Change {
  const http::PublicError* refusal = nullptr;  ///< nothing was changed
  std::optional<Sale> sale;                    ///< the sale afterwards
  ItemId item;
  std::optional<db::KeptAnswer> replay;  ///< the first answer under this Idempotency-Key
  bool key_reused = false;
  std::string_view wrong_field;  ///< the body contradicts what is stored; nothing was changed
  std::string_view problem;
};

using FindSale = std::function<Result<std::optional<Sale>>(db::Session&)>;

class AdminRoutes {
 public:
  explicit AdminRoutes(RouteParts parts) : p_(parts) {}

  Task<Response> create(Request request) const {
    const auto actor = guard(request);
    if (!actor) co_return actor.error();
    http::BodyReader body(request);
    Sale sale;
    sale.name = body.text("name", 1, 200);
    sale.opens_at = body.instant("opensAt");
    sale.closes_at = body.instant("closesAt");
    const std::string scope = body.optional_text("limitScope", 4, 4).value_or("SALE");
    sale.limit_scope = scope == "ITEM" ? LimitScope::kItem : LimitScope::kSale;
    if (scope != "ITEM" && scope != "SALE") body.refuse("limitScope", "must be SALE or ITEM");
    sale.per_member =
        static_cast<std::int32_t>(body.optional_integer("perMember", 1, 1000).value_or(1));
    read_hold(body, sale);
    if (sale.closes_at <= sale.opens_at) body.refuse("closesAt", "must be after opensAt");
    if (auto refusal = body.finish()) co_return *std::move(refusal);

    const Instant now = p_.clock.now();
    Work work = [sale, now](db::Session& session) -> Result<Change> {
      const Result<SaleId> id = insert_sale(session, sale, now);
      if (!id) return common::fail(id.error());
      return read_back(session, *id);
    };
    Response response = co_await change(std::move(request), *actor, "flash-sale.create", "",
                                        std::move(work), Answer::kCreatedSale);
    co_return response;
  }

  Task<Response> list(Request request) const {
    const auto actor = guard(request);
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
    std::function<Result<std::vector<Sale>>(db::Session&)> work =
        [after, limit](db::Session& session) { return sales_after(session, after, limit, true); };
    const Result<std::vector<Sale>> sales =
        co_await p_.database.read<std::vector<Sale>>(request.home(), std::move(work));
    if (!sales) co_return error_response(http::kBusy, request.language());
    std::string out = "{\"sales\":[";
    for (const Sale& sale : *sales) {
      if (&sale != &sales->front()) out += ',';
      out += admin_sale_json(sale);
    }
    const bool more = static_cast<std::int64_t>(sales->size()) == limit;
    out += fmt::format(
        "],\"next\":{}}}",
        more ? http::json_quote(http::make_cursor(std::to_string(sales->back().id.value())))
             : "null");
    co_return Response{.status = 200, .body = std::move(out)};
  }

  Task<Response> one(Request request) const {
    const auto asked = guard(request, "saleId");
    if (!asked) co_return asked.error();
    const SaleId sale_id{asked->id};
    FindSale find = [sale_id](db::Session& session) { return find_sale(session, sale_id); };
    const auto sale = co_await stored(request, std::move(find));
    if (!sale) co_return sale.error();
    co_return Response{.status = 200, .body = admin_sale_json(*sale)};
  }

  Task<Response> edit(Request request) const {
    const auto asked = guard(request, "saleId");
    if (!asked) co_return asked.error();
    http::BodyReader body(request);
    struct Wanted {
      std::optional<std::string> name;
      std::optional<Instant> opens_at, closes_at;
      std::optional<std::int64_t> per_member, hold_s, hold_max_s;
      std::optional<bool> resell;
    } wanted;
    wanted.name = body.optional_text("name", 1, 200);
    wanted.opens_at = body.optional_instant("opensAt");
    wanted.closes_at = body.optional_instant("closesAt");
    wanted.per_member = body.optional_integer("perMember", 1, 1000);
    wanted.hold_s = body.optional_integer("holdSeconds", 1, 3600);
    wanted.hold_max_s = body.optional_integer("holdMaxSeconds", 1, 86400);
    if (auto refusal = body.finish()) co_return *std::move(refusal);

    const Instant now = p_.clock.now();
    const SaleId sale_id{asked->id};
    Work work = [sale_id, wanted, now](db::Session& session) -> Result<Change> {
      Result<std::optional<Sale>> found = find_sale(session, sale_id);
      if (!found) return common::fail(std::move(found.error()));
      if (!*found) return Change{.refusal = &http::kNotFound};
      Sale sale = **found;
      if (sale.state == SaleState::kClosed || sale.state == SaleState::kSettled) {
        return Change{.refusal = &kWrongState};
      }
      const bool touches_fixed =
          wanted.opens_at || wanted.per_member || wanted.hold_s || wanted.hold_max_s;
      if (touches_fixed && has_begun(sale, now)) return Change{.refusal = &kAlreadyBegun};
      if (wanted.name) sale.name = *wanted.name;
      if (wanted.opens_at) sale.opens_at = *wanted.opens_at;
      if (wanted.closes_at) sale.closes_at = *wanted.closes_at;
      if (wanted.per_member) sale.per_member = static_cast<std::int32_t>(*wanted.per_member);
      if (wanted.hold_s) sale.hold = std::chrono::seconds{*wanted.hold_s};
      if (wanted.hold_max_s) sale.hold_max = std::chrono::seconds{*wanted.hold_max_s};
      if (sale.hold_max < sale.hold) sale.hold_max = sale.hold;
      if (sale.closes_at <= sale.opens_at) {
        return Change{.wrong_field = "closesAt", .problem = "must be after opensAt"};
      }
      const Result<Done> done = update_sale(session, sale, now);
      if (!done) return common::fail(done.error());
      return read_back(session, sale_id);
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale.edit",
                        fmt::format("s{}", asked->id), std::move(work), Answer::kSale, true);
    co_return response;
  }

  Task<Response> add_item(Request request) const {
    const auto asked = guard(request, "saleId");
    if (!asked) co_return asked.error();
    http::BodyReader body(request);
    Item item;
    item.name = body.text("name", 1, 200);
    item.list_price.amount = body.integer("listPrice", 0, kMaxPrice);
    item.sale_price.amount = body.integer("salePrice", 0, kMaxPrice);
    const std::string currency = body.optional_text("currency", 3, 3).value_or("KRW");
    const auto parsed = common::parse_currency(currency);
    if (!parsed) body.refuse("currency", "must be three upper-case letters");
    item.quantity = static_cast<std::int32_t>(body.integer("quantity", 1, 10'000'000));
    if (item.sale_price.amount > item.list_price.amount) {
      body.refuse("salePrice", "must not be above listPrice");
    }
    if (auto refusal = body.finish()) co_return *std::move(refusal);
    item.list_price.currency = *parsed;
    item.sale_price.currency = *parsed;

    const Instant now = p_.clock.now();
    const SaleId sale_id{asked->id};
    Work work = [sale_id, item, now](db::Session& session) -> Result<Change> {
      Result<std::optional<Sale>> sale = find_sale(session, sale_id);
      if (!sale) return common::fail(std::move(sale.error()));
      if (!*sale) return Change{.refusal = &http::kNotFound};
      if ((*sale)->state != SaleState::kDraft) {
        return Change{.refusal = has_begun(**sale, now) ? &kAlreadyBegun : &kWrongState};
      }
      const Result<ItemId> made = insert_item(session, **sale, item, now);
      if (!made) return common::fail(made.error());
      return read_back(session, sale_id, *made);
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale-item.create",
                        fmt::format("s{}", asked->id), std::move(work), Answer::kCreatedItem);
    co_return response;
  }

  Task<Response> item(Request request) const {
    const auto asked = guard(request, "itemId");
    if (!asked) co_return asked.error();
    const ItemId item_id{asked->id};
    FindSale find = [item_id](db::Session& session) { return find_sale_of_item(session, item_id); };
    const auto sale = co_await stored(request, std::move(find));
    if (!sale) co_return sale.error();
    std::string out = admin_item_json(item_of(*sale, item_id));
    const auto gate = co_await p_.engine.read_gate(request.home(), item_of(*sale, item_id).scope);
    std::string live = "null";
    if (gate && gate->state != engine::GateState::kAbsent) {
      std::int64_t free = 0;
      for (const auto& one : gate->allotments) {
        if (one.id == item_of(*sale, item_id).allotment) free = one.free;
      }
      live = fmt::format(R"({{"state":"{}","epoch":{},"free":{},"inFlight":{},"entries":{}}})",
                         gate->state == engine::GateState::kOpen ? "OPEN" : "DRAINING",
                         gate->epoch.value(), free, gate->in_flight.size(), gate->entries);
    }
    out.pop_back();
    out += fmt::format(",\"gate\":{}}}", live);
    co_return Response{.status = 200, .body = std::move(out)};
  }

  Task<Response> edit_item(Request request) const {
    const auto asked = guard(request, "itemId");
    if (!asked) co_return asked.error();
    http::BodyReader body(request);
    const auto name = body.optional_text("name", 1, 200);
    const auto list_price = body.optional_integer("listPrice", 0, kMaxPrice);
    const auto sale_price = body.optional_integer("salePrice", 0, kMaxPrice);
    const auto quantity = body.optional_integer("quantity", 1, 10'000'000);
    if (auto refusal = body.finish()) co_return *std::move(refusal);
    const Instant now = p_.clock.now();
    const ItemId item_id{asked->id};
    Work work = [=](db::Session& session) -> Result<Change> {
      Result<std::optional<Sale>> sale = find_sale_of_item(session, item_id);
      if (!sale) return common::fail(std::move(sale.error()));
      if (!*sale) return Change{.refusal = &http::kNotFound};
      if (has_begun(**sale, now)) return Change{.refusal = &kAlreadyBegun};
      Item changed = item_of(**sale, item_id);
      if (name) changed.name = *name;
      if (list_price) changed.list_price.amount = *list_price;
      if (sale_price) changed.sale_price.amount = *sale_price;
      if (quantity) changed.quantity = static_cast<std::int32_t>(*quantity);
      if (changed.sale_price.amount > changed.list_price.amount) {
        return Change{.wrong_field = "salePrice", .problem = "must not be above listPrice"};
      }
      const Result<Done> done = update_item(session, changed, now);
      if (!done) return common::fail(done.error());
      return read_back(session, (*sale)->id, item_id);
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale-item.edit",
                        fmt::format("i{}", asked->id), std::move(work), Answer::kItem, true);
    co_return response;
  }

  Task<Response> remove_item(Request request) const {
    const auto asked = guard(request, "itemId");
    if (!asked) co_return asked.error();
    const Instant now = p_.clock.now();
    const ItemId item_id{asked->id};
    Work work = [=](db::Session& session) -> Result<Change> {
      Result<std::optional<Sale>> sale = find_sale_of_item(session, item_id);
      if (!sale) return common::fail(std::move(sale.error()));
      if (!*sale) return Change{.refusal = &http::kNotFound};
      if ((*sale)->state != SaleState::kDraft) {
        return Change{.refusal = has_begun(**sale, now) ? &kAlreadyBegun : &kWrongState};
      }
      const Result<Done> done = delete_item(session, item_id);
      if (!done) return common::fail(done.error());
      return read_back(session, (*sale)->id);
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale-item.delete",
                        fmt::format("i{}", asked->id), std::move(work), Answer::kSale);
    co_return response;
  }

  /// Prepare the gate, then switch on: no request sees the switch without the counter (section 13).
  Task<Response> open(Request request) const {
    const auto asked = guard(request, "saleId");
    if (!asked) co_return asked.error();
    const SaleId sale_id{asked->id};
    FindSale find = [sale_id](db::Session& session) { return find_sale(session, sale_id); };
    const auto sale = co_await stored(request, std::move(find));
    if (!sale) co_return sale.error();
    // Before anything is prepared: a second administrator cannot wipe a running gate.
    if (sale->state != SaleState::kDraft) co_return error_response(kWrongState, request.language());
    if (sale->items.empty()) co_return error_response(kNoItems, request.language());
    const bool prepared = co_await prepare(request.home(), *sale);
    if (!prepared) co_return error_response(http::kBusy, request.language(), {}, 1);
    const Instant now = p_.clock.now();
    Work work = [sale_id, now](db::Session& session) -> Result<Change> {
      return move(session, sale_id, SaleState::kDraft, SaleState::kOpen, now);
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale.open",
                        fmt::format("s{}", asked->id), std::move(work), Answer::kSale);
    co_return response;
  }

  Task<Response> move_state(Request request, std::string action, SaleState from,
                            SaleState to) const {
    const auto asked = guard(request, "saleId");
    if (!asked) co_return asked.error();
    const SaleId sale_id{asked->id};
    const Instant now = p_.clock.now();
    Work work = [=](db::Session& session) -> Result<Change> {
      Result<Change> moved = move(session, sale_id, from, to, now);
      // A paused sale can be closed too.
      if (moved && moved->refusal == &kWrongState && to == SaleState::kClosed) {
        return move(session, sale_id, SaleState::kPaused, to, now);
      }
      return moved;
    };
    Response response =
        co_await change(std::move(request), asked->actor, "flash-sale." + action,
                        fmt::format("s{}", asked->id), std::move(work), Answer::kSale);
    co_return response;
  }

  Task<Response> orders(Request request) const {
    const auto asked = guard(request, "itemId");
    if (!asked) co_return asked.error();
    const auto page = http::read_page(request);
    if (!page) co_return page.error();
    std::optional<engine::GrantId> after;
    if (page->after) {
      after = common::parse_grant_id(*page->after);
      if (!after) co_return http::invalid_parameter("after", request.language());
    }
    const std::int64_t limit = page->limit;
    const engine::AllotmentId allotment{'i', asked->id};
    std::function<Result<std::vector<Order>>(db::Session&)> work = [=](db::Session& session) {
      return orders_after(session, allotment, after, limit);
    };
    const Result<std::vector<Order>> rows =
        co_await p_.database.read<std::vector<Order>>(request.home(), std::move(work));
    if (!rows) co_return error_response(http::kBusy, request.language());
    std::string out = "{\"orders\":[";
    for (const Order& order : *rows) {
      if (&order != &rows->front()) out += ',';
      out += fmt::format(
          R"({{"grantId":"{}","orderId":"{}","memberId":{},"slot":{},"nth":{},"state":"{}","reason":{},"mergedInto":{},"key":{},"amount":{},"recordedAt":"{}","expiresAt":"{}"}})",
          common::to_string(order.id), public_order_id(order, p_.order_ids), order.member.value(),
          order.slot ? std::to_string(order.slot->value()) : "null",
          order.nth ? std::to_string(order.nth->value()) : "null", to_string(order.state),
          order.reason.empty() ? "null" : http::json_quote(order.reason),
          order.merged_into ? http::json_quote(common::to_string(*order.merged_into)) : "null",
          order.key.empty() ? "null" : http::json_quote(order.key), money_json(order.amount),
          common::to_rfc3339(order.recorded_at), common::to_rfc3339(order.expires_at));
    }
    const bool more = static_cast<std::int64_t>(rows->size()) == limit;
    out += fmt::format(
        "],\"next\":{}}}",
        more ? http::json_quote(http::make_cursor(common::to_string(rows->back().id))) : "null");
    co_return Response{.status = 200, .body = std::move(out)};
  }

  Task<Response> rebuild(Request request) const {
    const auto actor = guard(request);
    if (!actor) co_return actor.error();
    const auto id = common::parse_id_number(request.param("saleId"));
    http::BodyReader body(request);
    const bool counts = body.boolean("counts", false);
    if (auto refusal = body.finish()) co_return *std::move(refusal);
    const std::shared_ptr<const Sale> sale =
        id ? p_.catalog.current().find(SaleId{*id}) : std::shared_ptr<const Sale>();
    if (!sale) co_return error_response(http::kNotFound, request.language());
    if (sale->state == SaleState::kDraft) co_return error_response(kWrongState, request.language());
    const std::string target = fmt::format("s{}", *id);
    const Result<Done> noted = co_await audit(request.home(), *actor, "flash-sale.rebuild", target,
                                              counts ? R"({"counts":true})" : "{}");
    if (!noted) co_return error_response(http::kBusy, request.language());
    for (const engine::ScopeRules& rules : scope_rules(*sale)) {
      const Result<Done> built = co_await p_.engine.rebuild(request.home(), rules.id, counts);
      if (!built) co_return error_response(http::kBusy, request.language());
    }
    co_return Response{.status = 200,
                       .body = fmt::format(R"({{"saleId":{},"rebuilt":true}})", *id)};
  }

 private:
  using Work = std::function<Result<Change>(db::Session&)>;
  enum class Answer { kSale, kCreatedSale, kItem, kCreatedItem };

  tl::expected<admin::Actor, Response> guard(const Request& request) const {
    return admin::require_admin(p_.tokens, request, p_.clock.now());
  }

  struct Asked {
    admin::Actor actor;
    std::int64_t id = 0;
  };
  /// Who asks, and for which sale or item; a malformed number is not found.
  tl::expected<Asked, Response> guard(const Request& request, std::string_view name) const {
    auto actor = guard(request);
    if (!actor) return tl::unexpected(std::move(actor.error()));
    const auto id = common::parse_id_number(request.param(name));
    if (!id) return tl::unexpected(error_response(http::kNotFound, request.language()));
    return Asked{*std::move(actor), *id};
  }

  /// What `find` finds, or busy, or not found.
  Task<tl::expected<Sale, Response>> stored(const Request& request, FindSale find) const {
    Result<std::optional<Sale>> sale =
        co_await p_.database.read<std::optional<Sale>>(request.home(), std::move(find));
    if (!sale) co_return tl::unexpected(error_response(http::kBusy, request.language()));
    if (!*sale) co_return tl::unexpected(error_response(http::kNotFound, request.language()));
    co_return **std::move(sale);
  }

  static void read_hold(http::BodyReader& body, Sale& sale) {
    const std::int64_t hold = body.optional_integer("holdSeconds", 1, 3600).value_or(600);
    const std::int64_t most = body.optional_integer("holdMaxSeconds", 1, 86400)
                                  .value_or(std::min<std::int64_t>(3 * hold, 86400));
    sale.hold = std::chrono::seconds{hold};
    sale.hold_max = std::chrono::seconds{most};
    if (most < hold) body.refuse("holdMaxSeconds", "must not be below holdSeconds");
    sale.resell_refunds = body.boolean("resellRefunds", false);
  }

  static const Item& item_of(const Sale& sale, ItemId id) {
    for (const Item& item : sale.items) {
      if (item.id == id) return item;
    }
    DOORBUSTER_ENSURE(false, "the sale was found by this item");
    return sale.items.front();
  }

  static Result<Change> read_back(db::Session& session, SaleId id, ItemId item = ItemId{0}) {
    Result<std::optional<Sale>> sale = find_sale(session, id);
    if (!sale) return common::fail(std::move(sale.error()));
    return Change{.sale = std::move(*sale), .item = item};
  }

  static Result<Change> move(db::Session& session, SaleId id, SaleState from, SaleState to,
                             Instant now) {
    Result<std::optional<Sale>> sale = find_sale(session, id);
    if (!sale) return common::fail(std::move(sale.error()));
    if (!*sale) return Change{.refusal = &http::kNotFound};
    const Result<bool> moved = change_sale_state(session, id, from, to, now);
    if (!moved) return common::fail(moved.error());
    if (!*moved) return Change{.refusal = &kWrongState};
    return read_back(session, id);
  }

  Task<Result<Done>> audit(common::Executor& home, admin::Actor actor, std::string action,
                           std::string target, std::string detail) const {
    const Instant now = p_.clock.now();
    std::function<Result<Done>(db::Session&)> work = [=](db::Session& session) {
      return admin::write_audit(session, actor, action, target, detail, now);
    };
    return p_.database.write<Done>(home, db::Priority::kRest, std::move(work));
  }

  static std::string answer_body(Answer answer, const Change& change) {
    const bool item = answer == Answer::kItem || answer == Answer::kCreatedItem;
    return item ? admin_item_json(item_of(*change.sale, change.item))
                : admin_sale_json(*change.sale);
  }

  /// Runs an administrative change with its audit row and its kept answer in one transaction, then
  /// brings the catalog, and with `prepare_again` the gate, up to date.
  Task<Response> change(Request request, admin::Actor actor, std::string action, std::string target,
                        Work work, Answer answer, bool prepare_again = false) const {
    const Instant now = p_.clock.now();
    const int status = answer == Answer::kCreatedSale || answer == Answer::kCreatedItem ? 201 : 200;
    const std::string subject = "a:" + actor.name;
    const std::string route =
        fmt::format("{} {}", http::to_string(request.method()), request.path());
    const std::string key(request.idempotency_key());
    if (key.size() > 255) co_return http::invalid_parameter("Idempotency-Key", request.language());
    const std::string body(request.body().empty() ? std::string_view("{}") : request.body());
    Work whole = [=](db::Session& session) -> Result<Change> {
      const db::KeyUse use{subject, route, key, body};
      if (!key.empty()) {
        Result<std::optional<db::KeptAnswer>> kept = db::find_answer(session, use, now);
        if (!kept && kept.error().code == ErrorCode::kConflict) return Change{.key_reused = true};
        if (!kept) return common::fail(std::move(kept.error()));
        if (*kept) return Change{.replay = std::move(**kept)};
      }
      Result<Change> done = work(session);
      if (!done || done->refusal != nullptr || !done->wrong_field.empty()) return done;
      const std::string named =
          target.empty() ? fmt::format("s{}", done->sale->id.value()) : target;
      const Result<Done> noted = admin::write_audit(session, actor, action, named, body, now);
      if (!noted) return common::fail(noted.error());
      if (!key.empty()) {
        const Result<Done> kept =
            db::keep_answer(session, use, {status, answer_body(answer, *done)}, now);
        if (!kept) return common::fail(kept.error());
      }
      return done;
    };
    const Result<Change> done =
        co_await p_.database.write<Change>(request.home(), db::Priority::kRest, std::move(whole));
    if (!done) {
      co_return error_response(
          done.error().code == ErrorCode::kConflict ? kWrongState : http::kBusy, request.language(),
          {}, 1);
    }
    if (done->key_reused) co_return error_response(http::kKeyReused, request.language());
    if (done->replay)
      co_return Response{.status = done->replay->status, .body = done->replay->body};
    if (done->refusal != nullptr) co_return error_response(*done->refusal, request.language());
    if (!done->wrong_field.empty()) {
      http::BodyReader again(request);
      again.refuse(done->wrong_field, done->problem);
      co_return *again.finish();
    }

    // A scheduled sale whose rules changed gets a gate with the new ones; kChangeMargin keeps
    // purchases away.
    const bool prepared = !prepare_again || done->sale->state == SaleState::kDraft ||
                          co_await prepare(request.home(), *done->sale);
    const Result<Done> reloaded = co_await p_.catalog.reload(request.home());
    // The ledger has the change; until the gate is ready its items answer busy.
    if (!prepared || !reloaded) co_return error_response(http::kBusy, request.language(), {}, 1);
    co_return Response{.status = status, .body = answer_body(answer, *done)};
  }

  Task<bool> prepare(common::Executor& home, const Sale& sale) const {
    for (engine::ScopeRules& rules : scope_rules(sale)) {
      const auto prepared = co_await p_.engine.prepare(home, std::move(rules));
      if (!prepared) co_return false;
    }
    co_return true;
  }

  RouteParts p_;
};

}  // namespace

void add_admin_routes(http::Router& router, RouteParts parts) {
  auto routes = std::make_shared<AdminRoutes>(parts);
  using http::Method;
  const auto add = [&](Method method, std::string pattern,
                       Task<Response> (AdminRoutes::*handler)(Request) const) {
    router.add(
        {.method = method, .pattern = std::move(pattern), .handler = [routes, handler](Request r) {
           return (*routes.*handler)(std::move(r));
         }});
  };
  const std::string sale = "/api/admin/flash-sales/{saleId}";
  const std::string item = "/api/admin/flash-sales/items/{itemId}";
  add(Method::kPost, "/api/admin/flash-sales", &AdminRoutes::create);
  add(Method::kGet, "/api/admin/flash-sales", &AdminRoutes::list);
  add(Method::kGet, sale, &AdminRoutes::one);
  add(Method::kPatch, sale, &AdminRoutes::edit);
  add(Method::kPost, sale + "/items", &AdminRoutes::add_item);
  add(Method::kGet, item, &AdminRoutes::item);
  add(Method::kPatch, item, &AdminRoutes::edit_item);
  add(Method::kDelete, item, &AdminRoutes::remove_item);
  add(Method::kGet, item + "/orders", &AdminRoutes::orders);
  add(Method::kPost, sale + "/open", &AdminRoutes::open);
  add(Method::kPost, sale + "/rebuild", &AdminRoutes::rebuild);
  const auto move = [&](const std::string& name, SaleState from, SaleState to) {
    router.add({.method = Method::kPost,
                .pattern = sale + "/" + name,
                .handler = [routes, name, from, to](Request r) {
                  return routes->move_state(std::move(r), name, from, to);
                }});
  };
  move("pause", SaleState::kOpen, SaleState::kPaused);
  move("resume", SaleState::kPaused, SaleState::kOpen);
  move("close", SaleState::kOpen, SaleState::kClosed);
}

}  // namespace doorbuster::sale

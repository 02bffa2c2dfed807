#include "sale/order.hpp"

#include <fmt/format.h>

namespace doorbuster::sale {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::from_micros;
using common::Result;
using common::to_micros;

constexpr std::string_view kStates[] = {"PENDING", "PAID", "EXPIRED", "CANCELED", "REJECTED"};

// Currency is the item's: it cannot change once there is an order.
constexpr std::string_view kColumns =
    "o.id, o.allotment, o.scope, o.epoch, o.member, o.slot, o.nth, o.member_key, o.state, "
    "o.reason, "
    "o.merged_into, o.amount, a.currency, o.recorded_at, o.expires_at, o.due_at, o.held_back_by, "
    "o.held_back_until FROM flash_sale_order o JOIN flash_sale_item a ON a.allotment = o.allotment";

OrderState parse_state(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kStates); ++i) {
    if (kStates[i] == text) return static_cast<OrderState>(i);
  }
  DOORBUSTER_ENSURE(false, "the schema allows only these states");
  return OrderState::kPending;
}

Result<Order> read_order(const db::Row& row) {
  const auto allotment = common::parse_allotment_id(row.text(1));
  const auto scope = common::parse_scope_id(row.text(2));
  const auto currency = common::parse_currency(row.text(12));
  if (!allotment || !scope || !currency) {
    return fail(ErrorCode::kCorrupt, "unreadable order row of allotment " + row.text(1));
  }
  Order order;
  order.id = row.grant_id(0);
  order.allotment = *allotment;
  order.scope = *scope;
  order.epoch = engine::Epoch{row.integer(3)};
  order.member = MemberId{row.integer(4)};
  if (!row.is_null(5)) order.slot = engine::Slot{static_cast<std::int32_t>(row.integer(5))};
  if (!row.is_null(6)) order.nth = engine::Nth{static_cast<std::int32_t>(row.integer(6))};
  if (!row.is_null(7)) order.key = row.text(7);
  order.state = parse_state(row.text(8));
  if (!row.is_null(9)) order.reason = row.text(9);
  if (!row.is_null(10)) order.merged_into = row.grant_id(10);
  order.amount = Money{row.integer(11), *currency};
  order.recorded_at = from_micros(row.integer(13));
  order.expires_at = from_micros(row.integer(14));
  order.due_at = from_micros(row.integer(15));
  if (!row.is_null(16)) {
    order.attempt = row.grant_id(16);
    order.held_back_until = from_micros(row.integer(17));
  }
  return order;
}

Result<std::vector<Order>> read_orders(const Result<db::Rows>& rows) {
  if (!rows) return fail(rows.error());
  std::vector<Order> orders;
  for (const db::Row& row : *rows) {
    Result<Order> order = read_order(row);
    if (!order) return fail(std::move(order.error()));
    orders.push_back(std::move(*order));
  }
  return orders;
}

Result<bool> one_row(const Result<std::int64_t>& changed) {
  if (!changed) return fail(changed.error());
  return *changed == 1;
}

}  // namespace

std::string_view to_string(OrderState state) noexcept {
  return kStates[static_cast<std::size_t>(state)];
}

Result<std::optional<Order>> find_order(db::Session& session, const engine::GrantId& id) {
  static const std::string sql = fmt::format("SELECT {} WHERE o.id = $1", kColumns);
  const Result<db::Rows> rows = session.query(sql, {db::param(id)});
  if (!rows) return fail(rows.error());
  if (rows->empty()) return std::optional<Order>{};
  Result<Order> order = read_order(rows->front());
  if (!order) return fail(std::move(order.error()));
  return std::optional<Order>{std::move(*order)};
}

Result<std::vector<Order>> orders_of(db::Session& session, SaleId sale, MemberId member,
                                     std::int64_t limit) {
  static const std::string sql = fmt::format(
      "SELECT {} WHERE o.member = $1 AND a.flash_sale_id = $2 AND o.merged_into IS NULL "
      "ORDER BY o.id LIMIT $3",
      kColumns);
  return read_orders(session.query(sql, {member.value(), sale.value(), limit}));
}

Result<std::vector<Order>> orders_after(db::Session& session, engine::AllotmentId allotment,
                                        const std::optional<engine::GrantId>& after,
                                        std::int64_t limit) {
  // Keyset: stable while rows are inserted, since ids only grow.
  static const std::string sql = fmt::format(
      "SELECT {} WHERE o.id > $1 AND o.allotment = $2 ORDER BY o.id LIMIT $3", kColumns);
  const engine::GrantId from = after.value_or(engine::GrantId{});
  const std::string name = common::to_string(allotment);
  return read_orders(session.query(sql, {db::param(from), name, limit}));
}

Result<bool> begin_payment(db::Session& session, const engine::GrantId& id,
                           const engine::GrantId& attempt, Instant now) {
  return one_row(session.execute(
      "UPDATE flash_sale_order SET held_back_by = $1, held_back_until = recorded_at + 1000000 * "
      "(SELECT s.hold_max_s FROM flash_sale_item a JOIN flash_sale s ON s.id = a.flash_sale_id "
      "WHERE a.allotment = flash_sale_order.allotment), updated_at = $2 "
      "WHERE id = $3 AND state = 'PENDING' AND held_back_by IS NULL AND due_at > $4",
      {db::param(attempt), to_micros(now), db::param(id), to_micros(now)}));
}

Result<bool> settle_paid(db::Session& session, const engine::GrantId& id,
                         const engine::GrantId& attempt, Instant now) {
  // From its absolute maximum on the order is over, whether or not the job has been there: its
  // owner may have read EXPIRED by then.
  const Result<db::Rows> mine = session.query(
      "SELECT 1 FROM flash_sale_order WHERE id = $1 AND held_back_by = $2 AND held_back_until > $3",
      {db::param(id), db::param(attempt), to_micros(now)});
  if (!mine) return fail(mine.error());
  if (mine->empty()) return false;
  return engine::change_state(session, grant_table(), id, "PENDING", "PAID", "", now);
}

Result<Done> release_payment(db::Session& session, const engine::GrantId& id,
                             const engine::GrantId& attempt, Instant now) {
  const Result<std::int64_t> changed = session.execute(
      "UPDATE flash_sale_order SET held_back_by = NULL, held_back_until = NULL, updated_at = $1 "
      "WHERE id = $2 AND held_back_by = $3 AND state = 'PENDING'",
      {to_micros(now), db::param(id), db::param(attempt)});
  if (!changed) return fail(changed.error());
  return Done{};
}

Result<bool> cancel_order(db::Session& session, const engine::GrantId& id, Instant now) {
  const Result<db::Rows> open = session.query(
      "SELECT 1 FROM flash_sale_order WHERE id = $1 AND state = 'PENDING' AND held_back_by IS NULL "
      "AND due_at > $2",
      {db::param(id), to_micros(now)});
  if (!open) return fail(open.error());
  if (open->empty()) return false;
  return engine::end_grant(session, grant_table(), id, "PENDING", "CANCELED", "CANCELED_BY_MEMBER",
                           now);
}

Result<bool> refund_order(db::Session& session, const engine::GrantId& id, Instant now) {
  const Result<db::Rows> resells = session.query(
      "SELECT s.resell_refunds FROM flash_sale_order o JOIN flash_sale_item a "
      "ON a.allotment = o.allotment JOIN flash_sale s ON s.id = a.flash_sale_id WHERE o.id = $1",
      {db::param(id)});
  if (!resells) return fail(resells.error());
  if (resells->empty() || resells->front().integer(0) == 0) return false;
  return engine::end_grant(session, grant_table(), id, "PAID", "CANCELED", "REFUNDED", now);
}

}  // namespace doorbuster::sale

#include "sale/sale_store.hpp"

#include <fmt/format.h>

namespace doorbuster::sale {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::from_micros;
using common::Result;
using common::to_micros;

constexpr std::string_view kSaleColumns =
    "id, name, state, opens_at, closes_at, limit_scope, per_member, hold_s, hold_max_s, "
    "resell_refunds "
    "FROM flash_sale";

std::string_view scope_name(LimitScope scope) {
  return scope == LimitScope::kSale ? "SALE" : "ITEM";
}

Sale read_sale(const db::Row& row) {
  Sale sale;
  sale.id = SaleId{row.integer(0)};
  sale.name = row.text(1);
  sale.state = parse_sale_state(row.text(2));
  sale.opens_at = from_micros(row.integer(3));
  sale.closes_at = from_micros(row.integer(4));
  sale.limit_scope = row.text(5) == "SALE" ? LimitScope::kSale : LimitScope::kItem;
  sale.per_member = static_cast<std::int32_t>(row.integer(6));
  sale.hold = std::chrono::seconds{row.integer(7)};
  sale.hold_max = std::chrono::seconds{row.integer(8)};
  sale.resell_refunds = row.integer(9) != 0;
  return sale;
}

Result<Item> read_item(const db::Row& row) {
  const auto allotment = common::parse_allotment_id(row.text(2));
  const auto scope = common::parse_scope_id(row.text(3));
  const auto currency = common::parse_currency(row.text(7));
  if (!allotment || !scope || !currency) {
    return fail(ErrorCode::kCorrupt, "unreadable item row " + std::to_string(row.integer(0)));
  }
  Item item;
  item.id = ItemId{row.integer(0)};
  item.sale = SaleId{row.integer(1)};
  item.allotment = *allotment;
  item.scope = *scope;
  item.name = row.text(4);
  item.list_price = Money{row.integer(5), *currency};
  item.sale_price = Money{row.integer(6), *currency};
  item.quantity = static_cast<std::int32_t>(row.integer(8));
  item.per_member = static_cast<std::int32_t>(row.integer(9));
  item.sold = static_cast<std::int32_t>(row.integer(10));
  return item;
}

Result<std::vector<Sale>> with_items(db::Session& session, const Result<db::Rows>& rows) {
  if (!rows) return fail(rows.error());
  std::vector<Sale> sales;
  for (const db::Row& row : *rows) {
    Sale sale = read_sale(row);
    const Result<db::Rows> items = session.query(
        "SELECT id, flash_sale_id, allotment, scope, name, list_price, sale_price, currency, "
        "quantity, "
        "per_member, sold FROM flash_sale_item WHERE flash_sale_id = $1 ORDER BY id",
        {sale.id.value()});
    if (!items) return fail(items.error());
    for (const db::Row& one : *items) {
      Result<Item> item = read_item(one);
      if (!item) return fail(std::move(item.error()));
      sale.items.push_back(std::move(*item));
    }
    sales.push_back(std::move(sale));
  }
  return sales;
}

Result<std::optional<Sale>> first_of(Result<std::vector<Sale>> sales) {
  if (!sales) return fail(std::move(sales.error()));
  if (sales->empty()) return std::optional<Sale>{};
  return std::optional<Sale>{std::move(sales->front())};
}

Result<Done> expect_one(const Result<std::int64_t>& changed, std::string_view what) {
  if (!changed) return fail(changed.error());
  if (*changed == 0) return fail(ErrorCode::kNotFound, fmt::format("no such {}", what));
  return Done{};
}

}  // namespace

Result<std::vector<Sale>> live_sales(db::Session& session) {
  static const std::string sql = fmt::format(
      "SELECT {} WHERE state <> 'SETTLED' OR id IN (SELECT id FROM flash_sale WHERE state = "
      "'SETTLED' "
      "ORDER BY id DESC LIMIT {}) ORDER BY id",
      kSaleColumns, kSettledListed);
  return with_items(session, session.query(sql));
}

Result<std::vector<Sale>> sales_after(db::Session& session, std::int64_t after, std::int64_t limit,
                                      bool drafts) {
  static const std::string sql = fmt::format(
      "SELECT {} WHERE id > $1 AND (state <> 'DRAFT' OR $2) ORDER BY id LIMIT $3", kSaleColumns);
  return with_items(session, session.query(sql, {after, std::int64_t{drafts ? 1 : 0}, limit}));
}

Result<std::optional<Sale>> find_sale(db::Session& session, SaleId id) {
  static const std::string sql = fmt::format("SELECT {} WHERE id = $1", kSaleColumns);
  return first_of(with_items(session, session.query(sql, {id.value()})));
}

Result<std::optional<Sale>> find_sale_of_item(db::Session& session, ItemId id) {
  static const std::string sql =
      fmt::format("SELECT {} WHERE id = (SELECT flash_sale_id FROM flash_sale_item WHERE id = $1)",
                  kSaleColumns);
  return first_of(with_items(session, session.query(sql, {id.value()})));
}

Result<SaleId> insert_sale(db::Session& session, const Sale& sale, Instant now) {
  const Result<db::Rows> rows = session.query(
      "INSERT INTO flash_sale (name, opens_at, closes_at, limit_scope, per_member, hold_s, "
      "hold_max_s, "
      "resell_refunds, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) "
      "RETURNING id",
      {std::string_view(sale.name), to_micros(sale.opens_at), to_micros(sale.closes_at),
       scope_name(sale.limit_scope), std::int64_t{sale.per_member}, std::int64_t{sale.hold.count()},
       std::int64_t{sale.hold_max.count()}, std::int64_t{sale.resell_refunds ? 1 : 0},
       to_micros(now)});
  if (!rows) return fail(rows.error());
  return SaleId{rows->front().integer(0)};
}

Result<Done> update_sale(db::Session& session, const Sale& sale, Instant now) {
  const Result<Done> changed = expect_one(
      session.execute(
          "UPDATE flash_sale SET name = $1, opens_at = $2, closes_at = $3, per_member = $4, "
          "hold_s = $5, hold_max_s = $6, resell_refunds = $7, updated_at = $8 WHERE id = $9",
          {std::string_view(sale.name), to_micros(sale.opens_at), to_micros(sale.closes_at),
           std::int64_t{sale.per_member}, std::int64_t{sale.hold.count()},
           std::int64_t{sale.hold_max.count()}, std::int64_t{sale.resell_refunds ? 1 : 0},
           to_micros(now), sale.id.value()}),
      "sale");
  if (!changed) return changed;
  const Result<std::int64_t> items = session.execute(
      "UPDATE flash_sale_item SET per_member = $1, updated_at = $2 WHERE flash_sale_id = $3 "
      "AND per_member <> $4",
      {std::int64_t{sale.per_member}, to_micros(now), sale.id.value(),
       std::int64_t{sale.per_member}});
  if (!items) return fail(items.error());
  return Done{};
}

Result<ItemId> insert_item(db::Session& session, const Sale& sale, const Item& item, Instant now) {
  // Allotment and scope are named after ids that exist only afterwards.
  const Result<db::Rows> rows = session.query(
      "INSERT INTO flash_sale_item (flash_sale_id, allotment, scope, name, list_price, sale_price, "
      "currency, quantity, per_member, created_at, updated_at) "
      "VALUES ($1, 'new', 'new', $2, $3, $4, $5, $6, $7, $8, $8) RETURNING id",
      {sale.id.value(), std::string_view(item.name), item.list_price.amount, item.sale_price.amount,
       item.sale_price.currency.text(), std::int64_t{item.quantity}, std::int64_t{sale.per_member},
       to_micros(now)});
  if (!rows) return fail(rows.error());
  const ItemId id{rows->front().integer(0)};
  const std::string allotment = common::to_string(engine::AllotmentId{'i', id.value()});
  const std::string scope = sale.limit_scope == LimitScope::kSale
                                ? common::to_string(engine::ScopeId{'s', sale.id.value()})
                                : allotment;
  const Result<Done> named = expect_one(
      session.execute("UPDATE flash_sale_item SET allotment = $1, scope = $2 WHERE id = $3",
                      {allotment, scope, id.value()}),
      "item");
  if (!named) return fail(named.error());
  return id;
}

Result<Done> update_item(db::Session& session, const Item& item, Instant now) {
  return expect_one(
      session.execute("UPDATE flash_sale_item SET name = $1, list_price = $2, sale_price = $3, "
                      "currency = $4, quantity = $5, updated_at = $6 WHERE id = $7",
                      {std::string_view(item.name), item.list_price.amount, item.sale_price.amount,
                       item.sale_price.currency.text(), std::int64_t{item.quantity}, to_micros(now),
                       item.id.value()}),
      "item");
}

Result<Done> delete_item(db::Session& session, ItemId id) {
  return expect_one(session.execute("DELETE FROM flash_sale_item WHERE id = $1", {id.value()}),
                    "item");
}

Result<bool> change_sale_state(db::Session& session, SaleId id, SaleState from, SaleState to,
                               Instant now) {
  const Result<std::int64_t> changed = session.execute(
      "UPDATE flash_sale SET state = $1, updated_at = $2 WHERE id = $3 AND state = $4",
      {to_string(to), to_micros(now), id.value(), to_string(from)});
  if (!changed) return fail(changed.error());
  return *changed == 1;
}

}  // namespace doorbuster::sale

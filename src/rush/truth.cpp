#include "rush/truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <thread>

#include "rush/call.hpp"

namespace doorbuster::rush {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;
using std::chrono::milliseconds;
namespace json = boost::json;

constexpr std::string_view kAdmin = "/api/admin/flash-sales";
constexpr int kPageRows = 1000;

Result<json::object> parse_object(const std::string& text, std::string_view what) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: the answer is not a JSON object", what));
  }
  return std::move(value.get_object());
}

std::optional<std::int64_t> integer_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

Result<LedgerRow> read_row(const json::value& value) {
  const auto broken = [] {
    return fail(ErrorCode::kCorrupt, "a row of the orders cannot be understood");
  };
  if (!value.is_object()) return broken();
  const json::object& object = value.get_object();
  const auto member = integer_of(object, "memberId");
  LedgerRow row{.order = text_of(object, "orderId"),
                .grant = text_of(object, "grantId"),
                .member = member.value_or(0),
                .slot = integer_of(object, "slot"),
                .nth = integer_of(object, "nth"),
                .state = parse_order_status(text_of(object, "state")),
                .reason = text_of(object, "reason"),
                .merged_into = text_of(object, "mergedInto"),
                .key = text_of(object, "key")};
  if (!member || row.order.empty() || row.state == OrderStatus::kNone ||
      row.state == OrderStatus::kUnknown) {
    return broken();
  }
  const auto expires = common::parse_rfc3339(text_of(object, "expiresAt"));
  if (expires) row.expires_us = common::to_micros(*expires);
  return row;
}

/// Cursors are opaque, so they are written in the only way that is right for every text.
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool same(const Ledger& a, const Ledger& b) {
  if (a.sold != b.sold || a.quantity != b.quantity || a.rows.size() != b.rows.size()) return false;
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(),
                    [](const LedgerRow& x, const LedgerRow& y) {
                      return x.order == y.order && x.state == y.state && x.slot == y.slot;
                    });
}

}  // namespace

Result<std::string> Truth::ask(std::string_view method, const std::string& path,
                               const std::string& body) const {
  const std::string headers = fmt::format("Authorization: Bearer {}\r\n{}", token_,
                                          body.empty() ? "" : "Content-Type: application/json\r\n");
  Result<CallAnswer> answer = call(target_, method, path, headers, body, clock_, timeout_);
  if (!answer) return fail(std::move(answer.error()));
  const int status = answer->status;
  if (status >= 200 && status < 300) return std::move(answer->body);
  const std::string text =
      fmt::format("{} {} was answered {} {}", method, path, status, answer->body.substr(0, 200));
  if (status == 401 || status == 403) {
    return fail(ErrorCode::kInvalid,
                text + "; give an administrator's token that the server accepts");
  }
  if (status == 404) return fail(ErrorCode::kNotFound, text);
  if (status == 429 || status >= 500) return fail(ErrorCode::kUnavailable, text);
  return fail(ErrorCode::kConflict, text);
}

Result<Truth::Item> Truth::item(std::int64_t item_id) const {
  const std::string path = fmt::format("{}/items/{}", kAdmin, item_id);
  const Result<std::string> body = ask("GET", path);
  if (!body) return fail(body.error());
  const Result<json::object> object = parse_object(*body, path);
  if (!object) return fail(object.error());
  const auto quantity = integer_of(*object, "quantity");
  const auto per_member = integer_of(*object, "perMember");
  const auto sold = integer_of(*object, "sold");
  if (!quantity || !per_member || !sold) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: quantity, perMember or sold is missing", path));
  }
  return Item{.quantity = *quantity, .per_member = *per_member, .sold = *sold};
}

Result<Ledger> Truth::ledger(std::int64_t item_id) const {
  const Result<Item> head = item(item_id);
  if (!head) return fail(head.error());
  Ledger ledger{.quantity = head->quantity, .per_member = head->per_member, .sold = head->sold};
  std::string cursor;
  for (;;) {
    const std::string path =
        fmt::format("{}/items/{}/orders?limit={}{}{}", kAdmin, item_id, kPageRows,
                    cursor.empty() ? "" : "&after=", percent_encoded(cursor));
    const Result<std::string> body = ask("GET", path);
    if (!body) return fail(body.error());
    const Result<json::object> object = parse_object(*body, path);
    if (!object) return fail(object.error());
    const json::value* orders = object->if_contains("orders");
    if (orders == nullptr || !orders->is_array()) {
      return fail(ErrorCode::kCorrupt, fmt::format("{}: orders is missing", path));
    }
    for (const json::value& value : orders->get_array()) {
      Result<LedgerRow> row = read_row(value);
      if (!row) return fail(std::move(row.error()));
      ledger.rows.push_back(std::move(*row));
    }
    std::string next = text_of(*object, "next");
    if (next.empty()) return ledger;
    // A cursor that does not move, or pages without rows, would go on for ever.
    if (next == cursor || orders->get_array().empty()) {
      return fail(ErrorCode::kCorrupt, fmt::format("{}: the pages do not end", path));
    }
    cursor = std::move(next);
  }
}

Result<Truth::Reading> Truth::quiet_ledger(std::int64_t item_id, milliseconds apart,
                                           milliseconds patience) const {
  const common::Steady deadline = clock_.steady() + patience;
  const auto finish = [](Ledger last, bool quiet) {
    // While rows change, the counter and the rows are of different moments.
    if (!quiet) last.sold.reset();
    return Reading{.ledger = std::move(last), .quiet = quiet};
  };
  std::optional<Ledger> before;
  for (;;) {
    Result<Ledger> now = ledger(item_id);
    const bool over = clock_.steady() + apart >= deadline;
    if (now) {
      const bool quiet = before && same(*before, *now);
      if (quiet || over) return finish(std::move(*now), quiet);
      before = std::move(*now);
    } else {
      // Nothing that waiting would change.
      const ErrorCode code = now.error().code;
      const bool hopeless = code != ErrorCode::kUnavailable && code != ErrorCode::kTimeout;
      if (hopeless || over) {
        if (before) return finish(std::move(*before), false);
        return fail(std::move(now.error()));
      }
    }
    // Readings are apart so that something may happen in between; there is no event to wait for.
    std::this_thread::sleep_for(apart);
  }
}

Result<std::int64_t> Truth::open_sale(std::int64_t units, std::int64_t per_member) const {
  const common::Instant now = clock_.now();
  const std::string sale_body = fmt::format(
      R"({{"name":"rush","opensAt":"{}","closesAt":"{}","perMember":{}}})", common::to_rfc3339(now),
      common::to_rfc3339(now + std::chrono::hours{24}), per_member);
  const auto id_of = [](const Result<std::string>& body,
                        std::string_view what) -> Result<std::int64_t> {
    if (!body) return fail(body.error());
    const Result<json::object> object = parse_object(*body, what);
    if (!object) return fail(object.error());
    const auto id = integer_of(*object, "id");
    if (!id) return fail(ErrorCode::kCorrupt, fmt::format("{}: the answer has no id", what));
    return *id;
  };
  const Result<std::int64_t> sale =
      id_of(ask("POST", std::string(kAdmin), sale_body), "the new sale");
  if (!sale) return fail(sale.error());
  const std::string item_body =
      fmt::format(R"({{"name":"rush","listPrice":15000,"salePrice":12000,"quantity":{}}})", units);
  const Result<std::int64_t> item =
      id_of(ask("POST", fmt::format("{}/{}/items", kAdmin, *sale), item_body), "the new item");
  if (!item) return fail(item.error());
  const Result<std::string> opened = ask("POST", fmt::format("{}/{}/open", kAdmin, *sale));
  if (!opened) return fail(opened.error());
  return *item;
}

}  // namespace doorbuster::rush

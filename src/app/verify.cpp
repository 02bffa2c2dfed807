#include "app/verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "http/response.hpp"

namespace doorbuster::app {
namespace {

using common::fail;
using common::Result;

struct Rule {
  const char* name;
  const char* what;
  /// Each row is a finding: its first column is the text.
  const char* sql;
};

// Counting in SQL keeps the memory bounded whatever the number of rows.
constexpr Rule kRules[] = {
    {"I1", "rows that hold a unit never exceed the quantity",
     "SELECT a.allotment || ' has ' || count(o.id) || ' rows that hold a unit of ' || a.quantity "
     "FROM flash_sale_item a JOIN flash_sale_order o ON o.allotment = a.allotment "
     "AND o.state IN ('PENDING', 'PAID') GROUP BY a.allotment, a.quantity HAVING count(o.id) > "
     "a.quantity "
     "ORDER BY a.allotment"},
    {"I2", "a member never holds more than the limit in its scope",
     "SELECT 'member ' || o.member || ' holds ' || count(*) || ' in ' || o.scope || ', allowed are "
     "' || "
     "max(o.per_member) FROM flash_sale_order o WHERE o.state IN ('PENDING', 'PAID') "
     "GROUP BY o.scope, o.member HAVING count(*) > max(o.per_member) ORDER BY o.scope, o.member"},
    {"I3", "held slots are unique and within 1..quantity",
     "SELECT * FROM (SELECT o.allotment || ' slot ' || o.slot || ' is held ' || count(*) || ' "
     "times' "
     "FROM flash_sale_order o WHERE o.state IN ('PENDING', 'PAID') GROUP BY o.allotment, o.slot "
     "HAVING count(*) > 1 ORDER BY o.allotment, o.slot) UNION ALL SELECT * FROM (SELECT "
     "o.allotment || ' slot ' "
     "|| coalesce(o.slot, 'none') || ' is outside 1..' || a.quantity FROM flash_sale_order o "
     "JOIN flash_sale_item a ON a.allotment = o.allotment WHERE o.state IN ('PENDING', 'PAID') "
     "AND (o.slot IS NULL OR o.slot < 1 OR o.slot > a.quantity) ORDER BY o.allotment, o.slot)"},
    {"I5",
     "the counter of sold units is the number of rows that hold one, and no lease goes beyond the "
     "quantity",
     "SELECT * FROM (SELECT a.allotment || ' counts ' || a.sold || ' sold, rows that hold a unit "
     "are ' || "
     "(SELECT count(*) FROM flash_sale_order o WHERE o.allotment = a.allotment "
     "AND o.state IN ('PENDING', 'PAID')) FROM flash_sale_item a WHERE a.sold <> "
     "(SELECT count(*) FROM flash_sale_order o WHERE o.allotment = a.allotment "
     "AND o.state IN ('PENDING', 'PAID')) ORDER BY a.allotment) UNION ALL SELECT * FROM (SELECT "
     "l.allotment || "
     "' leases up to ' || max(l.last_slot) || ' of ' || a.quantity FROM engine_lease l "
     "JOIN flash_sale_item a ON a.allotment = l.allotment GROUP BY l.allotment, a.quantity "
     "HAVING max(l.last_slot) > a.quantity ORDER BY l.allotment) UNION ALL SELECT * FROM (SELECT "
     "x.scope || "
     "' has an outbox step ' || x.number || ' above its last number ' || s.last_number FROM outbox "
     "x "
     "JOIN engine_shard s ON s.scope = x.scope AND s.shard = x.shard WHERE x.number > "
     "s.last_number "
     "ORDER BY x.scope, x.number)"},
    {"I8", "every order's state is its last history row, and each change has one row",
     "SELECT * FROM (SELECT 'order ' || lower(hex(o.id)) || ' is ' || o.state || ' without a "
     "history row of it' "
     "FROM flash_sale_order o WHERE NOT EXISTS (SELECT 1 FROM flash_sale_order_history h "
     "WHERE h.order_id = o.id AND h.to_state = o.state) ORDER BY o.id) UNION ALL SELECT * FROM ("
     "SELECT 'order ' || lower(hex(h.order_id)) || ' has history beyond its state ' || o.state "
     "FROM flash_sale_order_history h JOIN flash_sale_order o ON o.id = h.order_id "
     "WHERE h.from_state = o.state ORDER BY h.order_id)"},
    {"M3", "no money is kept without a PAID order",
     "SELECT 'attempt ' || lower(hex(p.id)) || ' is approved, its order is ' || o.state || ' and "
     "no refund is noted' "
     "FROM payment_attempt p JOIN flash_sale_order o ON o.id = p.order_id WHERE p.state = "
     "'APPROVED' "
     "AND o.state <> 'PAID' AND NOT EXISTS (SELECT 1 FROM refund r WHERE r.attempt_id = p.id) "
     "ORDER BY p.id"},
};

}  // namespace

bool VerifyReport::ok() const {
  return std::all_of(checks.begin(), checks.end(),
                     [](const Check& c) { return c.findings.empty(); });
}

Result<VerifyReport> verify(db::Session& session) {
  VerifyReport report;
  for (const Rule& rule : kRules) {
    VerifyReport::Check check{rule.name, rule.what, {}};
    const std::string sql = fmt::format("SELECT * FROM ({}) LIMIT {}", rule.sql, kMaxFindings + 1);
    const Result<db::Rows> rows = session.query(sql);
    if (!rows) return fail(rows.error());
    for (const db::Row& row : *rows) {
      if (check.findings.size() == kMaxFindings) {
        check.findings.emplace_back("and more");
        break;
      }
      check.findings.push_back(row.text(0));
    }
    report.checks.push_back(std::move(check));
  }
  return report;
}

std::string to_text(const VerifyReport& report) {
  std::string text;
  for (const auto& check : report.checks) {
    text += fmt::format("{:<4} {:<5} {}\n", check.name, check.findings.empty() ? "ok" : "WRONG",
                        check.what);
    for (const std::string& finding : check.findings)
      text += fmt::format("           {}\n", finding);
  }
  return text;
}

std::string to_json(const VerifyReport& report) {
  std::string text = fmt::format("{{\"ok\":{},\"checks\":[", report.ok());
  for (std::size_t i = 0; i < report.checks.size(); ++i) {
    const auto& check = report.checks[i];
    if (i > 0) text += ',';
    text += fmt::format(R"({{"name":"{}","what":{},"ok":{},"findings":[)", check.name,
                        http::json_quote(check.what), check.findings.empty());
    for (std::size_t k = 0; k < check.findings.size(); ++k) {
      if (k > 0) text += ',';
      text += http::json_quote(check.findings[k]);
    }
    text += "]}";
  }
  text += "]}";
  return text;
}

}  // namespace doorbuster::app

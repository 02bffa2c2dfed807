#include "bench/ledger_copy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bench/machine.hpp"
#include "db/database.hpp"
#include "db/migrations.hpp"

namespace doorbuster::bench {
namespace {

using common::Done;
using common::fail;
using common::Result;

/// Tables that a fresh ledger has filled by itself, or that only SQLite knows of.
constexpr std::string_view kOwnTables = "name NOT LIKE 'sqlite_%' AND name NOT LIKE '%migration%'";

Result<std::vector<std::string>> table_names(db::Session& session) {
  const auto rows = session.query(fmt::format(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND {} ORDER BY rowid", kOwnTables));
  if (!rows) return fail(rows.error());
  std::vector<std::string> names;
  for (const db::Row& row : *rows) names.push_back(row.text(0));
  return names;
}

Result<std::int64_t> count_of(db::Session& session, const std::string& table) {
  const auto rows = session.query(fmt::format("SELECT count(*) FROM {}", table));
  if (!rows) return fail(rows.error());
  return rows->front().integer(0);
}

/// Calls `visit` with each table and how many rows it has, in one snapshot.
template <class F>
Result<Done> each_table(const std::filesystem::path& ledger, F&& visit) {
  return db::read_sqlite_once(ledger.string(), [&](db::Session& session) -> Result<Done> {
    const auto names = table_names(session);
    if (!names) return fail(names.error());
    for (const std::string& name : *names) {
      const auto count = count_of(session, name);
      if (!count) return fail(count.error());
      Result<Done> visited = visit(session, name, *count);
      if (!visited) return visited;
    }
    return Done{};
  });
}

/// The rows behind the first `skip`, by the table's first column: ids rise with time.
Result<TableRows> read_table(db::Session& session, const std::string& name, std::int64_t skip) {
  TableRows table{.name = name, .columns = {}, .rows = {}};
  const auto about = session.query(fmt::format("SELECT name FROM pragma_table_info('{}')", name));
  if (!about) return fail(about.error());
  std::vector<std::string> wanted;
  for (const db::Row& row : *about) {
    table.columns.push_back(row.text(0));
    wanted.push_back(fmt::format("typeof({0}), {0}", row.text(0)));
  }
  const auto rows =
      session.query(fmt::format("SELECT {} FROM {} ORDER BY {} LIMIT -1 OFFSET {}",
                                fmt::join(wanted, ", "), name, table.columns.front(), skip));
  if (!rows) return fail(rows.error());
  for (const db::Row& row : *rows) {
    std::vector<db::Value> values;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const std::string& type = row.text(2 * i);
      if (type == "integer") {
        values.emplace_back(row.integer(2 * i + 1));
      } else if (type == "text") {
        values.emplace_back(row.text(2 * i + 1));
      } else if (type == "blob") {
        values.emplace_back(row.bytes(2 * i + 1));
      } else {
        values.emplace_back(nullptr);
      }
    }
    table.rows.push_back(std::move(values));
  }
  return table;
}

struct AsParam {
  db::Param operator()(std::nullptr_t) const { return nullptr; }
  db::Param operator()(std::int64_t value) const { return value; }
  db::Param operator()(const std::string& text) const { return std::string_view(text); }
  db::Param operator()(const std::vector<std::uint8_t>& bytes) const {
    return std::span<const std::uint8_t>(bytes);
  }
};

std::string insert_sql(const TableRows& table) {
  std::vector<std::string> places;
  for (std::size_t i = 1; i <= table.columns.size(); ++i) places.push_back(fmt::format("${}", i));
  return fmt::format("INSERT INTO {} ({}) VALUES ({})", table.name, fmt::join(table.columns, ", "),
                     fmt::join(places, ", "));
}

Result<Done> insert(db::Session& session, const TableRows& table, const std::string& sql,
                    std::size_t first, std::size_t end) {
  std::vector<db::Param> params;
  for (std::size_t i = first; i < std::min(end, table.rows.size()); ++i) {
    params.clear();
    for (const db::Value& value : table.rows[i]) params.push_back(std::visit(AsParam(), value));
    const auto done = session.execute(sql, params);
    if (!done) return fail(done.error());
  }
  return Done{};
}

/// Its threads inherit the core on which they are started.
class OnServerCore {
 public:
  OnServerCore() { pin_this_thread(kServerCore); }
  ~OnServerCore() { pin_this_thread(kLoadCore); }
  OnServerCore(const OnServerCore&) = delete;
  OnServerCore& operator=(const OnServerCore&) = delete;
};

}  // namespace

Result<RowCounts> count_rows(const std::filesystem::path& ledger) {
  RowCounts counts;
  const Result<Done> done = each_table(
      ledger, [&](db::Session&, const std::string& name, std::int64_t count) -> Result<Done> {
        counts[name] = count;
        return Done{};
      });
  if (!done) return fail(done.error());
  return counts;
}

Result<LedgerCopy> copy_grants(const std::filesystem::path& ledger, const RowCounts& before,
                               std::int64_t grants) {
  LedgerCopy copy;
  const Result<Done> done = each_table(
      ledger,
      [&](db::Session& session, const std::string& name, std::int64_t count) -> Result<Done> {
        const auto found = before.find(name);
        const std::int64_t had = found == before.end() ? 0 : found->second;
        const bool grew = count - had >= grants;
        // What did not grow with the grants is small, and may be what they refer to.
        if (!grew && (count == 0 || had >= grants)) return Done{};
        auto rows = read_table(session, name, grew ? had : 0);
        if (!rows) return fail(rows.error());
        (grew ? copy.per_grant : copy.parents).push_back(std::move(*rows));
        return Done{};
      });
  if (!done) return fail(done.error());
  if (copy.per_grant.empty()) {
    return fail(common::ErrorCode::kNotFound, "no table of the ledger grew with the grants");
  }
  return copy;
}

Result<RawInserts> insert_again(const LedgerCopy& copy, std::int64_t batch,
                                const common::Clock& clock) {
  const TempFolder folder;
  const auto metrics = common::make_metrics();
  const OnServerCore here;
  const auto database =
      db::open_sqlite({.path = (folder.path() / "raw.db").string(), .readers = 1}, clock, *metrics);
  if (!database) return fail(database.error());
  Result<Done> last = Done{};
  const auto submit = [&](db::Database::Work work) {
    (*database)->submit_write(db::Priority::kRush, std::move(work), [&last](Result<Done> outcome) {
      if (!outcome) last = std::move(outcome);
    });
  };
  submit([&](db::Session& session) -> Result<Done> {
    const auto migrated = db::migrate(session, db::sqlite_migrations(), 0);
    if (!migrated) return fail(migrated.error());
    for (const TableRows& table : copy.parents) {
      const auto done = insert(session, table, insert_sql(table), 0, table.rows.size());
      if (!done) return done;
    }
    const auto none = session.execute("UPDATE flash_sale_item SET sold = 0");
    if (!none) return fail(none.error());
    return Done{};
  });
  std::vector<std::string> sql;
  for (const TableRows& table : copy.per_grant) sql.push_back(insert_sql(table));
  const TableRows& first_table = copy.per_grant.front();
  const auto allotment = static_cast<std::size_t>(
      std::find(first_table.columns.begin(), first_table.columns.end(), "allotment") -
      first_table.columns.begin());

  const Neighbours neighbours;
  const common::Steady begun = clock.steady();
  const double cpu = own_cpu_seconds();
  const std::size_t rows = first_table.rows.size();
  for (std::size_t first = 0; first < rows; first += static_cast<std::size_t>(batch)) {
    const std::size_t end = std::min(rows, first + static_cast<std::size_t>(batch));
    submit([&, first, end](db::Session& session) -> Result<Done> {
      for (std::size_t i = 0; i < copy.per_grant.size(); ++i) {
        const auto done = insert(session, copy.per_grant[i], sql[i], first, end);
        if (!done) return done;
      }
      const auto sold =
          session.execute("UPDATE flash_sale_item SET sold = sold + $1 WHERE allotment = $2",
                          {static_cast<std::int64_t>(end - first),
                           std::visit(AsParam(), first_table.rows[first][allotment])});
      if (!sold) return fail(sold.error());
      return Done{};
    });
  }
  (*database)->stop();
  if (!last) return fail(last.error());
  return RawInserts{.seconds = std::chrono::duration<double>(clock.steady() - begun).count(),
                    .cpu_seconds = own_cpu_seconds() - cpu,
                    .neighbours = neighbours.share()};
}

}  // namespace doorbuster::bench

#include "db/migrations.hpp"

#include <openssl/sha.h>

#include <array>
#include <optional>

#include "common/text.hpp"

namespace doorbuster::db {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

std::string checksum(std::string_view sql) {
  std::array<std::uint8_t, SHA256_DIGEST_LENGTH> digest{};
  // The one-shot form takes unsigned characters, which may alias any bytes.
  SHA256(reinterpret_cast<const unsigned char*>(sql.data()), sql.size(), digest.data());
  return common::hex_encode(digest);
}

/// Walks over statements. One ends at a ';' that ends its line and stands outside of quotes and
/// comments, so a trigger's inner statements share a line with what follows them.
class Statements {
 public:
  explicit Statements(std::string_view sql) : rest_(sql) {}

  std::optional<std::string_view> next() {
    skip_blank();
    if (rest_.empty()) return std::nullopt;
    std::size_t at = 0;
    while (at < rest_.size()) {
      if (ends_here(at)) {
        ++at;
        break;
      }
      at = after(at);
    }
    const std::string_view statement = rest_.substr(0, at);
    rest_.remove_prefix(at);
    return statement;
  }

 private:
  /// Blanks and comments between statements; a file may end in a comment.
  void skip_blank() {
    while (!rest_.empty()) {
      const bool comment = rest_.starts_with("--") || rest_.starts_with("/*");
      if (!comment && std::string_view(" \t\r\n").find(rest_.front()) == std::string_view::npos)
        return;
      rest_.remove_prefix(after(0));
    }
  }

  bool ends_here(std::size_t at) const {
    if (rest_[at] != ';') return false;
    const std::size_t next = rest_.find_first_not_of(" \t\r", at + 1);
    return next == std::string_view::npos || rest_[next] == '\n';
  }

  /// The position behind the character, quoted text or comment that starts at `at`.
  std::size_t after(std::size_t at) const {
    const char c = rest_[at];
    if (c == '\'' || c == '"') return behind(std::string_view(&rest_[at], 1), at + 1);
    if (rest_.substr(at, 2) == "--") return behind("\n", at + 2);
    if (rest_.substr(at, 2) == "/*") return behind("*/", at + 2);
    return at + 1;
  }

  std::size_t behind(std::string_view end, std::size_t from) const {
    const std::size_t found = rest_.find(end, from);
    return found == std::string_view::npos ? rest_.size() : found + end.size();
  }

  std::string_view rest_;
};

std::string label(const Migration& step) {
  return "migration " + std::to_string(step.version) + " (" + std::string(step.name) + ")";
}

/// The newest applied version, after all checks; 0 for a database without any.
Result<int> check(Session& session, std::span<const Migration> steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    DOORBUSTER_ENSURE(steps[i].version == static_cast<int>(i) + 1,
                      "migrations count from 1, no gaps");
  }
  const Result<Rows> table = session.query(
      "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_migration'");
  if (!table) return fail(table.error());
  if (table->front().integer(0) == 0) return 0;

  const Result<Rows> rows =
      session.query("SELECT version, name, checksum FROM schema_migration ORDER BY version");
  if (!rows) return fail(rows.error());
  if (rows->size() > steps.size()) {
    const Row& newest = rows->back();
    return fail(ErrorCode::kConflict, "the database is at migration " +
                                          std::to_string(newest.integer(0)) + " (" +
                                          newest.text(1) + "), but this program knows only " +
                                          std::to_string(steps.size()) +
                                          ": start a program at least as new as the database");
  }
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Row& row = (*rows)[i];
    const Migration& step = steps[i];
    if (row.integer(0) != step.version) {
      return fail(ErrorCode::kConflict, "schema_migration lacks " + label(step) +
                                            " although a later one is there: restore the database "
                                            "from a backup, nobody can tell what state it is in");
    }
    if (row.text(2) != checksum(step.sql)) {
      return fail(ErrorCode::kConflict,
                  label(step) + " was applied with other content (checksum " + row.text(2) +
                      ") than this program carries (" + checksum(step.sql) +
                      "): an applied step must not be edited; start the program that applied it, "
                      "or put the change into a new step");
    }
  }
  return static_cast<int>(rows->size());
}

Result<Done> apply(Session& session, const Migration& step, std::int64_t now_us) {
  Statements statements(step.sql);
  while (const std::optional<std::string_view> statement = statements.next()) {
    const Result<std::int64_t> done = session.execute(*statement);
    if (!done) {
      common::Error error = done.error();
      error.message = label(step) + ": " + error.message;
      return fail(std::move(error));
    }
  }
  const std::string sum = checksum(step.sql);
  const Result<std::int64_t> noted = session.execute(
      "INSERT INTO schema_migration (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)",
      {std::int64_t{step.version}, step.name, sum, now_us});
  if (!noted) return fail(noted.error());
  return Done{};
}

}  // namespace

Result<MigrationStatus> migrate(Session& session, std::span<const Migration> steps,
                                std::int64_t now_us) {
  const Result<int> applied = check(session, steps);
  if (!applied) return fail(applied.error());
  const Result<std::int64_t> made = session.execute(
      "CREATE TABLE IF NOT EXISTS schema_migration (version INTEGER NOT NULL PRIMARY KEY, "
      "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)");
  if (!made) return fail(made.error());
  for (const Migration& step : steps.subspan(static_cast<std::size_t>(*applied))) {
    const Result<Done> done = apply(session, step, now_us);
    if (!done) return fail(done.error());
  }
  const int known = static_cast<int>(steps.size());
  return MigrationStatus{.applied = known, .known = known};
}

Result<MigrationStatus> migration_status(Session& session, std::span<const Migration> steps) {
  const Result<int> applied = check(session, steps);
  if (!applied) return fail(applied.error());
  return MigrationStatus{.applied = *applied, .known = static_cast<int>(steps.size())};
}

}  // namespace doorbuster::db

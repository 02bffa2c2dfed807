#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"

namespace doorbuster::db {

/// One numbered step. `sql` may hold several statements, each ending in ";\n", so the statements
/// inside of a trigger share their line with what follows them.
struct Migration {
  int version = 0;        ///< from 1, without gaps
  std::string_view name;  ///< the file's name in migrations/
  std::string_view sql;
};

/// The steps for SQLite, compiled in from migrations/sqlite/*.sql.
[[nodiscard]] std::span<const Migration> sqlite_migrations();

struct MigrationStatus {
  int applied = 0;  ///< newest version in the database
  int known = 0;    ///< newest version that this program knows
};

/// Applies what is missing, inside the caller's write transaction (which is the lock).
/// Errors: kConflict when the database is newer than the program, or when an applied step's
/// checksum is not the one that this program knows; the message names the step.
[[nodiscard]] common::Result<MigrationStatus> migrate(Session& session,
                                                      std::span<const Migration> steps,
                                                      std::int64_t now_us);

/// The same checks without applying anything.
[[nodiscard]] common::Result<MigrationStatus> migration_status(Session& session,
                                                               std::span<const Migration> steps);

}  // namespace doorbuster::db

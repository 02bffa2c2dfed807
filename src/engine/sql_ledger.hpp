#pragma once

#include <memory>

#include "common/executor.hpp"
#include "common/metrics.hpp"
#include "db/database.hpp"
#include "engine/grant_table.hpp"
#include "engine/ledger.hpp"

namespace doorbuster::engine {

/// The ledger over a SQL database, in statements that SQLite and PostgreSQL both read. `home` is
/// the engine's executor. All must outlive the ledger.
[[nodiscard]] std::unique_ptr<Ledger> make_sql_ledger(db::Database& database,
                                                      common::Executor& home,
                                                      const common::Clock& clock,
                                                      common::Metrics& metrics, GrantTable table);

}  // namespace doorbuster::engine

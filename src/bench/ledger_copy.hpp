#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "db/session.hpp"

namespace doorbuster::bench {

/// How many rows each table of a ledger has.
using RowCounts = std::map<std::string, std::int64_t>;
[[nodiscard]] common::Result<RowCounts> count_rows(const std::filesystem::path& ledger);

/// Rows of one table, as they were read.
struct TableRows {
  std::string name;
  std::vector<std::string> columns;
  std::vector<std::vector<db::Value>> rows;
};

/// What a number of grants wrote into a ledger: whole rows of every table that grew with them, and
/// of the tables that these refer to.
struct LedgerCopy {
  std::vector<TableRows> per_grant;  ///< in the order in which tables were made
  std::vector<TableRows> parents;
};
/// `before` is from before the grants, of which there were `grants`.
[[nodiscard]] common::Result<LedgerCopy> copy_grants(const std::filesystem::path& ledger,
                                                     const RowCounts& before, std::int64_t grants);

struct RawInserts {
  double seconds = 0;
  double cpu_seconds = 0;  ///< of this process
  double neighbours = 0;   ///< Neighbours::share()
};
/// Writes the same rows into a fresh ledger on the server's core, `batch` grants in a transaction,
/// with the same fsync; and once a batch the counter of sold units, as the server does.
[[nodiscard]] common::Result<RawInserts> insert_again(const LedgerCopy& copy, std::int64_t batch,
                                                      const common::Clock& clock);

}  // namespace doorbuster::bench

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/executor.hpp"
#include "common/result.hpp"
#include "common/task.hpp"
#include "db/database.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

/// A node as another one reads it.
struct NodeBeat {
  NodeId id;
  std::int64_t counter = 0;  ///< grows while the node lives
  bool reaches_gate = false;
};

/// The heartbeats of the nodes that share one ledger (S11): hints, on which no safety rests.
/// Written for several implementations; calls are made on the engine's executor and answer there.
/// Errors are the ledger's.
class NodeTable {
 public:
  NodeTable() = default;
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;
  virtual ~NodeTable() = default;

  /// Makes a new node of this name, and ends those that had it before: a name is one place, where
  /// one process runs.
  [[nodiscard]] virtual common::Task<common::Result<NodeId>> enlist(std::string name) = 0;
  /// Raises the node's counter and reads everybody's that is not known to have ended. kNotFound
  /// when this node has been ended: another process took its name.
  [[nodiscard]] virtual common::Task<common::Result<std::vector<NodeBeat>>> beat(
      NodeId node, bool reaches_gate) = 0;
};

/// Over a SQL database. All must outlive the table.
[[nodiscard]] std::unique_ptr<NodeTable> make_sql_node_table(db::Database& database,
                                                             common::Executor& home,
                                                             const common::Clock& clock);

}  // namespace doorbuster::engine

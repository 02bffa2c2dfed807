#include "engine/node_table.hpp"

namespace doorbuster::engine {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;
using common::to_micros;

class SqlNodeTable final : public NodeTable {
 public:
  SqlNodeTable(db::Database& database, common::Executor& home, const common::Clock& clock)
      : database_(database), home_(home), clock_(clock) {}

  Task<Result<NodeId>> enlist(std::string name) override {
    std::function<Result<NodeId>(db::Session&)> work =
        [this, name = std::move(name)](db::Session& session) -> Result<NodeId> {
      const std::int64_t now = to_micros(clock_.now());
      const std::string_view text = name;
      const Result<std::int64_t> former = session.execute(
          "UPDATE engine_node SET ended_at = $1 WHERE name = $2 AND ended_at IS NULL", {now, text});
      if (!former) return fail(former.error());
      const Result<db::Rows> made = session.query(
          "INSERT INTO engine_node (name, counter, reaches_gate, started_at) "
          "VALUES ($1, 0, 1, $2) RETURNING id",
          {text, now});
      if (!made) return fail(made.error());
      return NodeId{made->front().integer(0)};
    };
    return database_.write<NodeId>(home_, db::Priority::kRest, std::move(work));
  }

  Task<Result<std::vector<NodeBeat>>> beat(NodeId node, bool reaches_gate) override {
    using Beats = std::vector<NodeBeat>;
    std::function<Result<Beats>(db::Session&)> work =
        [node, reaches_gate](db::Session& session) -> Result<Beats> {
      const Result<std::int64_t> raised = session.execute(
          "UPDATE engine_node SET counter = counter + 1, reaches_gate = $1 "
          "WHERE id = $2 AND ended_at IS NULL",
          {std::int64_t{reaches_gate ? 1 : 0}, node.value()});
      if (!raised) return fail(raised.error());
      if (*raised == 0) {
        return fail(ErrorCode::kNotFound, "another process has taken this node's name");
      }
      const Result<db::Rows> rows =
          session.query("SELECT id, counter, reaches_gate FROM engine_node WHERE ended_at IS NULL");
      if (!rows) return fail(rows.error());
      Beats beats;
      for (const db::Row& row : *rows) {
        beats.push_back({NodeId{row.integer(0)}, row.integer(1), row.integer(2) != 0});
      }
      return beats;
    };
    return database_.write<Beats>(home_, db::Priority::kRest, std::move(work));
  }

 private:
  db::Database& database_;
  common::Executor& home_;
  const common::Clock& clock_;
};

}  // namespace

std::unique_ptr<NodeTable> make_sql_node_table(db::Database& database, common::Executor& home,
                                               const common::Clock& clock) {
  return std::make_unique<SqlNodeTable>(database, home, clock);
}

}  // namespace doorbuster::engine

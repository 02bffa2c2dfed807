#pragma once

#include <memory>

#include "db/database.hpp"
#include "sim/link.hpp"

namespace doorbuster::sim {

/// The database server of a run: the product's own schema and SQL over SQLite in memory. Each call
/// is one transaction at one moment; what a network and a crash do to calls and answers is the
/// links'. Every transaction is serializable, so of what weaker isolation allows only that is shown
/// which the rules speak of: a fence that was read early (Rule::kFenceLock).
class Store : public Server {
 public:
  Store();
  /// Everything that a former run left is gone.
  void clear();
  [[nodiscard]] common::Result<common::Done> write(const db::Database::Work& work);
  [[nodiscard]] common::Result<common::Done> read(const db::Database::Work& work);
  void must(const std::string& sql);
  [[nodiscard]] db::Rows rows(const std::string& sql);
  [[nodiscard]] std::int64_t number(const std::string& sql);

 private:
  std::unique_ptr<db::InMemoryDatabase> database_;
};

/// The store as one node sees it.
class NodeDatabase final : public db::Database {
 public:
  NodeDatabase(Store& store, Link& link) : store_(store), link_(link) {}
  void submit_write(db::Priority priority, Work work, Answer answer) override;
  void submit_read(Work work, Answer answer) override;
  [[nodiscard]] std::optional<common::Error> trouble() const override { return std::nullopt; }
  void stop() override {}

 private:
  Store& store_;
  Link& link_;
};

}  // namespace doorbuster::sim

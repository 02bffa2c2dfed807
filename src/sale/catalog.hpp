#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/task.hpp"
#include "db/database.hpp"
#include "engine/engine.hpp"
#include "sale/sale.hpp"

namespace doorbuster::sale {

/// What admission needs of an item, without a look at the database.
struct ItemView {
  std::shared_ptr<const Sale> sale;
  std::size_t item = 0;                  ///< its place in sale->items
  std::shared_ptr<engine::Scope> scope;  ///< null while the gate is not prepared: answer busy
  std::size_t index = 0;                 ///< its place in the scope's rules
  [[nodiscard]] const Item& get() const { return sale->items[item]; }
};

struct Snapshot {
  std::vector<std::shared_ptr<const Sale>> sales;    ///< in id order; of settled ones the newest
  std::unordered_map<std::int64_t, ItemView> items;  ///< by item id
  [[nodiscard]] std::shared_ptr<const Sale> find(SaleId id) const;
};

/// The sales that are on, as this node knows them: read from the ledger at start and after each
/// change, and swapped as a whole, so that a request never sees half of a change.
class Catalog {
 public:
  Catalog(db::Database& database, engine::Engine& engine);

  /// The current snapshot; costs one relaxed read where nothing has changed. Any thread.
  [[nodiscard]] const Snapshot& current() const;

  /// Reads all sales again. Scopes that the engine has prepared are joined; none is prepared here.
  [[nodiscard]] common::Task<common::Result<common::Done>> reload(common::Executor& caller);

  /// Prepares the gate for every sale that is switched on, then reloads: the start of a server.
  [[nodiscard]] common::Task<common::Result<common::Done>> prepare_all(common::Executor& caller);

 private:
  void publish(std::vector<Sale> sales);

  db::Database& database_;
  engine::Engine& engine_;
  const std::uint64_t identity_;  // an address may be used again by another catalog
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_;  // Guarded by mutex_.
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace doorbuster::sale

#include "sale/catalog.hpp"

#include <algorithm>

#include "sale/sale_store.hpp"

namespace doorbuster::sale {

using common::Done;
using common::fail;
using common::Result;
using common::Task;

std::shared_ptr<const Sale> Snapshot::find(SaleId id) const {
  const auto found =
      std::find_if(sales.begin(), sales.end(), [&](const auto& s) { return s->id == id; });
  return found == sales.end() ? nullptr : *found;
}

Catalog::Catalog(db::Database& database, engine::Engine& engine)
    : database_(database),
      engine_(engine),
      identity_([] {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
      }()),
      snapshot_(std::make_shared<const Snapshot>()) {}

const Snapshot& Catalog::current() const {
  // Each thread keeps the snapshot it saw last: a shared count that every request of every thread
  // touches would cost more than the rest of a refusal.
  struct Kept {
    std::uint64_t owner = 0;
    std::uint64_t version = 0;
    std::shared_ptr<const Snapshot> snapshot;
  };
  thread_local Kept kept;
  const std::uint64_t version = version_.load(std::memory_order_acquire);
  if (kept.owner != identity_ || kept.version != version || !kept.snapshot) {
    const std::lock_guard lock(mutex_);
    kept = Kept{identity_, version_.load(std::memory_order_relaxed), snapshot_};
  }
  return *kept.snapshot;
}

Task<Result<Done>> Catalog::reload(common::Executor& caller) {
  std::function<Result<std::vector<Sale>>(db::Session&)> work = live_sales;
  Result<std::vector<Sale>> sales =
      co_await database_.read<std::vector<Sale>>(caller, std::move(work));
  if (!sales) co_return fail(sales.error());
  publish(std::move(*sales));
  co_return Done{};
}

Task<Result<Done>> Catalog::prepare_all(common::Executor& caller) {
  std::function<Result<std::vector<Sale>>(db::Session&)> work = live_sales;
  Result<std::vector<Sale>> sales =
      co_await database_.read<std::vector<Sale>>(caller, std::move(work));
  if (!sales) co_return fail(sales.error());
  for (const Sale& sale : *sales) {
    if (sale.state == SaleState::kDraft || sale.state == SaleState::kSettled) continue;
    for (engine::ScopeRules& rules : scope_rules(sale)) {
      const auto prepared = co_await engine_.prepare(caller, std::move(rules));
      if (!prepared) co_return fail(prepared.error());
    }
  }
  publish(std::move(*sales));
  co_return Done{};
}

void Catalog::publish(std::vector<Sale> sales) {
  auto snapshot = std::make_shared<Snapshot>();
  for (Sale& one : sales) {
    const auto sale = std::make_shared<const Sale>(std::move(one));
    snapshot->sales.push_back(sale);
    for (std::size_t i = 0; i < sale->items.size(); ++i) {
      const Item& item = sale->items[i];
      ItemView view{.sale = sale, .item = i, .scope = engine_.find(item.scope), .index = 0};
      if (view.scope) {
        const int index = view.scope->index_of(item.allotment);
        if (index < 0) {
          view.scope = nullptr;
        } else {
          view.index = static_cast<std::size_t>(index);
        }
      }
      snapshot->items.emplace(item.id.value(), std::move(view));
    }
  }
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace doorbuster::sale

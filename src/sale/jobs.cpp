#include "sale/jobs.hpp"

#include <fmt/format.h>

#include "admin/audit.hpp"
#include "common/log.hpp"
#include "sale/sale_store.hpp"

namespace doorbuster::sale {

using common::Done;
using common::fail;
using common::Result;
using common::Task;

SaleJobs::SaleJobs(RouteParts parts, common::Executor& home)
    : p_(parts), home_(home), signal_(home) {}

void SaleJobs::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<void> SaleJobs::run() {
  while (!stopping_.load()) {
    const Result<std::int64_t> changed = co_await close_events();
    if (!changed) {
      common::log(common::LogLevel::kWarn, "sales could not be closed now",
                  {{"why", std::string_view(changed.error().message)}});
    }
    const bool woken = co_await signal_.wait_until(p_.clock.steady() + std::chrono::seconds{1});
    static_cast<void>(woken);
  }
}

Task<Result<std::int64_t>> SaleJobs::close_events_for(common::Executor& caller) {
  common::ResumeOn there{home_};
  co_await there;
  Result<std::int64_t> changed = co_await close_events();
  common::ResumeOn back{caller};
  co_await back;
  co_return changed;
}

Task<Result<std::int64_t>> SaleJobs::close_events() {
  const Instant now = p_.clock.now();
  // A copy: the snapshot may be swapped while this waits.
  const std::vector<std::shared_ptr<const Sale>> sales = p_.catalog.current().sales;
  std::int64_t changed = 0;
  for (const std::shared_ptr<const Sale>& sale : sales) {
    const bool over = (sale->state == SaleState::kOpen || sale->state == SaleState::kPaused) &&
                      now >= sale->closes_at;
    bool settled = sale->state == SaleState::kClosed;
    if (settled) {
      for (const engine::ScopeRules& rules : scope_rules(*sale)) {
        const Result<bool> done = co_await p_.engine.settle(home_, rules.id);
        if (!done) co_return fail(done.error());
        settled = settled && *done;
      }
    }
    if (!over && !settled) continue;
    const SaleId id = sale->id;
    const SaleState from = sale->state;
    const SaleState to = over ? SaleState::kClosed : SaleState::kSettled;
    std::function<Result<bool>(db::Session&)> work = [=](db::Session& session) -> Result<bool> {
      const Result<bool> moved = change_sale_state(session, id, from, to, now);
      if (!moved || !*moved) return moved;
      const Result<Done> noted =
          admin::write_audit(session, {"system", "close-events"},
                             to == SaleState::kClosed ? "flash-sale.close" : "flash-sale.settle",
                             fmt::format("s{}", id.value()), "{}", now);
      if (!noted) return fail(noted.error());
      return true;
    };
    const Result<bool> moved =
        co_await p_.database.write<bool>(home_, db::Priority::kRest, std::move(work));
    if (!moved) co_return fail(moved.error());
    if (*moved) ++changed;
  }
  if (changed > 0) {
    const Result<Done> reloaded = co_await p_.catalog.reload(home_);
    if (!reloaded) co_return fail(reloaded.error());
  }
  co_return changed;
}

}  // namespace doorbuster::sale

#include "engine/standing.hpp"

#include <map>

#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Completion;
using common::Result;
using common::Task;

/// Only bounds the wait for a signal that stop() also sends.
constexpr std::chrono::hours kIdle{1};

StandingCheck::StandingCheck(Parts parts)
    : parts_(parts),
      signal_(parts.home),
      checks_(parts.metrics.counter("engine_standing_reads_total",
                                    "Readings of the ledger before grants were answered")),
      refused_(parts.metrics.counter(
          "engine_standing_refused_total",
          "Grants that the journal had and that were not answered as given all the same")) {}

void StandingCheck::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<bool> StandingCheck::stands(common::Executor& caller, Grant grant, common::Steady deadline) {
  const Completion<bool> answer(caller);
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back({grant.scope, grant.epoch, grant.id, answer});
  }
  signal_.set();
  const std::optional<bool> arrived = co_await answer.wait_until(deadline);
  co_return arrived.value_or(false);
}

Task<void> StandingCheck::run() {
  while (!stopping_.load()) {
    std::vector<Asked> asked;
    {
      const std::lock_guard lock(mutex_);
      asked.swap(asked_);
    }
    std::map<ScopeId, std::vector<Asked>> by_scope;
    for (Asked& one : asked) by_scope[one.scope].push_back(std::move(one));
    for (const auto& [scope, list] : by_scope) {
      std::vector<GrantId> ids;
      for (const Asked& one : list) ids.push_back(one.id);
      checks_.add();
      const Result<Standing> standing = co_await parts_.ledger.standing(scope, std::move(ids));
      for (std::size_t i = 0; i < list.size(); ++i) {
        const bool epoch =
            standing && (standing->epoch == list[i].epoch || !in_force(Rule::kCheckEpoch));
        const bool unmarked = standing && (!standing->marked[i] || !in_force(Rule::kCheckMark));
        if (!epoch || !unmarked) refused_.add();
        list[i].answer.complete(epoch && unmarked);
      }
    }
    if (!asked.empty()) continue;
    const bool woken = co_await signal_.wait_until(parts_.home.clock().steady() + kIdle);
    static_cast<void>(woken);
  }
  const std::lock_guard lock(mutex_);
  for (const Asked& one : asked_) one.answer.complete(false);
}

}  // namespace doorbuster::engine

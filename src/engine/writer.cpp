#include "engine/writer.hpp"

#include <algorithm>
#include <map>

#include "common/log.hpp"

namespace doorbuster::engine {
namespace {

using common::Done;
using common::LogLevel;
using common::Result;
using common::Task;

constexpr const char* kKindNames[] = {"recorded",  "same_holds", "same_terminal", "fenced",
                                      "slot_held", "merged",     "rule_broken"};

}  // namespace

Writer::Writer(Parts parts, Config config, std::function<void()> steps_written)
    : parts_(parts),
      config_(config),
      steps_written_(std::move(steps_written)),
      batch_rows_(parts.metrics.histogram("engine_batch_rows", "Grants in one ledger transaction",
                                          {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000})),
      record_seconds_(parts.metrics.histogram("engine_record_seconds",
                                              "One batch from the writer to its commit",
                                              common::time_buckets())),
      retries_(parts.metrics.counter("engine_record_retries_total",
                                     "Batches that were sent to the ledger again")),
      down_(parts.metrics.gauge("engine_ledger_down",
                                "1 while the last write to the ledger failed")) {
  for (const char* name : kKindNames) {
    by_kind_.push_back(&parts.metrics.counter(
        "engine_records_total", "Grants by what the ledger made of them", {{"outcome", name}}));
  }
}

Task<void> Writer::run() {
  for (;;) {
    std::vector<Grant> batch = co_await parts_.journal.next_batch(config_.batch_max);
    if (batch.empty()) co_return;
    const bool written = co_await record_all(std::move(batch));
    if (!written) {
      parts_.journal.abandon();
      co_return;
    }
    parts_.journal.commit();
  }
}

Task<bool> Writer::record_all(std::vector<Grant> batch) {
  std::chrono::milliseconds wait = config_.retry_first;
  while (!batch.empty()) {
    batch_rows_.observe(static_cast<double>(batch.size()));
    const common::Steady begun = parts_.home.clock().steady();
    std::vector<Grant> copy = batch;
    Result<std::vector<RecordOutcome>> outcomes = co_await parts_.ledger.record(std::move(copy));
    record_seconds_.observe(
        std::chrono::duration<double>(parts_.home.clock().steady() - begun).count());
    if (!outcomes) {
      if (!ledger_down_.exchange(true)) {
        down_.set(1);
        common::log(LogLevel::kError, "the ledger refuses a batch; it is kept and sent again",
                    {{"code", common::to_string(outcomes.error().code)},
                     {"why", std::string_view(outcomes.error().message)},
                     {"grants", static_cast<std::int64_t>(batch.size())}});
      }
      if (give_up_.load()) {
        for (const Grant& grant : batch) {
          parts_.outcomes.publish(grant.id, common::fail(outcomes.error()));
        }
        co_return false;
      }
      retries_.add();
      co_await common::sleep_until(parts_.home, parts_.home.clock().steady() + wait);
      wait = std::min(wait * 2, config_.retry_most);
      continue;
    }
    if (ledger_down_.exchange(false)) {
      down_.set(0);
      common::log(LogLevel::kInfo, "the ledger records again");
    }
    wait = config_.retry_first;
    std::vector<Grant> again = co_await settle_batch(std::move(batch), std::move(*outcomes));
    batch = std::move(again);
  }
  co_return true;
}

/// Tells the gate, then the waiters. What must be recorded again (another slot) comes back.
Task<std::vector<Grant>> Writer::settle_batch(std::vector<Grant> batch,
                                              std::vector<RecordOutcome> outcomes) {
  std::map<ScopeId, std::pair<Epoch, std::vector<Confirmation>>> confirmations;
  std::vector<Grant> again;
  bool steps = false;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const RecordOutcome& outcome = outcomes[i];
    by_kind_[static_cast<std::size_t>(outcome.kind)]->add();
    switch (outcome.kind) {
      case RecordKind::kRecorded:
      case RecordKind::kSameHolds: {
        auto& [epoch, list] = confirmations[batch[i].scope];
        epoch = std::max(epoch, batch[i].epoch);
        list.push_back({batch[i].member, batch[i].id, outcome.slot, outcome.nth, outcome.due_at});
        break;
      }
      case RecordKind::kMerged:
      case RecordKind::kRuleBroken:
      case RecordKind::kSlotHeld:
        steps = true;
        break;
      case RecordKind::kSameTerminal:
      case RecordKind::kFenced:
        break;
    }
  }
  for (auto& [scope, pair] : confirmations) {
    std::vector<Confirmation> list = std::move(pair.second);
    const Result<Done> confirmed = co_await parts_.gate.confirm(scope, pair.first, std::move(list));
    // A gate in a later epoch has read these rows, or will: a confirm only marks (S9).
    static_cast<void>(confirmed);
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (outcomes[i].kind != RecordKind::kSlotHeld) {
      const Result<RecordOutcome> outcome = outcomes[i];
      parts_.outcomes.publish(batch[i].id, outcome);
      continue;
    }
    Grant& grant = batch[i];
    common::log(LogLevel::kError, "the gate gave a slot that another grant holds",
                {{"grant", std::string_view(common::to_string(grant.id))},
                 {"slot", std::int64_t{grant.slot.value()}}});
    const Result<std::optional<Slot>> other =
        co_await parts_.gate.replace(grant.scope, grant.epoch, grant.member, grant.id, grant.slot);
    if (other && *other) {
      grant.slot = **other;
      again.push_back(std::move(grant));
      continue;
    }
    // None left, or the gate knows nothing of it (any more). It ends as a row all the same (S1).
    std::vector<Grant> one{grant};
    const Result<std::vector<RecordOutcome>> ended =
        co_await parts_.ledger.finish_reclaim(std::move(one));
    if (!ended) {
      again.push_back(std::move(grant));
      continue;
    }
    steps = true;
    const Result<RecordOutcome> outcome = ended->front();
    parts_.outcomes.publish(grant.id, outcome);
  }
  if (steps && steps_written_) steps_written_();
  co_return again;
}

}  // namespace doorbuster::engine

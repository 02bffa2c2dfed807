#include "engine/desk.hpp"

#include <utility>

namespace doorbuster::engine {

using common::Done;
using common::Result;
using common::Task;

namespace {

constexpr const char* kBusyNames[] = {"queue_full", "ledger_down", "not_prepared",
                                      "rebuilding", "returning",   "timeout",
                                      "uncertain",  "count_alarm", "no_slot_for_row"};

}  // namespace

std::string_view to_string(BusyReason reason) noexcept {
  return kBusyNames[static_cast<std::size_t>(reason)];
}

Desk::Desk(Parts parts, Others others, const common::Clock& clock, Config config)
    : parts_(parts),
      others_(std::move(others)),
      clock_(clock),
      config_(config),
      ids_(clock, config_.random),
      granted_(parts.metrics.counter("engine_grants_total", "Grants that were answered as given")),
      adopted_(parts.metrics.counter("engine_adopted_total",
                                     "Requests that joined a grant which was in flight")),
      already_(
          parts.metrics.counter("engine_already_total", "Requests of members who hold a grant")),
      dry_(parts.metrics.counter("engine_dry_total", "Requests that found the gate dry")),
      durable_seconds_(parts.metrics.histogram("engine_durable_seconds",
                                               "From the decision of the gate to the durable row",
                                               common::time_buckets())) {
  for (const char* name : kBusyNames) {
    busy_.push_back(&parts.metrics.counter("engine_busy_total", "Requests answered busy, by reason",
                                           {{"reason", name}}));
  }
}

DeskAnswer Desk::busy(BusyReason reason) {
  busy_[static_cast<std::size_t>(reason)]->add();
  return Busy{reason};
}

Task<DeskAnswer> Desk::take(common::Executor& caller, Ask ask) {
  const common::Steady deadline = clock_.steady() + config_.request_budget;
  Scope& scope = *ask.scope;
  const Epoch epoch = scope.epoch();
  if (epoch == Epoch{0}) co_return busy(BusyReason::kNotPrepared);
  if (scope.count_alarm()) co_return busy(BusyReason::kCountAlarm);
  if (others_.writer.ledger_down()) co_return busy(BusyReason::kLedgerDown);
  if (!parts_.journal.reserve_seat()) co_return busy(BusyReason::kQueueFull);

  const ScopeRules& rules = scope.rules();
  const AllotmentRules& allotment = rules.allotments[ask.index];
  TakeRequest request{.scope = rules.id,
                      .allotment = allotment.id,
                      .member = ask.member,
                      .key = ask.key,
                      .epoch = epoch,
                      .fresh_id = ids_.make(),
                      .now = clock_.now(),
                      .node = parts_.roster.self()};
  Result<TakeAnswer> answer = co_await parts_.gate.take(std::move(request));
  if (!answer) {
    parts_.journal.release_seat();
    co_return busy(BusyReason::kUncertain);
  }

  const GateEntry* entry = nullptr;
  if (const auto* taken = std::get_if<Taken>(&*answer)) {
    entry = &taken->entry;
    // Before the answer, so that the flag can never call this member a stranger.
    scope.saw_holder(ask.member);
  } else if (const auto* same = std::get_if<AlreadyTaken>(&*answer)) {
    if (same->entry.recorded || same->entry.allotment != allotment.id) {
      parts_.journal.release_seat();
      already_.add();
      co_return Holding{same->entry.id, same->entry.allotment, same->entry.epoch,
                        same->entry.expires_at};
    }
    adopted_.add();
    entry = &same->entry;
  }
  if (entry != nullptr) {
    Grant grant = grant_of(*entry, rules, allotment, ask.member);
    DeskAnswer recorded = co_await record(caller, std::move(grant), deadline);
    co_return recorded;
  }

  if (const auto* past = std::get_if<PastDue>(&*answer)) {
    // What its row says now reaches the gate by the same way as the first time; this once the
    // answer does not wait for it.
    const int index = scope.index_of(past->entry.allotment);
    if (index < 0) {
      parts_.journal.release_seat();
      co_return busy(BusyReason::kReturning);
    }
    Grant grant =
        grant_of(past->entry, rules, rules.allotments[static_cast<std::size_t>(index)], ask.member);
    // The row is there, so this only says which gate is to hear of it.
    grant.epoch = epoch;
    const Result<Done> appended = co_await parts_.journal.append(std::move(grant));
    static_cast<void>(appended);
    co_return busy(BusyReason::kReturning);
  }
  parts_.journal.release_seat();
  if (const auto* limit = std::get_if<LimitReached>(&*answer)) {
    already_.add();
    co_return Holding{limit->newest.id, limit->newest.allotment, limit->newest.epoch,
                      limit->newest.expires_at};
  }
  if (const auto* not_now = std::get_if<NotNow>(&*answer)) {
    switch (*not_now) {
      case NotNow::kNotPrepared:
        others_.gate_is_gone();
        co_return busy(BusyReason::kNotPrepared);
      case NotNow::kStaleEpoch:
        others_.gate_is_gone();
        co_return busy(BusyReason::kRebuilding);
      case NotNow::kDraining:
        others_.leaser.wake();
        co_return busy(BusyReason::kRebuilding);
    }
  }
  dry_.add();
  others_.leaser.wake();
  const Flag flag = co_await others_.sold_out.verdict(caller, ask.scope, ask.index, deadline);
  if (flag == Flag::kDown) co_return busy(BusyReason::kUncertain);
  co_return SoldOutAnswer{flag == Flag::kFinal};
}

Task<DeskAnswer> Desk::record(common::Executor& caller, Grant grant, common::Steady deadline) {
  const common::Steady begun = clock_.steady();
  std::optional<Outcomes::Arrival> arrival;
  if (config_.issue == IssueMode::kSync) arrival = parts_.outcomes.expect(grant.id, caller);
  Grant copy = grant;
  const Result<Done> appended = co_await parts_.journal.append(std::move(copy));
  if (!appended) {
    // Nobody will record it, so it need not wait for its time to be reclaimed (S7).
    if (appended.error().code == common::ErrorCode::kUnavailable) {
      others_.reclaim.send_failed(grant.id);
    }
    co_return busy(BusyReason::kUncertain);
  }
  if (config_.issue == IssueMode::kAsync) {
    Grant asked = grant;
    const bool stands = co_await others_.standing.stands(caller, std::move(asked), deadline);
    if (!stands) co_return busy(BusyReason::kUncertain);
    granted_.add();
    co_return Granted{std::move(grant)};
  }
  const std::optional<Result<RecordOutcome>> outcome = co_await arrival->wait_until(deadline);
  if (!outcome) co_return busy(BusyReason::kTimeout);
  if (!*outcome) co_return busy(BusyReason::kLedgerDown);
  switch ((*outcome)->kind) {
    case RecordKind::kRecorded:
    case RecordKind::kSameHolds:
      durable_seconds_.observe(std::chrono::duration<double>(clock_.steady() - begun).count());
      // Another slot than the gate gave, where that one was held by somebody else's row.
      grant.slot = (*outcome)->slot;
      grant.nth = (*outcome)->nth;
      granted_.add();
      co_return Granted{std::move(grant)};
    case RecordKind::kMerged:
      co_return Holding{*(*outcome)->other, grant.allotment, Epoch{0}, {}};
    case RecordKind::kSameTerminal:
      if ((*outcome)->other) co_return Holding{*(*outcome)->other, grant.allotment, Epoch{0}, {}};
      co_return busy(BusyReason::kReturning);
    case RecordKind::kFenced:
      co_return busy(BusyReason::kRebuilding);
    case RecordKind::kSlotHeld:
    case RecordKind::kRuleBroken:
      break;
  }
  co_return busy(BusyReason::kNoSlotForRow);
}

}  // namespace doorbuster::engine

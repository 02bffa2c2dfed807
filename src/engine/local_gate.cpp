#include "engine/local_gate.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace doorbuster::engine {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;

/// Slots that can be given, one bit each; the lowest is found from a hint that only returns move
/// back.
class FreeSlots {
 public:
  explicit FreeSlots(std::int32_t quantity)
      : quantity_(quantity), words_(static_cast<std::size_t>(quantity) / 64 + 1, 0) {}

  [[nodiscard]] std::int32_t count() const noexcept { return count_; }
  [[nodiscard]] bool in_range(Slot slot) const noexcept {
    return slot.value() >= 1 && slot.value() <= quantity_;
  }
  [[nodiscard]] bool has(Slot slot) const noexcept { return (words_[word(slot)] & bit(slot)) != 0; }

  void add(Slot slot) noexcept {
    if (has(slot)) return;
    words_[word(slot)] |= bit(slot);
    ++count_;
    lowest_ = std::min(lowest_, word(slot));
  }

  [[nodiscard]] std::optional<Slot> take_lowest() noexcept {
    if (count_ == 0) return std::nullopt;
    while (words_[lowest_] == 0) ++lowest_;
    const int offset = std::countr_zero(words_[lowest_]);
    words_[lowest_] &= words_[lowest_] - 1;
    --count_;
    return Slot{static_cast<std::int32_t>(lowest_ * 64) + offset};
  }

 private:
  static std::size_t word(Slot slot) noexcept {
    return static_cast<std::size_t>(slot.value()) / 64;
  }
  static std::uint64_t bit(Slot slot) noexcept {
    return std::uint64_t{1} << (static_cast<std::uint32_t>(slot.value()) % 64U);
  }

  std::int32_t quantity_;
  std::int32_t count_ = 0;
  std::size_t lowest_ = 0;
  std::vector<std::uint64_t> words_;
};

struct Allotment {
  AllotmentRules rules;
  std::int32_t leased_to = 0;
  FreeSlots free;
};

struct Scope {
  std::mutex mutex;
  // Everything below is guarded by mutex.
  GateState state = GateState::kAbsent;
  Epoch epoch;
  std::int32_t per_member = 1;
  std::uint64_t version = 0;
  SequenceNumber applied;
  std::vector<Allotment> allotments;  // few; found by a walk
  // A member's entries: one in almost every sale.
  std::unordered_map<MemberId, std::vector<GateEntry>> entries;
  std::size_t entry_count = 0;
  std::map<std::pair<GrantId, Slot>, Slot>
      replaced;  // (grant, slot that the ledger refused) -> new slot

  Allotment* find(AllotmentId id) {
    for (Allotment& one : allotments) {
      if (one.rules.id == id) return &one;
    }
    return nullptr;
  }

  GateEntry* find_entry(MemberId member, const GrantId& id) {
    const auto found = entries.find(member);
    if (found == entries.end()) return nullptr;
    for (GateEntry& entry : found->second) {
      if (entry.id == id) return &entry;
    }
    return nullptr;
  }

  void remove_entry(MemberId member, const GrantId& id) {
    const auto found = entries.find(member);
    if (found == entries.end()) return;
    entry_count -= std::erase_if(found->second, [&](const GateEntry& e) { return e.id == id; });
    if (found->second.empty()) entries.erase(found);
  }

  /// Makes an entry of a row that holds, if the member has none of that id and room for it.
  void add_row(const HeldRow& row) {
    std::vector<GateEntry>& mine = entries[row.member];
    for (const GateEntry& entry : mine) {
      if (entry.id == row.id) return;
    }
    if (mine.size() >= static_cast<std::size_t>(per_member)) return;
    mine.push_back(GateEntry{.id = row.id,
                             .allotment = row.allotment,
                             .slot = row.slot,
                             .nth = row.nth,
                             .key = row.key,
                             .epoch = row.epoch,
                             .taken_at = row.taken_at,
                             .expires_at = row.expires_at,
                             .due_at = row.due_at,
                             .recorded = true});
    ++entry_count;
  }
};

Nth lowest_free_nth(const std::vector<GateEntry>& mine) {
  for (std::int32_t n = 1;; ++n) {
    const bool used =
        std::any_of(mine.begin(), mine.end(), [&](const GateEntry& e) { return e.nth == Nth{n}; });
    if (!used) return Nth{n};
  }
}

class LocalGate final : public Gate {
 public:
  Task<Result<TakeAnswer>> take(TakeRequest request) override {
    Result<TakeAnswer> answer = decide(request);
    co_return answer;
  }

  Task<Result<Done>> confirm(ScopeId id, Epoch epoch, std::vector<Confirmation> recorded) override {
    Result<Done> answer = with_epoch<Done>(id, epoch, [&](Scope& scope) -> Result<Done> {
      for (const Confirmation& one : recorded) {
        GateEntry* entry = scope.find_entry(one.member, one.id);
        if (entry == nullptr) continue;
        entry->recorded = true;
        entry->due_at = one.due_at;
        entry->slot = one.slot;
        entry->nth = one.nth;
        ++scope.version;
      }
      return Done{};
    });
    co_return answer;
  }

  Task<Result<SequenceNumber>> apply(ScopeId id, Epoch epoch,
                                     std::vector<SequenceEntry> steps) override {
    Result<SequenceNumber> answer =
        with_epoch<SequenceNumber>(id, epoch, [&](Scope& scope) -> Result<SequenceNumber> {
          for (const SequenceEntry& step : steps) {
            if (step.number <= scope.applied) continue;
            if (step.number.value() != scope.applied.value() + 1) break;
            apply_one(scope, step);
            scope.applied = step.number;
            ++scope.version;
          }
          return scope.applied;
        });
    co_return answer;
  }

  Task<Result<std::optional<Slot>>> replace(ScopeId id, Epoch epoch, MemberId member, GrantId grant,
                                            Slot held) override {
    using Answer = std::optional<Slot>;
    Result<Answer> answer = with_epoch<Answer>(id, epoch, [&](Scope& scope) -> Result<Answer> {
      const auto known = scope.replaced.find({grant, held});
      if (known != scope.replaced.end()) return Answer{known->second};
      GateEntry* entry = scope.find_entry(member, grant);
      if (entry == nullptr || entry->slot != held) {
        return fail(ErrorCode::kConflict, "the gate has no entry of this grant with that slot");
      }
      Allotment* allotment = scope.find(entry->allotment);
      const Answer slot = allotment->free.take_lowest();
      if (!slot) return Answer{};
      // `held` is somebody else's row: it is neither free nor this grant's any more.
      entry->slot = *slot;
      scope.replaced.emplace(std::pair{grant, held}, *slot);
      ++scope.version;
      return slot;
    });
    co_return answer;
  }

  Task<Result<Done>> begin_epoch(ScopeRules rules, ShardSnapshot rows) override {
    Scope& scope = find_or_make(rules.id);
    Result<Done> answer = Done{};
    {
      const std::lock_guard lock(scope.mutex);
      if (scope.state != GateState::kAbsent && rows.epoch <= scope.epoch) {
        answer = fail(ErrorCode::kStaleEpoch, "the gate is already in this epoch or a later one");
      } else {
        start_over(scope, rules, rows);
      }
    }
    co_return answer;
  }

  Task<Result<Done>> load(ScopeId id, ShardSnapshot rows) override {
    Result<Done> answer = with_epoch<Done>(id, rows.epoch, [&](Scope& scope) -> Result<Done> {
      if (scope.applied != rows.last_number) {
        return fail(ErrorCode::kConflict,
                    "the reading is not at the number that the gate has applied");
      }
      fill(scope, rows);
      return Done{};
    });
    co_return answer;
  }

  Task<Result<GateReading>> read(ScopeId id) override {
    GateReading reading;
    if (Scope* scope = find(id)) {
      const std::lock_guard lock(scope->mutex);
      reading.version = scope->version;
      reading.epoch = scope->epoch;
      reading.state = scope->state;
      reading.applied = scope->applied;
      reading.entries = scope->entry_count;
      for (const Allotment& one : scope->allotments) {
        reading.allotments.push_back({one.rules.id, one.free.count(), one.leased_to});
      }
      for (const auto& [member, mine] : scope->entries) {
        for (const GateEntry& entry : mine) {
          if (!entry.recorded) reading.in_flight.emplace_back(member, entry);
        }
      }
    }
    Result<GateReading> answer = std::move(reading);
    co_return answer;
  }

  Task<Result<std::vector<MemberId>>> holders(ScopeId id) override {
    std::vector<MemberId> members;
    if (Scope* scope = find(id)) {
      const std::lock_guard lock(scope->mutex);
      members.reserve(scope->entries.size());
      for (const auto& [member, mine] : scope->entries) members.push_back(member);
    }
    Result<std::vector<MemberId>> answer = std::move(members);
    co_return answer;
  }

  Task<Result<Done>> remove(ScopeId id) override {
    if (Scope* scope = find(id)) {
      const std::lock_guard lock(scope->mutex);
      scope->state = GateState::kAbsent;
      scope->allotments.clear();
      scope->entries.clear();
      scope->replaced.clear();
      scope->entry_count = 0;
      ++scope->version;
    }
    Result<Done> answer = Done{};
    co_return answer;
  }

 private:
  Result<TakeAnswer> decide(TakeRequest& request) {
    Scope* found = find(request.scope);
    if (found == nullptr) return TakeAnswer{NotNow::kNotPrepared};
    Scope& scope = *found;
    const std::lock_guard lock(scope.mutex);
    if (scope.state == GateState::kAbsent) return TakeAnswer{NotNow::kNotPrepared};
    if (scope.epoch != request.epoch) return TakeAnswer{NotNow::kStaleEpoch};
    Allotment* allotment = scope.find(request.allotment);
    if (allotment == nullptr) return TakeAnswer{NotNow::kNotPrepared};

    const auto member = scope.entries.find(request.member);
    if (member != scope.entries.end()) {
      const std::vector<GateEntry>& mine = member->second;
      // With one unit a member, asking again means that unit, whatever the key.
      const auto same = std::find_if(mine.begin(), mine.end(), [&](const GateEntry& e) {
        return scope.per_member == 1 ||
               (e.key == request.key && !request.key.empty() && e.allotment == request.allotment);
      });
      if (same != mine.end()) {
        if (same->recorded && request.now >= same->due_at) return TakeAnswer{NotNow::kReturning};
        return TakeAnswer{AlreadyTaken{*same}};
      }
      if (mine.size() >= static_cast<std::size_t>(scope.per_member)) {
        // One of them may be on its way back; then the next try may succeed.
        const bool returning = std::any_of(mine.begin(), mine.end(), [&](const GateEntry& e) {
          return e.recorded && request.now >= e.due_at;
        });
        if (returning) return TakeAnswer{NotNow::kReturning};
        return TakeAnswer{LimitReached{mine.back()}};
      }
    }

    const std::optional<Slot> slot = allotment->free.take_lowest();
    if (!slot) {
      if (scope.state == GateState::kOpen) return TakeAnswer{Dry{}};
      return TakeAnswer{NotNow::kDraining};
    }
    std::vector<GateEntry>& mine = scope.entries[request.member];
    GateEntry entry{.id = request.fresh_id,
                    .allotment = request.allotment,
                    .slot = *slot,
                    .nth = lowest_free_nth(mine),
                    .key = std::move(request.key),
                    .epoch = scope.epoch,
                    .taken_at = request.now,
                    .expires_at = request.now + allotment->rules.hold,
                    .due_at = kNever,
                    .recorded = false};
    mine.push_back(entry);
    ++scope.entry_count;
    ++scope.version;
    return TakeAnswer{Taken{std::move(entry)}};
  }

  static void apply_one(Scope& scope, const SequenceEntry& step) {
    switch (step.kind) {
      case SequenceKind::kReturn: {
        Allotment* allotment = scope.find(step.allotment);
        scope.remove_entry(step.member, step.grant);
        if (allotment != nullptr && allotment->free.in_range(step.slot)) {
          allotment->free.add(step.slot);
        }
        break;
      }
      case SequenceKind::kDeparture:
        scope.remove_entry(step.member, step.grant);
        break;
      case SequenceKind::kLoad:
        if (step.holds) {
          scope.add_row(HeldRow{.id = step.grant,
                                .allotment = step.allotment,
                                .member = step.member,
                                .slot = step.slot,
                                .nth = step.nth,
                                .key = step.key,
                                .epoch = step.epoch,
                                .taken_at = step.taken_at,
                                .expires_at = step.expires_at,
                                .due_at = step.due_at});
        }
        break;
    }
  }

  static void start_over(Scope& scope, const ScopeRules& rules, const ShardSnapshot& rows) {
    scope.state = GateState::kDraining;
    scope.epoch = rows.epoch;
    scope.per_member = rules.per_member;
    scope.applied = rows.last_number;
    scope.allotments.clear();
    scope.entries.clear();
    scope.replaced.clear();
    scope.entry_count = 0;
    ++scope.version;
    for (const AllotmentRules& one : rules.allotments) {
      const auto leased = std::find_if(rows.allotments.begin(), rows.allotments.end(),
                                       [&](const auto& a) { return a.id == one.id; });
      const std::int32_t leased_to = leased == rows.allotments.end() ? 0 : leased->leased_to;
      scope.allotments.push_back(Allotment{one, leased_to, FreeSlots(one.quantity)});
    }
    for (const HeldRow& row : rows.rows) scope.add_row(row);
  }

  /// The second load of S6: what neither a row nor an entry has, up to the end of the last lease,
  /// is free.
  static void fill(Scope& scope, const ShardSnapshot& rows) {
    for (const HeldRow& row : rows.rows) scope.add_row(row);
    for (Allotment& allotment : scope.allotments) {
      std::vector<bool> used(static_cast<std::size_t>(allotment.rules.quantity) + 1, false);
      const auto use = [&](AllotmentId id, Slot slot) {
        if (id == allotment.rules.id && allotment.free.in_range(slot)) {
          used[static_cast<std::size_t>(slot.value())] = true;
        }
      };
      for (const HeldRow& row : rows.rows) use(row.allotment, row.slot);
      for (const auto& [member, mine] : scope.entries) {
        for (const GateEntry& entry : mine) use(entry.allotment, entry.slot);
      }
      for (std::int32_t n = 1; n <= allotment.leased_to; ++n) {
        if (!used[static_cast<std::size_t>(n)]) allotment.free.add(Slot{n});
      }
    }
    scope.state = GateState::kOpen;
    ++scope.version;
  }

  template <class T, class F>
  Result<T> with_epoch(ScopeId id, Epoch epoch, F&& change) {
    Scope* scope = find(id);
    if (scope == nullptr) return fail(ErrorCode::kUnavailable, "the gate does not know this scope");
    const std::lock_guard lock(scope->mutex);
    if (scope->state == GateState::kAbsent) {
      return fail(ErrorCode::kUnavailable, "the gate does not know this scope");
    }
    if (scope->epoch != epoch) {
      return fail(ErrorCode::kStaleEpoch, "the gate is in another epoch");
    }
    return std::forward<F>(change)(*scope);
  }

  // Scopes are made by prepare and never destroyed before the gate, so a pointer stays good.
  Scope* find(ScopeId id) {
    const std::shared_lock lock(scopes_mutex_);
    const auto found = scopes_.find(id);
    return found == scopes_.end() ? nullptr : found->second.get();
  }
  Scope& find_or_make(ScopeId id) {
    const std::unique_lock lock(scopes_mutex_);
    std::unique_ptr<Scope>& scope = scopes_[id];
    if (!scope) scope = std::make_unique<Scope>();
    return *scope;
  }

  std::shared_mutex scopes_mutex_;
  std::unordered_map<ScopeId, std::unique_ptr<Scope>> scopes_;  // Guarded by scopes_mutex_.
};

}  // namespace

std::unique_ptr<Gate> make_local_gate() { return std::make_unique<LocalGate>(); }

}  // namespace doorbuster::engine

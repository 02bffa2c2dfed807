#include "engine/gate_memory.hpp"

#include <algorithm>
#include <bit>

#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

namespace {

std::size_t word(Slot slot) noexcept { return static_cast<std::size_t>(slot.value()) / 64; }
std::uint64_t bit(Slot slot) noexcept {
  return std::uint64_t{1} << (static_cast<std::uint32_t>(slot.value()) % 64U);
}

Nth lowest_free_nth(const std::vector<GateEntry>& mine) {
  for (std::int32_t n = 1;; ++n) {
    const bool used =
        std::any_of(mine.begin(), mine.end(), [&](const GateEntry& e) { return e.nth == Nth{n}; });
    if (!used) return Nth{n};
  }
}

/// An entry of a row that holds.
GateEntry entry_of(const HeldRow& row) {
  return GateEntry{.id = row.id,
                   .allotment = row.allotment,
                   .slot = row.slot,
                   .nth = row.nth,
                   .key = row.key,
                   .epoch = row.epoch,
                   .taken_at = row.taken_at,
                   .expires_at = row.expires_at,
                   .due_at = row.due_at,
                   .recorded = true};
}

}  // namespace

Grant grant_of(const GateEntry& entry, const ScopeRules& rules, const AllotmentRules& allotment,
               MemberId member) {
  return Grant{.id = entry.id,
               .allotment = entry.allotment,
               .scope = rules.id,
               .epoch = entry.epoch,
               .member = member,
               .slot = entry.slot,
               .nth = entry.nth,
               .key = entry.key,
               .slot_limit = allotment.quantity,
               .per_member = rules.per_member,
               .amount = allotment.amount,
               .taken_at = entry.taken_at,
               .expires_at = entry.expires_at,
               .hold = allotment.hold};
}

FreeSlots::FreeSlots(std::int32_t quantity)
    : quantity_(quantity), words_(static_cast<std::size_t>(quantity) / 64 + 1, 0) {}

bool FreeSlots::has(Slot slot) const noexcept { return (words_[word(slot)] & bit(slot)) != 0; }

void FreeSlots::add(Slot slot) noexcept {
  if (has(slot)) return;
  words_[word(slot)] |= bit(slot);
  ++count_;
  lowest_ = std::min(lowest_, word(slot));
}

std::optional<Slot> FreeSlots::take_lowest() noexcept {
  if (count_ == 0) return std::nullopt;
  while (words_[lowest_] == 0) ++lowest_;
  const int offset = std::countr_zero(words_[lowest_]);
  words_[lowest_] &= words_[lowest_] - 1;
  --count_;
  return Slot{static_cast<std::int32_t>(lowest_ * 64) + offset};
}

std::optional<common::Error> GateMemory::refusal(Epoch epoch) const {
  if (state_ == GateState::kAbsent) {
    return common::Error{.code = ErrorCode::kUnavailable,
                         .message = "the gate does not know this scope"};
  }
  if (epoch_ != epoch && in_force(Rule::kEpochs)) {
    return common::Error{.code = ErrorCode::kStaleEpoch, .message = "the gate is in another epoch"};
  }
  return std::nullopt;
}

GateMemory::Allotment* GateMemory::find(AllotmentId id) {
  for (Allotment& one : allotments_) {
    if (one.rules.id == id) return &one;
  }
  return nullptr;
}

GateEntry* GateMemory::find_entry(MemberId member, const GrantId& id) {
  const auto found = entries_.find(member);
  if (found == entries_.end()) return nullptr;
  for (GateEntry& entry : found->second) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

void GateMemory::remove_entry(MemberId member, const GrantId& id) {
  const auto found = entries_.find(member);
  if (found == entries_.end()) return;
  entry_count_ -= std::erase_if(found->second, [&](const GateEntry& e) { return e.id == id; });
  if (found->second.empty()) entries_.erase(found);
}

/// Makes an entry of a row that holds, if the member has none of that id and room for it.
void GateMemory::add_row(const HeldRow& row) {
  std::vector<GateEntry>& mine = entries_[row.member];
  for (const GateEntry& entry : mine) {
    if (entry.id == row.id) return;
  }
  if (mine.size() >= static_cast<std::size_t>(per_member_)) return;
  mine.push_back(entry_of(row));
  ++entry_count_;
}

TakeAnswer GateMemory::take(TakeRequest request) {
  if (state_ == GateState::kAbsent) return NotNow::kNotPrepared;
  if (epoch_ != request.epoch && in_force(Rule::kEpochs)) return NotNow::kStaleEpoch;
  Allotment* allotment = find(request.allotment);
  if (allotment == nullptr) return NotNow::kNotPrepared;

  const auto member = entries_.find(request.member);
  if (member != entries_.end()) {
    const std::vector<GateEntry>& mine = member->second;
    // With one unit a member, asking again means that unit, whatever the key.
    const auto same = std::find_if(mine.begin(), mine.end(), [&](const GateEntry& e) {
      return per_member_ == 1 ||
             (e.key == request.key && !request.key.empty() && e.allotment == request.allotment);
    });
    if (same != mine.end() && (same->recorded || in_force(Rule::kAdoption))) {
      if (same->recorded && request.now >= same->due_at) return PastDue{*same};
      return AlreadyTaken{*same};
    }
    if (same == mine.end() && mine.size() >= static_cast<std::size_t>(per_member_)) {
      // One of them may be on its way back; then the next try may succeed.
      const auto past = std::find_if(mine.begin(), mine.end(), [&](const GateEntry& e) {
        return e.recorded && request.now >= e.due_at;
      });
      if (past != mine.end()) return PastDue{*past};
      return LimitReached{mine.back()};
    }
  }

  const std::optional<Slot> slot = allotment->free.take_lowest();
  if (!slot) {
    if (state_ == GateState::kOpen || !in_force(Rule::kBusyWhileDraining)) return Dry{};
    return NotNow::kDraining;
  }
  std::vector<GateEntry>& mine = entries_[request.member];
  GateEntry entry{.id = request.fresh_id,
                  .allotment = request.allotment,
                  .slot = *slot,
                  .nth = lowest_free_nth(mine),
                  .key = std::move(request.key),
                  .epoch = in_force(Rule::kEpochs) ? epoch_ : request.epoch,
                  .taken_at = request.now,
                  .expires_at = request.now + allotment->rules.hold,
                  .due_at = kNever,
                  .recorded = false,
                  .node = request.node};
  mine.push_back(entry);
  ++entry_count_;
  ++version_;
  return Taken{std::move(entry)};
}

Result<Done> GateMemory::confirm(Epoch epoch, const std::vector<Confirmation>& recorded) {
  if (auto no = refusal(epoch)) return fail(*std::move(no));
  for (const Confirmation& one : recorded) {
    GateEntry* entry = find_entry(one.member, one.id);
    if (entry == nullptr) {
      if (in_force(Rule::kConfirmOnlyMarks) || allotments_.empty()) continue;
      add_row(HeldRow{.id = one.id,
                      .allotment = allotments_.front().rules.id,
                      .member = one.member,
                      .slot = one.slot,
                      .nth = one.nth,
                      .epoch = epoch,
                      .due_at = one.due_at});
      continue;
    }
    // A deadline only grows: a confirm that was slower than the payment knows the older one.
    entry->due_at = entry->recorded ? std::max(entry->due_at, one.due_at) : one.due_at;
    entry->recorded = true;
    entry->slot = one.slot;
    entry->nth = one.nth;
    ++version_;
  }
  return Done{};
}

Result<SequenceNumber> GateMemory::apply(Epoch epoch, const std::vector<SequenceEntry>& steps) {
  if (auto no = refusal(epoch)) return fail(*std::move(no));
  for (const SequenceEntry& step : steps) {
    if (step.number <= applied_) {
      if (!in_force(Rule::kNumberedSequence)) apply_one(step);
      continue;
    }
    if (step.number.value() != applied_.value() + 1) break;
    apply_one(step);
    applied_ = step.number;
    ++version_;
  }
  return applied_;
}

Result<Done> GateMemory::apply_leases(Epoch epoch, const std::vector<Lease>& leases) {
  if (auto no = refusal(epoch)) return fail(*std::move(no));
  for (const Lease& lease : leases) {
    Allotment* allotment = find(lease.allotment);
    if (allotment == nullptr) continue;
    // A repeat would give its slots again, and a gap would be a chunk that nobody ever gives.
    if (lease.number != allotment->lease_number + 1 && in_force(Rule::kNumberedLeases)) continue;
    for (std::int32_t n = lease.first.value(); n <= lease.last.value(); ++n) {
      if (allotment->free.in_range(Slot{n})) allotment->free.add(Slot{n});
    }
    allotment->lease_number = std::max(allotment->lease_number, lease.number);
    allotment->leased_to = std::max(allotment->leased_to, lease.last.value());
    ++version_;
  }
  return Done{};
}

Result<std::optional<Slot>> GateMemory::replace(Epoch epoch, MemberId member, const GrantId& id,
                                                Slot held) {
  if (auto no = refusal(epoch)) return fail(*std::move(no));
  const auto known = replaced_.find({id, held});
  if (known != replaced_.end()) return std::optional{known->second};
  GateEntry* entry = find_entry(member, id);
  if (entry == nullptr || entry->slot != held) {
    return fail(ErrorCode::kConflict, "the gate has no entry of this grant with that slot");
  }
  Allotment* allotment = find(entry->allotment);
  const std::optional<Slot> slot = allotment->free.take_lowest();
  if (!slot) return slot;
  // `held` is somebody else's row: it is neither free nor this grant's any more.
  entry->slot = *slot;
  replaced_.emplace(std::pair{id, held}, *slot);
  ++version_;
  return slot;
}

Result<Done> GateMemory::begin_epoch(const ScopeRules& rules, const ShardSnapshot& rows) {
  if (state_ != GateState::kAbsent && rows.epoch <= epoch_ && in_force(Rule::kEpochs)) {
    return fail(ErrorCode::kStaleEpoch, "the gate is already in this epoch or a later one");
  }
  state_ = GateState::kDraining;
  epoch_ = rows.epoch;
  per_member_ = rules.per_member;
  applied_ = rows.last_number;
  allotments_.clear();
  entries_.clear();
  replaced_.clear();
  entry_count_ = 0;
  ++version_;
  for (const AllotmentRules& one : rules.allotments) {
    const auto leased = std::find_if(rows.allotments.begin(), rows.allotments.end(),
                                     [&](const auto& a) { return a.id == one.id; });
    const bool known = leased != rows.allotments.end();
    const std::int32_t leased_to = known ? leased->leased_to : 0;
    const std::int32_t lease_number = known ? leased->lease_number : 0;
    allotments_.push_back(Allotment{one, leased_to, lease_number, FreeSlots(one.quantity)});
  }
  for (const HeldRow& row : rows.rows) add_row(row);
  return Done{};
}

void GateMemory::apply_one(const SequenceEntry& step) {
  switch (step.kind) {
    case SequenceKind::kReturn: {
      Allotment* allotment = find(step.allotment);
      remove_entry(step.member, step.grant);
      if (allotment != nullptr && allotment->free.in_range(step.slot)) {
        allotment->free.add(step.slot);
      }
      break;
    }
    case SequenceKind::kDeparture:
      remove_entry(step.member, step.grant);
      break;
    case SequenceKind::kLoad:
      if (step.holds) {
        add_row(HeldRow{.id = step.grant,
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

Result<Done> GateMemory::load(const ShardSnapshot& rows) {
  if (auto no = refusal(rows.epoch)) return fail(*std::move(no));
  if (applied_ != rows.last_number && in_force(Rule::kLoadAtItsNumber)) {
    return fail(ErrorCode::kConflict, "the reading is not at the number that the gate has applied");
  }
  for (const HeldRow& row : rows.rows) add_row(row);
  for (Allotment& allotment : allotments_) {
    std::vector<bool> used(static_cast<std::size_t>(allotment.rules.quantity) + 1, false);
    const auto use = [&](AllotmentId id, Slot slot) {
      if (id == allotment.rules.id && allotment.free.in_range(slot)) {
        used[static_cast<std::size_t>(slot.value())] = true;
      }
    };
    for (const HeldRow& row : rows.rows) use(row.allotment, row.slot);
    for (const auto& [member, mine] : entries_) {
      for (const GateEntry& entry : mine) use(entry.allotment, entry.slot);
    }
    for (std::int32_t n = 1; n <= allotment.leased_to; ++n) {
      if (!used[static_cast<std::size_t>(n)]) allotment.free.add(Slot{n});
    }
  }
  state_ = GateState::kOpen;
  ++version_;
  return Done{};
}

GateReading GateMemory::read() const {
  GateReading reading;
  reading.version = version_;
  reading.epoch = epoch_;
  reading.state = state_;
  reading.applied = applied_;
  reading.entries = entry_count_;
  for (const Allotment& one : allotments_) {
    reading.allotments.push_back({one.rules.id, one.free.count(), one.leased_to, one.lease_number});
  }
  for (const auto& [member, mine] : entries_) {
    for (const GateEntry& entry : mine) {
      if (!entry.recorded) reading.in_flight.emplace_back(member, entry);
    }
  }
  return reading;
}

Result<std::vector<MemberId>> GateMemory::holders(Epoch epoch) const {
  if (auto no = refusal(epoch)) return fail(*std::move(no));
  std::vector<MemberId> members;
  members.reserve(entries_.size());
  for (const auto& [member, mine] : entries_) members.push_back(member);
  return members;
}

void GateMemory::forget() {
  state_ = GateState::kAbsent;
  allotments_.clear();
  entries_.clear();
  replaced_.clear();
  entry_count_ = 0;
  ++version_;
}

}  // namespace doorbuster::engine

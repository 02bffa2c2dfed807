#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/gate.hpp"

namespace doorbuster::engine {

/// Slots that can be given, one bit each; the lowest is found from a hint that only returns move
/// back.
class FreeSlots {
 public:
  explicit FreeSlots(std::int32_t quantity);

  [[nodiscard]] std::int32_t count() const noexcept { return count_; }
  [[nodiscard]] bool in_range(Slot slot) const noexcept {
    return slot.value() >= 1 && slot.value() <= quantity_;
  }
  [[nodiscard]] bool has(Slot slot) const noexcept;
  void add(Slot slot) noexcept;
  [[nodiscard]] std::optional<Slot> take_lowest() noexcept;

 private:
  std::int32_t quantity_;
  std::int32_t count_ = 0;
  std::size_t lowest_ = 0;
  std::vector<std::uint64_t> words_;
};

/// What one shard's gate remembers, and every decision about it, as a plain value: one thread at a
/// time, no waiting, no allocation for a refusal. The local gate is this behind a lock; the
/// simulation's remote gate is this behind a network that loses things. The promises are the Gate
/// port's (G1 to G5), as are the errors.
class GateMemory {
 public:
  [[nodiscard]] GateState state() const noexcept { return state_; }
  [[nodiscard]] Epoch epoch() const noexcept { return epoch_; }

  [[nodiscard]] TakeAnswer take(TakeRequest request);
  [[nodiscard]] common::Result<common::Done> confirm(Epoch epoch,
                                                     const std::vector<Confirmation>& recorded);
  [[nodiscard]] common::Result<SequenceNumber> apply(Epoch epoch,
                                                     const std::vector<SequenceEntry>& steps);
  [[nodiscard]] common::Result<common::Done> apply_leases(Epoch epoch,
                                                          const std::vector<Lease>& leases);
  [[nodiscard]] common::Result<std::optional<Slot>> replace(Epoch epoch, MemberId member,
                                                            const GrantId& id, Slot held);
  [[nodiscard]] common::Result<common::Done> begin_epoch(const ScopeRules& rules,
                                                         const ShardSnapshot& rows);
  [[nodiscard]] common::Result<common::Done> load(const ShardSnapshot& rows);
  [[nodiscard]] GateReading read() const;
  [[nodiscard]] common::Result<std::vector<MemberId>> holders(Epoch epoch) const;
  void forget();

 private:
  struct Allotment {
    AllotmentRules rules;
    std::int32_t leased_to = 0;
    std::int32_t lease_number = 0;  ///< of the last lease applied
    FreeSlots free;
  };

  [[nodiscard]] std::optional<common::Error> refusal(Epoch epoch) const;
  Allotment* find(AllotmentId id);
  GateEntry* find_entry(MemberId member, const GrantId& id);
  void remove_entry(MemberId member, const GrantId& id);
  void add_row(const HeldRow& row);
  void apply_one(const SequenceEntry& step);

  GateState state_ = GateState::kAbsent;
  Epoch epoch_;
  std::int32_t per_member_ = 1;
  std::uint64_t version_ = 0;
  SequenceNumber applied_;
  std::vector<Allotment> allotments_;  // few; found by a walk
  // A member's entries: one in almost every sale.
  std::unordered_map<MemberId, std::vector<GateEntry>> entries_;
  std::size_t entry_count_ = 0;
  std::map<std::pair<GrantId, Slot>, Slot>
      replaced_;  // (grant, slot that the ledger refused) -> new slot
};

}  // namespace doorbuster::engine

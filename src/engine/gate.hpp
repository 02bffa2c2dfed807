#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/result.hpp"
#include "common/task.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

struct TakeRequest {
  ScopeId scope;
  AllotmentId allotment;
  MemberId member;
  std::string key;   ///< Idempotency-Key; required where per_member > 1
  Epoch epoch;       ///< the epoch that the caller knows
  GrantId fresh_id;  ///< the id of the grant, should a slot be used up
  Instant now;       ///< the caller's clock: deadlines are compared with it
  NodeId node;       ///< who asks
};

/// What the gate keeps of a grant.
struct GateEntry {
  GrantId id;
  AllotmentId allotment;
  Slot slot;
  Nth nth;
  std::string key;
  Epoch epoch;
  Instant taken_at;
  Instant expires_at;
  Instant due_at = kNever;  ///< set by confirm
  bool recorded = false;    ///< false: in flight
  NodeId node;              ///< who took it; 0 for one that was loaded from its row
};

/// What the journal carries of an entry.
[[nodiscard]] Grant grant_of(const GateEntry& entry, const ScopeRules& rules,
                             const AllotmentRules& allotment, MemberId member);

/// A slot was used up for this request.
struct Taken {
  GateEntry entry;
};
/// The member has this one (of the same key, where keys count).
struct AlreadyTaken {
  GateEntry entry;
};
/// N are held, none of them under this key.
struct LimitReached {
  GateEntry newest;
};
/// Nothing to give now.
struct Dry {};
enum class NotNow {
  kNotPrepared,  ///< no such scope or allotment here: not prepared, or lost
  kStaleEpoch,   ///< the gate is in another epoch
  kDraining,     ///< rebuilding, and nothing to give yet
};
/// The member's hold is past the deadline that the gate knows: its slot is on its way back, or it
/// was paid and the gate has not heard.
struct PastDue {
  GateEntry entry;
};
using TakeAnswer = std::variant<Taken, AlreadyTaken, LimitReached, Dry, PastDue, NotNow>;

struct Confirmation {
  MemberId member;
  GrantId id;
  Slot slot;
  Nth nth;
  Instant due_at = kNever;
};

enum class GateState { kAbsent, kDraining, kOpen };

/// The gate at one version; the version changes with every change of the rest.
struct GateReading {
  std::uint64_t version = 0;
  Epoch epoch;
  GateState state = GateState::kAbsent;
  SequenceNumber applied;  ///< last number of the sequence that was applied
  struct Allotment {
    AllotmentId id;
    std::int32_t free = 0;          ///< what it can give now
    std::int32_t leased_to = 0;     ///< end of the last lease applied here
    std::int32_t lease_number = 0;  ///< its number
  };
  std::vector<Allotment> allotments;
  std::vector<std::pair<MemberId, GateEntry>> in_flight;
  std::size_t entries = 0;  ///< recorded ones too
  std::string memory;       ///< which memory this is (Redis' run id); another one is a lost gate
};

/// Decides who gets a slot, atomically. Written for several implementations; every call may come
/// from any thread and answers on the caller's executor.
///
/// Errors of all calls: kUnavailable (not reached: did not happen), kTimeout (unknown: ask again;
/// the same member gets the same grant), kStaleEpoch (the call names another epoch; nothing
/// changed).
///
/// G1: one slot is never in two entries, and a slot with an entry is never free.
/// G2: new slots are given lowest number first, in the order of the decisions (I7).
/// G3: entries appear by take and load only (S9), and leave by the numbered sequence only (S2).
/// G4: a member's entries never exceed the scope's per_member; asking again gives the same grant
/// (I6). G5: a repeated sequence number, confirmation or load changes nothing.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  virtual ~Gate() = default;

  [[nodiscard]] virtual common::Task<common::Result<TakeAnswer>> take(TakeRequest request) = 0;

  /// Marks grants as recorded; ids without an entry are ignored (S9).
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> confirm(
      ScopeId scope, Epoch epoch, std::vector<Confirmation> recorded) = 0;

  /// Applies the next numbers of the sequence, in order. The answer is the last number applied,
  /// which is lower than the last one sent when a number is missing in between. Errors also:
  /// kConflict ("not now").
  [[nodiscard]] virtual common::Task<common::Result<SequenceNumber>> apply(
      ScopeId scope, Epoch epoch, std::vector<SequenceEntry> steps) = 0;

  /// Adds leased slots, in number order; what was applied before changes nothing, and what would
  /// leave a gap waits.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> apply_leases(
      ScopeId scope, Epoch epoch, std::vector<Lease> leases) = 0;

  /// Takes another slot for the same grant, because the ledger holds `held` for someone else. A
  /// repeat gives the same slot. Nothing: none is left.
  [[nodiscard]] virtual common::Task<common::Result<std::optional<Slot>>> replace(
      ScopeId scope, Epoch epoch, MemberId member, GrantId id, Slot held) = 0;

  /// First half of a rebuild (S6): forgets what it knew of the scope, knows the rows, gives nothing
  /// yet.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> begin_epoch(
      ScopeRules rules, ShardSnapshot rows) = 0;

  /// Second half: members without an entry get theirs, holes become free. Errors also: kConflict
  /// when the gate has not applied exactly `rows.last_number` (S9): read again.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> load(ScopeId scope,
                                                                        ShardSnapshot rows) = 0;

  [[nodiscard]] virtual common::Task<common::Result<GateReading>> read(ScopeId scope) = 0;

  /// What the ledger keeps with an epoch: calls that name `epoch` are for this memory alone, and
  /// answer kUnavailable (takes: not prepared) when the gate that is reached has another one. A
  /// gate that lives in this process cannot be exchanged, and need not look.
  virtual void expect(ScopeId /*scope*/, Epoch /*epoch*/, const std::string& /*memory*/) {}

  /// Members who have an entry now; what the sold-out flag is raised with.
  [[nodiscard]] virtual common::Task<common::Result<std::vector<MemberId>>> holders(
      ScopeId scope, Epoch epoch) = 0;

  /// Forgets a settled scope.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> remove(ScopeId scope) = 0;
};

}  // namespace doorbuster::engine

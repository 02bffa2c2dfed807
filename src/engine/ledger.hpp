#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "common/task.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

/// What became of one grant of a batch; the first that fits (engine page, section 7).
enum class RecordKind {
  kRecorded,      ///< this call made the row
  kSameHolds,     ///< the row was there and holds its unit
  kSameTerminal,  ///< the row was there and is over
  kFenced,        ///< an older epoch: REJECTED, no slot returned (S6)
  kSlotHeld,      ///< another grant has the slot: take another one for the same grant
  kMerged,        ///< the member holds `other`, or has used the key for it: REJECTED into it
  kRuleBroken,    ///< REJECTED and a dead letter
};

struct RecordOutcome {
  RecordKind kind = RecordKind::kRecorded;
  Slot slot;
  Nth nth;
  Instant due_at = kNever;       ///< the row's deadline, where it holds
  std::optional<GrantId> other;  ///< kMerged: the grant that counts
  std::string reason;            ///< kRuleBroken
};

/// A row's own state, for the reclaimer, the watch and the flag.
enum class RowState { kNone, kHolds, kTerminal };

/// kClosing: nothing more is given, and what was given is on its way into rows. kSettled: all of it
/// has arrived, and nothing else will.
enum class ShardState { kOpen, kClosing, kSettled };

/// What the flag's probe and the watch read, in one snapshot.
struct LedgerReading {
  Epoch epoch;
  std::string memory;  ///< of the gate that this epoch was loaded into
  SequenceNumber last_number;
  ShardState state = ShardState::kOpen;
  struct Allotment {
    AllotmentId id;
    std::int32_t quantity = 0;
    std::int32_t leased_to = 0;
    std::int32_t lease_number = 0;
    std::int32_t keep_slot = 0;    ///< rows that keep a slot
    std::int32_t open_holds = 0;   ///< of these, holds that must still be paid
    std::int32_t undelivered = 0;  ///< returns that the gate has not applied
    std::int32_t sold = 0;         ///< the counter that is the second net
  };
  std::vector<Allotment> allotments;
  std::vector<RowState> asked;  ///< one for each id that was asked for
};

/// Steps of the sequence that the gate has not taken yet, with the epoch of the same snapshot (S4).
struct Undelivered {
  Epoch epoch;
  std::vector<SequenceEntry> steps;
};

/// Leases of a scope, with the epoch of the same snapshot (S4).
struct Leases {
  Epoch epoch;
  std::vector<Lease> list;  ///< by allotment, then number
};

/// What a new epoch is to be.
struct NewEpoch {
  ScopeRules rules;
  std::string gate;           ///< the kind in charge
  std::string memory;         ///< which memory will be loaded; empty for a gate in this process
  std::optional<Epoch> from;  ///< the epoch that the caller has read; without it, whatever is there
  std::int32_t lease_chunk = 0;  ///< units of the first lease; 0: the whole quantity
  bool reopens = false;          ///< also a scope that is being settled, or was
};

/// Whether a grant may be answered as given before its row is there (S8).
struct Standing {
  Epoch epoch;               ///< in force now
  std::vector<bool> marked;  ///< one for each id: a reclaim mark is on it, or its row is over
};

struct ExpiredHold {
  GrantId id;
  ScopeId scope;
};

/// The rows: the truth. Written for several implementations. Calls are made on the engine's
/// executor and answer there.
///
/// Errors of all calls: kFull, kReadOnly, kBusy, kIo, kTimeout, kUnavailable; Proof::kUnknown when
/// a commit may have happened, and then the same call is made again.
class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  virtual ~Ledger() = default;

  /// One transaction for the batch; an outcome for each grant, in order.
  [[nodiscard]] virtual common::Task<common::Result<std::vector<RecordOutcome>>> record(
      std::vector<Grant> batch) = 0;

  /// Makes the shard's row and first lease when they are missing, and raises its epoch by
  /// compare-and-set. The new epoch. Errors also: kStaleEpoch when `from` is not the epoch in
  /// force.
  [[nodiscard]] virtual common::Task<common::Result<Epoch>> raise_epoch(NewEpoch wanted) = 0;
  /// What is older than `epoch` and still arrives is fenced from now on. kStaleEpoch when `epoch`
  /// is not the shard's any more.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> raise_min_epoch(ScopeId scope,
                                                                                   Epoch epoch) = 0;
  [[nodiscard]] virtual common::Task<common::Result<ShardSnapshot>> snapshot(ScopeId scope) = 0;

  /// Writes the next lease, `number`, of at most `units` slots; repeats change nothing.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> lease(ScopeId scope,
                                                                         AllotmentId allotment,
                                                                         std::int32_t number,
                                                                         std::int32_t units) = 0;
  [[nodiscard]] virtual common::Task<common::Result<Leases>> leases(ScopeId scope) = 0;

  /// The read of S8, from the rows that every node shares.
  [[nodiscard]] virtual common::Task<common::Result<Standing>> standing(
      ScopeId scope, std::vector<GrantId> ids) = 0;

  [[nodiscard]] virtual common::Task<common::Result<Undelivered>> undelivered(
      ScopeId scope, std::size_t limit) = 0;
  /// The gate has applied everything up to `number`.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> delivered(
      ScopeId scope, SequenceNumber number) = 0;

  /// `applied`: the last number that the gate has; what is older may still be in the outbox.
  [[nodiscard]] virtual common::Task<common::Result<LedgerReading>> read(
      ScopeId scope, std::vector<GrantId> ids, SequenceNumber applied) = 0;

  /// Ends holds that are due at `now` and not held back by a payment, at most `limit`.
  [[nodiscard]] virtual common::Task<common::Result<std::vector<ExpiredHold>>> expire_due(
      Instant now, std::size_t limit) = 0;

  /// S7, first step: marks on the ids.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> mark_reclaim(
      std::vector<GrantId> ids) = 0;
  /// S7, last step: a REJECTED row under each id that has none. The outcomes are kSameHolds
  /// (confirm) or kSameTerminal (its return is on its way).
  [[nodiscard]] virtual common::Task<common::Result<std::vector<RecordOutcome>>> finish_reclaim(
      std::vector<Grant> grants) = 0;

  /// Sets the counter to the number of rows that hold (`doorbuster rebuild --counts`).
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> recount(ScopeId scope) = 0;
  /// First half of settling, as the scope was read: no hold is open, `epoch` is in force and
  /// `last_number` the last. The epoch is raised, so that nothing given from now on passes the
  /// check of S8. Errors also: kStaleEpoch when it is not like that any more, and then nothing has
  /// changed.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> close(
      ScopeId scope, Epoch epoch, SequenceNumber last_number) = 0;
  /// Second half, once the journal was consumed to an end that was read behind close(): what still
  /// arrives is fenced. Errors also: kStaleEpoch when it is not closing, or a hold is open.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> settle(ScopeId scope) = 0;
};

}  // namespace doorbuster::engine

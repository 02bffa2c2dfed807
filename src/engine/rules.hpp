#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace doorbuster::engine {

/// The rules of section 8 that the simulation can switch off, to show that it would notice. The
/// names are those of the engine page; what goes wrong without each one stands in the page of
/// schedules.
enum class Rule : std::uint8_t {
  kOneRowPerGrant,     ///< S1: a refusal is a row too
  kOneWayBack,         ///< S2: only a terminal row frees a slot
  kNumberedSequence,   ///< S3: a repeated number has no effect
  kLoadAfterMerge,     ///< S3: the grant that counts is loaded after the return of the one that was
                       ///< merged
  kEpochs,             ///< S4: a call of another epoch changes nothing
  kNumberedLeases,     ///< S5: leases are applied in number order, repeats without effect
  kDrain,              ///< S6: the journal is consumed before anything is fenced or loaded
  kFenceLock,          ///< S6: record reads min_epoch under a lock
  kNoReturnOfFenced,   ///< S6: what is fenced returns no slot
  kBusyWhileDraining,  ///< S6: a gate that drains and has nothing says busy
  kSecondLoad,         ///< S6: rows are read again after the drain
  kJournalWait,        ///< S7: reclaim waits until the journal was consumed
  kReclaimMark,        ///< S7, S8: reclaim marks first, and the check sees it
  kAdoption,           ///< S8: asking again is the same grant
  kCheckEpoch,         ///< S8: 202 only while the grant's epoch is in force
  kCheckMark,          ///< S8: 202 only without a mark
  kConfirmOnlyMarks,   ///< S9: a confirm creates no entry
  kLoadAtItsNumber,    ///< S9: a load at another number than its reading's is refused
  kWatchById,          ///< S10: a grant in flight that has a row counts once
  kHeartbeatsAreRead,  ///< S11: a failed read ends nobody
  kStrangersOnly,      ///< section 5: the flag never refuses a holder
};
inline constexpr std::size_t kRules = 21;

/// Whether a rule is in force. In the product this is the constant true (rules.cpp); only the
/// simulation links another one, against the very same engine objects.
[[nodiscard]] bool in_force(Rule rule) noexcept;

}  // namespace doorbuster::engine

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/ids.hpp"

namespace doorbuster::engine {

using common::AllotmentId;
using common::Epoch;
using common::GrantId;
using common::Instant;
using common::MemberId;
using common::NodeId;
using common::Nth;
using common::ScopeId;
using common::SequenceNumber;
using common::Slot;

/// How long a buyer may take to pay before the slot goes back. Source: engine page, "hold".
inline constexpr std::chrono::seconds kHoldDefault{600};

/// A deadline that never comes: the grant is not a hold (any more).
inline constexpr Instant kNever = Instant::max();

/// What an allotment is, fixed once it has begun.
struct AllotmentRules {
  AllotmentId id;
  std::int32_t quantity = 0;  ///< units, 1 to 10,000,000
  std::int64_t amount = 0;    ///< price of one unit, copied into each grant
  std::chrono::seconds hold{kHoldDefault};
  bool may_become_final = true;  ///< false where a paid unit may come back
};

/// A scope with its allotments.
struct ScopeRules {
  ScopeId id;
  std::int32_t per_member = 1;  ///< N: units that one member may hold in the scope
  std::vector<AllotmentRules> allotments;
};

/// A slot given to a member.
struct Grant {
  GrantId id;
  AllotmentId allotment;
  ScopeId scope;
  std::int32_t shard = 0;
  Epoch epoch;
  MemberId member;
  Slot slot;
  Nth nth;
  std::string key;              ///< Idempotency-Key, empty when there is none
  std::int32_t slot_limit = 0;  ///< the allotment's quantity, as the taker believed it
  std::int32_t per_member = 1;
  std::int64_t amount = 0;
  Instant taken_at;
  Instant expires_at;  ///< promised to the member; the row's deadline is never earlier
  std::chrono::seconds hold{kHoldDefault};
};

/// Slots that the ledger has leased to a gate (S5). Numbered from 1 in each allotment and shard,
/// without a gap, in slots as in numbers.
struct Lease {
  AllotmentId allotment;
  std::int32_t number = 0;
  Slot first;
  Slot last;
};

enum class SequenceKind { kReturn, kDeparture, kLoad };

/// One step of a shard's sequence (S3), written in the transaction that causes it.
struct SequenceEntry {
  SequenceNumber number;
  SequenceKind kind = SequenceKind::kReturn;
  GrantId grant;
  AllotmentId allotment;
  MemberId member;
  Slot slot;
  // For a load: the rest of the entry, read from the grant's row.
  Nth nth;
  std::string key;
  Epoch epoch;
  Instant taken_at;
  Instant expires_at;
  Instant due_at = kNever;
  bool holds = false;  ///< for a load: the row holds its unit now; otherwise the load only advances
};

/// A row that keeps its slot, as a rebuild reads it.
struct HeldRow {
  GrantId id;
  AllotmentId allotment;
  MemberId member;
  Slot slot;
  Nth nth;
  std::string key;
  Epoch epoch;       ///< the one it was granted in: part of the order id for ever
  Instant taken_at;  ///< its recording time
  Instant expires_at;
  Instant due_at = kNever;
};

/// One shard of the ledger at one moment.
struct ShardSnapshot {
  Epoch epoch;
  Epoch min_epoch;
  SequenceNumber last_number;
  struct Allotment {
    AllotmentId id;
    std::int32_t quantity = 0;
    std::int32_t leased_to = 0;     ///< end of the last lease; 0 when nothing is leased
    std::int32_t lease_number = 0;  ///< of the last lease
  };
  std::vector<Allotment> allotments;
  std::vector<HeldRow> rows;
};

}  // namespace doorbuster::engine

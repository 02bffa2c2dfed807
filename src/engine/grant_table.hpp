#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

/// How a domain describes its rows to the engine, which owns the one SQL text. The tables must have
/// the columns of `flash_sale_order`, its history and `flash_sale_item` in migrations/; names of
/// tables and states are the domain's. They come from the program, never from a request.
struct GrantTable {
  char kind = 'i';                   ///< the allotments' kind
  std::string table;                 ///< one row a grant
  std::string history;               ///< one row for each state that was entered
  std::string allotments;            ///< one row an allotment, with `sold`
  std::string hold;                  ///< state of a fresh grant, such as PENDING
  std::string expired;               ///< where a due hold goes
  std::string rejected;              ///< a refusal, holding no slot
  std::vector<std::string> holding;  ///< states that hold the unit, `hold` among them
};

/// The states that hold, as SQL text: "'PENDING', 'PAID'".
[[nodiscard]] std::string holding_list(const GrantTable& table);

/// One grant's end, inside the caller's transaction (S2): the state changes only if it is `from`,
/// its history row is written, and its slot goes back as the next number of its shard.
///
/// E1: either all of it happens or nothing. E2: false means that the row was not in `from` (or is
/// not there).
[[nodiscard]] common::Result<bool> end_grant(db::Session& session, const GrantTable& table,
                                             const GrantId& id, std::string_view from,
                                             std::string_view to, std::string_view reason,
                                             Instant now);

/// A state change that keeps the unit, with its history row. False as in E2.
[[nodiscard]] common::Result<bool> change_state(db::Session& session, const GrantTable& table,
                                                const GrantId& id, std::string_view from,
                                                std::string_view to, std::string_view reason,
                                                Instant now);

/// The next number of a shard's sequence, taken under its row's lock (S3).
[[nodiscard]] common::Result<SequenceNumber> next_number(db::Session& session, ScopeId scope,
                                                         std::int32_t shard);

/// Writes one step of the sequence.
[[nodiscard]] common::Result<common::Done> write_step(db::Session& session, ScopeId scope,
                                                      std::int32_t shard, const SequenceEntry& step,
                                                      Instant now);

/// Moves an allotment's counter by `change` (the second net of section 2). False, and nothing
/// changed, when its CHECK refuses.
[[nodiscard]] common::Result<bool> move_sold(db::Session& session, const GrantTable& table,
                                             AllotmentId allotment, std::int64_t change,
                                             Instant now);

}  // namespace doorbuster::engine

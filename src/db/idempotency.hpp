#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "db/session.hpp"

namespace doorbuster::db {

/// An answer that a key has already had. Kept for kIdempotencyKept.
struct KeptAnswer {
  int status = 0;    ///< HTTP status
  std::string body;  ///< the body as it was sent
};

/// Source: api page, "Kept 24 h".
inline constexpr std::chrono::hours kIdempotencyKept{24};

/// What names a key: the caller, the route and the key itself; `body` is compared by its SHA-256.
struct KeyUse {
  std::string_view subject;  ///< "m42" a member, "a:alice" an administrator
  std::string_view route;    ///< method and path with its ids, as called
  std::string_view key;
  std::string_view body;
};

/// The first answer under this key, if there is one that is younger than kIdempotencyKept. Errors:
/// kConflict when the key was used with another body (HTTP 422).
[[nodiscard]] common::Result<std::optional<KeptAnswer>> find_answer(Session& session,
                                                                    const KeyUse& use,
                                                                    common::Instant now);

/// Keeps an answer, in the transaction that did the work. An answer that asks to come back later
/// (429 and 5xx) is never kept: the call then does nothing. Errors: kConflict when another request
/// under the key has committed first (read it again).
[[nodiscard]] common::Result<common::Done> keep_answer(Session& session, const KeyUse& use,
                                                       const KeptAnswer& answer,
                                                       common::Instant now);

/// Removes answers older than kIdempotencyKept, at most `limit`; how many.
[[nodiscard]] common::Result<std::int64_t> drop_old_answers(Session& session, common::Instant now,
                                                            std::int64_t limit);

}  // namespace doorbuster::db

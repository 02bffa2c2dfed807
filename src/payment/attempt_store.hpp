#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"
#include "payment/gateway.hpp"

namespace doorbuster::payment {

enum class AttemptState { kOpen, kUnknown, kApproved, kDeclined, kCanceled };
[[nodiscard]] std::string_view to_string(AttemptState state) noexcept;

struct Attempt {
  AttemptId id;
  common::GrantId order;
  common::Money amount;
};

/// Errors: kConflict when the order has an open attempt already.
[[nodiscard]] common::Result<common::Done> insert_attempt(db::Session& session,
                                                          const Attempt& attempt,
                                                          std::string_view card_last4,
                                                          common::Instant now);
/// OPEN or UNKNOWN -> `to`. False: it was decided already; nothing changed.
[[nodiscard]] common::Result<bool> decide_attempt(db::Session& session, const AttemptId& id,
                                                  AttemptState to, common::Instant now);
/// Attempts that are OPEN or UNKNOWN, oldest first.
[[nodiscard]] common::Result<std::vector<Attempt>> undecided_attempts(db::Session& session,
                                                                      std::int64_t limit);
/// The approved attempt of an order, if it has one.
[[nodiscard]] common::Result<std::optional<Attempt>> approved_attempt(db::Session& session,
                                                                      const common::GrantId& order);

/// Notes that an approved attempt's money must go back; once, however often it is noted. True for
/// the first.
[[nodiscard]] common::Result<bool> want_refund(db::Session& session, const AttemptId& id,
                                               std::int64_t amount, std::string_view reason,
                                               common::Instant now);
[[nodiscard]] common::Result<common::Done> refund_done(db::Session& session, const AttemptId& id,
                                                       common::Instant now);
[[nodiscard]] common::Result<std::vector<AttemptId>> wanted_refunds(db::Session& session,
                                                                    std::int64_t limit);

}  // namespace doorbuster::payment

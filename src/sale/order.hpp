#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"
#include "engine/types.hpp"
#include "sale/sale.hpp"

namespace doorbuster::sale {

enum class OrderState { kPending, kPaid, kExpired, kCanceled, kRejected };
[[nodiscard]] std::string_view to_string(OrderState state) noexcept;

/// A row of flash_sale_order.
struct Order {
  engine::GrantId id;
  engine::AllotmentId allotment;
  engine::ScopeId scope;
  engine::Epoch epoch;
  MemberId member;
  std::optional<engine::Slot> slot;
  std::optional<engine::Nth> nth;
  std::string key;
  OrderState state = OrderState::kPending;
  std::string reason;
  std::optional<engine::GrantId> merged_into;
  Money amount;
  Instant recorded_at;
  Instant expires_at;                      ///< as promised
  Instant due_at;                          ///< the deadline in force
  std::optional<engine::GrantId> attempt;  ///< the open payment attempt that holds expiry back
  Instant held_back_until;                 ///< with an attempt: no later than this
};

[[nodiscard]] common::Result<std::optional<Order>> find_order(db::Session& session,
                                                              const engine::GrantId& id);
/// A member's orders in a sale, oldest first, REJECTED ones that were merged left out; at most
/// `limit`.
[[nodiscard]] common::Result<std::vector<Order>> orders_of(db::Session& session, SaleId sale,
                                                           MemberId member, std::int64_t limit);
/// All orders of an item in id order, after `after`; for administrators and the load tool.
[[nodiscard]] common::Result<std::vector<Order>> orders_after(
    db::Session& session, engine::AllotmentId allotment,
    const std::optional<engine::GrantId>& after, std::int64_t limit);

/// Marks the order as being paid by `attempt`. False: it was not PENDING without an attempt before
/// its deadline; read it to see why.
[[nodiscard]] common::Result<bool> begin_payment(db::Session& session, const engine::GrantId& id,
                                                 const engine::GrantId& attempt, Instant now);
/// PENDING -> PAID for this attempt, before the attempt's `held_back_until`. False: the order ended
/// meanwhile; the money must go back.
[[nodiscard]] common::Result<bool> settle_paid(db::Session& session, const engine::GrantId& id,
                                               const engine::GrantId& attempt, Instant now);
/// The attempt is over without money; expiry takes its course again. Idempotent.
[[nodiscard]] common::Result<common::Done> release_payment(db::Session& session,
                                                           const engine::GrantId& id,
                                                           const engine::GrantId& attempt,
                                                           Instant now);
/// PENDING -> CANCELED with its return. False: read the order to see why.
[[nodiscard]] common::Result<bool> cancel_order(db::Session& session, const engine::GrantId& id,
                                                Instant now);
/// After a refund: PAID -> CANCELED with its return where the sale resells refunds; else nothing.
/// Whether the unit went back.
[[nodiscard]] common::Result<bool> refund_order(db::Session& session, const engine::GrantId& id,
                                                Instant now);

}  // namespace doorbuster::sale

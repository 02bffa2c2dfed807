#pragma once

#include <string>

#include "engine/order_id.hpp"
#include "http/response.hpp"
#include "sale/order.hpp"
#include "sale/pay.hpp"
#include "sale/sale.hpp"

namespace doorbuster::sale {

// One code has one status everywhere (api page). The public text of each, apart from internal
// detail.
extern const http::PublicError kAlreadyPurchased;   ///< 409, with the member's own order
extern const http::PublicError kSoldOut;            ///< 410, with "final"
extern const http::PublicError kNotOpen;            ///< 403, with "opensAt"
extern const http::PublicError kClosed;             ///< 403
extern const http::PublicError kPaused;             ///< 403
extern const http::PublicError kKeyRequired;        ///< 400
extern const http::PublicError kNotReady;           ///< 409 with Retry-After
extern const http::PublicError kPaymentInProgress;  ///< 409
extern const http::PublicError kAlreadyPaid;        ///< 409
extern const http::PublicError kHoldExpired;        ///< 409
extern const http::PublicError kCanceled;           ///< 409
extern const http::PublicError kRejected;           ///< 409, a merged one with the other "orderId"
extern const http::PublicError kAlreadyBegun;       ///< 409, administration
extern const http::PublicError kWrongState;         ///< 409, administration
extern const http::PublicError kNoItems;            ///< 409, administration

/// `{"amount": 12000, "currency": "KRW"}`
[[nodiscard]] std::string money_json(const Money& money);

/// The members of an order's body without braces: orderId, status, payable, expiresAt.
[[nodiscard]] std::string order_members(const Order& order, const engine::OrderIdCodec& ids,
                                        Instant now);
/// The same with the amount and, where REJECTED, the reason: `GET
/// /api/flash-sales/orders/{orderId}`.
[[nodiscard]] std::string order_json(const Order& order, const engine::OrderIdCodec& ids,
                                     Instant now);

/// The refusal of a payment or cancel that decide_call() did not allow; `merged_into` leads to the
/// order that counts.
[[nodiscard]] http::Response refuse_call(OrderCall call, const Order& order,
                                         const engine::OrderIdCodec& ids, http::Language language);

[[nodiscard]] std::string public_order_id(const Order& order, const engine::OrderIdCodec& ids);

/// What buyers see of a sale; `remaining` of each item by the flag's probe, null before the first
/// one.
[[nodiscard]] std::string sale_json(const Sale& sale, const std::vector<std::int32_t>& remaining,
                                    Instant now);
/// What administrators see.
[[nodiscard]] std::string admin_sale_json(const Sale& sale);
[[nodiscard]] std::string admin_item_json(const Item& item);

}  // namespace doorbuster::sale

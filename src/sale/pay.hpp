#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "sale/order.hpp"

namespace doorbuster::sale {

/// What may be done with an order now, decided from its stored times and never from whether a job
/// has run.
enum class OrderCall {
  kAllowed,
  kNotReady,    ///< no row yet: ask again
  kInProgress,  ///< a payment attempt is open
  kAlreadyPaid,
  kHoldExpired,  ///< from the instant of its deadline on
  kCanceled,
  kRejected,  ///< never held, or merged into another order of the member's
};

/// For payment and cancel alike. A call at exactly `due_at` is late, so each instant belongs to one
/// side only.
[[nodiscard]] OrderCall decide_call(const Order& order, Instant now) noexcept;

/// The state as its owner sees it: a due hold is EXPIRED although the job has not been there yet.
[[nodiscard]] OrderState visible_state(const Order& order, Instant now) noexcept;

/// Whether a payment would be accepted now.
[[nodiscard]] bool payable(const Order& order, Instant now) noexcept;

}  // namespace doorbuster::sale

#include "sale/pay.hpp"

namespace doorbuster::sale {

OrderCall decide_call(const Order& order, Instant now) noexcept {
  switch (order.state) {
    case OrderState::kPaid:
      return OrderCall::kAlreadyPaid;
    case OrderState::kExpired:
      return OrderCall::kHoldExpired;
    case OrderState::kCanceled:
      return OrderCall::kCanceled;
    case OrderState::kRejected:
      return OrderCall::kRejected;
    case OrderState::kPending:
      break;
  }
  if (order.attempt && now < order.held_back_until) return OrderCall::kInProgress;
  return now < order.due_at ? OrderCall::kAllowed : OrderCall::kHoldExpired;
}

OrderState visible_state(const Order& order, Instant now) noexcept {
  return decide_call(order, now) == OrderCall::kHoldExpired ? OrderState::kExpired : order.state;
}

bool payable(const Order& order, Instant now) noexcept {
  return decide_call(order, now) == OrderCall::kAllowed;
}

}  // namespace doorbuster::sale

#include "sale/answers.hpp"

#include <fmt/format.h>

namespace doorbuster::sale {

using common::to_rfc3339;
using http::json_quote;
using http::PublicError;

const PublicError kAlreadyPurchased{409, "ALREADY_PURCHASED", "You have one of these already.",
                                    "이미 구매하셨습니다."};
const PublicError kSoldOut{410, "SOLD_OUT", "Sold out.", "매진되었습니다."};
const PublicError kNotOpen{403, "NOT_OPEN", "The sale has not opened yet.",
                           "아직 판매가 시작되지 않았습니다."};
const PublicError kClosed{403, "CLOSED", "The sale is over.", "판매가 종료되었습니다."};
const PublicError kPaused{403, "PAUSED", "The sale is paused.", "판매가 일시 중지되었습니다."};
const PublicError kKeyRequired{
    400, "KEY_REQUIRED", "This sale allows several units: name each one by an Idempotency-Key.",
    "여러 개를 구매할 수 있는 판매입니다. Idempotency-Key로 각 구매를 구분해 주세요."};
const PublicError kNotReady{409, "NOT_READY", "The order is being recorded. Try again in a moment.",
                            "주문을 기록하고 있습니다. 잠시 후 다시 시도해 주세요."};
const PublicError kPaymentInProgress{409, "PAYMENT_IN_PROGRESS",
                                     "A payment of this order is under way.",
                                     "이 주문의 결제가 진행 중입니다."};
const PublicError kAlreadyPaid{409, "ALREADY_PAID", "The order is paid.",
                               "이미 결제된 주문입니다."};
const PublicError kHoldExpired{409, "HOLD_EXPIRED", "The time to pay is over.",
                               "결제 시간이 지났습니다."};
const PublicError kCanceled{409, "CANCELED", "The order was cancelled.", "취소된 주문입니다."};
const PublicError kRejected{409, "REJECTED", "The order was rejected.", "거절된 주문입니다."};
const PublicError kAlreadyBegun{
    409, "ALREADY_BEGUN", "The sale has begun: start, quantity, price and limits cannot change.",
    "이미 시작된 판매는 시작 시각, 수량, 가격, 한도를 바꿀 수 없습니다."};
const PublicError kWrongState{409, "WRONG_STATE", "The sale is not in a state that allows this.",
                              "현재 판매 상태에서는 할 수 없는 작업입니다."};
const PublicError kNoItems{409, "NO_ITEMS", "The sale has no items.", "판매 상품이 없습니다."};

std::string money_json(const Money& money) {
  return fmt::format(R"({{"amount":{},"currency":"{}"}})", money.amount, money.currency.text());
}

std::string public_order_id(const Order& order, const engine::OrderIdCodec& ids) {
  return ids.encode({order.id, order.allotment, order.epoch}, order.member);
}

std::string order_members(const Order& order, const engine::OrderIdCodec& ids, Instant now) {
  return fmt::format(R"("orderId":"{}","status":"{}","payable":{},"expiresAt":"{}")",
                     public_order_id(order, ids), to_string(visible_state(order, now)),
                     payable(order, now), to_rfc3339(order.expires_at));
}

std::string order_json(const Order& order, const engine::OrderIdCodec& ids, Instant now) {
  std::string body = fmt::format(R"({{{},"amount":{},"itemId":{})", order_members(order, ids, now),
                                 money_json(order.amount), order.allotment.number);
  if (order.state == OrderState::kRejected)
    body += fmt::format(R"(,"reason":{})", json_quote(order.reason));
  body += '}';
  return body;
}

http::Response refuse_call(OrderCall call, const Order& order, const engine::OrderIdCodec& ids,
                           http::Language language) {
  switch (call) {
    case OrderCall::kNotReady:
      return http::error_response(kNotReady, language, {}, 1);
    case OrderCall::kInProgress:
      return http::error_response(kPaymentInProgress, language);
    case OrderCall::kAlreadyPaid:
      return http::error_response(kAlreadyPaid, language);
    case OrderCall::kHoldExpired:
      return http::error_response(kHoldExpired, language);
    case OrderCall::kCanceled:
      return http::error_response(kCanceled, language);
    case OrderCall::kRejected: {
      std::string extra;
      if (order.merged_into) {
        // Same member and allotment; the epoch is only a hint for orders without a row.
        extra = fmt::format(
            R"("orderId":"{}")",
            ids.encode({*order.merged_into, order.allotment, order.epoch}, order.member));
      }
      return http::error_response(kRejected, language, extra);
    }
    case OrderCall::kAllowed:
      break;
  }
  return http::error_response(http::kInternalError, language);
}

std::string sale_json(const Sale& sale, const std::vector<std::int32_t>& remaining, Instant now) {
  static constexpr std::string_view kNames[] = {"OPEN", "HIDDEN", "NOT_OPEN", "PAUSED", "CLOSED"};
  std::string body = fmt::format(
      R"({{"id":{},"name":{},"state":"{}","opensAt":"{}","closesAt":"{}","perMember":{},"serverTime":"{}","items":[)",
      sale.id.value(), json_quote(sale.name), kNames[static_cast<std::size_t>(admit(sale, now))],
      to_rfc3339(sale.opens_at), to_rfc3339(sale.closes_at), sale.per_member, to_rfc3339(now));
  for (std::size_t i = 0; i < sale.items.size(); ++i) {
    const Item& item = sale.items[i];
    const std::int32_t left = i < remaining.size() ? remaining[i] : -1;
    if (i > 0) body += ',';
    body += fmt::format(
        R"({{"id":{},"allotment":"{}","name":{},"listPrice":{},"salePrice":{},"quantity":{},"remaining":{}}})",
        item.id.value(), common::to_string(item.allotment), json_quote(item.name),
        money_json(item.list_price), money_json(item.sale_price), item.quantity,
        left < 0 ? std::string("null") : std::to_string(left));
  }
  body += "]}";
  return body;
}

std::string admin_item_json(const Item& item) {
  return fmt::format(
      R"({{"id":{},"allotment":"{}","saleId":{},"name":{},"listPrice":{},"salePrice":{},"quantity":{},"perMember":{},"sold":{}}})",
      item.id.value(), common::to_string(item.allotment), item.sale.value(), json_quote(item.name),
      money_json(item.list_price), money_json(item.sale_price), item.quantity, item.per_member,
      item.sold);
}

std::string admin_sale_json(const Sale& sale) {
  std::string body = fmt::format(
      R"({{"id":{},"name":{},"state":"{}","opensAt":"{}","closesAt":"{}","limitScope":"{}","perMember":{},"holdSeconds":{},"holdMaxSeconds":{},"resellRefunds":{},"items":[)",
      sale.id.value(), json_quote(sale.name), to_string(sale.state), to_rfc3339(sale.opens_at),
      to_rfc3339(sale.closes_at), sale.limit_scope == LimitScope::kSale ? "SALE" : "ITEM",
      sale.per_member, sale.hold.count(), sale.hold_max.count(), sale.resell_refunds);
  for (std::size_t i = 0; i < sale.items.size(); ++i) {
    if (i > 0) body += ',';
    body += admin_item_json(sale.items[i]);
  }
  body += "]}";
  return body;
}

}  // namespace doorbuster::sale

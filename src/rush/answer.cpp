#include "rush/answer.hpp"

#include <boost/json.hpp>

#include "common/clock.hpp"
#include "common/money.hpp"

namespace doorbuster::rush {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxOrderId = 200;

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

bool flag_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::int64_t instant_of(const json::object& object, std::string_view name) {
  const auto at = common::parse_rfc3339(text_of(object, name));
  return at ? common::to_micros(*at) : 0;
}

/// The id becomes part of a path, so nothing that means something there is taken from a server.
bool usable_id(std::string_view id) {
  for (const char c : id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (!plain) return false;
  }
  return id.size() <= kMaxOrderId;
}

void read_order(const json::object& object, Answer& answer) {
  const std::string_view id = text_of(object, "orderId");
  if (usable_id(id)) answer.order = id;
  answer.status = parse_order_status(text_of(object, "status"));
  answer.payable = flag_of(object, "payable");
  answer.expires_us = instant_of(object, "expiresAt");
  const json::value* amount = object.if_contains("amount");
  if (amount == nullptr || !amount->is_object()) return;
  const json::value* number = amount->get_object().if_contains("amount");
  if (number != nullptr && number->is_int64()) answer.amount = number->get_int64();
  const std::string_view currency = text_of(amount->get_object(), "currency");
  if (common::parse_currency(currency)) answer.currency = currency;
}

AnswerKind purchase_kind(int status, const json::object& body, Answer& answer) {
  const std::string_view code = text_of(body, "error");
  switch (status) {
    case 202:
      read_order(body, answer);
      return answer.order.empty() ? AnswerKind::kOther : AnswerKind::kGranted;
    case 409:
      read_order(body, answer);
      return code == "ALREADY_PURCHASED" && !answer.order.empty() ? AnswerKind::kAlready
                                                                  : AnswerKind::kOther;
    case 410:
      answer.final = flag_of(body, "final");
      return AnswerKind::kSoldOut;
    case 403:
      if (code == "NOT_OPEN") {
        answer.opens_us = instant_of(body, "opensAt");
        return AnswerKind::kNotOpen;
      }
      if (code == "PAUSED") return AnswerKind::kPaused;
      if (code == "CLOSED") return AnswerKind::kClosed;
      return AnswerKind::kForbidden;
    default:
      return AnswerKind::kOther;
  }
}

AnswerKind read_kind(int status, const json::object& body, Answer& answer) {
  if (status != 200) return AnswerKind::kOther;
  read_order(body, answer);
  return answer.order.empty() ? AnswerKind::kOther : AnswerKind::kOrder;
}

AnswerKind pay_kind(int status, const json::object& body, Answer& answer) {
  const std::string_view code = text_of(body, "error");
  switch (status) {
    case 200:
      read_order(body, answer);
      return AnswerKind::kPaid;
    case 202:
      return AnswerKind::kPayUnknown;
    case 402:
      return AnswerKind::kDeclined;
    case 409:
      if (code == "ALREADY_PAID") return AnswerKind::kPaid;
      if (code == "NOT_READY" || code == "PAYMENT_IN_PROGRESS") return AnswerKind::kNotReady;
      return AnswerKind::kPayRefused;
    default:
      return AnswerKind::kOther;
  }
}

}  // namespace

Answer AnswerReader::read(Ask ask, const HttpAnswer& http) {
  Answer answer;
  answer.retry_after = http.retry_after;
  switch (http.status) {
    case 401:
      answer.kind = AnswerKind::kUnauthorized;
      return answer;
    case 404:
      answer.kind = AnswerKind::kNotFound;
      return answer;
    case 429:
      answer.kind = AnswerKind::kLimited;
      return answer;
    case 503:
      answer.kind = AnswerKind::kBusy;
      return answer;
    default:
      break;
  }
  if (http.status >= 500) {
    answer.kind = AnswerKind::kServerError;
    return answer;
  }
  const bool refusal = ask == Ask::kPurchase && (http.status == 410 || http.status == 403);
  if (refusal && http.status == known_status_ && http.body == known_body_) {
    Answer known = known_;
    known.retry_after = http.retry_after;
    return known;
  }

  boost::system::error_code error;
  const json::value parsed =
      json::parse(json::string_view(http.body.data(), http.body.size()), error);
  static const json::object nothing;
  const json::object& body = !error && parsed.is_object() ? parsed.get_object() : nothing;
  switch (ask) {
    case Ask::kPurchase:
      answer.kind = purchase_kind(http.status, body, answer);
      break;
    case Ask::kRead:
      answer.kind = read_kind(http.status, body, answer);
      break;
    case Ask::kPay:
      answer.kind = pay_kind(http.status, body, answer);
      break;
  }
  if (refusal) {
    known_status_ = http.status;
    known_body_ = http.body;
    known_ = answer;
  }
  return answer;
}

}  // namespace doorbuster::rush

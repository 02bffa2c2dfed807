#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rush/history.hpp"
#include "rush/http_reader.hpp"

namespace doorbuster::rush {

/// What an answer means to a buyer.
struct Answer {
  AnswerKind kind = AnswerKind::kOther;
  OrderStatus status = OrderStatus::kNone;
  bool final = false;
  bool payable = false;
  std::int64_t expires_us = 0;  ///< Unix microseconds; 0: not told
  std::int64_t opens_us = 0;    ///< with kNotOpen; 0: not told
  std::int64_t amount = 0;      ///< of a read order, in `currency`'s smallest unit
  std::string order;
  std::string currency;
  std::optional<std::chrono::seconds> retry_after;
};

/// Reads answers. Not thread-safe, since it remembers the last refusal: most answers of a rush are
/// the same bytes again, and need no JSON parser.
class AnswerReader {
 public:
  /// A 202 or 409 that names no order, or a body that is no JSON where one is needed, is kOther.
  [[nodiscard]] Answer read(Ask ask, const HttpAnswer& http);

 private:
  int known_status_ = 0;
  std::string known_body_;
  Answer known_;
};

}  // namespace doorbuster::rush

#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/executor.hpp"
#include "common/ids.hpp"
#include "common/money.hpp"
#include "common/result.hpp"
#include "common/task.hpp"

namespace doorbuster::payment {

/// A payment attempt's id; the gateway knows the attempt by it, and the same id is charged at most
/// once.
using AttemptId = common::GrantId;

struct ChargeRequest {
  AttemptId attempt;
  common::Money amount;
  std::string card_number;  ///< 12 to 19 digits; never stored or logged
};

enum class ChargeResult { kApproved, kDeclined, kUnknown };

/// What the gateway says of an attempt that nobody answered.
enum class InquiryResult {
  kCharged,  ///< the money was taken
  kDeclined,
  kCanceled,  ///< no money was taken, and none will be under this id
  kNoAnswer,  ///< ask again later; never guess
};

/// The payment provider, as narrow as our need of it. Any executor; answers on `caller`.
class PaymentGateway {
 public:
  PaymentGateway() = default;
  PaymentGateway(const PaymentGateway&) = delete;
  PaymentGateway& operator=(const PaymentGateway&) = delete;
  virtual ~PaymentGateway() = default;

  /// kUnknown when there is no answer until `deadline`.
  [[nodiscard]] virtual common::Task<ChargeResult> charge(common::Executor& caller,
                                                          ChargeRequest request,
                                                          common::Steady deadline) = 0;
  /// Cancels the attempt unless it is decided already; says which.
  [[nodiscard]] virtual common::Task<InquiryResult> cancel_or_tell(common::Executor& caller,
                                                                   AttemptId attempt) = 0;
  /// Gives the whole amount of a charged attempt back; once, however often it is asked. False: try
  /// again.
  [[nodiscard]] virtual common::Task<bool> refund(common::Executor& caller, AttemptId attempt) = 0;
};

}  // namespace doorbuster::payment

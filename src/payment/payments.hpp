#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "admin/audit.hpp"
#include "common/random.hpp"
#include "db/idempotency.hpp"
#include "payment/attempt_store.hpp"
#include "payment/gateway.hpp"
#include "sale/order.hpp"
#include "sale/pay.hpp"
#include "sale/routes.hpp"

namespace doorbuster::payment {

/// Charges holds, and sees to it that no money is kept without a PAID order.
///
/// M1: an attempt row exists before the gateway is called, at most one open attempt an order.
/// M2: of payment, expiry, cancel and a second payment exactly one wins: each is conditional on
/// PENDING. M3: an approved attempt that does not end as PAID is refunded. M4: an attempt without
/// an answer is asked for, after cancelling it at the gateway, and never guessed.
class Payments {
 public:
  Payments(sale::RouteParts parts, PaymentGateway& gateway, common::Executor& home,
           std::chrono::milliseconds timeout,
           std::function<void(std::span<std::uint8_t>)> random = common::fill_random);

  enum class Kind {
    kPaid,
    kDeclined,
    kUnknown,
    kRefused,
    kNoOrder,
    kWrongAmount,
    kReplayed,
    kKeyReused,
    kBusy
  };
  struct Outcome {
    Kind kind = Kind::kBusy;
    sale::OrderCall refusal = sale::OrderCall::kAllowed;  ///< kRefused
    std::optional<sale::Order> order;                     ///< as it is now
    std::optional<db::KeptAnswer> replay;                 ///< kReplayed
  };
  struct PayRequest {
    common::GrantId order;
    common::Money amount;
    std::string card_number;
    std::string subject, route, key,
        body;  ///< what the Idempotency-Key is kept under; key may be empty
  };
  [[nodiscard]] common::Task<Outcome> pay(common::Executor& caller, PayRequest request);

  struct Refund {
    common::Money amount;
    bool done = false;
  };
  /// Refunds a PAID order by hand. Nothing: there is no paid order of that id. Idempotent. `actor`
  /// is audited.
  [[nodiscard]] common::Task<common::Result<std::optional<Refund>>> refund(common::Executor& caller,
                                                                           common::GrantId order,
                                                                           admin::Actor actor,
                                                                           std::string reason);

  /// Decides attempts without an answer and sends wanted refunds; how many. On any executor.
  [[nodiscard]] common::Task<common::Result<std::int64_t>> reconcile(common::Executor& caller);

  /// Runs reconcile() at once, for what a former process left, and then each minute until stop().
  [[nodiscard]] common::Task<void> run();
  void stop();

 private:
  struct Settled {
    bool decided = false;  ///< this call decided the attempt
    bool paid = false;
    std::optional<sale::Order> order;
  };
  common::Task<common::Result<Settled>> settle(common::Executor& caller, Attempt attempt,
                                               AttemptState to, std::optional<PayRequest> keep);
  common::Task<bool> send_refund(common::Executor& caller, AttemptId attempt);

  sale::RouteParts p_;
  PaymentGateway& gateway_;
  common::Executor& home_;
  const std::chrono::milliseconds timeout_;
  common::GrantIdMaker ids_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::set<AttemptId>
      running_;  // Guarded by mutex_; attempts that a request of this process waits for.
  std::vector<common::Counter*> attempts_;
  common::Counter& refunds_;
};

/// The body of a PAID order and of a decline, as they are sent and kept.
[[nodiscard]] std::string paid_body(const sale::Order& order, const engine::OrderIdCodec& ids,
                                    common::Instant now);
[[nodiscard]] std::string declined_body(http::Language language);

}  // namespace doorbuster::payment

#include "payment/payments.hpp"

#include <fmt/format.h>

#include "common/log.hpp"
#include "sale/answers.hpp"

namespace doorbuster::payment {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Instant;
using common::Result;
using common::Task;

/// Attempts and refunds that one run of the job looks at.
constexpr std::int64_t kReconcileLimit = 1000;
constexpr std::chrono::seconds kReconcileEvery{60};
constexpr int kSettleTries = 20;
constexpr std::chrono::milliseconds kSettleWait{100};

constexpr const char* kKinds[] = {"OPEN", "UNKNOWN", "APPROVED", "DECLINED", "CANCELED"};

}  // namespace

std::string paid_body(const sale::Order& order, const engine::OrderIdCodec& ids, Instant now) {
  return sale::order_json(order, ids, now);
}

std::string declined_body(http::Language language) {
  static const http::PublicError declined{402, "PAYMENT_DECLINED", "The payment was declined.",
                                          "결제가 거절되었습니다."};
  return http::error_response(declined, language).body;
}

Payments::Payments(sale::RouteParts parts, PaymentGateway& gateway, common::Executor& home,
                   std::chrono::milliseconds timeout,
                   std::function<void(std::span<std::uint8_t>)> random)
    : p_(parts),
      gateway_(gateway),
      home_(home),
      timeout_(timeout),
      ids_(parts.clock, std::move(random)),
      signal_(home),
      refunds_(
          parts.metrics.counter("payment_refunds_total", "Refunds that the gateway has taken")) {
  for (const char* kind : kKinds) {
    attempts_.push_back(&parts.metrics.counter(
        "payment_attempts_total", "Payment attempts by what became of them", {{"state", kind}}));
  }
}

void Payments::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<Payments::Outcome> Payments::pay(common::Executor& caller, PayRequest request) {
  const AttemptId attempt_id = ids_.make();
  const Instant begun_at = p_.clock.now();
  {
    const std::lock_guard lock(mutex_);
    running_.insert(attempt_id);
  }
  // Whatever path this leaves by, the job may look after the attempt from then on.
  const auto leave = [this, attempt_id] {
    const std::lock_guard lock(mutex_);
    running_.erase(attempt_id);
  };

  // A transaction may still be on its way when whoever asked for it is gone, so it owns what it
  // needs.
  std::function<Result<Outcome>(db::Session&)> begin =
      [request, attempt_id, begun_at](db::Session& session) -> Result<Outcome> {
    if (!request.key.empty()) {
      Result<std::optional<db::KeptAnswer>> kept = db::find_answer(
          session, {request.subject, request.route, request.key, request.body}, begun_at);
      if (!kept && kept.error().code == ErrorCode::kConflict)
        return Outcome{.kind = Kind::kKeyReused};
      if (!kept) return fail(std::move(kept.error()));
      if (*kept) return Outcome{.kind = Kind::kReplayed, .replay = std::move(**kept)};
    }
    Result<std::optional<sale::Order>> order = sale::find_order(session, request.order);
    if (!order) return fail(std::move(order.error()));
    if (!*order) return Outcome{.kind = Kind::kNoOrder};
    const sale::OrderCall call = sale::decide_call(**order, begun_at);
    if (call != sale::OrderCall::kAllowed) {
      return Outcome{.kind = Kind::kRefused, .refusal = call, .order = std::move(*order)};
    }
    if ((*order)->amount != request.amount) {
      return Outcome{.kind = Kind::kWrongAmount, .order = std::move(*order)};
    }
    const Result<bool> marked = sale::begin_payment(session, request.order, attempt_id, begun_at);
    if (!marked) return fail(marked.error());
    if (!*marked)
      return fail(ErrorCode::kConflict, "the order changed between reading and marking");
    const std::string last4 = request.card_number.substr(request.card_number.size() - 4);
    const Result<Done> inserted =
        insert_attempt(session, {attempt_id, request.order, request.amount}, last4, begun_at);
    if (!inserted) return fail(inserted.error());
    return Outcome{.kind = Kind::kPaid, .order = std::move(*order)};
  };
  Result<Outcome> begun =
      co_await p_.database.write<Outcome>(caller, db::Priority::kRest, std::move(begin));
  if (!begun || begun->kind != Kind::kPaid) {
    leave();
    if (!begun) co_return Outcome{.kind = Kind::kBusy};
    co_return std::move(*begun);
  }
  attempts_[static_cast<std::size_t>(AttemptState::kOpen)]->add();

  ChargeRequest charge{attempt_id, request.amount, request.card_number};
  const ChargeResult charged =
      co_await gateway_.charge(caller, std::move(charge), p_.clock.steady() + timeout_);
  const AttemptState to = charged == ChargeResult::kApproved   ? AttemptState::kApproved
                          : charged == ChargeResult::kDeclined ? AttemptState::kDeclined
                                                               : AttemptState::kUnknown;
  if (to == AttemptState::kUnknown) {
    attempts_[static_cast<std::size_t>(to)]->add();
    leave();
    signal_.set();
    co_return Outcome{.kind = Kind::kUnknown, .order = std::move(begun->order)};
  }
  const Attempt attempt{attempt_id, request.order, request.amount};
  std::optional<PayRequest> keep = std::move(request);
  const Result<Settled> settled = co_await settle(caller, attempt, to, std::move(keep));
  leave();
  // The gateway has decided and the ledger does not take it now: the job asks the gateway again.
  if (!settled) co_return Outcome{.kind = Kind::kUnknown, .order = std::move(begun->order)};
  if (to == AttemptState::kDeclined)
    co_return Outcome{.kind = Kind::kDeclined, .order = settled->order};
  if (settled->paid) co_return Outcome{.kind = Kind::kPaid, .order = settled->order};
  const sale::OrderCall why = settled->order ? sale::decide_call(*settled->order, p_.clock.now())
                                             : sale::OrderCall::kNotReady;
  co_return Outcome{.kind = Kind::kRefused, .refusal = why, .order = settled->order};
}

/// Brings a decision of the gateway into the ledger, in one transaction; then tells the gate, or
/// gives the money back.
Task<Result<Payments::Settled>> Payments::settle(common::Executor& caller, Attempt attempt,
                                                 AttemptState to, std::optional<PayRequest> keep) {
  Result<Settled> settled = fail(ErrorCode::kUnavailable, "not tried");
  for (int i = 0; i < kSettleTries; ++i) {
    const Instant now = p_.clock.now();
    std::function<Result<Settled>(db::Session&)> work =
        [this, attempt, to, now, keep](db::Session& session) -> Result<Settled> {
      Settled outcome;
      const Result<bool> decided = decide_attempt(session, attempt.id, to, now);
      if (!decided) return fail(decided.error());
      outcome.decided = *decided;
      if (*decided && to == AttemptState::kApproved) {
        const Result<bool> paid = sale::settle_paid(session, attempt.order, attempt.id, now);
        if (!paid) return fail(paid.error());
        outcome.paid = *paid;
        if (!*paid) {
          const Result<bool> wanted =
              want_refund(session, attempt.id, attempt.amount.amount, "ORDER_ENDED", now);
          if (!wanted) return fail(wanted.error());
        }
      } else if (*decided) {
        const Result<Done> released =
            sale::release_payment(session, attempt.order, attempt.id, now);
        if (!released) return fail(released.error());
      }
      Result<std::optional<sale::Order>> order = sale::find_order(session, attempt.order);
      if (!order) return fail(std::move(order.error()));
      outcome.order = std::move(*order);
      if (!*decided) {
        // Somebody else decided it; whether the order is paid by this very attempt is what its
        // state says.
        outcome.paid = outcome.order && outcome.order->state == sale::OrderState::kPaid;
      }
      if (keep && !keep->key.empty() && *decided && outcome.order &&
          (outcome.paid || to == AttemptState::kDeclined)) {
        const db::KeptAnswer answer =
            outcome.paid ? db::KeptAnswer{200, paid_body(*outcome.order, p_.order_ids, now)}
                         : db::KeptAnswer{402, declined_body(http::Language::kEnglish)};
        const Result<Done> kept = db::keep_answer(
            session, {keep->subject, keep->route, keep->key, keep->body}, answer, now);
        if (!kept) return fail(kept.error());
      }
      return outcome;
    };
    settled = co_await p_.database.write<Settled>(caller, db::Priority::kRest, std::move(work));
    // A key that another request used meanwhile must not undo a payment.
    if (!settled && settled.error().code == ErrorCode::kConflict && keep) {
      keep.reset();
      continue;
    }
    if (settled) break;
    co_await common::sleep_until(caller, p_.clock.steady() + kSettleWait);
  }
  if (!settled) co_return settled;
  if (settled->decided) attempts_[static_cast<std::size_t>(to)]->add();
  if (settled->paid && settled->order && settled->order->slot && settled->order->nth) {
    const sale::Order& order = *settled->order;
    const engine::Confirmation confirmation{order.member, order.id, *order.slot, *order.nth,
                                            engine::kNever};
    co_await p_.engine.hold_ended(order.scope, confirmation);
  }
  if (settled->decided && to == AttemptState::kApproved && !settled->paid) {
    const bool sent = co_await send_refund(caller, attempt.id);
    // Otherwise the job sends it.
    static_cast<void>(sent);
  }
  co_return settled;
}

Task<bool> Payments::send_refund(common::Executor& caller, AttemptId attempt) {
  const bool taken = co_await gateway_.refund(caller, attempt);
  if (!taken) co_return false;
  const Instant now = p_.clock.now();
  std::function<Result<Done>(db::Session&)> work = [attempt, now](db::Session& session) {
    return refund_done(session, attempt, now);
  };
  const Result<Done> noted =
      co_await p_.database.write<Done>(caller, db::Priority::kRest, std::move(work));
  if (noted) refunds_.add();
  co_return noted.has_value();
}

Task<Result<std::optional<Payments::Refund>>> Payments::refund(common::Executor& caller,
                                                               common::GrantId order,
                                                               admin::Actor actor,
                                                               std::string reason) {
  struct Wanted {
    std::optional<Attempt> attempt;
    bool returned = false;
  };
  const Instant now = p_.clock.now();
  std::function<Result<Wanted>(db::Session&)> work = [order, actor, reason,
                                                      now](db::Session& session) -> Result<Wanted> {
    Wanted wanted;
    Result<std::optional<Attempt>> attempt = approved_attempt(session, order);
    if (!attempt) return fail(std::move(attempt.error()));
    if (!*attempt) return wanted;
    wanted.attempt = **attempt;
    const Result<bool> first =
        want_refund(session, wanted.attempt->id, wanted.attempt->amount.amount, reason, now);
    if (!first) return fail(first.error());
    if (!*first) return wanted;
    const Result<bool> returned = sale::refund_order(session, order, now);
    if (!returned) return fail(returned.error());
    wanted.returned = *returned;
    const Result<Done> noted =
        admin::write_audit(session, actor, "order.refund", common::to_string(order),
                           fmt::format(R"({{"reason":{}}})", http::json_quote(reason)), now);
    if (!noted) return fail(noted.error());
    return wanted;
  };
  const Result<Wanted> wanted =
      co_await p_.database.write<Wanted>(caller, db::Priority::kRest, std::move(work));
  using Answer = Result<std::optional<Refund>>;
  if (!wanted) co_return Answer{fail(wanted.error())};
  if (!wanted->attempt) co_return Answer{std::optional<Refund>{}};
  if (wanted->returned) p_.engine.steps_written();
  const bool sent = co_await send_refund(caller, wanted->attempt->id);
  co_return Answer{Refund{wanted->attempt->amount, sent}};
}

Task<Result<std::int64_t>> Payments::reconcile(common::Executor& caller) {
  std::function<Result<std::vector<Attempt>>(db::Session&)> find = [](db::Session& session) {
    return undecided_attempts(session, kReconcileLimit);
  };
  const Result<std::vector<Attempt>> attempts =
      co_await p_.database.read<std::vector<Attempt>>(caller, std::move(find));
  if (!attempts) co_return fail(attempts.error());
  std::int64_t changed = 0;
  for (const Attempt& attempt : *attempts) {
    {
      const std::lock_guard lock(mutex_);
      if (running_.contains(attempt.id)) continue;
    }
    // Cancelled first, so that a charge which is still on its way cannot come after the answer.
    const InquiryResult said = co_await gateway_.cancel_or_tell(caller, attempt.id);
    if (said == InquiryResult::kNoAnswer) continue;
    const AttemptState to = said == InquiryResult::kCharged    ? AttemptState::kApproved
                            : said == InquiryResult::kDeclined ? AttemptState::kDeclined
                                                               : AttemptState::kCanceled;
    const Result<Settled> settled = co_await settle(caller, attempt, to, std::nullopt);
    if (!settled) co_return fail(settled.error());
    if (settled->decided) ++changed;
  }
  std::function<Result<std::vector<AttemptId>>(db::Session&)> refunds = [](db::Session& session) {
    return wanted_refunds(session, kReconcileLimit);
  };
  const Result<std::vector<AttemptId>> wanted =
      co_await p_.database.read<std::vector<AttemptId>>(caller, std::move(refunds));
  if (!wanted) co_return fail(wanted.error());
  for (const AttemptId& attempt : *wanted) {
    const bool sent = co_await send_refund(caller, attempt);
    if (sent) ++changed;
  }
  co_return changed;
}

Task<void> Payments::run() {
  while (!stopping_.load()) {
    const Result<std::int64_t> changed = co_await reconcile(home_);
    if (!changed) {
      common::log(common::LogLevel::kWarn, "payments could not be reconciled now",
                  {{"why", std::string_view(changed.error().message)}});
    }
    const bool woken = co_await signal_.wait_until(p_.clock.steady() + kReconcileEvery);
    static_cast<void>(woken);
    if (stopping_.load()) co_return;
    // Woken by an unknown outcome: give the gateway a moment before asking.
    co_await common::sleep_until(home_, p_.clock.steady() + std::chrono::seconds{1});
  }
}

}  // namespace doorbuster::payment

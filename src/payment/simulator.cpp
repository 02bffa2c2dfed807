#include "payment/simulator.hpp"

#include <chrono>

namespace doorbuster::payment {
namespace {

using common::Done;
using common::fail;
using common::Result;
using common::Task;

constexpr std::chrono::seconds kSlowTime{3};

enum class Behaviour { kApprove, kDecline, kSlow, kSilentlyCharge, kSilentlyIgnore, kTwice };

Behaviour behaviour_of(const std::string& card) {
  if (card == "4000000000000002") return Behaviour::kDecline;
  if (card == "4000000000000077") return Behaviour::kSlow;
  if (card == "4000000000000119") return Behaviour::kSilentlyCharge;
  if (card == "4000000000000127") return Behaviour::kSilentlyIgnore;
  if (card == "4000000000000085") return Behaviour::kTwice;
  return Behaviour::kApprove;
}

class Simulator final : public PaymentGateway {
 public:
  Simulator(db::Database& database, const common::Clock& clock)
      : database_(database), clock_(clock) {}

  Task<ChargeResult> charge(common::Executor& caller, ChargeRequest request,
                            common::Steady deadline) override {
    const Behaviour behaviour = behaviour_of(request.card_number);
    if (behaviour == Behaviour::kSlow) {
      co_await common::sleep_until(caller, std::min(deadline, clock_.steady() + kSlowTime));
    }
    if (behaviour == Behaviour::kSilentlyIgnore) co_return ChargeResult::kUnknown;
    const bool decline = behaviour == Behaviour::kDecline;
    Result<std::string> state = co_await decide(caller, request, decline ? "DECLINED" : "CHARGED");
    if (behaviour == Behaviour::kTwice && state) {
      state = co_await decide(caller, request, "CHARGED");
    }
    if (!state || behaviour == Behaviour::kSilentlyCharge) co_return ChargeResult::kUnknown;
    // Somebody may have cancelled it while it was slow.
    co_return *state == "CHARGED" ? ChargeResult::kApproved : ChargeResult::kDeclined;
  }

  Task<InquiryResult> cancel_or_tell(common::Executor& caller, AttemptId attempt) override {
    const std::int64_t now = common::to_micros(clock_.now());
    std::function<Result<std::string>(db::Session&)> work =
        [attempt, now](db::Session& session) -> Result<std::string> {
      const Result<std::int64_t> canceled = session.execute(
          "INSERT INTO simulated_charge (attempt_id, amount, currency, state, charges, updated_at) "
          "VALUES ($1, 0, 'KRW', 'CANCELED', 0, $2) ON CONFLICT DO NOTHING",
          {db::param(attempt), now});
      if (!canceled) return fail(canceled.error());
      return state_of(session, attempt);
    };
    const Result<std::string> state =
        co_await database_.write<std::string>(caller, db::Priority::kRest, std::move(work));
    if (!state) co_return InquiryResult::kNoAnswer;
    if (*state == "CANCELED") co_return InquiryResult::kCanceled;
    co_return *state == "DECLINED" ? InquiryResult::kDeclined : InquiryResult::kCharged;
  }

  Task<bool> refund(common::Executor& caller, AttemptId attempt) override {
    const std::int64_t now = common::to_micros(clock_.now());
    std::function<Result<Done>(db::Session&)> work = [attempt,
                                                      now](db::Session& session) -> Result<Done> {
      const Result<std::int64_t> changed = session.execute(
          "UPDATE simulated_charge SET state = 'REFUNDED', updated_at = $1 "
          "WHERE attempt_id = $2 AND state = 'CHARGED'",
          {now, db::param(attempt)});
      if (!changed) return fail(changed.error());
      return Done{};
    };
    const Result<Done> done =
        co_await database_.write<Done>(caller, db::Priority::kRest, std::move(work));
    co_return done.has_value();
  }

 private:
  /// What is decided under an id stays decided: the first entry of the book counts.
  Task<Result<std::string>> decide(common::Executor& caller, const ChargeRequest& request,
                                   std::string verdict) {
    const std::int64_t now = common::to_micros(clock_.now());
    const AttemptId attempt = request.attempt;
    const common::Money amount = request.amount;
    std::function<Result<std::string>(db::Session&)> work =
        [=](db::Session& session) -> Result<std::string> {
      const std::int64_t charges = verdict == "CHARGED" ? 1 : 0;
      const Result<std::int64_t> made = session.execute(
          "INSERT INTO simulated_charge (attempt_id, amount, currency, state, charges, updated_at) "
          "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
          {db::param(attempt), amount.amount, amount.currency.text(), std::string_view(verdict),
           charges, now});
      if (!made) return fail(made.error());
      return state_of(session, attempt);
    };
    return database_.write<std::string>(caller, db::Priority::kRest, std::move(work));
  }

  static Result<std::string> state_of(db::Session& session, AttemptId attempt) {
    const Result<db::Rows> rows = session.query(
        "SELECT state FROM simulated_charge WHERE attempt_id = $1", {db::param(attempt)});
    if (!rows) return fail(rows.error());
    return rows->front().text(0);
  }

  db::Database& database_;
  const common::Clock& clock_;
};

}  // namespace

std::unique_ptr<PaymentGateway> make_simulator(db::Database& database, const common::Clock& clock) {
  return std::make_unique<Simulator>(database, clock);
}

}  // namespace doorbuster::payment

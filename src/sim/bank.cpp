#include "sim/bank.hpp"

namespace doorbuster::sim {

using common::Result;
using common::Task;
using payment::ChargeResult;
using payment::InquiryResult;

Task<ChargeResult> NodeBank::charge(common::Executor& caller, payment::ChargeRequest request,
                                    common::Steady) {
  std::function<Result<ChargeResult>()> effect =
      [this, request = std::move(request)]() -> Result<ChargeResult> {
    Bank::Account& account = bank_.accounts[request.attempt];
    account.amount = request.amount.amount;
    if (account.charges > 0) return ChargeResult::kApproved;
    if (account.closed || world_.random().chance(bank_.decline)) {
      account.closed = true;
      return ChargeResult::kDeclined;
    }
    ++account.charges;
    return ChargeResult::kApproved;
  };
  const Result<ChargeResult> answer = co_await link_.call<ChargeResult>(caller, std::move(effect));
  co_return answer ? *answer : ChargeResult::kUnknown;
}

Task<InquiryResult> NodeBank::cancel_or_tell(common::Executor& caller, payment::AttemptId attempt) {
  std::function<Result<InquiryResult>()> effect = [this, attempt]() -> Result<InquiryResult> {
    Bank::Account& account = bank_.accounts[attempt];
    if (account.charges > 0) return InquiryResult::kCharged;
    account.closed = true;
    return InquiryResult::kCanceled;
  };
  const Result<InquiryResult> answer =
      co_await link_.call<InquiryResult>(caller, std::move(effect));
  co_return answer ? *answer : InquiryResult::kNoAnswer;
}

Task<bool> NodeBank::refund(common::Executor& caller, payment::AttemptId attempt) {
  std::function<Result<bool>()> effect = [this, attempt]() -> Result<bool> {
    Bank::Account& account = bank_.accounts[attempt];
    if (account.refunds == 0 || bank_.refunds_twice) ++account.refunds;
    return true;
  };
  const Result<bool> answer = co_await link_.call<bool>(caller, std::move(effect));
  co_return answer && *answer;
}

}  // namespace doorbuster::sim

#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "payment/gateway.hpp"

namespace doorbuster::payment::testing {

/// A provider with a book of its own and trouble on demand. Used on one executor.
///
/// As the port says: what is decided under an id stays decided, and a refund happens once.
class FakeGateway final : public PaymentGateway {
 public:
  enum class Entry { kCharged, kDeclined, kCanceled, kRefunded };

  void decline_next() { decline_ = true; }
  /// Charges wait, before anything is decided, until let_go().
  void hold_charges() { held_ = true; }
  void let_go() {
    held_ = false;
    for (const auto& one : std::exchange(waiting_, {})) one.complete(common::Done{});
  }
  /// The next charge is decided, and nobody learns of it.
  void lose_next_answer() { lose_ = true; }
  /// The next charge never arrives, and nobody learns of that either.
  void lose_next_request() { ignore_ = true; }
  void set_silent(bool silent) { silent_ = silent; }
  void fail_refunds(int n) { fail_refunds_ = n; }
  /// A charge of a process that is gone.
  void charged_before(AttemptId attempt, std::int64_t amount) {
    book_[attempt] = {Entry::kCharged, amount};
  }

  [[nodiscard]] std::size_t charges() const { return charges_; }
  [[nodiscard]] std::size_t inquiries() const { return inquiries_; }
  [[nodiscard]] std::size_t refund_calls() const { return refund_calls_; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t count(Entry entry) const {
    return static_cast<std::size_t>(std::count_if(
        book_.begin(), book_.end(), [&](const auto& one) { return one.second.first == entry; }));
  }
  /// What was taken and not given back.
  [[nodiscard]] std::int64_t money_kept() const {
    std::int64_t sum = 0;
    for (const auto& [id, entry] : book_) {
      if (entry.first == Entry::kCharged) sum += entry.second;
    }
    return sum;
  }

  common::Task<ChargeResult> charge(common::Executor& caller, ChargeRequest request,
                                    common::Steady deadline) override {
    static_cast<void>(deadline);
    ++charges_;
    if (std::exchange(ignore_, false)) co_return ChargeResult::kUnknown;
    const bool lost = std::exchange(lose_, false);
    const bool declined = std::exchange(decline_, false);
    if (held_) {
      const common::Completion<common::Done> released(caller);
      waiting_.push_back(released);
      co_await released.wait();
    }
    const auto made = book_.try_emplace(
        request.attempt, declined ? Entry::kDeclined : Entry::kCharged, request.amount.amount);
    if (lost) co_return ChargeResult::kUnknown;
    co_return made.first->second.first == Entry::kCharged ? ChargeResult::kApproved
                                                          : ChargeResult::kDeclined;
  }
  common::Task<InquiryResult> cancel_or_tell(common::Executor& caller, AttemptId attempt) override {
    static_cast<void>(caller);
    ++inquiries_;
    if (silent_) co_return InquiryResult::kNoAnswer;
    const auto made = book_.try_emplace(attempt, Entry::kCanceled, 0);
    switch (made.first->second.first) {
      case Entry::kDeclined:
        co_return InquiryResult::kDeclined;
      case Entry::kCanceled:
        co_return InquiryResult::kCanceled;
      case Entry::kCharged:
      case Entry::kRefunded:
        break;
    }
    co_return InquiryResult::kCharged;
  }
  common::Task<bool> refund(common::Executor& caller, AttemptId attempt) override {
    static_cast<void>(caller);
    ++refund_calls_;
    if (silent_ || fail_refunds_ > 0) {
      if (fail_refunds_ > 0) --fail_refunds_;
      co_return false;
    }
    const auto found = book_.find(attempt);
    if (found != book_.end() && found->second.first == Entry::kCharged) {
      found->second.first = Entry::kRefunded;
    }
    co_return true;
  }

 private:
  std::map<AttemptId, std::pair<Entry, std::int64_t>> book_;
  std::vector<common::Completion<common::Done>> waiting_;
  bool decline_ = false;
  bool held_ = false;
  bool lose_ = false;
  bool ignore_ = false;
  bool silent_ = false;
  int fail_refunds_ = 0;
  std::size_t charges_ = 0;
  std::size_t inquiries_ = 0;
  std::size_t refund_calls_ = 0;
};

}  // namespace doorbuster::payment::testing

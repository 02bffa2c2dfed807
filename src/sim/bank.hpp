#pragma once

#include <map>

#include "payment/gateway.hpp"
#include "sim/link.hpp"

namespace doorbuster::sim {

/// The payment provider of a run, with its own books.
class Bank : public Server {
 public:
  struct Account {
    std::int64_t amount = 0;
    int charges = 0;
    int refunds = 0;
    bool closed = false;  ///< declined or cancelled: no charge under this id any more
  };
  std::map<payment::AttemptId, Account> accounts;
  double decline = 0.1;
  bool refunds_twice = false;  ///< a planted bug: it does not know a repeated refund
};

/// The bank as one node calls it.
class NodeBank final : public payment::PaymentGateway {
 public:
  NodeBank(World& world, Bank& bank, Link& link) : world_(world), bank_(bank), link_(link) {}
  common::Task<payment::ChargeResult> charge(common::Executor& caller,
                                             payment::ChargeRequest request,
                                             common::Steady deadline) override;
  common::Task<payment::InquiryResult> cancel_or_tell(common::Executor& caller,
                                                      payment::AttemptId attempt) override;
  common::Task<bool> refund(common::Executor& caller, payment::AttemptId attempt) override;

 private:
  World& world_;
  Bank& bank_;
  Link& link_;
};

}  // namespace doorbuster::sim

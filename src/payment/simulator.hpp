#pragma once

#include <memory>

#include "db/database.hpp"
#include "payment/gateway.hpp"

namespace doorbuster::payment {

/// A gateway that decides by the card number, so that anybody can try every case
/// (docs/payments.md):
///
///   4000000000000002  declines
///   4000000000000077  approves after 3 seconds
///   4000000000000119  takes the money and does not answer
///   4000000000000127  takes no money and does not answer
///   4000000000000085  approves, and is told twice
///   every other       approves
///
/// Its book is the table `simulated_charge`, so it remembers what it took when our process was
/// killed.
[[nodiscard]] std::unique_ptr<PaymentGateway> make_simulator(db::Database& database,
                                                             const common::Clock& clock);

}  // namespace doorbuster::payment

#pragma once

#include "http/router.hpp"
#include "payment/payments.hpp"

namespace doorbuster::payment {

/// `POST /api/flash-sales/orders/{orderId}/payment` and the administrators' refund.
void add_routes(http::Router& router, sale::RouteParts parts, Payments& payments);

}  // namespace doorbuster::payment

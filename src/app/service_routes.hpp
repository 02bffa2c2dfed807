#pragma once

#include <atomic>

#include "http/router.hpp"
#include "payment/payments.hpp"
#include "sale/jobs.hpp"

namespace doorbuster::app {

/// Whether requests should come here; `GET /health/ready` tells.
struct Readiness {
  enum class State { kStarting, kReady, kStopping };
  std::atomic<State> state{State::kStarting};
};

struct ServiceParts {
  sale::RouteParts sale;
  sale::SaleJobs& sale_jobs;
  payment::Payments& payments;
  const Readiness& readiness;
};

/// Time, health, metrics, jobs and verify: what belongs to the whole program.
void add_service_routes(http::Router& router, ServiceParts parts);

}  // namespace doorbuster::app

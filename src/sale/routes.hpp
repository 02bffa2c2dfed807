#pragma once

#include "common/clock.hpp"
#include "common/metrics.hpp"
#include "db/database.hpp"
#include "edge/token.hpp"
#include "engine/engine.hpp"
#include "engine/order_id.hpp"
#include "http/router.hpp"
#include "sale/catalog.hpp"

namespace doorbuster::sale {

/// What the routes of this module work with; all of it outlives the router.
struct RouteParts {
  const common::Clock& clock;
  common::Metrics& metrics;
  db::Database& database;
  engine::Engine& engine;
  Catalog& catalog;
  const engine::OrderIdCodec& order_ids;
  edge::TokenVerifier& tokens;
};

/// The rush: purchase, orders, sales, events (api page).
void add_routes(http::Router& router, RouteParts parts);
/// `/api/admin/flash-sales...`, audited.
void add_admin_routes(http::Router& router, RouteParts parts);

}  // namespace doorbuster::sale

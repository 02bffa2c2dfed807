#pragma once

#include "common/clock.hpp"
#include "db/database.hpp"
#include "edge/token.hpp"
#include "http/router.hpp"

namespace doorbuster::admin {

/// `GET /api/admin/audit`. Everything must outlive the router.
void add_routes(http::Router& router, db::Database& database, edge::TokenVerifier& tokens,
                const common::Clock& clock);

}  // namespace doorbuster::admin

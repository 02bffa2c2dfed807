#pragma once

#include "admin/audit.hpp"
#include "edge/token.hpp"
#include "http/response.hpp"

namespace doorbuster::admin {

/// The administrator behind a request, or the refusal: 401 without a good administrator token, 403
/// with a member's.
[[nodiscard]] tl::expected<Actor, http::Response> require_admin(edge::TokenVerifier& tokens,
                                                                const http::Request& request,
                                                                common::Instant now);

}  // namespace doorbuster::admin

#include "admin/guard.hpp"

namespace doorbuster::admin {

tl::expected<Actor, http::Response> require_admin(edge::TokenVerifier& tokens,
                                                  const http::Request& request,
                                                  common::Instant now) {
  const auto name = tokens.admin(request.authorization(), now);
  if (name) return Actor{*name, std::string(request.request_id())};
  // A member who calls an administrator's route is told apart from somebody without a token.
  const bool member = tokens.member(request.authorization(), now).has_value();
  return tl::make_unexpected(
      http::error_response(member ? http::kForbidden : http::kUnauthorized, request.language()));
}

}  // namespace doorbuster::admin

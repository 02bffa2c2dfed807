#pragma once

#include <span>
#include <string>
#include <string_view>

#include "http/router.hpp"

namespace doorbuster::app {

/// The contract as it was when the program was built: api/openapi.yaml, byte for byte.
[[nodiscard]] std::string_view openapi_yaml();
/// What the contract promises: "GET /api/time" and so on, sorted like http::Router::routes().
[[nodiscard]] std::span<const std::string_view> openapi_routes();

/// The contract as a page for people. It loads nothing from anywhere and runs no script.
[[nodiscard]] std::string_view docs_html();
/// The Content-Security-Policy that allows exactly the page's own style, by its hash.
[[nodiscard]] const std::string& docs_content_security_policy();

/// `GET /openapi.yaml` and `GET /docs`.
void add_docs_routes(http::Router& router);

}  // namespace doorbuster::app

#pragma once

#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "db/session.hpp"

namespace doorbuster::admin {

/// Who does something as an administrator, and in which request.
struct Actor {
  std::string name;  ///< the token's subject, or "system" for jobs
  std::string request_id;
};

/// Leaves the trace of an administrative change, in the transaction that makes it.
/// `detail` is a JSON object with what was asked for.
[[nodiscard]] common::Result<common::Done> write_audit(db::Session& session, const Actor& actor,
                                                       std::string_view action,
                                                       std::string_view target,
                                                       std::string_view detail,
                                                       common::Instant now);

}  // namespace doorbuster::admin

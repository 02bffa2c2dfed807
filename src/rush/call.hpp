#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "rush/target.hpp"

namespace doorbuster::rush {

struct CallAnswer {
  int status = 0;
  std::string body;
};

/// One request on a connection of its own, blocking; for administration, where nothing is in a
/// hurry. `headers` are whole lines, each with its CRLF. Errors: kUnavailable (no connection),
/// kTimeout, kCorrupt (no HTTP); after the request was sent with Proof::kUnknown.
[[nodiscard]] common::Result<CallAnswer> call(const Target& target, std::string_view method,
                                              std::string_view path, std::string_view headers,
                                              std::string_view body, const common::Clock& clock,
                                              std::chrono::milliseconds timeout);

}  // namespace doorbuster::rush

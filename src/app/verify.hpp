#pragma once

#include <string>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"

namespace doorbuster::app {

/// What rows can show of the invariants (engine page, section 3). Measures, never repairs; the same
/// rows give the same report byte for byte.
struct VerifyReport {
  struct Check {
    std::string name;                   ///< "I1"
    std::string what;                   ///< the rule in a sentence
    std::vector<std::string> findings;  ///< at most kMaxFindings; the last one says how many more
  };
  std::vector<Check> checks;
  [[nodiscard]] bool ok() const;
};

inline constexpr std::size_t kMaxFindings = 100;

[[nodiscard]] common::Result<VerifyReport> verify(db::Session& session);
[[nodiscard]] std::string to_text(const VerifyReport& report);
[[nodiscard]] std::string to_json(const VerifyReport& report);

}  // namespace doorbuster::app

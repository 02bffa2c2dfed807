#pragma once

#include <cstdint>

#include "bench/load.hpp"
#include "bench/shop.hpp"
#include "common/clock.hpp"
#include "common/result.hpp"

namespace doorbuster::bench {

/// One rush, closed loop, of which every answer was looked at.
struct RushRun {
  LoadResult load;
  double cpu_s = 0;         ///< of the server
  double last_grant_s = 0;  ///< from the first request to the answer of the last grant
  double neighbours = 0;
};

struct RushRunPlan {
  std::int64_t units = 0;  ///< of a new sale; 0: of `gone`, an item that is sold out
  std::int64_t gone = 0;
  std::int64_t members = 0;  ///< each wants one
  std::int64_t number = 0;   ///< another one for each rush, so that no token comes twice
  std::size_t connections = 256;
};

/// Errors also: kConflict when there were more or fewer grants than units, an order id came twice,
/// somebody got another answer than "granted" or "sold out", or the ledger counts otherwise.
[[nodiscard]] common::Result<RushRun> run_rush_once(const RushRunPlan& plan, Shop& shop,
                                                    const common::Clock& clock);

}  // namespace doorbuster::bench

#pragma once

#include "engine/relay.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

/// The rebuild of S6, also how a scope is prepared in the first place. Each step's time is a
/// metric. Two at once are harmless: the later epoch wins, the earlier one is told so by its own
/// calls.
class Rebuild {
 public:
  struct Config {
    std::string gate_name;         ///< written to the shard's row
    std::int32_t lease_chunk = 0;  ///< units of the first lease; 0: all
  };
  Rebuild(Parts parts, Relay& relay, Config config);

  /// On the engine's executor. When it fails, the scope answers busy until one succeeds;
  /// the watch tries again. With `from`, only if that is still the epoch in force: several nodes
  /// see the same loss, and one rebuild is enough. `reopens`: also a scope that is being settled,
  /// or was.
  [[nodiscard]] common::Task<common::Result<common::Done>> run(
      std::shared_ptr<Scope> scope, std::optional<Epoch> from = std::nullopt, bool reopens = false);

 private:
  common::Task<common::Result<common::Done>> steps(std::shared_ptr<Scope> scope,
                                                   std::optional<Epoch> from, bool reopens);

  Parts parts_;
  Relay& relay_;
  const Config config_;
  common::Counter& runs_;
  common::Counter& failures_;
};

}  // namespace doorbuster::engine

#pragma once

#include "engine/relay.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

/// The rebuild of S6, also how a scope is prepared in the first place. Each step's time is a
/// metric. Two at once are harmless: the later epoch wins, the earlier one is told so by its own
/// calls.
class Rebuild {
 public:
  Rebuild(Parts parts, Relay& relay, std::string gate_name);

  /// On the engine's executor. When it fails, the scope answers busy until one succeeds;
  /// the watch tries again.
  [[nodiscard]] common::Task<common::Result<common::Done>> run(std::shared_ptr<Scope> scope);

 private:
  common::Task<common::Result<common::Done>> steps(std::shared_ptr<Scope> scope);

  Parts parts_;
  Relay& relay_;
  const std::string gate_name_;
  common::Counter& runs_;
  common::Counter& failures_;
};

}  // namespace doorbuster::engine

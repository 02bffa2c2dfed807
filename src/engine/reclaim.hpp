#pragma once

#include "engine/relay.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

/// Ends grants in flight that nobody finishes (S7): mark, wait for the journal, then a REJECTED row
/// unless a row is there; what is there decides. Safe to run twice and at the same time.
class Reclaim {
 public:
  /// `after`: age of a grant from which on it counts as abandoned, while the ledger answered all
  /// that time.
  Reclaim(Parts parts, Writer& writer, Relay& relay, std::chrono::seconds after);

  /// How many grants were ended or confirmed. On the engine's executor.
  [[nodiscard]] common::Task<common::Result<std::int64_t>> run_once();

 private:
  Parts parts_;
  Writer& writer_;
  Relay& relay_;
  const std::chrono::seconds after_;
  std::optional<common::Steady> ledger_up_since_;
  common::Counter& reclaimed_;
};

}  // namespace doorbuster::engine

#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "common/metrics.hpp"
#include "engine/node_table.hpp"

namespace doorbuster::engine {

/// Who lives, as far as one can know (S11): this node's heartbeat, and what it reads of the
/// others'.
///
/// N1: a node is taken as ended when its counter was read unchanged for `ttl` by our own steady
/// clock, from readings that followed each other closely; a failed reading, or a long gap between
/// two, begins the count again. So neither a pause of the ledger nor our own ends anybody.
/// N2: nothing's safety rests on it. It says whom to reclaim early.
class Roster {
 public:
  struct Config {
    std::string name = "doorbuster";       ///< of this node: one name is one place
    std::chrono::milliseconds every{500};  ///< between heartbeats
    std::chrono::milliseconds ttl{4000};   ///< unchanged for so long (a margin included): ended
  };
  /// Without a `table` this node is alone: its number is 0 and nobody else ever was.
  Roster(common::Executor& home, NodeTable* table, Config config, common::Metrics& metrics);

  /// `begun` is called once, with the first reading of the others; `somebody_ended` each time that
  /// a node is newly taken as ended; `replaced` when another process has taken this node's name.
  [[nodiscard]] common::Task<void> run(std::function<void()> begun,
                                       std::function<void()> somebody_ended,
                                       std::function<void()> replaced);
  void stop();

  [[nodiscard]] bool alone() const noexcept { return table_ == nullptr; }
  /// 0 until the ledger has given a number. Any thread.
  [[nodiscard]] NodeId self() const noexcept { return NodeId{self_.load()}; }
  /// On the engine's executor.
  [[nodiscard]] bool has_ended(NodeId node) const;
  void set_reaches_gate(bool reaches) noexcept { reaches_gate_ = reaches; }

 private:
  struct Seen {
    std::int64_t counter = -1;
    common::Steady unchanged_since;
    bool ended = false;
  };
  [[nodiscard]] bool note(const std::vector<NodeBeat>& beats, common::Steady now);

  common::Executor& home_;
  NodeTable* const table_;
  const Config config_;
  common::Signal signal_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> self_{0};
  bool reaches_gate_ = true;
  std::map<NodeId, Seen> seen_;
  NodeId highest_;  // numbers grow: one below this that is not listed has ended
  std::optional<common::Steady> last_read_;  // nothing after a failed reading
  common::Gauge& alive_;
};

}  // namespace doorbuster::engine

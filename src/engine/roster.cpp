#include "engine/roster.hpp"

#include <algorithm>

#include "common/log.hpp"
#include "engine/rules.hpp"

namespace doorbuster::engine {

using common::ErrorCode;
using common::Result;
using common::Task;

Roster::Roster(common::Executor& home, NodeTable* table, Config config, common::Metrics& metrics)
    : home_(home),
      table_(table),
      config_(std::move(config)),
      signal_(home),
      alive_(metrics.gauge("engine_nodes_alive", "Nodes whose heartbeat is read, this one too")) {
  alive_.set(1);
}

void Roster::stop() {
  stopping_.store(true);
  signal_.set();
}

Task<void> Roster::run(std::function<void()> begun, std::function<void()> somebody_ended,
                       std::function<void()> replaced) {
  bool first = true;
  while (!stopping_.load() && table_ != nullptr) {
    if (self() == NodeId{0}) {
      std::string name = config_.name;
      const Result<NodeId> made = co_await table_->enlist(std::move(name));
      if (made) self_.store(made->value());
    } else {
      const Result<std::vector<NodeBeat>> beats = co_await table_->beat(self(), reaches_gate_);
      if (beats) {
        const bool news = note(*beats, home_.clock().steady());
        if (first) begun();
        if (news) somebody_ended();
        first = false;
      } else {
        if (in_force(Rule::kHeartbeatsAreRead)) last_read_.reset();
        if (beats.error().code == ErrorCode::kNotFound) {
          replaced();
          co_return;
        }
      }
    }
    const bool woken = co_await signal_.wait_until(home_.clock().steady() + config_.every);
    static_cast<void>(woken);
  }
}

/// Whether somebody is newly taken as ended.
bool Roster::note(const std::vector<NodeBeat>& beats, common::Steady now) {
  const bool close =
      (last_read_ && now - *last_read_ <= 4 * config_.every) || !in_force(Rule::kHeartbeatsAreRead);
  last_read_ = now;
  bool news = false;
  std::map<NodeId, Seen> seen;
  std::int64_t alive = 0;
  for (const NodeBeat& beat : beats) {
    Seen& mine = seen[beat.id];
    const auto known = seen_.find(beat.id);
    if (known != seen_.end()) mine = known->second;
    if (known == seen_.end() || mine.counter != beat.counter || (!close && !mine.ended)) {
      mine = Seen{.counter = beat.counter, .unchanged_since = now, .ended = false};
    } else if (!mine.ended && now - mine.unchanged_since >= config_.ttl) {
      mine.ended = true;
      news = true;
      common::log(common::LogLevel::kWarn, "a node's heartbeat has ended",
                  {{"node", beat.id.value()}});
    }
    if (!mine.ended) ++alive;
    highest_ = std::max(highest_, beat.id);
  }
  // Whoever is not listed any more was ended by its successor.
  for (const auto& [id, former] : seen_) {
    if (!former.ended && !seen.contains(id)) news = true;
  }
  seen_ = std::move(seen);
  alive_.set(static_cast<double>(alive));
  return news;
}

bool Roster::has_ended(NodeId node) const {
  if (table_ == nullptr || node == NodeId{0} || node == self() || !last_read_) return false;
  const auto found = seen_.find(node);
  return found == seen_.end() ? node < highest_ : found->second.ended;
}

}  // namespace doorbuster::engine

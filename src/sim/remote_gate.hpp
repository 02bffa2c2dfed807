#pragma once

#include <deque>
#include <map>
#include <string>

#include "engine/gate_memory.hpp"
#include "sim/link.hpp"

namespace doorbuster::sim {

/// A gate on a server of its own, as Redis would be: the decisions are the product's (GateMemory),
/// the memory can be lost, emptied, paused, or replaced by that of a replica which lags behind.
class GateServer : public Server {
 public:
  explicit GateServer(World& world) : world_(world) {}

  using Memories = std::map<engine::ScopeId, engine::GateMemory>;
  Memories memories;
  bool has_replica = false;
  /// Planted bugs (Planted in run.hpp).
  bool loses_confirms = false;
  bool forgets_a_row = false;
  bool was_flushed = false;
  /// When each epoch was begun and loaded.
  struct Life {
    Micros begun = 0;
    std::optional<Micros> loaded;
  };
  std::map<engine::Epoch, Life> lives;
  [[nodiscard]] const std::string& run_id() const noexcept { return run_id_; }

  /// A replica has what was there up to `lag` changes ago.
  void changed();
  void fail_over(std::size_t lag);
  /// Killed without persistence, and started again.
  void lose_memory();
  /// FLUSHALL: the process stays the same.
  void flush() {
    memories.clear();
    was_flushed = true;
  }

 private:
  World& world_;
  std::string run_id_ = "run1";
  int runs_ = 1;
  std::deque<Memories> past_;
};

/// The port, as one node uses it. A connection looks at the run id before its first call, so a call
/// of an epoch that was loaded into another memory is refused (engine page, section 5).
class RemoteGate final : public engine::Gate {
 public:
  RemoteGate(World& world, GateServer& server, Link& link, common::Executor& home)
      : world_(world), server_(server), link_(link), home_(home) {}

  common::Task<common::Result<engine::TakeAnswer>> take(engine::TakeRequest request) override;
  common::Task<common::Result<common::Done>> confirm(
      engine::ScopeId scope, engine::Epoch epoch,
      std::vector<engine::Confirmation> recorded) override;
  common::Task<common::Result<engine::SequenceNumber>> apply(
      engine::ScopeId scope, engine::Epoch epoch,
      std::vector<engine::SequenceEntry> steps) override;
  common::Task<common::Result<common::Done>> apply_leases(
      engine::ScopeId scope, engine::Epoch epoch, std::vector<engine::Lease> leases) override;
  common::Task<common::Result<std::optional<engine::Slot>>> replace(engine::ScopeId scope,
                                                                    engine::Epoch epoch,
                                                                    engine::MemberId member,
                                                                    engine::GrantId id,
                                                                    engine::Slot held) override;
  common::Task<common::Result<common::Done>> begin_epoch(engine::ScopeRules rules,
                                                         engine::ShardSnapshot rows) override;
  common::Task<common::Result<common::Done>> load(engine::ScopeId scope,
                                                  engine::ShardSnapshot rows) override;
  common::Task<common::Result<engine::GateReading>> read(engine::ScopeId scope) override;
  common::Task<common::Result<std::vector<engine::MemberId>>> holders(engine::ScopeId scope,
                                                                      engine::Epoch epoch) override;
  common::Task<common::Result<common::Done>> remove(engine::ScopeId scope) override;
  void expect(engine::ScopeId scope, engine::Epoch epoch, const std::string& memory) override;

 private:
  template <class T>
  common::Task<common::Result<T>> call(engine::ScopeId scope, std::optional<engine::Epoch> epoch,
                                       bool changes,
                                       std::function<common::Result<T>(engine::GateMemory&)> work);

  World& world_;
  GateServer& server_;
  Link& link_;
  common::Executor& home_;
  std::map<std::pair<engine::ScopeId, engine::Epoch>, std::string> expected_;
};

}  // namespace doorbuster::sim

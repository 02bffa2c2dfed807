#include "sim/remote_gate.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace doorbuster::sim {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;
using engine::Epoch;
using engine::GateMemory;
using engine::ScopeId;

/// Changes that a replica may lag behind.
constexpr std::size_t kMostLag = 8;

void GateServer::changed() {
  if (!has_replica) return;
  past_.push_back(memories);
  if (past_.size() > kMostLag) past_.pop_front();
}

void GateServer::fail_over(std::size_t lag) {
  if (!past_.empty()) {
    const std::size_t back = std::min(lag, past_.size() - 1);
    if (back > 0) world_.reached(30);
    Memories old = past_[past_.size() - 1 - back];
    memories = std::move(old);
  }
  past_.clear();
  run_id_ = fmt::format("run{}", ++runs_);
}

void GateServer::lose_memory() {
  memories.clear();
  past_.clear();
  run_id_ = fmt::format("run{}", ++runs_);
}

void RemoteGate::expect(ScopeId scope, Epoch epoch, const std::string& memory) {
  expected_[{scope, epoch}] = memory;
}

template <class T>
Task<Result<T>> RemoteGate::call(ScopeId scope, std::optional<Epoch> epoch, bool changes,
                                 std::function<Result<T>(GateMemory&)> work) {
  std::string wanted;
  if (epoch) {
    const auto known = expected_.find({scope, *epoch});
    if (known != expected_.end()) wanted = known->second;
  }
  std::function<Result<T>()> effect = [this, scope, changes, wanted = std::move(wanted),
                                       work = std::move(work)]() -> Result<T> {
    if (!wanted.empty() && wanted != server_.run_id()) {
      return fail(ErrorCode::kUnavailable, "another memory than the ledger's");
    }
    Result<T> result = work(server_.memories[scope]);
    if (changes) server_.changed();
    return result;
  };
  return link_.call<T>(home_, std::move(effect));
}

Task<Result<engine::TakeAnswer>> RemoteGate::take(engine::TakeRequest request) {
  using Answer = engine::TakeAnswer;
  const ScopeId scope = request.scope;
  const Epoch epoch = request.epoch;
  std::function<Result<Answer>(GateMemory&)> work =
      [this, request = std::move(request)](GateMemory& memory) -> Result<Answer> {
    if (server_.was_flushed && request.epoch < memory.epoch()) world_.reached(13);
    return memory.take(request);
  };
  const Result<Answer> answer = co_await call<Answer>(scope, epoch, true, std::move(work));
  // A lost gate and one that was exchanged look the same to a buyer: ask again.
  if (!answer && answer.error().code == ErrorCode::kUnavailable) {
    co_return Answer{engine::NotNow::kNotPrepared};
  }
  co_return answer;
}

Task<Result<Done>> RemoteGate::confirm(ScopeId scope, Epoch epoch,
                                       std::vector<engine::Confirmation> recorded) {
  std::function<Result<Done>(GateMemory&)> work =
      [this, epoch, recorded = std::move(recorded)](GateMemory& memory) -> Result<Done> {
    if (server_.loses_confirms) return Done{};
    if (const auto holders = memory.holders(epoch)) {
      for (const engine::Confirmation& one : recorded) {
        if (std::find(holders->begin(), holders->end(), one.member) == holders->end()) {
          world_.reached(10);
        }
      }
    }
    return memory.confirm(epoch, recorded);
  };
  Result<Done> answer = co_await call<Done>(scope, epoch, true, std::move(work));
  if (!answer && answer.error().code == ErrorCode::kTimeout) world_.reached(33);
  co_return answer;
}

Task<Result<engine::SequenceNumber>> RemoteGate::apply(ScopeId scope, Epoch epoch,
                                                       std::vector<engine::SequenceEntry> steps) {
  return call<engine::SequenceNumber>(scope, epoch, true,
                                      [this, epoch, steps = std::move(steps)](
                                          GateMemory& memory) -> Result<engine::SequenceNumber> {
                                        if (memory.epoch() != epoch) world_.reached(31);
                                        return memory.apply(epoch, steps);
                                      });
}

Task<Result<Done>> RemoteGate::apply_leases(ScopeId scope, Epoch epoch,
                                            std::vector<engine::Lease> leases) {
  return call<Done>(scope, epoch, true, [epoch, leases = std::move(leases)](GateMemory& memory) {
    return memory.apply_leases(epoch, leases);
  });
}

Task<Result<std::optional<engine::Slot>>> RemoteGate::replace(ScopeId scope, Epoch epoch,
                                                              engine::MemberId member,
                                                              engine::GrantId id,
                                                              engine::Slot held) {
  return call<std::optional<engine::Slot>>(scope, epoch, true, [=](GateMemory& memory) {
    return memory.replace(epoch, member, id, held);
  });
}

Task<Result<Done>> RemoteGate::begin_epoch(engine::ScopeRules rules, engine::ShardSnapshot rows) {
  const ScopeId scope = rules.id;
  const Epoch epoch = rows.epoch;
  return call<Done>(
      scope, epoch, true,
      [this, epoch, rules = std::move(rules), rows = std::move(rows)](GateMemory& memory) {
        Result<Done> begun = memory.begin_epoch(rules, rows);
        if (begun) server_.lives[epoch] = {.begun = world_.now(), .loaded = std::nullopt};
        return begun;
      });
}

Task<Result<Done>> RemoteGate::load(ScopeId scope, engine::ShardSnapshot rows) {
  const Epoch epoch = rows.epoch;
  return call<Done>(scope, epoch, true,
                    [this, epoch, rows = std::move(rows)](GateMemory& memory) -> Result<Done> {
                      engine::ShardSnapshot read = rows;
                      if (server_.forgets_a_row && !read.rows.empty()) read.rows.pop_back();
                      Result<Done> loaded = memory.load(read);
                      if (loaded) server_.lives[epoch].loaded = world_.now();
                      if (!loaded && loaded.error().code == ErrorCode::kConflict)
                        world_.reached(29);
                      return loaded;
                    });
}

Task<Result<engine::GateReading>> RemoteGate::read(ScopeId scope) {
  return call<engine::GateReading>(scope, std::nullopt, false,
                                   [this](GateMemory& memory) -> Result<engine::GateReading> {
                                     engine::GateReading reading = memory.read();
                                     reading.memory = server_.run_id();
                                     return reading;
                                   });
}

Task<Result<std::vector<engine::MemberId>>> RemoteGate::holders(ScopeId scope, Epoch epoch) {
  return call<std::vector<engine::MemberId>>(
      scope, epoch, false, [epoch](GateMemory& memory) { return memory.holders(epoch); });
}

Task<Result<Done>> RemoteGate::remove(ScopeId scope) {
  return call<Done>(scope, std::nullopt, true, [](GateMemory& memory) -> Result<Done> {
    memory.forget();
    return Done{};
  });
}

}  // namespace doorbuster::sim

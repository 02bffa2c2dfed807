#include "engine/local_gate.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "engine/gate_memory.hpp"

namespace doorbuster::engine {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;

struct Scope {
  std::mutex mutex;
  GateMemory memory;  // Guarded by mutex.
};

class LocalGate final : public Gate {
 public:
  Task<Result<TakeAnswer>> take(TakeRequest request) override {
    Result<TakeAnswer> answer = TakeAnswer{NotNow::kNotPrepared};
    if (Scope* scope = find(request.scope)) {
      const std::lock_guard lock(scope->mutex);
      answer = scope->memory.take(std::move(request));
    }
    co_return answer;
  }

  Task<Result<Done>> confirm(ScopeId id, Epoch epoch, std::vector<Confirmation> recorded) override {
    Result<Done> answer =
        with<Done>(id, [&](GateMemory& memory) { return memory.confirm(epoch, recorded); });
    co_return answer;
  }

  Task<Result<SequenceNumber>> apply(ScopeId id, Epoch epoch,
                                     std::vector<SequenceEntry> steps) override {
    Result<SequenceNumber> answer =
        with<SequenceNumber>(id, [&](GateMemory& memory) { return memory.apply(epoch, steps); });
    co_return answer;
  }

  Task<Result<Done>> apply_leases(ScopeId id, Epoch epoch, std::vector<Lease> leases) override {
    Result<Done> answer =
        with<Done>(id, [&](GateMemory& memory) { return memory.apply_leases(epoch, leases); });
    co_return answer;
  }

  Task<Result<std::optional<Slot>>> replace(ScopeId id, Epoch epoch, MemberId member, GrantId grant,
                                            Slot held) override {
    using Answer = std::optional<Slot>;
    Result<Answer> answer = with<Answer>(
        id, [&](GateMemory& memory) { return memory.replace(epoch, member, grant, held); });
    co_return answer;
  }

  Task<Result<Done>> begin_epoch(ScopeRules rules, ShardSnapshot rows) override {
    Scope& scope = find_or_make(rules.id);
    Result<Done> answer = Done{};
    {
      const std::lock_guard lock(scope.mutex);
      answer = scope.memory.begin_epoch(rules, rows);
    }
    co_return answer;
  }

  Task<Result<Done>> load(ScopeId id, ShardSnapshot rows) override {
    Result<Done> answer = with<Done>(id, [&](GateMemory& memory) { return memory.load(rows); });
    co_return answer;
  }

  Task<Result<GateReading>> read(ScopeId id) override {
    GateReading reading;
    if (Scope* scope = find(id)) {
      const std::lock_guard lock(scope->mutex);
      reading = scope->memory.read();
    }
    Result<GateReading> answer = std::move(reading);
    co_return answer;
  }

  Task<Result<std::vector<MemberId>>> holders(ScopeId id, Epoch epoch) override {
    using Members = std::vector<MemberId>;
    Result<Members> answer =
        with<Members>(id, [&](GateMemory& memory) { return memory.holders(epoch); });
    co_return answer;
  }

  Task<Result<Done>> remove(ScopeId id) override {
    if (Scope* scope = find(id)) {
      const std::lock_guard lock(scope->mutex);
      scope->memory.forget();
    }
    Result<Done> answer = Done{};
    co_return answer;
  }

 private:
  template <class T, class F>
  Result<T> with(ScopeId id, F&& call) {
    Scope* scope = find(id);
    if (scope == nullptr) return fail(ErrorCode::kUnavailable, "the gate does not know this scope");
    const std::lock_guard lock(scope->mutex);
    return std::forward<F>(call)(scope->memory);
  }

  // Scopes are made by prepare and never destroyed before the gate, so a pointer stays good.
  Scope* find(ScopeId id) {
    const std::shared_lock lock(scopes_mutex_);
    const auto found = scopes_.find(id);
    return found == scopes_.end() ? nullptr : found->second.get();
  }
  Scope& find_or_make(ScopeId id) {
    const std::unique_lock lock(scopes_mutex_);
    std::unique_ptr<Scope>& scope = scopes_[id];
    if (!scope) scope = std::make_unique<Scope>();
    return *scope;
  }

  std::shared_mutex scopes_mutex_;
  std::unordered_map<ScopeId, std::unique_ptr<Scope>> scopes_;  // Guarded by scopes_mutex_.
};

}  // namespace

std::unique_ptr<Gate> make_local_gate() { return std::make_unique<LocalGate>(); }

}  // namespace doorbuster::engine

#pragma once

#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "engine/scope.hpp"

namespace doorbuster::engine {

/// The scopes that are prepared on this node. Any thread.
class Scopes {
 public:
  [[nodiscard]] std::shared_ptr<Scope> find(ScopeId id) const {
    const std::shared_lock lock(mutex_);
    const auto found = scopes_.find(id);
    return found == scopes_.end() ? nullptr : found->second;
  }
  void put(std::shared_ptr<Scope> scope) {
    const std::unique_lock lock(mutex_);
    scopes_[scope->rules().id] = std::move(scope);
  }
  void remove(ScopeId id) {
    const std::unique_lock lock(mutex_);
    scopes_.erase(id);
  }
  [[nodiscard]] std::vector<std::shared_ptr<Scope>> all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<Scope>> list;
    list.reserve(scopes_.size());
    for (const auto& [id, scope] : scopes_) list.push_back(scope);
    return list;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<ScopeId, std::shared_ptr<Scope>> scopes_;  // Guarded by mutex_.
};

}  // namespace doorbuster::engine

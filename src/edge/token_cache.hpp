#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace doorbuster::edge {

/// What was found out about the tokens used last, by their text. At most `capacity` entries (an odd
/// one counts one less), in two generations: when the younger one is half of that it becomes the
/// older one, which is dropped whole. Tokens in use move to the younger one, so that a flood of
/// others does not make all of them cost a signature again. Not for use by several threads.
///
/// Only verified tokens come in, so nobody can choose texts that share a bucket.
template <class Value>
class TokenCache {
 public:
  explicit TokenCache(std::size_t capacity) : half_(capacity / 2) {}

  /// Null when it is not known. Good until the next call.
  [[nodiscard]] const Value* find(std::string_view token) {
    if (const auto found = young_.find(token); found != young_.end()) return &found->second;
    const auto found = old_.find(token);
    if (found == old_.end()) return nullptr;
    auto moving = old_.extract(found);
    make_room();
    return &young_.insert(std::move(moving)).position->second;
  }

  void insert(std::string_view token, Value value) {
    if (half_ == 0) return;
    make_room();
    young_.insert_or_assign(std::string(token), std::move(value));
  }

  void erase(std::string_view token) {
    if (const auto found = young_.find(token); found != young_.end()) young_.erase(found);
    if (const auto found = old_.find(token); found != old_.end()) old_.erase(found);
  }

  [[nodiscard]] std::size_t size() const noexcept { return young_.size() + old_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  using Generation = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  void make_room() {
    if (young_.size() < half_) return;
    old_ = std::exchange(young_, {});
  }

  std::size_t half_;
  Generation young_;
  Generation old_;
};

}  // namespace doorbuster::edge

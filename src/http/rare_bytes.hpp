#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

// Internal to this folder.
namespace doorbuster::http {

/// Bytes that a connection mostly has none of: then it is one pointer.
class RareBytes {
 public:
  [[nodiscard]] bool empty() const noexcept { return held_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return view().size(); }
  /// Good until the next change.
  [[nodiscard]] std::string_view view() const noexcept {
    return held_ ? std::string_view(held_->bytes).substr(held_->begin) : std::string_view{};
  }

  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    if (!held_) held_ = std::make_unique<Held>();
    // What was taken off the front goes at last, so that a client which takes little at a time does
    // not have the rest moved each time.
    held_->bytes.erase(0, held_->begin);
    held_->begin = 0;
    held_->bytes.append(bytes);
  }
  void remove_prefix(std::size_t size) noexcept {
    if (size == this->size()) return clear();
    if (size > 0) held_->begin += size;
  }
  void clear() noexcept { held_.reset(); }

 private:
  struct Held {
    std::string bytes;
    std::size_t begin = 0;  ///< below the size
  };
  std::unique_ptr<Held> held_;  ///< null when there are none
};

}  // namespace doorbuster::http

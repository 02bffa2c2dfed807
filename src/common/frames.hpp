#pragma once

#include <cstddef>

namespace doorbuster::common::detail {

/// Memory for a coroutine's frame. A request is some ten coroutines, and hundreds of requests wait
/// at a time: more blocks of one size than malloc keeps at hand for a thread, so it would go the
/// long way for each. Freed frames are kept by the thread that frees them, up to a limit for each
/// size; with a sanitizer they are not, so that it sees every use of a frame that is gone.
[[nodiscard]] void* take_frame(std::size_t size);
void give_frame(void* frame, std::size_t size) noexcept;

/// A promise that derives from this has its coroutine's frames from there.
struct PooledFrame {
  static void* operator new(std::size_t size) { return take_frame(size); }
  static void operator delete(void* frame, std::size_t size) noexcept { give_frame(frame, size); }
};

}  // namespace doorbuster::common::detail

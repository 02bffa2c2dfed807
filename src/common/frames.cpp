#include "common/frames.hpp"

#include <array>
#include <new>

#include "common/sanitizer.hpp"

namespace doorbuster::common::detail {
namespace {

constexpr bool kPooled = !kSanitized;

/// Frames of one class are all made with its largest size.
constexpr std::size_t kStep = 64;
constexpr std::size_t kClasses = 64;
constexpr std::size_t kLargest = kStep * kClasses;
/// Kept of one class, and in all classes together.
constexpr std::size_t kKept = 512;
constexpr std::size_t kKeptBytes = std::size_t{4} * 1024 * 1024;

struct Free {
  Free* next;
};

/// Plain data, so that it can be used to the very end of the thread; see Cleaner.
struct Pool {
  std::array<Free*, kClasses> first;
  std::array<std::size_t, kClasses> kept;
  std::size_t bytes;
  bool closed;
};
thread_local Pool pool{};

/// Gives a thread's frames back at its end. Coroutines that end later find the pool closed.
struct Cleaner {
  ~Cleaner() {
    pool.closed = true;
    for (Free*& list : pool.first) {
      while (list != nullptr) {
        Free* const one = list;
        list = one->next;
        ::operator delete(one);
      }
    }
  }
};

std::size_t class_of(std::size_t size) noexcept { return (size - 1) / kStep; }

}  // namespace

void* take_frame(std::size_t size) {
  if (!kPooled || size > kLargest) return ::operator new(size);
  const std::size_t place = class_of(size);
  Free* const first = pool.first[place];
  if (first == nullptr) return ::operator new((place + 1) * kStep);
  pool.first[place] = first->next;
  --pool.kept[place];
  pool.bytes -= (place + 1) * kStep;
  return first;
}

void give_frame(void* frame, std::size_t size) noexcept {
  if (!kPooled || size > kLargest) return ::operator delete(frame);
  const std::size_t place = class_of(size);
  const std::size_t bytes = (place + 1) * kStep;
  if (pool.closed || pool.kept[place] == kKept || pool.bytes + bytes > kKeptBytes) {
    return ::operator delete(frame);
  }
  static thread_local const Cleaner cleaner;
  static_cast<void>(cleaner);
  pool.first[place] = ::new (frame) Free{pool.first[place]};
  ++pool.kept[place];
  pool.bytes += bytes;
}

}  // namespace doorbuster::common::detail

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "common/clock.hpp"
#include "common/ids.hpp"

namespace doorbuster::common {

/// Bytes from the operating system's generator; a failure ends the process.
void fill_random(std::span<std::uint8_t> out);

/// Makes grant ids. Ids of one maker strictly increase, also when the clock steps back.
/// Callable from any thread. `random` fills bytes (injected, so that a simulation repeats itself).
class GrantIdMaker {
 public:
  explicit GrantIdMaker(const Clock& clock,
                        std::function<void(std::span<std::uint8_t>)> random = fill_random);
  [[nodiscard]] GrantId make();

 private:
  const Clock& clock_;
  std::function<void(std::span<std::uint8_t>)> random_;
  std::mutex mutex_;
  std::int64_t last_ms_ = 0;            // Guarded by mutex_.
  std::uint32_t counter_ = 0;           // Guarded by mutex_.
  std::array<std::uint8_t, 6> node_{};  // new for every maker, then never changed
};

}  // namespace doorbuster::common

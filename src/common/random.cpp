#include "common/random.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <limits>

#include "common/result.hpp"

namespace doorbuster::common {

void fill_random(std::span<std::uint8_t> out) {
  DOORBUSTER_ENSURE(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1,
                    "the operating system's random generator answers");
}

GrantIdMaker::GrantIdMaker(const Clock& clock, std::function<void(std::span<std::uint8_t>)> random)
    : clock_(clock), random_(std::move(random)) {
  random_(node_);
}

GrantId GrantIdMaker::make() {
  GrantId id;
  const std::int64_t now_ms = to_micros(clock_.now()) / 1000;
  std::int64_t ms = 0;
  std::uint32_t counter = 0;
  {
    const std::lock_guard lock(mutex_);
    if (now_ms > last_ms_) {
      last_ms_ = now_ms;
      counter_ = 0;
    } else if (counter_ == std::numeric_limits<std::uint32_t>::max() >> 6) {
      // More than 67 million in one millisecond, or a clock that stepped far back: borrow the next
      // one.
      ++last_ms_;
      counter_ = 0;
    } else {
      ++counter_;
    }
    ms = last_ms_;
    counter = counter_;
  }
  for (std::size_t i = 0; i < 6; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(ms >> (8 * (5 - i)));
  }
  // 26 bits of counter: 12 behind the version nibble, 14 behind the variant bits.
  const std::uint32_t high = counter >> 14;
  const std::uint32_t low = counter & 0x3FFFU;
  id.bytes[6] = static_cast<std::uint8_t>(0x70U | (high >> 8));
  id.bytes[7] = static_cast<std::uint8_t>(high);
  id.bytes[8] = static_cast<std::uint8_t>(0x80U | (low >> 8));
  id.bytes[9] = static_cast<std::uint8_t>(low);
  std::copy(node_.begin(), node_.end(), id.bytes.begin() + 10);
  return id;
}

}  // namespace doorbuster::common

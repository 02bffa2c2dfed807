#include "common/result.hpp"

#include <cstdio>
#include <cstdlib>

namespace doorbuster::common {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalid:
      return "INVALID";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kConflict:
      return "CONFLICT";
    case ErrorCode::kBusy:
      return "BUSY";
    case ErrorCode::kFull:
      return "FULL";
    case ErrorCode::kReadOnly:
      return "READ_ONLY";
    case ErrorCode::kIo:
      return "IO";
    case ErrorCode::kTimeout:
      return "TIMEOUT";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kStaleEpoch:
      return "STALE_EPOCH";
    case ErrorCode::kCorrupt:
      return "CORRUPT";
    case ErrorCode::kInternal:
      return "INTERNAL";
  }
  return "INTERNAL";
}

void ensure_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace doorbuster::common

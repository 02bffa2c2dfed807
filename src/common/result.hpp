#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace doorbuster::common {

/// What a failure proves about the thing that was asked for.
enum class Proof {
  kDidNotHappen,  ///< nothing changed; the caller may try again or ask for the terminal row
  kUnknown,       ///< it may have happened; the same request must be sent again under the same id
};

enum class ErrorCode {
  kInvalid,      ///< the caller's input is wrong
  kNotFound,     ///< the thing that was named does not exist
  kConflict,     ///< a rule (constraint, state, epoch) forbids it
  kBusy,         ///< a bounded queue is full, or the database file is locked by another process
  kFull,         ///< the disk (or the database) is full
  kReadOnly,     ///< the file or database cannot be written
  kIo,           ///< the operating system reported an input or output error
  kTimeout,      ///< no answer within the time allowed
  kUnavailable,  ///< the part is closed, stopping, or not reachable
  kStaleEpoch,   ///< the call names an epoch that is no longer in force
  kCorrupt,      ///< stored data cannot be understood
  kInternal,     ///< a bug, or a library error without a better name
};

/// The code's stable spelling, for logs and metrics, such as "READ_ONLY".
[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

/// A failure. An expected refusal (sold out, hold expired) is a value and not an Error.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< for operators and logs; never sent to buyers
  Proof proof = Proof::kDidNotHappen;
};

template <class T>
using Result = tl::expected<T, Error>;

/// For calls that only succeed or fail.
struct Done {
  friend constexpr bool operator==(Done, Done) = default;
};

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message,
                                                Proof proof = Proof::kDidNotHappen) {
  return tl::make_unexpected(Error{code, std::move(message), proof});
}

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}

/// Stops the process when an invariant is broken: a wrong answer costs more than none.
/// On in every build.
[[noreturn]] void ensure_failed(const char* condition, const char* why, const char* file, int line);

}  // namespace doorbuster::common

// A macro, since the message must show the condition's text and its place.
#define DOORBUSTER_ENSURE(condition, why) \
  ((condition) ? static_cast<void>(0)     \
               : ::doorbuster::common::ensure_failed(#condition, why, __FILE__, __LINE__))

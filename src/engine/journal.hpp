#pragma once

#include <vector>

#include "common/result.hpp"
#include "common/task.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

/// Carries grants from the gate to the ledger. Written for several implementations.
///
/// J1: what was appended is handed to the consumer at least once, until it was committed.
/// J2: a seat is reserved before a slot is taken, so a full queue never has to give a slot back.
class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  virtual ~Journal() = default;

  /// A place for one grant; false when all are taken. Any thread.
  [[nodiscard]] virtual bool reserve_seat() noexcept = 0;
  /// Gives back a place that append() did not use. Any thread.
  virtual void release_seat() noexcept = 0;

  /// Uses one reserved seat, also when it fails. Any thread; answers on the caller's executor.
  /// Errors: kUnavailable (definite: nobody will record it), kTimeout (ambiguous).
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> append(Grant grant) = 0;

  /// The consumer's side, used by the writer on its executor. Waits for nothing but a first grant;
  /// at most `max`. Empty: the journal was stopped and is consumed.
  [[nodiscard]] virtual common::Task<std::vector<Grant>> next_batch(std::size_t max) = 0;
  /// The last batch is in the ledger; its seats are free.
  virtual void commit() = 0;

  /// Waits, on the writer's executor, until everything appended before the call has been committed:
  /// the drain of S6 and the wait of S7. Errors also: kUnavailable when the writer abandons it
  /// first.
  [[nodiscard]] virtual common::Task<common::Result<common::Done>> consumed_to_end() = 0;

  /// No further append; what is in it is still handed out.
  virtual void stop() = 0;
  /// The writer ends without having committed the rest: whoever waits for the end is told so.
  /// Implies stop().
  virtual void abandon() = 0;

  [[nodiscard]] virtual std::size_t depth() const noexcept = 0;
};

}  // namespace doorbuster::engine

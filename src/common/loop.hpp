#pragma once

#include <memory>
#include <string>

#include "common/executor.hpp"

namespace boost::asio {
class io_context;
}

namespace doorbuster::common {

/// An Executor with a thread of its own, over an Asio io_context. Timers are due by `clock`; a
/// clock that stands still makes them wait, and after a move they run at the latest when the
/// machine's clock has gone as far as they were away.
class Loop : public Executor {
 public:
  /// For `http` and `redis`, which put their sockets on it.
  [[nodiscard]] virtual boost::asio::io_context& io() noexcept = 0;
  /// Runs what is posted already, then ends the thread; timers and later posts are dropped. Not
  /// callable on the loop itself; otherwise from any thread, and again.
  virtual void stop() = 0;
};

/// Starts the thread. `name` (at most 15 characters) shows up in debuggers.
[[nodiscard]] std::unique_ptr<Loop> make_loop(const Clock& clock, const std::string& name);

}  // namespace doorbuster::common

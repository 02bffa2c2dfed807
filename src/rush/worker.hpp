#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "rush/rush.hpp"
#include "rush/target.hpp"

namespace doorbuster::rush {

/// What one worker thread has to do.
struct WorkerPlan {
  std::vector<std::int64_t> members;  ///< who wants each unit
  std::vector<std::uint8_t>
      units;  ///< which of the member's it is, for the key; empty: all the first
  std::vector<std::chrono::nanoseconds>
      arrivals;  ///< open loop: when each comes; closed loop: empty
  std::size_t connections = 1;
  std::size_t idle_connections = 0;
  std::size_t first_connection = 0;  ///< how many connections the workers before have
  std::uint64_t max_requests = 0;
  std::uint64_t seed = 0;  ///< this worker's own
};

/// Counts that grow while a worker works.
struct Tally {
  std::uint64_t sent = 0;
  std::uint64_t done = 0;  ///< wanted units whose buyer is through
  std::array<std::uint64_t, kAnswerKinds> purchases{};
  std::array<std::uint64_t, kAnswerKinds> orders{};
  std::uint64_t sold_out_final = 0;
  std::uint64_t asked_again = 0;
  std::uint64_t asked_again_same = 0;
  std::uint64_t idle_lost = 0;
};

/// One thread's share of a rush: an epoll loop over non-blocking sockets. It is our own, and not
/// the product's client, since a generator must be faster than the server: one send and one receive
/// a request, nothing allocated for a refusal.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker() = default;

  /// Makes tokens and opens connections; gives how many are open. On the worker's thread, before
  /// `run`.
  [[nodiscard]] virtual common::Result<std::size_t> prepare() = 0;
  /// Works until every buyer is through, or a bound is met, then closes its connections. On the
  /// same thread.
  virtual void run(common::Steady start) = 0;

  /// Any thread, also while it runs. What was answered since the last call is added to `recent`.
  virtual Tally tally(LatencyHistogram& recent) = 0;

  /// The rest is for after `run`, and by one thread.
  struct Results {
    History history;
    std::array<std::uint64_t, kEndings> endings{};
    LatencyHistogram all, grants, refusals, payments;
    WorkerLoad load;
    std::string stopped;
  };
  [[nodiscard]] virtual Results& results() = 0;
};

/// The references must outlive the worker.
[[nodiscard]] std::unique_ptr<Worker> make_worker(const RushConfig& config, const Target& target,
                                                  WorkerPlan plan, const common::Clock& clock);

}  // namespace doorbuster::rush

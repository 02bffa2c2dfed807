#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "rush/buyer.hpp"
#include "rush/histogram.hpp"
#include "rush/history.hpp"

namespace doorbuster::rush {

/// How much of its own strength a worker thread used, to tell whether the generator was the limit.
struct WorkerLoad {
  double cpu_share = 0;  ///< of the load's time on a processor
  double wait_share =
      0;  ///< of it ready to run, without getting a processor (0 where the kernel does not tell)
  LatencyHistogram lag;  ///< open loop: how late arrivals were released
  LatencyHistogram
      seat;  ///< open loop: how long a request that was due waited for a free connection
};

/// A stretch of the load's time.
struct TimeBin {
  double from_s = 0;
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;  ///< definite: sold out, already, closed, not allowed
  std::uint64_t busy = 0;     ///< busy and limited
  std::uint64_t failed = 0;   ///< connect failed, cut, no answer, server errors
  std::uint64_t other = 0;    ///< reads and payments, and anything else
  LatencyHistogram::Micros p50{};
  LatencyHistogram::Micros p99{};
};

/// The server's side, as its administrators' routes told it.
struct ServerSide {
  std::int64_t quantity = 0;
  std::int64_t per_member = 0;
  std::optional<std::int64_t> sold;
  std::size_t rows = 0;
  std::array<std::size_t, 7> by_state{};  ///< by OrderStatus
  std::size_t slots = 0;                  ///< different slots of rows that hold
  std::size_t members = 0;                ///< different members of rows that hold
  bool quiet = false;
};

enum class Outcome {
  kOk,
  kBroken,      ///< an invariant does not hold
  kUnverified,  ///< the ledger was to be read, and could not be
};

struct RushReport {
  // What was run.
  std::string url;
  std::int64_t item_id = 0;
  std::int64_t members = 0;
  std::int64_t wanted = 0;  ///< units that buyers wanted
  std::string curve;        ///< for people: "all at once", "ramp over 10 s", ...
  bool open_loop = false;
  std::uint64_t seed = 0;
  int threads = 0;
  int connections = 0;
  int idle_connections = 0;
  int pipelining = 1;
  common::Instant started;
  double setup_s = 0;   ///< tokens and connections, not part of the load
  double seconds = 0;   ///< the load: from the start to the last answer
  std::string stopped;  ///< why it ended early; empty: every buyer was through

  // What was answered.
  std::uint64_t requests = 0;
  std::uint64_t answers = 0;  ///< without failed connections, cut and missing answers
  std::array<std::uint64_t, kAnswerKinds> purchases{};
  std::array<std::uint64_t, kAnswerKinds> orders{};  ///< reads and payments
  std::uint64_t sold_out_final = 0;                  ///< of purchases[kSoldOut]
  std::array<std::uint64_t, kEndings> endings{};     ///< of wanted units
  std::uint64_t asked_again = 0;                     ///< answers to holders who bought again
  std::uint64_t asked_again_same = 0;                ///< with the order that they had
  std::uint64_t idle_lost = 0;                       ///< idle connections that the server closed
  LatencyHistogram all;                              ///< purchases that were answered
  LatencyHistogram grants;
  LatencyHistogram refusals;  ///< sold out, already, closed
  LatencyHistogram payments;
  std::optional<double> first_grant_s;
  std::optional<double> last_grant_s;
  std::optional<double> sold_out_s;  ///< when the first sold-out answer came
  std::vector<TimeBin> timeline;

  // Whether it was us.
  std::vector<WorkerLoad> workers;
  std::string limited_by;  ///< how the generator itself held the load back; empty: it did not

  // What the server has.
  std::optional<ServerSide> server;
  std::string server_error;  ///< why there is no `server` though one was wanted
  Verdict verdict;

  [[nodiscard]] Outcome outcome() const noexcept;
  /// For the process: 0 all is well, 1 an invariant is broken, 3 the ledger could not be read.
  [[nodiscard]] int exit_code() const noexcept;
};

/// Cuts the load's time into at most `bins` stretches of a round length.
[[nodiscard]] std::vector<TimeBin> make_timeline(const History& history, std::int64_t origin_us,
                                                 double seconds, std::size_t bins);

/// Why the generator itself was the limit of what was measured; empty when it was not.
[[nodiscard]] std::string generator_limit(const std::vector<WorkerLoad>& workers);

/// "1.24 ms", "812 us", "3.1 s".
[[nodiscard]] std::string for_people(LatencyHistogram::Micros time);
/// "1,234,567".
[[nodiscard]] std::string for_people(std::uint64_t number);
/// "1, 5-9, 12 (and 40 more)".
[[nodiscard]] std::string ranges(const std::vector<std::int64_t>& rising, std::size_t total);

/// The table for a terminal, with a line end at the end.
[[nodiscard]] std::string text_report(const RushReport& report);
/// One JSON object; durations in microseconds or seconds as their names say.
[[nodiscard]] std::string json_report(const RushReport& report);
/// A page that needs nothing from outside: no script, no font, no picture; light and dark.
[[nodiscard]] std::string html_report(const RushReport& report);

}  // namespace doorbuster::rush

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "rush/plan.hpp"
#include "rush/report.hpp"

namespace doorbuster::rush {

/// How the rush shows itself on standard error while it runs.
enum class Live {
  kAuto,   ///< one line that changes when standard error is a terminal, else a line every few
           ///< seconds
  kPlain,  ///< a line every few seconds
  kOff,
};

/// A rush. Every number has a range, checked before anything is sent.
struct RushConfig {
  std::string url = "http://127.0.0.1:8080";  ///< http://HOST:PORT; https is refused
  std::int64_t item_id = 0;  ///< what is bought; 0: a new sale of `units` is made and opened first
  std::int64_t units = 0;    ///< 1 to 10,000,000, with item_id 0 only

  // Who comes.
  std::int64_t first_member = 1;  ///< member numbers run from here; 1 or more
  std::int64_t members = 1000;    ///< 1 to 10,000,000, in an order that the seed decides
  int units_per_member = 1;       ///< how many each wants, 1 to 100; above 1 `keys` is needed
  bool keys = false;              ///< an Idempotency-Key for each wanted unit
  std::uint64_t seed = 1;         ///< order of members, arrivals, pauses, choices
  Curve curve = Curve::kAllAtOnce;
  std::chrono::milliseconds ramp{
      10'000};         ///< kRamp: from the first to the last arrival; 1 ms to 1 h
  double rate = 1000;  ///< kPoisson: arrivals a second; 0.1 to 10,000,000

  // How they behave.
  std::chrono::milliseconds patience{
      60'000};  ///< how long one tries, over failures and "busy"; up to 1 h
  std::chrono::milliseconds come_back{0};  ///< ask again so long after "sold out for now"; 0: never
  double pay_share = 0;                    ///< of those who got one, 0 to 1
  double ask_again_share = 0;  ///< of those who got one: buy again, must get the same; 0 to 1

  // With what.
  int threads = 1;           ///< 1 to 64, a core each
  int connections = 1000;    ///< at work, 1 to 200,000, over all threads
  int idle_connections = 0;  ///< only held open, 0 to 200,000
  int pipelining = 1;        ///< requests on a connection before the first is answered, 1 to 64
  std::chrono::milliseconds answer_timeout{
      35'000};  ///< then the connection is closed and the buyer tries again
  std::chrono::milliseconds connect_timeout{5'000};

  // Bounds of the whole.
  std::chrono::seconds max_time{
      300};  ///< from the start of the load; what is unfinished then is counted
  std::uint64_t max_requests = 20'000'000;  ///< each is kept for the checker (some 50 bytes)

  // Tokens: HS256, audience "doorbuster", subject the member's number.
  std::string token_secret;  ///< at least 32 bytes; empty: the development key
  std::string token_kid;     ///< with token_secret
  std::string admin_token;   ///< empty: made with the same key
  std::int64_t premade_tokens =
      2'000'000;  ///< up to so many are made before the start; beyond it on the fly
  /// Replaces the above for members; called from every worker thread.
  std::function<std::string(std::int64_t member)> make_token;

  // What is compared at the end.
  bool check_server = true;  ///< read the ledger through the administrators' routes
  std::chrono::milliseconds quiet_patience{10'000};  ///< how long to wait until the ledger is quiet
  std::chrono::milliseconds quiet_apart{1'000};  ///< between the two readings that must be the same
  std::chrono::microseconds holder_news{0};  ///< CheckRules::holder_news: 1 s with several nodes

  // What is written.
  std::string history_path;  ///< CSV of every request; empty: none
  std::string report_path;   ///< HTML; empty: none
  Live live = Live::kAuto;
  const std::atomic<bool>* stop =
      nullptr;  ///< set by a signal handler: ends the load early, the report is made
};

/// What is wrong with a configuration: kInvalid, naming the field.
[[nodiscard]] common::Result<common::Done> check_config(const RushConfig& config);

/// Runs a rush: makes tokens and connections, sends the load, waits until the ledger is quiet,
/// compares, and writes the files. Blocks; makes its own threads. `clock` must be the machine's own
/// (sockets wait by it). Errors: kInvalid (configuration, https, too few open files), kUnavailable
/// (nothing answers at the url), kNotFound (the item), kIo (a file cannot be written). A broken
/// invariant is no error: see RushReport::outcome.
[[nodiscard]] common::Result<RushReport> run_rush(const RushConfig& config,
                                                  const common::Clock& clock);

}  // namespace doorbuster::rush

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "rush/histogram.hpp"

namespace doorbuster::bench {

/// Prepared requests, all of one size, one behind the other.
struct Requests {
  std::string bytes;
  std::size_t size = 1;  ///< of each
  [[nodiscard]] std::size_t count() const { return bytes.size() / size; }
};

struct LoadPlan {
  std::uint16_t port = 0;  ///< on 127.0.0.1
  std::size_t connections = 64;
  /// Requests that a connection sends in one write; it sends the next ones when all are answered.
  std::size_t pipelined = 1;
  std::size_t first = 0;  ///< of the requests
  std::size_t count = 0;
  int usual = 410;  ///< the status that is only counted
  /// Called for each answer with another status.
  std::function<void(std::size_t request, int status, std::string_view body)> other;
};

struct LoadResult {
  double seconds = 0;
  std::uint64_t usual = 0;
  std::uint64_t other = 0;
  rush::LatencyHistogram times;  ///< from a request's write to its answer
  double busy = 0;  ///< of the time that it had answers to take: near 1, it was the limit itself
  [[nodiscard]] double per_second() const { return static_cast<double>(usual + other) / seconds; }
};

/// Sends the requests over connections that are all open before the first one, closed loop, with
/// one write and (mostly) one read for all that a connection has in flight. Errors: kUnavailable
/// (no connection), kTimeout (no answer for ten seconds), kCorrupt (what comes is no HTTP answer
/// with a Content-Length).
[[nodiscard]] common::Result<LoadResult> run_load(const LoadPlan& plan, const Requests& requests,
                                                  const common::Clock& clock);

/// Takes answers off a stream of bytes. Where one has the same shape as the one before, which is
/// what a server of prepared answers sends, that costs a few comparisons.
class AnswerCutter {
 public:
  struct Answer {
    int status = 0;
    std::string_view body;
    std::size_t bytes = 0;  ///< head and body; 0: not whole yet
    bool bad = false;       ///< no HTTP answer with a Content-Length
  };
  [[nodiscard]] Answer next(std::string_view bytes);

 private:
  // Of the last answer: where its head ends, and where in it the status and the length stand.
  std::size_t head_ = 0;
  std::size_t length_at_ = 0;
  std::string length_line_;
  std::size_t body_ = 0;
};

}  // namespace doorbuster::bench

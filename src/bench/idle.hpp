#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "common/result.hpp"

namespace doorbuster::bench {

/// Connects from one of 127.0.0.0/8, another one every few thousand connections: an address has
/// some 28,000 ports. `receive_buffer` 0: as large as usual. Gives the socket. Errors:
/// kUnavailable.
[[nodiscard]] common::Result<int> connect_from(std::uint16_t port, std::size_t number,
                                               int receive_buffer = 0);

/// Connections that asked once, were answered, and are only held open since. All but the last of
/// an answer's bytes must be in its first read.
class IdleConnections {
 public:
  IdleConnections() = default;
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;
  ~IdleConnections();
  /// Opens as many as are missing to `count`. Errors: kUnavailable (refused, or no answer).
  [[nodiscard]] common::Result<common::Done> grow(std::uint16_t port, std::size_t count,
                                                  std::string_view request);
  /// How many the server has not closed.
  [[nodiscard]] std::size_t open() const;

 private:
  std::vector<int> sockets_;
};

/// Clients that ask for far more than they take: each reads a few bytes ten times a second.
class SlowReaders {
 public:
  SlowReaders() = default;
  SlowReaders(const SlowReaders&) = delete;
  SlowReaders& operator=(const SlowReaders&) = delete;
  ~SlowReaders();
  /// Starts them, on the load's core. Errors: kUnavailable.
  [[nodiscard]] common::Result<common::Done> start(std::uint16_t port, std::size_t count,
                                                   std::size_t first_number,
                                                   std::string_view request);
  /// A pause is for what is measured without them.
  void pause(bool on) { paused_ = on; }
  /// Those whose connection was not closed so far.
  [[nodiscard]] std::size_t open() const { return open_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void read_slowly();
  std::vector<int> sockets_;
  std::atomic<bool> paused_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> open_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::thread thread_;
};

}  // namespace doorbuster::bench

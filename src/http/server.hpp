#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/loop.hpp"
#include "common/metrics.hpp"
#include "common/result.hpp"
#include "http/router.hpp"

namespace doorbuster::http {

/// Every limit of the server, by name. A refusal for each is tested.
struct ServerConfig {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8080;                ///< 0: any free one
  std::string tls_certificate;              ///< PEM file; empty: no TLS
  std::string tls_key;                      ///< PEM file
  std::size_t max_connections = 50'000;     ///< more are answered 503 and closed
  std::size_t max_header_bytes = 8 * 1024;  ///< request line and headers: 431
  std::size_t max_target_bytes = 2 * 1024;  ///< 414
  std::size_t max_event_streams = 1'000;    ///< open server-sent-event answers: 503
  /// From the first byte of a request to its last header: 408, closed.
  std::chrono::milliseconds header_timeout{10'000};
  /// From the last header to the end of the body: 408, closed.
  std::chrono::milliseconds body_timeout{20'000};
  /// Between requests: closed.
  std::chrono::milliseconds idle_timeout{75'000};
  /// Answer bytes of which the client takes none: closed.
  std::chrono::milliseconds write_timeout{20'000};
  /// Safety net for a handler that does not answer: 503, closed.
  std::chrono::milliseconds request_timeout{30'000};
};

/// HTTP/1.1 with keep-alive and pipelining with edge-triggered sockets; one loop a thread, a
/// connection stays on its loop. Answers leave in the order of their requests; a connection has one
/// unfinished handler at a time, and its further bytes wait in the kernel.
class Server {
 public:
  virtual ~Server() = default;
  /// The port really bound.
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Stops accepting, closes idle connections, answers what is in flight with `Connection: close`,
  /// and returns when all is closed or `grace` has passed. Call from a thread that is none of the
  /// loops.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

/// `router`, `loops` and `metrics` must outlive the server, and every handler that still runs when
/// it ends. Errors: kInvalid (address, certificate), kBusy (the port is taken), kIo.
[[nodiscard]] common::Result<std::unique_ptr<Server>> start_server(
    const ServerConfig& config, const Router& router, const std::vector<common::Loop*>& loops,
    common::Metrics& metrics);

}  // namespace doorbuster::http

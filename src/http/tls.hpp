#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/result.hpp"

// TLS as a transformation of bytes, without sockets: the server reads and writes the same way with
// and without it. Internal to this folder.
namespace doorbuster::http {

/// One connection's TLS. Not thread-safe; lives on the connection's loop.
class TlsSession {
 public:
  enum class State {
    kOpen,    ///< going on; 0 bytes means that more must arrive first
    kClosed,  ///< the peer said goodbye
    kFailed,  ///< the peer does not speak TLS as it should
  };
  virtual ~TlsSession() = default;
  /// Bytes that arrived from the peer.
  virtual void feed(std::string_view cipher) = 0;
  /// Carries the handshake on and takes out what the peer said; `size` bytes are in `plain`
  /// afterwards.
  virtual State read(std::span<char> plain, std::size_t& size) = 0;
  /// Seals `plain`; only after a read() that gave bytes. False when the session is broken.
  [[nodiscard]] virtual bool write(std::string_view plain) = 0;
  /// Says goodbye.
  virtual void close() = 0;
  /// Appends what has to be sent to the peer.
  virtual void take_output(std::string& cipher) = 0;
};

/// The server's certificate and settings: TLS 1.2 or newer, OpenSSL's defaults, no renegotiation.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  /// Null when memory is short.
  [[nodiscard]] virtual std::unique_ptr<TlsSession> make_session() const = 0;
};

/// Errors: kInvalid (a file cannot be read or is not PEM, or the key is not the certificate's).
[[nodiscard]] common::Result<std::unique_ptr<TlsContext>> make_tls_context(
    const std::string& certificate_file, const std::string& key_file);

}  // namespace doorbuster::http

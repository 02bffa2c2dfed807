#include "http/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace doorbuster::http {
namespace {

using common::ErrorCode;
using common::fail;

int as_int(std::size_t size) noexcept {
  return static_cast<int>(std::min<std::size_t>(size, INT_MAX));
}

struct SslDelete {
  void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
};
struct ContextDelete {
  void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};

class Session final : public TlsSession {
 public:
  /// `ssl` owns both memory buffers.
  Session(std::unique_ptr<SSL, SslDelete> ssl, BIO* in, BIO* out)
      : ssl_(std::move(ssl)), in_(in), out_(out) {}

  void feed(std::string_view cipher) override {
    // A memory buffer takes everything; where memory is short, the records break and read() says
    // so.
    BIO_write(in_, cipher.data(), as_int(cipher.size()));
  }

  State read(std::span<char> plain, std::size_t& size) override {
    size = 0;
    ERR_clear_error();
    if (SSL_read_ex(ssl_.get(), plain.data(), plain.size(), &size) == 1) return State::kOpen;
    size = 0;
    switch (SSL_get_error(ssl_.get(), 0)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return State::kOpen;
      case SSL_ERROR_ZERO_RETURN:
        return State::kClosed;
      default:
        ERR_clear_error();
        return State::kFailed;
    }
  }

  bool write(std::string_view plain) override {
    ERR_clear_error();
    std::size_t written = 0;
    // Without partial writes and over a buffer in memory: all or an error.
    return plain.empty() || SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written) == 1;
  }

  void close() override {
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

  void take_output(std::string& cipher) override {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out_, &bytes);
    if (size <= 0) return;
    cipher.append(bytes, static_cast<std::size_t>(size));
    BIO_reset(out_);
  }

 private:
  std::unique_ptr<SSL, SslDelete> ssl_;
  BIO* in_;
  BIO* out_;
};

class Context final : public TlsContext {
 public:
  explicit Context(std::unique_ptr<SSL_CTX, ContextDelete> context)
      : context_(std::move(context)) {}

  std::unique_ptr<TlsSession> make_session() const override {
    std::unique_ptr<SSL, SslDelete> ssl(SSL_new(context_.get()));
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    if (ssl == nullptr || in == nullptr || out == nullptr) {
      BIO_free(in);
      BIO_free(out);
      return nullptr;
    }
    // An empty buffer means "later", not "the end".
    BIO_set_mem_eof_return(in, -1);
    BIO_set_mem_eof_return(out, -1);
    SSL_set_bio(ssl.get(), in, out);
    SSL_set_accept_state(ssl.get());
    return std::make_unique<Session>(std::move(ssl), in, out);
  }

 private:
  std::unique_ptr<SSL_CTX, ContextDelete> context_;
};

std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown reason" : reason;
}

}  // namespace

common::Result<std::unique_ptr<TlsContext>> make_tls_context(const std::string& certificate_file,
                                                             const std::string& key_file) {
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, ContextDelete> context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return fail(ErrorCode::kInternal, "no TLS context: " + last_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // An idle connection then keeps no record buffers (34 KiB).
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  // Tickets resume sessions without memory of ours.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1) {
    return fail(ErrorCode::kInvalid,
                "cannot use the TLS certificate " + certificate_file + ": " + last_error());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return fail(ErrorCode::kInvalid, "cannot use the TLS key " + key_file + ": " + last_error());
  }
  if (SSL_CTX_check_private_key(context.get()) != 1) {
    return fail(ErrorCode::kInvalid, "the TLS key is not the certificate's: " + last_error());
  }
  return std::make_unique<Context>(std::move(context));
}

}  // namespace doorbuster::http

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/ids.hpp"
#include "common/metrics.hpp"
#include "common/result.hpp"

namespace doorbuster::edge {

enum class Algorithm { kHs256, kRs256, kEs256, kEdDsa };

/// A verification key. The algorithm is pinned to the key: a token that names another one is
/// refused, so an RSA public key can never serve as an HMAC secret. A token that names a `kid` is
/// tried with the keys of that name, or else with those without one; a token without `kid` with all
/// keys of its algorithm (at most 4).
struct VerificationKey {
  std::string kid;  ///< empty: tried for every kid that no other key has
  Algorithm algorithm = Algorithm::kHs256;
  std::string secret;          ///< kHs256: at least 32 bytes
  std::string public_key_pem;  ///< the others: SubjectPublicKeyInfo PEM

  friend bool operator==(const VerificationKey&, const VerificationKey&) = default;
};

/// Reads keys from text: a JWK or a JWK set (RFC 7517: oct of at least 32 bytes, RSA of 2048 to
/// 8192 bits, EC P-256, OKP Ed25519) or one PEM public key. Keys that cannot verify (other curves,
/// use "enc") are skipped; none left is an error (kInvalid).
[[nodiscard]] common::Result<std::vector<VerificationKey>> parse_keys(std::string_view text);

/// The key of `doorbuster token` for trying things out. Known to everybody, so production mode
/// refuses it.
[[nodiscard]] const VerificationKey& development_key();

struct TokenConfig {
  std::string issuer = "doorbuster";                ///< expected `iss`; empty: not checked
  std::string audience = "doorbuster";              ///< expected in `aud` of member tokens
  std::string admin_audience = "doorbuster-admin";  ///< expected in `aud` of administrator tokens
  std::chrono::seconds leeway{30};                  ///< for exp and nbf; 0 to 300
  std::size_t cache_entries =
      10'000;  ///< verified tokens kept per thread, by the token's text (asymmetric keys only:
               ///< HS256 is cheaper than a lookup is worth)
  std::size_t max_token_bytes = 4096;
};

/// Who calls. Exactly one of the two is meant, by the audience; a token for both is refused.
struct Principal {
  common::MemberId member{0};  ///< 1 to 2^63-1 for members, 0 for administrators
  std::string admin;  ///< an administrator's name (`sub`), 1 to 64 characters without control
                      ///< characters, else empty
};

/// Why a token was refused; a metric label, never told to the caller.
enum class TokenRefusal {
  kMissing,
  kMalformed,
  kUnknownKey,
  kAlgorithm,
  kSignature,
  kExpired,
  kNotYet,
  kIssuer,
  kAudience,
  kSubject,
  kTooLong
};

/// Verifies bearer tokens. Callable from any thread; the keys may be replaced while others verify.
class TokenVerifier {
 public:
  TokenVerifier() = default;
  TokenVerifier(const TokenVerifier&) = delete;
  TokenVerifier& operator=(const TokenVerifier&) = delete;
  virtual ~TokenVerifier() = default;

  /// `authorization` is the header's value ("Bearer xxx", scheme without case). A member's `sub` is
  /// a decimal string or a JSON integer from 1 to 2^63-1. A member's HS256 token in the usual form
  /// takes no memory (but for OpenSSL's own).
  [[nodiscard]] virtual tl::expected<common::MemberId, TokenRefusal> member(
      std::string_view authorization, common::Instant now) = 0;
  [[nodiscard]] virtual tl::expected<std::string, TokenRefusal> admin(
      std::string_view authorization, common::Instant now) = 0;
  /// Takes effect for every later call; cached verdicts of keys that are gone are dropped. A key
  /// that cannot do what it says (secret of less than 32 bytes, PEM of another kind) is a bug:
  /// parse_keys() makes none.
  virtual void replace_keys(std::vector<VerificationKey> keys) = 0;
  /// Called, from any thread, for each token that names an unknown key: a key source refreshes
  /// then. To be set before the first verification.
  virtual void on_unknown_key(std::function<void()> tell) = 0;
};

[[nodiscard]] std::unique_ptr<TokenVerifier> make_token_verifier(const TokenConfig& config,
                                                                 std::vector<VerificationKey> keys,
                                                                 common::Metrics& metrics);

/// Makes HS256 tokens, for `doorbuster token`, the load tool and tests.
struct TokenClaims {
  std::string subject;
  std::string issuer = "doorbuster";
  std::string audience = "doorbuster";
  common::Instant issued_at;
  common::Instant expires_at;
};
[[nodiscard]] std::string make_hs256_token(const TokenClaims& claims, const VerificationKey& key);

/// Keeps a verifier's keys up to date from a file or an http(s) JWKS URL: fetched at start (an
/// error then stops the start), every `refresh`, and at once (at most every `min_interval`) when a
/// token names an unknown kid. A failed refresh keeps the old keys and counts in a metric.
struct KeySourceConfig {
  std::string location;  ///< path, or URL beginning with http:// or https://
  std::chrono::seconds refresh{300};
  std::chrono::seconds min_interval{10};
  std::chrono::milliseconds timeout{5000};
  std::size_t max_bytes = 256 * 1024;
};
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// Asks for an early refresh; cheap, from any thread.
  virtual void want_refresh() noexcept = 0;
  virtual void stop() = 0;
};
/// Reads the location once, for `doctor` and the start.
[[nodiscard]] common::Result<std::vector<VerificationKey>> fetch_keys(
    const KeySourceConfig& config);
/// Starts a thread that refreshes.
[[nodiscard]] std::unique_ptr<KeySource> start_key_source(const KeySourceConfig& config,
                                                          TokenVerifier& verifier,
                                                          const common::Clock& clock,
                                                          common::Metrics& metrics);

}  // namespace doorbuster::edge

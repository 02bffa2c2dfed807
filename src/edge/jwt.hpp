#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/clock.hpp"
#include "edge/token.hpp"

/// How a token is read: plain functions of text, without keys or threads, so that tests and fuzzing
/// reach them directly. Nothing here checks a signature; see token.cpp.
namespace doorbuster::edge {

/// "HS256", "RS256", "ES256" or "EdDSA" (RFC 7518, RFC 8037).
[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;

/// A token's three parts in base64url, none of them empty.
struct TokenParts {
  std::string_view header;
  std::string_view payload;
  std::string_view signature;
  std::string_view signed_text;  ///< header, dot, payload
};
[[nodiscard]] std::optional<TokenParts> split_token(std::string_view token) noexcept;

/// What of the header (RFC 7515, section 4) matters here; empty where it is absent. Views into
/// `json`.
struct TokenHeader {
  std::string_view alg;
  std::string_view kid;
};
/// Nothing for anything but an object whose names are all different and whose alg and kid are
/// strings, and for one with `crit`: it names extensions that must be understood, and none is.
[[nodiscard]] std::optional<TokenHeader> parse_header(std::span<char> json) noexcept;

struct ExpectedClaims {
  std::string_view issuer;          ///< empty: any
  std::string_view audience;        ///< of members
  std::string_view admin_audience;  ///< of administrators
};

/// What of the payload (RFC 7519, section 4) matters here. `subject` is a view into `json`.
struct Claims {
  common::Instant expires_at;
  common::Instant not_before;  ///< the later one of nbf and iat; 1970 without both
  bool issuer_matches = false;
  bool for_members = false;
  bool for_admins = false;
  std::string_view subject;                    ///< when it is a string
  std::optional<std::int64_t> subject_number;  ///< when it is a whole number
};
/// Where in the payload the digits of some claims stand; size 0 where a claim is absent.
struct ClaimPlaces {
  struct Place {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  Place subject;  ///< a string or a number
  Place expires_at;
  Place issued_at;
  Place not_before;
  /// False where one of them is more than digits, or where the text had escapes.
  bool plain = true;
};
/// Nothing for anything but an object whose names are all different, with an `exp`, and whose dates
/// are numbers from 1970 to the year 9999 (so milliseconds in place of seconds are found out at
/// once).
[[nodiscard]] std::optional<Claims> parse_claims(std::span<char> json,
                                                 const ExpectedClaims& expected,
                                                 ClaimPlaces* places = nullptr) noexcept;

/// Reads payloads that look like one that was read before. Those of one issuer mostly differ in
/// the digits of the subject and the dates; where all the rest is the same to the letter, and there
/// are as many digits, nothing else can have another meaning, and only the digits are read. That is
/// a tenth of the work.
class ClaimsShape {
 public:
  /// Remembers a payload that parse_claims() took, unless it is long or not plain.
  void learn(std::string_view json, const Claims& claims, const ClaimPlaces& places) noexcept;
  /// What parse_claims() would say with the same expectations; nothing when it has to be asked.
  [[nodiscard]] std::optional<Claims> read(std::string_view json) const noexcept;

 private:
  static constexpr std::size_t kMaxSize = 512;
  std::size_t size_ = 0;  ///< 0: nothing is remembered
  std::array<char, kMaxSize> text_{};
  std::array<char, kMaxSize> same_{};  ///< all bits set where the text must be the same
  Claims claims_;
  ClaimPlaces places_;
};

/// Good from `not_before` - leeway on and until just before `expires_at` + leeway.
[[nodiscard]] std::optional<TokenRefusal> judge_time(common::Instant not_before,
                                                     common::Instant expires_at,
                                                     common::Instant now,
                                                     std::chrono::seconds leeway) noexcept;

/// Whose token it is. A token for both audiences is refused: it would let one stand for the other.
[[nodiscard]] tl::expected<Principal, TokenRefusal> identify(const Claims& claims);

}  // namespace doorbuster::edge

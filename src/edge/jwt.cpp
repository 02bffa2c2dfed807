#include "edge/jwt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "edge/json_reader.hpp"

namespace doorbuster::edge {
namespace {

using common::Instant;

/// Identity providers send about a dozen; a bound keeps the search for repeated names short.
constexpr std::size_t kMaxNames = 64;
constexpr std::size_t kMaxAdminName = 64;
/// 9999-12-31T23:59:59Z.
constexpr std::int64_t kLastSecond = 253'402'300'799;

/// Of two claims with one name each reader takes another one, so a repeated name is refused.
class Names {
 public:
  [[nodiscard]] bool add(std::string_view name) noexcept {
    if (count_ == names_.size()) return false;
    const auto end = names_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (std::find(names_.begin(), end, name) != end) return false;
    names_[count_++] = name;
    return true;
  }

 private:
  std::array<std::string_view, kMaxNames> names_;
  std::size_t count_ = 0;
};

/// NumericDate (RFC 7519, section 2): seconds, perhaps with a fraction.
std::optional<Instant> read_date(JsonReader& in) noexcept {
  if (in.peek() != JsonReader::Kind::kNumber) return std::nullopt;
  const JsonReader::Number number = in.read_number();
  if (number.whole) {
    if (*number.whole < 0 || *number.whole > kLastSecond) return std::nullopt;
    return Instant{std::chrono::seconds{*number.whole}};
  }
  if (!(number.real >= 0 && number.real <= static_cast<double>(kLastSecond))) return std::nullopt;
  return common::from_micros(std::llround(number.real * 1e6));
}

/// A string or an array of strings (RFC 7519, section 4.1.3).
bool read_audience(JsonReader& in, const ExpectedClaims& expected, Claims& claims) noexcept {
  const auto note = [&](std::string_view audience) {
    if (audience == expected.audience) claims.for_members = true;
    if (audience == expected.admin_audience) claims.for_admins = true;
  };
  if (in.peek() == JsonReader::Kind::kString) {
    note(in.read_string());
    return true;
  }
  if (!in.begin_array()) return false;
  while (in.next_element()) note(in.read_string());
  return true;
}

bool is_admin_name(std::string_view text) noexcept {
  // Letters are counted, not bytes; control characters have no place in logs and the audit table.
  const auto begins = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  });
  return begins > 0 && static_cast<std::size_t>(begins) <= kMaxAdminName &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

}  // namespace

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kHs256:
      return "HS256";
    case Algorithm::kRs256:
      return "RS256";
    case Algorithm::kEs256:
      return "ES256";
    case Algorithm::kEdDsa:
      return "EdDSA";
  }
  return {};
}

std::optional<TokenParts> split_token(std::string_view token) noexcept {
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const TokenParts parts{.header = token.substr(0, first),
                         .payload = token.substr(first + 1, second - first - 1),
                         .signature = token.substr(second + 1),
                         .signed_text = token.substr(0, second)};
  // A third dot would be part of the signature, where base64url has none.
  if (parts.header.empty() || parts.payload.empty() || parts.signature.empty() ||
      parts.signature.find('.') != std::string_view::npos) {
    return std::nullopt;
  }
  return parts;
}

std::optional<TokenHeader> parse_header(std::span<char> json) noexcept {
  JsonReader in(json);
  if (!in.begin_object()) return std::nullopt;
  TokenHeader header;
  Names names;
  std::string_view name;
  while (in.next_name(name)) {
    if (!names.add(name) || name == "crit") return std::nullopt;
    if (name == "alg") {
      header.alg = in.read_string();
    } else if (name == "kid") {
      header.kid = in.read_string();
    } else {
      in.skip();
    }
  }
  if (!in.finish()) return std::nullopt;
  return header;
}

std::optional<Claims> parse_claims(std::span<char> json, const ExpectedClaims& expected) noexcept {
  JsonReader in(json);
  if (!in.begin_object()) return std::nullopt;
  Claims claims;
  std::optional<Instant> expires_at;
  // Without an issuer to expect each one matches, also none.
  claims.issuer_matches = expected.issuer.empty();
  Names names;
  std::string_view name;
  while (in.next_name(name)) {
    if (!names.add(name)) return std::nullopt;
    if (name == "exp") {
      expires_at = read_date(in);
      if (!expires_at) return std::nullopt;
    } else if (name == "nbf" || name == "iat") {
      const std::optional<Instant> date = read_date(in);
      if (!date) return std::nullopt;
      claims.not_before = std::max(claims.not_before, *date);
    } else if (name == "iss") {
      const std::string_view issuer = in.read_string();
      if (issuer == expected.issuer) claims.issuer_matches = true;
    } else if (name == "aud") {
      if (!read_audience(in, expected, claims)) return std::nullopt;
    } else if (name == "sub" && in.peek() == JsonReader::Kind::kString) {
      claims.subject = in.read_string();
    } else if (name == "sub" && in.peek() == JsonReader::Kind::kNumber) {
      claims.subject_number = in.read_number().whole;
    } else {
      in.skip();
    }
  }
  // Without an end a stolen token would be good for ever.
  if (!in.finish() || !expires_at) return std::nullopt;
  claims.expires_at = *expires_at;
  return claims;
}

std::optional<TokenRefusal> judge_time(Instant not_before, Instant expires_at, Instant now,
                                       std::chrono::seconds leeway) noexcept {
  if (now >= expires_at + leeway) return TokenRefusal::kExpired;
  if (now < not_before - leeway) return TokenRefusal::kNotYet;
  return std::nullopt;
}

tl::expected<Principal, TokenRefusal> identify(const Claims& claims) {
  if (!claims.issuer_matches) return tl::make_unexpected(TokenRefusal::kIssuer);
  if (claims.for_members == claims.for_admins) return tl::make_unexpected(TokenRefusal::kAudience);
  Principal principal;
  if (claims.for_admins) {
    if (!is_admin_name(claims.subject)) return tl::make_unexpected(TokenRefusal::kSubject);
    principal.admin.assign(claims.subject);
    return principal;
  }
  const std::optional<std::int64_t> member =
      claims.subject_number ? claims.subject_number : common::parse_id_number(claims.subject);
  if (!member || *member < 1) return tl::make_unexpected(TokenRefusal::kSubject);
  principal.member = common::MemberId{*member};
  return principal;
}

}  // namespace doorbuster::edge

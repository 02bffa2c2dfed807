#include "edge/jwt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "edge/json_reader.hpp"

namespace doorbuster::edge {
namespace {

using common::Instant;

/// Identity providers send about a dozen; a bound keeps the search for repeated names short.
constexpr std::size_t kMaxNames = 64;
constexpr std::size_t kMaxAdminName = 64;
/// 9999-12-31T23:59:59Z.
constexpr std::int64_t kLastSecond = 253'402'300'799;

/// A name of up to eight bytes as a number, so that names are compared without a call; 0 for longer
/// ones. Different names give different numbers, as none holds a NUL.
constexpr std::uint64_t word_of(std::string_view name) noexcept {
  std::uint64_t word = 0;
  if (name.size() > 8) return 0;
  for (const char c : name) word = (word << 8) | static_cast<unsigned char>(c);
  return word;
}

/// Of two claims with one name each reader takes another one, so a repeated name is refused.
class Names {
 public:
  [[nodiscard]] bool add(std::string_view name, std::uint64_t word) noexcept {
    if (count_ == kMaxNames) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (words_[i] != word) continue;
      if (word != 0 || std::string_view(texts_[i].data, texts_[i].size) == name) return false;
    }
    texts_[count_] = {name.data(), name.size()};
    words_[count_++] = word;
    return true;
  }

 private:
  struct Text {
    const char* data;
    std::size_t size;
  };
  // On purpose not set to anything before they are written.
  std::array<std::uint64_t, kMaxNames> words_;
  std::array<Text, kMaxNames> texts_;
  std::size_t count_ = 0;
};

/// So many digits always fit into 64 bits.
constexpr std::size_t kMostDigits = 18;

bool is_digits(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

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
    const std::uint64_t word = word_of(name);
    if (!names.add(name, word) || word == word_of("crit")) return std::nullopt;
    if (word == word_of("alg")) {
      header.alg = in.read_string();
    } else if (word == word_of("kid")) {
      header.kid = in.read_string();
    } else {
      in.skip();
    }
  }
  if (!in.finish()) return std::nullopt;
  return header;
}

std::optional<Claims> parse_claims(std::span<char> json, const ExpectedClaims& expected,
                                   ClaimPlaces* places) noexcept {
  JsonReader in(json);
  if (!in.begin_object()) return std::nullopt;
  Claims claims;
  ClaimPlaces seen;
  std::optional<Instant> expires_at;
  // The place of a value that begins at `begin` and ends here.
  const auto note = [&](ClaimPlaces::Place& place, std::size_t begin) noexcept {
    if (in.failed()) return;
    place = {begin, in.position() - begin};
    const std::string_view text(json.data() + place.begin, place.size);
    seen.plain = seen.plain && is_digits(text);
  };
  // Without an issuer to expect each one matches, also none.
  claims.issuer_matches = expected.issuer.empty();
  Names names;
  std::string_view name;
  while (in.next_name(name)) {
    const std::uint64_t word = word_of(name);
    if (!names.add(name, word)) return std::nullopt;
    switch (word) {
      case word_of("exp"):
      case word_of("nbf"):
      case word_of("iat"): {
        if (in.peek() != JsonReader::Kind::kNumber) return std::nullopt;
        const std::size_t begin = in.position();
        const std::optional<Instant> date = read_date(in);
        if (!date) return std::nullopt;
        const bool ends = word == word_of("exp");
        if (ends) expires_at = date;
        if (!ends) claims.not_before = std::max(claims.not_before, *date);
        note(ends                     ? seen.expires_at
             : word == word_of("nbf") ? seen.not_before
                                      : seen.issued_at,
             begin);
        break;
      }
      case word_of("iss"):
        if (in.read_string() == expected.issuer) claims.issuer_matches = true;
        break;
      case word_of("aud"):
        if (!read_audience(in, expected, claims)) return std::nullopt;
        break;
      case word_of("sub"):
        switch (in.peek()) {
          case JsonReader::Kind::kString: {
            const std::size_t begin = in.position() + 1;
            claims.subject = in.read_string();
            seen.subject = {begin, claims.subject.size()};
            seen.plain = seen.plain && is_digits(claims.subject);
            break;
          }
          case JsonReader::Kind::kNumber: {
            const std::size_t begin = in.position();
            claims.subject_number = in.read_number().whole;
            note(seen.subject, begin);
            break;
          }
          default:
            in.skip();
        }
        break;
      default:
        in.skip();
    }
  }
  // Without an end a stolen token would be good for ever.
  if (!in.finish() || !expires_at) return std::nullopt;
  claims.expires_at = *expires_at;
  if (places != nullptr) {
    seen.plain = seen.plain && !in.changed();
    *places = seen;
  }
  return claims;
}

void ClaimsShape::learn(std::string_view json, const Claims& claims,
                        const ClaimPlaces& places) noexcept {
  // Words of eight are compared.
  if (!places.plain || json.size() < 8 || json.size() > kMaxSize) return;
  for (const ClaimPlaces::Place& place :
       {places.subject, places.expires_at, places.issued_at, places.not_before}) {
    if (place.size > kMostDigits) return;
  }
  std::copy(json.begin(), json.end(), text_.begin());
  std::fill_n(same_.begin(), json.size(), static_cast<char>(-1));
  for (const ClaimPlaces::Place& place :
       {places.subject, places.expires_at, places.issued_at, places.not_before}) {
    std::fill_n(same_.begin() + static_cast<std::ptrdiff_t>(place.begin), place.size, '\0');
  }
  claims_ = claims;
  claims_.subject = {};
  places_ = places;
  size_ = json.size();
}

std::optional<Claims> ClaimsShape::read(std::string_view json) const noexcept {
  if (size_ == 0 || json.size() != size_) return std::nullopt;
  const auto word = [](const char* from) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  std::uint64_t differs = 0;
  const auto compare = [&](std::size_t at) noexcept {
    differs |= (word(json.data() + at) ^ word(text_.data() + at)) & word(same_.data() + at);
  };
  for (std::size_t at = 0; at + 8 < size_; at += 8) compare(at);
  compare(size_ - 8);
  if (differs != 0) return std::nullopt;

  Claims claims = claims_;
  claims.not_before = Instant{};
  // False where parse_claims() has to judge: no digits, a leading zero, a date beyond the last one.
  const auto number = [&](ClaimPlaces::Place place, std::int64_t& value) noexcept {
    const std::string_view text = json.substr(place.begin, place.size);
    value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return false;
      value = value * 10 + (c - '0');
    }
    return text.size() == 1 || text.front() != '0';
  };
  const auto date = [&](ClaimPlaces::Place place, Instant& at) noexcept {
    std::int64_t second = 0;
    if (!number(place, second) || second > kLastSecond) return false;
    at = Instant{std::chrono::seconds{second}};
    return true;
  };
  if (!date(places_.expires_at, claims.expires_at)) return std::nullopt;
  for (const ClaimPlaces::Place& place : {places_.issued_at, places_.not_before}) {
    Instant at{};
    if (place.size == 0) continue;
    if (!date(place, at)) return std::nullopt;
    claims.not_before = std::max(claims.not_before, at);
  }
  std::int64_t member = 0;
  if (claims.subject_number) {
    if (!number(places_.subject, member)) return std::nullopt;
    claims.subject_number = member;
  } else if (places_.subject.size > 0) {
    claims.subject = json.substr(places_.subject.begin, places_.subject.size);
    if (!is_digits(claims.subject)) return std::nullopt;
  }
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

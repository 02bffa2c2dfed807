#include <openssl/evp.h>

#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <set>

#include "common/metrics.hpp"
#include "common/text.hpp"
#include "edge/json_reader.hpp"
#include "edge/jwt.hpp"
#include "edge/openssl.hpp"
#include "edge/token.hpp"
#include "fuzz/fuzz.hpp"

/// Bearer tokens through the whole verifier, with keys whose secrets the target knows. An input is
/// two lines of JSON: a token's header and payload.
///
/// - Signed with a key of the verifier, a token is accepted only if Boost.JSON finds in the same
///   bytes everything that T1 to T4 (src/edge/README.md) ask for: the key's algorithm, no `crit`,
///   an end that is not over, the issuer, exactly one of the audiences, a good subject.
/// - A token that is made of good parts is accepted, for member or administrator and never both,
///   from its start until just before its end, also out of the cache.
/// - No other text than the signed one is accepted: not with one character changed, added or taken
///   away, not with a signature of another key or algorithm, not with none.
namespace doorbuster::fuzz {
namespace {

using common::Instant;
using edge::Algorithm;
using edge::TokenRefusal;
using edge::VerificationKey;
using std::chrono::microseconds;
using std::chrono::seconds;
namespace json = boost::json;

constexpr Instant kNow{seconds{1'796'000'523}};
constexpr seconds kLeeway{30};
/// Later than any date that a token may carry.
constexpr Instant kLater{seconds{253'402'300'800 + 30}};
constexpr std::string_view kSecret = "a secret of this target, known to everybody";
constexpr std::string_view kOtherSecret = "another secret of this target, not a key";

std::string base64(std::string_view text) {
  return common::base64url_encode(
      {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

/// Through another door of OpenSSL than the product's.
std::string mac_of(std::string_view secret, std::string_view text) {
  std::array<std::uint8_t, 32> mac{};
  std::size_t size = 0;
  DOORBUSTER_ENSURE(
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, secret.data(), secret.size(),
                bytes_of(text), text.size(), mac.data(), mac.size(), &size) != nullptr,
      "HMAC works");
  return common::base64url_encode(mac);
}

EVP_PKEY* ed25519() {
  static const edge::PublicKey key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes_of(kSecret), 32));
  return key.get();
}

std::string ed25519_signature(std::string_view text) {
  const edge::DigestContext context(EVP_MD_CTX_new());
  std::array<std::uint8_t, 64> signature{};
  std::size_t size = signature.size();
  DOORBUSTER_ENSURE(
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, ed25519()) == 1 &&
          EVP_DigestSign(context.get(), signature.data(), &size, bytes_of(text), text.size()) == 1,
      "Ed25519 works");
  return common::base64url_encode(signature);
}

VerificationKey hs256_key() {
  return {.kid = "h",
          .algorithm = Algorithm::kHs256,
          .secret = std::string(kSecret),
          .public_key_pem = {}};
}

/// One for all inputs: what it remembers of earlier tokens must not change what it says.
edge::TokenVerifier& verifier() {
  static const std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  static const std::unique_ptr<edge::TokenVerifier> made = [] {
    edge::TokenConfig config;
    config.cache_entries = 4;
    config.max_token_bytes = 8192;
    const std::string pem = edge::write_public_key(ed25519());
    return edge::make_token_verifier(
        config,
        {hs256_key(),
         {.kid = {}, .algorithm = Algorithm::kEdDsa, .secret = {}, .public_key_pem = pem}},
        *metrics);
  }();
  return *made;
}

enum class Who { kNobody, kMember, kAdmin };

Who who(std::string_view token, Instant now) {
  const Exact header("Bearer " + std::string(token));
  const auto member = verifier().member(header.view(), now);
  const auto admin = verifier().admin(header.view(), now);
  DOORBUSTER_ENSURE(!member || !admin, "nobody is both");
  if (member) {
    DOORBUSTER_ENSURE(member->value() >= 1, "a member has a number");
    return Who::kMember;
  }
  if (admin) {
    DOORBUSTER_ENSURE(!admin->empty() && common::is_plain_utf8(*admin) && admin->size() <= 256,
                      "an administrator has a name");
    return Who::kAdmin;
  }
  return Who::kNobody;
}

json::object object_of(std::string_view text) {
  json::error_code error;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), error);
  DOORBUSTER_ENSURE(!error && parsed.is_object(), "an accepted token is made of JSON objects");
  return parsed.get_object();
}

/// Boost.JSON keeps the last of two members with one name; nobody may find two.
void check_names(std::string_view text) {
  Exact copy(text);
  edge::JsonReader in(copy.bytes());
  std::set<std::string, std::less<>> names;
  std::string_view name;
  DOORBUSTER_ENSURE(in.begin_object(), "an object");
  while (in.next_name(name)) {
    DOORBUSTER_ENSURE(names.emplace(name).second, "T2: no name twice");
    in.skip();
  }
}

std::string_view string_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string_view(value->get_string()) : std::string_view{};
}

/// Seconds since 1970, or nothing.
std::optional<double> date_of(const json::object& claims, const char* name) {
  const json::value* value = claims.if_contains(name);
  if (value == nullptr) return std::nullopt;
  DOORBUSTER_ENSURE(value->is_number(), "a date is a number");
  return value->to_number<double>();
}

/// Everything that an accepted token must have, as Boost.JSON reads it.
void check_accepted(std::string_view header_text, std::string_view payload_text,
                    Algorithm algorithm, Who caller) {
  check_names(header_text);
  check_names(payload_text);
  const json::object header = object_of(header_text);
  DOORBUSTER_ENSURE(!header.contains("crit"), "T2: nothing critical is passed over");
  DOORBUSTER_ENSURE(string_of(header, "alg") == edge::to_string(algorithm), "T1: the key's");
  const std::string_view kid = string_of(header, "kid");
  // The Ed25519 key has no name, and serves for all names that no other key has.
  DOORBUSTER_ENSURE(algorithm == Algorithm::kHs256 ? kid == "h" || kid.empty() : kid != "h",
                    "the key of this name");

  const json::object claims = object_of(payload_text);
  const auto now = static_cast<double>(common::to_micros(kNow)) / 1e6;
  const auto leeway = static_cast<double>(kLeeway.count());
  // Doubles hold these dates to less than a microsecond.
  constexpr double kRounding = 2e-6;
  const auto exp = date_of(claims, "exp");
  DOORBUSTER_ENSURE(exp && now < *exp + leeway + kRounding, "T3: it ends, and not yet");
  for (const char* name : {"nbf", "iat"}) {
    const auto from = date_of(claims, name);
    DOORBUSTER_ENSURE(!from || now + leeway + kRounding >= *from, "it has begun");
  }
  DOORBUSTER_ENSURE(string_of(claims, "iss") == "doorbuster", "the issuer");
  bool member = false;
  bool admin = false;
  const auto note = [&](const json::value& one) {
    DOORBUSTER_ENSURE(one.is_string(), "audiences are strings");
    member = member || one == "doorbuster";
    admin = admin || one == "doorbuster-admin";
  };
  const json::value& audience = claims.at("aud");
  if (audience.is_array()) {
    for (const json::value& one : audience.get_array()) note(one);
  } else {
    note(audience);
  }
  DOORBUSTER_ENSURE(member != admin && admin == (caller == Who::kAdmin), "T4: exactly one of both");
  const json::value& subject = claims.at("sub");
  if (admin) {
    DOORBUSTER_ENSURE(subject.is_string() && !subject.get_string().empty(), "a name");
  } else if (subject.is_string()) {
    DOORBUSTER_ENSURE(common::parse_id_number(subject.get_string()), "a member's number");
  } else {
    DOORBUSTER_ENSURE(subject.is_int64() && subject.get_int64() >= 1, "a member's number");
  }
}

struct Change {
  std::size_t place = 0;
  char put = 0;
};

/// `token` was accepted.
void check_no_other_text(const std::string& token, const Change& change) {
  std::string changed = token;
  changed[change.place % token.size()] = change.put;
  if (changed != token) DOORBUSTER_ENSURE(who(changed, kNow) == Who::kNobody, "one spelling");
  DOORBUSTER_ENSURE(who(token + change.put, kNow) == Who::kNobody, "nothing added");
  std::string shorter = token;
  shorter.erase(change.place % token.size(), 1);
  DOORBUSTER_ENSURE(who(shorter, kNow) == Who::kNobody, "nothing taken away");

  // The last character holds bits that no byte needs.
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string padded = token;
  padded.back() = kAlphabet[kAlphabet.find(token.back()) ^ 1U];
  DOORBUSTER_ENSURE(who(padded, kNow) == Who::kNobody, "one spelling of the last byte");
  const std::size_t dot = token.rfind('.') + 1;
  common::Bytes signature = common::base64url_decode(token.substr(dot)).value();
  signature.resize(change.place % signature.size());
  DOORBUSTER_ENSURE(
      who(token.substr(0, dot) + common::base64url_encode(signature), kNow) == Who::kNobody,
      "no part of a signature");
}

/// Header and payload as the input has them.
void check_signed(std::string_view header, std::string_view payload, bool with_mac,
                  const Change& change) {
  const std::string text = base64(header) + "." + base64(payload);
  const std::string token =
      text + "." + (with_mac ? mac_of(kSecret, text) : ed25519_signature(text));
  const Who caller = who(token, kNow);
  DOORBUSTER_ENSURE(who(token, kNow) == caller, "the second time as the first");
  DOORBUSTER_ENSURE(who(text + "." + mac_of(kOtherSecret, text), kNow) == Who::kNobody,
                    "no stranger's signature");
  DOORBUSTER_ENSURE(who(text + ".", kNow) == Who::kNobody, "no token without a signature");
  if (caller == Who::kNobody) return;
  // Remembered or not, it is judged by the time at which it comes.
  DOORBUSTER_ENSURE(who(token, kLater) == Who::kNobody, "T3: over is over");
  DOORBUSTER_ENSURE(who(token, kNow) == caller, "and only then");
  check_accepted(header, payload, with_mac ? Algorithm::kHs256 : Algorithm::kEdDsa, caller);
  check_no_other_text(token, change);
}

/// A good token, of numbers from the input.
void check_made(FuzzedDataProvider& in) {
  const auto subject = in.ConsumeIntegralInRange<std::int64_t>(1, INT64_MAX);
  const seconds life{in.ConsumeIntegralInRange<std::int64_t>(0, 100'000)};
  const bool admin = in.ConsumeBool();
  const edge::TokenClaims claims{.subject = std::to_string(subject),
                                 .issuer = "doorbuster",
                                 .audience = admin ? "doorbuster-admin" : "doorbuster",
                                 .issued_at = kNow,
                                 .expires_at = kNow + life};
  const std::string token = edge::make_hs256_token(claims, hs256_key());
  const Who caller = admin ? Who::kAdmin : Who::kMember;
  const Instant begin = std::chrono::floor<seconds>(kNow) - kLeeway;
  const Instant end = std::chrono::floor<seconds>(kNow + life) + kLeeway;
  DOORBUSTER_ENSURE(who(token, begin) == caller, "from its start on");
  DOORBUSTER_ENSURE(who(token, begin - microseconds{1}) == Who::kNobody, "and not before");
  DOORBUSTER_ENSURE(who(token, end - microseconds{1}) == caller, "until just before its end");
  DOORBUSTER_ENSURE(who(token, end) == Who::kNobody, "and not at its end");
  if (!admin) {
    DOORBUSTER_ENSURE(verifier().member("bEARER " + token, kNow) == common::MemberId{subject},
                      "the member that was named");
  }
}

/// Whatever stands behind "Bearer": accepted only with a signature of ours.
void check_raw(std::string_view text) {
  const Exact header(text);
  const bool accepted =
      verifier().member(header.view(), kNow) || verifier().admin(header.view(), kNow);
  if (!accepted) return;
  const auto parts = edge::split_token(text.substr(std::string_view("bearer ").size()));
  DOORBUSTER_ENSURE(parts && (parts->signature == mac_of(kSecret, parts->signed_text) ||
                              parts->signature == ed25519_signature(parts->signed_text)),
                    "nobody else can sign");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  const bool with_mac = in.ConsumeIntegralInRange<int>(0, 3) != 0;  // the other one is slow
  const Change change{in.ConsumeIntegral<std::uint16_t>(), in.ConsumeIntegral<char>()};
  check_made(in);
  // Most tokens fit on the verifier's stack, and blanks make one that does not.
  const auto blanks = in.ConsumeIntegralInRange<std::size_t>(0, 63) == 0 ? 3200U : 0U;
  const std::string text = in.ConsumeRemainingBytesAsString();
  std::string_view rest = text;
  const std::string_view header = take_until(rest, "\n");
  check_signed(header, std::string(rest) + std::string(blanks, ' '), with_mac, change);
  check_raw(text);
  return 0;
}

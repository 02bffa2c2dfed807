#include "edge/token.hpp"

#include <openssl/ecdsa.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/json.hpp>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "common/hmac.hpp"
#include "common/text.hpp"
#include "edge/jwt.hpp"
#include "edge/openssl.hpp"
#include "edge/token_cache.hpp"

namespace doorbuster::edge {

namespace {

using common::HmacSha256;
using common::Instant;
using common::MemberId;

template <class T>
using Verdict = tl::expected<T, TokenRefusal>;

tl::unexpected<TokenRefusal> refuse(TokenRefusal why) { return tl::make_unexpected(why); }

/// In the order of TokenRefusal.
constexpr std::array<const char*, 11> kRefusalNames = {
    "missing", "malformed", "unknown_key", "algorithm", "signature", "expired",
    "not_yet", "issuer",    "audience",    "subject",   "too_long"};
static_assert(kRefusalNames.size() == static_cast<std::size_t>(TokenRefusal::kTooLong) + 1);

/// A part of this many decoded bytes is read on the stack: more than a token of the default limit
/// has.
constexpr std::size_t kSmallPart = 3072;
/// RSA of kMaxRsaBits.
constexpr std::size_t kMaxSignature = 1024;
/// How many keys a token without `kid` may be tried with: each try may cost a slow signature.
constexpr std::size_t kMaxTries = 4;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// JWS carries an ECDSA signature as r and s, 32 bytes each (RFC 7518, section 3.4); OpenSSL wants
/// DER.
std::vector<std::uint8_t> to_der(std::span<const std::uint8_t> signature) {
  constexpr std::size_t half = 32;
  if (signature.size() != 2 * half) return {};
  const std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>> pair(ECDSA_SIG_new());
  // The pair owns its numbers from here on.
  if (!pair || ECDSA_SIG_set0(pair.get(), BN_bin2bn(signature.data(), half, nullptr),
                              BN_bin2bn(signature.data() + half, half, nullptr)) != 1) {
    return {};
  }
  std::vector<std::uint8_t> der(static_cast<std::size_t>(i2d_ECDSA_SIG(pair.get(), nullptr)));
  unsigned char* out = der.data();
  i2d_ECDSA_SIG(pair.get(), &out);
  return der;
}

bool verify_with_public_key(EVP_PKEY* key, Algorithm algorithm, std::string_view text,
                            std::span<const std::uint8_t> signature) {
  std::vector<std::uint8_t> der;
  if (algorithm == Algorithm::kEs256) {
    der = to_der(signature);
    if (der.empty()) return false;
    signature = der;
  }
  const EVP_MD* digest = algorithm == Algorithm::kEdDsa ? nullptr : EVP_sha256();
  const DigestContext context(EVP_MD_CTX_new());
  const bool good = EVP_DigestVerifyInit(context.get(), nullptr, digest, nullptr, key) == 1 &&
                    EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                     bytes_of(text), text.size()) == 1;
  // What failed here must not turn up as the reason of a later failure in this thread.
  if (!good) ERR_clear_error();
  return good;
}

/// A decoded part of a token, on the stack when it is of the usual size.
class DecodedPart {
 public:
  [[nodiscard]] std::optional<std::span<char>> decode(std::string_view base64) {
    std::span<std::uint8_t> room = small_;
    if (base64.size() * 3 / 4 > small_.size()) {
      large_.resize(base64.size() * 3 / 4);
      room = large_;
    }
    std::size_t size = 0;
    if (!common::base64url_decode_into(base64, room, size)) return std::nullopt;
    return std::span(reinterpret_cast<char*>(room.data()), size);
  }

 private:
  std::array<std::uint8_t, kSmallPart> small_;  // written before it is read
  std::vector<std::uint8_t> large_;
};

struct Key {
  VerificationKey source;
  PublicKey public_key;           ///< null for HS256
  std::optional<HmacSha256> mac;  ///< of HS256
};

/// Never changed once it is made, so that threads share it.
struct KeySet {
  std::uint64_t version = 0;
  std::vector<Key> keys;
};

/// Places in KeySet::keys.
struct Candidates {
  std::array<std::size_t, kMaxTries> places{};
  std::size_t count = 0;

  void add(std::size_t place) {
    if (count < places.size()) places[count++] = place;
  }
};

/// A verified token, until it ends.
struct Verified {
  Principal principal;
  Instant not_before;
  Instant expires_at;
};

class Verifier final : public TokenVerifier {
 public:
  Verifier(TokenConfig config, std::vector<VerificationKey> keys, common::Metrics& metrics)
      : config_(std::move(config)) {
    for (std::size_t i = 0; i < kRefusalNames.size(); ++i) {
      refused_[i] =
          &metrics.counter("edge_tokens_refused_total", "Bearer tokens refused, by reason.",
                           {{"reason", kRefusalNames[i]}});
    }
    replace_keys(std::move(keys));
  }

  Verdict<MemberId> member(std::string_view authorization, Instant now) override {
    const Verdict<Principal> caller = verify(authorization, now);
    if (!caller) return count_refusal(caller.error());
    if (caller->member == MemberId{0}) return count_refusal(TokenRefusal::kAudience);
    return caller->member;
  }

  Verdict<std::string> admin(std::string_view authorization, Instant now) override {
    Verdict<Principal> caller = verify(authorization, now);
    if (!caller) return count_refusal(caller.error());
    if (caller->admin.empty()) return count_refusal(TokenRefusal::kAudience);
    return std::move(caller->admin);
  }

  void on_unknown_key(std::function<void()> tell) override { on_unknown_key_ = std::move(tell); }

  void replace_keys(std::vector<VerificationKey> keys) override {
    auto set = std::make_shared<KeySet>();
    for (VerificationKey& source : keys) {
      Key key{std::move(source), nullptr, std::nullopt};
      if (key.source.algorithm == Algorithm::kHs256) {
        DOORBUSTER_ENSURE(key.source.secret.size() >= kMinSecretBytes,
                          "an HS256 secret has 32 bytes or more");
        key.mac.emplace(key.source.secret);
      } else {
        key.public_key = read_public_key(key.source.public_key_pem);
        DOORBUSTER_ENSURE(
            key.public_key && algorithm_of(key.public_key.get()) == key.source.algorithm,
            "a public key serves the algorithm that it is pinned to");
      }
      set->keys.push_back(std::move(key));
    }
    const std::lock_guard lock(mutex_);
    // A refresh mostly brings the same keys again: what the threads have found out stays good.
    if (keys_ &&
        std::equal(keys_->keys.begin(), keys_->keys.end(), set->keys.begin(), set->keys.end(),
                   [](const Key& a, const Key& b) { return a.source == b.source; })) {
      return;
    }
    set->version = next_version.fetch_add(1, std::memory_order_relaxed);
    keys_ = set;
    // Released after `keys_` is in place; local() takes it under the lock anyway.
    version_.store(set->version, std::memory_order_release);
  }

 private:
  /// What one thread keeps: the keys, and what it found out with them.
  struct Local {
    std::uint64_t version = 0;
    std::shared_ptr<const KeySet> set;
    std::vector<HmacSha256::Beginning> beginnings;  ///< one for each key
    TokenCache<Verified> cache{0};
    // The header of the last good token and its key: tokens of one issuer share it to the letter.
    std::string header;
    std::size_t header_key = 0;
    ClaimsShape shape;
    std::uint32_t unknown_shapes = 0;
  };

  Local& local() {
    thread_local Local kept;
    if (kept.version != version_.load(std::memory_order_acquire)) {
      kept = Local{};
      {
        const std::lock_guard lock(mutex_);
        kept.set = keys_;
      }
      kept.version = kept.set->version;
      kept.cache = TokenCache<Verified>(config_.cache_entries);
      kept.beginnings.resize(kept.set->keys.size());
    }
    return kept;
  }

  tl::unexpected<TokenRefusal> count_refusal(TokenRefusal why) {
    refused_[static_cast<std::size_t>(why)]->add();
    return refuse(why);
  }

  Verdict<Principal> verify(std::string_view authorization, Instant now) {
    const Verdict<std::string_view> token = bearer_token(authorization);
    if (!token) return refuse(token.error());
    Local& mine = local();

    // Only tokens of slow signatures are remembered, so one of the usual HS256 key is not looked
    // for: hashing its text costs a fifth of checking it.
    std::optional<TokenParts> parts = split_usual(mine, *token);
    const bool usual = parts.has_value();
    if (!usual) parts = split_token(*token);
    if (!parts) return refuse(TokenRefusal::kMalformed);
    if (const Verified* known = usual ? nullptr : mine.cache.find(*token)) {
      const auto late = judge_time(known->not_before, known->expires_at, now, config_.leeway);
      if (!late) return known->principal;
      if (*late == TokenRefusal::kExpired) mine.cache.erase(*token);
      return refuse(*late);
    }
    const Verdict<const Key*> key = check_signature(mine, *parts);
    if (!key) return refuse(key.error());

    DecodedPart payload;
    const auto json = payload.decode(parts->payload);
    if (!json) return refuse(TokenRefusal::kMalformed);
    const ExpectedClaims expected{.issuer = config_.issuer,
                                  .audience = config_.audience,
                                  .admin_audience = config_.admin_audience};
    std::optional<Claims> claims = mine.shape.read({json->data(), json->size()});
    if (!claims) {
      ClaimPlaces places;
      claims = parse_claims(*json, expected, &places);
      if (!claims) return refuse(TokenRefusal::kMalformed);
      // Not each time: where every payload looks different, remembering them is for nothing.
      if (mine.unknown_shapes++ % 8 == 0) {
        mine.shape.learn({json->data(), json->size()}, *claims, places);
      }
    }
    if (const auto late = judge_time(claims->not_before, claims->expires_at, now, config_.leeway)) {
      return refuse(*late);
    }
    Verdict<Principal> caller = identify(*claims);
    // An HS256 signature is cheaper than the memory that remembering it would take.
    if (caller && (*key)->public_key) {
      mine.cache.insert(*token, {*caller, claims->not_before, claims->expires_at});
    }
    return caller;
  }

  [[nodiscard]] Verdict<std::string_view> bearer_token(std::string_view authorization) const {
    constexpr std::string_view scheme = "bearer ";
    if (authorization.empty()) return refuse(TokenRefusal::kMissing);
    if (authorization.size() <= scheme.size()) return refuse(TokenRefusal::kMalformed);
    for (std::size_t i = 0; i < scheme.size(); ++i) {
      const char c = authorization[i];
      const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      if (lower != scheme[i]) return refuse(TokenRefusal::kMalformed);
    }
    const std::string_view token = authorization.substr(scheme.size());
    if (token.size() > config_.max_token_bytes) return refuse(TokenRefusal::kTooLong);
    return token;
  }

  /// A token whose header is that of the last good one, where that is of HS256: its parts are where
  /// they were. A dot elsewhere is found by whoever decodes the part.
  static std::optional<TokenParts> split_usual(const Local& mine, std::string_view token) {
    constexpr std::size_t kSignature = 43;
    const std::size_t dot = mine.header.size();
    if (dot == 0 || token.size() < dot + 1 + 1 + kSignature || token[dot] != '.' ||
        !token.starts_with(mine.header) || !mine.set->keys[mine.header_key].mac) {
      return std::nullopt;
    }
    const std::size_t second = token.size() - kSignature - 1;
    if (second <= dot + 1 || token[second] != '.') return std::nullopt;
    return TokenParts{.header = token.substr(0, dot),
                      .payload = token.substr(dot + 1, second - dot - 1),
                      .signature = token.substr(second + 1),
                      .signed_text = token.substr(0, second)};
  }

  /// The key that made the signature.
  Verdict<const Key*> check_signature(Local& mine, const TokenParts& parts) {
    std::array<std::uint8_t, kMaxSignature> buffer;  // written before it is read
    std::size_t size = 0;
    if (!common::base64url_decode_into(parts.signature, buffer, size)) {
      return refuse(TokenRefusal::kMalformed);
    }
    const std::span<const std::uint8_t> signature = std::span(buffer).first(size);
    const Verdict<Candidates> candidates = find_keys(mine, parts.header);
    if (!candidates) return refuse(candidates.error());
    for (std::size_t i = 0; i < candidates->count; ++i) {
      const std::size_t place = candidates->places[i];
      const Key& key = mine.set->keys[place];
      const bool good =
          key.mac ? is_mac(key.mac->of(parts.signed_text, mine.beginnings[place]), signature)
                  : verify_with_public_key(key.public_key.get(), key.source.algorithm,
                                           parts.signed_text, signature);
      if (!good) continue;
      if (candidates->count == 1 && mine.header != parts.header) {
        mine.header.assign(parts.header);
        mine.header_key = place;
      }
      return &key;
    }
    return refuse(TokenRefusal::kSignature);
  }

  static bool is_mac(const HmacSha256::Mac& mac, std::span<const std::uint8_t> signature) {
    if (signature.size() != mac.size()) return false;
    // Word by word and to the end: the time does not depend on where they differ.
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i < mac.size(); i += sizeof differs) {
      std::uint64_t one = 0;
      std::uint64_t other = 0;
      std::memcpy(&one, mac.data() + i, sizeof one);
      std::memcpy(&other, signature.data() + i, sizeof other);
      differs |= one ^ other;
    }
    return differs == 0;
  }

  /// A token with a `kid` is tried with the keys of that name, or else with those without any; one
  /// without `kid` with all. Of these only keys that are pinned to the algorithm which it names.
  Verdict<Candidates> find_keys(const Local& mine, std::string_view base64) {
    Candidates candidates;
    if (base64 == mine.header) {
      candidates.add(mine.header_key);
      return candidates;
    }
    DecodedPart part;
    const auto json = part.decode(base64);
    if (!json) return refuse(TokenRefusal::kMalformed);
    const std::optional<TokenHeader> header = parse_header(*json);
    if (!header) return refuse(TokenRefusal::kMalformed);

    const std::vector<Key>& keys = mine.set->keys;
    const bool named = std::any_of(keys.begin(), keys.end(), [&](const Key& key) {
      return !header->kid.empty() && key.source.kid == header->kid;
    });
    bool known = false;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const VerificationKey& key = keys[i].source;
      if (!header->kid.empty() && key.kid != (named ? header->kid : std::string_view{})) continue;
      known = true;
      if (to_string(key.algorithm) == header->alg) candidates.add(i);
    }
    if (!known) {
      if (on_unknown_key_) on_unknown_key_();
      return refuse(TokenRefusal::kUnknownKey);
    }
    if (candidates.count == 0) return refuse(TokenRefusal::kAlgorithm);
    return candidates;
  }

  // Versions are unique over all verifiers, since what a thread keeps does not say whose it is.
  inline static std::atomic<std::uint64_t> next_version{1};

  const TokenConfig config_;
  std::mutex mutex_;
  std::shared_ptr<const KeySet> keys_;  // Guarded by mutex_.
  std::atomic<std::uint64_t> version_{0};
  std::array<common::Counter*, kRefusalNames.size()> refused_{};
  std::function<void()> on_unknown_key_;  // set before the first verification, then only read
};

}  // namespace

std::unique_ptr<TokenVerifier> make_token_verifier(const TokenConfig& config,
                                                   std::vector<VerificationKey> keys,
                                                   common::Metrics& metrics) {
  return std::make_unique<Verifier>(config, std::move(keys), metrics);
}

std::string make_hs256_token(const TokenClaims& claims, const VerificationKey& key) {
  const auto encode = [](const boost::json::object& object) {
    const std::string text = boost::json::serialize(object);
    return common::base64url_encode({bytes_of(text), text.size()});
  };
  const auto seconds = [](Instant at) {
    return std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count();
  };
  boost::json::object header{{"alg", "HS256"}, {"typ", "JWT"}};
  if (!key.kid.empty()) header["kid"] = key.kid;
  const boost::json::object payload{{"iss", claims.issuer},
                                    {"aud", claims.audience},
                                    {"sub", claims.subject},
                                    {"iat", seconds(claims.issued_at)},
                                    {"exp", seconds(claims.expires_at)}};
  std::string token = encode(header) + "." + encode(payload);
  const HmacSha256::Mac mac = HmacSha256(key.secret).of(token);
  token += '.';
  token += common::base64url_encode(mac);
  return token;
}

}  // namespace doorbuster::edge

#include "edge/token.hpp"

#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/core_names.h>
#include <openssl/pem.h>

#include <array>
#include <atomic>
#include <boost/json.hpp>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "common/text.hpp"

namespace doorbuster::edge {
namespace {

using common::Instant;
using common::MemberId;
namespace json = boost::json;
template <class T>
using Verdict = tl::expected<T, TokenRefusal>;

tl::unexpected<TokenRefusal> refuse(TokenRefusal why) { return tl::make_unexpected(why); }

constexpr std::string_view kAlgorithmNames[] = {"HS256", "RS256", "ES256", "EdDSA"};
constexpr const char* kRefusalNames[] = {"missing",   "malformed", "unknown_key", "algorithm",
                                         "signature", "expired",   "not_yet",     "issuer",
                                         "audience",  "subject",   "too_long"};
constexpr std::size_t kMaxDecoded = 3072;   ///< bytes of a decoded header or payload
constexpr std::size_t kHmacBytes = 32;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using MacContext = std::unique_ptr<EVP_MAC_CTX, Deleter<EVP_MAC_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Deleter<EVP_MD_CTX_free>>;
using Pkey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

MacContext keyed_context(std::string_view secret) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  MacContext context(EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  DOORBUSTER_ENSURE(EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(secret.data()),
                                 secret.size(), params) == 1,
                    "HMAC-SHA256 is available");
  return context;
}

/// The MAC of `text` with a context that has its key already: a fresh key schedule would cost three times as
/// much as the MAC.
std::array<std::uint8_t, kHmacBytes> mac_of(EVP_MAC_CTX* context, std::string_view text) {
  std::array<std::uint8_t, kHmacBytes> mac{};
  std::size_t size = 0;
  DOORBUSTER_ENSURE(
      EVP_MAC_init(context, nullptr, 0, nullptr) == 1 &&
          EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1 &&
          EVP_MAC_final(context, mac.data(), &size, mac.size()) == 1 && size == mac.size(),
      "HMAC-SHA256 works");
  return mac;
}

/// A key as the verifier holds it.
struct Key {
  VerificationKey source;
  Pkey public_key;   ///< for asymmetric ones
};

struct KeySet {
  std::uint64_t version = 0;
  std::vector<Key> keys;
};

/// Three parts and no more.
struct Parts {
  std::string_view header, payload, signature, signed_text;
};

std::optional<Parts> split(std::string_view token) {
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  Parts parts{token.substr(0, first), token.substr(first + 1, second - first - 1),
              token.substr(second + 1), token.substr(0, second)};
  if (parts.header.empty() || parts.payload.empty() || parts.signature.empty()) return std::nullopt;
  return parts;
}

/// A JSON object in memory on the stack: nothing is allocated for a token of the usual size.
class SmallObject {
 public:
  SmallObject() : resource_(buffer_.data(), buffer_.size()) {}
  SmallObject(const SmallObject&) = delete;
  SmallObject& operator=(const SmallObject&) = delete;

  /// False when the text is no base64url of a JSON object without repeated names.
  bool read(std::string_view base64) {
    std::size_t size = 0;
    if (!common::base64url_decode_into(base64, text_, size)) return false;
    const std::string_view text(reinterpret_cast<const char*>(text_.data()), size);
    if (!common::is_plain_utf8(text)) return false;
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 4;
    json::parser parser({}, options, scratch_.data(), scratch_.size());
    parser.reset(&resource_);
    const std::size_t used = parser.write(text.data(), text.size(), error);
    if (error || used != text.size()) return false;
    // Constructed, not assigned: an assignment would copy it out of the buffer.
    value_.emplace(parser.release());
    if (!value_->is_object()) return false;
    // Of two claims with one name each reader would take another: refuse. Boost keeps the last one, so that
    // fewer names than colons at depth one are found by counting.
    return value_->get_object().size() == count_names(text);
  }

  [[nodiscard]] const json::object& get() const { return value_->get_object(); }

 private:
  /// Names of the outermost object as they are written.
  static std::size_t count_names(std::string_view text) {
    std::size_t names = 0;
    int depth = 0;
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (inside) {
        if (c == '\\') {
          ++i;
        } else if (c == '"') {
          inside = false;
        }
      } else if (c == '"') {
        inside = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      } else if (c == ':' && depth == 1) {
        ++names;
      }
    }
    return names;
  }

  std::array<std::uint8_t, kMaxDecoded> text_;
  std::array<unsigned char, 4096> buffer_;
  std::array<unsigned char, 512> scratch_;
  json::monotonic_resource resource_;
  std::optional<json::value> value_;
};

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

/// Seconds since 1970 (RFC 7519 NumericDate), whole or with a fraction.
std::optional<std::int64_t> date_of(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double() && value.get_double() >= 0 && value.get_double() < 1e15) {
    return static_cast<std::int64_t>(value.get_double());
  }
  return std::nullopt;
}

/// What of a verified payload is kept.
struct Claims {
  std::string subject;
  std::int64_t expires = 0;
  std::int64_t not_before = 0;
  bool member_audience = false;
  bool admin_audience = false;
};

bool has_audience(const json::value& aud, std::string_view wanted) {
  if (aud.is_string()) return std::string_view(aud.get_string().data(), aud.get_string().size()) == wanted;
  if (!aud.is_array()) return false;
  for (const json::value& one : aud.get_array()) {
    if (one.is_string() &&
        std::string_view(one.get_string().data(), one.get_string().size()) == wanted) {
      return true;
    }
  }
  return false;
}

bool verify_asymmetric(const Key& key, std::string_view text, std::span<const std::uint8_t> signature) {
  const DigestContext context(EVP_MD_CTX_new());
  const EVP_MD* digest = key.source.algorithm == Algorithm::kEdDsa ? nullptr : EVP_sha256();
  if (EVP_DigestVerifyInit(context.get(), nullptr, digest, nullptr, key.public_key.get()) != 1) return false;
  std::vector<std::uint8_t> der;
  if (key.source.algorithm == Algorithm::kEs256) {
    // JWS carries r and s one after the other; OpenSSL wants DER.
    if (signature.size() != 64) return false;
    ECDSA_SIG* pair = ECDSA_SIG_new();
    ECDSA_SIG_set0(pair, BN_bin2bn(signature.data(), 32, nullptr), BN_bin2bn(signature.data() + 32, 32, nullptr));
    unsigned char* out = nullptr;
    const int size = i2d_ECDSA_SIG(pair, &out);
    ECDSA_SIG_free(pair);
    if (size <= 0) return false;
    der.assign(out, out + size);
    OPENSSL_free(out);
    signature = der;
  }
  return EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
}

class Verifier final : public TokenVerifier {
 public:
  Verifier(TokenConfig config, std::vector<VerificationKey> keys, common::Metrics& metrics)
      : config_(std::move(config)) {
    for (const char* name : kRefusalNames) {
      refused_.push_back(&metrics.counter("edge_tokens_refused_total", "Bearer tokens refused, by reason",
                                          {{"reason", name}}));
    }
    unknown_kid_ = &metrics.counter("edge_tokens_unknown_kid_total",
                                    "Tokens that named a key which is not known");
    replace_keys(std::move(keys));
  }

  Verdict<MemberId> member(std::string_view authorization, Instant now) override {
    const Verdict<Found> found = verify(authorization, now, false);
    if (!found) return note<MemberId>(found.error());
    return MemberId{found->member};
  }

  Verdict<std::string> admin(std::string_view authorization, Instant now) override {
    Verdict<Found> found = verify(authorization, now, true);
    if (!found) return note<std::string>(found.error());
    return std::move(found->admin);
  }

  void on_unknown_key(std::function<void()> tell) override { on_unknown_key_ = std::move(tell); }

  void replace_keys(std::vector<VerificationKey> keys) override {
    auto set = std::make_shared<KeySet>();
    for (VerificationKey& source : keys) {
      Key key{std::move(source), nullptr};
      if (key.source.algorithm != Algorithm::kHs256) {
        BIO* bio = BIO_new_mem_buf(key.source.public_key_pem.data(),
                                   static_cast<int>(key.source.public_key_pem.size()));
        key.public_key.reset(PEM_read_bio_PUBKEY(bio, nullptr, nullptr, nullptr));
        BIO_free(bio);
        if (!key.public_key) continue;
      }
      set->keys.push_back(std::move(key));
    }
    const std::lock_guard lock(mutex_);
    set->version = next_version.fetch_add(1) + 1;
    version_.store(set->version, std::memory_order_release);
    keys_ = std::move(set);
  }

 private:
  struct Found {
    std::int64_t member = 0;
    std::string admin;
  };

  /// What a thread keeps of this verifier: its keys with their contexts, and verdicts of slow signatures.
  struct Local {
    std::uint64_t version = 0;
    std::shared_ptr<const KeySet> keys;
    std::vector<MacContext> contexts;                       ///< one for each key; null for asymmetric ones
    std::unordered_map<std::string, Claims> verified;       ///< by token text
  };

  Local& local() {
    thread_local Local kept;
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (kept.version != version) {
      kept = Local{};
      const std::lock_guard lock(mutex_);
      kept.keys = keys_;
      kept.version = keys_->version;
      for (const Key& key : keys_->keys) {
        kept.contexts.push_back(key.source.algorithm == Algorithm::kHs256 ? keyed_context(key.source.secret)
                                                                          : nullptr);
      }
    }
    return kept;
  }

  template <class T>
  Verdict<T> note(TokenRefusal why) {
    refused_[static_cast<std::size_t>(why)]->add();
    return refuse(why);
  }

  Verdict<Found> verify(std::string_view authorization, Instant now, bool admin) {
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
    Local& mine = local();
    const auto known = mine.verified.empty() ? mine.verified.end() : mine.verified.find(std::string(token));
    if (known != mine.verified.end()) {
      Verdict<Found> found = judge(known->second, now, admin);
      if (!found && found.error() == TokenRefusal::kExpired) mine.verified.erase(known);
      return found;
    }
    const std::optional<Parts> parts = split(token);
    if (!parts) return refuse(TokenRefusal::kMalformed);
    const Verdict<std::size_t> key = find_key(mine, parts->header);
    if (!key) return refuse(key.error());
    const Key& chosen = mine.keys->keys[*key];

    std::array<std::uint8_t, 1024> signature;
    std::size_t size = 0;
    if (!common::base64url_decode_into(parts->signature, signature, size)) {
      return refuse(TokenRefusal::kMalformed);
    }
    const bool symmetric = chosen.source.algorithm == Algorithm::kHs256;
    if (symmetric) {
      const auto mac = mac_of(mine.contexts[*key].get(), parts->signed_text);
      const auto as_text = [](const std::uint8_t* data, std::size_t n) {
        return std::string_view(reinterpret_cast<const char*>(data), n);
      };
      if (!common::equal_constant_time(as_text(mac.data(), mac.size()), as_text(signature.data(), size))) {
        return refuse(TokenRefusal::kSignature);
      }
    } else if (!verify_asymmetric(chosen, parts->signed_text, std::span(signature).first(size))) {
      return refuse(TokenRefusal::kSignature);
    }
    const Verdict<Claims> claims = read_claims(parts->payload);
    if (!claims) return refuse(claims.error());
    Verdict<Found> found = judge(*claims, now, admin);
    if (found && !symmetric) {
      // Bounded: a flood of good tokens starts the cache over instead of growing it.
      if (mine.verified.size() >= config_.cache_entries) mine.verified.clear();
      mine.verified.emplace(std::string(token), *claims);
    }
    return found;
  }

  Verdict<std::size_t> find_key(const Local& mine, std::string_view base64) {
    SmallObject header;
    if (!header.read(base64)) return refuse(TokenRefusal::kMalformed);
    const json::object& object = header.get();
    // Extensions that must be understood: we understand none (RFC 7515, section 4.1.11).
    if (object.contains("crit")) return refuse(TokenRefusal::kMalformed);
    const std::string_view alg = text_of(object, "alg");
    const std::string_view kid = text_of(object, "kid");
    bool named = false;
    for (std::size_t i = 0; i < mine.keys->keys.size(); ++i) {
      const VerificationKey& key = mine.keys->keys[i].source;
      if (!kid.empty() && !key.kid.empty() && key.kid != kid) continue;
      named = true;
      if (kAlgorithmNames[static_cast<std::size_t>(key.algorithm)] == alg) return i;
    }
    if (named) return refuse(TokenRefusal::kAlgorithm);
    unknown_kid_->add();
    if (on_unknown_key_) on_unknown_key_();
    return refuse(TokenRefusal::kUnknownKey);
  }

  Verdict<Claims> read_claims(std::string_view base64) const {
    SmallObject payload;
    if (!payload.read(base64)) return refuse(TokenRefusal::kMalformed);
    const json::object& object = payload.get();
    Claims claims;
    const json::value* exp = object.if_contains("exp");
    const auto expires = exp == nullptr ? std::nullopt : date_of(*exp);
    // Without an end a stolen token is good for ever.
    if (!expires) return refuse(TokenRefusal::kExpired);
    claims.expires = *expires;
    if (const json::value* nbf = object.if_contains("nbf")) {
      const auto from = date_of(*nbf);
      if (!from) return refuse(TokenRefusal::kMalformed);
      claims.not_before = *from;
    }
    if (!config_.issuer.empty() && text_of(object, "iss") != config_.issuer) {
      return refuse(TokenRefusal::kIssuer);
    }
    if (const json::value* aud = object.if_contains("aud")) {
      claims.member_audience = has_audience(*aud, config_.audience);
      claims.admin_audience = has_audience(*aud, config_.admin_audience);
    }
    const json::value* sub = object.if_contains("sub");
    if (sub == nullptr) return refuse(TokenRefusal::kSubject);
    if (sub->is_string()) {
      claims.subject.assign(sub->get_string().data(), sub->get_string().size());
    } else if (sub->is_int64() && sub->get_int64() > 0) {
      claims.subject = std::to_string(sub->get_int64());
    } else {
      return refuse(TokenRefusal::kSubject);
    }
    return claims;
  }

  Verdict<Found> judge(const Claims& claims, Instant now, bool admin) const {
    const std::int64_t second = common::to_micros(now) / 1'000'000;
    const std::int64_t leeway = config_.leeway.count();
    if (claims.expires + leeway <= second) return refuse(TokenRefusal::kExpired);
    if (claims.not_before - leeway > second) return refuse(TokenRefusal::kNotYet);
    // A token for both would let one stand for the other.
    if (claims.member_audience == claims.admin_audience) return refuse(TokenRefusal::kAudience);
    if (admin != claims.admin_audience) return refuse(TokenRefusal::kAudience);
    Found found;
    if (admin) {
      if (claims.subject.empty() || claims.subject.size() > 64) return refuse(TokenRefusal::kSubject);
      found.admin = claims.subject;
    } else {
      const auto member = common::parse_id_number(claims.subject);
      if (!member) return refuse(TokenRefusal::kSubject);
      found.member = *member;
    }
    return found;
  }

  // Versions are unique over all verifiers, since a thread's kept state does not know whose it is.
  inline static std::atomic<std::uint64_t> next_version{0};

  const TokenConfig config_;
  std::mutex mutex_;
  std::shared_ptr<const KeySet> keys_;        // Guarded by mutex_.
  std::atomic<std::uint64_t> version_{0};
  std::vector<common::Counter*> refused_;
  common::Counter* unknown_kid_ = nullptr;
  std::function<void()> on_unknown_key_;   ///< set before the first verification
};

}  // namespace

std::unique_ptr<TokenVerifier> make_token_verifier(const TokenConfig& config,
                                                   std::vector<VerificationKey> keys,
                                                   common::Metrics& metrics) {
  return std::make_unique<Verifier>(config, std::move(keys), metrics);
}

std::string make_hs256_token(const TokenClaims& claims, const VerificationKey& key) {
  const auto encode = [](const json::object& object) {
    const std::string text = json::serialize(object);
    return common::base64url_encode(
        {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  json::object header{{"alg", "HS256"}, {"typ", "JWT"}};
  if (!key.kid.empty()) header["kid"] = key.kid;
  const json::object payload{{"iss", claims.issuer},
                             {"aud", claims.audience},
                             {"sub", claims.subject},
                             {"iat", common::to_micros(claims.issued_at) / 1'000'000},
                             {"exp", common::to_micros(claims.expires_at) / 1'000'000}};
  std::string token = encode(header) + "." + encode(payload);
  const MacContext context = keyed_context(key.secret);
  const auto mac = mac_of(context.get(), token);
  token += '.';
  token += common::base64url_encode(mac);
  return token;
}

}  // namespace doorbuster::edge

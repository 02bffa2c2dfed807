#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>

#include "common/text.hpp"
#include "edge/jwt.hpp"
#include "edge/openssl.hpp"
#include "edge/token.hpp"

namespace doorbuster::edge {
namespace {

using common::Bytes;
using common::ErrorCode;
using common::fail;
using common::Result;
namespace json = boost::json;

using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using ParamBuilder = std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>>;
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;

/// Keeps OpenSSL from asking for a password on the terminal.
int no_password(char*, int, int, void*) { return -1; }

std::string_view text_of(const json::object& jwk, std::string_view name) {
  const json::value* value = jwk.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

PublicKey make_key(const char* type, OSSL_PARAM_BLD* builder) {
  const Params params(OSSL_PARAM_BLD_to_param(builder));
  const PkeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1) {
    ERR_clear_error();
    return nullptr;
  }
  return PublicKey(key);
}

PublicKey rsa_key(const json::object& jwk) {
  const auto n = common::base64url_decode(text_of(jwk, "n"));
  const auto e = common::base64url_decode(text_of(jwk, "e"));
  if (!n || !e || n->empty() || e->empty()) return nullptr;
  const Number modulus(BN_bin2bn(n->data(), static_cast<int>(n->size()), nullptr));
  const Number exponent(BN_bin2bn(e->data(), static_cast<int>(e->size()), nullptr));
  const ParamBuilder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get());
  return make_key("RSA", builder.get());
}

PublicKey p256_key(const json::object& jwk) {
  if (text_of(jwk, "crv") != "P-256") return nullptr;
  const auto x = common::base64url_decode(text_of(jwk, "x"));
  const auto y = common::base64url_decode(text_of(jwk, "y"));
  if (!x || !y || x->size() != 32 || y->size() != 32) return nullptr;
  Bytes point{0x04};
  point.insert(point.end(), x->begin(), x->end());
  point.insert(point.end(), y->begin(), y->end());
  const ParamBuilder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                   point.size());
  return make_key("EC", builder.get());
}

PublicKey ed25519_key(const json::object& jwk) {
  if (text_of(jwk, "crv") != "Ed25519") return nullptr;
  const auto x = common::base64url_decode(text_of(jwk, "x"));
  if (!x || x->size() != 32) return nullptr;
  return PublicKey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, x->data(), x->size()));
}

/// Nothing where the key cannot verify tokens for us.
std::optional<VerificationKey> read_jwk(const json::object& jwk) {
  const std::string_view use = text_of(jwk, "use");
  if (!use.empty() && use != "sig") return std::nullopt;
  if (const json::value* operations = jwk.if_contains("key_ops")) {
    if (!operations->is_array()) return std::nullopt;
    const json::array& all = operations->get_array();
    if (std::find(all.begin(), all.end(), json::value("verify")) == all.end()) return std::nullopt;
  }
  const std::string_view kty = text_of(jwk, "kty");
  VerificationKey key;
  key.kid = std::string(text_of(jwk, "kid"));
  if (kty == "oct") {
    const auto secret = common::base64url_decode(text_of(jwk, "k"));
    if (!secret || secret->size() < kMinSecretBytes) return std::nullopt;
    key.algorithm = Algorithm::kHs256;
    key.secret.assign(secret->begin(), secret->end());
  } else {
    const PublicKey public_key = kty == "RSA"   ? rsa_key(jwk)
                                 : kty == "EC"  ? p256_key(jwk)
                                 : kty == "OKP" ? ed25519_key(jwk)
                                                : nullptr;
    if (!public_key) return std::nullopt;
    const auto algorithm = algorithm_of(public_key.get());
    if (!algorithm) return std::nullopt;
    key.algorithm = *algorithm;
    key.public_key_pem = write_public_key(public_key.get());
  }
  const std::string_view alg = text_of(jwk, "alg");
  if (!alg.empty() && alg != to_string(key.algorithm)) return std::nullopt;
  return key;
}

Result<std::vector<VerificationKey>> read_pem(std::string_view text) {
  const PublicKey key = read_public_key(text);
  if (!key) return fail(ErrorCode::kInvalid, "the PEM text is no public key");
  const auto algorithm = algorithm_of(key.get());
  if (!algorithm) {
    return fail(ErrorCode::kInvalid,
                "the public key is none of: RSA of 2048 to 8192 bits, EC P-256, Ed25519");
  }
  VerificationKey one;
  one.algorithm = *algorithm;
  one.public_key_pem = write_public_key(key.get());
  return std::vector<VerificationKey>{std::move(one)};
}

}  // namespace

PublicKey read_public_key(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  PublicKey key(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return key;
}

std::string write_public_key(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  DOORBUSTER_ENSURE(PEM_write_bio_PUBKEY(bio.get(), key) == 1, "a public key can be written");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::optional<Algorithm> algorithm_of(EVP_PKEY* key) {
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA: {
      const int bits = EVP_PKEY_get_bits(key);
      if (bits < kMinRsaBits || bits > kMaxRsaBits) return std::nullopt;
      // With an exponent of 1 every text would be its own signature.
      BIGNUM* read = nullptr;
      const bool has_exponent = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &read) == 1;
      const Number exponent(read);
      if (!has_exponent || BN_num_bits(read) < 2) return std::nullopt;
      return Algorithm::kRs256;
    }
    case EVP_PKEY_ED25519:
      return Algorithm::kEdDsa;
    case EVP_PKEY_EC: {
      char group[32] = {};
      std::size_t size = 0;
      if (EVP_PKEY_get_group_name(key, group, sizeof group, &size) != 1 ||
          std::string_view(group, size) != "prime256v1") {
        return std::nullopt;
      }
      return Algorithm::kEs256;
    }
    default:
      return std::nullopt;
  }
}

Result<std::vector<VerificationKey>> parse_keys(std::string_view text) {
  if (text.find("-----BEGIN") != std::string_view::npos) return read_pem(text);
  boost::system::error_code error;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !parsed.is_object()) {
    return fail(ErrorCode::kInvalid, "the keys are neither PEM nor a JSON Web Key (set)");
  }
  const json::object& object = parsed.get_object();
  std::vector<VerificationKey> keys;
  if (const json::value* set = object.if_contains("keys")) {
    if (!set->is_array()) return fail(ErrorCode::kInvalid, "\"keys\" of the key set is no array");
    for (const json::value& one : set->get_array()) {
      if (!one.is_object()) continue;
      if (auto key = read_jwk(one.get_object())) keys.push_back(std::move(*key));
    }
  } else if (auto key = read_jwk(object)) {
    keys.push_back(std::move(*key));
  }
  if (keys.empty()) {
    return fail(ErrorCode::kInvalid,
                "no key can verify tokens; needed: oct of at least 32 bytes, RSA of 2048 to 8192 "
                "bits, EC P-256 or Ed25519");
  }
  return keys;
}

const VerificationKey& development_key() {
  static const VerificationKey key{.kid = "development",
                                   .algorithm = Algorithm::kHs256,
                                   .secret = "doorbuster development key, known to everybody",
                                   .public_key_pem = {}};
  return key;
}

}  // namespace doorbuster::edge

#pragma once

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/text.hpp"
#include "edge/openssl.hpp"
#include "edge/token.hpp"

namespace doorbuster::edge::testing {

inline std::string base64(std::string_view text) {
  return common::base64url_encode(
      {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

/// 2026-11-30T01:02:03Z.
inline const common::Instant kNow{std::chrono::seconds{1'796'000'523}};
inline std::string seconds_from_now(std::int64_t by) { return std::to_string(1'796'000'523 + by); }

/// A private key, as an identity provider has one.
class Signer {
 public:
  static const Signer& rsa() {
    static const Signer one(EVP_RSA_gen(2048), Algorithm::kRs256);
    return one;
  }
  static const Signer& other_rsa() {
    static const Signer one(EVP_RSA_gen(2048), Algorithm::kRs256);
    return one;
  }
  static const Signer& p256() {
    static const Signer one(EVP_EC_gen("P-256"), Algorithm::kEs256);
    return one;
  }
  static const Signer& ed25519() {
    static const Signer one(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), Algorithm::kEdDsa);
    return one;
  }

  Signer(EVP_PKEY* key, Algorithm algorithm) : key_(key), algorithm_(algorithm) {}

  [[nodiscard]] Algorithm algorithm() const { return algorithm_; }
  [[nodiscard]] std::string pem() const { return write_public_key(key_.get()); }
  [[nodiscard]] VerificationKey key(std::string kid) const {
    return {.kid = std::move(kid), .algorithm = algorithm_, .secret = {}, .public_key_pem = pem()};
  }

  /// The public half as a JWK without the closing brace, so that a test may add members.
  [[nodiscard]] std::string jwk() const {
    if (algorithm_ == Algorithm::kRs256) {
      return R"({"kty":"RSA","n":")" + number(OSSL_PKEY_PARAM_RSA_N, 0) + R"(","e":")" +
             number(OSSL_PKEY_PARAM_RSA_E, 0) + "\"";
    }
    if (algorithm_ == Algorithm::kEs256) {
      return R"({"kty":"EC","crv":"P-256","x":")" + number(OSSL_PKEY_PARAM_EC_PUB_X, 32) +
             R"(","y":")" + number(OSSL_PKEY_PARAM_EC_PUB_Y, 32) + "\"";
    }
    std::vector<std::uint8_t> raw(32);
    std::size_t size = raw.size();
    EXPECT_EQ(EVP_PKEY_get_raw_public_key(key_.get(), raw.data(), &size), 1);
    return R"({"kty":"OKP","crv":"Ed25519","x":")" + common::base64url_encode(raw) + "\"";
  }

  [[nodiscard]] std::vector<std::uint8_t> sign(std::string_view text) const {
    const DigestContext context(EVP_MD_CTX_new());
    const EVP_MD* digest = algorithm_ == Algorithm::kEdDsa ? nullptr : EVP_sha256();
    EXPECT_EQ(EVP_DigestSignInit(context.get(), nullptr, digest, nullptr, key_.get()), 1);
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    std::size_t size = 0;
    EXPECT_EQ(EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()), 1);
    std::vector<std::uint8_t> signature(size);
    EXPECT_EQ(EVP_DigestSign(context.get(), signature.data(), &size, bytes, text.size()), 1);
    signature.resize(size);
    return algorithm_ == Algorithm::kEs256 ? to_raw(signature) : signature;
  }

  /// A whole token around these two JSON texts.
  [[nodiscard]] std::string token(std::string_view header, std::string_view payload) const {
    const std::string text = base64(header) + "." + base64(payload);
    return text + "." + common::base64url_encode(sign(text));
  }

 private:
  [[nodiscard]] std::string number(const char* name, int width) const {
    BIGNUM* read = nullptr;
    EXPECT_EQ(EVP_PKEY_get_bn_param(key_.get(), name, &read), 1);
    const std::unique_ptr<BIGNUM, Freed<BN_free>> number(read);
    std::vector<std::uint8_t> bytes(
        static_cast<std::size_t>(width > 0 ? width : BN_num_bytes(read)));
    BN_bn2binpad(read, bytes.data(), static_cast<int>(bytes.size()));
    return common::base64url_encode(bytes);
  }

  static std::vector<std::uint8_t> to_raw(const std::vector<std::uint8_t>& der) {
    const unsigned char* in = der.data();
    const std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>> pair(
        d2i_ECDSA_SIG(nullptr, &in, static_cast<long>(der.size())));
    std::vector<std::uint8_t> raw(64);
    BN_bn2binpad(ECDSA_SIG_get0_r(pair.get()), raw.data(), 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(pair.get()), raw.data() + 32, 32);
    return raw;
  }

  PublicKey key_;
  Algorithm algorithm_;
};

/// HMAC-SHA256 through another door of OpenSSL than the product's.
inline std::string hs256_token(std::string_view header, std::string_view payload,
                               std::string_view secret) {
  const std::string text = base64(header) + "." + base64(payload);
  std::vector<std::uint8_t> mac(32);
  std::size_t size = 0;
  EXPECT_NE(EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, secret.data(), secret.size(),
                      reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(),
                      mac.size(), &size),
            nullptr);
  return text + "." + common::base64url_encode(mac);
}

}  // namespace doorbuster::edge::testing

#pragma once

#include <openssl/evp.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "edge/token.hpp"

/// OpenSSL's objects with owners; for this folder's .cpp files only.
namespace doorbuster::edge {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using PublicKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

/// RFC 7518, section 3.2: as long as the MAC.
inline constexpr std::size_t kMinSecretBytes = 32;
/// RFC 7518, section 3.3; above the upper bound one signature would cost milliseconds.
inline constexpr int kMinRsaBits = 2048;
inline constexpr int kMaxRsaBits = 8192;

/// SubjectPublicKeyInfo; null when the text is anything else.
[[nodiscard]] PublicKey read_public_key(std::string_view pem);
[[nodiscard]] std::string write_public_key(EVP_PKEY* key);
/// The algorithm that a public key is pinned to; nothing when we verify none with it.
[[nodiscard]] std::optional<Algorithm> algorithm_of(EVP_PKEY* key);

}  // namespace doorbuster::edge

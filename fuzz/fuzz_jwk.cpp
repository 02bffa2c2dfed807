#include <algorithm>
#include <boost/json.hpp>

#include "common/metrics.hpp"
#include "common/text.hpp"
#include "edge/openssl.hpp"
#include "edge/token.hpp"
#include "fuzz/fuzz.hpp"

/// Keys from a JWK, a JWK set or PEM, as a file or an identity provider has them.
///
/// - Every key that is found can be used: a verifier takes it, and refuses a token without one of
///   its signatures.
/// - A secret is long enough and not public; a public key is one of the named kinds, and its PEM
///   text reads back as itself.
/// - An HS256 secret comes back from the JWK that is made of it; one byte too short is refused.
namespace doorbuster::fuzz {
namespace {

using edge::Algorithm;
using edge::VerificationKey;

void check_key(const VerificationKey& key) {
  if (key.algorithm == Algorithm::kHs256) {
    DOORBUSTER_ENSURE(key.secret.size() >= edge::kMinSecretBytes, "a secret is long enough");
    DOORBUSTER_ENSURE(key.public_key_pem.empty(), "a secret is not public");
    return;
  }
  DOORBUSTER_ENSURE(key.secret.empty(), "a public key is no secret");
  DOORBUSTER_ENSURE(key.public_key_pem.starts_with("-----BEGIN PUBLIC KEY-----\n"), "PEM");
  const auto again = edge::parse_keys(key.public_key_pem);
  DOORBUSTER_ENSURE(again && again->size() == 1, "what was written can be read");
  DOORBUSTER_ENSURE(again->front().algorithm == key.algorithm &&
                        again->front().public_key_pem == key.public_key_pem,
                    "as what it was");
  const edge::PublicKey parsed = edge::read_public_key(key.public_key_pem);
  DOORBUSTER_ENSURE(parsed && edge::algorithm_of(parsed.get()) == key.algorithm, "as what it was");
}

/// `bytes` is what a stranger takes for a signature.
void check_use(const std::vector<VerificationKey>& keys, std::string_view bytes) {
  static const std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  std::string signature(bytes.substr(0, 64));
  signature.resize(64, '0');  // the size that ES256 and Ed25519 want
  const std::string encoded = common::base64url_encode(
      {reinterpret_cast<const std::uint8_t*>(signature.data()), signature.size()});
  // {"alg":"HS256"}.{"exp":4000000000}, with each of the algorithms.
  const auto verifier = edge::make_token_verifier({}, keys, *metrics);
  for (const char* text : {"Bearer eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjQwMDAwMDAwMDB9.",
                           "Bearer eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjQwMDAwMDAwMDB9.",
                           "Bearer eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjQwMDAwMDAwMDB9.",
                           "Bearer eyJhbGciOiJFZERTQSJ9.eyJleHAiOjQwMDAwMDAwMDB9."}) {
    const auto refused = verifier->member(text + encoded, common::Instant{});
    DOORBUSTER_ENSURE(!refused && (refused.error() == edge::TokenRefusal::kSignature ||
                                   refused.error() == edge::TokenRefusal::kAlgorithm ||
                                   refused.error() == edge::TokenRefusal::kUnknownKey),
                      "no token without a signature");
  }
}

void check_secret(std::string_view secret) {
  const std::string encoded = common::base64url_encode(
      {reinterpret_cast<const std::uint8_t*>(secret.data()), secret.size()});
  const auto keys = edge::parse_keys(R"({"kty":"oct","kid":"k","k":")" + encoded + "\"}");
  const bool long_enough = secret.size() >= edge::kMinSecretBytes;
  DOORBUSTER_ENSURE(keys.has_value() == long_enough, "32 bytes or more");
  if (!keys) return;
  DOORBUSTER_ENSURE(keys->size() == 1 && keys->front().secret == secret && keys->front().kid == "k",
                    "a secret comes back");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster;        // NOLINT(google-build-using-namespace)
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  const Exact text(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto keys = edge::parse_keys(text.view());
  if (keys) {
    DOORBUSTER_ENSURE(!keys->empty(), "some key, or an error");
    std::ranges::for_each(*keys, check_key);
    check_use(*keys, text.view());
  } else {
    DOORBUSTER_ENSURE(
        keys.error().code == common::ErrorCode::kInvalid && !keys.error().message.empty(),
        "kInvalid with a message");
  }
  check_secret(text.view().substr(0, 64));
  return 0;
}

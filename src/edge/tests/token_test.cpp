#include "edge/token.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "edge/jwt.hpp"
#include "edge/tests/support.hpp"

namespace {
// Of the thread that counts, so that nobody else's are among them.
thread_local std::size_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: g++ would see malloc() and free() meet `new` and `delete`, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace doorbuster::edge {
namespace {

using common::Instant;
using common::MemberId;
using std::chrono::microseconds;
using std::chrono::seconds;
using testing::base64;
using testing::hs256_token;
using testing::kNow;
using testing::seconds_from_now;
using testing::Signer;

const std::string kSecret = "a secret of thirty-two bytes, ok";

VerificationKey hs256_key(std::string kid, std::string secret = kSecret) {
  return {.kid = std::move(kid),
          .algorithm = Algorithm::kHs256,
          .secret = std::move(secret),
          .public_key_pem = {}};
}

/// Claims of member 42, with `more` (", ..." ) added.
std::string member_claims(const std::string& more = "") {
  return R"({"iss":"doorbuster","aud":"doorbuster","sub":"42","exp":)" + seconds_from_now(600) +
         more + "}";
}
std::string admin_claims() {
  return R"({"iss":"doorbuster","aud":"doorbuster-admin","sub":"alice","exp":)" +
         seconds_from_now(600) + "}";
}
std::string header(const std::string& alg, const std::string& kid = "") {
  return R"({"alg":")" + alg + "\"" + (kid.empty() ? "" : R"(,"kid":")" + kid + "\"") + "}";
}

class TokenVerifierTest : public ::testing::Test {
 protected:
  void use(std::vector<VerificationKey> keys) {
    verifier_ = make_token_verifier(config_, std::move(keys), *metrics_);
  }

  /// The member, or why not, as a text.
  std::string member(const std::string& token, Instant now = kNow) {
    const auto verdict = verifier_->member("Bearer " + token, now);
    return verdict ? std::to_string(verdict->value()) : name(verdict.error());
  }
  std::string admin(const std::string& token, Instant now = kNow) {
    const auto verdict = verifier_->admin("Bearer " + token, now);
    return verdict ? *verdict : name(verdict.error());
  }
  static std::string name(TokenRefusal why) {
    switch (why) {
      case TokenRefusal::kMissing:
        return "missing";
      case TokenRefusal::kMalformed:
        return "malformed";
      case TokenRefusal::kUnknownKey:
        return "unknown_key";
      case TokenRefusal::kAlgorithm:
        return "algorithm";
      case TokenRefusal::kSignature:
        return "signature";
      case TokenRefusal::kExpired:
        return "expired";
      case TokenRefusal::kNotYet:
        return "not_yet";
      case TokenRefusal::kIssuer:
        return "issuer";
      case TokenRefusal::kAudience:
        return "audience";
      case TokenRefusal::kSubject:
        return "subject";
      case TokenRefusal::kTooLong:
        return "too_long";
    }
    return "?";
  }
  std::int64_t refused(const char* reason) {
    return metrics_->counter("edge_tokens_refused_total", "", {{"reason", reason}}).value();
  }

  TokenConfig config_;
  std::unique_ptr<common::Metrics> metrics_ = common::make_metrics();
  std::unique_ptr<TokenVerifier> verifier_ =
      make_token_verifier(config_, {hs256_key("k1")}, *metrics_);
};

// ---- good tokens

TEST_F(TokenVerifierTest, TakesTheExampleOfRfc7515) {
  // Appendix A.1: signed by somebody else's program.
  const auto keys = parse_keys(
      R"({"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"})");
  ASSERT_TRUE(keys);
  config_.issuer = "joe";
  use(*keys);
  const std::string token =
      "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
      "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl"
      "fQ."
      "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
  const Instant end{seconds{1'300'819'380}};
  EXPECT_EQ(member(token, end), "audience")
      << "all but the audience, which it has none of, is good";
  EXPECT_EQ(member(token, end + seconds{30}), "expired");
  EXPECT_EQ(member(token.substr(0, token.size() - 1) + "g", end), "signature");
}

TEST_F(TokenVerifierTest, TakesMembersTokensOfEveryAlgorithm) {
  use({hs256_key("h"), Signer::rsa().key("r"), Signer::p256().key("e"),
       Signer::ed25519().key("d")});
  for (int i = 0; i < 2; ++i) {  // the second time from memory
    EXPECT_EQ(member(hs256_token(header("HS256", "h"), member_claims(), kSecret)), "42");
    EXPECT_EQ(member(Signer::rsa().token(header("RS256", "r"), member_claims())), "42");
    EXPECT_EQ(member(Signer::p256().token(header("ES256", "e"), member_claims())), "42");
    EXPECT_EQ(member(Signer::ed25519().token(header("EdDSA", "d"), member_claims())), "42");
  }
}

TEST_F(TokenVerifierTest, TakesTheTokensThatTheProductMakes) {
  const TokenClaims claims{.subject = "9223372036854775807",
                           .issuer = "doorbuster",
                           .audience = "doorbuster",
                           .issued_at = kNow + microseconds{999'999},
                           .expires_at = kNow + seconds{60} + microseconds{999'999}};
  const std::string token = make_hs256_token(claims, hs256_key("k1"));
  EXPECT_EQ(member(token), "9223372036854775807");
  EXPECT_EQ(member(token, kNow + seconds{90} - microseconds{1}), "9223372036854775807");
  EXPECT_EQ(member(token, kNow + seconds{90}), "expired");
  use({development_key()});
  EXPECT_EQ(member(make_hs256_token(claims, development_key())), "9223372036854775807");
}

TEST_F(TokenVerifierTest, TakesAdministratorsTokens) {
  EXPECT_EQ(admin(hs256_token(header("HS256"), admin_claims(), kSecret)), "alice");
}

TEST_F(TokenVerifierTest, TakesTheSchemeInAnyCase) {
  const std::string token = hs256_token(header("HS256"), member_claims(), kSecret);
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER ", "bEaReR "}) {
    EXPECT_EQ(verifier_->member(scheme + token, kNow), MemberId{42}) << scheme;
  }
}

TEST_F(TokenVerifierTest, AllocatesNothingForAMembersHs256TokenOfTheUsualForm) {
  const std::string first = "Bearer " + hs256_token(header("HS256", "k1"),
                                                    member_claims(R"(,"iat":1796000000)"), kSecret);
  std::string claims = member_claims(R"(,"iat":1796000001,"roles":["a","b"],"x":{"y":[{}]})");
  claims.replace(claims.find("42"), 2, "9223372036854775807");
  const std::string second = "Bearer " + hs256_token(header("HS256", "k1"), claims, kSecret);
  EXPECT_EQ(verifier_->member(first, kNow), MemberId{42});  // sets up what the thread keeps
  const std::size_t before = allocations;
  const auto verdict = verifier_->member(second, kNow);
  const auto again = verifier_->member(first, kNow);
  const std::size_t after = allocations;
  EXPECT_EQ(verdict, MemberId{9'223'372'036'854'775'807});
  EXPECT_EQ(again, MemberId{42});
  EXPECT_EQ(after - before, 0U);
}

// ---- case 14 and its relatives

TEST_F(TokenVerifierTest, RefusesAPublicKeyUsedAsAnHmacSecret) {
  use({Signer::rsa().key("r"), Signer::p256().key("e"), Signer::ed25519().key("")});
  for (const Signer* signer : {&Signer::rsa(), &Signer::p256(), &Signer::ed25519()}) {
    const std::string pem = signer->pem();
    for (const char* kid : {"r", "e", "other", ""}) {
      EXPECT_EQ(member(hs256_token(header("HS256", kid), member_claims(), pem)), "algorithm")
          << kid;
    }
  }
}

TEST_F(TokenVerifierTest, RefusesAPublicKeyUsedAsAnHmacSecretAlsoNextToAnHmacKey) {
  use({hs256_key("h"), Signer::rsa().key("r")});
  const std::string pem = Signer::rsa().pem();
  EXPECT_EQ(member(hs256_token(header("HS256", "r"), member_claims(), pem)), "algorithm");
  EXPECT_EQ(member(hs256_token(header("HS256", "h"), member_claims(), pem)), "signature");
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), pem)), "signature");
}

TEST_F(TokenVerifierTest, RefusesNoneInEverySpelling) {
  for (const char* alg :
       {"none", "None", "NONE", "nOnE", "", "hs256", "HS384", "HS512", "RS256", "PS256"}) {
    for (const char* kid : {"", "k1"}) {
      const std::string text = base64(header(alg, kid)) + "." + base64(member_claims());
      EXPECT_EQ(member(text + "."), "malformed") << alg;
      EXPECT_EQ(member(text + ".AAAA"), "algorithm") << alg;
      EXPECT_EQ(member(hs256_token(header(alg, kid), member_claims(), kSecret)), "algorithm")
          << alg;
    }
  }
  EXPECT_EQ(member(hs256_token("{}", member_claims(), kSecret)), "algorithm");
  EXPECT_EQ(member(hs256_token(R"({"typ":"JWT"})", member_claims(), kSecret)), "algorithm");
}

TEST_F(TokenVerifierTest, RefusesATokenWithoutAnEnd) {
  const std::string claims = R"({"iss":"doorbuster","aud":"doorbuster","sub":"42"})";
  EXPECT_EQ(member(hs256_token(header("HS256"), claims, kSecret)), "malformed");
}

TEST_F(TokenVerifierTest, RefusesAnotherAudience) {
  std::string claims = member_claims();
  claims.replace(claims.find(R"("aud":"doorbuster")"), 18, R"("aud":"somewhere-")");
  EXPECT_EQ(member(hs256_token(header("HS256"), claims, kSecret)), "audience");
}

TEST_F(TokenVerifierTest, LetsNeitherMembersNorAdministratorsStandForEachOther) {
  use({hs256_key("h"), Signer::ed25519().key("d")});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(admin(hs256_token(header("HS256"), member_claims(), kSecret)), "audience");
    EXPECT_EQ(member(hs256_token(header("HS256"), admin_claims(), kSecret)), "audience");
    // Also when the signature was remembered from the other door.
    const std::string of_member = Signer::ed25519().token(header("EdDSA"), member_claims());
    const std::string of_admin = Signer::ed25519().token(header("EdDSA"), admin_claims());
    EXPECT_EQ(member(of_member), "42");
    EXPECT_EQ(admin(of_member), "audience");
    EXPECT_EQ(admin(of_admin), "alice");
    EXPECT_EQ(member(of_admin), "audience");
  }
  const std::string both =
      R"({"iss":"doorbuster","aud":["doorbuster","doorbuster-admin"],"sub":"42","exp":)" +
      seconds_from_now(600) + "}";
  EXPECT_EQ(member(hs256_token(header("HS256"), both, kSecret)), "audience");
  EXPECT_EQ(admin(hs256_token(header("HS256"), both, kSecret)), "audience");
}

TEST_F(TokenVerifierTest, RefusesAnotherIssuerUnlessAnyWillDo) {
  std::string claims = member_claims();
  claims.replace(claims.find(R"("iss":"doorbuster")"), 18, R"("iss":"doorbustes")");
  const std::string token = hs256_token(header("HS256"), claims, kSecret);
  EXPECT_EQ(member(token), "issuer");
  config_.issuer.clear();
  use({hs256_key("k1")});
  EXPECT_EQ(member(token), "42");
}

TEST_F(TokenVerifierTest, RefusesKeysThatATokenBringsAlong) {
  use({Signer::rsa().key("r")});
  const std::string jwk = Signer::other_rsa().jwk() + "}";
  for (const std::string kid : {R"(,"kid":"r")", ""}) {
    const std::string with_key =
        R"({"alg":"RS256")" + kid + R"(,"jwk":)" + jwk + R"(,"jku":"http://127.0.0.1/keys"})";
    EXPECT_EQ(member(Signer::other_rsa().token(with_key, member_claims())), "signature");
  }
}

TEST_F(TokenVerifierTest, RefusesExtensionsThatMustBeUnderstood) {
  const std::string critical = R"({"alg":"HS256","crit":["b64"],"b64":true})";
  EXPECT_EQ(member(hs256_token(critical, member_claims(), kSecret)), "malformed");
}

TEST_F(TokenVerifierTest, RefusesRepeatedClaimsAndHeaders) {
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(R"(,"sub":"43")"), kSecret)),
            "malformed");
  EXPECT_EQ(member(hs256_token(R"({"alg":"HS256","alg":"HS256"})", member_claims(), kSecret)),
            "malformed");
}

TEST_F(TokenVerifierTest, RefusesATokenWhereAnyCharacterWasChanged) {
  for (const Signer* signer : {&Signer::p256(), &Signer::ed25519()}) {
    use({signer->key("k")});
    const std::string good =
        signer->token(header(std::string(to_string(signer->algorithm()))), member_claims());
    ASSERT_EQ(member(good), "42");
    for (std::size_t i = 0; i < good.size(); i += 7) {
      std::string bad = good;
      bad[i] = bad[i] == 'A' ? 'B' : 'A';
      EXPECT_NE(member(bad), "42") << i;
    }
  }
}

RC_GTEST_FIXTURE_PROP(TokenVerifierTest, NeverTakesADamagedHs256Token, ()) {
  const std::string good = hs256_token(header("HS256", "k1"), member_claims(), kSecret);
  std::string bad = good;
  const auto at = *rc::gen::inRange<std::size_t>(0, good.size());
  bad[at] = *rc::gen::arbitrary<char>();
  RC_PRE(bad != good);
  RC_ASSERT(member(bad) != "42");
}

RC_GTEST_FIXTURE_PROP(TokenVerifierTest, RefusesAnyTextWithoutACrash, (const std::string& text)) {
  RC_ASSERT(!verifier_->member(text, kNow));
  RC_ASSERT(!verifier_->member("Bearer " + text, kNow));
  RC_ASSERT(!verifier_->member("Bearer " + hs256_token(text, text, kSecret), kNow));
  RC_ASSERT(!verifier_->member("Bearer " + hs256_token(header("HS256"), text, kSecret), kNow));
}

TEST_F(TokenVerifierTest, RefusesSignaturesOfTheWrongLength) {
  const std::string good = hs256_token(header("HS256"), member_claims(), kSecret);
  const std::string text = good.substr(0, good.rfind('.'));
  EXPECT_EQ(member(text + "." + base64(std::string(31, 'x'))), "signature");
  EXPECT_EQ(member(text + "." + base64(std::string(33, 'x'))), "signature");
  EXPECT_EQ(member(text + "." + base64(std::string(1024, 'x'))), "signature");
  EXPECT_EQ(member(text + "." + base64(std::string(1025, 'x'))), "malformed");
}

TEST_F(TokenVerifierTest, TakesEs256SignaturesOnlyAsRAndS) {
  use({Signer::p256().key("")});
  const std::string text = base64(header("ES256")) + "." + base64(member_claims());
  const std::vector<std::uint8_t> raw = Signer::p256().sign(text);
  ASSERT_EQ(raw.size(), 64U);
  EXPECT_EQ(member(text + "." + common::base64url_encode(raw)), "42");
  // The same numbers in DER, as other programs write them.
  std::vector<std::uint8_t> der{0x30, 0, 0x02, 0x21, 0x00};
  der.insert(der.end(), raw.begin(), raw.begin() + 32);
  der.insert(der.end(), {0x02, 0x21, 0x00});
  der.insert(der.end(), raw.begin() + 32, raw.end());
  der[1] = static_cast<std::uint8_t>(der.size() - 2);
  const std::string other = base64(header("ES256")) + "." + base64(member_claims(R"(,"x":1)"));
  EXPECT_EQ(member(text + "." + common::base64url_encode(der)), "signature");
  EXPECT_EQ(member(other + "." + common::base64url_encode(raw)), "signature");
  EXPECT_EQ(member(other + "." + common::base64url_encode(std::vector<std::uint8_t>(64))),
            "signature");
  EXPECT_EQ(member(other + "." + common::base64url_encode(std::vector<std::uint8_t>(64, 0xFF))),
            "signature");
}

// ---- the header and its shape

TEST_F(TokenVerifierTest, TellsNoTokenFromABadOne) {
  EXPECT_EQ(verifier_->member("", kNow).error(), TokenRefusal::kMissing);
  for (const char* bad :
       {"Bearer", "Bearer ", "Basic YTpi", "bearerx", "Bearer\tx.y.z", "Bearer  x.y.z", "Bearer x",
        "Bearer x.y", "Bearer ....", "Bearer a.b.c.d", " Bearer x.y.z", "Token x.y.z"}) {
    EXPECT_EQ(verifier_->member(bad, kNow).error(), TokenRefusal::kMalformed) << bad;
  }
}

TEST_F(TokenVerifierTest, RefusesPaddingSpacesAndOtherAlphabets) {
  const std::string good = hs256_token(header("HS256"), member_claims(), kSecret);
  ASSERT_EQ(member(good), "42");
  EXPECT_EQ(member(good + "="), "malformed");
  EXPECT_EQ(member(good + " "), "malformed");
  EXPECT_EQ(member(good + "\n"), "malformed");
  EXPECT_EQ(member(good + ".x"), "malformed");
  EXPECT_EQ(member(" " + good), "malformed");
}

TEST_F(TokenVerifierTest, TakesATokenOfJustTheLargestSizeAndNoLarger) {
  const auto padded = [](std::size_t padding) {
    return hs256_token(header("HS256"),
                       member_claims(R"(,"x":")" + std::string(padding, 'x') + "\""), kSecret);
  };
  for (const std::size_t limit : {std::size_t{512}, std::size_t{4096}, std::size_t{65'536}}) {
    // Three bytes of the payload are four characters of the token.
    const std::string token = padded((limit - padded(0).size()) / 4 * 3);
    config_.max_token_bytes = token.size();
    use({hs256_key("k1")});
    EXPECT_EQ(member(token), "42") << limit;
    config_.max_token_bytes = token.size() - 1;
    use({hs256_key("k1")});
    EXPECT_EQ(member(token), "too_long") << limit;
  }
}

TEST_F(TokenVerifierTest, TakesHeadersWithCertificatesThatAreLargerThanUsual) {
  config_.max_token_bytes = 16'384;
  use({hs256_key("k1")});
  const std::string large = R"({"x5c":[")" + std::string(6000, 'x') + R"("],"alg":"HS256"})";
  EXPECT_EQ(member(hs256_token(large, member_claims(), kSecret)), "42");
}

// ---- time

TEST_F(TokenVerifierTest, JudgesTimeWithItsLeeway) {
  const std::string ends = hs256_token(header("HS256"), member_claims(), kSecret);
  EXPECT_EQ(member(ends, kNow + seconds{630} - microseconds{1}), "42");
  EXPECT_EQ(member(ends, kNow + seconds{630}), "expired");
  for (const char* claim : {"nbf", "iat"}) {
    const std::string begins = hs256_token(
        header("HS256"), member_claims(",\"" + std::string(claim) + "\":" + seconds_from_now(100)),
        kSecret);
    EXPECT_EQ(member(begins, kNow + seconds{70} - microseconds{1}), "not_yet");
    EXPECT_EQ(member(begins, kNow + seconds{70}), "42");
  }
}

TEST_F(TokenVerifierTest, JudgesTimeAgainEachTimeForATokenItRemembers) {
  use({Signer::ed25519().key("")});
  const std::string token =
      Signer::ed25519().token(header("EdDSA"), member_claims(",\"nbf\":" + seconds_from_now(0)));
  EXPECT_EQ(member(token), "42");
  EXPECT_EQ(member(token, kNow + seconds{630} - microseconds{1}), "42");
  EXPECT_EQ(member(token, kNow - seconds{30} - microseconds{1}), "not_yet");
  EXPECT_EQ(member(token, kNow + seconds{630}), "expired");
  EXPECT_EQ(member(token, kNow + seconds{631}), "expired");
  EXPECT_EQ(member(token), "42") << "by a clock that was set back it is good again";
}

// ---- keys and their rotation

TEST_F(TokenVerifierTest, FindsTheKeyByItsKid) {
  const std::string other(32, 'o');
  use({hs256_key("k1"), hs256_key("k2", other)});
  EXPECT_EQ(member(hs256_token(header("HS256", "k1"), member_claims(), kSecret)), "42");
  EXPECT_EQ(member(hs256_token(header("HS256", "k2"), member_claims(), other)), "42");
  EXPECT_EQ(member(hs256_token(header("HS256", "k2"), member_claims(), kSecret)), "signature");
  EXPECT_EQ(member(hs256_token(header("HS256", "k3"), member_claims(), kSecret)), "unknown_key");
}

TEST_F(TokenVerifierTest, TriesAKeyWithoutKidForKidsThatNoOtherHas) {
  const std::string other(32, 'o');
  use({hs256_key(""), hs256_key("k2", other)});
  EXPECT_EQ(member(hs256_token(header("HS256", "anything"), member_claims(), kSecret)), "42");
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), kSecret)), "42");
  EXPECT_EQ(member(hs256_token(header("HS256", "k2"), member_claims(), kSecret)), "signature");
}

TEST_F(TokenVerifierTest, TriesFourKeysForATokenWithoutKidAndNotOneMore) {
  std::vector<VerificationKey> keys;
  for (char c = 'a'; c < 'a' + 5; ++c) keys.push_back(hs256_key({c}, std::string(32, c)));
  keys.insert(keys.begin(), Signer::rsa().key("of another algorithm, so not tried"));
  use(keys);
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), std::string(32, 'a'))), "42");
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), std::string(32, 'd'))), "42");
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), std::string(32, 'e'))),
            "signature");
  EXPECT_EQ(member(hs256_token(header("HS256", "e"), member_claims(), std::string(32, 'e'))), "42");
}

TEST_F(TokenVerifierTest, AsksForNewKeysOnlyWhenATokenNamesAnUnknownOne) {
  int asked = 0;
  verifier_->on_unknown_key([&asked] { ++asked; });
  EXPECT_EQ(member(hs256_token(header("HS256", "k1"), member_claims(), kSecret)), "42");
  EXPECT_EQ(member(hs256_token(header("HS256", "k1"), member_claims(), std::string(32, 'x'))),
            "signature");
  EXPECT_EQ(member("x.y.z"), "malformed");
  EXPECT_EQ(member(hs256_token(header("none", "k1"), member_claims(), kSecret)), "algorithm");
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(member(hs256_token(header("HS256", "k2"), member_claims(), kSecret)), "unknown_key");
  EXPECT_EQ(asked, 1);
}

TEST_F(TokenVerifierTest, FollowsARotation) {
  const std::string fresh(32, 'f');
  const std::string of_old = hs256_token(header("HS256", "k1"), member_claims(), kSecret);
  const std::string of_new = hs256_token(header("HS256", "k2"), member_claims(), fresh);
  EXPECT_EQ(member(of_old), "42");
  EXPECT_EQ(member(of_new), "unknown_key");
  verifier_->replace_keys({hs256_key("k1"), hs256_key("k2", fresh)});
  EXPECT_EQ(member(of_old), "42");
  EXPECT_EQ(member(of_new), "42");
  verifier_->replace_keys({hs256_key("k2", fresh)});
  EXPECT_EQ(member(of_old), "unknown_key");
  EXPECT_EQ(member(of_new), "42");
  verifier_->replace_keys({});
  EXPECT_EQ(member(of_new), "unknown_key");
}

TEST_F(TokenVerifierTest, ForgetsWhatItRememberedOfAKeyThatIsGone) {
  use({Signer::rsa().key("r")});
  const std::string token = Signer::rsa().token(header("RS256", "r"), member_claims());
  EXPECT_EQ(member(token), "42");
  verifier_->replace_keys({Signer::other_rsa().key("r")});
  EXPECT_EQ(member(token), "signature");
  verifier_->replace_keys({Signer::rsa().key("r")});
  EXPECT_EQ(member(token), "42");
}

TEST_F(TokenVerifierTest, IsNotMistakenForAnotherVerifierOnTheSameThread) {
  const auto other =
      make_token_verifier(config_, {hs256_key("k1", std::string(32, 'o'))}, *metrics_);
  const std::string mine = "Bearer " + hs256_token(header("HS256", "k1"), member_claims(), kSecret);
  const std::string others =
      "Bearer " + hs256_token(header("HS256", "k1"), member_claims(), std::string(32, 'o'));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(verifier_->member(mine, kNow));
    EXPECT_EQ(other->member(mine, kNow).error(), TokenRefusal::kSignature);
    EXPECT_TRUE(other->member(others, kNow));
    EXPECT_EQ(verifier_->member(others, kNow).error(), TokenRefusal::kSignature);
  }
}

TEST_F(TokenVerifierTest, VerifiesInManyThreadsWhileKeysChange) {
  const std::string fresh(32, 'f');
  const std::vector<VerificationKey> both{hs256_key("k1"), hs256_key("k2", fresh),
                                          Signer::ed25519().key("d")};
  const std::vector<VerificationKey> only_first{hs256_key("k1"), Signer::ed25519().key("d")};
  use(both);
  std::atomic<int> asked{0};
  verifier_->on_unknown_key([&asked] { asked.fetch_add(1); });
  const std::string steady = hs256_token(header("HS256", "k1"), member_claims(), kSecret);
  const std::string slow = Signer::ed25519().token(header("EdDSA", "d"), member_claims());
  const std::string rotating = hs256_token(header("HS256", "k2"), member_claims(), fresh);
  std::atomic<bool> stop{false};
  std::atomic<int> refused_rotating{0};
  const auto work = [&] {
    while (!stop.load()) {
      EXPECT_EQ(member(steady), "42");
      EXPECT_EQ(member(slow), "42");
      const std::string verdict = member(rotating);
      if (verdict == "unknown_key") {
        refused_rotating.fetch_add(1);
      } else {
        EXPECT_EQ(verdict, "42");
      }
    }
  };
  std::thread a(work);
  std::thread b(work);
  for (int i = 0; i < 100 || refused_rotating.load() == 0; ++i) {
    verifier_->replace_keys(i % 2 == 0 ? only_first : both);
    std::this_thread::yield();
  }
  stop = true;
  a.join();
  b.join();
  EXPECT_EQ(asked.load(), refused_rotating.load());
}

TEST_F(TokenVerifierTest, RemembersOnlyAsMuchAsItMayAndStillAnswersRight) {
  for (const std::size_t entries : {0U, 2U}) {
    config_.cache_entries = entries;
    use({Signer::ed25519().key("")});
    for (int round = 0; round < 2; ++round) {
      for (int i = 1; i <= 6; ++i) {
        std::string claims = member_claims();
        claims.replace(claims.find("42"), 2, std::to_string(i));
        EXPECT_EQ(member(Signer::ed25519().token(header("EdDSA"), claims)), std::to_string(i));
      }
    }
  }
}

TEST_F(TokenVerifierTest, CountsRefusalsByReasonAndNothingElse) {
  EXPECT_EQ(member(hs256_token(header("HS256"), member_claims(), kSecret)), "42");
  static_cast<void>(verifier_->member("", kNow));
  static_cast<void>(member("x"));
  static_cast<void>(member("x.y.z"));
  static_cast<void>(admin(hs256_token(header("HS256"), member_claims(), kSecret)));
  EXPECT_EQ(refused("missing"), 1);
  EXPECT_EQ(refused("malformed"), 2);
  EXPECT_EQ(refused("audience"), 1);
  for (const char* reason : {"unknown_key", "algorithm", "signature", "expired", "not_yet",
                             "issuer", "subject", "too_long"}) {
    EXPECT_EQ(refused(reason), 0) << reason;
  }
}

TEST(TokenVerifierDeathTest, TakesNoKeyThatCannotDoWhatItSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto metrics = common::make_metrics();
  const auto make = [&](VerificationKey key) {
    static_cast<void>(make_token_verifier({}, {std::move(key)}, *metrics));
  };
  EXPECT_DEATH(make(hs256_key("", std::string(31, 'x'))), "32 bytes or more");
  VerificationKey swapped = Signer::rsa().key("");
  swapped.algorithm = Algorithm::kEs256;
  EXPECT_DEATH(make(swapped), "serves the algorithm");
  swapped.public_key_pem = "no key";
  EXPECT_DEATH(make(swapped), "serves the algorithm");
}

}  // namespace
}  // namespace doorbuster::edge

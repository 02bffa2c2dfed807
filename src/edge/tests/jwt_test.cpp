#include "edge/jwt.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "edge/json_reader.hpp"
#include "edge/tests/json_tree.hpp"
#include "edge/token_cache.hpp"

namespace doorbuster::edge {
namespace {

using common::Instant;
using std::chrono::milliseconds;
using std::chrono::seconds;
namespace json = boost::json;

// ---- JsonReader

bool reads(std::string text) {
  JsonReader in(text);
  in.skip();
  return in.finish();
}

TEST(JsonReader, TakesEveryKindOfValue) {
  for (const char* yes :
       {"{}", "[]", "\"\"", "0", "-0", "-1.5e+3", "1E5", "0.25", "true", "false", "null",
        " { \"a\" : [ 1 , { } , [ ] ] ,\t\"b\":\r\n\"\\u00e9\" } ", "[[[[[[[[]]]]]]]]",
        "\"\xED\x95\xA0\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\ud83d\\ude00\""}) {
    EXPECT_TRUE(reads(yes)) << yes;
  }
}

TEST(JsonReader, RefusesWhatRfc8259DoesNotAllow) {
  for (const char* no : {"",
                         " ",
                         "{",
                         "}",
                         "[",
                         "]",
                         "{]",
                         "[}",
                         "{\"a\"}",
                         "{\"a\":}",
                         "{\"a\":1,}",
                         "{,}",
                         "{\"a\":1 \"b\":2}",
                         "{a:1}",
                         "{1:1}",
                         "[1,]",
                         "[,1]",
                         "[1 2]",
                         "[1]]",
                         "{}{}",
                         "{} x",
                         "01",
                         "-",
                         "-a",
                         "+1",
                         ".5",
                         "1.",
                         "1.e1",
                         "1e",
                         "1e+",
                         "0x1",
                         "1_0",
                         "NaN",
                         "Infinity",
                         "tru",
                         "True",
                         "nul",
                         "nulll",
                         "'a'",
                         "\"",
                         "\"a",
                         "\"\\",
                         "\"\\x\"",
                         "\"\\u12\"",
                         "\"\\u12g4\"",
                         "\"a\nb\"",
                         "\"a\tb\"",
                         "//c\n1",
                         "/**/1",
                         "1e999",
                         "-1e999"}) {
    EXPECT_FALSE(reads(no)) << no;
  }
}

TEST(JsonReader, RefusesTextThatReadersUnderstandDifferently) {
  EXPECT_FALSE(reads("\"\\u0000\""));
  EXPECT_FALSE(reads(std::string("\"a\0b\"", 5)));
  EXPECT_FALSE(reads("\"\\ud83d\""));
  EXPECT_FALSE(reads("\"\\ude00\""));
  EXPECT_FALSE(reads("\"\\ud83dx\""));
  EXPECT_FALSE(reads("\"\\ud83d\\u0041\""));
  EXPECT_FALSE(reads("\"\xC0\x80\""));
  EXPECT_FALSE(reads("\"\xFF\""));
  EXPECT_FALSE(reads("\xEF\xBB\xBF{}")) << "a byte order mark";
}

TEST(JsonReader, TakesItsDepthAndNotOneMore) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(reads(nested(JsonReader::kMaxDepth)));
  EXPECT_FALSE(reads(nested(JsonReader::kMaxDepth + 1)));
  EXPECT_FALSE(reads(nested(30'000)));
  std::string side_by_side = "[";
  for (int i = 0; i < 100; ++i) side_by_side += "[],{},";
  EXPECT_TRUE(reads(side_by_side + "0]"));
}

TEST(JsonReader, UnescapesStringsOfEveryLengthInPlace) {
  std::string text = R"("a\u0041\u00e9\u20ac\ud83d\ude00\n\/")";
  JsonReader in(text);
  EXPECT_EQ(in.read_string(), "aA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\n/");
  EXPECT_TRUE(in.finish());
}

TEST(JsonReader, TellsWholeNumbersFromOthers) {
  const auto number = [](std::string text) {
    JsonReader in(text);
    const JsonReader::Number read = in.read_number();
    EXPECT_TRUE(in.finish()) << text;
    return read;
  };
  EXPECT_EQ(number("0").whole, 0);
  EXPECT_EQ(number("-7").whole, -7);
  EXPECT_EQ(number("9223372036854775807").whole, 9'223'372'036'854'775'807);
  EXPECT_EQ(number("9223372036854775808").whole, std::nullopt);
  EXPECT_EQ(number("9223372036854775808").real, 9223372036854775808.0);
  EXPECT_EQ(number("1.0").whole, std::nullopt);
  EXPECT_EQ(number("1.5").real, 1.5);
  EXPECT_EQ(number("1e3").whole, std::nullopt);
  EXPECT_EQ(number("1e3").real, 1000);
}

/// JSON texts, half of them damaged in one place.
rc::Gen<std::string> json_texts() {
  const auto piece =
      rc::gen::elementOf(std::vector<std::string>{"{",           "}",
                                                  "[",           "]",
                                                  ",",           ":",
                                                  "\"a\"",       "\"b\"",
                                                  "\"\\u00e9\"", "\"\\ud83d\\ude00\"",
                                                  "1",           "-0.5",
                                                  "1e3",         "true",
                                                  "null",        " ",
                                                  "{\"a\":",     "[1,",
                                                  "\"exp\":",    "{}",
                                                  "[]",          "\"x\":{\"y\":[1,2]}"});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                      [](const std::vector<std::string>& pieces) {
                        std::string text;
                        for (const std::string& one : pieces) text += one;
                        return text;
                      });
}

RC_GTEST_PROP(JsonReader, AgreesWithBoostJsonOnSoupsOfJson, ()) {
  // Anything in brackets is more often valid than soup alone.
  const std::string soup = *json_texts();
  for (const std::string& text : {soup, "[" + soup + "]", "{\"k\":" + soup + "}"}) {
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = JsonReader::kMaxDepth;
    const json::value expected = json::parse(text, error, {}, options);
    std::string copy = text;
    JsonReader in(copy);
    static_cast<void>(tree(in));
    RC_ASSERT(in.finish() == !error);
  }
}

rc::Gen<json::value> values(int depth) {
  const auto text = rc::gen::map(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc\"\\/\n\x01\x7F "))),
      [](const std::string& one) { return json::value(one + "\xC3\xA9"); });
  const auto number = rc::gen::map(rc::gen::arbitrary<std::int64_t>(),
                                   [](std::int64_t one) { return json::value(one); });
  if (depth == 0) return rc::gen::oneOf(text, number);
  const auto below = rc::gen::container<std::vector<json::value>>(values(depth - 1));
  const auto array = rc::gen::map(below, [](const std::vector<json::value>& all) {
    return json::value(json::array(all.begin(), all.end()));
  });
  const auto object = rc::gen::map(below, [](const std::vector<json::value>& all) {
    json::object made;
    for (const json::value& one : all) made["name" + std::to_string(made.size())] = one;
    return json::value(made);
  });
  return rc::gen::oneOf(text, number, array, object);
}

RC_GTEST_PROP(JsonReader, ReadsWhatBoostJsonWrites, ()) {
  const json::value value = *rc::gen::resize(6, values(3));
  std::string text = json::serialize(value);
  JsonReader in(text);
  RC_ASSERT(tree(in) == value);
  RC_ASSERT(in.finish());
}

// ---- the three parts

TEST(TokenParts, AreThreeAndNoneIsEmpty) {
  const auto parts = split_token("aa.bb.cc");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->header, "aa");
  EXPECT_EQ(parts->payload, "bb");
  EXPECT_EQ(parts->signature, "cc");
  EXPECT_EQ(parts->signed_text, "aa.bb");
  for (const char* no : {"", ".", "..", "aa", "aa.bb", "aa.bb.", ".bb.cc", "aa..cc", "aa.bb.cc.",
                         "aa.bb.cc.dd", "aa.bb.cc.dd.ee"}) {
    EXPECT_FALSE(split_token(no)) << no;
  }
}

// ---- header

std::optional<std::string> alg_and_kid(std::string text) {
  const auto header = parse_header(text);
  if (!header) return std::nullopt;
  return std::string(header->alg) + "/" + std::string(header->kid);
}

TEST(TokenHeader, GivesAlgAndKidAndIgnoresTheRest) {
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","typ":"JWT"})"), "HS256/");
  EXPECT_EQ(
      alg_and_kid(R"({"kid":"k1","x5c":["a",{"b":[null]}],"alg":"RS256","jku":"http:\/\/x"})"),
      "RS256/k1");
  EXPECT_EQ(alg_and_kid("{}"), "/");
}

TEST(TokenHeader, RefusesRepeatedNamesHoweverTheyAreWritten) {
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","alg":"none"})"), std::nullopt);
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","\u0061lg":"none"})"), std::nullopt);
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","x":1,"x":1})"), std::nullopt);
}

TEST(TokenHeader, RefusesExtensionsThatMustBeUnderstood) {
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","crit":["exp"]})"), std::nullopt);
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","crit":[]})"), std::nullopt);
  EXPECT_EQ(alg_and_kid(R"({"alg":"HS256","\u0063rit":["b64"],"b64":false})"), std::nullopt);
}

TEST(TokenHeader, RefusesOtherTypesAndOtherTexts) {
  for (const char* no : {R"({"alg":1})", R"({"alg":null})", R"({"alg":["HS256"]})",
                         R"({"alg":"HS256","kid":1})", R"({"alg":"HS256","kid":null})", "[]",
                         "null", "\"HS256\"", "", R"({"alg":"HS256"} {})", R"({"alg":"HS256")"}) {
    EXPECT_EQ(alg_and_kid(no), std::nullopt) << no;
  }
}

// ---- claims

constexpr ExpectedClaims kExpected{.issuer = "me", .audience = "m", .admin_audience = "a"};

std::optional<Claims> claims_of(std::string& text) { return parse_claims(text, kExpected); }
bool good(std::string text) { return claims_of(text).has_value(); }

TEST(Claims, AreReadFromAnObject) {
  std::string text =
      R"({"iss":"me","aud":"m","sub":"42","exp":200,"nbf":100,"iat":90,"roles":[{"x":[1]}]})";
  const auto claims = claims_of(text);
  ASSERT_TRUE(claims);
  EXPECT_TRUE(claims->issuer_matches);
  EXPECT_TRUE(claims->for_members);
  EXPECT_FALSE(claims->for_admins);
  EXPECT_EQ(claims->subject, "42");
  EXPECT_EQ(claims->subject_number, std::nullopt);
  EXPECT_EQ(claims->expires_at, Instant{seconds{200}});
  EXPECT_EQ(claims->not_before, Instant{seconds{100}});
}

TEST(Claims, StartAtTheLaterOneOfNbfAndIat) {
  const auto start = [](std::string text) { return claims_of(text).value().not_before; };
  EXPECT_EQ(start(R"({"exp":200})"), Instant{});
  EXPECT_EQ(start(R"({"exp":200,"nbf":7})"), Instant{seconds{7}});
  EXPECT_EQ(start(R"({"exp":200,"iat":7})"), Instant{seconds{7}});
  EXPECT_EQ(start(R"({"exp":200,"nbf":7,"iat":8})"), Instant{seconds{8}});
  EXPECT_EQ(start(R"({"exp":200,"iat":8,"nbf":9})"), Instant{seconds{9}});
}

TEST(Claims, HaveDatesAsNumbersPerhapsWithAFraction) {
  const auto end = [](std::string text) { return claims_of(text).value().expires_at; };
  EXPECT_EQ(end(R"({"exp":1.5})"), Instant{milliseconds{1500}});
  EXPECT_EQ(end(R"({"exp":1796000523.25})"), Instant{milliseconds{1'796'000'523'250}});
  EXPECT_EQ(end(R"({"exp":1e3})"), Instant{seconds{1000}});
  EXPECT_EQ(end(R"({"exp":0})"), Instant{});
  EXPECT_EQ(end(R"({"exp":253402300799})"), Instant{seconds{253'402'300'799}});
}

TEST(Claims, AreRefusedWithoutAnEndOrWithImpossibleDates) {
  for (const char* no : {R"({"sub":"42"})", R"({"exp":null})", R"({"exp":"200"})", R"({"exp":-1})",
                         R"({"exp":-0.5})", R"({"exp":253402300800})", R"({"exp":253402300799.5})",
                         R"({"exp":1e300})", R"({"exp":9223372036854775808})", R"({"exp":[200]})",
                         R"({"exp":true})", R"({"exp":200,"nbf":"7"})", R"({"exp":200,"nbf":null})",
                         R"({"exp":200,"iat":"7"})", R"({"exp":200,"iat":-1})"}) {
    EXPECT_FALSE(good(no)) << no;
  }
  EXPECT_FALSE(good(R"({"exp":1796000523000})")) << "milliseconds would be good for ever";
}

TEST(Claims, AreRefusedWhenANameIsThereTwice) {
  EXPECT_FALSE(good(R"({"exp":200,"sub":"1","sub":"2"})"));
  EXPECT_FALSE(good(R"({"exp":200,"exp":300})"));
  EXPECT_FALSE(good(R"({"exp":200,"sub":"1","s\u0075b":"2"})"));
  EXPECT_FALSE(good(R"({"exp":200,"x":1,"y":2,"x":1})"));
  EXPECT_TRUE(good(R"({"exp":200,"x":{"sub":"1"},"sub":"2"})"))
      << "inside another one it is no claim";
}

TEST(Claims, MayHaveSixtyFourNamesAndNotOneMore) {
  const auto with_names = [](int count) {
    std::string text = R"({"exp":200)";
    for (int i = 1; i < count; ++i) text += ",\"x" + std::to_string(i) + "\":1";
    return text + "}";
  };
  EXPECT_TRUE(good(with_names(64)));
  EXPECT_FALSE(good(with_names(65)));
}

TEST(Claims, KnowTheirAudienceAsAStringOrInAList) {
  const auto audiences = [](const std::string& aud) {
    std::string text = R"({"exp":200,"aud":)" + aud + "}";
    const auto claims = claims_of(text);
    if (!claims) return std::string("refused");
    return std::string(claims->for_members ? "m" : "") + (claims->for_admins ? "a" : "");
  };
  EXPECT_EQ(audiences(R"("m")"), "m");
  EXPECT_EQ(audiences(R"("a")"), "a");
  EXPECT_EQ(audiences(R"("M")"), "");
  EXPECT_EQ(audiences(R"("")"), "");
  EXPECT_EQ(audiences(R"(["x","m"])"), "m");
  EXPECT_EQ(audiences(R"(["a","x"])"), "a");
  EXPECT_EQ(audiences(R"(["m","a"])"), "ma");
  EXPECT_EQ(audiences("[]"), "");
  EXPECT_EQ(audiences("null"), "refused");
  EXPECT_EQ(audiences("1"), "refused");
  EXPECT_EQ(audiences(R"(["m",1])"), "refused");
  EXPECT_EQ(audiences(R"([["m"]])"), "refused");
  EXPECT_EQ(audiences(R"({"m":"m"})"), "refused");
}

TEST(Claims, MatchTheIssuerToTheLetter) {
  const auto matches = [](std::string text) { return claims_of(text).value().issuer_matches; };
  EXPECT_TRUE(matches(R"({"exp":200,"iss":"me"})"));
  EXPECT_FALSE(matches(R"({"exp":200,"iss":"Me"})"));
  EXPECT_FALSE(matches(R"({"exp":200,"iss":"me "})"));
  EXPECT_FALSE(matches(R"({"exp":200})"));
  EXPECT_FALSE(good(R"({"exp":200,"iss":["me"]})"));
  std::string unchecked = R"({"exp":200})";
  EXPECT_TRUE(parse_claims(unchecked, {.issuer = "", .audience = "m", .admin_audience = "a"})
                  ->issuer_matches);
}

// ---- who and when

/// As parse_claims() takes a text, with what it says of places.
struct Parsed {
  explicit Parsed(std::string json) : text(std::move(json)) {
    std::string copy = text;
    claims = parse_claims(copy, kExpected, &places);
    if (claims && claims->subject.data() != nullptr) subject = claims->subject;
  }
  std::string text;
  std::optional<Claims> claims;
  ClaimPlaces places;
  std::string subject;
};

ClaimsShape shape_of(const std::string& text) {
  const Parsed parsed(text);
  ClaimsShape shape;
  if (parsed.claims) shape.learn(text, *parsed.claims, parsed.places);
  return shape;
}

const std::string kUsualPayload =
    R"({"iss":"me","aud":"m","sub":"1000000007","iat":1796000000,"nbf":1796000001,"exp":1796003600})";

TEST(ClaimsShape, ReadsTheDigitsOfAPayloadThatLooksTheSame) {
  const ClaimsShape shape = shape_of(kUsualPayload);
  const std::string other =
      R"({"iss":"me","aud":"m","sub":"9999999999","iat":1796000009,"nbf":1796000002,"exp":1796009999})";
  const auto claims = shape.read(other);
  ASSERT_TRUE(claims);
  EXPECT_EQ(claims->subject, "9999999999");
  EXPECT_EQ(claims->expires_at, Instant{seconds{1'796'009'999}});
  EXPECT_EQ(claims->not_before, Instant{seconds{1'796'000'009}});
  EXPECT_TRUE(claims->issuer_matches);
  EXPECT_TRUE(claims->for_members);
  EXPECT_FALSE(claims->for_admins);
  const auto number = shape_of(R"({"exp":200,"sub":42})").read(R"({"exp":201,"sub":43})");
  ASSERT_TRUE(number);
  EXPECT_EQ(number->subject_number, 43);
  EXPECT_EQ(number->expires_at, Instant{seconds{201}});
}

TEST(ClaimsShape, LeavesEverythingElseToTheParser) {
  const ClaimsShape shape = shape_of(kUsualPayload);
  ASSERT_TRUE(shape.read(kUsualPayload));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"1000000007", "100000000x"},
                                                        {"1000000007", "10000000\"7"},
                                                        {"1000000007", "100000007"},
                                                        {"1796000000", "0796000000"},
                                                        {"1796000000", "179600000."},
                                                        {"1796000000", "-796000000"},
                                                        {"\"me\"", "\"mE\""},
                                                        {"\"m\"", "\"a\""},
                                                        {"iat", "ibt"},
                                                        {"}", "} "}}) {
    std::string text = kUsualPayload;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(shape.read(text)) << text;
  }
  // More digits than a date may have are judged by the parser, too.
  EXPECT_FALSE(shape_of(R"({"exp":253402300799})").read(R"({"exp":253402300800})"));
  EXPECT_FALSE(ClaimsShape().read(kUsualPayload)) << "nothing was learned";
}

TEST(ClaimsShape, LearnsOnlyWhatIsPlain) {
  for (const std::string& text : std::vector<std::string>{
           R"({"exp":1.5})", R"({"exp":2e2})", R"({"exp":200,"sub":"x"})",
           R"({"exp":200,"sub":"\u0034"})", R"({"exp":200,"s\u0075b":"4"})",
           R"({"exp":200,"sub":-1})", R"({"exp":200,"sub":"1234567890123456789"})",
           R"({"exp":200,"x":")" + std::string(512, 'x') + "\"}"}) {
    ASSERT_TRUE(good(text)) << text;
    EXPECT_FALSE(shape_of(text).read(text)) << text;
  }
}

RC_GTEST_PROP(ClaimsShape, NeverContradictsTheParser, ()) {
  const auto digits = [](std::size_t count) {
    return *rc::gen::container<std::string>(count,
                                            rc::gen::inRange('0', static_cast<char>('9' + 1)));
  };
  const auto payload = [&](std::size_t sub, std::size_t exp, std::size_t iat, bool quoted) {
    const std::string quote = quoted ? "\"" : "";
    return R"({"iss":"me","aud":"m","sub":)" + quote + digits(sub) + quote + R"(,"exp":)" +
           digits(exp) + R"(,"iat":)" + digits(iat) + R"(,"x":[1,"2"]})";
  };
  const auto size = rc::gen::inRange<std::size_t>(1, 14);
  const std::size_t sub = *size;
  const std::size_t exp = *size;
  const std::size_t iat = *size;
  const bool quoted = *rc::gen::arbitrary<bool>();
  const ClaimsShape shape = shape_of(payload(sub, exp, iat, quoted));
  std::string text = payload(sub, exp, iat, quoted);
  if (*rc::gen::arbitrary<bool>()) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    text[at] = *rc::gen::element('0', '9', '"', ',', ' ', '-', '.', 'e', 'x', '}');
  }
  const auto claims = shape.read(text);
  const Parsed parsed(text);
  if (!claims) return;
  RC_ASSERT(parsed.claims.has_value());
  RC_ASSERT(claims->subject == parsed.subject);
  RC_ASSERT(claims->subject_number == parsed.claims->subject_number);
  RC_ASSERT(claims->expires_at == parsed.claims->expires_at);
  RC_ASSERT(claims->not_before == parsed.claims->not_before);
  RC_ASSERT(claims->issuer_matches == parsed.claims->issuer_matches);
  RC_ASSERT(claims->for_members == parsed.claims->for_members);
  RC_ASSERT(claims->for_admins == parsed.claims->for_admins);
}

TEST(TokenTime, IsAHalfOpenInterval) {
  const Instant from{seconds{1000}};
  const Instant to{seconds{2000}};
  const common::Instant::duration tick{1};
  EXPECT_EQ(judge_time(from, to, from - tick, seconds{0}), TokenRefusal::kNotYet);
  EXPECT_EQ(judge_time(from, to, from, seconds{0}), std::nullopt);
  EXPECT_EQ(judge_time(from, to, to - tick, seconds{0}), std::nullopt);
  EXPECT_EQ(judge_time(from, to, to, seconds{0}), TokenRefusal::kExpired);
  EXPECT_EQ(judge_time(from, to, from - seconds{30} - tick, seconds{30}), TokenRefusal::kNotYet);
  EXPECT_EQ(judge_time(from, to, from - seconds{30}, seconds{30}), std::nullopt);
  EXPECT_EQ(judge_time(from, to, to + seconds{30} - tick, seconds{30}), std::nullopt);
  EXPECT_EQ(judge_time(from, to, to + seconds{30}, seconds{30}), TokenRefusal::kExpired);
}

std::string who(const std::string& sub, const char* aud) {
  std::string text = R"({"iss":"me","exp":200,"aud":)" + std::string(aud) + sub + "}";
  const auto claims = claims_of(text);
  if (!claims) return "malformed";
  const auto principal = identify(*claims);
  if (!principal) {
    switch (principal.error()) {
      case TokenRefusal::kSubject:
        return "subject";
      case TokenRefusal::kAudience:
        return "audience";
      default:
        return "other";
    }
  }
  return std::to_string(principal->member.value()) + "/" + principal->admin;
}

TEST(Principal, OfAMemberIsANumberFrom1To2ToThe63Minus1) {
  const auto member = [](const std::string& sub) { return who(",\"sub\":" + sub, R"("m")"); };
  EXPECT_EQ(member(R"("1")"), "1/");
  EXPECT_EQ(member(R"("9223372036854775807")"), "9223372036854775807/");
  EXPECT_EQ(member("1"), "1/");
  EXPECT_EQ(member("9223372036854775807"), "9223372036854775807/");
  for (const char* no : {R"("0")", R"("01")", R"("-1")", R"("9223372036854775808")", R"("")",
                         R"(" 1")", R"("1\n")", R"("alice")", "0", "-1", "9223372036854775808",
                         "1.0", "1e3", "null", "true", "[1]", R"({"sub":"1"})"}) {
    EXPECT_EQ(member(no), "subject") << no;
  }
  EXPECT_EQ(who("", R"("m")"), "subject");
}

TEST(Principal, OfAnAdministratorIsANameOf1To64Characters) {
  const auto admin = [](const std::string& sub) { return who(",\"sub\":" + sub, R"("a")"); };
  EXPECT_EQ(admin(R"("alice@shop")"), "0/alice@shop");
  EXPECT_EQ(admin(R"("7")"), "0/7");
  const std::string letters(64, 'x');
  EXPECT_EQ(admin("\"" + letters + "\""), "0/" + letters);
  EXPECT_EQ(admin("\"" + letters + "x\""), "subject");
  std::string korean;
  for (int i = 0; i < 64; ++i) korean += "할";
  EXPECT_EQ(admin("\"" + korean + "\""), "0/" + korean);
  EXPECT_EQ(admin("\"" + korean + "할\""), "subject");
  for (const char* no : {R"("")", R"("a\nb")", R"("a\u001fb")", R"("a\u007fb")", "7", "null"}) {
    EXPECT_EQ(admin(no), "subject") << no;
  }
  EXPECT_EQ(who("", R"("a")"), "subject");
}

TEST(Principal, IsNeverBothAndNeverNobody) {
  const std::string sub = R"(,"sub":"7")";
  EXPECT_EQ(who(sub, R"(["m","a"])"), "audience");
  EXPECT_EQ(who(sub, R"("other")"), "audience");
  EXPECT_EQ(who(sub, "[]"), "audience");
}

TEST(Principal, NeedsTheIssuer) {
  std::string text = R"({"iss":"you","exp":200,"aud":"m","sub":"7"})";
  EXPECT_EQ(identify(*claims_of(text)).error(), TokenRefusal::kIssuer);
}

// ---- TokenCache

TEST(TokenCache, FindsWhatWasPutInUntilItIsErased) {
  TokenCache<int> cache(10);
  EXPECT_EQ(cache.find("a"), nullptr);
  cache.insert("a", 1);
  ASSERT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(*cache.find("a"), 1);
  cache.insert("a", 2);
  EXPECT_EQ(*cache.find("a"), 2);
  cache.erase("a");
  EXPECT_EQ(cache.find("a"), nullptr);
}

TEST(TokenCache, HoldsAtMostItsCapacityWhateverComes) {
  for (const std::size_t capacity : {0U, 1U, 2U, 3U, 10U, 101U}) {
    TokenCache<int> cache(capacity);
    for (int i = 0; i < 1000; ++i) {
      cache.insert(std::to_string(i), i);
      static_cast<void>(cache.find(std::to_string(i / 2)));
      ASSERT_LE(cache.size(), capacity);
    }
  }
}

TEST(TokenCache, KeepsWhatIsUsedDuringAFloodOfOthers) {
  TokenCache<int> cache(10);
  cache.insert("used", 1);
  for (int i = 0; i < 1000; ++i) {
    cache.insert(std::to_string(i), i);
    if (i % 4 == 0) {
      ASSERT_NE(cache.find("used"), nullptr) << i;
    }
  }
  EXPECT_EQ(cache.find("1"), nullptr);
}

TEST(TokenCache, ErasesFromBothGenerations) {
  TokenCache<int> cache(4);
  cache.insert("old", 1);
  cache.insert("b", 2);
  cache.insert("c", 3);  // "old" and "b" are the older generation now
  cache.erase("old");
  EXPECT_EQ(cache.find("old"), nullptr);
  EXPECT_NE(cache.find("b"), nullptr);
}

TEST(TokenCache, OfCapacityZeroKeepsNothing) {
  TokenCache<int> cache(0);
  cache.insert("a", 1);
  EXPECT_EQ(cache.find("a"), nullptr);
  EXPECT_EQ(cache.size(), 0U);
}

}  // namespace
}  // namespace doorbuster::edge

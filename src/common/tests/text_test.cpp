#include "common/text.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "common/result.hpp"

namespace doorbuster::common {
namespace {

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(Base64Url, WritesTheExamplesOfRfc4648WithoutPadding) {
  EXPECT_EQ(base64url_encode(bytes("")), "");
  EXPECT_EQ(base64url_encode(bytes("f")), "Zg");
  EXPECT_EQ(base64url_encode(bytes("fo")), "Zm8");
  EXPECT_EQ(base64url_encode(bytes("foo")), "Zm9v");
  EXPECT_EQ(base64url_encode(bytes("foob")), "Zm9vYg");
  EXPECT_EQ(base64url_encode(bytes("fooba")), "Zm9vYmE");
  EXPECT_EQ(base64url_encode(bytes("foobar")), "Zm9vYmFy");
  EXPECT_EQ(base64url_encode(Bytes{0xFB, 0xFF, 0xFE}), "-__-");
}

RC_GTEST_PROP(Base64Url, ReadsBackEverythingItWrites, (const Bytes& any)) {
  RC_ASSERT(base64url_decode(base64url_encode(any)) == any);
}

RC_GTEST_PROP(Base64Url, HasOneSpellingForEachValue, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ABCDwxyz0189-_+/=")));
  const auto decoded = base64url_decode(text);
  if (decoded) RC_ASSERT(base64url_encode(*decoded) == text);
}

TEST(Base64Url, RefusesPaddingOtherCharactersAndUnusedBits) {
  EXPECT_EQ(base64url_decode("Zg"), bytes("f"));
  for (const char* no : {"Zg==", "Zg=", "Zh", "Zm9", "Z", "Zm9vY", "Zm+v", "Zm/v", "Zm9v\n",
                         " Zm9v", "Zm\x80v", "Zm.v"}) {
    EXPECT_EQ(base64url_decode(no), std::nullopt) << no;
  }
  EXPECT_EQ(base64url_decode(std::string_view("Zm\0v", 4)), std::nullopt);
}

TEST(Base64Url, DecodesIntoRoomThatJustSufficesAndNoLess) {
  std::array<std::uint8_t, 4> room{};
  std::size_t size = 99;
  EXPECT_TRUE(base64url_decode_into("Zm9vYg", std::span(room).first(4), size));
  EXPECT_EQ(size, 4U);
  EXPECT_EQ(std::string(room.begin(), room.end()), "foob");
  EXPECT_FALSE(base64url_decode_into("Zm9vYg", std::span(room).first(3), size));
  EXPECT_TRUE(base64url_decode_into("", std::span(room).first(0), size));
  EXPECT_EQ(size, 0U);
}

TEST(Hex, IsLowerCase) {
  EXPECT_EQ(hex_encode(Bytes{}), "");
  EXPECT_EQ(hex_encode(Bytes{0x00, 0x0F, 0xF0, 0xAB}), "000ff0ab");
}

TEST(EqualConstantTime, ComparesLikeEqual) {
  EXPECT_TRUE(equal_constant_time("", ""));
  EXPECT_TRUE(equal_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_constant_time("secret", "secrets"));
  EXPECT_FALSE(equal_constant_time("secret", ""));
}

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> known{"queue_size", "queue_wait_ms", "ledger", "gate"};
  EXPECT_EQ(nearest("queue_siz", known), "queue_size");
  EXPECT_EQ(nearest("qeue_size", known), "queue_size");
  EXPECT_EQ(nearest("ledgre", known), "ledger");
  EXPECT_EQ(nearest("gte", known), "gate");
  EXPECT_EQ(nearest("gate", known), "gate");
}

TEST(Nearest, SaysNothingWhenNoWordIsNear) {
  const std::vector<std::string> known{"gate", "ledger"};
  // One change in three letters is a slip, two are another word.
  EXPECT_EQ(nearest("gat", known), "gate");
  EXPECT_EQ(nearest("gxt", known), std::nullopt);
  EXPECT_EQ(nearest("journal", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
  EXPECT_EQ(nearest("gate", {}), std::nullopt);
}

TEST(PlainUtf8, TakesTheFirstAndLastCharacterOfEachLength) {
  for (const char* yes :
       {"", "a", "\x01", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
        "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "할인 a é"}) {
    EXPECT_TRUE(is_plain_utf8(yes)) << yes;
  }
}

TEST(PlainUtf8, RefusesNulOverlongFormsSurrogatesAndCuts) {
  EXPECT_FALSE(is_plain_utf8(std::string_view("a\0b", 3)));
  for (const char* no :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF", "\xE0\xA0",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF0\x90\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "ok\xE2\x82"}) {
    EXPECT_FALSE(is_plain_utf8(no));
  }
}

TEST(ErrorCodes, HaveStableSpellings) {
  EXPECT_EQ(to_string(ErrorCode::kInvalid), "INVALID");
  EXPECT_EQ(to_string(ErrorCode::kNotFound), "NOT_FOUND");
  EXPECT_EQ(to_string(ErrorCode::kConflict), "CONFLICT");
  EXPECT_EQ(to_string(ErrorCode::kBusy), "BUSY");
  EXPECT_EQ(to_string(ErrorCode::kFull), "FULL");
  EXPECT_EQ(to_string(ErrorCode::kReadOnly), "READ_ONLY");
  EXPECT_EQ(to_string(ErrorCode::kIo), "IO");
  EXPECT_EQ(to_string(ErrorCode::kTimeout), "TIMEOUT");
  EXPECT_EQ(to_string(ErrorCode::kUnavailable), "UNAVAILABLE");
  EXPECT_EQ(to_string(ErrorCode::kStaleEpoch), "STALE_EPOCH");
  EXPECT_EQ(to_string(ErrorCode::kCorrupt), "CORRUPT");
  EXPECT_EQ(to_string(ErrorCode::kInternal), "INTERNAL");
}

TEST(Ensure, StopsTheProcessAndSaysWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(DOORBUSTER_ENSURE(1 > 2, "numbers are in order"),
               "text_test.cpp:[0-9]+: broken invariant: numbers are in order \\(1 > 2\\)");
}

}  // namespace
}  // namespace doorbuster::common

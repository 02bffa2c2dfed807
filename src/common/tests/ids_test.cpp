#include "common/ids.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <thread>
#include <unordered_set>
#include <vector>

#include "common/money.hpp"
#include "common/random.hpp"

namespace doorbuster::common {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(IdNumber, IsADecimalFromOneToTwoToThe63MinusOne) {
  EXPECT_EQ(parse_id_number("1"), 1);
  EXPECT_EQ(parse_id_number("10"), 10);
  EXPECT_EQ(parse_id_number("9223372036854775807"), kLargest);
  for (const char* no :
       {"", "0", "01", "9223372036854775808", "9999999999999999999", "10000000000000000000", "-1",
        "+1", " 1", "1 ", "1a", "0x1", "1.0", "1e3"}) {
    EXPECT_EQ(parse_id_number(no), std::nullopt) << no;
  }
}

RC_GTEST_PROP(IdNumber, ReadsBackEveryNumberInItsRange, ()) {
  const auto number = *rc::gen::inRange<std::int64_t>(1, kLargest);
  RC_ASSERT(parse_id_number(std::to_string(number)) == number);
}

TEST(AllotmentId, IsWrittenWithItsKindAndReadBack) {
  EXPECT_EQ(to_string(AllotmentId{'i', 7}), "i7");
  EXPECT_EQ(to_string(AllotmentId{'c', kLargest}), "c9223372036854775807");
  EXPECT_EQ(parse_allotment_id("i7"), (AllotmentId{'i', 7}));
  EXPECT_EQ(parse_allotment_id("c7"), (AllotmentId{'c', 7}));
  for (const char* no : {"", "i", "7", "s7", "I7", "i0", "i07", "i-7", "i7 ", "ii7"}) {
    EXPECT_EQ(parse_allotment_id(no), std::nullopt) << no;
  }
}

TEST(ScopeId, MayAlsoBeASale) {
  EXPECT_EQ(to_string(ScopeId{'s', 7}), "s7");
  EXPECT_EQ(parse_scope_id("s7"), (ScopeId{'s', 7}));
  EXPECT_EQ(parse_scope_id("i7"), (ScopeId{'i', 7}));
  EXPECT_EQ(parse_scope_id("c7"), (ScopeId{'c', 7}));
  for (const char* no : {"", "s", "x7", "s0", "S7"}) {
    EXPECT_EQ(parse_scope_id(no), std::nullopt) << no;
  }
}

TEST(GrantId, IsWrittenAsLowerCaseHexadecimalAndReadBack) {
  GrantId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::uint8_t>(i * 17);
  const std::string text = "00112233445566778899aabbccddeeff";
  EXPECT_EQ(to_string(id), text);
  EXPECT_EQ(parse_grant_id(text), id);
  EXPECT_EQ(parse_grant_id(text.substr(1)), std::nullopt);
  EXPECT_EQ(parse_grant_id(text + "0"), std::nullopt);
  EXPECT_EQ(parse_grant_id("00112233445566778899AABBCCDDEEFF"), std::nullopt);
  EXPECT_EQ(parse_grant_id("0011223344556677-899aabbccddeeff"), std::nullopt);
}

void no_randomness(std::span<std::uint8_t> out) { std::fill(out.begin(), out.end(), 0xFF); }

TEST(GrantIdMaker, LaysIdsOutAsUuidVersion7) {
  const ManualClock clock(from_micros(0x0123456789AB * 1000 + 999));
  GrantIdMaker maker(clock, no_randomness);
  const GrantId id = maker.make();
  EXPECT_EQ(to_string(id), "0123456789ab70008000ffffffffffff");
  EXPECT_EQ(to_string(maker.make()), "0123456789ab70008001ffffffffffff");
}

TEST(GrantIdMaker, CountsBeyondTheFourteenBitsBehindTheVariant) {
  const ManualClock clock(from_micros(1000));
  GrantIdMaker maker(clock, no_randomness);
  GrantId last = maker.make();
  for (int i = 1; i <= 0x3FFF; ++i) last = maker.make();
  EXPECT_EQ(to_string(last), "0000000000017000bfffffffffffffff");
  EXPECT_EQ(to_string(maker.make()), "00000000000170018000ffffffffffff");
}

TEST(GrantIdMaker, StrictlyIncreasesAlsoWhenTheClockStepsBackOrStandsStill) {
  ManualClock clock(from_micros(5'000'000));
  GrantIdMaker maker(clock);
  GrantId last = maker.make();
  // Forward, back by seconds, standing, forward within a millisecond, and far forward.
  for (const int step_us : {1000, -3'000'000, 0, 1, 999, -1, 60'000'000, -60'000'000}) {
    clock.advance(std::chrono::microseconds{step_us});
    for (int i = 0; i < 100; ++i) {
      const GrantId next = maker.make();
      ASSERT_LT(last, next) << step_us;
      last = next;
    }
  }
}

TEST(GrantIdMaker, GivesEveryThreadIdsOfItsOwn) {
  const SystemClock clock;
  GrantIdMaker maker(clock);
  constexpr std::size_t each = 20'000;
  std::vector<GrantId> here(each);
  std::vector<GrantId> there(each);
  std::thread other([&] {
    for (GrantId& id : there) id = maker.make();
  });
  for (GrantId& id : here) id = maker.make();
  other.join();
  EXPECT_TRUE(std::is_sorted(here.begin(), here.end()));
  EXPECT_TRUE(std::is_sorted(there.begin(), there.end()));
  std::set<GrantId> all(here.begin(), here.end());
  all.insert(there.begin(), there.end());
  EXPECT_EQ(all.size(), 2 * each);
}

TEST(GrantIdMaker, DiffersFromOtherMakersOfTheSameInstant) {
  const ManualClock clock(from_micros(1000));
  EXPECT_NE(GrantIdMaker(clock).make(), GrantIdMaker(clock).make());
}

TEST(GrantIdHash, SpreadsIdsOfOneMakerWhateverTheirPace) {
  // One id each millisecond: the counter starts again each time, so only the time differs.
  ManualClock clock(from_micros(1'000'000));
  GrantIdMaker maker(clock);
  std::unordered_set<std::size_t> hashes;
  for (int i = 0; i < 1000; ++i) {
    clock.advance(std::chrono::milliseconds{1});
    hashes.insert(std::hash<GrantId>{}(maker.make()));
  }
  // Many within one millisecond: only the counter differs.
  for (int i = 0; i < 40'000; ++i) hashes.insert(std::hash<GrantId>{}(maker.make()));
  EXPECT_EQ(hashes.size(), 41'000U);
}

TEST(IdHashes, TellKindsApartUpToTheLargestNumber) {
  EXPECT_NE(std::hash<AllotmentId>{}(AllotmentId{'i', 7}),
            std::hash<AllotmentId>{}(AllotmentId{'c', 7}));
  EXPECT_NE(std::hash<AllotmentId>{}(AllotmentId{'i', kLargest}),
            std::hash<AllotmentId>{}(AllotmentId{'c', kLargest}));
  EXPECT_NE(std::hash<ScopeId>{}(ScopeId{'s', kLargest}),
            std::hash<ScopeId>{}(ScopeId{'i', kLargest}));
  EXPECT_NE(std::hash<MemberId>{}(MemberId{1}), std::hash<MemberId>{}(MemberId{2}));
}

TEST(Currency, IsThreeUpperCaseLetters) {
  const auto won = parse_currency("KRW");
  ASSERT_TRUE(won);
  EXPECT_EQ(won->text(), "KRW");
  EXPECT_EQ(*won, Currency{});
  EXPECT_EQ(parse_currency("EUR")->text(), "EUR");
  for (const char* no : {"", "KR", "KRWW", "krw", "K1W", "K W"}) {
    EXPECT_EQ(parse_currency(no), std::nullopt) << no;
  }
}

TEST(Money, IsEqualOnlyInOneCurrency) {
  EXPECT_EQ((Money{5, *parse_currency("EUR")}), (Money{5, *parse_currency("EUR")}));
  EXPECT_NE((Money{5, *parse_currency("EUR")}), (Money{5, *parse_currency("USD")}));
  EXPECT_NE((Money{5, *parse_currency("EUR")}), (Money{6, *parse_currency("EUR")}));
}

}  // namespace
}  // namespace doorbuster::common

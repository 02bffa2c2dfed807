#include "engine/order_id.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace doorbuster::engine {
namespace {

std::array<std::uint8_t, OrderIdCodec::kKeyBytes> key(std::uint8_t first = 1) {
  std::array<std::uint8_t, OrderIdCodec::kKeyBytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return bytes;
}

OrderRef order() {
  OrderRef ref;
  for (std::size_t i = 0; i < ref.grant.bytes.size(); ++i) {
    ref.grant.bytes[i] = static_cast<std::uint8_t>(0xF0 + i);
  }
  ref.allotment = {'i', 7};
  ref.epoch = Epoch{3};
  return ref;
}

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

TEST(OrderId, LeadsItsOwnerBackToGrantAllotmentAndEpoch) {
  const OrderIdCodec codec(key());
  const std::string text = codec.encode(order(), MemberId{42});
  EXPECT_EQ(text.size(), 55U);
  EXPECT_EQ(text.find_first_not_of(kAlphabet), std::string::npos) << "safe in a path";
  const auto back = codec.decode(text, MemberId{42});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->grant, order().grant);
  EXPECT_EQ(back->allotment, order().allotment);
  EXPECT_EQ(back->epoch, order().epoch);
}

TEST(OrderId, KeepsTheLargestNumbers) {
  const OrderIdCodec codec(key());
  OrderRef large = order();
  large.allotment = {'c', std::numeric_limits<std::int64_t>::max()};
  large.epoch = Epoch{std::numeric_limits<std::uint32_t>::max()};
  const MemberId member{std::numeric_limits<std::int64_t>::max()};
  const auto back = codec.decode(codec.encode(large, member), member);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->allotment, large.allotment);
  EXPECT_EQ(back->epoch, large.epoch);
}

TEST(OrderId, IsNoOrderOfAnybodyElse) {
  const OrderIdCodec codec(key());
  const std::string text = codec.encode(order(), MemberId{42});
  for (const std::int64_t stranger : {41, 43, 1, 0, 4242}) {
    EXPECT_FALSE(codec.decode(text, MemberId{stranger})) << stranger;
  }
}

TEST(OrderId, IsRefusedUnderAnotherKey) {
  const std::string text = OrderIdCodec(key()).encode(order(), MemberId{42});
  EXPECT_FALSE(OrderIdCodec(key(2)).decode(text, MemberId{42}));
}

TEST(OrderId, EveryFlippedBitIsNoticed) {
  const OrderIdCodec codec(key());
  const std::string text = codec.encode(order(), MemberId{42});
  ASSERT_TRUE(codec.decode(text, MemberId{42}));
  // Six bits a character: every other spelling of every character, also of the last one, whose
  // unused bits would otherwise give an order several ids.
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char other : kAlphabet) {
      if (other == text[i]) continue;
      std::string changed = text;
      changed[i] = other;
      EXPECT_FALSE(codec.decode(changed, MemberId{42})) << i << " " << other;
    }
  }
}

TEST(OrderId, OtherTextIsNoOrder) {
  const OrderIdCodec codec(key());
  const std::string text = codec.encode(order(), MemberId{42});
  for (const std::string& wrong :
       {std::string(), std::string("1"), std::string(54, 'A'), std::string(55, 'A'),
        std::string(56, 'A'), text.substr(0, 54), text + "A", text + "=", " " + text.substr(1),
        std::string(55, '\0'), std::string(55, '\xFF'), std::string(100'000, 'A')}) {
    EXPECT_FALSE(codec.decode(wrong, MemberId{42})) << wrong.substr(0, 60);
  }
}

}  // namespace
}  // namespace doorbuster::engine

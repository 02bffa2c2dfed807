#include "http/rare_bytes.hpp"

#include <gtest/gtest.h>

namespace doorbuster::http {
namespace {

TEST(RareBytes, AreOnePointerAndBeginEmpty) {
  EXPECT_EQ(sizeof(RareBytes), sizeof(void*));
  RareBytes bytes;
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(bytes.size(), 0U);
  EXPECT_EQ(bytes.view(), "");
  bytes.append("");
  EXPECT_TRUE(bytes.empty());
  bytes.remove_prefix(0);
  EXPECT_TRUE(bytes.empty());
}

TEST(RareBytes, LoseTheirFrontAndGrowAtTheirEnd) {
  RareBytes bytes;
  bytes.append("abc");
  bytes.append("def");
  EXPECT_EQ(bytes.view(), "abcdef");
  bytes.remove_prefix(2);
  EXPECT_EQ(bytes.view(), "cdef");
  bytes.remove_prefix(1);
  EXPECT_EQ(bytes.size(), 3U);
  bytes.append("gh");
  EXPECT_EQ(bytes.view(), "defgh");
  bytes.remove_prefix(5);
  EXPECT_TRUE(bytes.empty());
  bytes.append("x");
  EXPECT_EQ(bytes.view(), "x");
  bytes.clear();
  EXPECT_TRUE(bytes.empty());
}

}  // namespace
}  // namespace doorbuster::http

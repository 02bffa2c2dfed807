#include "common/hmac.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string>

#include "common/text.hpp"

namespace doorbuster::common {
namespace {

std::string hex(const HmacSha256::Mac& mac) { return hex_encode(mac); }

TEST(HmacSha256, GivesTheAnswersOfRfc4231) {
  EXPECT_EQ(hex(HmacSha256(std::string(20, '\x0b')).of("Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(HmacSha256("Jefe").of("what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // A key that is longer than a block.
  EXPECT_EQ(hex(HmacSha256(std::string(131, '\xaa'))
                    .of("Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, AgreesWithOpensslWhateverTheLengths) {
  for (const std::size_t key_size : {0U, 1U, 32U, 63U, 64U, 65U, 200U}) {
    const std::string key(key_size, 'k');
    const HmacSha256 mac(key);
    for (std::size_t size = 0; size < 400; ++size) {
      const std::string text(size, static_cast<char>('a' + size % 26));
      HmacSha256::Mac expected{};
      unsigned int written = 0;
      ASSERT_NE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     expected.data(), &written),
                nullptr);
      ASSERT_EQ(mac.of(text), expected) << "key of " << key_size << ", text of " << size;
    }
  }
}

TEST(HmacSha256, IsTheSameWithABeginningWhateverCameBefore) {
  const HmacSha256 mac("a key");
  HmacSha256::Beginning beginning;
  const std::string same(64, 's');
  for (const std::string& text :
       {same, same + "x", std::string(63, 's'), std::string(63, 's') + "t" + "x", same + "xy",
        std::string("short"), std::string(), std::string(63, 's') + "tx", std::string(300, 's'),
        "x" + same, same + std::string(64, 's')}) {
    EXPECT_EQ(mac.of(text, beginning), mac.of(text)) << text;
    EXPECT_EQ(mac.of(text, beginning), mac.of(text)) << text;
  }
}

}  // namespace
}  // namespace doorbuster::common

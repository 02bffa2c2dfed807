// OpenSSL 3 calls SHA256_Update() old. What is to be used instead looks the algorithm's parameters
// up for each MAC, which costs half as much again as the MAC of a token itself.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "common/hmac.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace doorbuster::common {
namespace {

constexpr std::size_t kBlock = HmacSha256::kBlock;
static_assert(kBlock == SHA256_CBLOCK);
using Block = std::array<std::uint8_t, kBlock>;
using Hash = HmacSha256::State;

// Written out, the bytes of a word are stored one by one.
std::uint32_t big_endian(std::uint32_t word) noexcept {
  return std::endian::native == std::endian::little ? __builtin_bswap32(word) : word;
}
std::uint64_t big_endian(std::uint64_t word) noexcept {
  return std::endian::native == std::endian::little ? __builtin_bswap64(word) : word;
}

/// Whole blocks only, so that OpenSSL never keeps a part of one.
void add_blocks(SHA256_CTX& state, const void* blocks, std::size_t bytes) noexcept {
  SHA256_Update(&state, blocks, bytes);
}

SHA256_CTX continued(const Hash& hash) noexcept {
  SHA256_CTX state{};
  std::copy(hash.begin(), hash.end(), state.h);
  state.md_len = SHA256_DIGEST_LENGTH;
  return state;
}

Hash hash_of(const SHA256_CTX& state) noexcept {
  Hash hash{};
  std::copy(std::begin(state.h), std::end(state.h), hash.begin());
  return hash;
}

Hash after_key(const Block& key, std::uint8_t pad) noexcept {
  Block block = key;
  for (std::uint8_t& byte : block) byte ^= pad;
  SHA256_CTX state{};
  SHA256_Init(&state);
  add_blocks(state, block.data(), block.size());
  return hash_of(state);
}

/// The digest of `before` bytes (whole blocks, of which `from` is the hash) and `text`.
HmacSha256::Mac digest(const Hash& from, std::size_t before, std::string_view text) noexcept {
  SHA256_CTX state = continued(from);
  const std::size_t whole = text.size() / kBlock * kBlock;
  add_blocks(state, text.data(), whole);
  const std::string_view rest = text.substr(whole);
  // A bit, zeros, and the message's length in bits at the end of a block.
  std::array<std::uint8_t, 2 * kBlock> last{};
  std::copy(rest.begin(), rest.end(), last.begin());
  last[rest.size()] = 0x80;
  const std::size_t size = rest.size() + 1 + 8 <= kBlock ? kBlock : 2 * kBlock;
  const std::uint64_t bits = big_endian(std::uint64_t{8} * (before + text.size()));
  std::memcpy(last.data() + size - sizeof bits, &bits, sizeof bits);
  add_blocks(state, last.data(), size);
  HmacSha256::Mac out;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = big_endian(std::uint32_t{state.h[i]});
    std::memcpy(out.data() + i * sizeof word, &word, sizeof word);
  }
  return out;
}

}  // namespace

HmacSha256::HmacSha256(std::string_view key) noexcept {
  Block padded{};
  if (key.size() > padded.size()) {
    SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), padded.data());
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  inner_ = after_key(padded, 0x36);
  outer_ = after_key(padded, 0x5C);
}

HmacSha256::Mac HmacSha256::of(std::string_view text) const noexcept {
  const Mac inner = digest(inner_, kBlock, text);
  return digest(outer_, kBlock, {reinterpret_cast<const char*>(inner.data()), inner.size()});
}

HmacSha256::Mac HmacSha256::of(std::string_view text, Beginning& beginning) const noexcept {
  if (text.size() < kBlock) return of(text);
  if (!beginning.known || std::memcmp(beginning.text.data(), text.data(), kBlock) != 0) {
    SHA256_CTX state = continued(inner_);
    add_blocks(state, text.data(), kBlock);
    std::memcpy(beginning.text.data(), text.data(), kBlock);
    beginning.state = hash_of(state);
    beginning.known = true;
  }
  const Mac inner = digest(beginning.state, 2 * kBlock, text.substr(kBlock));
  return digest(outer_, kBlock, {reinterpret_cast<const char*>(inner.data()), inner.size()});
}

}  // namespace doorbuster::common

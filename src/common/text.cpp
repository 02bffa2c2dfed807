#include "common/text.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace doorbuster::common {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Set in what kReverse says of a character that is none of the alphabet.
constexpr std::uint32_t kWrong = 0x80000000U;

/// What a character stands for at each of the four places of three bytes.
using Reverse = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr Reverse make_reverse() {
  Reverse table{};
  for (auto& place : table) place.fill(kWrong);
  for (std::uint32_t i = 0; i < kAlphabet.size(); ++i) {
    for (std::uint32_t place = 0; place < 4; ++place) {
      table[place][static_cast<unsigned char>(kAlphabet[i])] = i << (18 - 6 * place);
    }
  }
  return table;
}
constexpr Reverse kReverse = make_reverse();

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string base64url_encode(std::span<const std::uint8_t> bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const std::uint8_t byte : bytes) {
    bits = (bits << 8) | byte;
    count += 8;
    while (count >= 6) {
      count -= 6;
      out += kAlphabet[(bits >> count) & 0x3FU];
    }
  }
  if (count > 0) out += kAlphabet[(bits << (6 - count)) & 0x3FU];
  return out;
}

bool base64url_decode_into(std::string_view text, std::span<std::uint8_t> out,
                           std::size_t& size) noexcept {
  if (text.size() % 4 == 1 || text.size() * 3 / 4 > out.size()) return false;
  size = text.size() * 3 / 4;
  const auto* in = reinterpret_cast<const unsigned char*>(text.data());
  std::uint8_t* to = out.data();
  // Looking at the end whether one was wrong leaves the loop without a branch.
  std::uint32_t wrong = 0;
  std::size_t left = text.size();
  for (; left >= 4; left -= 4, in += 4, to += 3) {
    const std::uint32_t bits =
        kReverse[0][in[0]] | kReverse[1][in[1]] | kReverse[2][in[2]] | kReverse[3][in[3]];
    wrong |= bits;
    to[0] = static_cast<std::uint8_t>(bits >> 16);
    to[1] = static_cast<std::uint8_t>(bits >> 8);
    to[2] = static_cast<std::uint8_t>(bits);
  }
  if (left >= 2) {
    const std::uint32_t bits =
        kReverse[0][in[0]] | kReverse[1][in[1]] | (left == 3 ? kReverse[2][in[2]] : 0);
    // Bits that no byte uses must be zero.
    wrong |= bits | ((bits & (left == 3 ? 0xFFU : 0xFFFFU)) == 0 ? 0 : kWrong);
    to[0] = static_cast<std::uint8_t>(bits >> 16);
    if (left == 3) to[1] = static_cast<std::uint8_t>(bits >> 8);
  }
  return (wrong & kWrong) == 0;
}

std::optional<Bytes> base64url_decode(std::string_view text) {
  Bytes out(text.size() * 3 / 4);
  std::size_t size = 0;
  if (!base64url_decode_into(text, out, size)) return std::nullopt;
  out.resize(size);
  return out;
}

std::string hex_encode(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    out += digits[byte >> 4];
    out += digits[byte & 0xFU];
  }
  return out;
}

bool equal_constant_time(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known) {
  std::optional<std::string> best;
  // Farther than a third of the word it is no slip of the finger any more.
  std::size_t limit = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string& one : known) {
    // Each letter more or less is one edit, so a whole file in one word costs nothing here.
    const std::size_t longer =
        std::max(word.size(), one.size()) - std::min(word.size(), one.size());
    if (longer >= limit) continue;
    const std::size_t distance = edit_distance(word, one);
    if (distance < limit) {
      limit = distance;
      best = one;
    }
  }
  return best;
}

bool is_plain_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    // Most text is ASCII: eight bytes at a time while none of them is above 0x7F or 0.
    if (text.size() - i >= 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, text.data() + i, sizeof eight);
      constexpr std::uint64_t kOnes = 0x0101010101010101U;
      constexpr std::uint64_t kHighs = 0x8080808080808080U;
      if (((eight | (eight - kOnes)) & kHighs) == 0) {
        i += 8;
        continue;
      }
    }
    const auto first = static_cast<unsigned char>(text[i]);
    if (first == 0) return false;
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || i + more >= text.size()) return false;
    std::uint32_t code = first & (0x3FU >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0U) != 0x80U) return false;
      code = (code << 6) | (next & 0x3FU);
    }
    constexpr std::uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      return false;
    i += more + 1;
  }
  return true;
}

}  // namespace doorbuster::common

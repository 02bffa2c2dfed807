#include "edge/json_reader.hpp"

#include <bit>
#include <charconv>
#include <cstring>
#include <system_error>

#include "common/text.hpp"

namespace doorbuster::edge {
namespace {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// How many bytes at the front are surely neither a quote, a backslash nor a control character: a
/// multiple of eight, or up to the first one that is.
std::size_t plain_bytes(const char* at, const char* end) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  constexpr std::uint64_t kHighs = 0x8080808080808080U;
  static_assert(std::endian::native == std::endian::little, "the first byte is the lowest one");
  const char* const begin = at;
  while (end - at >= 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, sizeof eight);
    const std::uint64_t quote = eight ^ (kOnes * '"');
    const std::uint64_t backslash = eight ^ (kOnes * '\\');
    // The lowest bit that is set is right in each of the three; higher ones need not be.
    const std::uint64_t found = (((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) |
                                 ((eight - kOnes * 0x20) & ~eight)) &
                                kHighs;
    if (found != 0) {
      return static_cast<std::size_t>(at - begin) +
             static_cast<std::size_t>(std::countr_zero(found)) / 8;
    }
    at += 8;
  }
  return static_cast<std::size_t>(at - begin);
}

char* put_utf8(std::uint32_t code, char* out) noexcept {
  const auto put = [&out](std::uint32_t byte) { *out++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | (code >> 6));
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | (code >> 12));
    put(0x80U | ((code >> 6) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | (code >> 18));
    put(0x80U | ((code >> 12) & 0x3FU));
    put(0x80U | ((code >> 6) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
  return out;
}

}  // namespace

JsonReader::JsonReader(std::span<char> text) noexcept {
  // Checked once for the whole text, so that no string needs to be looked at again.
  if (text.empty() || !common::is_plain_utf8({text.data(), text.size()})) return;
  begin_ = text.data();
  at_ = text.data();
  end_ = text.data() + text.size();
}

JsonReader::Kind JsonReader::peek() noexcept {
  skip_space();
  if (at_ == end_) return Kind::kNothing;
  switch (*at_) {
    case '"':
      return Kind::kString;
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case 't':
    case 'f':
    case 'n':
      return Kind::kLiteral;
    default:
      return *at_ == '-' || is_digit(*at_) ? Kind::kNumber : Kind::kNothing;
  }
}

bool JsonReader::begin_object() noexcept {
  if (!take('{')) return false;
  if (++depth_ > kMaxDepth) fail();
  first_ = true;
  return at_ != nullptr;
}

bool JsonReader::next_name(std::string_view& name) noexcept {
  if (!more('}')) return false;
  name = read_string();
  return take(':');
}

bool JsonReader::begin_array() noexcept {
  if (!take('[')) return false;
  if (++depth_ > kMaxDepth) fail();
  first_ = true;
  return at_ != nullptr;
}

bool JsonReader::next_element() noexcept { return more(']'); }

std::string_view JsonReader::read_string() noexcept {
  if (!take('"')) return {};
  char* const begin = at_;
  // Nothing moves before the first escape, and most strings have none.
  at_ += plain_bytes(at_, end_);
  char* out = at_;
  while (at_ != end_) {
    const char c = *at_;
    if (c == '"') {
      ++at_;
      return {begin, static_cast<std::size_t>(out - begin)};
    }
    if (static_cast<unsigned char>(c) < 0x20) break;
    if (c == '\\') {
      ++at_;
      changed_ = true;
      out = unescape(out);
      if (out == nullptr) break;
    } else {
      *out++ = c;
      ++at_;
    }
  }
  fail();
  return {};
}

JsonReader::Number JsonReader::read_number() noexcept {
  skip_space();
  const char* const begin = at_;
  if (at_ != end_ && *at_ == '-') ++at_;
  const char* const first = at_;
  // Too long ones overflow, which unsigned numbers may, and are read again below.
  std::uint64_t digits = 0;
  for (; at_ != end_ && is_digit(*at_); ++at_) {
    digits = digits * 10 + static_cast<std::uint64_t>(*at_ - '0');
  }
  if (at_ == first || (*first == '0' && at_ - first > 1)) {
    fail();
    return {};
  }
  constexpr std::ptrdiff_t kAlwaysFits = 18;
  bool whole = true;
  if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) {
    whole = false;
    if (*at_ == '.') {
      ++at_;
      if (!take_digits()) fail();
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!take_digits()) fail();
    }
  }
  Number number;
  if (at_ == nullptr) return number;
  if (whole && at_ - first <= kAlwaysFits) {
    const auto value = static_cast<std::int64_t>(digits);
    number.whole = first == begin ? value : -value;
    number.real = static_cast<double>(*number.whole);
    return number;
  }
  if (whole) {
    std::int64_t value = 0;
    if (std::from_chars(begin, at_, value).ec == std::errc{}) {
      number.whole = value;
      number.real = static_cast<double>(value);
      return number;
    }
  }
  // Too large or too small for a double: no claim means such a number.
  if (std::from_chars(begin, at_, number.real).ec != std::errc{}) fail();
  return number;
}

// Recursion ends at kMaxDepth, where begin_object() and begin_array() fail.
// NOLINTNEXTLINE(misc-no-recursion)
void JsonReader::skip() noexcept {
  switch (peek()) {
    case Kind::kString:
      static_cast<void>(read_string());
      return;
    case Kind::kNumber:
      static_cast<void>(read_number());
      return;
    case Kind::kObject: {
      std::string_view name;
      if (!begin_object()) return;
      while (next_name(name)) skip();
      return;
    }
    case Kind::kArray:
      if (!begin_array()) return;
      while (next_element()) skip();
      return;
    case Kind::kLiteral:
      if (!take_word("true") && !take_word("false") && !take_word("null")) fail();
      return;
    case Kind::kNothing:
      fail();
      return;
  }
}

bool JsonReader::finish() noexcept {
  skip_space();
  return at_ != nullptr && at_ == end_ && depth_ == 0;
}

void JsonReader::skip_space() noexcept {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
}

bool JsonReader::take(char expected) noexcept {
  skip_space();
  if (at_ == end_ || *at_ != expected) {
    fail();
    return false;
  }
  ++at_;
  return true;
}

bool JsonReader::take_word(std::string_view word) noexcept {
  if (static_cast<std::size_t>(end_ - at_) < word.size() ||
      std::string_view(at_, word.size()) != word) {
    return false;
  }
  at_ += word.size();
  return true;
}

bool JsonReader::more(char close) noexcept {
  skip_space();
  if (at_ == end_) {
    fail();
    return false;
  }
  if (*at_ == close) {
    ++at_;
    --depth_;
    first_ = false;
    return false;
  }
  // A comma before the closing bracket is refused by whoever reads what follows it.
  if (!first_ && !take(',')) return false;
  first_ = false;
  return true;
}

bool JsonReader::take_digits() noexcept {
  const char* const begin = at_;
  while (at_ != end_ && is_digit(*at_)) ++at_;
  return at_ != begin;
}

char* JsonReader::unescape(char* out) noexcept {
  if (at_ == end_) return nullptr;
  switch (*at_++) {
    case '"':
      *out++ = '"';
      return out;
    case '\\':
      *out++ = '\\';
      return out;
    case '/':
      *out++ = '/';
      return out;
    case 'b':
      *out++ = '\b';
      return out;
    case 'f':
      *out++ = '\f';
      return out;
    case 'n':
      *out++ = '\n';
      return out;
    case 'r':
      *out++ = '\r';
      return out;
    case 't':
      *out++ = '\t';
      return out;
    case 'u':
      break;
    default:
      return nullptr;
  }
  const std::optional<std::uint32_t> first = take_hex4();
  if (!first || *first == 0) return nullptr;
  const bool high = *first >= 0xD800 && *first < 0xDC00;
  const bool low = *first >= 0xDC00 && *first < 0xE000;
  if (low) return nullptr;
  // The result is never longer than its escape, so it does not run into what is still to be read.
  if (!high) return put_utf8(*first, out);
  if (!take_word("\\u")) return nullptr;
  const std::optional<std::uint32_t> second = take_hex4();
  if (!second || *second < 0xDC00 || *second >= 0xE000) return nullptr;
  return put_utf8(0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00), out);
}

std::optional<std::uint32_t> JsonReader::take_hex4() noexcept {
  if (end_ - at_ < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = *at_++;
    std::uint32_t digit = 0;
    if (is_digit(c)) {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint32_t>(c - 'A' + 10);
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace doorbuster::edge

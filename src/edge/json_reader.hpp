#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace doorbuster::edge {

/// Walks through one JSON text (RFC 8259) without allocating: a token is read for every request of
/// a rush, and a tree of values would cost three times as much as checking the signature.
///
/// Stricter than the RFC where readers differ: UTF-8 must be well formed, NUL (also as \u0000) and
/// lone surrogates are refused, and so are more than kMaxDepth values inside each other. The caller
/// refuses repeated names.
///
/// Strings are unescaped where they are, so the text is written to, and views into it stay good as
/// long as it does. The first mistake sticks: everything after it answers "no" and finish() is
/// false, so a caller may check once at the end.
class JsonReader {
 public:
  static constexpr int kMaxDepth = 16;

  enum class Kind { kString, kNumber, kObject, kArray, kLiteral, kNothing };

  /// A number: whole when it is written without fraction and exponent and fits.
  struct Number {
    std::optional<std::int64_t> whole;
    double real = 0;
  };

  explicit JsonReader(std::span<char> text) noexcept;

  /// What comes next, by its first character.
  [[nodiscard]] Kind peek() noexcept;

  /// Enters an object; next_name() then goes through it until it returns false, and each name's
  /// value must be read or skipped.
  [[nodiscard]] bool begin_object() noexcept;
  [[nodiscard]] bool next_name(std::string_view& name) noexcept;
  [[nodiscard]] bool begin_array() noexcept;
  [[nodiscard]] bool next_element() noexcept;

  [[nodiscard]] std::string_view read_string() noexcept;
  [[nodiscard]] Number read_number() noexcept;
  void skip() noexcept;

  /// True when the whole text was one value that was read to its end without a mistake.
  [[nodiscard]] bool finish() noexcept;

  [[nodiscard]] bool failed() const noexcept { return at_ == nullptr; }
  /// Where it is in the text; not after a mistake.
  [[nodiscard]] std::size_t position() const noexcept {
    return static_cast<std::size_t>(at_ - begin_);
  }
  /// Whether the text was written to.
  [[nodiscard]] bool changed() const noexcept { return changed_; }

 private:
  void fail() noexcept { at_ = end_ = nullptr; }
  void skip_space() noexcept;
  [[nodiscard]] bool take(char expected) noexcept;
  [[nodiscard]] bool take_word(std::string_view word) noexcept;
  [[nodiscard]] bool more(char close) noexcept;
  [[nodiscard]] bool take_digits() noexcept;
  [[nodiscard]] char* unescape(char* out) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> take_hex4() noexcept;

  const char* begin_ = nullptr;
  char* at_ = nullptr;  // both null after a mistake
  char* end_ = nullptr;
  int depth_ = 0;
  bool changed_ = false;
  bool first_ = false;  ///< nothing of the object or array entered last was read yet
};

}  // namespace doorbuster::edge

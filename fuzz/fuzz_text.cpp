#include <algorithm>
#include <array>

#include "common/text.hpp"
#include "fuzz/fuzz.hpp"

/// Base64url, hexadecimal and UTF-8, which the other readers stand on.
///
/// - Base64url has one spelling for each value: bytes come back from their text, and text that is
///   accepted is the text of its bytes. Both readers agree, and neither writes past its room.
/// - is_plain_utf8 accepts exactly what a reader by code points accepts, wherever the text is cut.
/// - nearest() names a known word, and a known word itself.
namespace doorbuster::fuzz {
namespace {

using common::Bytes;

/// By code points, from the table of RFC 3629, section 4.
bool reference_utf8(std::string_view text) {
  struct Row {
    unsigned char first_low, first_high, second_low, second_high;
    std::size_t size;
  };
  constexpr std::array<Row, 9> kRows{Row{0x01, 0x7F, 0, 0, 1},       Row{0xC2, 0xDF, 0x80, 0xBF, 2},
                                     Row{0xE0, 0xE0, 0xA0, 0xBF, 3}, Row{0xE1, 0xEC, 0x80, 0xBF, 3},
                                     Row{0xED, 0xED, 0x80, 0x9F, 3}, Row{0xEE, 0xEF, 0x80, 0xBF, 3},
                                     Row{0xF0, 0xF0, 0x90, 0xBF, 4}, Row{0xF1, 0xF3, 0x80, 0xBF, 4},
                                     Row{0xF4, 0xF4, 0x80, 0x8F, 4}};
  const auto within = [](char c, unsigned char low, unsigned char high) {
    return static_cast<unsigned char>(c) >= low && static_cast<unsigned char>(c) <= high;
  };
  while (!text.empty()) {
    const auto row = std::ranges::find_if(
        kRows, [&](const Row& one) { return within(text[0], one.first_low, one.first_high); });
    if (row == kRows.end() || text.size() < row->size) return false;
    if (row->size > 1 && !within(text[1], row->second_low, row->second_high)) return false;
    for (std::size_t i = 2; i < row->size; ++i) {
      if (!within(text[i], 0x80, 0xBF)) return false;
    }
    text.remove_prefix(row->size);
  }
  return true;
}

void check_base64(std::string_view text, std::size_t room) {
  const Bytes bytes(text.begin(), text.end());
  const std::string encoded = common::base64url_encode(bytes);
  DOORBUSTER_ENSURE(common::base64url_decode(encoded) == bytes, "bytes come back");
  DOORBUSTER_ENSURE(!common::base64url_decode(encoded + '='), "no padding");
  DOORBUSTER_ENSURE(common::hex_encode(bytes).size() == 2 * bytes.size(), "two digits each");

  const auto decoded = common::base64url_decode(text);
  if (decoded) DOORBUSTER_ENSURE(common::base64url_encode(*decoded) == text, "one spelling");
  Bytes into(room);
  std::size_t used = 0;
  const bool fits = common::base64url_decode_into(text, into, used);
  DOORBUSTER_ENSURE(fits == (decoded && decoded->size() <= room), "both readers agree");
  if (fits) {
    into.resize(used);
    DOORBUSTER_ENSURE(into == *decoded, "both readers agree");
  }
}

void check_nearest(std::string_view text) {
  const std::array<std::string, 4> known{"http.port", "http.address", "mode", "log.level"};
  const auto near = common::nearest(text.substr(0, 64), known);
  const bool listed = std::ranges::find(known, text) != known.end();
  if (listed) DOORBUSTER_ENSURE(near == text, "a known word is nearest to itself");
  if (near) DOORBUSTER_ENSURE(std::ranges::find(known, *near) != known.end(), "a known word");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster;        // NOLINT(google-build-using-namespace)
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  const auto room = in.ConsumeIntegral<std::uint8_t>();
  const auto cut = in.ConsumeIntegral<std::uint16_t>();
  const Exact text(in.ConsumeRemainingBytesAsString());
  const Exact begin(text.view().substr(0, cut % (text.view().size() + 1)));
  for (const std::string_view one : {text.view(), begin.view()}) {
    check_base64(one, room);
    DOORBUSTER_ENSURE(common::is_plain_utf8(one) == reference_utf8(one), "both readers agree");
    DOORBUSTER_ENSURE(common::equal_constant_time(one, text.view()) == (one == text.view()),
                      "equal is equal");
  }
  check_nearest(text.view());
  return 0;
}

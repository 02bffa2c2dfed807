#include <array>
#include <chrono>
#include <ctime>

#include "common/clock.hpp"
#include "fuzz/fuzz.hpp"

/// RFC 3339 instants, from text and to text.
///
/// - What is accepted is the instant that the C library finds in the same digits, and lies in the
///   years 1970 to 9999.
/// - What is written is read back as the same instant, and is the one spelling of it.
/// - Any one character less or more makes the written form something else.
namespace doorbuster::fuzz {
namespace {

using common::Instant;

constexpr std::int64_t kLastMicro = 253'402'300'800'000'000 - 1;  // the end of the year 9999

/// Only for text that was accepted: its digits are where they belong.
std::int64_t micros_of(std::string_view text) {
  const auto number = [text](std::size_t at, std::size_t size) {
    return std::stoi(std::string(text.substr(at, size)));
  };
  std::tm parts{};
  parts.tm_year = number(0, 4) - 1900;
  parts.tm_mon = number(5, 2) - 1;
  parts.tm_mday = number(8, 2);
  parts.tm_hour = number(11, 2);
  parts.tm_min = number(14, 2);
  parts.tm_sec = number(17, 2);
  std::int64_t micros = timegm(&parts) * 1'000'000;
  std::size_t at = 19;
  if (text[at] == '.') {
    const std::size_t end = text.find_first_not_of("0123456789", at + 1);
    std::string digits(text.substr(at + 1, end - at - 1));
    DOORBUSTER_ENSURE(!digits.empty() && digits.size() <= 9, "1 to 9 digits of a fraction");
    digits.resize(6, '0');
    micros += std::stoi(digits);
    at = end;
  }
  if (text[at] != 'Z' && text[at] != 'z') {
    DOORBUSTER_ENSURE(text.size() == at + 6, "an offset ends the text");
    const std::int64_t minutes = number(at + 1, 2) * 60 + number(at + 4, 2);
    micros += (text[at] == '-' ? 60 : -60) * minutes * 1'000'000;
  } else {
    DOORBUSTER_ENSURE(text.size() == at + 1, "Z ends the text");
  }
  return micros;
}

void round_trip(Instant at) {
  const std::string written = common::to_rfc3339(at);
  const Exact exact(written);
  DOORBUSTER_ENSURE(common::parse_rfc3339(exact.view()) == at, "what is written can be read");
  DOORBUSTER_ENSURE(!common::parse_rfc3339(written.substr(0, written.size() - 1)), "an end is due");
  DOORBUSTER_ENSURE(!common::parse_rfc3339(written + 'Z'), "the end is the end");
}

void check_text(std::string_view text) {
  const std::optional<Instant> at = common::parse_rfc3339(text);
  if (!at) return;
  const std::int64_t micros = common::to_micros(*at);
  DOORBUSTER_ENSURE(micros >= 0 && micros <= kLastMicro, "in the years 1970 to 9999");
  DOORBUSTER_ENSURE(micros == micros_of(text), "the C library finds the same instant");
  round_trip(*at);
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  round_trip(
      doorbuster::common::from_micros(in.ConsumeIntegralInRange<std::int64_t>(0, kLastMicro)));
  const Exact text(in.ConsumeRemainingBytesAsString());
  check_text(text.view());
  return 0;
}

#include <array>
#include <boost/json.hpp>
#include <cmath>

#include "common/text.hpp"
#include "edge/json_reader.hpp"
#include "edge/tests/json_tree.hpp"
#include "fuzz/fuzz.hpp"

/// edge::JsonReader, which reads tokens in place, against Boost.JSON.
///
/// - What it accepts, Boost.JSON accepts, and both have the same values in it.
/// - What Boost.JSON accepts it accepts too, but for what its header says that it refuses: NUL, and
///   numbers beyond a double.
/// - skip() goes over exactly what reading goes over.
/// - However a caller walks, also against what is there, it ends, stays within the text, and a
///   mistake sticks.
namespace doorbuster::fuzz {
namespace {

using edge::JsonReader;
using edge::tree;
namespace json = boost::json;

/// The reader has no words for literals, and makes null of each.
bool same(const json::value& mine, const json::value& theirs) {
  if (mine.is_null()) return theirs.is_null() || theirs.is_bool();
  if (mine.is_string()) return theirs.is_string() && mine == theirs;
  if (mine.is_number()) {
    if (!theirs.is_number()) return false;
    if (mine.is_int64() || theirs.is_int64()) return mine == theirs;
    // Boost.JSON 1.81 may be wrong in the last digits, and makes 0e318 not a number.
    const auto a = mine.to_number<double>();
    const auto b = theirs.to_number<double>();
    return std::isnan(b) || std::abs(a - b) <= 1e-12 * std::abs(a) + 1e-290;
  }
  if (mine.is_array()) {
    if (!theirs.is_array() || mine.get_array().size() != theirs.get_array().size()) return false;
    for (std::size_t i = 0; i < mine.get_array().size(); ++i) {
      if (!same(mine.get_array()[i], theirs.get_array()[i])) return false;
    }
    return true;
  }
  if (!theirs.is_object() || mine.get_object().size() != theirs.get_object().size()) return false;
  for (const auto& [name, value] : mine.get_object()) {
    const json::value* other = theirs.get_object().if_contains(name);
    if (other == nullptr || !same(value, *other)) return false;
  }
  return true;
}

/// Whether the reader's header allows it to refuse this.
bool may_refuse(const json::value& value) {
  if (value.is_string()) return value.get_string().find('\0') != json::string::npos;
  if (value.is_double()) {
    const double size = std::abs(value.get_double());
    return !(size > 1e-290 && size < 1e290);
  }
  if (value.is_array()) {
    for (const json::value& one : value.get_array()) {
      if (may_refuse(one)) return true;
    }
  }
  if (value.is_object()) {
    for (const auto& [name, one] : value.get_object()) {
      if (name.find('\0') != json::string_view::npos || may_refuse(one)) return true;
    }
  }
  return false;
}

void compare(std::string_view text) {
  Exact walked(text);
  JsonReader in(walked.bytes());
  const json::value mine = tree(in);
  const bool accepted = in.finish();

  Exact skipped(text);
  JsonReader over(skipped.bytes());
  over.skip();
  DOORBUSTER_ENSURE(over.finish() == accepted, "skip() goes over what reading goes over");

  json::error_code error;
  json::parse_options options;
  options.max_depth = JsonReader::kMaxDepth;
  const json::value theirs =
      json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (accepted) {
    // That is its answer to any long exponent, also of nothing.
    if (error == json::error::exponent_overflow) return;
    DOORBUSTER_ENSURE(!error && same(mine, theirs), "the same values");
  } else if (!error) {
    // Of two members with one name Boost.JSON keeps the last, and NUL may have been in the first.
    DOORBUSTER_ENSURE(may_refuse(theirs) || text.find("\\u0000") != std::string_view::npos,
                      "nothing else is refused");
  }
}

/// Calls in the order that the input gives, whatever the text holds.
void wander(std::string_view text, FuzzedDataProvider& in) {
  Exact copy(text);
  JsonReader reader(copy.bytes());
  const char* const begin = copy.bytes().data();
  const char* const end = begin + copy.bytes().size();
  const auto inside = [&](std::string_view view) {
    DOORBUSTER_ENSURE(view.empty() || (view.data() >= begin && view.data() + view.size() <= end),
                      "a view is into the text");
  };
  for (int i = 0; i < 24; ++i) {
    std::string_view name;
    switch (in.ConsumeIntegralInRange<int>(0, 7)) {
      case 0:
        static_cast<void>(reader.begin_object());
        break;
      case 1:
        static_cast<void>(reader.next_name(name));
        inside(name);
        break;
      case 2:
        static_cast<void>(reader.begin_array());
        break;
      case 3:
        static_cast<void>(reader.next_element());
        break;
      case 4:
        inside(reader.read_string());
        break;
      case 5:
        static_cast<void>(reader.read_number());
        break;
      case 6:
        reader.skip();
        break;
      default:
        static_cast<void>(reader.peek());
        break;
    }
  }
  const bool good = reader.finish();
  DOORBUSTER_ENSURE(reader.finish() == good, "the end stays the end");
  if (good) DOORBUSTER_ENSURE(reader.peek() == JsonReader::Kind::kNothing, "nothing is left");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  FuzzedDataProvider choices(data, size);
  std::array<char, 24> steps{};
  for (char& step : steps) step = static_cast<char>(in.ConsumeIntegral<std::uint8_t>());
  const std::string text = in.ConsumeRemainingBytesAsString();
  compare(text);
  wander(text, choices);
  return 0;
}

#include <algorithm>
#include <array>

#include "common/ids.hpp"
#include "common/money.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "engine/order_id.hpp"
#include "fuzz/fuzz.hpp"

/// Everything that names something: id numbers, allotments, scopes, grants, public order ids.
///
/// - Each id has one spelling: what is accepted is written as exactly that text, and what is
///   written is accepted.
/// - An order id is its member's only: no other member, key, or text (one character changed, added
///   or taken away) is accepted.
/// - Grant ids of one maker rise, wherever the clock goes.
namespace doorbuster::fuzz {
namespace {

using common::AllotmentId;
using common::GrantId;
using common::MemberId;
using common::ScopeId;
using engine::OrderIdCodec;
using engine::OrderRef;

constexpr std::array<std::uint8_t, OrderIdCodec::kKeyBytes> kKey{1, 2, 3};
constexpr std::array<std::uint8_t, OrderIdCodec::kKeyBytes> kOtherKey{1, 2, 4};

void check_text(std::string_view text) {
  if (const auto number = common::parse_id_number(text)) {
    DOORBUSTER_ENSURE(*number >= 1 && std::to_string(*number) == text, "one spelling");
  }
  if (const auto id = common::parse_allotment_id(text)) {
    DOORBUSTER_ENSURE((id->kind == 'i' || id->kind == 'c') && id->number >= 1, "a known kind");
    DOORBUSTER_ENSURE(common::to_string(*id) == text, "one spelling");
  }
  if (const auto id = common::parse_scope_id(text)) {
    DOORBUSTER_ENSURE((id->kind == 's' || id->kind == 'i' || id->kind == 'c') && id->number >= 1,
                      "a known kind");
    DOORBUSTER_ENSURE(common::to_string(*id) == text, "one spelling");
  }
  if (const auto id = common::parse_grant_id(text)) {
    DOORBUSTER_ENSURE(common::to_string(*id) == text, "one spelling");
  }
  if (const auto currency = common::parse_currency(text)) {
    DOORBUSTER_ENSURE(currency->text() == text, "one spelling");
  }
}

void check_number(std::int64_t number) {
  const bool good = number >= 1;
  const std::string text = std::to_string(number);
  DOORBUSTER_ENSURE(common::parse_id_number(text).has_value() == good, "1 to 2^63-1");
  DOORBUSTER_ENSURE(!common::parse_id_number("0" + text), "no leading zero");
  for (const char kind : {'i', 'c', 's'}) {
    const AllotmentId allotment{kind, number};
    const ScopeId scope{kind, number};
    const auto read_allotment = common::parse_allotment_id(common::to_string(allotment));
    DOORBUSTER_ENSURE(read_allotment.has_value() == (good && kind != 's'), "known kinds only");
    DOORBUSTER_ENSURE(!read_allotment || *read_allotment == allotment, "the same again");
    const auto read_scope = common::parse_scope_id(common::to_string(scope));
    DOORBUSTER_ENSURE(read_scope.has_value() == good && (!read_scope || *read_scope == scope),
                      "the same again");
  }
}

bool same(const OrderRef& a, const OrderRef& b) {
  return a.grant == b.grant && a.allotment == b.allotment && a.epoch == b.epoch;
}

void check_order(const OrderRef& order, MemberId member, MemberId other, std::size_t place,
                 char put) {
  const OrderIdCodec codec(kKey);
  const std::string text = codec.encode(order, member);
  const auto read = codec.decode(text, member);
  DOORBUSTER_ENSURE(read && same(*read, order), "an order id can be read");
  if (other != member) DOORBUSTER_ENSURE(!codec.decode(text, other), "no stranger's");
  DOORBUSTER_ENSURE(!OrderIdCodec(kOtherKey).decode(text, member), "no other shop's");
  std::string changed = text;
  changed[place % changed.size()] = put;
  if (changed != text) DOORBUSTER_ENSURE(!codec.decode(changed, member), "no other text");
  DOORBUSTER_ENSURE(!codec.decode(text + put, member), "nothing added");
  DOORBUSTER_ENSURE(!codec.decode(text.substr(1), member), "nothing taken away");
}

/// Where the input says.
class SteppingClock final : public common::Clock {
 public:
  [[nodiscard]] common::Instant now() const noexcept override { return at; }
  [[nodiscard]] common::Steady steady() const noexcept override { return {}; }
  common::Instant at{};
};

void check_maker(FuzzedDataProvider& in) {
  SteppingClock clock;
  common::GrantIdMaker maker(clock, [](std::span<std::uint8_t> out) { std::ranges::fill(out, 7); });
  GrantId last;
  for (int i = 0; i < 4; ++i) {
    // 48 bits of milliseconds: to the year 10889.
    clock.at =
        common::from_micros(in.ConsumeIntegralInRange<std::int64_t>(-1, 281'474'976'710'000));
    const GrantId id = maker.make();
    DOORBUSTER_ENSURE(i == 0 || id > last, "ids rise");
    DOORBUSTER_ENSURE((id.bytes[6] >> 4) == 7 && (id.bytes[8] >> 6) == 2, "UUIDv7's layout");
    DOORBUSTER_ENSURE(common::parse_grant_id(common::to_string(id)) == id, "the same again");
    last = id;
  }
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster;        // NOLINT(google-build-using-namespace)
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  const auto number = in.ConsumeIntegral<std::int64_t>();
  const MemberId member{in.ConsumeIntegral<std::int64_t>()};
  const MemberId other{in.ConsumeIntegral<std::int64_t>()};
  const auto place = in.ConsumeIntegral<std::uint8_t>();
  const auto put = in.ConsumeIntegral<char>();
  OrderRef order;
  order.allotment = {in.ConsumeBool() ? 'i' : 'c', number};
  order.epoch = common::Epoch{in.ConsumeIntegral<std::uint32_t>()};
  check_maker(in);
  const Exact text(in.ConsumeRemainingBytesAsString());

  const std::string_view bytes = text.view().substr(0, order.grant.bytes.size());
  std::copy(bytes.begin(), bytes.end(), order.grant.bytes.begin());
  check_number(number);
  check_order(order, member, other, place, put);
  check_text(text.view());
  // Invented by whoever wrote the input: good only if it is what we would have written.
  const OrderIdCodec codec(kKey);
  if (const auto invented = codec.decode(text.view(), member)) {
    DOORBUSTER_ENSURE(codec.encode(*invented, member) == text.view(), "one spelling");
  }
  return 0;
}

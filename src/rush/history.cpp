#include "rush/history.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "common/clock.hpp"

namespace doorbuster::rush {
namespace {

constexpr std::array<std::string_view, kAnswerKinds> kAnswerNames = {
    "granted",   "already",        "sold_out",    "not_open",     "paused",      "closed",
    "forbidden", "busy",           "limited",     "unauthorized", "not_found",   "order",
    "paid",      "declined",       "pay_refused", "not_ready",    "pay_unknown", "server_error",
    "other",     "connect_failed", "cut",         "no_answer"};

constexpr std::array<std::string_view, 3> kAskNames = {"purchase", "read", "pay"};

constexpr std::array<std::string_view, 7> kStatusNames = {
    "", "PENDING", "PAID", "EXPIRED", "CANCELED", "REJECTED", "UNKNOWN"};

struct FindingName {
  std::string_view code;
  std::string_view sentence;
};
constexpr std::array<FindingName, kFindingKinds> kFindingNames = {{
    {"OVERSOLD", "more rows hold a unit than there are units"},
    {"OVER_LIMIT", "a member holds more than the limit"},
    {"SLOT_TWICE", "two rows hold the same slot"},
    {"SLOT_RANGE", "a row holds no slot, or one that does not exist"},
    {"ROW_TWICE", "two rows have the same order id"},
    {"ANSWER_WITHOUT_ROW", "an order was answered that has no row"},
    {"STRANGERS_ORDER", "an answer named an order of another member"},
    {"REFUSED_BUT_HOLDS", "a member was told sold out, and has a unit that nobody told of"},
    {"UNITS_LEFT", "sold out was answered, nothing came back, and units are left"},
    {"COUNT_WRONG", "the counter of sold units differs from the rows"},
    {"HOLDER_REFUSED", "a holder who asked again was told sold out"},
    {"OTHER_GRANT", "a holder who asked again was given another order"},
    {"DEAD_GRANT", "\"you have one\" was answered with an order that is over"},
    {"REJECTED_AFTER_GRANT", "answered as granted, then rejected"},
    {"MERGED_NOWHERE", "merged into a grant that the member does not have"},
    {"GRANT_AFTER_FINAL", "told sold out for good, and a later request got a unit"},
    {"FRESH_AFTER_REFUSAL",
     "told sold out, and a later request got a unit that nobody had given back"},
    {"DEADLINE_MOVED", "one order was told two deadlines"},
    {"PAID_NOT_KEPT", "answered as paid, and the row says otherwise"},
}};

/// RFC 4180: quoted when a separator, a quote or a line end is inside.
void append_field(std::string_view text, std::string& out) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

}  // namespace

std::string_view to_string(AnswerKind kind) noexcept {
  return kAnswerNames[static_cast<std::size_t>(kind)];
}
std::string_view to_string(Ask ask) noexcept { return kAskNames[static_cast<std::size_t>(ask)]; }
std::string_view to_string(OrderStatus status) noexcept {
  return kStatusNames[static_cast<std::size_t>(status)];
}
std::string_view to_string(FindingKind kind) noexcept {
  return kFindingNames[static_cast<std::size_t>(kind)].sentence;
}
std::string_view code_of(FindingKind kind) noexcept {
  return kFindingNames[static_cast<std::size_t>(kind)].code;
}

OrderStatus parse_order_status(std::string_view text) noexcept {
  for (std::size_t i = 0; i + 1 < kStatusNames.size(); ++i) {
    if (text == kStatusNames[i]) return static_cast<OrderStatus>(i);
  }
  return OrderStatus::kUnknown;
}

std::uint32_t History::number_of(std::string_view text) {
  if (text.empty()) return 0;
  const auto [place, added] =
      numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (added) texts_.emplace_back(text);
  return place->second;
}

std::optional<std::uint32_t> History::find(std::string_view text) const {
  if (text.empty()) return 0;
  const auto found = numbers_.find(std::string(text));
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

void History::append(const History& other) {
  std::vector<std::uint32_t> here(other.texts_.size());
  for (std::size_t i = 1; i < here.size(); ++i) here[i] = number_of(other.texts_[i]);
  requests_.reserve(requests_.size() + other.requests_.size());
  for (Request request : other.requests_) {
    request.key = here[request.key];
    request.order = here[request.order];
    requests_.push_back(request);
  }
}

std::size_t Verdict::count(FindingKind kind) const noexcept {
  for (const Finding& finding : findings) {
    if (finding.kind == kind) return finding.count;
  }
  return 0;
}

void append_csv(const History& history, const Request& request, std::int64_t origin_us,
                std::string& out) {
  fmt::format_to(std::back_inserter(out), "{},{},", to_string(request.ask), request.member);
  append_field(history.text(request.key), out);
  fmt::format_to(std::back_inserter(out), ",{},{},{},{},", request.start_us - origin_us,
                 request.end_us - origin_us, to_string(request.answer), request.final ? 1 : 0);
  append_field(history.text(request.order), out);
  fmt::format_to(std::back_inserter(out), ",{},{}\n", to_string(request.status),
                 request.expires_us == 0
                     ? std::string()
                     : common::to_rfc3339(common::from_micros(request.expires_us)));
}

}  // namespace doorbuster::rush

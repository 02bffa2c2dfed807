#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace doorbuster::rush {

/// What was asked.
enum class Ask : std::uint8_t {
  kPurchase,  ///< POST .../purchase, first time or again
  kRead,      ///< GET .../orders/{orderId}
  kPay,       ///< POST .../payment
};

/// What came of it.
enum class AnswerKind : std::uint8_t {
  kGranted,        ///< 202 with an order
  kAlready,        ///< 409 ALREADY_PURCHASED with the member's own order
  kSoldOut,        ///< 410; `final` says whether a unit may still come back
  kNotOpen,        ///< 403 NOT_OPEN
  kPaused,         ///< 403 PAUSED
  kClosed,         ///< 403 CLOSED
  kForbidden,      ///< any other 403
  kBusy,           ///< 503: proves nothing, asking again tells
  kLimited,        ///< 429
  kUnauthorized,   ///< 401
  kNotFound,       ///< 404
  kOrder,          ///< 200 to a read
  kPaid,           ///< 200 to a payment, or 409 ALREADY_PAID
  kDeclined,       ///< 402
  kPayRefused,     ///< 409 to a payment, for good: the hold is over
  kNotReady,       ///< 409 to a payment: not recorded yet, or another attempt is under way
  kPayUnknown,     ///< 202 to a payment: the gateway did not answer, it is being asked
  kServerError,    ///< any other 5xx: proves nothing
  kOther,          ///< an answer that has no meaning here
  kConnectFailed,  ///< the server cannot have seen it
  kCut,            ///< sent, and the connection ended before the answer
  kNoAnswer,       ///< sent, and no answer within the time allowed
};
inline constexpr std::size_t kAnswerKinds = static_cast<std::size_t>(AnswerKind::kNoAnswer) + 1;
/// "granted", "sold_out", ...: for reports, JSON and the history file.
[[nodiscard]] std::string_view to_string(AnswerKind kind) noexcept;
[[nodiscard]] std::string_view to_string(Ask ask) noexcept;

/// An order's state as an answer or a row tells it.
enum class OrderStatus : std::uint8_t {
  kNone,
  kPending,
  kPaid,
  kExpired,
  kCanceled,
  kRejected,
  kUnknown
};
[[nodiscard]] std::string_view to_string(OrderStatus status) noexcept;
/// kNone for an empty text, kUnknown for a word that is none of them.
[[nodiscard]] OrderStatus parse_order_status(std::string_view text) noexcept;

/// One request with its answer. Small, since a rush has millions.
struct Request {
  std::int64_t start_us = 0;  ///< sent; on one monotonic clock for the whole history
  std::int64_t end_us = 0;    ///< answered, or given up
  std::int64_t member = 0;
  std::int64_t expires_us = 0;  ///< the deadline that the answer told, Unix microseconds; 0: none
  std::uint32_t key = 0;        ///< of History::text; 0: without Idempotency-Key
  std::uint32_t order = 0;      ///< of History::text; 0: the answer named no order
  std::uint32_t waited_us =
      0;  ///< before `start_us`: from when it was due until there was room to send it
  Ask ask = Ask::kPurchase;
  AnswerKind answer = AnswerKind::kOther;
  OrderStatus status = OrderStatus::kNone;
  bool final = false;
};

/// Everything that was asked and answered. Keys and order ids are kept once each and named by
/// number. Not thread-safe; each worker fills its own, and they are put together.
class History {
 public:
  History() { texts_.emplace_back(); }
  /// The number of a text; 0 for an empty one.
  [[nodiscard]] std::uint32_t number_of(std::string_view text);
  /// The same for a text that may not be here; then nothing.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view text) const;
  [[nodiscard]] const std::string& text(std::uint32_t number) const { return texts_[number]; }
  [[nodiscard]] std::size_t texts() const noexcept { return texts_.size(); }

  void add(const Request& request) { requests_.push_back(request); }
  void reserve(std::size_t requests) { requests_.reserve(requests); }
  /// Takes over all of `other`, whose numbers change on the way.
  void append(const History& other);
  [[nodiscard]] const std::vector<Request>& requests() const noexcept { return requests_; }

 private:
  std::vector<Request> requests_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// A row of the ledger, as the server (or the simulation) tells it.
struct LedgerRow {
  std::string order;  ///< the public order id, as answers name it
  std::string grant;  ///< the grant's id, as `merged_into` names it
  std::int64_t member = 0;
  std::optional<std::int64_t> slot;
  std::optional<std::int64_t> nth;
  OrderStatus state = OrderStatus::kNone;
  std::string reason;
  std::string merged_into;
  std::string key;
  std::int64_t expires_us = 0;
};

/// The ledger's rows of one allotment, and its limits.
struct Ledger {
  std::int64_t quantity = 0;
  std::int64_t per_member = 1;
  std::optional<std::int64_t>
      sold;  ///< the second net's counter, where it was read in the same moment
  std::vector<LedgerRow> rows;
};

struct CheckRules {
  /// Another node may tell somebody who became a holder within this time `final: false` (engine
  /// page, "the sold-out flag"); zero for one node.
  std::chrono::microseconds holder_news{0};
  /// The ledger holds every allotment of the scope, so that a merge must lead to one of its rows.
  bool whole_scope = false;
  std::size_t examples = 5;  ///< kept of each kind of finding
};

/// A broken promise. The letters name the invariant of the engine page.
enum class FindingKind : std::uint8_t {
  kOversold,          ///< I1: more rows hold a unit than there are
  kOverLimit,         ///< I2: a member holds more than the limit, or an nth twice or beyond it
  kSlotTwice,         ///< I3: two rows hold one slot
  kSlotRange,         ///< I3: a row holds no slot, or one outside 1..quantity
  kRowTwice,          ///< S1: two rows under one order id
  kAnswerWithoutRow,  ///< I4: an order was answered, and there is no row
  kStrangersOrder,    ///< an answer named an order of another member
  kRefusedButHolds,   ///< I4: a row holds a unit, and its member's last answer was sold out
  kUnitsLeft,      ///< I5: somebody was told sold out, nothing ever came back, and units are left
  kCountWrong,     ///< I1: the counter `sold` differs from the rows that hold
  kHolderRefused,  ///< I6: a holder who asked again was told sold out
  kOtherGrant,     ///< I6: a holder who asked again was given another order
  kDeadGrant,      ///< "you have one" was answered with an order that is over
  kRejectedAfterGrant,  ///< I7: answered as granted, then REJECTED without being merged into
                        ///< another
  kMergedNowhere,       ///< section 7: merged into a grant that its member does not have
  kGrantAfterFinal,     ///< I7: told sold out for good, and somebody who asked later got a unit
  kFreshAfterRefusal,   ///< I7: told sold out, and somebody who asked later got a unit that nobody
                        ///< gave back
  kDeadlineMoved,       ///< section 9: one order, two deadlines
  kPaidNotKept,         ///< I8: answered as paid, and its row says otherwise
};
inline constexpr std::size_t kFindingKinds =
    static_cast<std::size_t>(FindingKind::kPaidNotKept) + 1;
/// A short sentence for people.
[[nodiscard]] std::string_view to_string(FindingKind kind) noexcept;
/// "OVERSOLD", ...: for machines.
[[nodiscard]] std::string_view code_of(FindingKind kind) noexcept;

struct Finding {
  FindingKind kind = FindingKind::kOversold;
  std::size_t count = 0;
  std::vector<std::string> examples;
};

/// What the check says, with the figures that are no fault by themselves.
struct Verdict {
  std::vector<Finding>
      findings;  ///< one for each kind that occurred, in the order of the enumeration
  std::size_t told_orders = 0;           ///< different orders that answers named
  std::size_t holding = 0;               ///< rows PENDING or PAID
  std::size_t terminal = 0;              ///< rows of any other state
  std::size_t rejected_after_grant = 0;  ///< 202, then REJECTED; the merged ones included
  std::size_t merged = 0;                ///< rows merged into another grant
  std::size_t untold_rows = 0;  ///< rows of members who asked here and were never told of them
  std::size_t rows_of_others =
      0;  ///< rows of members (or under keys) that this history does not have
  std::vector<std::int64_t> free_slots;  ///< the first slots of 1..quantity that no row holds
  std::size_t free_slot_count = 0;
  static constexpr std::size_t kFreeSlotsListed = 100;

  [[nodiscard]] bool ok() const noexcept { return findings.empty(); }
  [[nodiscard]] std::size_t count(FindingKind kind) const noexcept;
};

/// Compares what was answered with what the ledger has. It keeps its own books from requests and
/// answers, and where a race allows two answers it allows exactly those two:
///
/// - a request may have been decided at any instant between its start and its end, and an
/// unanswered one (cut,
///   busy, 5xx) at any later one as well, so "asked later" means: started after the other's answer
///   was there;
/// - a grant belongs to the earliest request of its member (and key) that may have brought it
/// about.
///
/// Without a ledger (`ledger` is null: somebody else's server) only what answers alone can prove is
/// checked. The rows must be complete, and read when nothing was moving.
[[nodiscard]] Verdict check_history(const History& history, const Ledger* ledger,
                                    const CheckRules& rules = {});

/// The history as CSV: this line, then one for each request.
inline constexpr std::string_view kHistoryCsvHeader =
    "ask,member,key,start_us,end_us,answer,final,order,status,expires_at\n";
/// Appends the line of one request; times count from `origin_us`.
void append_csv(const History& history, const Request& request, std::int64_t origin_us,
                std::string& out);

}  // namespace doorbuster::rush

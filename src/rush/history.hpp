#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doorbuster::rush {

/// What a buyer did.
enum class Action : std::uint8_t {
  kPurchase,  ///< POST .../purchase, the first time or again
  kRead,      ///< GET .../orders/{orderId}
  kPay,       ///< POST .../orders/{orderId}/payment
};

/// What came of it. The names of answers follow api.md.
enum class AnswerKind : std::uint8_t {
  kGranted,        ///< 202 with an order
  kAlready,        ///< 409 ALREADY_PURCHASED with the member's order
  kSoldOut,        ///< 410, final: false
  kSoldOutFinal,   ///< 410, final: true
  kNotOpen,        ///< 403 NOT_OPEN
  kPaused,         ///< 403 PAUSED
  kClosed,         ///< 403 CLOSED
  kBusy,           ///< 503
  kLimited,        ///< 429
  kUnauthorized,   ///< 401
  kNotFound,       ///< 404
  kOther,          ///< any other status
  kConnectFailed,  ///< no connection, so nothing was sent
  kCut,            ///< sent, and the connection ended or fell silent before the answer: anything may have happened
  kOk,             ///< 200 to a kRead or kPay
};
inline constexpr std::size_t kAnswerKinds = 15;
/// Its stable name, such as "sold_out_final"; used in the JSON report and the history file.
[[nodiscard]] std::string_view to_string(AnswerKind kind) noexcept;
[[nodiscard]] std::string_view to_string(Action action) noexcept;

enum class OrderState : std::uint8_t { kNone, kPending, kPaid, kExpired, kCanceled, kRejected };
/// "PENDING" and so on; kNone is "".
[[nodiscard]] std::string_view to_string(OrderState state) noexcept;
/// kNone for any other text.
[[nodiscard]] OrderState parse_order_state(std::string_view text) noexcept;

/// One request with its answer, as its sender saw it. Instants are microseconds since 1970.
struct Exchange {
  std::int64_t start_us = 0;  ///< when it was sent
  std::int64_t end_us = 0;    ///< when the answer was there, or was given up
  std::int64_t member = 0;
  Action action = Action::kPurchase;
  AnswerKind kind = AnswerKind::kOther;
  OrderState status = OrderState::kNone;  ///< as answered
  std::int64_t expires_us = 0;            ///< as answered; 0: not said
  std::string_view key;                   ///< the Idempotency-Key that was sent, or empty
  std::string_view order_id;              ///< as answered (or, for kRead and kPay, as asked for), or empty
};

/// Many exchanges in little memory (48 bytes each and their texts). What at() returns points into the history
/// and lives until it changes. Not thread-safe: each worker keeps its own, and they are put together.
class History {
 public:
  /// Texts are copied; one longer than 65,535 bytes is cut there.
  void add(const Exchange& exchange);
  void append(const History& other);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] Exchange at(std::size_t index) const noexcept;

 private:
  struct Entry {
    std::int64_t start_us;
    std::int64_t end_us;
    std::int64_t member;
    std::int64_t expires_us;
    std::uint64_t text;  // where the key begins in texts_; the order id follows it
    std::uint16_t key_size;
    std::uint16_t order_size;
    Action action;
    AnswerKind kind;
    OrderState status;
  };
  std::vector<Entry> entries_;
  std::string texts_;
};

/// A row of the ledger, as read when it was quiet.
struct LedgerRow {
  std::string grant_id;   ///< what `merged_into` of another row names
  std::string order_id;   ///< what answers name
  std::int64_t member = 0;
  std::optional<std::int64_t> slot;
  std::optional<std::int64_t> nth;
  OrderState state = OrderState::kNone;
  std::string merged_into;  ///< a grant id, or empty
  std::string key;
  std::int64_t recorded_us = 0;
  std::int64_t expires_us = 0;
};

struct Limits {
  std::int64_t quantity = 0;
  std::int64_t per_member = 1;
  /// How far the clock of the asker and the clock of the ledger may be apart; 0 on one machine.
  std::int64_t skew_us = 0;
  /// With several nodes a holder of less than a second may read `final: false` on another one (engine page,
  /// section 5): 1,000,000 then, 0 with one node.
  std::int64_t holder_grace_us = 0;
};

/// One test looks for each of these.
enum class FindingKind : std::uint8_t {
  kOversold,            ///< more rows hold a unit than there are (I1)
  kUnsold,              ///< a unit was never handed out, and somebody was told that nothing is left (I5)
  kSlotTwice,           ///< two rows hold one slot (I3)
  kSlotOutOfRange,      ///< a row holds no slot of 1..quantity (I3)
  kMemberAboveLimit,    ///< a member holds more than the limit (I2)
  kKeyTwice,            ///< two rows of a member hold units under one key (I6)
  kGrantWithoutRow,     ///< answered 202, and no row has its id (I4)
  kGrantOfAnother,      ///< answered 202, and the row is another member's (I4)
  kGrantUnreadable,     ///< the owner of an answered grant was told 404 for it (I4)
  kRejectedAfterGrant,  ///< answered 202, then REJECTED without being merged (I7)
  kMergedNowhere,       ///< merged into a row that is missing or another member's (I7)
  kUntoldRefused,       ///< nobody was told of a row, and its member was told something else meanwhile (I4)
  kFinalThenGrant,      ///< somebody was told "sold out, final", later another got a unit that never came back (I7)
  kHolderRefused,       ///< a holder was told "sold out" (I6)
  kGrantChanged,        ///< a holder was told another order than before (I6)
  kBlockedByDead,       ///< told "you have one" with an order that holds nothing (cases.md 7)
  kDeadlineMoved,       ///< one order, two deadlines (section 9)
  kPaymentLost,         ///< answered PAID, and the row is not (I8)
  kMergedAfterGrant,    ///< a note: answered 202, then merged into the member's other grant
  kUntoldRow,           ///< a note: nobody was told of a row (its answers were cut)
  kRefusedThenGrant,    ///< a note: told "sold out for now", later another got a unit of which no return is seen
};
inline constexpr std::size_t kFindingKinds = 21;
[[nodiscard]] std::string_view to_string(FindingKind kind) noexcept;
/// Whether it breaks a promise; the others are worth reading, and can have happened rightly.
[[nodiscard]] bool breaks_promise(FindingKind kind) noexcept;

struct Finding {
  static constexpr std::size_t kMaxExamples = 10;
  FindingKind kind{};
  std::uint64_t count = 0;
  std::vector<std::string> examples;  ///< the first of them, in words, with members and ids
};

/// A run of slots that no row holds.
struct Gap {
  std::int64_t first = 0;
  std::int64_t last = 0;
  friend bool operator==(const Gap&, const Gap&) = default;
};

struct CheckResult {
  static constexpr std::size_t kMaxGaps = 50;

  std::uint64_t exchanges = 0;
  std::uint64_t rows = 0;
  std::uint64_t holding = 0;                    ///< PENDING and PAID
  std::array<std::uint64_t, 6> rows_by_state{};  ///< by OrderState
  std::uint64_t granted_orders = 0;              ///< different orders that were answered 202
  std::uint64_t rejected_after_grant = 0;
  std::uint64_t merged_after_grant = 0;
  std::uint64_t untold_rows = 0;
  std::uint64_t free_slots = 0;
  std::vector<Gap> gaps;          ///< the first ones
  std::vector<Finding> findings;  ///< at most one for each kind, in the order of FindingKind

  /// True when no finding breaks a promise.
  [[nodiscard]] bool ok() const noexcept;
  [[nodiscard]] const Finding* find(FindingKind kind) const noexcept;
};

/// Compares what was answered with what the ledger holds. Pure: it knows nothing but its arguments, and keeps
/// its own books, so that a mistake of the product cannot hide in the product's own counters. `rows` are all
/// rows of the allotment. Where a race allows two answers, both pass.
[[nodiscard]] CheckResult check_history(const History& history, std::span<const LedgerRow> rows,
                                        const Limits& limits);

}  // namespace doorbuster::rush

#include "rush/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace doorbuster::rush {
namespace {

constexpr std::array<std::string_view, kAnswerKinds> kAnswerNames = {
    "granted",      "already",   "sold_out", "sold_out_final", "not_open",
    "paused",       "closed",    "busy",     "limited",        "unauthorized",
    "not_found",    "other",     "connect_failed", "cut",      "ok"};
constexpr std::array<std::string_view, kFindingKinds> kFindingNames = {
    "oversold",          "unsold",         "slot_twice",        "slot_out_of_range",
    "member_above_limit", "key_twice",     "grant_without_row", "grant_of_another",
    "grant_unreadable",  "rejected_after_grant", "merged_nowhere", "untold_refused",
    "final_then_grant",  "holder_refused", "grant_changed",     "blocked_by_dead",
    "deadline_moved",    "payment_lost",   "merged_after_grant", "untold_row",
    "refused_then_grant"};
constexpr std::array<std::string_view, 6> kStateNames = {"",        "PENDING",  "PAID",
                                                         "EXPIRED", "CANCELED", "REJECTED"};

bool holds(OrderState state) noexcept {
  return state == OrderState::kPending || state == OrderState::kPaid;
}
bool names_order(AnswerKind kind) noexcept {
  return kind == AnswerKind::kGranted || kind == AnswerKind::kAlready;
}
bool sold_out(AnswerKind kind) noexcept {
  return kind == AnswerKind::kSoldOut || kind == AnswerKind::kSoldOutFinal;
}

/// One wanted unit: with a limit of one the member alone names it, else the key does.
struct Want {
  std::int64_t member = 0;
  std::string_view key;
  friend bool operator==(const Want&, const Want&) = default;
};
struct WantHash {
  std::size_t operator()(const Want& want) const noexcept {
    return std::hash<std::int64_t>{}(want.member) * 0x9E3779B97F4A7C15ULL ^
           std::hash<std::string_view>{}(want.key);
  }
};

class Checker {
 public:
  Checker(const History& history, std::span<const LedgerRow> rows, const Limits& limits)
      : history_(history), rows_(rows), limits_(limits) {}

  CheckResult run() {
    result_.exchanges = history_.size();
    result_.rows = rows_.size();
    index_rows();
    check_rows();
    index_exchanges();
    check_orders();
    check_wants();
    check_untold();
    check_refused_then_granted();
    check_unsold();
    for (std::size_t i = 0; i < kFindingKinds; ++i) {
      if (found_[i].count == 0) continue;
      found_[i].kind = static_cast<FindingKind>(i);
      result_.findings.push_back(std::move(found_[i]));
    }
    return std::move(result_);
  }

 private:
  /// What the answers said of one order.
  struct Told {
    std::int64_t member = 0;
    bool granted = false;            // by a 202
    std::int64_t first_start = 0;    // the earliest request that was answered with it
    std::int64_t first_end = 0;      // and the earliest answer
    std::int64_t expires_us = 0;
    bool deadline_moved = false;
    bool unreadable = false;
    bool paid = false;
  };

  template <class... Args>
  void report(FindingKind kind, fmt::format_string<Args...> text, Args&&... args) {
    Finding& finding = found_[static_cast<std::size_t>(kind)];
    ++finding.count;
    if (finding.examples.size() < Finding::kMaxExamples) {
      finding.examples.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
  }

  Want want_of(std::int64_t member, std::string_view key) const {
    return {member, limits_.per_member == 1 ? std::string_view() : key};
  }

  const LedgerRow* row_of(std::string_view order_id) const {
    const auto found = by_order_.find(order_id);
    return found == by_order_.end() ? nullptr : found->second;
  }

  /// Whether the grant still held its unit at `at`. Unknown moments (a cancellation) count as ended, so that only
  /// what is certain is reported.
  static bool held_at(const LedgerRow& row, std::int64_t at) {
    return holds(row.state) || (row.state == OrderState::kExpired && at < row.expires_us);
  }

  void index_rows() {
    by_order_.reserve(rows_.size());
    by_grant_.reserve(rows_.size());
    for (const LedgerRow& row : rows_) {
      by_order_.emplace(row.order_id, &row);
      by_grant_.emplace(row.grant_id, &row);
      ++result_.rows_by_state[static_cast<std::size_t>(row.state)];
    }
  }

  /// What the ledger says by itself: I1, I2, I3.
  void check_rows() {
    std::unordered_map<std::int64_t, const LedgerRow*> by_slot;
    std::unordered_map<std::int64_t, std::int64_t> per_member;
    std::unordered_map<Want, const LedgerRow*, WantHash> by_key;
    std::vector<std::int64_t> slots;
    for (const LedgerRow& row : rows_) {
      if (!holds(row.state)) continue;
      ++result_.holding;
      if (!row.slot || *row.slot < 1 || *row.slot > limits_.quantity) {
        report(FindingKind::kSlotOutOfRange, "order {} of member {} holds slot {} of {}",
               row.order_id, row.member, row.slot ? std::to_string(*row.slot) : "none",
               limits_.quantity);
      } else {
        const auto [place, fresh] = by_slot.emplace(*row.slot, &row);
        if (fresh) {
          slots.push_back(*row.slot);
        } else {
          report(FindingKind::kSlotTwice, "slot {}: order {} of member {} and order {} of member {}",
                 *row.slot, place->second->order_id, place->second->member, row.order_id,
                 row.member);
        }
      }
      const std::int64_t held = ++per_member[row.member];
      if (held > limits_.per_member || (row.nth && (*row.nth < 1 || *row.nth > limits_.per_member))) {
        report(FindingKind::kMemberAboveLimit, "member {} holds {} (limit {}), the last is order {}",
               row.member, held, limits_.per_member, row.order_id);
      }
      if (!row.key.empty()) {
        const auto [place, fresh] = by_key.emplace(Want{row.member, row.key}, &row);
        if (!fresh) {
          report(FindingKind::kKeyTwice, "member {}, key {}: orders {} and {}", row.member, row.key,
                 place->second->order_id, row.order_id);
        }
      }
    }
    if (static_cast<std::int64_t>(result_.holding) > limits_.quantity) {
      report(FindingKind::kOversold, "{} rows hold a unit, {} exist", result_.holding,
             limits_.quantity);
    }
    std::sort(slots.begin(), slots.end());
    std::int64_t next = 1;
    const auto gap_until = [&](std::int64_t end) {
      if (next > end) return;
      result_.free_slots += static_cast<std::uint64_t>(end - next + 1);
      if (result_.gaps.size() < CheckResult::kMaxGaps) result_.gaps.push_back({next, end});
    };
    for (const std::int64_t slot : slots) {
      gap_until(slot - 1);
      next = slot + 1;
    }
    gap_until(limits_.quantity);
  }

  void index_exchanges() {
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const Exchange one = history_.at(i);
      if (one.action == Action::kPurchase && sold_out(one.kind)) {
        if (one.kind == AnswerKind::kSoldOutFinal) first_final_ = std::min(first_final_, one.end_us);
        first_refusal_ = std::min(first_refusal_, one.end_us);
      }
      if (one.order_id.empty()) continue;
      if (one.action == Action::kPurchase && !names_order(one.kind)) continue;
      Told& told = told_[one.order_id];
      if (told.member == 0) {
        told.member = one.member;
        told.first_start = one.start_us;
        told.first_end = one.end_us;
      }
      told.first_start = std::min(told.first_start, one.start_us);
      told.first_end = std::min(told.first_end, one.end_us);
      if (one.action == Action::kPurchase && one.kind == AnswerKind::kGranted) {
        told.granted = true;
        told.member = one.member;
      }
      if (one.action != Action::kPurchase && one.kind == AnswerKind::kNotFound) told.unreadable = true;
      if (one.action == Action::kPay && one.kind == AnswerKind::kOk &&
          one.status == OrderState::kPaid) {
        told.paid = true;
      }
      if (one.expires_us == 0) continue;
      if (told.expires_us == 0) told.expires_us = one.expires_us;
      if (told.expires_us != one.expires_us && !told.deadline_moved) {
        // A read of a merged order answers with the other order, but then also under its id.
        told.deadline_moved = true;
        report(FindingKind::kDeadlineMoved, "order {} of member {}: answered {} and {}", one.order_id,
               one.member, told.expires_us, one.expires_us);
      }
    }
  }

  /// What was answered, order by order, against the rows.
  void check_orders() {
    for (const auto& [order_id, told] : told_) {
      const LedgerRow* row = row_of(order_id);
      if (told.granted) {
        ++result_.granted_orders;
        if (told.unreadable) {
          report(FindingKind::kGrantUnreadable, "order {} of member {} was answered 404", order_id,
                 told.member);
        }
        if (row == nullptr) {
          report(FindingKind::kGrantWithoutRow, "order {} of member {}", order_id, told.member);
        } else if (row->member != told.member) {
          report(FindingKind::kGrantOfAnother, "order {} was given to member {}, its row is member {}'s",
                 order_id, told.member, row->member);
        }
        if (row != nullptr && row->state == OrderState::kRejected) check_rejected(*row);
      }
      if (row == nullptr) continue;
      if (told.paid && row->state != OrderState::kPaid && row->state != OrderState::kCanceled) {
        // A paid order may be refunded and CANCELED; nothing else follows PAID.
        report(FindingKind::kPaymentLost, "order {} of member {} was answered PAID and is {}", order_id,
               told.member, to_string(row->state));
      }
      if (told.expires_us != 0 && row->expires_us != 0 && told.expires_us != row->expires_us &&
          !told.deadline_moved) {
        report(FindingKind::kDeadlineMoved, "order {} of member {}: answered {}, the row says {}",
               order_id, told.member, told.expires_us, row->expires_us);
      }
    }
  }

  void check_rejected(const LedgerRow& row) {
    if (row.merged_into.empty()) {
      ++result_.rejected_after_grant;
      report(FindingKind::kRejectedAfterGrant, "order {} of member {}", row.order_id, row.member);
      return;
    }
    ++result_.merged_after_grant;
    const auto other = by_grant_.find(row.merged_into);
    // The limit is counted in the sale, so the other grant may be of another item, whose rows are not here.
    // A row that is here must be the member's own and must not be a dead end itself.
    if (other != by_grant_.end() && other->second->member == row.member &&
        other->second->state != OrderState::kRejected) {
      report(FindingKind::kMergedAfterGrant, "order {} of member {} into {}", row.order_id, row.member,
             other->second->order_id);
    } else {
      report(FindingKind::kMergedNowhere, "order {} of member {} names {}", row.order_id, row.member,
             row.merged_into);
    }
  }

  /// What each buyer was told, in the order of time.
  void check_wants() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const Exchange one = history_.at(i);
      if (one.action != Action::kPurchase) continue;
      if (names_order(one.kind) || sold_out(one.kind)) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return history_.at(a).end_us < history_.at(b).end_us;
    });
    // Only buyers who were told of an order can be contradicted.
    std::unordered_map<Want, std::vector<std::size_t>, WantHash> holders;
    for (const std::size_t i : order) {
      const Exchange one = history_.at(i);
      const Want want = want_of(one.member, one.key);
      if (names_order(one.kind)) {
        holders[want].push_back(i);
      } else if (const auto found = holders.find(want); found != holders.end()) {
        found->second.push_back(i);
      }
    }
    for (const auto& [want, list] : holders) check_holder(list);
  }

  void check_holder(const std::vector<std::size_t>& list) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      const Exchange now = history_.at(list[k]);
      if (now.kind == AnswerKind::kAlready && now.key.empty() &&
          (now.status == OrderState::kExpired || now.status == OrderState::kCanceled ||
           now.status == OrderState::kRejected)) {
        report(FindingKind::kBlockedByDead, "member {} was told of order {}, {}", now.member,
               now.order_id, to_string(now.status));
      }
      // The newest answer with an order that was complete before this request began. Requests of one buyer
      // hardly ever overlap, so the walk back is short.
      for (std::size_t back = k; back > 0; --back) {
        const Exchange before = history_.at(list[back - 1]);
        if (!names_order(before.kind) || before.end_us > now.start_us) continue;
        contradict(before, now);
        break;
      }
    }
  }

  void contradict(const Exchange& before, const Exchange& now) {
    const LedgerRow* row = row_of(before.order_id);
    if (row == nullptr || !held_at(*row, now.end_us + limits_.skew_us)) return;
    if (sold_out(now.kind)) {
      const bool young = now.start_us - before.end_us < limits_.holder_grace_us;
      if (young && now.kind == AnswerKind::kSoldOut) return;
      report(FindingKind::kHolderRefused, "member {} holds order {} and was told {}", now.member,
             before.order_id, to_string(now.kind));
    } else if (now.order_id != before.order_id) {
      const LedgerRow* other = row_of(now.order_id);
      if (other != nullptr && !other->merged_into.empty() && other->merged_into == row->grant_id) return;
      report(FindingKind::kGrantChanged, "member {} holds order {} and was told of order {}", now.member,
             before.order_id, now.order_id);
    }
  }

  /// Rows that nobody was told of.
  void check_untold() {
    std::unordered_map<Want, const LedgerRow*, WantHash> untold;
    for (const LedgerRow& row : rows_) {
      if (row.state == OrderState::kRejected || told_.contains(row.order_id)) continue;
      ++result_.untold_rows;
      report(FindingKind::kUntoldRow, "order {} of member {}, {}", row.order_id, row.member,
             to_string(row.state));
      untold.emplace(want_of(row.member, row.key), &row);
    }
    if (untold.empty()) return;
    std::unordered_map<const LedgerRow*, bool> reported;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const Exchange one = history_.at(i);
      if (one.action != Action::kPurchase || !(names_order(one.kind) || sold_out(one.kind))) continue;
      const auto found = untold.find(want_of(one.member, one.key));
      if (found == untold.end()) continue;
      const LedgerRow& row = *found->second;
      // Refused before the row existed, or after it had ended: both can be true.
      if (one.start_us < row.recorded_us + limits_.skew_us ||
          !held_at(row, one.end_us + limits_.skew_us)) {
        continue;
      }
      if (one.kind == AnswerKind::kSoldOut &&
          one.start_us - row.recorded_us < limits_.holder_grace_us) {
        continue;
      }
      if (reported[&row]) continue;
      reported[&row] = true;
      report(FindingKind::kUntoldRefused, "member {} was told {}, and has order {} since before", one.member,
             to_string(one.kind), row.order_id);
    }
  }

  /// "Sold out", and later somebody else got a unit of which no return is seen.
  void check_refused_then_granted() {
    if (first_refusal_ == kNever) return;
    // A slot that a terminal row had was free again. A REJECTED row names no slot any more, so each one excuses
    // one grant.
    std::unordered_map<std::int64_t, std::int64_t> returned;
    std::uint64_t nameless = 0;
    for (const LedgerRow& row : rows_) {
      if (row.state == OrderState::kRejected) {
        ++nameless;
      } else if (!holds(row.state)) {
        if (row.slot) {
          ++returned[*row.slot];
        } else {
          ++nameless;
        }
      }
    }
    for (const auto& [order_id, told] : told_) {
      const LedgerRow* row = row_of(order_id);
      if (!told.granted || row == nullptr || row->state == OrderState::kRejected) continue;
      const bool after_final = told.first_start > first_final_ &&
                               row->recorded_us > first_final_ + limits_.skew_us;
      const bool after_any = told.first_start > first_refusal_ &&
                             row->recorded_us > first_refusal_ + limits_.skew_us;
      if (!after_any) continue;
      // The row's own end does not explain how it got the slot.
      const bool own = !holds(row->state) && row->slot;
      const auto back = row->slot ? returned.find(*row->slot) : returned.end();
      if (back != returned.end() && back->second > (own ? 1 : 0)) continue;
      if (nameless > 0) {
        --nameless;
        continue;
      }
      report(after_final ? FindingKind::kFinalThenGrant : FindingKind::kRefusedThenGrant,
             "order {} of member {}, slot {}", order_id, told.member,
             row->slot ? std::to_string(*row->slot) : "none");
    }
  }

  /// Units that were never handed out although somebody who wanted one was turned away.
  void check_unsold() {
    if (first_refusal_ == kNever || result_.free_slots == 0) return;
    std::unordered_map<std::int64_t, bool> used;
    std::uint64_t nameless = 0;
    for (const LedgerRow& row : rows_) {
      if (row.slot) {
        used[*row.slot] = true;
      } else {
        ++nameless;
      }
    }
    const auto quantity = static_cast<std::uint64_t>(limits_.quantity);
    // A returned unit may have found nobody who was still asking; one that was never used cannot have.
    if (used.size() + nameless >= quantity) return;
    report(FindingKind::kUnsold, "{} of {} units were never handed out, and buyers were told sold out",
           quantity - used.size() - nameless, limits_.quantity);
  }

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  const History& history_;
  std::span<const LedgerRow> rows_;
  const Limits limits_;
  CheckResult result_;
  std::array<Finding, kFindingKinds> found_;
  std::unordered_map<std::string_view, const LedgerRow*> by_order_;
  std::unordered_map<std::string_view, const LedgerRow*> by_grant_;
  std::unordered_map<std::string_view, Told> told_;
  std::int64_t first_final_ = kNever;
  std::int64_t first_refusal_ = kNever;
};

}  // namespace

std::string_view to_string(AnswerKind kind) noexcept {
  return kAnswerNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Action action) noexcept {
  switch (action) {
    case Action::kPurchase: return "purchase";
    case Action::kRead: return "read";
    case Action::kPay: break;
  }
  return "pay";
}

std::string_view to_string(OrderState state) noexcept {
  return kStateNames[static_cast<std::size_t>(state)];
}

OrderState parse_order_state(std::string_view text) noexcept {
  for (std::size_t i = 1; i < kStateNames.size(); ++i) {
    if (kStateNames[i] == text) return static_cast<OrderState>(i);
  }
  return OrderState::kNone;
}

std::string_view to_string(FindingKind kind) noexcept {
  return kFindingNames[static_cast<std::size_t>(kind)];
}

bool breaks_promise(FindingKind kind) noexcept { return kind < FindingKind::kMergedAfterGrant; }

void History::add(const Exchange& exchange) {
  constexpr std::size_t kMaxText = 65'535;
  const std::string_view key = exchange.key.substr(0, kMaxText);
  const std::string_view order_id = exchange.order_id.substr(0, kMaxText);
  entries_.push_back({.start_us = exchange.start_us,
                      .end_us = exchange.end_us,
                      .member = exchange.member,
                      .expires_us = exchange.expires_us,
                      .text = texts_.size(),
                      .key_size = static_cast<std::uint16_t>(key.size()),
                      .order_size = static_cast<std::uint16_t>(order_id.size()),
                      .action = exchange.action,
                      .kind = exchange.kind,
                      .status = exchange.status});
  texts_.append(key).append(order_id);
}

void History::append(const History& other) {
  const std::uint64_t shift = texts_.size();
  texts_ += other.texts_;
  entries_.reserve(entries_.size() + other.entries_.size());
  for (Entry entry : other.entries_) {
    entry.text += shift;
    entries_.push_back(entry);
  }
}

Exchange History::at(std::size_t index) const noexcept {
  const Entry& entry = entries_[index];
  const std::string_view texts = texts_;
  return {.start_us = entry.start_us,
          .end_us = entry.end_us,
          .member = entry.member,
          .action = entry.action,
          .kind = entry.kind,
          .status = entry.status,
          .expires_us = entry.expires_us,
          .key = texts.substr(entry.text, entry.key_size),
          .order_id = texts.substr(entry.text + entry.key_size, entry.order_size)};
}

bool CheckResult::ok() const noexcept {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return breaks_promise(finding.kind); });
}

const Finding* CheckResult::find(FindingKind kind) const noexcept {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [kind](const Finding& finding) { return finding.kind == kind; });
  return found == findings.end() ? nullptr : &*found;
}

}  // namespace doorbuster::rush

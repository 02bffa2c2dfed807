#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <unordered_set>

#include "rush/history.hpp"

namespace doorbuster::rush {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kNoRow = std::numeric_limits<std::size_t>::max();

bool holds(const LedgerRow& row) {
  return row.state == OrderStatus::kPending || row.state == OrderStatus::kPaid;
}

/// Whether the server may have granted to this request (or may still) without its member having
/// been told.
bool may_have_granted(const Request& request) {
  switch (request.answer) {
    case AnswerKind::kBusy:
    case AnswerKind::kServerError:
    case AnswerKind::kCut:
    case AnswerKind::kNoAnswer:
      return true;
    default:
      return false;
  }
}

class Checker {
 public:
  Checker(const History& history, const Ledger* ledger, const CheckRules& rules)
      : history_(history), ledger_(ledger), rules_(rules), orders_(history.texts()) {
    for (std::size_t i = 0; i < kFindingKinds; ++i) found_[i].kind = static_cast<FindingKind>(i);
  }

  Verdict run() {
    index_rows();
    sort_requests();
    if (ledger_ != nullptr) check_rows();
    follow_orders();
    follow_members();
    judge_orders();
    if (ledger_ != nullptr) judge_rows();
    for (Finding& finding : found_) {
      if (finding.count > 0) verdict_.findings.push_back(std::move(finding));
    }
    return std::move(verdict_);
  }

 private:
  /// What is known of an order that answers named.
  struct Order {
    std::size_t row = kNoRow;
    std::int64_t member = 0;
    bool told = false;      ///< any answer named it
    bool answered = false;  ///< an answer to a purchase named it
    bool granted = false;   ///< by a 202
    bool moved = false;     ///< its deadline was found to differ
    std::int64_t expires_us = 0;
    std::int64_t earliest_us = kNever;  ///< before this nobody can have decided it
  };

  /// The requests of one member under one key: a run of by_member_.
  struct Group {
    std::int64_t member;
    std::uint32_t key;
    std::size_t last;  ///< the one that started last
  };

  template <class Text>
  void broken(FindingKind kind, const Text& text) {
    Finding& finding = found_[static_cast<std::size_t>(kind)];
    if (finding.count++ < rules_.examples) finding.examples.push_back(text());
  }

  const LedgerRow* row_of(std::uint32_t order) const {
    const std::size_t row = orders_[order].row;
    return row == kNoRow ? nullptr : &ledger_->rows[row];
  }

  void index_rows() {
    if (ledger_ == nullptr) return;
    row_by_order_.reserve(ledger_->rows.size());
    for (std::size_t i = 0; i < ledger_->rows.size(); ++i) {
      const LedgerRow& row = ledger_->rows[i];
      const bool added = row_by_order_.try_emplace(row.order, i).second;
      if (!added) {
        broken(FindingKind::kRowTwice, [&] { return fmt::format("order {}", row.order); });
      }
      row_by_grant_.try_emplace(row.grant, i);
      if (holds(row)) {
        ++verdict_.holding;
      } else {
        ++verdict_.terminal;
        if (row.slot) came_back_.insert(*row.slot);
        // A rejected row keeps no slot, so which one it gave back is not known.
        if (row.state == OrderStatus::kRejected) any_may_have_come_back_ = true;
        if (!row.merged_into.empty()) ++verdict_.merged;
      }
    }
    for (std::uint32_t number = 1; number < orders_.size(); ++number) {
      const auto found = row_by_order_.find(history_.text(number));
      if (found != row_by_order_.end()) orders_[number].row = found->second;
    }
  }

  void sort_requests() {
    const std::vector<Request>& requests = history_.requests();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].ask == Ask::kPurchase) by_member_.push_back(i);
    }
    std::sort(by_member_.begin(), by_member_.end(), [&](std::size_t a, std::size_t b) {
      const Request& x = requests[a];
      const Request& y = requests[b];
      return std::tie(x.member, x.key, x.start_us, a) < std::tie(y.member, y.key, y.start_us, b);
    });
  }

  /// The ledger by itself: I1, I2, I3.
  void check_rows() {
    const std::vector<LedgerRow>& rows = ledger_->rows;
    const auto holding = static_cast<std::int64_t>(verdict_.holding);
    if (holding > ledger_->quantity) {
      broken(FindingKind::kOversold,
             [&] { return fmt::format("{} rows hold a unit, of {}", holding, ledger_->quantity); });
    }
    if (ledger_->sold && *ledger_->sold != holding) {
      broken(FindingKind::kCountWrong, [&] {
        return fmt::format("sold says {}, {} rows hold a unit", *ledger_->sold, holding);
      });
    }

    std::vector<std::size_t> live;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (holds(rows[i])) live.push_back(i);
    }
    std::vector<std::pair<std::int64_t, std::size_t>> by_slot;
    for (const std::size_t i : live) {
      const LedgerRow& row = rows[i];
      if (!row.slot || *row.slot < 1 || *row.slot > ledger_->quantity) {
        broken(FindingKind::kSlotRange, [&] {
          return fmt::format("order {} of member {}: slot {}", row.order, row.member,
                             row.slot ? std::to_string(*row.slot) : "missing");
        });
      } else {
        by_slot.emplace_back(*row.slot, i);
      }
    }
    std::sort(by_slot.begin(), by_slot.end());
    std::int64_t expected = 1;
    for (std::size_t n = 0; n < by_slot.size(); ++n) {
      const std::int64_t slot = by_slot[n].first;
      if (n > 0 && by_slot[n - 1].first == slot) {
        broken(FindingKind::kSlotTwice, [&] {
          return fmt::format("slot {}: orders {} and {}", slot, rows[by_slot[n - 1].second].order,
                             rows[by_slot[n].second].order);
        });
        continue;
      }
      note_free(expected, slot);
      expected = slot + 1;
    }
    note_free(expected, ledger_->quantity + 1);

    std::sort(live.begin(), live.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(rows[a].member, rows[a].nth, a) < std::tie(rows[b].member, rows[b].nth, b);
    });
    for (std::size_t from = 0; from < live.size();) {
      std::size_t to = from + 1;
      bool nth_wrong = bad_nth(rows[live[from]]);
      for (; to < live.size() && rows[live[to]].member == rows[live[from]].member; ++to) {
        const LedgerRow& row = rows[live[to]];
        nth_wrong = nth_wrong || bad_nth(row) || (row.nth && row.nth == rows[live[to - 1]].nth);
      }
      if (nth_wrong || static_cast<std::int64_t>(to - from) > ledger_->per_member) {
        broken(FindingKind::kOverLimit, [&] {
          return fmt::format("member {} holds {} of {}{}", rows[live[from]].member, to - from,
                             ledger_->per_member, nth_wrong ? ", numbered wrongly" : "");
        });
      }
      from = to;
    }
  }

  bool bad_nth(const LedgerRow& row) const {
    return row.nth && (*row.nth < 1 || *row.nth > ledger_->per_member);
  }

  /// Slots of [from, to) are held by nobody.
  void note_free(std::int64_t from, std::int64_t to) {
    if (to <= from) return;
    verdict_.free_slot_count += static_cast<std::size_t>(to - from);
    while (from < to && verdict_.free_slots.size() < Verdict::kFreeSlotsListed) {
      verdict_.free_slots.push_back(from++);
    }
  }

  /// Every answer by the order that it names: whose it is, and its deadline.
  void follow_orders() {
    for (const Request& request : history_.requests()) {
      if (request.ask == Ask::kPurchase && request.answer == AnswerKind::kSoldOut) {
        first_refusal_us_ = std::min(first_refusal_us_, request.end_us);
        if (request.final) first_final_us_ = std::min(first_final_us_, request.end_us);
      }
      // Its grant may have died in flight with its node, and the slot be free again without a row.
      const bool unanswered =
          request.answer == AnswerKind::kCut || request.answer == AnswerKind::kNoAnswer;
      if (request.ask == Ask::kPurchase && unanswered) ++unanswered_;
      if (request.order == 0) continue;
      Order& order = orders_[request.order];
      if (!order.told) {
        order.told = true;
        order.member = request.member;
        ++verdict_.told_orders;
      } else if (order.member != request.member) {
        broken(FindingKind::kStrangersOrder, [&] {
          return fmt::format("order {} was told to members {} and {}", history_.text(request.order),
                             order.member, request.member);
        });
      }
      if (request.ask == Ask::kPurchase) {
        order.answered = true;
        order.granted = order.granted || request.answer == AnswerKind::kGranted;
      }
      if (request.answer == AnswerKind::kAlready &&
          (request.status == OrderStatus::kExpired || request.status == OrderStatus::kCanceled ||
           request.status == OrderStatus::kRejected)) {
        broken(FindingKind::kDeadGrant, [&] {
          return fmt::format("member {}, order {}: {}", request.member,
                             history_.text(request.order), to_string(request.status));
        });
      }
      if (request.expires_us != 0) {
        if (order.expires_us == 0) order.expires_us = request.expires_us;
        if (order.expires_us != request.expires_us && !order.moved) {
          order.moved = true;
          broken(FindingKind::kDeadlineMoved, [&] {
            return fmt::format("order {}: {} us apart", history_.text(request.order),
                               request.expires_us - order.expires_us);
          });
        }
      }
      if (request.ask == Ask::kPay && request.answer == AnswerKind::kPaid) judge_paid(request);
    }
  }

  void judge_paid(const Request& request) {
    const LedgerRow* row = row_of(request.order);
    // A paid order ends as PAID, or as CANCELED by a refund.
    if (row == nullptr || row->state == OrderStatus::kPaid || row->state == OrderStatus::kCanceled)
      return;
    broken(FindingKind::kPaidNotKept, [&] {
      return fmt::format("order {} of member {}: {}", row->order, row->member,
                         to_string(row->state));
    });
  }

  /// Every member's requests in their order: I6, and since when its grants may have been decided.
  void follow_members() {
    const std::vector<Request>& requests = history_.requests();
    for (std::size_t from = 0; from < by_member_.size();) {
      const Request& first = requests[by_member_[from]];
      std::int64_t open_since = kNever;  // the first request that proves nothing
      std::uint32_t held = 0;            // an order that the member knows of and that still holds
      std::int64_t held_since = kNever;  // when the member knew
      std::size_t at = from;
      for (; at < by_member_.size(); ++at) {
        const Request& request = requests[by_member_[at]];
        if (request.member != first.member || request.key != first.key) break;
        if (held != 0 && request.start_us > held_since) judge_holder(request, held, held_since);
        if (may_have_granted(request)) open_since = std::min(open_since, request.start_us);
        if (request.order == 0) continue;
        Order& order = orders_[request.order];
        order.earliest_us = std::min({order.earliest_us, request.start_us, open_since});
        const LedgerRow* row = row_of(request.order);
        if (row != nullptr && holds(*row) &&
            (held == 0 || (held == request.order && request.end_us < held_since))) {
          held = request.order;
          held_since = request.end_us;
        }
      }
      groups_.push_back({first.member, first.key, by_member_[at - 1]});
      from = at;
    }
  }

  /// `request` started when its member had been told of `held`, which holds to this day.
  void judge_holder(const Request& request, std::uint32_t held, std::int64_t held_since) {
    if (request.answer == AnswerKind::kSoldOut) {
      const bool news = request.start_us - held_since <= rules_.holder_news.count();
      if (news && !request.final) return;
      broken(FindingKind::kHolderRefused, [&] {
        return fmt::format("member {} holds order {}, and was told sold out{} {} us later",
                           request.member, history_.text(held), request.final ? " for good" : "",
                           request.start_us - held_since);
      });
    } else if (request.order != 0 && request.order != held) {
      // Two gates may give one member two grants; the second is merged, and counted as such.
      const LedgerRow* row = row_of(request.order);
      if (row != nullptr && row->state == OrderStatus::kRejected && !row->merged_into.empty())
        return;
      broken(FindingKind::kOtherGrant, [&] {
        return fmt::format("member {} holds order {}, and was given {}", request.member,
                           history_.text(held), history_.text(request.order));
      });
    }
  }

  /// Every order that a member was told of, against its row and against the refusals.
  void judge_orders() {
    for (std::uint32_t number = 1; number < orders_.size(); ++number) {
      const Order& order = orders_[number];
      if (!order.answered) continue;
      const LedgerRow* row = row_of(number);
      if (ledger_ != nullptr) judge_row_of(number, order, row);
      if (!order.granted) continue;
      if (order.earliest_us > first_final_us_) {
        broken(FindingKind::kGrantAfterFinal, [&] {
          return fmt::format("member {}, order {}: asked {} us after the first final refusal",
                             order.member, history_.text(number),
                             order.earliest_us - first_final_us_);
        });
      } else if (order.earliest_us > first_refusal_us_ && row != nullptr && fresh(*row) &&
                 ++fresh_after_refusal_ > unanswered_) {
        broken(FindingKind::kFreshAfterRefusal, [&] {
          return fmt::format("member {}, order {}, slot {}: asked {} us after the first refusal",
                             order.member, history_.text(number), *row->slot,
                             order.earliest_us - first_refusal_us_);
        });
      }
    }
  }

  /// Whether the row's slot cannot have been given back by anybody.
  bool fresh(const LedgerRow& row) const {
    return row.slot && !any_may_have_come_back_ && !came_back_.contains(*row.slot);
  }

  void judge_row_of(std::uint32_t number, const Order& order, const LedgerRow* row) {
    if (row == nullptr) {
      broken(FindingKind::kAnswerWithoutRow, [&] {
        return fmt::format("member {}, order {}", order.member, history_.text(number));
      });
      return;
    }
    if (row->member != order.member) {
      broken(FindingKind::kStrangersOrder, [&] {
        return fmt::format("order {} is member {}'s, and was told to {}", row->order, row->member,
                           order.member);
      });
    }
    if (row->state == OrderStatus::kRejected) {
      if (!order.granted) return;
      ++verdict_.rejected_after_grant;
      if (row->merged_into.empty()) {
        broken(FindingKind::kRejectedAfterGrant, [&] {
          return fmt::format("member {}, order {}: {}", row->member, row->order, row->reason);
        });
      }
      return;
    }
    if (row->expires_us != 0 && order.expires_us != 0 && row->expires_us != order.expires_us &&
        !order.moved) {
      broken(FindingKind::kDeadlineMoved, [&] {
        return fmt::format("order {}: its row is {} us from the answer", row->order,
                           row->expires_us - order.expires_us);
      });
    }
  }

  /// Every row against what its member was told.
  void judge_rows() {
    std::vector<bool> told(ledger_->rows.size(), false);
    for (const Order& order : orders_) {
      if (order.told && order.row != kNoRow) told[order.row] = true;
    }
    for (std::size_t i = 0; i < ledger_->rows.size(); ++i) {
      const LedgerRow& row = ledger_->rows[i];
      if (!row.merged_into.empty()) judge_merged(row);
      if (told[i]) continue;
      const Request* last = last_request(row);
      if (last == nullptr) {
        ++verdict_.rows_of_others;
        continue;
      }
      ++verdict_.untold_rows;
      if (!holds(row) || last->answer != AnswerKind::kSoldOut || !fresh(row)) continue;
      // Another node may not have heard of a new holder yet.
      if (rules_.holder_news.count() > 0 && !last->final) continue;
      broken(FindingKind::kRefusedButHolds, [&] {
        return fmt::format("member {}, order {}, slot {}", row.member, row.order, *row.slot);
      });
    }
    if (verdict_.terminal == 0 && first_refusal_us_ != kNever &&
        static_cast<std::int64_t>(verdict_.holding + unanswered_) < ledger_->quantity) {
      broken(FindingKind::kUnitsLeft, [&] {
        return fmt::format("{} of {} units",
                           ledger_->quantity - static_cast<std::int64_t>(verdict_.holding),
                           ledger_->quantity);
      });
    }
  }

  void judge_merged(const LedgerRow& row) {
    const auto found = row_by_grant_.find(row.merged_into);
    const bool here = found != row_by_grant_.end();
    // The other grant may be one of another allotment of the scope.
    if (!here && !rules_.whole_scope) return;
    if (here && ledger_->rows[found->second].member == row.member &&
        ledger_->rows[found->second].state != OrderStatus::kRejected) {
      return;
    }
    broken(FindingKind::kMergedNowhere, [&] {
      return fmt::format("member {}, order {}: merged into {}", row.member, row.order,
                         row.merged_into);
    });
  }

  const Request* last_request(const LedgerRow& row) const {
    const std::optional<std::uint32_t> key = history_.find(row.key);
    if (!key) return nullptr;
    const auto found = std::lower_bound(groups_.begin(), groups_.end(), std::pair(row.member, *key),
                                        [](const Group& group, const auto& wanted) {
                                          return std::pair(group.member, group.key) < wanted;
                                        });
    if (found == groups_.end() || found->member != row.member || found->key != *key) return nullptr;
    return &history_.requests()[found->last];
  }

  const History& history_;
  const Ledger* ledger_;
  CheckRules rules_;
  Verdict verdict_;
  std::array<Finding, kFindingKinds> found_;
  std::vector<Order> orders_;           ///< by the number of its id
  std::vector<std::size_t> by_member_;  ///< purchases by member, key and start
  std::vector<Group> groups_;           ///< rising by member and key
  std::unordered_map<std::string_view, std::size_t> row_by_order_;
  std::unordered_map<std::string_view, std::size_t> row_by_grant_;
  std::unordered_set<std::int64_t> came_back_;  ///< slots of terminal rows
  bool any_may_have_come_back_ = false;
  std::int64_t first_refusal_us_ = kNever;
  std::size_t unanswered_ = 0;           ///< purchases that were cut or never answered
  std::size_t fresh_after_refusal_ = 0;  ///< each of which one unanswered purchase may explain
  std::int64_t first_final_us_ = kNever;
};

}  // namespace

Verdict check_history(const History& history, const Ledger* ledger, const CheckRules& rules) {
  return Checker(history, ledger, rules).run();
}

}  // namespace doorbuster::rush

#include "sim/books.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "rush/history.hpp"

namespace doorbuster::sim {
namespace {

using engine::GrantId;

/// Who became a holder so recently may be told once more, on another node, that nothing is left now
/// (engine page, section 5); longer than that it is a refused holder.
constexpr Micros kHolderKnown = 2 * kSecond;

Micros since_start(std::int64_t instant) { return instant - common::to_micros(kEpochStart); }

std::string name(const GrantId& id) { return common::to_string(id).substr(0, 16); }

}  // namespace

Books::Rows Books::read(Store& store) {
  Rows rows;
  for (const db::Row& row : store.rows("SELECT id, allotment, member, slot, state, reason, "
                                       "merged_into, recorded_at, expires_at, "
                                       "member_key, nth "
                                       "FROM flash_sale_order")) {
    Row one;
    one.allotment = common::parse_allotment_id(row.text(1))->number;
    one.member = row.integer(2);
    if (!row.is_null(3)) one.slot = row.integer(3);
    one.state = row.text(4);
    if (!row.is_null(5)) one.reason = row.text(5);
    if (!row.is_null(6)) one.merged_into = row.grant_id(6);
    one.recorded = since_start(row.integer(7));
    one.expires = since_start(row.integer(8));
    if (!row.is_null(9)) one.key = row.text(9);
    if (!row.is_null(10)) one.nth = row.integer(10);
    rows.emplace(row.grant_id(0), one);
  }
  for (const db::Row& step : store.rows(
           "SELECT order_id, to_state, reason, at FROM flash_sale_order_history WHERE to_state IN "
           "('EXPIRED', 'CANCELED', 'REJECTED')")) {
    Row& row = rows[step.grant_id(0)];
    row.ended = since_start(step.integer(3));
    row.ended_why = step.is_null(2) ? step.text(1) : step.text(2);
  }
  return rows;
}

void Books::check(Store& store, const Bank& bank, const End& end) {
  const Rows rows = read(store);
  check_history(rows, end);
  check_answers(rows, end);
  check_money(store, bank, rows);
}

/// What the load tool's checker sees: the scope as one allotment, item after item.
void Books::check_history(const Rows& rows, const End& end) {
  rush::History history;
  for (const Told& told : told_) {
    rush::Request request{.start_us = told.asked, .end_us = told.answered, .member = told.member};
    request.key = history.number_of(told.key);
    switch (told.kind) {
      case Told::Kind::kGranted:
      case Told::Kind::kHolding:
        request.answer = told.kind == Told::Kind::kGranted ? rush::AnswerKind::kGranted
                                                           : rush::AnswerKind::kAlready;
        // In flight for another item or key, it may end without a row; where there is no such
        // thing, a holder's grant is a row.
        if (told.kind == Told::Kind::kHolding && !end.one_each) {
          request.answer = rush::AnswerKind::kBusy;
          break;
        }
        request.order = history.number_of(common::to_string(told.grant));
        if (told.expires) request.expires_us = common::to_micros(*told.expires);
        break;
      case Told::Kind::kSoldOut:
        // Of one item among several it says nothing about the others.
        request.answer = end.items > 1 ? rush::AnswerKind::kBusy : rush::AnswerKind::kSoldOut;
        request.final = end.items == 1 && told.final;
        break;
      case Told::Kind::kBusy:
      case Told::Kind::kNothing:
        // A grant in flight may die behind either.
        request.answer = rush::AnswerKind::kNoAnswer;
        break;
    }
    history.add(request);
  }
  rush::Ledger ledger{.quantity = end.quantity * end.items,
                      .per_member = end.per_member,
                      .sold = std::nullopt,
                      .rows = {}};
  for (const auto& [id, row] : rows) {
    rush::LedgerRow one;
    one.order = one.grant = common::to_string(id);
    one.member = row.member;
    if (row.slot) one.slot = (row.allotment - 1) * end.quantity + *row.slot;
    one.nth = row.nth;
    one.state = rush::parse_order_status(row.state);
    one.reason = row.reason;
    if (row.merged_into) one.merged_into = common::to_string(*row.merged_into);
    one.key = row.key;
    one.expires_us = row.expires + common::to_micros(kEpochStart);
    ledger.rows.push_back(std::move(one));
  }
  const rush::Verdict verdict = rush::check_history(
      history, &ledger,
      {.holder_news = std::chrono::microseconds{kHolderKnown}, .whole_scope = true, .examples = 3});
  merged_ = static_cast<std::int64_t>(verdict.merged);
  for (const rush::Finding& finding : verdict.findings) {
    std::string detail;
    for (const std::string& example : finding.examples) detail += example + "; ";
    find(fmt::format("{}: {}", rush::code_of(finding.kind), rush::to_string(finding.kind)), detail);
  }
}

void Books::check_answers(const Rows& rows, const End& end) {
  const Micros off = end.clocks_off;
  std::map<GrantId, engine::Instant> promised;
  // When each grant was first known to its member.
  std::map<GrantId, Micros> known;
  std::map<std::int64_t, Micros> first_final;  // by allotment
  for (const Told& told : told_) {
    if (told.kind == Told::Kind::kSoldOut && told.final) {
      const auto [first, fresh] = first_final.emplace(told.item, told.answered);
      if (!fresh) first->second = std::min(first->second, told.answered);
    }
    if (told.kind != Told::Kind::kGranted && told.kind != Told::Kind::kHolding) continue;
    if (told.expires) promised.emplace(told.grant, *told.expires);
    const auto [first, fresh] = known.emplace(told.grant, told.answered);
    if (!fresh) first->second = std::min(first->second, told.answered);
  }

  for (const auto& [id, row] : rows) {
    const auto promise = promised.find(id);
    if (promise != promised.end() && row.ended && row.ended_why == "HOLD_EXPIRED" &&
        *row.ended + off < since_start(common::to_micros(promise->second))) {
      find("a hold ended before its promised deadline", name(id));
    }
    const auto final = first_final.find(row.allotment);
    if (final != first_final.end() && row.slot && row.recorded > final->second + off) {
      find("final was not final", fmt::format("grant {} recorded at {:.3f} s", name(id),
                                              static_cast<double>(row.recorded) / 1e6));
    }
  }

  std::map<std::int64_t, std::vector<std::pair<GrantId, const Row*>>> of_member;
  for (const auto& [id, row] : rows) {
    if (row.slot) of_member[row.member].emplace_back(id, &row);
  }
  for (const Told& told : told_) {
    if (told.kind != Told::Kind::kSoldOut) continue;
    for (const auto& [id, row] : of_member[told.member]) {
      // Held since before the question and until after the answer, by the rows or by what was said.
      Micros since = row->recorded + off;
      const auto said = known.find(id);
      if (said != known.end()) since = std::min(since, said->second);
      if (row->ended && *row->ended - off <= told.answered) continue;
      // Another key is another unit.
      if (end.per_member > 1 && row->key != told.key) continue;
      if (since >= told.asked) continue;
      // That one item is sold out for good is true also for who has just got another one.
      const bool final_of_it = told.final && row->allotment == told.item;
      if (!final_of_it && told.asked - since < kHolderKnown) continue;
      find(told.final ? "a holder was told finally sold out" : "a holder was told sold out",
           fmt::format("member {} grant {} asked node {} at {:.3f} s, holds since {:.3f} s",
                       told.member, name(id), told.node, static_cast<double>(told.asked) / 1e6,
                       static_cast<double>(since) / 1e6));
    }
  }
  for (const GrantId& id : paid_) {
    const auto found = rows.find(id);
    if (found == rows.end() || found->second.state != "PAID") {
      find("a member was told PAID and the row is not", name(id));
    }
  }
  for (const GrantId& id : cancelled_) {
    const auto found = rows.find(id);
    if (found == rows.end() || found->second.state != "CANCELED") {
      find("a member was told CANCELED and the row is not", name(id));
    }
  }
}

void Books::check_money(Store& store, const Bank& bank, const Rows& rows) {
  std::map<payment::AttemptId, GrantId> order_of;
  for (const db::Row& row : store.rows("SELECT id, order_id FROM payment_attempt")) {
    order_of.emplace(row.grant_id(0), row.grant_id(1));
  }
  std::map<GrantId, std::int64_t> kept;
  for (const auto& [attempt, account] : bank.accounts) {
    if (account.refunds > account.charges) find("money was given back twice", name(attempt));
    if (account.charges > 1) find("money was taken twice", name(attempt));
    if (account.charges <= account.refunds) continue;
    const auto order = order_of.find(attempt);
    if (order == order_of.end()) {
      find("money was taken without an attempt", name(attempt));
      continue;
    }
    ++kept[order->second];
  }
  for (const auto& [order, count] : kept) {
    const auto found = rows.find(order);
    if (found == rows.end() || found->second.state != "PAID") {
      find("money is kept without a PAID order", name(order));
    }
    if (count > 1) find("an order was paid twice", name(order));
  }
  for (const auto& [id, row] : rows) {
    if (row.state == "PAID" && !kept.contains(id)) find("a PAID order without money", name(id));
  }
}

}  // namespace doorbuster::sim

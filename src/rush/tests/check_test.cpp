#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "rush/history.hpp"

namespace doorbuster::rush {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A history and a ledger, told in a few words.
struct Story {
  History history;
  Ledger ledger{.quantity = 3};
  CheckRules rules;

  /// Member `who` asked from `start` to `end` and was answered.
  Request& asked(std::int64_t who, std::int64_t start, std::int64_t end, AnswerKind answer,
                 std::string_view order = {}, std::string_view key = {}) {
    pending.push_back({.start_us = start,
                       .end_us = end,
                       .member = who,
                       .key = history.number_of(key),
                       .order = history.number_of(order),
                       .answer = answer,
                       .status = order.empty() ? OrderStatus::kNone : OrderStatus::kPending});
    return pending.back();
  }
  Request& granted(std::int64_t who, std::int64_t start, std::int64_t end, std::string_view order) {
    return asked(who, start, end, AnswerKind::kGranted, order);
  }
  Request& sold_out(std::int64_t who, std::int64_t start, std::int64_t end, bool final = false) {
    Request& request = asked(who, start, end, AnswerKind::kSoldOut);
    request.final = final;
    return request;
  }
  LedgerRow& row(std::int64_t who, std::string order, std::optional<std::int64_t> slot,
                 OrderStatus state = OrderStatus::kPending) {
    ledger.rows.push_back({.order = order,
                           .grant = "g" + order,
                           .member = who,
                           .slot = slot,
                           .nth = 1,
                           .state = state});
    if (state == OrderStatus::kRejected) ledger.rows.back().nth.reset();
    return ledger.rows.back();
  }

  Verdict judge() {
    for (const Request& request : pending) history.add(request);
    pending.clear();
    return check_history(history, &ledger, rules);
  }
  Verdict judge_answers() {
    judge();
    return check_history(history, nullptr, rules);
  }

  std::deque<Request> pending;
};

/// Three units, three buyers, one who came late: as it should be.
Story sold() {
  Story story;
  story.granted(1, 0, 10, "a");
  story.granted(2, 1, 12, "b");
  story.granted(3, 2, 14, "c");
  story.sold_out(4, 15, 20);
  story.row(1, "a", 1);
  story.row(2, "b", 2);
  story.row(3, "c", 3);
  return story;
}

std::vector<FindingKind> kinds(const Verdict& verdict) {
  std::vector<FindingKind> list;
  for (const Finding& finding : verdict.findings) list.push_back(finding.kind);
  return list;
}

#define EXPECT_FINDS(verdict, kind, times)                        \
  do {                                                            \
    const Verdict said = (verdict);                               \
    EXPECT_THAT(kinds(said), ElementsAre(FindingKind::kind));     \
    EXPECT_EQ(said.count(FindingKind::kind), std::size_t{times}); \
  } while (false)

TEST(Check, PassesACleanHistory) {
  Story story = sold();
  story.ledger.sold = 3;
  story.asked(1, 30, 40, AnswerKind::kAlready, "a");
  story.asked(2, 30, 40, AnswerKind::kGranted, "b");  // the same again, while in flight
  story.sold_out(5, 41, 50, true);
  const Verdict verdict = story.judge();
  EXPECT_TRUE(verdict.ok());
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_EQ(verdict.holding, 3U);
  EXPECT_EQ(verdict.terminal, 0U);
  EXPECT_EQ(verdict.told_orders, 3U);
  EXPECT_EQ(verdict.free_slot_count, 0U);
  EXPECT_EQ(verdict.untold_rows, 0U);
  EXPECT_TRUE(story.judge_answers().ok());
}

TEST(Check, PassesAnEmptyHistory) {
  Story story;
  const Verdict verdict = story.judge();
  EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(verdict.free_slot_count, 3U);
  EXPECT_THAT(verdict.free_slots, ElementsAre(1, 2, 3));
}

TEST(Check, FindsMoreRowsThanUnits) {
  Story story = sold();
  story.ledger.quantity = 3;
  story.row(9, "x", 3);
  const Verdict verdict = story.judge();
  EXPECT_THAT(kinds(verdict), ElementsAre(FindingKind::kOversold, FindingKind::kSlotTwice));
  EXPECT_EQ(verdict.rows_of_others, 1U);
}

TEST(Check, DoesNotCountTerminalRowsAsSold) {
  Story story = sold();
  story.row(9, "x", 3, OrderStatus::kExpired);
  story.row(9, "y", 3, OrderStatus::kCanceled);
  story.row(9, "z", std::nullopt, OrderStatus::kRejected);
  EXPECT_TRUE(story.judge().ok());
}

TEST(Check, FindsAMemberAboveTheLimit) {
  Story story = sold();
  story.ledger.rows[2].member = 1;
  story.pending[2].member = 1;
  story.pending[2].start_us = 2;  // while the first was not answered: a race, so no "other grant"
  EXPECT_FINDS(story.judge(), kOverLimit, 1);
}

TEST(Check, AllowsAMemberExactlyTheLimit) {
  Story story = sold();
  story.ledger.per_member = 2;
  story.ledger.rows[2].member = 1;
  story.ledger.rows[2].nth = 2;
  story.pending[2].member = 1;
  EXPECT_TRUE(story.judge().ok());
  story.ledger.rows[2].nth = 1;
  EXPECT_FINDS(story.judge(), kOverLimit, 1);
  story.ledger.rows[2].nth = 3;
  EXPECT_FINDS(story.judge(), kOverLimit, 1);
}

TEST(Check, FindsASlotTwice) {
  Story story = sold();
  story.ledger.rows[2].slot = 1;
  const Verdict verdict = story.judge();
  EXPECT_THAT(kinds(verdict), ElementsAre(FindingKind::kSlotTwice));
  EXPECT_THAT(verdict.free_slots, ElementsAre(3));
}

TEST(Check, FindsASlotOutsideOfTheQuantity) {
  for (const std::optional<std::int64_t> slot :
       {std::optional<std::int64_t>(0), std::optional<std::int64_t>(4),
        std::optional<std::int64_t>()}) {
    Story story = sold();
    story.ledger.rows[2].slot = slot;
    EXPECT_FINDS(story.judge(), kSlotRange, 1);
  }
}

TEST(Check, FindsARowTwice) {
  Story story = sold();
  story.ledger.quantity = 4;
  story.row(3, "c", 4, OrderStatus::kExpired);
  const Verdict verdict = story.judge();
  EXPECT_EQ(verdict.count(FindingKind::kRowTwice), 1U);
}

TEST(Check, FindsAnAnswerWithoutARow) {
  Story story = sold();
  story.ledger.quantity = 2;
  story.ledger.rows.pop_back();
  EXPECT_FINDS(story.judge(), kAnswerWithoutRow, 1);
}

TEST(Check, FindsAnOrderToldToTwoMembers) {
  Story story = sold();
  story.asked(7, 16, 20, AnswerKind::kAlready, "a");
  EXPECT_FINDS(story.judge(), kStrangersOrder, 1);
  EXPECT_THAT(kinds(story.judge_answers()), ElementsAre(FindingKind::kStrangersOrder));
}

TEST(Check, FindsAnOrderWhoseRowIsSomebodyElses) {
  Story story = sold();
  story.ledger.rows[0].member = 77;
  EXPECT_FINDS(story.judge(), kStrangersOrder, 1);
}

TEST(Check, FindsAMemberWhoWasRefusedAndHolds) {
  Story story = sold();
  story.pending.pop_back();
  story.pending.pop_back();
  story.sold_out(3, 13, 20);
  EXPECT_FINDS(story.judge(), kRefusedButHolds, 1);
}

TEST(Check, OnlyCountsARowThatNobodyToldOfWhenTheAnswerWasLost) {
  for (const AnswerKind lost :
       {AnswerKind::kCut, AnswerKind::kNoAnswer, AnswerKind::kBusy, AnswerKind::kServerError}) {
    Story story = sold();
    story.pending.pop_back();
    story.pending.pop_back();
    story.asked(3, 13, 20, lost);
    const Verdict verdict = story.judge();
    EXPECT_TRUE(verdict.ok()) << to_string(lost);
    EXPECT_EQ(verdict.untold_rows, 1U);
  }
}

TEST(Check, FindsUnitsThatAreLeftAfterARefusal) {
  Story story = sold();
  story.ledger.quantity = 5;
  const Verdict verdict = story.judge();
  EXPECT_THAT(kinds(verdict), ElementsAre(FindingKind::kUnitsLeft));
  EXPECT_THAT(verdict.free_slots, ElementsAre(4, 5));
  // Without a refusal there just were too few buyers.
  Story few = sold();
  few.pending.pop_back();
  few.ledger.quantity = 5;
  EXPECT_TRUE(few.judge().ok());
  // And a unit may have come back after the last one asked.
  Story returned = sold();
  returned.ledger.rows[2].state = OrderStatus::kExpired;
  EXPECT_TRUE(returned.judge().ok());
}

TEST(Check, FindsAWrongCounter) {
  Story story = sold();
  story.ledger.sold = 2;
  EXPECT_FINDS(story.judge(), kCountWrong, 1);
  story.ledger.sold = 3;
  EXPECT_TRUE(story.judge().ok());
}

TEST(Check, FindsAHolderWhoWasRefused) {
  Story race = sold();
  race.sold_out(1, 10, 30);  // it started when the first answer arrived
  EXPECT_TRUE(race.judge().ok());
  Story story = sold();
  story.sold_out(1, 11, 30);
  EXPECT_FINDS(story.judge(), kHolderRefused, 1);
  // A hold that is over holds nothing.
  Story over = sold();
  over.sold_out(1, 11, 30);
  over.ledger.rows[0].state = OrderStatus::kExpired;
  EXPECT_TRUE(over.judge().ok());
}

TEST(Check, AllowsOtherNodesASecondToHearOfANewHolder) {
  Story story = sold();
  story.rules.holder_news = std::chrono::microseconds{100};
  story.sold_out(1, 110, 120);
  EXPECT_TRUE(story.judge().ok());
  story.sold_out(1, 111, 130);
  EXPECT_FINDS(story.judge(), kHolderRefused, 1);
  Story final = sold();
  final.rules.holder_news = std::chrono::microseconds{100};
  final.sold_out(1, 20, 30, true);
  EXPECT_FINDS(final.judge(), kHolderRefused, 1);
}

TEST(Check, TakesAnotherKeyForAnotherWish) {
  Story story = sold();
  story.ledger.per_member = 2;
  story.asked(1, 11, 30, AnswerKind::kSoldOut, {}, "second");
  EXPECT_TRUE(story.judge().ok());
}

TEST(Check, FindsAHolderWhoWasGivenAnotherOrder) {
  Story story = sold();
  story.ledger.quantity = 4;
  story.ledger.per_member = 2;
  story.granted(1, 11, 15, "d");
  story.row(1, "d", 4).nth = 2;
  EXPECT_FINDS(story.judge(), kOtherGrant, 1);
}

TEST(Check, CountsAMergedSecondGrantAndPassesIt) {
  Story story = sold();
  story.granted(1, 11, 14, "d");
  LedgerRow& merged = story.row(1, "d", std::nullopt, OrderStatus::kRejected);
  merged.merged_into = "ga";
  const Verdict verdict = story.judge();
  EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(verdict.merged, 1U);
  EXPECT_EQ(verdict.rejected_after_grant, 1U);
}

TEST(Check, FindsAMergeThatLeadsNowhere) {
  Story story = sold();
  story.granted(1, 11, 14, "d");
  LedgerRow& merged = story.row(1, "d", std::nullopt, OrderStatus::kRejected);
  merged.merged_into = "gb";
  EXPECT_FINDS(story.judge(), kMergedNowhere, 1);
  // A grant that is not here may be one of another item of the sale.
  story.ledger.rows.back().merged_into = "elsewhere";
  EXPECT_TRUE(story.judge().ok());
  story.rules.whole_scope = true;
  EXPECT_FINDS(story.judge(), kMergedNowhere, 1);
}

TEST(Check, FindsADeadOrderAnsweredAsOneThatYouHave) {
  Story story = sold();
  story.ledger.rows[0].state = OrderStatus::kExpired;
  story.asked(1, 50, 60, AnswerKind::kAlready, "a").status = OrderStatus::kExpired;
  EXPECT_FINDS(story.judge(), kDeadGrant, 1);
}

TEST(Check, FindsAGrantThatWasRejected) {
  Story story = sold();
  story.ledger.rows[2].state = OrderStatus::kRejected;
  story.ledger.rows[2].slot.reset();
  const Verdict verdict = story.judge();
  EXPECT_THAT(kinds(verdict), ElementsAre(FindingKind::kRejectedAfterGrant));
  EXPECT_EQ(verdict.rejected_after_grant, 1U);
}

TEST(Check, FindsAGrantAfterFinal) {
  Story story = sold();
  story.sold_out(8, 0, 1, true);
  // Member 2 started at 1, when the answer arrived: a race. Member 3 started at 2.
  EXPECT_FINDS(story.judge(), kGrantAfterFinal, 1);
  EXPECT_THAT(kinds(story.judge_answers()), ElementsAre(FindingKind::kGrantAfterFinal));
}

TEST(Check, TakesTheEarlierRequestForTheOneThatWasGranted) {
  for (const AnswerKind unknown : {AnswerKind::kCut, AnswerKind::kNoAnswer, AnswerKind::kBusy}) {
    Story story = sold();
    story.pending[2].start_us = 100;
    story.pending[2].end_us = 110;
    story.asked(3, 2, 5, unknown);
    story.sold_out(8, 20, 30, true);
    EXPECT_TRUE(story.judge().ok()) << to_string(unknown);
  }
  // A connection that failed cannot have brought it about.
  Story story = sold();
  story.pending[2].start_us = 100;
  story.pending[2].end_us = 110;
  story.asked(3, 2, 5, AnswerKind::kConnectFailed);
  story.sold_out(8, 20, 30, true);
  EXPECT_FINDS(story.judge(), kGrantAfterFinal, 1);
}

TEST(Check, FindsAFreshUnitAfterARefusal) {
  Story story = sold();
  story.sold_out(8, 0, 1);
  EXPECT_FINDS(story.judge(), kFreshAfterRefusal, 1);
  // Slot 3 came back in between: then it is the luck of who asks next.
  story.row(50, "x", 3, OrderStatus::kExpired);
  EXPECT_TRUE(story.judge().ok());
  // Another slot that came back does not explain it.
  story.ledger.rows.back().slot = 1;
  EXPECT_FINDS(story.judge(), kFreshAfterRefusal, 1);
  // A rejected row gave back some slot, which one is not known.
  story.ledger.rows.back().slot.reset();
  story.ledger.rows.back().state = OrderStatus::kRejected;
  EXPECT_TRUE(story.judge().ok());
}

TEST(Check, FindsADeadlineThatMoved) {
  Story story = sold();
  story.pending[0].expires_us = 1000;
  story.asked(1, 30, 40, AnswerKind::kAlready, "a").expires_us = 1000;
  story.ledger.rows[0].expires_us = 1000;
  EXPECT_TRUE(story.judge().ok());
  story.asked(1, 50, 60, AnswerKind::kAlready, "a").expires_us = 1001;
  story.asked(1, 70, 80, AnswerKind::kAlready, "a").expires_us = 1002;
  EXPECT_FINDS(story.judge(), kDeadlineMoved, 1);
}

TEST(Check, FindsADeadlineThatIsAnotherInTheRow) {
  Story story = sold();
  story.pending[0].expires_us = 1000;
  story.ledger.rows[0].expires_us = 999;
  EXPECT_FINDS(story.judge(), kDeadlineMoved, 1);
}

TEST(Check, FindsAPaymentThatWasNotKept) {
  for (const OrderStatus state :
       {OrderStatus::kPaid, OrderStatus::kCanceled, OrderStatus::kPending, OrderStatus::kExpired}) {
    Story story = sold();
    Request& paid = story.asked(1, 30, 40, AnswerKind::kPaid, "a");
    paid.ask = Ask::kPay;
    story.ledger.rows[0].state = state;
    const bool kept = state == OrderStatus::kPaid || state == OrderStatus::kCanceled;
    EXPECT_EQ(story.judge().count(FindingKind::kPaidNotKept), kept ? 0U : 1U) << to_string(state);
  }
}

TEST(Check, KeepsAFewExamplesAndCountsAll) {
  Story story;
  story.ledger.quantity = 100;
  story.rules.examples = 2;
  for (int i = 0; i < 50; ++i) story.granted(i + 1, i, i + 1, "o" + std::to_string(i));
  const Verdict verdict = story.judge();
  ASSERT_THAT(kinds(verdict), ElementsAre(FindingKind::kAnswerWithoutRow));
  EXPECT_EQ(verdict.findings[0].count, 50U);
  EXPECT_EQ(verdict.findings[0].examples.size(), 2U);
}

TEST(Check, HasAWordAndASentenceForEveryFinding) {
  std::set<std::string_view> codes;
  for (std::size_t i = 0; i < kFindingKinds; ++i) {
    codes.insert(code_of(static_cast<FindingKind>(i)));
    EXPECT_FALSE(to_string(static_cast<FindingKind>(i)).empty());
  }
  EXPECT_EQ(codes.size(), kFindingKinds);
  EXPECT_FALSE(codes.contains(""));
}

TEST(History, KeepsItsTextsWhenPutTogether) {
  History one, two;
  one.add({.member = 1, .order = one.number_of("a")});
  two.add({.member = 2, .key = two.number_of("k"), .order = two.number_of("b")});
  two.add({.member = 3, .order = two.number_of("a")});
  one.append(two);
  ASSERT_EQ(one.requests().size(), 3U);
  EXPECT_EQ(one.text(one.requests()[1].order), "b");
  EXPECT_EQ(one.text(one.requests()[1].key), "k");
  EXPECT_EQ(one.requests()[2].order, one.requests()[0].order);
  EXPECT_EQ(one.text(0), "");
  EXPECT_EQ(one.find("b"), one.requests()[1].order);
  EXPECT_EQ(one.find("nobody"), std::nullopt);
}

TEST(History, WritesALineOfCsvForEachRequest) {
  History history;
  const Request request{.start_us = 1500,
                        .end_us = 2500,
                        .member = 42,
                        .expires_us = 1'000'000,
                        .key = history.number_of("a,\"b"),
                        .order = history.number_of("o1"),
                        .answer = AnswerKind::kGranted,
                        .status = OrderStatus::kPending};
  std::string out;
  append_csv(history, request, 1000, out);
  append_csv(history,
             {.start_us = 1000,
              .end_us = 1001,
              .member = 7,
              .answer = AnswerKind::kSoldOut,
              .final = true},
             1000, out);
  EXPECT_EQ(out,
            "purchase,42,\"a,\"\"b\",500,1500,granted,0,o1,PENDING,1970-01-01T00:00:01Z\n"
            "purchase,7,,0,1,sold_out,1,,,\n");
}

}  // namespace
}  // namespace doorbuster::rush

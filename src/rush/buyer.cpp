#include "rush/buyer.hpp"

#include <algorithm>
#include <array>

namespace doorbuster::rush {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// How fast people press the button again, without being told when.
constexpr milliseconds kAgainFrom{200};
constexpr milliseconds kAgainTo{1000};
/// Between two actions of one buyer who got what they wanted.
constexpr milliseconds kNextFrom{50};
constexpr milliseconds kNextTo{500};
/// People press right after the opening, not all in the same microsecond.
constexpr milliseconds kAtOpening{50};

constexpr std::array<std::string_view, kEndings> kEndingNames = {"unfinished", "got", "sold_out",
                                                                 "refused", "gave_up"};

nanoseconds next_action(Random& random) { return random.between(kNextFrom, kNextTo); }

/// The same step again, or the end when the patience is over by then.
Move again(Step step, nanoseconds wait, const Manners& manners, std::int64_t now_ns, Buyer& buyer) {
  if (now_ns - buyer.since_ns + wait.count() > manners.patience.count()) {
    if (buyer.ending == Ending::kUnfinished) buyer.ending = Ending::kGaveUp;
    return {};
  }
  return {step, wait};
}

nanoseconds pause(const Answer& answer, Random& random) {
  if (!answer.retry_after) return random.between(kAgainFrom, kAgainTo);
  // Everybody was told the same number; a fifth on top keeps them from returning as one wave.
  const nanoseconds told = *answer.retry_after;
  return told + random.between(nanoseconds{0}, told / 5);
}

Move enter(Step step, Buyer& buyer, Random& random) {
  buyer.since_ns = -1;
  return {step, next_action(random)};
}

Move end(Ending ending, Buyer& buyer) {
  if (buyer.ending == Ending::kUnfinished) buyer.ending = ending;
  return {};
}

Move pay_or_go(const Manners& manners, Buyer& buyer, Random& random) {
  if (manners.pay_share > 0 && random.unit() < manners.pay_share)
    return enter(Step::kLook, buyer, random);
  return {};
}

Move after_purchase(Step step, const Answer& answer, const Manners& manners, std::int64_t now_ns,
                    common::Instant now, Buyer& buyer, Random& random) {
  switch (answer.kind) {
    case AnswerKind::kGranted:
    case AnswerKind::kAlready:
      if (step == Step::kAskAgain) return pay_or_go(manners, buyer, random);
      buyer.ending = Ending::kGot;
      if (manners.ask_again_share > 0 && random.unit() < manners.ask_again_share) {
        return enter(Step::kAskAgain, buyer, random);
      }
      return pay_or_go(manners, buyer, random);
    case AnswerKind::kSoldOut:
      // A holder who is told so goes on to pay: the history checker has the answer.
      if (step == Step::kAskAgain) return pay_or_go(manners, buyer, random);
      if (!answer.final && manners.come_back.count() > 0) {
        const Move move = again(step, manners.come_back, manners, now_ns, buyer);
        if (move.step == Step::kDone) buyer.ending = Ending::kSoldOut;
        return move;
      }
      return end(Ending::kSoldOut, buyer);
    case AnswerKind::kNotOpen: {
      nanoseconds wait = pause(answer, random);
      if (answer.opens_us != 0) {
        const std::chrono::microseconds until = common::from_micros(answer.opens_us) - now;
        wait = std::max(nanoseconds{0}, nanoseconds{until}) +
               random.between(nanoseconds{0}, kAtOpening);
      }
      const Move move = again(step, wait, manners, now_ns, buyer);
      if (move.step == Step::kDone && buyer.ending == Ending::kGaveUp)
        buyer.ending = Ending::kRefused;
      return move;
    }
    case AnswerKind::kPaused:
    case AnswerKind::kBusy:
    case AnswerKind::kLimited:
    case AnswerKind::kServerError:
    case AnswerKind::kConnectFailed:
    case AnswerKind::kCut:
    case AnswerKind::kNoAnswer:
      return again(step, pause(answer, random), manners, now_ns, buyer);
    default:
      // Closed, not allowed, not found: asking again would not help.
      return end(Ending::kRefused, buyer);
  }
}

/// Reads and payments: the buyer has an order, so the ending stands already.
Move after_order(Step step, const Answer& answer, const Manners& manners, std::int64_t now_ns,
                 Buyer& buyer, Random& random) {
  switch (answer.kind) {
    case AnswerKind::kOrder:
      if (answer.status != OrderStatus::kPending) return {};
      if (step == Step::kLook && answer.payable) return enter(Step::kPay, buyer, random);
      return again(step, pause(answer, random), manners, now_ns, buyer);
    case AnswerKind::kPayUnknown:
      return enter(Step::kLookAfter, buyer, random);
    case AnswerKind::kNotReady:
    case AnswerKind::kBusy:
    case AnswerKind::kLimited:
    case AnswerKind::kServerError:
    case AnswerKind::kConnectFailed:
    case AnswerKind::kCut:
    case AnswerKind::kNoAnswer:
      return again(step, pause(answer, random), manners, now_ns, buyer);
    default:
      return {};
  }
}

}  // namespace

std::string_view to_string(Ending ending) noexcept {
  return kEndingNames[static_cast<std::size_t>(ending)];
}

Move decide(Step step, const Answer& answer, const Manners& manners, std::int64_t now_ns,
            common::Instant now, Buyer& buyer, Random& random) {
  switch (ask_of(step)) {
    case Ask::kPurchase:
      return after_purchase(step, answer, manners, now_ns, now, buyer, random);
    case Ask::kRead:
    case Ask::kPay:
      return after_order(step, answer, manners, now_ns, buyer, random);
  }
  return {};
}

}  // namespace doorbuster::rush

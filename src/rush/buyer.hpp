#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "common/clock.hpp"
#include "rush/answer.hpp"
#include "rush/plan.hpp"

namespace doorbuster::rush {

/// What a buyer wants next.
enum class Step : std::uint8_t {
  kBuy,
  kAskAgain,  ///< buy again while holding: must lead to the same order
  kLook,      ///< read the order, for its amount and until it is payable
  kPay,
  kLookAfter,  ///< read the order until an unknown payment is known
  kDone,
};
[[nodiscard]] constexpr Ask ask_of(Step step) noexcept {
  return step == Step::kPay                                ? Ask::kPay
         : step == Step::kLook || step == Step::kLookAfter ? Ask::kRead
                                                           : Ask::kPurchase;
}

/// How it ended for one wanted unit.
enum class Ending : std::uint8_t {
  kUnfinished,  ///< the rush was over first
  kGot,         ///< holds (or has paid) an order
  kSoldOut,     ///< told that nothing is left
  kRefused,     ///< the sale is closed, or the server does not let this member buy
  kGaveUp,      ///< no definite answer within the patience
};
inline constexpr std::size_t kEndings = static_cast<std::size_t>(Ending::kGaveUp) + 1;
[[nodiscard]] std::string_view to_string(Ending ending) noexcept;

/// How people behave.
struct Manners {
  std::chrono::nanoseconds patience{};   ///< with trying, from the first try of a step on
  std::chrono::nanoseconds come_back{};  ///< after "sold out for now"; 0: they do not
  double pay_share = 0;
  double ask_again_share = 0;
};

/// What a buyer remembers. Small, since there are as many as buyers.
struct Buyer {
  std::int64_t since_ns = -1;  ///< when the present step was first tried; -1: not yet
  std::uint32_t order = 0;     ///< a number of History::text; 0: none
  Ending ending = Ending::kUnfinished;
};

/// What comes next, and after how long.
struct Move {
  Step step = Step::kDone;
  std::chrono::nanoseconds wait{};
  friend bool operator==(const Move&, const Move&) = default;
};

/// Decides what a buyer does about an answer, and notes in `buyer` how things stand. Pure but for
/// `random`. `now` is Unix time, for "opens at"; `now_ns` the clock of `since_ns`.
[[nodiscard]] Move decide(Step step, const Answer& answer, const Manners& manners,
                          std::int64_t now_ns, common::Instant now, Buyer& buyer, Random& random);

}  // namespace doorbuster::rush

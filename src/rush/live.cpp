#include "rush/live.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rush/report.hpp"

namespace doorbuster::rush {
namespace {

std::uint64_t count(const Tally& tally, AnswerKind kind) {
  return tally.purchases[static_cast<std::size_t>(kind)] +
         tally.orders[static_cast<std::size_t>(kind)];
}

std::uint64_t failed(const Tally& tally) {
  return count(tally, AnswerKind::kConnectFailed) + count(tally, AnswerKind::kCut) +
         count(tally, AnswerKind::kNoAnswer) + count(tally, AnswerKind::kServerError);
}

}  // namespace

void add(Tally& sum, const Tally& one) noexcept {
  sum.sent += one.sent;
  sum.done += one.done;
  for (std::size_t i = 0; i < kAnswerKinds; ++i) {
    sum.purchases[i] += one.purchases[i];
    sum.orders[i] += one.orders[i];
  }
  sum.sold_out_final += one.sold_out_final;
  sum.asked_again += one.asked_again;
  sum.asked_again_same += one.asked_again_same;
  sum.idle_lost += one.idle_lost;
}

std::uint64_t answered(const Tally& tally) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kAnswerKinds; ++i) {
    const auto kind = static_cast<AnswerKind>(i);
    if (kind == AnswerKind::kConnectFailed || kind == AnswerKind::kCut ||
        kind == AnswerKind::kNoAnswer)
      continue;
    sum += tally.purchases[i] + tally.orders[i];
  }
  return sum;
}

std::string live_line(const Moment& moment, int bar) {
  std::string line = fmt::format("{:6.1f} s  ", moment.seconds);
  if (bar > 0) {
    const double share = moment.wanted == 0 ? 1.0
                                            : static_cast<double>(moment.now.done) /
                                                  static_cast<double>(moment.wanted);
    const auto full = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * bar));
    line += fmt::format("[{}{}]  ", std::string(full, '#'),
                        std::string(static_cast<std::size_t>(bar) - full, '.'));
  }
  const double rate =
      moment.interval_s <= 0
          ? 0
          : static_cast<double>(answered(moment.now) - answered(moment.before)) / moment.interval_s;
  line += fmt::format(
      "{} sent  {}/s  {} granted  {} refused  {} busy  {} errors", for_people(moment.now.sent),
      for_people(static_cast<std::uint64_t>(std::llround(rate))),
      for_people(count(moment.now, AnswerKind::kGranted)),
      for_people(count(moment.now, AnswerKind::kSoldOut) + count(moment.now, AnswerKind::kAlready)),
      for_people(count(moment.now, AnswerKind::kBusy) + count(moment.now, AnswerKind::kLimited)),
      for_people(failed(moment.now)));
  if (moment.recent.count() > 0) {
    line += fmt::format("  p50 {}  p99 {}", for_people(moment.recent.percentile(50)),
                        for_people(moment.recent.percentile(99)));
  }
  return line;
}

}  // namespace doorbuster::rush

#include "rush/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

namespace doorbuster::rush {
namespace {

namespace json = boost::json;
using Micros = LatencyHistogram::Micros;

/// From here on the generator itself is taken to be the limit.
constexpr double kBusyShare = 0.9;
constexpr std::chrono::milliseconds kLagLimit{10};

std::uint64_t of(const std::array<std::uint64_t, kAnswerKinds>& counts, AnswerKind kind) {
  return counts[static_cast<std::size_t>(kind)];
}

void count_into(TimeBin& bin, const Request& request) {
  switch (request.answer) {
    case AnswerKind::kGranted:
      ++bin.granted;
      break;
    case AnswerKind::kAlready:
    case AnswerKind::kSoldOut:
    case AnswerKind::kNotOpen:
    case AnswerKind::kPaused:
    case AnswerKind::kClosed:
    case AnswerKind::kForbidden:
      ++bin.refused;
      break;
    case AnswerKind::kBusy:
    case AnswerKind::kLimited:
      ++bin.busy;
      break;
    case AnswerKind::kServerError:
    case AnswerKind::kConnectFailed:
    case AnswerKind::kCut:
    case AnswerKind::kNoAnswer:
      ++bin.failed;
      break;
    default:
      ++bin.other;
      break;
  }
}

/// The next of 1, 2, 5 times a power of ten that is not below `value`, from a millisecond on.
double round_length(double value) {
  double step = 0.001;
  for (;;) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (step * factor >= value) return step * factor;
    }
    step *= 10;
  }
}

std::string seconds_text(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.3f} s", *seconds) : std::string("-");
}

constexpr std::string_view kEndingWords[] = {"unfinished", "got one", "sold out", "refused",
                                             "gave up"};

constexpr std::string_view kOutcomes[] = {"ok", "broken", "unverified"};

struct Words {
  AnswerKind kind;
  std::string_view text;
};
/// The order of the table: what was hoped for first.
constexpr Words kPurchaseWords[] = {
    {AnswerKind::kGranted, "granted"},
    {AnswerKind::kAlready, "already has one"},
    {AnswerKind::kSoldOut, "sold out"},
    {AnswerKind::kNotOpen, "not open yet"},
    {AnswerKind::kPaused, "paused"},
    {AnswerKind::kClosed, "closed"},
    {AnswerKind::kForbidden, "not allowed"},
    {AnswerKind::kBusy, "busy (503)"},
    {AnswerKind::kLimited, "limited (429)"},
    {AnswerKind::kUnauthorized, "unauthorized (401)"},
    {AnswerKind::kNotFound, "not found (404)"},
    {AnswerKind::kServerError, "server error (5xx)"},
    {AnswerKind::kOther, "other answers"},
    {AnswerKind::kConnectFailed, "no connection"},
    {AnswerKind::kCut, "answer cut off"},
    {AnswerKind::kNoAnswer, "no answer in time"},
};
constexpr Words kOrderWords[] = {
    {AnswerKind::kPaid, "paid"},
    {AnswerKind::kDeclined, "card declined"},
    {AnswerKind::kPayRefused, "payment refused"},
    {AnswerKind::kPayUnknown, "payment unknown"},
    {AnswerKind::kNotReady, "not ready"},
};

json::object latency_json(const LatencyHistogram& times) {
  return {{"count", times.count()},
          {"p50_us", times.percentile(50).count()},
          {"p90_us", times.percentile(90).count()},
          {"p99_us", times.percentile(99).count()},
          {"p99_9_us", times.percentile(99.9).count()},
          {"max_us", times.max().count()},
          {"mean_us", times.mean().count()}};
}

json::value maybe(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object counts_json(const std::array<std::uint64_t, kAnswerKinds>& counts) {
  json::object object;
  for (std::size_t i = 0; i < kAnswerKinds; ++i) {
    if (counts[i] > 0) object[to_string(static_cast<AnswerKind>(i))] = counts[i];
  }
  return object;
}

json::object verdict_json(const Verdict& verdict) {
  json::array findings;
  for (const Finding& finding : verdict.findings) {
    json::array examples;
    for (const std::string& example : finding.examples) examples.emplace_back(example);
    findings.push_back(json::object{{"code", code_of(finding.kind)},
                                    {"text", to_string(finding.kind)},
                                    {"count", finding.count},
                                    {"examples", std::move(examples)}});
  }
  return {{"findings", std::move(findings)},
          {"told_orders", verdict.told_orders},
          {"holding", verdict.holding},
          {"terminal", verdict.terminal},
          {"rejected_after_grant", verdict.rejected_after_grant},
          {"merged", verdict.merged},
          {"untold_rows", verdict.untold_rows},
          {"rows_of_others", verdict.rows_of_others},
          {"free_slots", verdict.free_slot_count}};
}

}  // namespace

std::string generator_limit(const std::vector<WorkerLoad>& workers) {
  double busiest = 0;
  double starved = 0;
  LatencyHistogram lag;
  LatencyHistogram seat;
  for (const WorkerLoad& load : workers) {
    busiest = std::max(busiest, load.cpu_share);
    starved = std::max(starved, load.cpu_share + load.wait_share);
    lag.merge(load.lag);
    seat.merge(load.seat);
  }
  if (busiest >= kBusyShare) {
    return fmt::format(
        "a worker thread used {:.0f} % of a core: the server could have taken more; use more "
        "threads",
        busiest * 100);
  }
  if (starved >= kBusyShare) {
    return fmt::format(
        "a worker thread wanted a core for {:.0f} % of the time and did not get it: "
        "generator and server share too few cores",
        starved * 100);
  }
  if (lag.percentile(99) > kLagLimit) {
    return fmt::format(
        "arrivals were {} late at the 99th percentile: the rate is more than this machine can "
        "send by the clock",
        for_people(lag.percentile(99)));
  }
  if (seat.percentile(99) > kLagLimit) {
    return fmt::format(
        "requests waited {} for a free connection at the 99th percentile (the latencies contain "
        "it): use more connections",
        for_people(seat.percentile(99)));
  }
  return {};
}

Outcome RushReport::outcome() const noexcept {
  if (!verdict.ok()) return Outcome::kBroken;
  return server_error.empty() ? Outcome::kOk : Outcome::kUnverified;
}

int RushReport::exit_code() const noexcept {
  switch (outcome()) {
    case Outcome::kOk:
      return 0;
    case Outcome::kBroken:
      return 1;
    case Outcome::kUnverified:
      return 3;
  }
  return 1;
}

std::vector<TimeBin> make_timeline(const History& history, std::int64_t origin_us, double seconds,
                                   std::size_t bins) {
  const double length =
      round_length(std::max(seconds, 0.001) / static_cast<double>(std::max<std::size_t>(1, bins)));
  const auto count = static_cast<std::size_t>(std::floor(std::max(seconds, 0.0) / length)) + 1;
  std::vector<TimeBin> list(count);
  std::vector<LatencyHistogram> times(count);
  for (std::size_t i = 0; i < count; ++i) list[i].from_s = static_cast<double>(i) * length;
  for (const Request& request : history.requests()) {
    const double at = std::max(0.0, static_cast<double>(request.end_us - origin_us) / 1e6);
    const std::size_t place = std::min(count - 1, static_cast<std::size_t>(at / length));
    count_into(list[place], request);
    if (request.answer == AnswerKind::kConnectFailed || request.answer == AnswerKind::kCut ||
        request.answer == AnswerKind::kNoAnswer) {
      continue;
    }
    times[place].record(Micros{request.end_us - request.start_us + request.waited_us});
  }
  for (std::size_t i = 0; i < count; ++i) {
    list[i].p50 = times[i].percentile(50);
    list[i].p99 = times[i].percentile(99);
  }
  return list;
}

std::string for_people(Micros time) {
  const auto micros = static_cast<double>(time.count());
  if (micros < 1000) return fmt::format("{} us", time.count());
  const auto scaled = [](double value, std::string_view unit) {
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  };
  return micros < 1e6 ? scaled(micros / 1e3, "ms") : scaled(micros / 1e6, "s");
}

std::string for_people(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string ranges(const std::vector<std::int64_t>& rising, std::size_t total) {
  std::string text;
  for (std::size_t from = 0; from < rising.size();) {
    std::size_t to = from;
    while (to + 1 < rising.size() && rising[to + 1] == rising[to] + 1) ++to;
    if (!text.empty()) text += ", ";
    text += to == from ? fmt::format("{}", rising[from])
                       : fmt::format("{}-{}", rising[from], rising[to]);
    from = to + 1;
  }
  if (total > rising.size())
    text += fmt::format(" (and {} more)", for_people(total - rising.size()));
  return text;
}

std::string text_report(const RushReport& report) {
  std::string out;
  const auto row = [&](std::string_view name, const std::string& value,
                       std::string_view note = {}) {
    out += fmt::format("  {:<22}{:>14}{}{}\n", name, value, note.empty() ? "" : "  ", note);
  };
  out += fmt::format(
      "rush: item {} at {}, {} members, {}, {} connections, {} thread{}, seed {}\n\n",
      report.item_id, report.url, for_people(static_cast<std::uint64_t>(report.members)),
      report.curve, for_people(static_cast<std::uint64_t>(report.connections)), report.threads,
      report.threads == 1 ? "" : "s", report.seed);
  if (!report.stopped.empty()) out += fmt::format("  ended early: {}\n\n", report.stopped);

  out += "answers to purchases\n";
  for (const Words& words : kPurchaseWords) {
    const std::uint64_t count = of(report.purchases, words.kind);
    if (count == 0 && words.kind != AnswerKind::kGranted && words.kind != AnswerKind::kSoldOut)
      continue;
    row(words.text, for_people(count),
        words.kind == AnswerKind::kSoldOut && count > 0
            ? fmt::format("{} of them final", for_people(report.sold_out_final))
            : std::string());
  }
  for (const Words& words : kOrderWords) {
    if (of(report.orders, words.kind) > 0)
      row(words.text, for_people(of(report.orders, words.kind)));
  }
  if (report.asked_again > 0) {
    row("asked again", for_people(report.asked_again),
        fmt::format("{} got the same order", for_people(report.asked_again_same)));
  }
  if (report.idle_lost > 0) row("idle, closed on us", for_people(report.idle_lost));

  out += "\nbuyers\n";
  for (std::size_t i = 1; i <= kEndings; ++i) {
    const std::size_t place = i % kEndings;  // the unfinished last
    if (report.endings[place] > 0) row(kEndingWords[place], for_people(report.endings[place]));
  }

  out += fmt::format("\n{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "time to answer", "count",
                     "p50", "p90", "p99", "p99.9", "max");
  const auto times = [&](std::string_view name, const LatencyHistogram& histogram) {
    if (histogram.count() == 0) return;
    out += fmt::format("  {:<14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", name,
                       for_people(histogram.count()), for_people(histogram.percentile(50)),
                       for_people(histogram.percentile(90)), for_people(histogram.percentile(99)),
                       for_people(histogram.percentile(99.9)), for_people(histogram.max()));
  };
  times("all", report.all);
  times("grants", report.grants);
  times("refusals", report.refusals);
  times("payments", report.payments);
  out += report.open_loop ? "  counted from the instant at which each request was due\n"
                          : "  counted from sending: everybody waits for a connection first\n";

  out += "\ncourse\n";
  row("load", fmt::format("{:.3f} s", report.seconds),
      fmt::format(
          "{} answers a second",
          for_people(static_cast<std::uint64_t>(std::llround(
              report.seconds > 0 ? static_cast<double>(report.answers) / report.seconds : 0)))));
  row("first grant", seconds_text(report.first_grant_s));
  row("last grant", seconds_text(report.last_grant_s));
  row("first sold out", seconds_text(report.sold_out_s));
  double cpu = 0;
  for (const WorkerLoad& load : report.workers) cpu = std::max(cpu, load.cpu_share);
  row("generator", fmt::format("{:.0f} %", cpu * 100), "of a core, its busiest thread");
  if (!report.limited_by.empty())
    out += fmt::format("  THE GENERATOR WAS THE LIMIT: {}\n", report.limited_by);

  const Verdict& verdict = report.verdict;
  out += "\nwhat the server has\n";
  if (report.server) {
    const ServerSide& side = *report.server;
    row("units", for_people(static_cast<std::uint64_t>(side.quantity)));
    row("rows that hold", for_people(verdict.holding),
        fmt::format("{} slots, {} members", for_people(side.slots), for_people(side.members)));
    for (std::size_t i = 1; i < side.by_state.size(); ++i) {
      if (side.by_state[i] > 0)
        row(to_string(static_cast<OrderStatus>(i)), for_people(side.by_state[i]));
    }
    if (side.sold) row("counter of sold", for_people(static_cast<std::uint64_t>(*side.sold)));
    row("orders told", for_people(verdict.told_orders));
    row("202, then REJECTED", for_people(verdict.rejected_after_grant));
    row("merged", for_people(verdict.merged));
    row("rows nobody told of", for_people(verdict.untold_rows));
    if (verdict.rows_of_others > 0) row("rows of others", for_people(verdict.rows_of_others));
    if (verdict.free_slot_count > 0) {
      row("free slots", for_people(verdict.free_slot_count),
          ranges(verdict.free_slots, verdict.free_slot_count));
    }
    if (!side.quiet) out += "  the ledger was still moving when it was read\n";
  } else if (!report.server_error.empty()) {
    out += fmt::format("  could not be read: {}\n", report.server_error);
  } else {
    out += "  was not asked; only the answers were checked\n";
  }

  out += '\n';
  for (const Finding& finding : verdict.findings) {
    out += fmt::format("BROKEN  {}: {} ({})\n", code_of(finding.kind), to_string(finding.kind),
                       for_people(finding.count));
    for (const std::string& example : finding.examples)
      out += fmt::format("          {}\n", example);
  }
  switch (report.outcome()) {
    case Outcome::kOk:
      out += report.server ? "all invariants hold\n" : "the answers contradict no invariant\n";
      break;
    case Outcome::kBroken:
      out += fmt::format("{} kinds of broken promises\n", verdict.findings.size());
      break;
    case Outcome::kUnverified:
      out += "not verified: the ledger could not be read\n";
      break;
  }
  return out;
}

std::string json_report(const RushReport& report) {
  json::object endings;
  for (std::size_t i = 0; i < kEndings; ++i)
    endings[to_string(static_cast<Ending>(i))] = report.endings[i];
  json::array workers;
  for (const WorkerLoad& load : report.workers) {
    workers.push_back(json::object{{"cpu_share", load.cpu_share},
                                   {"wait_share", load.wait_share},
                                   {"lag_p99_us", load.lag.percentile(99).count()},
                                   {"seat_p99_us", load.seat.percentile(99).count()}});
  }
  json::array timeline;
  for (const TimeBin& bin : report.timeline) {
    timeline.push_back(json::object{{"from_s", bin.from_s},
                                    {"granted", bin.granted},
                                    {"refused", bin.refused},
                                    {"busy", bin.busy},
                                    {"failed", bin.failed},
                                    {"other", bin.other},
                                    {"p50_us", bin.p50.count()},
                                    {"p99_us", bin.p99.count()}});
  }
  json::value server = nullptr;
  if (report.server) {
    const ServerSide& side = *report.server;
    json::object states;
    for (std::size_t i = 1; i < side.by_state.size(); ++i) {
      if (side.by_state[i] > 0) states[to_string(static_cast<OrderStatus>(i))] = side.by_state[i];
    }
    server = json::object{{"quantity", side.quantity},
                          {"per_member", side.per_member},
                          {"sold", side.sold ? json::value(*side.sold) : json::value(nullptr)},
                          {"rows", side.rows},
                          {"states", std::move(states)},
                          {"slots", side.slots},
                          {"members", side.members},
                          {"quiet", side.quiet}};
  }
  const json::object all = {{"outcome", kOutcomes[static_cast<std::size_t>(report.outcome())]},
                            {"url", report.url},
                            {"item_id", report.item_id},
                            {"members", report.members},
                            {"wanted", report.wanted},
                            {"curve", report.curve},
                            {"open_loop", report.open_loop},
                            {"seed", report.seed},
                            {"threads", report.threads},
                            {"connections", report.connections},
                            {"idle_connections", report.idle_connections},
                            {"pipelining", report.pipelining},
                            {"started", common::to_rfc3339(report.started)},
                            {"setup_s", report.setup_s},
                            {"seconds", report.seconds},
                            {"stopped", report.stopped},
                            {"requests", report.requests},
                            {"answers", report.answers},
                            {"purchases", counts_json(report.purchases)},
                            {"orders", counts_json(report.orders)},
                            {"sold_out_final", report.sold_out_final},
                            {"endings", std::move(endings)},
                            {"asked_again", report.asked_again},
                            {"asked_again_same", report.asked_again_same},
                            {"idle_lost", report.idle_lost},
                            {"latency", json::object{{"all", latency_json(report.all)},
                                                     {"grants", latency_json(report.grants)},
                                                     {"refusals", latency_json(report.refusals)},
                                                     {"payments", latency_json(report.payments)}}},
                            {"first_grant_s", maybe(report.first_grant_s)},
                            {"last_grant_s", maybe(report.last_grant_s)},
                            {"sold_out_s", maybe(report.sold_out_s)},
                            {"workers", std::move(workers)},
                            {"limited_by", report.limited_by},
                            {"server", std::move(server)},
                            {"server_error", report.server_error},
                            {"verdict", verdict_json(report.verdict)},
                            {"timeline", std::move(timeline)}};
  return json::serialize(all);
}

}  // namespace doorbuster::rush

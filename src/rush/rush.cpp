#include "rush/rush.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "edge/token.hpp"
#include "rush/call.hpp"
#include "rush/live.hpp"
#include "rush/target.hpp"
#include "rush/truth.hpp"
#include "rush/worker.hpp"

namespace doorbuster::rush {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Steady;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::int64_t kMaxMembers = 10'000'000;
constexpr std::int64_t kMaxWanted = 50'000'000;
constexpr int kMaxConnections = 200'000;
constexpr milliseconds kLiveInterval{250};  ///< of a line that changes
constexpr milliseconds kPlainInterval{5000};
constexpr int kBar = 20;
constexpr std::size_t kTimelineBins = 120;
/// Tokens outlive the longest rush and its retries.
constexpr std::chrono::hours kTokenLife{6};
constexpr milliseconds kAdminTimeout{10'000};

std::string describe(const RushConfig& config) {
  switch (config.curve) {
    case Curve::kAllAtOnce:
      return "all at once";
    case Curve::kRamp:
      return fmt::format("ramp over {} s", static_cast<double>(config.ramp.count()) / 1000.0);
    case Curve::kPoisson:
      return fmt::format("Poisson, {} a second", config.rate);
  }
  return {};
}

/// Lets the workers begin together, and the display know when all are through.
struct Stage {
  explicit Stage(int threads) : ready(threads) {}
  std::latch ready;
  std::promise<Steady> start;
  std::mutex mutex;
  std::condition_variable changed;
  int working = 0;                            // Guarded by mutex.
  std::vector<Result<std::size_t>> prepared;  // One place each, read after `ready`.
};

class Rush {
 public:
  Rush(RushConfig config, Target target, const common::Clock& clock)
      : config_(std::move(config)), target_(std::move(target)), clock_(clock) {}

  Result<RushReport> run() {
    make_token_maker();
    const Truth truth(target_, config_.admin_token, clock_, kAdminTimeout);
    if (const Result<Done> there = knock(); !there) return fail(there.error());
    if (config_.item_id == 0) {
      const Result<std::int64_t> item = truth.open_sale(config_.units, config_.units_per_member);
      if (!item) return fail(item.error());
      config_.item_id = *item;
    } else if (config_.check_server) {
      // A wrong item or token is told before the load, and not after it.
      const Result<Truth::Item> item = truth.item(config_.item_id);
      if (!item) return fail(item.error());
    }
    const Result<Done> files = raise_file_limit(static_cast<std::size_t>(config_.connections) +
                                                static_cast<std::size_t>(config_.idle_connections));
    if (!files) return fail(files.error());

    RushReport report = head();
    const Steady setup = clock_.steady();
    if (const Result<Done> done = load(setup, report); !done) return fail(done.error());
    const std::int64_t origin_us = start_.time_since_epoch().count() / 1000;
    History history = gather(report);
    look_back(history, origin_us, report);
    if (config_.check_server) {
      say("waiting until the ledger is quiet");
      ask_server(truth, history, report);
    } else {
      report.verdict = check_history(history, nullptr, rules());
    }
    if (const Result<Done> written = write(history, origin_us, report); !written)
      return fail(written.error());
    return report;
  }

 private:
  void make_token_maker() {
    edge::VerificationKey key = edge::development_key();
    if (!config_.token_secret.empty()) {
      key = {.kid = config_.token_kid,
             .algorithm = edge::Algorithm::kHs256,
             .secret = config_.token_secret};
    }
    const common::Instant now = clock_.now();
    const common::Instant until = now + kTokenLife;
    if (config_.admin_token.empty() && (config_.check_server || config_.item_id == 0)) {
      config_.admin_token = edge::make_hs256_token({.subject = "rush",
                                                    .audience = "doorbuster-admin",
                                                    .issued_at = now,
                                                    .expires_at = until},
                                                   key);
    }
    if (config_.make_token) return;
    config_.make_token = [key, now, until](std::int64_t member) {
      return edge::make_hs256_token(
          {.subject = std::to_string(member), .issued_at = now, .expires_at = until}, key);
    };
  }

  /// Whether anything answers at all: without it, a mistyped port would look like a very bad
  /// server.
  [[nodiscard]] Result<Done> knock() const {
    const Result<CallAnswer> answer =
        call(target_, "GET", "/health/live", {}, {}, clock_, config_.connect_timeout);
    if (!answer) return fail(ErrorCode::kUnavailable, answer.error().message);
    return Done{};
  }

  [[nodiscard]] RushReport head() const {
    RushReport report;
    report.url = config_.url;
    report.item_id = config_.item_id;
    report.members = config_.members;
    report.wanted = config_.members * config_.units_per_member;
    report.curve = describe(config_);
    report.open_loop = config_.curve != Curve::kAllAtOnce;
    report.seed = config_.seed;
    report.threads = config_.threads;
    report.connections = config_.connections;
    report.idle_connections = config_.idle_connections;
    report.pipelining = config_.pipelining;
    return report;
  }

  [[nodiscard]] std::vector<WorkerPlan> plans() const {
    const auto threads = static_cast<std::size_t>(config_.threads);
    std::vector<WorkerPlan> list(threads);
    const std::vector<std::uint32_t> order =
        shuffled(static_cast<std::uint32_t>(config_.members), config_.seed);
    const auto each = static_cast<std::size_t>(config_.units_per_member);
    const std::size_t wanted = order.size() * each;
    const std::vector<nanoseconds> come =
        arrivals(config_.curve, wanted, config_.ramp, config_.rate, config_.seed);
    for (WorkerPlan& plan : list) plan.members.reserve(wanted / threads + 1);
    for (std::size_t i = 0; i < wanted; ++i) {
      WorkerPlan& plan = list[i % threads];
      plan.members.push_back(config_.first_member + order[i / each]);
      if (each > 1) plan.units.push_back(static_cast<std::uint8_t>(i % each));
      if (!come.empty()) plan.arrivals.push_back(come[i]);
    }
    const auto share = [&](int whole, std::size_t i) {
      const auto all = static_cast<std::size_t>(whole);
      return all / threads + (i < all % threads ? 1 : 0);
    };
    std::size_t first = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      list[i].connections = share(config_.connections, i);
      list[i].idle_connections = share(config_.idle_connections, i);
      list[i].first_connection = first;
      first += list[i].connections + list[i].idle_connections;
      list[i].max_requests = std::max<std::uint64_t>(1, config_.max_requests / threads);
      list[i].seed = config_.seed * 1000 + i;
    }
    return list;
  }

  Result<Done> load(Steady setup, RushReport& report) {
    say("making tokens and connections");
    for (WorkerPlan& plan : plans())
      workers_.push_back(make_worker(config_, target_, std::move(plan), clock_));
    Stage stage(config_.threads);
    stage.working = config_.threads;
    stage.prepared.assign(workers_.size(), std::size_t{0});
    const std::shared_future<Steady> start = stage.start.get_future().share();
    std::vector<std::jthread> threads;
    threads.reserve(workers_.size());
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([this, i, &stage, start] {
        stage.prepared[i] = workers_[i]->prepare();
        stage.ready.count_down();
        const Steady at = start.get();
        // Time zero: what was prepared did not come to work.
        if (at != Steady{}) workers_[i]->run(at);
        const std::lock_guard lock(stage.mutex);
        --stage.working;
        stage.changed.notify_all();
      });
    }
    stage.ready.wait();
    std::size_t open = 0;
    for (const Result<std::size_t>& one : stage.prepared) {
      if (!one) {
        stage.start.set_value(Steady{});
        return fail(one.error());
      }
      open += *one;
    }
    if (open == 0) {
      stage.start.set_value(Steady{});
      return fail(ErrorCode::kUnavailable,
                  fmt::format("no connection to {} could be opened", config_.url));
    }
    start_ = clock_.steady();
    report.started = clock_.now();
    report.setup_s = std::chrono::duration<double>(start_ - setup).count();
    stage.start.set_value(start_);
    show(stage, static_cast<std::uint64_t>(report.wanted));
    return Done{};
  }

  Tally tallies(LatencyHistogram& recent) {
    Tally sum;
    for (const auto& worker : workers_) add(sum, worker->tally(recent));
    return sum;
  }

  /// Shows how it goes until every worker is through.
  void show(Stage& stage, std::uint64_t wanted) {
    const bool off = config_.live == Live::kOff;
    const bool terminal = config_.live == Live::kAuto && ::isatty(STDERR_FILENO) == 1;
    const milliseconds interval = terminal ? kLiveInterval : kPlainInterval;
    Moment moment{.wanted = wanted};
    for (bool over = false; !over;) {
      {
        std::unique_lock lock(stage.mutex);
        const auto through = [&] { return stage.working == 0; };
        if (off) {
          stage.changed.wait(lock, through);
        } else {
          stage.changed.wait_for(lock, interval, through);
        }
        over = through();
      }
      if (off) continue;
      const double seconds = std::chrono::duration<double>(clock_.steady() - start_).count();
      moment.interval_s = seconds - moment.seconds;
      moment.seconds = seconds;
      moment.recent = LatencyHistogram();
      moment.now = tallies(moment.recent);
      // An escape sequence erases the line, so that a shorter one leaves nothing of a longer.
      fmt::print(stderr, "{}{}{}", terminal ? "\r\x1b[2K" : "",
                 live_line(moment, terminal ? kBar : 0), terminal && !over ? "" : "\n");
      std::fflush(stderr);
      moment.before = moment.now;
    }
  }

  void say(std::string_view text) const {
    if (config_.live != Live::kOff) fmt::print(stderr, "rush: {}\n", text);
  }

  History gather(RushReport& report) {
    History history;
    LatencyHistogram recent;
    const Tally sum = tallies(recent);
    report.requests = sum.sent;
    report.answers = answered(sum);
    report.purchases = sum.purchases;
    report.orders = sum.orders;
    report.sold_out_final = sum.sold_out_final;
    report.asked_again = sum.asked_again;
    report.asked_again_same = sum.asked_again_same;
    report.idle_lost = sum.idle_lost;
    for (const auto& worker : workers_) {
      Worker::Results& results = worker->results();
      if (workers_.size() == 1) {
        history = std::move(results.history);
      } else {
        history.append(results.history);
        results.history = History();
      }
      for (std::size_t i = 0; i < kEndings; ++i) report.endings[i] += results.endings[i];
      report.all.merge(results.all);
      report.grants.merge(results.grants);
      report.refusals.merge(results.refusals);
      report.payments.merge(results.payments);
      if (report.stopped.empty()) report.stopped = results.stopped;
      report.workers.push_back(std::move(results.load));
    }
    workers_.clear();
    return history;
  }

  void look_back(const History& history, std::int64_t origin_us, RushReport& report) const {
    std::int64_t last_us = origin_us;
    const auto seconds = [&](const Request& request) {
      return static_cast<double>(request.end_us - origin_us) / 1e6;
    };
    for (const Request& request : history.requests()) {
      last_us = std::max(last_us, request.end_us);
      if (request.ask != Ask::kPurchase) continue;
      if (request.answer == AnswerKind::kGranted) {
        const double at = seconds(request);
        report.first_grant_s = std::min(report.first_grant_s.value_or(at), at);
        report.last_grant_s = std::max(report.last_grant_s.value_or(at), at);
      } else if (request.answer == AnswerKind::kSoldOut) {
        const double at = seconds(request);
        report.sold_out_s = std::min(report.sold_out_s.value_or(at), at);
      }
    }
    report.seconds = static_cast<double>(last_us - origin_us) / 1e6;
    report.timeline = make_timeline(history, origin_us, report.seconds, kTimelineBins);
    report.limited_by = generator_limit(report.workers);
  }

  [[nodiscard]] CheckRules rules() const { return {.holder_news = config_.holder_news}; }

  void ask_server(const Truth& truth, const History& history, RushReport& report) const {
    const Result<Truth::Reading> reading =
        truth.quiet_ledger(config_.item_id, config_.quiet_apart, config_.quiet_patience);
    if (!reading) {
      report.server_error = reading.error().message;
      report.verdict = check_history(history, nullptr, rules());
      return;
    }
    const Ledger& ledger = reading->ledger;
    ServerSide side{.quantity = ledger.quantity,
                    .per_member = ledger.per_member,
                    .sold = ledger.sold,
                    .rows = ledger.rows.size(),
                    .quiet = reading->quiet};
    std::vector<std::int64_t> slots;
    std::vector<std::int64_t> members;
    for (const LedgerRow& row : ledger.rows) {
      ++side.by_state[static_cast<std::size_t>(row.state)];
      if (row.state != OrderStatus::kPending && row.state != OrderStatus::kPaid) continue;
      if (row.slot) slots.push_back(*row.slot);
      members.push_back(row.member);
    }
    const auto different = [](std::vector<std::int64_t>& list) {
      std::sort(list.begin(), list.end());
      return static_cast<std::size_t>(std::unique(list.begin(), list.end()) - list.begin());
    };
    side.slots = different(slots);
    side.members = different(members);
    report.server = side;
    report.verdict = check_history(history, &ledger, rules());
  }

  [[nodiscard]] Result<Done> write(const History& history, std::int64_t origin_us,
                                   const RushReport& report) const {
    if (!config_.history_path.empty()) {
      const Result<Done> written = write_history(history, origin_us);
      if (!written) return written;
    }
    if (config_.report_path.empty()) return Done{};
    const std::string page = html_report(report);
    return write_file(config_.report_path, [&](std::FILE* file) {
      return std::fwrite(page.data(), 1, page.size(), file) == page.size();
    });
  }

  [[nodiscard]] Result<Done> write_history(const History& history, std::int64_t origin_us) const {
    const std::vector<Request>& requests = history.requests();
    std::vector<std::size_t> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(requests[a].start_us, a) < std::pair(requests[b].start_us, b);
    });
    return write_file(config_.history_path, [&](std::FILE* file) {
      std::string part(kHistoryCsvHeader);
      const auto flush = [&] {
        const bool all = std::fwrite(part.data(), 1, part.size(), file) == part.size();
        part.clear();
        return all;
      };
      for (const std::size_t i : order) {
        append_csv(history, requests[i], origin_us, part);
        if (part.size() > 1'000'000 && !flush()) return false;
      }
      return flush();
    });
  }

  template <class Fill>
  static Result<Done> write_file(const std::string& path, const Fill& fill) {
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (file == nullptr) return fail(ErrorCode::kIo, fmt::format("{} cannot be written", path));
    const bool filled = fill(file);
    // Closing writes the rest, so its failure counts as well.
    if (std::fclose(file) != 0 || !filled) {
      return fail(ErrorCode::kIo, fmt::format("{} could not be written whole", path));
    }
    return Done{};
  }

  RushConfig config_;
  const Target target_;
  const common::Clock& clock_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Steady start_{};
};

}  // namespace

Result<Done> check_config(const RushConfig& config) {
  const auto wrong = [](std::string_view field, std::string_view rule) {
    return fail(ErrorCode::kInvalid, fmt::format("{}: {}", field, rule));
  };
  if (const Result<Url> url = parse_url(config.url); !url) return fail(url.error());
  if (config.item_id < 0) return wrong("item_id", "must not be below 0");
  if (config.item_id == 0 && (config.units < 1 || config.units > kMaxMembers)) {
    return wrong("units", "must be 1 to 10000000 when no item is named");
  }
  if (config.item_id != 0 && config.units != 0)
    return wrong("units", "only without an item, for a new sale");
  if (config.first_member < 1 || config.first_member > INT64_MAX - kMaxMembers) {
    return wrong("first_member", "must be 1 or more");
  }
  if (config.members < 1 || config.members > kMaxMembers)
    return wrong("members", "must be 1 to 10000000");
  if (config.units_per_member < 1 || config.units_per_member > 100) {
    return wrong("units_per_member", "must be 1 to 100");
  }
  if (config.units_per_member > 1 && !config.keys) {
    return wrong("keys", "needed when a member wants several units");
  }
  if (config.members * config.units_per_member > kMaxWanted) {
    return wrong("units_per_member", "members times units_per_member must not pass 50000000");
  }
  if (config.curve == Curve::kRamp &&
      (config.ramp < milliseconds{1} || config.ramp > std::chrono::hours{1})) {
    return wrong("ramp", "must be 1 ms to 1 h");
  }
  if (config.curve == Curve::kPoisson && !(config.rate >= 0.1 && config.rate <= 1e7)) {
    return wrong("rate", "must be 0.1 to 10000000 a second");
  }
  if (config.patience < milliseconds{0} || config.patience > std::chrono::hours{1}) {
    return wrong("patience", "must be 0 to 1 h");
  }
  if (config.come_back < milliseconds{0} || config.come_back > std::chrono::hours{1}) {
    return wrong("come_back", "must be 0 to 1 h");
  }
  if (!(config.pay_share >= 0 && config.pay_share <= 1))
    return wrong("pay_share", "must be 0 to 1");
  if (!(config.ask_again_share >= 0 && config.ask_again_share <= 1)) {
    return wrong("ask_again_share", "must be 0 to 1");
  }
  if (config.threads < 1 || config.threads > 64) return wrong("threads", "must be 1 to 64");
  if (config.connections < config.threads || config.connections > kMaxConnections) {
    return wrong("connections", "must be at least one a thread, and at most 200000");
  }
  if (config.idle_connections < 0 || config.idle_connections > kMaxConnections) {
    return wrong("idle_connections", "must be 0 to 200000");
  }
  if (config.pipelining < 1 || config.pipelining > 64)
    return wrong("pipelining", "must be 1 to 64");
  if (config.answer_timeout < milliseconds{1} || config.answer_timeout > std::chrono::hours{1}) {
    return wrong("answer_timeout", "must be 1 ms to 1 h");
  }
  if (config.connect_timeout < milliseconds{1} || config.connect_timeout > std::chrono::hours{1}) {
    return wrong("connect_timeout", "must be 1 ms to 1 h");
  }
  if (config.max_time < std::chrono::seconds{1} || config.max_time > std::chrono::hours{24}) {
    return wrong("max_time", "must be 1 s to 24 h");
  }
  if (config.max_requests < 1 || config.max_requests > 1'000'000'000) {
    return wrong("max_requests", "must be 1 to 1000000000");
  }
  if (!config.token_secret.empty() && config.token_secret.size() < 32) {
    return wrong("token_secret", "must have at least 32 bytes");
  }
  if (config.premade_tokens < 0) return wrong("premade_tokens", "must not be below 0");
  if (config.quiet_apart < milliseconds{1} || config.quiet_patience < milliseconds{0} ||
      config.quiet_patience > std::chrono::hours{1} ||
      config.quiet_apart > std::chrono::minutes{1}) {
    return wrong("quiet_patience", "must be up to 1 h, and quiet_apart 1 ms to 1 min");
  }
  if (config.holder_news < std::chrono::microseconds{0})
    return wrong("holder_news", "must not be below 0");
  return Done{};
}

Result<RushReport> run_rush(const RushConfig& config, const common::Clock& clock) {
  if (const Result<Done> good = check_config(config); !good) return fail(good.error());
  const Result<Target> target = find_target(config.url);
  if (!target) return fail(target.error());
  return Rush(config, *target, clock).run();
}

}  // namespace doorbuster::rush

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "bench/bare_loop.hpp"
#include "bench/figures.hpp"
#include "bench/nginx.hpp"
#include "bench/shop.hpp"

namespace doorbuster::bench {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

constexpr std::int64_t kHolders = 1'000;
/// One of so many requests comes from somebody who holds a unit.
constexpr std::size_t kHolderEvery = 100;
/// Requests of one slice: long enough to be measured, short enough that a machine which changes its
/// mind does so for both sides of a ratio.
constexpr std::size_t kSlice = 40'000;
constexpr std::size_t kPipelinedSlice = 200'000;
constexpr int kTries = 12;
constexpr std::string_view kSmallest = "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n";

/// The bare loop in a process of its own.
Result<std::unique_ptr<Process>> start_bare(const std::string& answer, std::uint16_t& port) {
  const int socket = listen_on_loopback(port);
  if (socket < 0) return fail(ErrorCode::kIo, "the bare loop cannot listen");
  auto process = Process::fork([&] { serve_bare(socket, kRequestBytes, answer); });
  ::close(socket);
  return process;
}

/// The requests of one slice. Every hundredth is of a holder; nobody's token was seen before.
class Crowd {
 public:
  Crowd(const SoldOutItem& sold, const common::Clock& clock) : sold_(sold), clock_(clock) {}

  Requests fresh(std::size_t count) {
    asks_.clear();
    const auto holders = static_cast<std::int64_t>(sold_.holders.size());
    for (std::size_t i = 0; i < count; ++i) {
      ++number_;
      const bool holds = i % kHolderEvery == kHolderEvery / 2;
      asks_.push_back(
          holds ? Ask{sold_.holders[static_cast<std::size_t>(number_ % holders)].first, number_}
                : Ask{scattered(number_), 0});
    }
    return purchases(sold_.item, asks_, clock_.now());
  }

  /// Whether an answer other than "sold out" is the one that its asker must get.
  [[nodiscard]] bool right(std::size_t request, int status, std::string_view body) const {
    const std::int64_t member = asks_[request].member;
    const auto holder = by_member().find(member);
    return holder != by_member().end() && status == 409 &&
           json_text(body, "error") == "ALREADY_PURCHASED" &&
           json_text(body, "orderId") == holder->second;
  }

  [[nodiscard]] static std::size_t holders_among(std::size_t count) {
    return count / kHolderEvery + (count % kHolderEvery > kHolderEvery / 2 ? 1 : 0);
  }

 private:
  [[nodiscard]] const std::map<std::int64_t, std::string>& by_member() const {
    if (by_member_.empty()) by_member_.insert(sold_.holders.begin(), sold_.holders.end());
    return by_member_;
  }
  const SoldOutItem& sold_;
  const common::Clock& clock_;
  std::vector<Ask> asks_;
  std::int64_t number_ = 0;
  mutable std::map<std::int64_t, std::string> by_member_;
};

/// A server of this program that has nothing left, and the requests of the slice at hand.
struct Stall {
  std::unique_ptr<Shop> shop;
  SoldOutItem sold;
  std::optional<Crowd> crowd;
  Requests requests;
  bool used = false;  ///< the requests were sent already, so their tokens are known
};

Result<std::unique_ptr<Stall>> open_stall(const std::string& program, const common::Clock& clock) {
  auto stall = std::make_unique<Stall>();
  auto shop = Shop::start(clock, program);
  if (!shop) return fail(shop.error());
  stall->shop = std::move(*shop);
  Result<SoldOutItem> sold = sell_out(*stall->shop, kHolders, clock);
  if (!sold) return fail(sold.error());
  stall->sold = std::move(*sold);
  stall->crowd.emplace(stall->sold, clock);
  return stall;
}

/// What is measured in turn, and what came out.
struct Side {
  std::string key;
  std::string what;
  std::uint16_t port = 0;
  Process* process = nullptr;
  Stall* stall = nullptr;  ///< null where nobody reads the requests
  bool fresh = false;      ///< no token twice
  std::size_t share = 1;   ///< sends the slice's requests divided by this
  struct Slice {
    LoadResult load;
    double per_cpu_second = 0;  ///< by the time of its process alone
    double neighbours = 0;
  };
  std::vector<Slice> slices;
};

class SoldOutFigure {
 public:
  SoldOutFigure(const BenchConfig& config, const common::Clock& clock, SoldOutPlan plan)
      : config_(config), clock_(clock), plan_(std::move(plan)) {}

  Rows run() {
    if (const Result<Done> ready = prepare(); !ready) return fail(ready.error());
    std::vector<Row> rows;
    for (const std::size_t pipelined : plan_.pipelined) {
      say(fmt::format("sold out, {} at a time, {} connections", pipelined, plan_.connections));
      // Once without looking: connections, caches and the server's own counters.
      if (const Result<Done> done = turn(pipelined, 0, 1); !done) return fail(done.error());
      for (Side& side : sides_) side.slices.clear();
      for (int i = 0; i < config_.runs; ++i) {
        const Result<Done> done = turn(pipelined, static_cast<std::size_t>(i), kTries);
        if (!done) return fail(done.error());
      }
      append_rows(pipelined, rows);
    }
    return rows;
  }

 private:
  Result<Done> prepare() {
    auto stall = open_stall(kThisProgram, clock_);
    if (!stall) return fail(stall.error());
    Stall& here = *stalls_.emplace_back(std::move(*stall));
    const Requests one = here.crowd->fresh(1);
    const Result<std::string> answer = fetch(here.shop->port(), one.bytes);
    if (!answer) return fail(answer.error());
    add_stall(here, "fresh", "this server, tokens never seen before");
    if (!config_.other.empty() && !plan_.brief) {
      auto other = open_stall(config_.other, clock_);
      if (!other) return fail(other.error());
      stalls_.push_back(std::move(*other));
      add_stall(*stalls_.back(), "other", "the other build, tokens never seen before");
    }
    for (const bool small : {false, true}) {
      if (small && plan_.brief) break;
      std::uint16_t port = 0;
      auto bare = start_bare(small ? std::string(kSmallest) : *answer, port);
      if (!bare) return fail(bare.error());
      sides_.push_back({.key = small ? "bareSmall" : "bare",
                        .what = small ? "bare loop, the smallest 410 there is"
                                      : "bare loop, an answer of the same bytes",
                        .port = port,
                        .process = bare->get()});
      bare_.push_back(std::move(*bare));
    }
    if (plan_.brief) return Done{};
    auto nginx = Nginx::start(answer->substr(answer->find("\r\n\r\n") + 4));
    if (nginx) {
      nginx_ = std::move(*nginx);
      // It takes many times as long where requests are pipelined.
      sides_.push_back({.key = "nginx",
                        .what = "nginx, return 410 with the same body",
                        .port = nginx_->port(),
                        .process = &nginx_->process(),
                        .share = 4});
    } else {
      say(nginx.error().message + ": its rows are left out");
    }
    // Last, since it sends what "fresh" has sent.
    add_stall(here, "repeated", "this server, the same tokens again");
    sides_.back().fresh = false;
    return Done{};
  }

  void add_stall(Stall& stall, const char* key, const char* what) {
    sides_.push_back({.key = key,
                      .what = what,
                      .port = stall.shop->port(),
                      .process = &stall.shop->process(),
                      .stall = &stall,
                      .fresh = true});
  }

  /// Everybody once, beginning with another one each time; who repeats comes last.
  Result<Done> turn(std::size_t pipelined, std::size_t number, int tries) {
    const std::size_t slice = pipelined == 1 ? kSlice : kPipelinedSlice;
    for (const auto& stall : stalls_) {
      stall->requests = stall->crowd->fresh(slice);
      stall->used = false;
    }
    const std::size_t rotating = sides_.size() - (plan_.brief ? 0 : 1);
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      Side& side = sides_[i < rotating ? (i + number) % rotating : i];
      Result<Side::Slice> best = measure_quietly(tries, [&] { return measure(side, pipelined); });
      if (!best) return fail(best.error());
      side.slices.push_back(std::move(*best));
    }
    return Done{};
  }

  Result<Side::Slice> measure(const Side& side, std::size_t pipelined) {
    Stall& stall = side.stall != nullptr ? *side.stall : *stalls_.front();
    // Where a slice is measured again, its tokens are known by now.
    if (side.fresh && std::exchange(stall.used, true)) {
      stall.requests = stall.crowd->fresh(stall.requests.count());
    }
    std::size_t right = 0;
    LoadPlan plan{.port = side.port,
                  .connections = plan_.connections,
                  .pipelined = pipelined,
                  .count = stall.requests.count() / side.share};
    plan.other = [&](std::size_t request, int status, std::string_view body) {
      if (stall.crowd->right(request, status, body)) ++right;
    };
    const Neighbours neighbours(*side.process);
    const std::chrono::nanoseconds cpu = side.process->cpu();
    Result<LoadResult> load = run_load(plan, stall.requests, clock_);
    if (!load) return fail(load.error().code, side.what + ": " + load.error().message);
    const double spent = std::chrono::duration<double>(side.process->cpu() - cpu).count();
    const std::size_t expected = side.stall != nullptr ? Crowd::holders_among(plan.count) : 0;
    if (load->other != expected || right != expected) {
      return fail(ErrorCode::kConflict,
                  fmt::format("{}: {} answers other than 410, {} of them right, {} expected",
                              side.what, load->other, right, expected));
    }
    return Side::Slice{.load = std::move(*load),
                       .per_cpu_second = static_cast<double>(plan.count) / spent,
                       .neighbours = neighbours.share()};
  }

  void append_rows(std::size_t pipelined, std::vector<Row>& rows) const {
    const Side& bare = *std::find_if(sides_.begin(), sides_.end(),
                                     [](const Side& side) { return side.key == "bare"; });
    for (const Side& side : sides_) {
      const auto middle = [&](auto&& of) {
        std::vector<double> values;
        for (std::size_t i = 0; i < side.slices.size(); ++i) {
          values.push_back(of(side.slices[i], bare.slices[i]));
        }
        return median(values);
      };
      using Slice = Side::Slice;
      const char* const depth = pipelined == 1 ? "one at a time" : "16 pipelined";
      Row row{
          .key = fmt::format("soldOut{}.{}", pipelined, side.key),
          .what = plan_.brief ? fmt::format("sold out, {}, {} connections: {}", depth,
                                            plan_.connections, side.what)
                              : fmt::format("sold out, {}: {}", depth, side.what),
          .ratio = middle([](const Slice& a, const Slice& b) {
            return a.load.per_second() / b.load.per_second();
          }),
          .target = {},
          .per_second = middle([](const Slice& a, const Slice&) { return a.load.per_second(); }),
          .times = rush::LatencyHistogram(),
          .note = fmt::format(
              "by CPU time {:.2f} ({:.2f} us each); load busy {:.0f} %, neighbours {:.0f} %",
              middle([](const Slice& a, const Slice& b) {
                return a.per_cpu_second / b.per_cpu_second;
              }),
              1e6 / middle([](const Slice& a, const Slice&) { return a.per_cpu_second; }),
              100 * middle([](const Slice& a, const Slice&) { return a.load.busy; }),
              100 * middle([](const Slice& a, const Slice&) { return a.neighbours; }))};
      for (const Slice& slice : side.slices) row.times->merge(slice.load.times);
      if (plan_.brief) row.key += fmt::format(".{}", plan_.connections);
      if (side.key == "fresh" && !plan_.brief)
        row.target = Target{pipelined == 1 ? 0.88 : 0.42, true};
      rows.push_back(std::move(row));
    }
  }

  const BenchConfig& config_;
  const common::Clock& clock_;
  const SoldOutPlan plan_;
  std::vector<std::unique_ptr<Stall>> stalls_;  ///< this program's first
  std::vector<std::unique_ptr<Process>> bare_;
  std::unique_ptr<Nginx> nginx_;
  std::vector<Side> sides_;
};

}  // namespace

Rows sold_out_at(const BenchConfig& config, const common::Clock& clock, const SoldOutPlan& plan) {
  return SoldOutFigure(config, clock, plan).run();
}

Rows sold_out(const BenchConfig& config, const common::Clock& clock) {
  return sold_out_at(config, clock, {});
}

}  // namespace doorbuster::bench

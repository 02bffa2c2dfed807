#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

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

/// What is measured in turn, and what came out.
struct Side {
  std::string key;
  std::string what;
  std::uint16_t port = 0;
  Process* process = nullptr;
  std::size_t share = 1;  ///< sends the slice's requests divided by this
  std::vector<double> per_second;
  std::vector<double> per_cpu_second;  ///< by the time of its process alone
  std::vector<double> own_share;
  std::vector<double> neighbours;
  rush::LatencyHistogram times;
};

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
                : Ask{2 * kFirstMember + number_, 0});
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

class SoldOutFigure {
 public:
  SoldOutFigure(const BenchConfig& config, const common::Clock& clock)
      : config_(config), clock_(clock) {}

  Rows run() {
    if (const Result<Done> ready = prepare(); !ready) return fail(ready.error());
    std::vector<Row> rows;
    for (const std::size_t pipelined : {std::size_t{1}, std::size_t{16}}) {
      say(fmt::format("sold out, {} at a time", pipelined));
      for (Side& side : sides_) {
        side.per_second.clear();
        side.per_cpu_second.clear();
        side.own_share.clear();
        side.neighbours.clear();
        side.times = rush::LatencyHistogram();
      }
      // Once without looking: connections, caches and the server's own counters.
      if (const Result<Done> done = turn(pipelined, 0, true); !done) return fail(done.error());
      for (int i = 0; i < config_.runs; ++i) {
        const Result<Done> done = turn(pipelined, static_cast<std::size_t>(i), false);
        if (!done) return fail(done.error());
      }
      append_rows(pipelined, rows);
    }
    return rows;
  }

 private:
  Result<Done> prepare() {
    auto shop = Shop::start(clock_);
    if (!shop) return fail(shop.error());
    shop_ = std::move(*shop);
    Result<SoldOutItem> sold = sell_out(*shop_, kHolders, clock_);
    if (!sold) return fail(sold.error());
    sold_ = std::move(*sold);
    crowd_.emplace(sold_, clock_);
    const Requests one = crowd_->fresh(1);
    const Result<std::string> answer = fetch(shop_->port(), one.bytes);
    if (!answer) return fail(answer.error());

    sides_.push_back({"fresh",
                      "this server, tokens never seen before",
                      shop_->port(),
                      &shop_->process(),
                      1,
                      {},
                      {},
                      {},
                      {},
                      {}});
    sides_.push_back({"repeated",
                      "this server, the same tokens again",
                      shop_->port(),
                      &shop_->process(),
                      1,
                      {},
                      {},
                      {},
                      {},
                      {}});
    for (const bool small : {false, true}) {
      std::uint16_t port = 0;
      auto bare = start_bare(small ? std::string(kSmallest) : *answer, port);
      if (!bare) return fail(bare.error());
      sides_.push_back({small ? "bareSmall" : "bare",
                        small ? "bare loop, the smallest 410 there is"
                              : "bare loop, an answer of the same bytes",
                        port,
                        bare->get(),
                        1,
                        {},
                        {},
                        {},
                        {},
                        {}});
      bare_.push_back(std::move(*bare));
    }
    const std::size_t body = answer->find("\r\n\r\n") + 4;
    auto nginx = Nginx::start(answer->substr(body));
    if (!nginx) {
      say(nginx.error().message + ": its rows are left out");
      return Done{};
    }
    nginx_ = std::move(*nginx);
    // It takes many times as long where requests are pipelined.
    sides_.push_back({"nginx",
                      "nginx, return 410 with the same body",
                      nginx_->port(),
                      &nginx_->process(),
                      4,
                      {},
                      {},
                      {},
                      {},
                      {}});
    return Done{};
  }

  /// Everybody once, beginning with another one each time.
  Result<Done> turn(std::size_t pipelined, std::size_t number, bool warming) {
    const std::size_t slice = pipelined == 1 ? kSlice : kPipelinedSlice;
    Requests requests = crowd_->fresh(slice);
    used_ = false;
    const auto first = static_cast<std::size_t>(
        std::find_if(sides_.begin(), sides_.end(),
                     [](const Side& side) { return side.key == "repeated"; }) -
        sides_.begin());
    // "Fresh" before "repeated", which sends the same requests again.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      const std::size_t place = (i + number) % sides_.size();
      if (place != first) order.push_back(place);
    }
    order.push_back(first);
    for (const std::size_t place : order) {
      const Result<Done> done = measure(sides_[place], requests, pipelined, warming);
      if (!done) return done;
    }
    return Done{};
  }

  Result<Done> measure(Side& side, Requests& requests, std::size_t pipelined, bool warming) {
    const Result<Slice> slice = measure_quietly(warming ? 1 : kTries, [&]() -> Result<Slice> {
      // Where a slice is repeated, its tokens must not be known already.
      if (side.key == "fresh" && used_) requests = crowd_->fresh(requests.count());
      if (side.key == "fresh") used_ = true;
      return once(side, requests, pipelined);
    });
    if (!slice) return fail(slice.error());
    if (warming) return Done{};
    side.per_second.push_back(slice->load.per_second());
    side.per_cpu_second.push_back(slice->per_cpu_second);
    side.own_share.push_back(slice->load.own_share);
    side.neighbours.push_back(slice->neighbours);
    side.times.merge(slice->load.times);
    return Done{};
  }

  struct Slice {
    LoadResult load;
    double per_cpu_second = 0;
    double neighbours = 0;
  };

  Result<Slice> once(Side& side, const Requests& requests, std::size_t pipelined) {
    std::size_t right = 0;
    LoadPlan plan{.port = side.port,
                  .connections = 64,
                  .pipelined = pipelined,
                  .count = requests.count() / side.share};
    const bool ours = side.process == &shop_->process();
    plan.other = [&](std::size_t request, int status, std::string_view body) {
      if (ours && crowd_->right(request, status, body)) ++right;
    };
    const Neighbours neighbours(*side.process);
    const std::chrono::nanoseconds cpu = side.process->cpu();
    Result<LoadResult> result = run_load(plan, requests, clock_);
    if (!result) {
      return fail(result.error().code, side.what + ": " + result.error().message);
    }
    const double spent = std::chrono::duration<double>(side.process->cpu() - cpu).count();
    const std::size_t expected = ours ? Crowd::holders_among(plan.count) : 0;
    if (result->other != expected || right != expected) {
      return fail(ErrorCode::kConflict,
                  fmt::format("{}: {} answers other than 410, {} of them right, {} expected",
                              side.what, result->other, right, expected));
    }
    return Slice{.load = std::move(*result),
                 .per_cpu_second = static_cast<double>(plan.count) / spent,
                 .neighbours = neighbours.share()};
  }

  void append_rows(std::size_t pipelined, std::vector<Row>& rows) const {
    const auto bare = std::find_if(sides_.begin(), sides_.end(),
                                   [](const Side& side) { return side.key == "bare"; });
    for (const Side& side : sides_) {
      std::vector<double> ratios;
      std::vector<double> by_cpu;
      for (std::size_t i = 0; i < side.per_second.size(); ++i) {
        ratios.push_back(side.per_second[i] / bare->per_second[i]);
        by_cpu.push_back(side.per_cpu_second[i] / bare->per_cpu_second[i]);
      }
      Row row{.key = fmt::format("soldOut{}.{}", pipelined, side.key),
              .what = fmt::format("sold out, {}: {}",
                                  pipelined == 1 ? "one at a time" : "16 pipelined", side.what),
              .ratio = median(ratios),
              .target = {},
              .per_second = median(side.per_second),
              .times = side.times,
              .note = fmt::format(
                  "by CPU time {:.2f} ({:.2f} us each); load's core {:.0f} %, neighbours {:.0f} %",
                  median(by_cpu), 1e6 / median(side.per_cpu_second), 100 * median(side.own_share),
                  100 * median(side.neighbours))};
      if (side.key == "fresh") row.target = Target{pipelined == 1 ? 0.88 : 0.42, true};
      rows.push_back(std::move(row));
    }
  }

  const BenchConfig& config_;
  const common::Clock& clock_;
  std::unique_ptr<Shop> shop_;
  SoldOutItem sold_;
  std::optional<Crowd> crowd_;
  std::vector<std::unique_ptr<Process>> bare_;
  std::unique_ptr<Nginx> nginx_;
  std::vector<Side> sides_;
  bool used_ = false;  ///< the requests at hand were sent with unknown tokens already
};

}  // namespace

Rows sold_out(const BenchConfig& config, const common::Clock& clock) {
  return SoldOutFigure(config, clock).run();
}

}  // namespace doorbuster::bench

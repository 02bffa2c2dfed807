#include "bench/shop.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "edge/token.hpp"
#include "rush/call.hpp"
#include "rush/target.hpp"
#include "rush/truth.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kCallTimeout{10'000};
constexpr milliseconds kLookAgain{20};
constexpr seconds kReadyPatience{60};
constexpr std::chrono::hours kTokenLife{6};

Result<rush::CallAnswer> get(const std::string& url, const std::string& path,
                             const common::Clock& clock) {
  const Result<rush::Target> target = rush::find_target(url);
  if (!target) return fail(target.error());
  return rush::call(*target, "GET", path, {}, {}, clock, kCallTimeout);
}

}  // namespace

Result<std::unique_ptr<Shop>> Shop::start(const common::Clock& clock, const std::string& program) {
  auto shop = std::unique_ptr<Shop>(new Shop(clock));
  const Result<std::uint16_t> port = free_port();
  if (!port) return fail(port.error());
  shop->port_ = *port;
  const std::filesystem::path log = shop->folder_.path() / "server.log";
  auto process =
      Process::exec({program, "serve", "--ledger", "sqlite:" + shop->ledger().string(),
                     "--engine.order_id_key_file", (shop->folder_.path() / "order-id.key").string(),
                     "--http.port", std::to_string(*port), "--http.io_threads", "1"},
                    log);
  if (!process) return fail(process.error());
  shop->process_ = std::move(*process);
  const common::Steady end = clock.steady() + kReadyPatience;
  while (clock.steady() < end && shop->process_->alive()) {
    const auto ready = get(shop->url(), "/health/ready", clock);
    if (ready && ready->status == 200) return shop;
    std::this_thread::sleep_for(kLookAgain);
  }
  return fail(ErrorCode::kUnavailable,
              "the server for the figures did not become ready; its log: " + log.string());
}

std::string Shop::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::string Shop::admin_token() const {
  const common::Instant now = clock_.now();
  return edge::make_hs256_token({.subject = "bench",
                                 .audience = "doorbuster-admin",
                                 .issued_at = now,
                                 .expires_at = now + kTokenLife},
                                edge::development_key());
}

Result<std::int64_t> Shop::open_sale(std::int64_t units) const {
  const Result<rush::Target> target = rush::find_target(url());
  if (!target) return fail(target.error());
  return rush::Truth(*target, admin_token(), clock_, kCallTimeout).open_sale(units, 1);
}

Result<std::int64_t> Shop::sold(std::int64_t item) const {
  const Result<rush::Target> target = rush::find_target(url());
  if (!target) return fail(target.error());
  const auto about = rush::Truth(*target, admin_token(), clock_, kCallTimeout).item(item);
  if (!about) return fail(about.error());
  return about->sold;
}

double Shop::metric(std::string_view name) const {
  const auto page = get(url(), "/metrics", clock_);
  if (!page) return 0;
  const std::string line = fmt::format("\n{} ", name);
  const std::size_t at = page->body.find(line);
  if (at == std::string::npos) return 0;
  return std::strtod(page->body.c_str() + at + line.size(), nullptr);
}

Requests purchases(std::int64_t item, const std::vector<Ask>& asks, common::Instant now) {
  Requests requests{.bytes = {}, .size = kRequestBytes};
  requests.bytes.reserve(asks.size() * kRequestBytes);
  const edge::VerificationKey& key = edge::development_key();
  const common::Instant until = now + kTokenLife;
  const std::string head =
      fmt::format("POST /api/flash-sales/items/{}/purchase HTTP/1.1\r\nHost: 127.0.0.1\r\n", item);
  constexpr std::string_view kTail = "Content-Length: 0\r\nAuthorization: Bearer ";
  std::string fill;
  for (const Ask& ask : asks) {
    DOORBUSTER_ENSURE(ask.member >= kFirstMember && ask.member < 10 * kFirstMember,
                      "members of equally long numbers");
    const std::string token =
        edge::make_hs256_token({.subject = std::to_string(ask.member),
                                .issued_at = now,
                                .expires_at = until + seconds{ask.token_number}},
                               key);
    if (fill.empty()) {
      const std::size_t least = head.size() + kTail.size() + token.size() + 4;
      constexpr std::string_view kName = "A: ";
      DOORBUSTER_ENSURE(least + kName.size() + 3 <= kRequestBytes, "the request is long enough");
      fill = fmt::format("{}{}\r\n", kName,
                         std::string(kRequestBytes - least - kName.size() - 2, 'b'));
    }
    requests.bytes += head;
    requests.bytes += fill;
    requests.bytes += kTail;
    requests.bytes += token;
    requests.bytes += "\r\n\r\n";
  }
  DOORBUSTER_ENSURE(requests.bytes.size() == asks.size() * kRequestBytes,
                    "every request has the same size");
  return requests;
}

Result<SoldOutItem> sell_out(const Shop& shop, std::int64_t units, const common::Clock& clock) {
  const Result<std::int64_t> item = shop.open_sale(units);
  if (!item) return fail(item.error());
  SoldOutItem sold{.item = *item, .holders = {}};
  std::vector<Ask> asks;
  for (std::int64_t i = 0; i < units; ++i) asks.push_back({kFirstMember + i, 0});
  const Requests buying = purchases(*item, asks, clock.now());
  std::size_t wrong = 0;
  LoadPlan plan{.port = shop.port(),
                .connections = static_cast<std::size_t>(std::min<std::int64_t>(units, 64)),
                .count = asks.size(),
                .usual = 0};
  plan.other = [&](std::size_t request, int status, std::string_view body) {
    const std::string_view order = json_text(body, "orderId");
    if (status != 202 || order.empty()) ++wrong;
    sold.holders.emplace_back(asks[request].member, order);
  };
  const Result<LoadResult> bought = run_load(plan, buying, clock);
  if (!bought) return fail(bought.error());
  if (wrong > 0) {
    return fail(ErrorCode::kConflict, fmt::format("{} of {} buyers got no unit", wrong, units));
  }
  // The flag goes up once gate and ledger agree; until then a stranger may be told to come back.
  const common::Steady end = clock.steady() + kReadyPatience;
  std::int64_t number = 0;
  while (clock.steady() < end) {
    const Requests one = purchases(*item, {{4 * kFirstMember + number++, 0}}, clock.now());
    const Result<std::string> answer = fetch(shop.port(), one.bytes);
    if (!answer) return fail(answer.error());
    if (answer->starts_with("HTTP/1.1 410")) return sold;
    std::this_thread::sleep_for(kLookAgain);
  }
  return fail(ErrorCode::kTimeout, "a sale without units did not become sold out");
}

Result<std::string> fetch(std::uint16_t port, std::string_view request) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  std::string answer;
  AnswerCutter cutter;
  std::size_t size = 0;
  const bool asked =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size());
  while (asked && size == 0) {
    std::array<char, 16'384> part{};
    const ssize_t got = ::recv(fd, part.data(), part.size(), 0);
    if (got <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(got));
    size = cutter.next(answer).bytes;
  }
  ::close(fd);
  if (size == 0) return fail(ErrorCode::kUnavailable, "no whole answer came");
  answer.resize(size);
  return answer;
}

std::string_view json_text(std::string_view body, std::string_view name) {
  const std::string before = fmt::format("\"{}\":\"", name);
  const std::size_t at = body.find(before);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = body.substr(at + before.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace doorbuster::bench

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "bench/figures.hpp"
#include "bench/idle.hpp"
#include "bench/nginx.hpp"
#include "bench/shop.hpp"
#include "common/random.hpp"
#include "engine/local_gate.hpp"
#include "engine/scope.hpp"
#include "rush/report.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

/// A member's number, a grant's id and a slot.
constexpr double kIdBytes = 8 + 16 + 4;
constexpr std::string_view kAsk = "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n";

/// What a task answers that does not wait.
template <class T>
T answer_of(common::Task<T> task) {
  std::optional<T> answer;
  const auto keep = [](common::Task<T> one, std::optional<T>& to) -> common::Task<void> {
    T value = co_await one;
    to.emplace(std::move(value));
  };
  common::start(keep(std::move(task), answer));
  DOORBUSTER_ENSURE(answer.has_value(), "the local gate does not wait");
  return std::move(*answer);
}

/// Bytes of a gate with so many members, and of what the node keeps of them to tell strangers from
/// holders; in a process of its own.
double gate_bytes(std::int32_t members, const common::Clock& clock) {
  using namespace engine;  // NOLINT(google-build-using-namespace): its words all over
  const std::int64_t before = own_private_bytes();
  const ScopeId scope_id{'s', 1};
  const AllotmentId item{'i', 1};
  const Epoch epoch{1};
  const ScopeRules rules{
      .id = scope_id,
      .per_member = 1,
      .allotments = {{.id = item, .quantity = members, .amount = 1000, .hold = kHoldDefault}}};
  ShardSnapshot rows{.epoch = epoch, .min_epoch = epoch, .allotments = {{item, members, members}}};
  const auto gate = make_local_gate();
  const auto scope = std::make_unique<Scope>(rules);
  ShardSnapshot copy = rows;
  const auto begun = answer_of(gate->begin_epoch(rules, std::move(copy)));
  const auto loaded = answer_of(gate->load(scope_id, std::move(rows)));
  DOORBUSTER_ENSURE(begun && loaded, "the gate opens");
  common::GrantIdMaker ids(clock);
  for (std::int32_t i = 0; i < members; ++i) {
    const common::MemberId member{scattered(i)};
    TakeRequest request{.scope = scope_id,
                        .allotment = item,
                        .member = member,
                        .key = {},
                        .epoch = epoch,
                        .fresh_id = ids.make(),
                        .now = clock.now()};
    const auto taken = answer_of(gate->take(std::move(request)));
    const auto* got = taken ? std::get_if<Taken>(&*taken) : nullptr;
    DOORBUSTER_ENSURE(got != nullptr, "there is a unit for everybody");
    std::vector<Confirmation> list{
        {member, got->entry.id, got->entry.slot, got->entry.nth, got->entry.expires_at}};
    const auto confirmed = answer_of(gate->confirm(scope_id, epoch, std::move(list)));
    DOORBUSTER_ENSURE(confirmed, "a grant is confirmed");
    scope->saw_holder(member);
  }
  ::malloc_trim(0);
  return static_cast<double>(own_private_bytes() - before) / members;
}

/// Runs it in a child and gives back what it found.
Result<double> in_a_child(const std::function<double()>& measure) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return fail(ErrorCode::kIo, "no pipe");
  double found = -1;
  ssize_t got = 0;
  {
    const auto child = Process::fork([&] {
      const double value = measure();
      if (::write(ends[1], &value, sizeof value) != sizeof value) ::_exit(1);
    });
    ::close(ends[1]);
    if (child) got = ::read(ends[0], &found, sizeof found);
  }
  ::close(ends[0]);
  if (got != sizeof found) return fail(ErrorCode::kIo, "a child did not say what it found");
  return found;
}

/// Bytes of the process for each of `count` idle connections.
Result<double> idle_bytes(std::uint16_t port, const Process& process, std::size_t count) {
  // Whatever a server makes for its first connections is not theirs.
  IdleConnections first;
  const auto warmed = first.grow(port, 10, kAsk);
  if (!warmed) return fail(warmed.error());
  const std::int64_t before = process.private_bytes();
  IdleConnections idle;
  const auto grown = idle.grow(port, count, kAsk);
  if (!grown) return fail(grown.error());
  const std::int64_t after = process.private_bytes();
  if (idle.open() != count) return fail(ErrorCode::kConflict, "an idle connection was closed");
  return static_cast<double>(after - before) / static_cast<double>(count);
}

}  // namespace

Rows memory(const BenchConfig& config, const common::Clock& clock) {
  say("memory");
  std::vector<Row> rows;
  for (const std::size_t count : {100U, 1'000U, 10'000U}) {
    std::vector<double> ours;
    std::vector<double> others;
    for (int i = 0; i < config.runs; ++i) {
      auto shop = Shop::start(clock);
      if (!shop) return fail(shop.error());
      const Result<double> bytes = idle_bytes((*shop)->port(), (*shop)->process(), count);
      if (!bytes) return fail(bytes.error());
      ours.push_back(*bytes);
      const auto nginx = Nginx::start("{}");
      if (!nginx) continue;
      const Result<double> nginx_bytes = idle_bytes((*nginx)->port(), (*nginx)->process(), count);
      if (!nginx_bytes) return fail(nginx_bytes.error());
      others.push_back(*nginx_bytes);
    }
    Row row{.key = fmt::format("memory.idle.{}", count),
            .what = fmt::format("bytes of the process for an idle connection, of {}",
                                rush::for_people(std::uint64_t{count})),
            .note = fmt::format("{:.0f} bytes", median(ours))};
    if (!others.empty()) {
      row.ratio = median(ours) / std::max(1.0, median(others));
      row.note += fmt::format("; nginx {:.0f}, which the ratio is of", median(others));
    }
    rows.push_back(std::move(row));
  }
  for (const std::int32_t members : {10'000, 100'000, 1'000'000}) {
    const Result<double> bytes = in_a_child([&] { return gate_bytes(members, clock); });
    if (!bytes) return fail(bytes.error());
    rows.push_back({.key = fmt::format("memory.gate.{}", members),
                    .what = fmt::format("bytes for a member at the gate, of {}, against its ids",
                                        rush::for_people(static_cast<std::uint64_t>(members))),
                    .ratio = *bytes / kIdBytes,
                    .note = fmt::format("{:.0f} bytes, {:.0f} of ids", *bytes, kIdBytes)});
  }
  return rows;
}

}  // namespace doorbuster::bench

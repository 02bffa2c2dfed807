#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/executor.hpp"
#include "common/loop.hpp"
#include "common/metrics.hpp"
#include "common/task.hpp"
#include "db/database.hpp"
#include "db/migrations.hpp"
#include "engine/direct_journal.hpp"
#include "engine/engine.hpp"
#include "engine/gate.hpp"
#include "engine/ledger.hpp"
#include "engine/local_gate.hpp"
#include "engine/sql_ledger.hpp"

namespace doorbuster::engine::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr Instant kStart = common::from_micros(1'800'000'000'000'000);

/// How long a test waits for something that must come; only a broken product is that slow.
inline constexpr seconds kPatience{60};

class TempDir {
 public:
  TempDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "doorbuster-engine-XXXXXX").string();
    DOORBUSTER_ENSURE(mkdtemp(name.data()) != nullptr, "a test needs a temporary folder");
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file() const { return (path_ / "test.db").string(); }

 private:
  std::filesystem::path path_;
};

namespace detail {
template <class T>
common::Task<void> fill(common::Task<T> task, std::shared_ptr<std::optional<T>> slot,
                        std::function<void()> then) {
  T value = co_await task;
  slot->emplace(std::move(value));
  if (then) then();
}
}  // namespace detail

/// Runs a task on this thread until it ends; for calls that need no executor, or answer from
/// elsewhere.
template <class T>
T wait_here(common::Task<T> task) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;  // Guarded by mutex.
  };
  auto shared = std::make_shared<Shared>();
  auto slot = std::make_shared<std::optional<T>>();
  common::start(detail::fill<T>(std::move(task), slot, [shared] {
    const std::lock_guard lock(shared->mutex);
    shared->done = true;
    shared->ended.notify_all();
  }));
  std::unique_lock lock(shared->mutex);
  DOORBUSTER_ENSURE(shared->ended.wait_for(lock, kPatience, [&] { return shared->done; }),
                    "the call answers");
  return std::move(**slot);
}

/// The same, begun on `loop` (where its waits then resume). `make` lives until the answer is there.
template <class T>
T wait_on(common::Executor& loop, const std::function<common::Task<T>()>& make) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;  // Guarded by mutex.
  };
  auto shared = std::make_shared<Shared>();
  auto slot = std::make_shared<std::optional<T>>();
  loop.post([&make, shared, slot] {
    common::start(detail::fill<T>(make(), slot, [shared] {
      const std::lock_guard lock(shared->mutex);
      shared->done = true;
      shared->ended.notify_all();
    }));
  });
  std::unique_lock lock(shared->mutex);
  DOORBUSTER_ENSURE(shared->ended.wait_for(lock, kPatience, [&] { return shared->done; }),
                    "the call answers");
  return std::move(**slot);
}

/// An executor that runs only while its test tells it to, on a clock that only its test moves.
/// Threads of the database may post; everything runs on the test's own thread.
class StepExecutor final : public common::Executor {
 public:
  explicit StepExecutor(common::ManualClock& clock) : clock_(clock) {}

  void post(Function function) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(function));
    posted_.notify_all();
  }
  TimerId post_at(common::Steady at, Function function) override {
    DOORBUSTER_ENSURE(is_current(), "timers are set on their own executor");
    timers_.emplace(std::pair{at, next_}, std::move(function));
    due_.emplace(next_, at);
    return next_++;
  }
  void cancel(TimerId id) override {
    const auto found = due_.find(id);
    if (found == due_.end()) return;
    timers_.erase({found->second, id});
    due_.erase(found);
  }
  bool is_current() const noexcept override { return std::this_thread::get_id() == owner_; }
  const common::Clock& clock() const noexcept override { return clock_; }

  /// Everything that can run without waiting.
  void run_ready() {
    for (;;) {
      Function next;
      {
        const std::lock_guard lock(mutex_);
        if (!queue_.empty()) {
          next = std::move(queue_.front());
          queue_.pop_front();
        }
      }
      if (!next && !timers_.empty() && timers_.begin()->first.first <= clock_.steady()) {
        auto due = timers_.extract(timers_.begin());
        due_.erase(due.key().second);
        next = std::move(due.mapped());
      }
      if (!next) return;
      next();
    }
  }

  /// Runs until `condition` holds, waiting for other threads' posts; the clock stands still.
  void until(const std::function<bool()>& condition) {
    for (;;) {
      run_ready();
      if (condition()) return;
      std::unique_lock lock(mutex_);
      DOORBUSTER_ENSURE(posted_.wait_for(lock, kPatience, [&] { return !queue_.empty(); }),
                        "what the test waits for comes");
    }
  }

  template <class T>
  std::shared_ptr<std::optional<T>> begin(common::Task<T> task) {
    auto slot = std::make_shared<std::optional<T>>();
    common::start(detail::fill<T>(std::move(task), slot, nullptr));
    return slot;
  }
  template <class T>
  T wait(common::Task<T> task) {
    auto slot = begin<T>(std::move(task));
    until([&] { return slot->has_value(); });
    return std::move(**slot);
  }

  [[nodiscard]] std::optional<common::Steady> next_timer() const {
    if (timers_.empty()) return std::nullopt;
    return timers_.begin()->first.first;
  }

 private:
  common::ManualClock& clock_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Function> queue_;  // Guarded by mutex_.
  std::map<std::pair<common::Steady, TimerId>, Function> timers_;
  std::map<TimerId, common::Steady> due_;
  TimerId next_ = 1;
};

enum class Op {
  kRecord,
  kRaiseEpoch,
  kRaiseMinEpoch,
  kSnapshot,
  kUndelivered,
  kDelivered,
  kRead,
  kExpire,
  kMark,
  kFinishReclaim,
  kRecount,
  kClose,
  kSettle,
  kLease,
  kLeases,
  kStanding,
};
inline constexpr std::size_t kOps = 16;

/// A real ledger with trouble on the way to it and back. Used on one executor, as the engine does.
class FaultyLedger final : public Ledger {
 public:
  FaultyLedger(Ledger& real, common::Executor& home) : real_(real), home_(home) {}

  /// The next `n` calls fail; nothing happened.
  void fail_next(Op op, int n) { knob(op).fail = n; }
  /// The next `n` calls happen, and their answers are lost.
  void lose_answers(Op op, int n) { knob(op).lose = n; }
  /// Calls wait, before they do anything, until release().
  void hold(Op op) { knob(op).held = true; }
  void release(Op op) {
    knob(op).held = false;
    knob(op).answers_held = false;
    for (const auto& one : std::exchange(knob(op).waiting, {})) one.complete(common::Done{});
  }
  /// Only the call that came last goes on; the others, and new ones, still wait.
  void release_last(Op op) {
    const auto last = knob(op).waiting.back();
    knob(op).waiting.pop_back();
    last.complete(common::Done{});
  }
  /// Calls do what they do, and their answers wait until release().
  void hold_answers(Op op) { knob(op).answers_held = true; }
  /// Everything fails until it is up again.
  void set_down(bool down) { down_ = down; }

  [[nodiscard]] int calls(Op op) { return knob(op).calls; }
  [[nodiscard]] std::size_t waiting(Op op) { return knob(op).waiting.size(); }
  /// Calls that the real ledger has not answered yet.
  [[nodiscard]] int outstanding() const { return outstanding_; }
  /// Rows of each record() that reached the real ledger.
  [[nodiscard]] const std::vector<std::size_t>& batches() const { return batches_; }

  common::Task<common::Result<std::vector<RecordOutcome>>> record(
      std::vector<Grant> batch) override {
    const std::size_t size = batch.size();
    return pass(Op::kRecord, real_.record(std::move(batch)), size);
  }
  common::Task<common::Result<Epoch>> raise_epoch(NewEpoch wanted) override {
    return pass(Op::kRaiseEpoch, real_.raise_epoch(std::move(wanted)));
  }
  common::Task<common::Result<common::Done>> lease(ScopeId scope, AllotmentId allotment,
                                                   std::int32_t number,
                                                   std::int32_t units) override {
    return pass(Op::kLease, real_.lease(scope, allotment, number, units));
  }
  common::Task<common::Result<Leases>> leases(ScopeId scope) override {
    return pass(Op::kLeases, real_.leases(scope));
  }
  common::Task<common::Result<Standing>> standing(ScopeId scope,
                                                  std::vector<GrantId> ids) override {
    return pass(Op::kStanding, real_.standing(scope, std::move(ids)));
  }
  common::Task<common::Result<common::Done>> raise_min_epoch(ScopeId scope, Epoch epoch) override {
    return pass(Op::kRaiseMinEpoch, real_.raise_min_epoch(scope, epoch));
  }
  common::Task<common::Result<ShardSnapshot>> snapshot(ScopeId scope) override {
    return pass(Op::kSnapshot, real_.snapshot(scope));
  }
  common::Task<common::Result<Undelivered>> undelivered(ScopeId scope, std::size_t limit) override {
    return pass(Op::kUndelivered, real_.undelivered(scope, limit));
  }
  common::Task<common::Result<common::Done>> delivered(ScopeId scope,
                                                       SequenceNumber number) override {
    return pass(Op::kDelivered, real_.delivered(scope, number));
  }
  common::Task<common::Result<LedgerReading>> read(ScopeId scope, std::vector<GrantId> ids,
                                                   SequenceNumber applied) override {
    return pass(Op::kRead, real_.read(scope, std::move(ids), applied));
  }
  common::Task<common::Result<std::vector<ExpiredHold>>> expire_due(Instant now,
                                                                    std::size_t limit) override {
    return pass(Op::kExpire, real_.expire_due(now, limit));
  }
  common::Task<common::Result<common::Done>> mark_reclaim(std::vector<GrantId> ids) override {
    return pass(Op::kMark, real_.mark_reclaim(std::move(ids)));
  }
  common::Task<common::Result<std::vector<RecordOutcome>>> finish_reclaim(
      std::vector<Grant> grants) override {
    return pass(Op::kFinishReclaim, real_.finish_reclaim(std::move(grants)));
  }
  common::Task<common::Result<common::Done>> recount(ScopeId scope) override {
    return pass(Op::kRecount, real_.recount(scope));
  }
  common::Task<common::Result<common::Done>> close(ScopeId scope, Epoch epoch,
                                                   SequenceNumber last_number) override {
    return pass(Op::kClose, real_.close(scope, epoch, last_number));
  }
  common::Task<common::Result<common::Done>> settle(ScopeId scope) override {
    return pass(Op::kSettle, real_.settle(scope));
  }

 private:
  struct Knob {
    int fail = 0;
    int lose = 0;
    bool held = false;
    int calls = 0;
    bool answers_held = false;
    std::vector<common::Completion<common::Done>> waiting;
  };
  Knob& knob(Op op) { return knobs_[static_cast<std::size_t>(op)]; }

  template <class T>
  common::Task<common::Result<T>> pass(Op op, common::Task<common::Result<T>> real,
                                       std::size_t rows = 0) {
    Knob& mine = knob(op);
    ++mine.calls;
    if (mine.held) {
      const common::Completion<common::Done> released(home_);
      mine.waiting.push_back(released);
      co_await released.wait();
    }
    if (down_ || mine.fail > 0) {
      if (mine.fail > 0) --mine.fail;
      co_return common::fail(common::ErrorCode::kIo, "the test's disk refuses");
    }
    ++outstanding_;
    if (op == Op::kRecord) batches_.push_back(rows);
    common::Result<T> answer = co_await real;
    --outstanding_;
    if (mine.answers_held) {
      const common::Completion<common::Done> released(home_);
      mine.waiting.push_back(released);
      co_await released.wait();
    }
    if (mine.lose > 0) {
      --mine.lose;
      co_return common::fail(common::ErrorCode::kTimeout, "the test loses this answer",
                             common::Proof::kUnknown);
    }
    co_return answer;
  }

  Ledger& real_;
  common::Executor& home_;
  std::array<Knob, kOps> knobs_;
  std::vector<std::size_t> batches_;
  bool down_ = false;
  int outstanding_ = 0;
};

/// A real gate whose confirmations can get lost.
class FaultyGate final : public Gate {
 public:
  explicit FaultyGate(Gate& real) : real_(real) {}
  void drop_confirms(int n) { drop_ = n; }
  [[nodiscard]] int takes() const { return takes_; }

  common::Task<common::Result<TakeAnswer>> take(TakeRequest request) override {
    ++takes_;
    return real_.take(std::move(request));
  }
  common::Task<common::Result<common::Done>> confirm(ScopeId scope, Epoch epoch,
                                                     std::vector<Confirmation> list) override {
    if (drop_ > 0) {
      --drop_;
      co_return common::fail(common::ErrorCode::kUnavailable, "the test drops this call");
    }
    common::Task<common::Result<common::Done>> real = real_.confirm(scope, epoch, std::move(list));
    common::Result<common::Done> answer = co_await real;
    co_return answer;
  }
  common::Task<common::Result<SequenceNumber>> apply(ScopeId scope, Epoch epoch,
                                                     std::vector<SequenceEntry> steps) override {
    return real_.apply(scope, epoch, std::move(steps));
  }
  common::Task<common::Result<common::Done>> apply_leases(ScopeId scope, Epoch epoch,
                                                          std::vector<Lease> leases) override {
    return real_.apply_leases(scope, epoch, std::move(leases));
  }
  common::Task<common::Result<std::optional<Slot>>> replace(ScopeId scope, Epoch epoch,
                                                            MemberId member, GrantId id,
                                                            Slot held) override {
    return real_.replace(scope, epoch, member, id, held);
  }
  common::Task<common::Result<common::Done>> begin_epoch(ScopeRules rules,
                                                         ShardSnapshot rows) override {
    return real_.begin_epoch(std::move(rules), std::move(rows));
  }
  common::Task<common::Result<common::Done>> load(ScopeId scope, ShardSnapshot rows) override {
    return real_.load(scope, std::move(rows));
  }
  common::Task<common::Result<GateReading>> read(ScopeId scope) override {
    return real_.read(scope);
  }
  common::Task<common::Result<std::vector<MemberId>>> holders(ScopeId scope, Epoch epoch) override {
    return real_.holders(scope, epoch);
  }
  common::Task<common::Result<common::Done>> remove(ScopeId scope) override {
    return real_.remove(scope);
  }

 private:
  Gate& real_;
  std::atomic<int> takes_{0};
  int drop_ = 0;
};

[[nodiscard]] inline GrantTable order_table() {
  return GrantTable{.kind = 'i',
                    .table = "flash_sale_order",
                    .history = "flash_sale_order_history",
                    .allotments = "flash_sale_item",
                    .hold = "PENDING",
                    .expired = "EXPIRED",
                    .rejected = "REJECTED",
                    .holding = {"PENDING", "PAID"}};
}

struct StoreOptions {
  std::int32_t quantity = 10;
  std::int32_t per_member = 1;
  int items = 1;  ///< i1, i2, ... of sale s1, all in its scope
  seconds hold{10};
};

/// A migrated database file with one sale, and a clock that stands still.
struct Store {
  explicit Store(StoreOptions wanted = {}) : options(wanted) {
    open();
    write([](db::Session& session) -> common::Result<common::Done> {
      const auto migrated =
          db::migrate(session, db::sqlite_migrations(), common::to_micros(kStart));
      if (!migrated) return common::fail(migrated.error());
      return common::Done{};
    });
    run(
        fmt::format("INSERT INTO flash_sale (name, state, opens_at, closes_at, limit_scope, "
                    "per_member, hold_s, hold_max_s, resell_refunds, created_at, updated_at) "
                    "VALUES ('sale', 'OPEN', 0, {}, 'SALE', {}, {}, {}, 0, 0, 0)",
                    std::int64_t{4'000'000'000'000'000}, options.per_member, options.hold.count(),
                    3 * options.hold.count()));
    for (int i = 1; i <= options.items; ++i) add_item(i, "s1", options.quantity);
  }

  void open() {
    auto opened = db::open_sqlite({.path = dir.file(), .max_queued = 100'000}, clock, *metrics);
    DOORBUSTER_ENSURE(opened.has_value(), "the test's database opens");
    database = std::move(*opened);
  }

  void add_item(int id, const std::string& scope, std::int32_t quantity) const {
    run(
        fmt::format("INSERT INTO flash_sale_item (flash_sale_id, allotment, scope, name, "
                    "list_price, sale_price, currency, quantity, per_member, created_at, "
                    "updated_at) VALUES (1, 'i{}', '{}', 'item', 2000, 1000, 'KRW', {}, {}, 0, 0)",
                    id, scope, quantity, options.per_member));
  }

  void write(db::Database::Work work) const {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<common::Result<common::Done>> got;
    database->submit_write(db::Priority::kRest, std::move(work),
                           [&](common::Result<common::Done> answer) {
                             const std::lock_guard lock(mutex);
                             got = std::move(answer);
                             answered.notify_all();
                           });
    std::unique_lock lock(mutex);
    answered.wait(lock, [&] { return got.has_value(); });
    EXPECT_TRUE(*got) << got->error().message;
  }
  void run(const std::string& sql) const {
    write([&](db::Session& session) -> common::Result<common::Done> {
      const common::Result<std::int64_t> done = session.execute(sql);
      if (!done) return common::fail(done.error());
      return common::Done{};
    });
  }
  /// The first column, which is text, of every row.
  [[nodiscard]] std::vector<std::string> rows(const std::string& sql) const {
    std::vector<std::string> list;
    write([&](db::Session& session) -> common::Result<common::Done> {
      const common::Result<db::Rows> found = session.query(sql);
      if (!found) return common::fail(found.error());
      for (const db::Row& row : *found) list.push_back(row.text(0));
      return common::Done{};
    });
    return list;
  }
  [[nodiscard]] std::int64_t number(const std::string& sql) const {
    std::int64_t value = -1;
    write([&](db::Session& session) -> common::Result<common::Done> {
      const common::Result<db::Rows> found = session.query(sql);
      if (!found) return common::fail(found.error());
      value = found->front().integer(0);
      return common::Done{};
    });
    return value;
  }

  [[nodiscard]] ScopeRules rules() const {
    ScopeRules list{.id = {'s', 1}, .per_member = options.per_member, .allotments = {}};
    for (int i = 1; i <= options.items; ++i) {
      list.allotments.push_back(
          {.id = {'i', i}, .quantity = options.quantity, .amount = 1000, .hold = options.hold});
    }
    return list;
  }

  StoreOptions options;
  TempDir dir;
  common::ManualClock clock{kStart};
  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  std::unique_ptr<db::Database> database;
};

/// One engine over a real file, driven step by step.
struct Shop : Store {
  explicit Shop(StoreOptions wanted = {}, EngineConfig settings = {}) : Store(wanted) {
    config = std::move(settings);
    start();
  }
  Shop(const Shop&) = delete;
  Shop& operator=(const Shop&) = delete;
  ~Shop() { end(); }

  void start() {
    local = make_local_gate();
    gate = std::make_unique<FaultyGate>(*local);
    journal = make_direct_journal(home, config.budget.queue_size);
    sql = make_sql_ledger(*database, home, clock, *metrics, order_table());
    ledger = std::make_unique<FaultyLedger>(*sql, home);
    engine = make_engine(config, home, clock, *gate, *journal, *ledger, nullptr, *metrics,
                         [this] { ++superseded; });
    quiet();
  }

  /// Prepares the scope; every test's first line but for those of preparing itself.
  void prepare() { prepare(rules()); }
  void prepare(ScopeRules wanted) {
    auto prepared = home.wait(engine->prepare(home, std::move(wanted)));
    ASSERT_TRUE(prepared) << prepared.error().message;
    scope = *prepared;
    quiet();
  }

  void stop(milliseconds grace = seconds{10}) {
    std::atomic<bool> stopped{false};
    std::thread other([&] {
      engine->stop(grace);
      stopped.store(true);
      home.post([] {});
    });
    home.until([&] { return stopped.load(); });
    other.join();
  }

  /// Ends the engine and what it remembers; the file stays.
  void end() {
    if (!engine) return;
    ledger->set_down(false);
    for (std::size_t op = 0; op < kOps; ++op) ledger->release(static_cast<Op>(op));
    stop();
    // Whoever still waits for an answer gives up now.
    clock.advance(config.budget.request_budget);
    quiet();
    engine.reset();
    ledger.reset();
    sql.reset();
    journal.reset();
    gate.reset();
    local.reset();
    scope.reset();
  }
  /// The process dies and comes back: another gate, another journal, the same file.
  void restart() {
    end();
    database->stop();
    database.reset();
    open();
    start();
    prepare();
  }

  /// Until nothing is under way at the ledger and nobody can run; the clock stands still.
  void quiet() {
    home.until([&] { return !ledger || ledger->outstanding() == 0; });
  }
  /// Moves the clock, stopping at every timer on the way.
  void advance(std::chrono::microseconds by) {
    const common::Steady end = clock.steady() + by;
    quiet();
    while (clock.steady() < end) {
      const std::optional<common::Steady> next = home.next_timer();
      const common::Steady to = next ? std::min(*next, end) : end;
      const auto step = std::chrono::ceil<std::chrono::microseconds>(to - clock.steady());
      clock.advance(std::max(step, std::chrono::microseconds{0}));
      quiet();
    }
  }

  using Pending = std::shared_ptr<std::optional<DeskAnswer>>;
  [[nodiscard]] Pending ask(std::int64_t member, std::string key = {}, std::size_t index = 0) {
    Desk::Ask wanted{
        .scope = scope, .index = index, .member = MemberId{member}, .key = std::move(key)};
    return home.begin(engine->take(home, std::move(wanted)));
  }
  [[nodiscard]] DeskAnswer take(std::int64_t member, std::string key = {}, std::size_t index = 0) {
    const Pending pending = ask(member, std::move(key), index);
    home.until([&] { return pending->has_value(); });
    return **pending;
  }
  /// As a purchase: a raised flag refuses strangers before anything else looks.
  [[nodiscard]] DeskAnswer buy(std::int64_t member, std::string key = {}, std::size_t index = 0) {
    const Flag flag = scope->refuse(index, MemberId{member}, clock.steady());
    if (flag != Flag::kDown) return SoldOutAnswer{flag == Flag::kFinal};
    return take(member, std::move(key), index);
  }
  [[nodiscard]] GateReading reading() {
    const auto read = home.wait(engine->read_gate(home, ScopeId{'s', 1}));
    EXPECT_TRUE(read);
    return *read;
  }
  [[nodiscard]] std::int32_t free(std::size_t index = 0) {
    return reading().allotments.at(index).free;
  }
  [[nodiscard]] std::int64_t held() const {
    return number("SELECT count(*) FROM flash_sale_order WHERE state IN ('PENDING', 'PAID')");
  }
  [[nodiscard]] std::int64_t metric(const std::string& name, const common::Labels& labels = {}) {
    return metrics->counter(name, "", labels).value();
  }

  /// A grant as it can only come from another gate or a mistake: its row, and nothing else.
  void foreign_row(std::int64_t member, std::int32_t slot, std::uint8_t id = 0xEE) const {
    run(fmt::format(
        "INSERT INTO flash_sale_order (id, allotment, scope, shard, epoch, member, slot, "
        "slot_limit, nth, per_member, state, amount, recorded_at, expires_at, due_at, updated_at) "
        "VALUES (x'{:02x}112233445566778899aabbccddeeff', 'i1', 's1', 0, 1, {}, {}, {}, 1, {}, "
        "'PENDING', 1000, {}, {}, {}, 0)",
        id, member, slot, options.quantity, options.per_member, common::to_micros(clock.now()),
        common::to_micros(clock.now() + options.hold),
        common::to_micros(clock.now() + options.hold)));
  }

  /// A change of a row as the domain makes it: cancel, refund.
  void end_row(const GrantId& id, std::string_view from, std::string_view to) {
    write([&](db::Session& session) -> common::Result<common::Done> {
      const auto ended = end_grant(session, order_table(), id, from, to, "TEST", clock.now());
      EXPECT_TRUE(ended && *ended);
      return common::Done{};
    });
    engine->steps_written();
    quiet();
  }
  void pay_row(const Grant& grant) {
    write([&](db::Session& session) -> common::Result<common::Done> {
      const auto paid =
          change_state(session, order_table(), grant.id, "PENDING", "PAID", "", clock.now());
      EXPECT_TRUE(paid && *paid);
      return common::Done{};
    });
    const Confirmation confirmation{grant.member, grant.id, grant.slot, grant.nth, kNever};
    common::start(engine->hold_ended(grant.scope, confirmation));
    quiet();
  }

  EngineConfig config;
  StepExecutor home{clock};
  std::unique_ptr<Gate> local;
  std::unique_ptr<FaultyGate> gate;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<Ledger> sql;
  std::unique_ptr<FaultyLedger> ledger;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Scope> scope;
  int superseded = 0;
};

/// Words for an answer, so that a story's line says what it expects.
[[nodiscard]] inline std::string words(const DeskAnswer& answer) {
  if (const auto* granted = std::get_if<Granted>(&answer)) {
    return fmt::format("granted {}", granted->grant.slot.value());
  }
  if (std::holds_alternative<Holding>(answer)) return "holding";
  if (const auto* out = std::get_if<SoldOutAnswer>(&answer)) {
    return out->final ? "sold out, final" : "sold out, may come back";
  }
  return fmt::format("busy: {}", to_string(std::get<Busy>(answer).reason));
}

}  // namespace doorbuster::engine::testing

#include "engine/engine.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/log.hpp"
#include "engine/leaser.hpp"
#include "engine/rebuild.hpp"
#include "engine/reclaim.hpp"
#include "engine/relay.hpp"
#include "engine/roster.hpp"
#include "engine/scopes.hpp"
#include "engine/sold_out.hpp"
#include "engine/watch.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {
namespace {

using common::Done;
using common::Executor;
using common::fail;
using common::Result;
using common::ResumeOn;
using common::Task;

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineConfig config, Executor& home, const common::Clock& clock, Gate& gate,
             Journal& journal, Ledger& ledger, NodeTable* nodes, common::Metrics& metrics,
             std::function<void()> superseded)
      : config_(std::move(config)),
        home_(home),
        superseded_(std::move(superseded)),
        roster_(home, nodes, config_.node, metrics),
        parts_{home, gate, journal, ledger, scopes_, outcomes_, metrics, roster_},
        relay_(parts_, config_.relay_every),
        writer_(parts_, Writer::Config{.batch_max = config_.budget.batch_max},
                [this] { relay_.wake(); }),
        sold_out_(parts_, SoldOut::Config{config_.probe_every}),
        rebuild_(parts_, relay_, Rebuild::Config{config_.gate_name, config_.lease_chunk}),
        watch_(parts_, rebuild_,
               Watch::Config{config_.watch_every, config_.watch_backoff, config_.rebuild_patience},
               superseded_),
        reclaim_(parts_, writer_, relay_,
                 Reclaim::Config{config_.reclaim_every, config_.reclaim_after}),
        leaser_(parts_, Leaser::Config{config_.lease_chunk, config_.lease_every}),
        standing_(parts_),
        desk_(parts_,
              Desk::Others{writer_, sold_out_, standing_, reclaim_, leaser_,
                           [this] {
                             if (!roster_.alone()) watch_.wake();
                           }},
              clock, Desk::Config{config_.budget.request_budget, config_.issue, config_.random}),
        jobs_signal_(home),
        expired_(metrics.counter("engine_expired_total", "Holds that ended unpaid")),
        in_flight_(metrics.gauge("engine_journal_depth", "Grants between gate and ledger")) {
    launch(&EngineImpl::run_writer);
    launch(&EngineImpl::run_relay);
    launch(&EngineImpl::run_sold_out);
    launch(&EngineImpl::run_watch);
    launch(&EngineImpl::run_reclaim);
    launch(&EngineImpl::run_leaser);
    launch(&EngineImpl::run_standing);
    launch(&EngineImpl::run_roster);
    launch(&EngineImpl::run_jobs);
  }

  ~EngineImpl() override { stop(std::chrono::milliseconds{0}); }

  Task<Result<std::shared_ptr<Scope>>> prepare(Executor& caller, ScopeRules rules) override {
    using Answer = Result<std::shared_ptr<Scope>>;
    ResumeOn to_home{home_};
    co_await to_home;
    auto scope = std::make_shared<Scope>(std::move(rules));
    const std::shared_ptr<Scope> former = scopes_.find(scope->rules().id);
    // One that never came to an epoch was not prepared, but tried.
    const bool again = former && former->epoch() != Epoch{0};
    if (former) scope->succeed(*former);
    // Known to the relay before the rebuild needs it; takes answer busy until its epoch is set.
    scopes_.put(scope);
    Result<Done> built = Done{};
    if (roster_.alone() || again) {
      built = co_await rebuild_.run(scope, std::nullopt, true);
    } else {
      // Where a gate is at work, made by another node, this one follows it.
      const bool waits = co_await watch_.look(scope);
      if (waits && scope->epoch() == Epoch{0}) {
        built = fail(common::ErrorCode::kBusy, "the gate is being rebuilt");
      }
    }
    ResumeOn back{caller};
    co_await back;
    if (!built) co_return Answer{fail(built.error())};
    co_return Answer{scope};
  }

  std::shared_ptr<Scope> find(ScopeId scope) const override { return scopes_.find(scope); }

  Task<DeskAnswer> take(Executor& caller, Desk::Ask ask) override {
    return desk_.take(caller, std::move(ask));
  }

  void steps_written() override { relay_.wake(); }

  Task<void> hold_ended(ScopeId id, Confirmation grant) override {
    const std::shared_ptr<Scope> scope = scopes_.find(id);
    if (!scope) co_return;
    std::vector<Confirmation> one{grant};
    const Result<Done> told = co_await parts_.gate.confirm(id, scope->epoch(), std::move(one));
    // A gate in a later epoch reads the row.
    static_cast<void>(told);
  }

  Task<Result<Done>> rebuild(Executor& caller, ScopeId id, bool counts) override {
    ResumeOn to_home{home_};
    co_await to_home;
    Result<Done> answer = co_await rebuild_here(id, counts);
    ResumeOn back{caller};
    co_await back;
    co_return answer;
  }

  Task<Result<std::int64_t>> expire_now(Executor& caller) override {
    ResumeOn to_home{home_};
    co_await to_home;
    Result<std::int64_t> ended = co_await expire();
    ResumeOn back{caller};
    co_await back;
    co_return ended;
  }

  Task<Result<std::int64_t>> reclaim_now(Executor& caller) override {
    ResumeOn to_home{home_};
    co_await to_home;
    Result<std::int64_t> ended = co_await reclaim_.run_once();
    ResumeOn back{caller};
    co_await back;
    co_return ended;
  }

  Task<Result<bool>> settle(Executor& caller, ScopeId id) override {
    ResumeOn to_home{home_};
    co_await to_home;
    Result<bool> settled = co_await settle_here(id);
    ResumeOn back{caller};
    co_await back;
    co_return settled;
  }

  Task<Result<GateReading>> read_gate(Executor& caller, ScopeId id) override {
    Result<GateReading> reading = co_await parts_.gate.read(id);
    ResumeOn back{caller};
    co_await back;
    co_return reading;
  }

  bool ledger_down() const noexcept override { return writer_.ledger_down(); }

  void stop(std::chrono::milliseconds grace) override {
    {
      std::unique_lock lock(mutex_);
      if (running_ == 0) return;
      parts_.journal.stop();
      if (!ended_.wait_for(lock, grace, [this] { return writer_ended_; })) {
        writer_.give_up();
      }
    }
    end_loops();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }

  void begin_stop(bool leave_unrecorded) override {
    parts_.journal.stop();
    if (leave_unrecorded) writer_.give_up();
    end_loops();
  }

  bool has_stopped() const override {
    const std::lock_guard lock(mutex_);
    return running_ == 0;
  }

 private:
  void end_loops() {
    stopping_.store(true);
    relay_.stop();
    sold_out_.stop();
    watch_.stop();
    reclaim_.stop();
    leaser_.stop();
    standing_.stop();
    roster_.stop();
    jobs_signal_.set();
  }

  void launch(Task<void> (EngineImpl::*loop)()) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    home_.post([this, loop] { common::start(count_end(loop)); });
  }

  Task<void> count_end(Task<void> (EngineImpl::*loop)()) {
    co_await (this->*loop)();
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  Task<void> run_writer() {
    co_await writer_.run();
    const std::lock_guard lock(mutex_);
    writer_ended_ = true;
    ended_.notify_all();
  }
  Task<void> run_relay() { return relay_.run(); }
  Task<void> run_sold_out() { return sold_out_.run(); }
  Task<void> run_watch() { return watch_.run(); }
  Task<void> run_reclaim() { return reclaim_.run(); }
  Task<void> run_leaser() { return leaser_.run(); }
  Task<void> run_standing() { return standing_.run(); }
  Task<void> run_roster() {
    // At its start a node looks for what its former self left (S7).
    return roster_.run([this] { reclaim_.wake(); }, [this] { reclaim_.wake(); },
                       [this] {
                         if (superseded_) superseded_();
                       });
  }

  Task<void> run_jobs() {
    while (!stopping_.load()) {
      in_flight_.set(static_cast<double>(parts_.journal.depth()));
      const Result<std::int64_t> expired = co_await expire();
      if (!expired) {
        common::log(common::LogLevel::kWarn, "due holds could not be ended now",
                    {{"why", std::string_view(expired.error().message)}});
      }
      const bool woken =
          co_await jobs_signal_.wait_until(home_.clock().steady() + config_.expiry_every);
      static_cast<void>(woken);
    }
  }

  Task<Result<std::int64_t>> expire() {
    std::int64_t ended = 0;
    for (;;) {
      const Result<std::vector<ExpiredHold>> batch =
          co_await parts_.ledger.expire_due(home_.clock().now(), config_.expiry_batch);
      if (!batch) co_return fail(batch.error());
      if (!batch->empty()) relay_.wake();
      ended += static_cast<std::int64_t>(batch->size());
      if (batch->size() < config_.expiry_batch) break;
    }
    expired_.add(ended);
    co_return ended;
  }

  Task<Result<Done>> rebuild_here(ScopeId id, bool counts) {
    const std::shared_ptr<Scope> scope = scopes_.find(id);
    if (!scope) {
      co_return fail(common::ErrorCode::kNotFound,
                     "scope " + common::to_string(id) + " is not prepared here");
    }
    if (counts) {
      const Result<Done> counted = co_await parts_.ledger.recount(id);
      if (!counted) co_return counted;
      scope->set_count_alarm(false);
    }
    Result<Done> built = co_await rebuild_.run(scope);
    if (!built) watch_.wake();  // which tries again
    co_return built;
  }

  Task<Result<bool>> settle_here(ScopeId id) {
    const Result<GateReading> gate = co_await parts_.gate.read(id);
    std::vector<GrantId> none;
    const Result<LedgerReading> ledger =
        co_await parts_.ledger.read(id, std::move(none), gate ? gate->applied : SequenceNumber{0});
    if (!ledger && ledger.error().code == common::ErrorCode::kNotFound) co_return true;
    if (!ledger) co_return fail(ledger.error());
    if (ledger->state == ShardState::kOpen) {
      if (!gate) co_return fail(gate.error());
      if (!is_quiet(*gate, *ledger)) co_return false;
      const Result<Done> closed =
          co_await parts_.ledger.close(id, ledger->epoch, ledger->last_number);
      if (!closed && closed.error().code == common::ErrorCode::kStaleEpoch) co_return false;
      if (!closed) co_return fail(closed.error());
    }
    if (ledger->state != ShardState::kSettled) {
      // Somebody else may have been at work since the readings; who was answered is in the journal.
      const Result<Done> drained = co_await parts_.journal.consumed_to_end();
      if (!drained) co_return fail(drained.error());
      const Result<Done> settled = co_await parts_.ledger.settle(id);
      if (!settled && settled.error().code == common::ErrorCode::kStaleEpoch) co_return false;
      if (!settled) co_return fail(settled.error());
    }
    const Result<Done> forgotten = co_await watch_.forget(id);
    if (!forgotten) co_return fail(forgotten.error());
    co_return true;
  }

  /// Whether the gate in charge has nothing in flight, and the ledger nothing to wait for.
  static bool is_quiet(const GateReading& gate, const LedgerReading& ledger) {
    return gate.state == GateState::kOpen && gate.epoch == ledger.epoch &&
           gate.memory == ledger.memory && gate.in_flight.empty() &&
           gate.applied == ledger.last_number &&
           std::all_of(ledger.allotments.begin(), ledger.allotments.end(),
                       [](const auto& one) { return one.open_holds == 0 && one.undelivered == 0; });
  }

  const EngineConfig config_;
  Executor& home_;
  Scopes scopes_;
  Outcomes outcomes_;
  const std::function<void()> superseded_;
  Roster roster_;
  Parts parts_;
  Relay relay_;
  Writer writer_;
  SoldOut sold_out_;
  Rebuild rebuild_;
  Watch watch_;
  Reclaim reclaim_;
  Leaser leaser_;
  StandingCheck standing_;
  Desk desk_;
  common::Signal jobs_signal_;
  std::atomic<bool> stopping_{false};
  common::Counter& expired_;
  common::Gauge& in_flight_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;            // Guarded by mutex_.
  bool writer_ended_ = false;  // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<Engine> make_engine(EngineConfig config, Executor& home, const common::Clock& clock,
                                    Gate& gate, Journal& journal, Ledger& ledger, NodeTable* nodes,
                                    common::Metrics& metrics, std::function<void()> superseded) {
  return std::make_unique<EngineImpl>(std::move(config), home, clock, gate, journal, ledger, nodes,
                                      metrics, std::move(superseded));
}

}  // namespace doorbuster::engine

#include "sim/node.hpp"

#include "engine/local_gate.hpp"
#include "engine/sql_ledger.hpp"
#include "sale/order.hpp"

namespace doorbuster::sim {

using common::Done;
using common::Result;
using common::Task;
using payment::Payments;

constexpr Micros kCallTimeout = 2 * kSecond;
constexpr Micros kJitter = 60;
constexpr std::chrono::seconds kBankPatience{2};
constexpr std::chrono::milliseconds kPrepareAgain{300};

Node::Node(World& world, Servers& servers, common::Metrics& metrics, Config config)
    : world_(world),
      config_(std::move(config)),
      clock_(world, config_.clock_off),
      home_(world, clock_, kJitter),
      links_{Link(world, servers.store, kCallTimeout), Link(world, servers.gate, kSecond),
             Link(world, servers.broker, kCallTimeout), Link(world, servers.bank, kCallTimeout)},
      database_(servers.store, links_.store),
      broker_(servers.broker),
      bank_(world, servers.bank, links_.bank) {
  if (config_.setup == Setup::kEmbedded) {
    gate_ = engine::make_local_gate();
    links_.store.same_process = true;
  } else {
    gate_ = std::make_unique<RemoteGate>(world, servers.gate, links_.gate, home_);
    node_table_ = engine::make_sql_node_table(database_, home_, clock_);
  }
  if (config_.setup == Setup::kStream) {
    journal_ = std::make_unique<BrokerJournal>(world, servers.broker, links_.broker, home_,
                                               config_.number, config_.engine.budget.queue_size);
  } else {
    journal_ = engine::make_direct_journal(home_, config_.engine.budget.queue_size);
  }
  ledger_ = engine::make_sql_ledger(database_, home_, clock_, metrics, sale::grant_table());
  engine_ = engine::make_engine(config_.engine, home_, clock_, *gate_, *journal_, *ledger_,
                                node_table_.get(), metrics, config_.superseded);
  tokens_ = edge::make_token_verifier({}, {edge::development_key()}, metrics);
  catalog_ = std::make_unique<sale::Catalog>(database_, *engine_);
  payments_ = std::make_unique<Payments>(
      sale::RouteParts{clock_, metrics, database_, *engine_, *catalog_, order_ids_, *tokens_},
      bank_, home_, kBankPatience, config_.engine.random);
  launch([this] { return payments_->run(); });
}

Node::~Node() { die(); }

void Node::launch(std::function<Task<void>()> make) {
  ++running_;
  home_.post([this, make = std::move(make)] { common::start(counted(make)); });
}

Task<void> Node::counted(std::function<Task<void>()> make) {
  Task<void> task = make();
  co_await task;
  --running_;
}

void Node::die() {
  if (dying_) return;
  dying_ = true;
  broker_.member_fell_silent();
  links_.store.close();
  links_.gate.close();
  links_.broker.close();
  links_.bank.close();
  engine_->begin_stop(true);
  payments_->stop();
  home_.wind_up([this] { return engine_->has_stopped() && running_ == 0; });
  // The objects stay: what was sent before may still arrive at a server, and runs their code there.
  DOORBUSTER_ENSURE(engine_->has_stopped() && running_ == 0, "a process that is over does nothing");
}

void Node::open(const engine::ScopeRules& rules) {
  scope_ = rules.id;
  launch([this, rules] { return prepare(rules); });
}

Task<void> Node::prepare(engine::ScopeRules rules) {
  while (!dying_) {
    engine::ScopeRules copy = rules;
    const auto prepared = co_await engine_->prepare(home_, std::move(copy));
    if (prepared || dying_) co_return;
    co_await common::sleep_until(home_, clock_.steady() + kPrepareAgain);
  }
}

void Node::purchase(std::int64_t member, std::size_t item, std::string key, Answered answered) {
  launch([this, member, item, key = std::move(key), answered = std::move(answered)] {
    return take(member, item, key, answered);
  });
}

Task<void> Node::take(std::int64_t member, std::size_t item, std::string key, Answered answered) {
  Told told{.kind = Told::Kind::kBusy, .member = member, .node = number()};
  const std::shared_ptr<engine::Scope> scope = engine_->find(scope_);
  if (scope) {
    const engine::Flag flag = scope->refuse(item, engine::MemberId{member}, clock_.steady());
    if (flag != engine::Flag::kDown) {
      told.kind = Told::Kind::kSoldOut;
      told.final = flag == engine::Flag::kFinal;
    } else {
      engine::Desk::Ask ask{
          .scope = scope, .index = item, .member = engine::MemberId{member}, .key = std::move(key)};
      const engine::DeskAnswer answer = co_await engine_->take(home_, std::move(ask));
      if (const auto* granted = std::get_if<engine::Granted>(&answer)) {
        told.kind = Told::Kind::kGranted;
        told.grant = granted->grant.id;
        told.expires = granted->grant.expires_at;
      } else if (const auto* holding = std::get_if<engine::Holding>(&answer)) {
        told.kind = Told::Kind::kHolding;
        told.grant = holding->id;
        if (holding->epoch != engine::Epoch{0}) told.expires = holding->expires_at;
        if (scope->flag(item) != engine::Flag::kDown) world_.reached(14);
      } else if (const auto* sold_out = std::get_if<engine::SoldOutAnswer>(&answer)) {
        told.kind = Told::Kind::kSoldOut;
        told.final = sold_out->final;
      } else if (told.busy = std::get<engine::Busy>(answer).reason;
                 *told.busy == engine::BusyReason::kRebuilding) {
        for (std::size_t i = broker_.committed; i < broker_.log.size(); ++i) {
          if (broker_.log[i].grant.member == engine::MemberId{member}) world_.reached(18);
        }
      }
    }
  }
  if (!dying_) answered(told);
}

void Node::pay(engine::GrantId order, std::int64_t amount,
               std::function<void(Payments::Outcome)> answered) {
  launch([this, order, amount, answered = std::move(answered)] {
    return pay_here(order, amount, answered);
  });
}

Task<void> Node::pay_here(engine::GrantId order, std::int64_t amount,
                          std::function<void(Payments::Outcome)> answered) {
  Payments::PayRequest request{
      .order = order, .amount = {amount, {}}, .card_number = "4242424242424242"};
  request.amount.currency = *common::parse_currency("KRW");
  const Payments::Outcome outcome = co_await payments_->pay(home_, std::move(request));
  if (!dying_) answered(outcome);
}

void Node::cancel(engine::GrantId order, std::function<void(bool)> answered) {
  launch([this, order, answered = std::move(answered)] { return cancel_here(order, answered); });
}

Task<void> Node::cancel_here(engine::GrantId order, std::function<void(bool)> answered) {
  std::function<Result<bool>(db::Session&)> work = [this, order](db::Session& session) {
    return sale::cancel_order(session, order, clock_.now());
  };
  const Result<bool> done =
      co_await database_.write<bool>(home_, db::Priority::kRest, std::move(work));
  if (done && *done) engine_->steps_written();
  if (!dying_) answered(done && *done);
}

void Node::refund(engine::GrantId order) {
  launch([this, order] { return refund_here(order); });
}

Task<void> Node::refund_here(engine::GrantId order) {
  admin::Actor actor{"sim", "refund"};
  const auto refunded = co_await payments_->refund(home_, order, std::move(actor), "asked for");
  static_cast<void>(refunded);
}

void Node::settle(std::function<void(bool)> done) {
  launch([this, done = std::move(done)] { return settle_here(done); });
}

Task<void> Node::settle_here(std::function<void(bool)> done) {
  const Result<bool> settled = co_await engine_->settle(home_, scope_);
  if (!dying_) done(settled && *settled);
}

void Node::rebuild(bool counts) {
  launch([this, counts] { return rebuild_here(counts); });
}

Task<void> Node::rebuild_here(bool counts) {
  const Result<Done> built = co_await engine_->rebuild(home_, scope_, counts);
  static_cast<void>(built);
}

}  // namespace doorbuster::sim

#pragma once

#include <array>
#include <memory>
#include <string>

#include "edge/token.hpp"
#include "engine/direct_journal.hpp"
#include "engine/engine.hpp"
#include "engine/order_id.hpp"
#include "payment/payments.hpp"
#include "sale/catalog.hpp"
#include "sale/sale.hpp"
#include "sim/bank.hpp"
#include "sim/books.hpp"
#include "sim/broker.hpp"
#include "sim/remote_gate.hpp"
#include "sim/store.hpp"

namespace doorbuster::sim {

/// What stands where in a run: the legal set-ups of the engine page that one gate and one shard can
/// show.
enum class Setup {
  kEmbedded,  ///< local gate, direct journal, one node
  kShared,    ///< remote gate, direct journals, several nodes, sync
  kStream,    ///< remote gate, durable journal, several nodes, async
};

/// The servers of a run; they outlive its nodes.
struct Servers {
  Servers(World& world, Store& database) : store(database), gate(world), broker(world, database) {}
  Store& store;
  GateServer gate;
  Broker broker;
  Bank bank;
};

/// One process: the product's engine and payments on a simulated executor, with its links.
class Node {
 public:
  struct Config {
    int number = 0;
    Setup setup = Setup::kEmbedded;
    Micros clock_off = 0;
    engine::EngineConfig engine;
    std::function<void()> superseded;  ///< the engine asks for the end of the process
  };
  Node(World& world, Servers& servers, common::Metrics& metrics, Config config);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  /// Prepares the sale as soon as the parts allow it.
  void open(const engine::ScopeRules& rules);
  /// kill -9.
  void die();
  void pause() { home_.pause(); }
  void resume() { home_.resume(); }
  void set_clock_off(Micros off) { clock_.set_off(off); }

  [[nodiscard]] bool alive() const noexcept { return !dying_; }
  [[nodiscard]] bool paused() const noexcept { return home_.paused(); }
  [[nodiscard]] int number() const noexcept { return config_.number; }
  [[nodiscard]] bool prepared() const { return engine_->find(scope_) != nullptr; }

  using Answered = std::function<void(Told)>;
  /// A purchase as the route makes it: the flag, then the engine.
  void purchase(std::int64_t member, std::size_t item, std::string key, Answered answered);
  /// The outcome's kind; kBusy when the node dies over it.
  void pay(engine::GrantId order, std::int64_t amount,
           std::function<void(payment::Payments::Outcome)>);
  /// Whether the order was cancelled by this call.
  void cancel(engine::GrantId order, std::function<void(bool)>);
  /// By an administrator.
  void refund(engine::GrantId order);
  void settle(std::function<void(bool)> done);
  void rebuild(bool counts);

  struct Links {
    Link store, gate, broker, bank;
  };
  Links& links() noexcept { return links_; }

 private:
  common::Task<void> prepare(engine::ScopeRules rules);
  common::Task<void> take(std::int64_t member, std::size_t item, std::string key,
                          Answered answered);
  common::Task<void> pay_here(engine::GrantId order, std::int64_t amount,
                              std::function<void(payment::Payments::Outcome)> answered);
  common::Task<void> cancel_here(engine::GrantId order, std::function<void(bool)> answered);
  common::Task<void> refund_here(engine::GrantId order);
  common::Task<void> settle_here(std::function<void(bool)> done);
  common::Task<void> rebuild_here(bool counts);
  void launch(std::function<common::Task<void>()> make);
  common::Task<void> counted(std::function<common::Task<void>()> make);

  World& world_;
  const Config config_;
  SimClock clock_;
  SimExecutor home_;
  Links links_;
  NodeDatabase database_;
  std::unique_ptr<engine::Gate> gate_;
  std::unique_ptr<engine::Journal> journal_;
  Broker& broker_;
  std::unique_ptr<engine::Ledger> ledger_;
  std::unique_ptr<engine::NodeTable> node_table_;
  std::unique_ptr<engine::Engine> engine_;
  std::array<std::uint8_t, engine::OrderIdCodec::kKeyBytes> key_{};
  engine::OrderIdCodec order_ids_{key_};
  std::unique_ptr<edge::TokenVerifier> tokens_;
  std::unique_ptr<sale::Catalog> catalog_;
  NodeBank bank_;
  std::unique_ptr<payment::Payments> payments_;
  engine::ScopeId scope_;
  bool dying_ = false;
  int running_ = 0;
};

}  // namespace doorbuster::sim

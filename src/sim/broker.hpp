#pragma once

#include <vector>

#include "engine/journal.hpp"
#include "sim/link.hpp"
#include "sim/store.hpp"

namespace doorbuster::sim {

class BrokerJournal;

/// One partition of a durable journal, as Kafka would keep it: what was acknowledged stays, in
/// order; it is handed out from the last committed offset on, to one consumer of the group at a
/// time, and again after a rebalance.
class Broker : public Server {
 public:
  Broker(World& world, Store& store) : world_(world), store_(store) {}

  struct Message {
    engine::Grant grant;
    int sender = 0;
  };
  std::vector<Message> log;
  std::size_t committed = 0;
  Micros held_until = 0;  ///< nothing is handed out before

  void join(BrokerJournal& consumer);
  /// Another consumer gets the partition; what was handed out and not committed is handed out
  /// again.
  void rebalance();
  /// A consumer is dead or paused from now on. If it owns the partition, and nothing is heard of it
  /// until its session is over, another one gets it.
  void member_fell_silent();
  /// Takes the partition from an owner that is dead or paused.
  void expire_session();

 private:
  friend class BrokerJournal;
  /// Rows of the page of schedules that a message can come through.
  void note_arrival(const Message& message);
  void note_redelivery(const Message& message);
  void note_late_failure(const engine::GrantId& id, int sender);

  World& world_;
  Store& store_;
  std::vector<BrokerJournal*> group_;
  BrokerJournal* owner_ = nullptr;
  std::uint64_t generation_ = 0;
  std::size_t handed_out_ = 0;
};

/// The journal as one node uses it: producer and consumer.
class BrokerJournal final : public engine::Journal {
 public:
  BrokerJournal(World& world, Broker& broker, Link& link, SimExecutor& home, int node,
                std::size_t seats);

  bool reserve_seat() noexcept override;
  void release_seat() noexcept override { ++seats_; }
  common::Task<common::Result<common::Done>> append(engine::Grant grant) override;
  common::Task<std::vector<engine::Grant>> next_batch(std::size_t max) override;
  void commit() override;
  common::Task<common::Result<common::Done>> consumed_to_end() override;
  void stop() override;
  void abandon() override { stop(); }
  [[nodiscard]] std::size_t depth() const noexcept override { return 0; }

  [[nodiscard]] bool hears() const noexcept {
    return !home_.paused() && !home_.over() && !stopped_;
  }

 private:
  friend class Broker;
  void send_commit(std::uint64_t generation, std::size_t end);
  void send_commit_later(std::uint64_t generation, std::size_t end);

  World& world_;
  Broker& broker_;
  Link& link_;
  SimExecutor& home_;
  const int node_;
  std::size_t seats_;
  common::Signal signal_;
  bool stopped_ = false;
  std::uint64_t generation_ = 0;  // in which position_ counts
  std::size_t position_ = 0;      // what was fetched, and has arrived
};

}  // namespace doorbuster::sim

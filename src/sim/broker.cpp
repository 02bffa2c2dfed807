#include "sim/broker.hpp"

#include <algorithm>

namespace doorbuster::sim {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;

constexpr std::chrono::milliseconds kPoll{20};
constexpr Micros kSession = 3 * kSecond;

void Broker::join(BrokerJournal& consumer) {
  group_.push_back(&consumer);
  if (owner_ == nullptr) return rebalance();
  // A static member that comes back within its session goes on at what it had committed.
  if (owner_->node_ != consumer.node_) return;
  owner_ = &consumer;
  ++generation_;
}

void Broker::rebalance() {
  std::vector<BrokerJournal*> able;
  for (BrokerJournal* one : group_) {
    if (one->hears()) able.push_back(one);
  }
  owner_ = able.empty() ? nullptr : able[world_.random().below(able.size())];
  ++generation_;
}

void Broker::member_fell_silent() {
  world_.after(kSession, [this] { expire_session(); });
}

void Broker::expire_session() {
  if (owner_ == nullptr || !owner_->hears()) rebalance();
}

void Broker::note_arrival(const Message& message) {
  const std::string id = common::to_string(message.grant.id);
  const bool marked =
      store_.number("SELECT count(*) FROM reclaim_mark WHERE grant_id = x'" + id + "'") > 0;
  const bool over = store_.number("SELECT count(*) FROM flash_sale_order WHERE id = x'" + id +
                                  "' AND state = 'REJECTED'") > 0;
  if (!marked && !over) return;
  // Journaled again by somebody who adopted it, or by its own slow sender after all.
  const bool again = std::any_of(
      log.begin(), log.end(), [&](const Message& one) { return one.grant.id == message.grant.id; });
  world_.reached(again ? 8 : 20);
}

void Broker::note_redelivery(const Message& message) {
  if (store_.number("SELECT count(*) FROM flash_sale_order WHERE id = x'" +
                    common::to_string(message.grant.id) + "' AND state = 'REJECTED'") > 0) {
    world_.reached(5);
  }
}

void Broker::note_late_failure(const engine::GrantId& id, int sender) {
  for (const Message& one : log) {
    if (one.grant.id == id) world_.reached(one.sender == sender ? 7 : 6);
  }
}

BrokerJournal::BrokerJournal(World& world, Broker& broker, Link& link, SimExecutor& home, int node,
                             std::size_t seats)
    : world_(world),
      broker_(broker),
      link_(link),
      home_(home),
      node_(node),
      seats_(seats),
      signal_(home) {
  broker_.join(*this);
}

bool BrokerJournal::reserve_seat() noexcept {
  if (seats_ == 0) return false;
  --seats_;
  return true;
}

Task<Result<Done>> BrokerJournal::append(engine::Grant grant) {
  const engine::GrantId id = grant.id;
  std::function<Result<Done>()> keep = [this, grant = std::move(grant)]() -> Result<Done> {
    const Broker::Message message{grant, node_};
    broker_.note_arrival(message);
    broker_.log.push_back(message);
    return Done{};
  };
  const Result<Done> answer = co_await link_.call<Done>(home_, std::move(keep));
  if (!answer && answer.error().proof == common::Proof::kDidNotHappen) {
    broker_.note_late_failure(id, node_);
  }
  ++seats_;
  co_return answer;
}

Task<std::vector<engine::Grant>> BrokerJournal::next_batch(std::size_t max) {
  using Batch = std::vector<engine::Grant>;
  while (!stopped_) {
    struct Fetched {
      std::uint64_t generation = 0;
      std::size_t end = 0;
      Batch batch;
    };
    std::function<Result<Fetched>()> fetch = [this, max, generation = generation_,
                                              position = position_]() -> Result<Fetched> {
      if (broker_.owner_ != this || broker_.held_until > world_.now()) return Fetched{};
      // A new owner begins at what was committed.
      Fetched out{broker_.generation_, 0, {}};
      out.end = generation == broker_.generation_ ? position : broker_.committed;
      while (out.end < broker_.log.size() && out.batch.size() < max) {
        const Broker::Message& next = broker_.log[out.end++];
        if (out.end <= broker_.handed_out_) broker_.note_redelivery(next);
        broker_.handed_out_ = std::max(broker_.handed_out_, out.end);
        out.batch.push_back(next.grant);
      }
      return out;
    };
    const Result<Fetched> batch = co_await link_.call<Fetched>(home_, std::move(fetch));
    if (batch && !batch->batch.empty()) {
      generation_ = batch->generation;
      position_ = batch->end;
      co_return batch->batch;
    }
    if (stopped_) break;
    const bool woken = co_await signal_.wait_until(home_.clock().steady() + kPoll);
    static_cast<void>(woken);
  }
  co_return Batch{};
}

void BrokerJournal::commit() { send_commit(generation_, position_); }

/// Until the broker has it, or somebody else has the partition: a commit that was lost is sent
/// again, by a paused node once it goes on.
void BrokerJournal::send_commit(std::uint64_t generation, std::size_t end) {
  link_.send<Done>(
      [this, generation, end]() -> Result<Done> {
        if (broker_.generation_ == generation) broker_.committed = std::max(broker_.committed, end);
        return Done{};
      },
      [this, generation, end](const Result<Done>& answer) {
        if (!answer) send_commit_later(generation, end);
      });
}

void BrokerJournal::send_commit_later(std::uint64_t generation, std::size_t end) {
  world_.after(kPoll.count() * kMillisecond, [this, generation, end] {
    if (stopped_ || home_.over() || generation != generation_) return;
    if (home_.paused()) return send_commit_later(generation, end);
    send_commit(generation, end);
  });
}

Task<Result<Done>> BrokerJournal::consumed_to_end() {
  const auto read = [this](bool end) {
    return link_.call<std::size_t>(home_, [this, end]() -> Result<std::size_t> {
      return end ? broker_.log.size() : broker_.committed;
    });
  };
  const Result<std::size_t> end = co_await read(true);
  if (!end) co_return fail(end.error());
  while (!stopped_) {
    const Result<std::size_t> committed = co_await read(false);
    if (committed && *committed >= *end) co_return Done{};
    co_await common::sleep_until(home_, home_.clock().steady() + kPoll);
  }
  co_return fail(ErrorCode::kUnavailable, "the node stops");
}

void BrokerJournal::stop() {
  stopped_ = true;
  signal_.set();
}

}  // namespace doorbuster::sim

#include "sim/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/log.hpp"
#include "sim/node.hpp"
#include "sim/switches.hpp"

namespace doorbuster::sim {
namespace {

using common::Task;
using engine::GrantId;
using payment::Payments;

constexpr std::int64_t kPrice = 1000;
constexpr Micros kStepBetweenLooks = 20 * kMillisecond;
constexpr Micros kPatience = 90 * kSecond;  ///< for what must come once everything works again
constexpr std::chrono::seconds kReclaimAfter{15};
constexpr int kMostAsks = 60;

enum class Chaos : std::uint8_t {
  kKill,
  kPause,
  kLoseGate,
  kFlush,
  kFailOver,
  kPauseGate,
  kCutGate,
  kDownStore,
  kPauseStore,
  kCutStore,
  kDownBroker,
  kPauseBroker,
  kCutBroker,
  kHoldConsumer,
  kRebalance,
  kNeedlessRebuild,
  kStepClock,
};
constexpr std::string_view kChaosNames[] = {
    "kill",        "pause",         "lose gate",   "flush",
    "fail over",   "pause gate",    "cut gate",    "down store",
    "pause store", "cut store",     "down broker", "pause broker",
    "cut broker",  "hold consumer", "rebalance",   "needless rebuild",
    "step clock"};

/// What a seed draws before anything happens: swarm testing, in which each run has some of the
/// faults only, so that one cannot hide another.
struct Plan {
  Setup setup = Setup::kEmbedded;
  int nodes = 1;
  int items = 1;
  std::int32_t quantity = 3;
  std::int32_t per_member = 1;
  int members = 6;
  std::chrono::seconds hold{5};
  std::int32_t lease_chunk = 0;
  bool crowd_the_end = false;  ///< faults begin when the last slot has been given
  bool resell = false;
  Micros length = 8 * kSecond;  ///< of the time of faults
  Micros clocks_off = 0;
  double pay = 0.4;
  double cancel = 0.2;
  double hang_up = 0;
  Micros closes = 0;  ///< after the beginning, while members still come; 0: when all is sold
  std::size_t batch_max = 1000;
  std::size_t expiry_batch = 500;
  std::size_t seats = 4096;
  Link::Trouble store, gate, broker, bank;
  std::vector<std::pair<Chaos, Micros>> chaos;

  [[nodiscard]] std::string words() const {
    static constexpr std::string_view kSetups[] = {"embedded", "shared", "stream"};
    std::string out = fmt::format(
        "{}, {} nodes, {} x {} units, N {}, {} members, hold {} s, chunk {}{}{}{}",
        kSetups[static_cast<int>(setup)], nodes, items, quantity, per_member, members, hold.count(),
        lease_chunk, crowd_the_end ? ", faults at the end" : "", resell ? ", refunds resold" : "",
        closes > 0 ? fmt::format(", closes {:.1f}", static_cast<double>(closes) / 1e6) : "");
    for (const auto& [kind, when] : chaos) {
      out += fmt::format(", {} {:.1f}", kChaosNames[static_cast<std::size_t>(kind)],
                         static_cast<double>(when) / 1e6);
    }
    return out;
  }
};

Link::Trouble draw_trouble(Random& random) {
  Link::Trouble trouble;
  const auto maybe = [&](double most) {
    return random.chance(0.3) ? most * static_cast<double>(random.between(1, 10)) / 10 : 0;
  };
  trouble.lose_request = maybe(0.1);
  trouble.lose_answer = maybe(0.15);
  trouble.refuse = maybe(0.1);
  trouble.refuse_late = maybe(0.1);
  trouble.slow = maybe(0.2);
  trouble.slow_for = random.between(10, 4000) * kMillisecond;
  return trouble;
}

Plan draw(Random& random, Planted planted) {
  Plan plan;
  const std::uint64_t kind = random.below(10);
  plan.setup = kind < 2 ? Setup::kEmbedded : kind < 5 ? Setup::kShared : Setup::kStream;
  if (planted == Planted::kLostConfirm || planted == Planted::kCounterOff) {
    if (plan.setup == Setup::kEmbedded) plan.setup = Setup::kShared;
  }
  plan.nodes = plan.setup == Setup::kEmbedded ? 1 : static_cast<int>(random.between(1, 3));
  plan.items = random.chance(0.15) ? 2 : 1;
  plan.quantity = static_cast<std::int32_t>(random.between(1, 5));
  plan.per_member = random.chance(0.2) ? 2 : 1;
  plan.members = plan.items * plan.quantity + static_cast<int>(random.between(1, 5));
  plan.hold = std::chrono::seconds{random.between(2, 8)};
  if (plan.setup != Setup::kEmbedded && random.chance(0.6)) {
    plan.lease_chunk = static_cast<std::int32_t>(random.between(1, 2));
  }
  plan.crowd_the_end = random.chance(0.5);
  plan.resell = random.chance(0.15);
  plan.length = random.between(4, 14) * kSecond;
  plan.clocks_off = random.chance(0.3) ? random.between(0, 200) * kMillisecond : 0;
  plan.pay = static_cast<double>(random.between(0, 7)) / 10;
  plan.cancel = static_cast<double>(random.between(0, 3)) / 10;
  plan.hang_up = random.chance(0.4) ? 0.2 : 0;
  if (random.chance(0.15)) plan.closes = random.between(500 * kMillisecond, plan.length);
  if (random.chance(0.25)) {
    plan.batch_max = static_cast<std::size_t>(random.between(1, 3));
    plan.expiry_batch = static_cast<std::size_t>(random.between(1, 3));
  }
  if (random.chance(0.15)) plan.seats = static_cast<std::size_t>(random.between(1, 4));
  if (random.chance(0.6)) plan.store = draw_trouble(random);
  if (random.chance(0.6)) plan.gate = draw_trouble(random);
  if (random.chance(0.7)) plan.broker = draw_trouble(random);
  if (random.chance(0.5)) plan.bank = draw_trouble(random);

  std::vector<Chaos> possible = {Chaos::kKill,       Chaos::kPause,    Chaos::kDownStore,
                                 Chaos::kPauseStore, Chaos::kCutStore, Chaos::kNeedlessRebuild};
  if (plan.setup != Setup::kEmbedded) {
    for (const Chaos one : {Chaos::kLoseGate, Chaos::kFlush, Chaos::kFailOver, Chaos::kPauseGate,
                            Chaos::kCutGate, Chaos::kNeedlessRebuild, Chaos::kLoseGate}) {
      possible.push_back(one);
    }
  }
  if (plan.setup == Setup::kStream) {
    for (const Chaos one : {Chaos::kDownBroker, Chaos::kPauseBroker, Chaos::kCutBroker,
                            Chaos::kHoldConsumer, Chaos::kRebalance, Chaos::kHoldConsumer}) {
      possible.push_back(one);
    }
  }
  if (plan.clocks_off > 0) possible.push_back(Chaos::kStepClock);
  const std::int64_t count = random.between(0, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    const Micros when =
        random.chance(0.6) ? random.between(0, kSecond) : random.between(0, plan.length - kSecond);
    plan.chaos.emplace_back(possible[random.below(possible.size())], when);
  }
  if (plan.setup == Setup::kStream && random.chance(0.1)) {
    // Grants wait in the journal while the gate is rebuilt and already has a new lease to give
    // from: the narrow way to two grants of one member at one gate (row 26).
    plan.crowd_the_end = false;
    plan.quantity = 5;
    plan.lease_chunk = 1;
    plan.members += 3;
    const Micros when = random.between(0, 3 * kSecond);
    plan.chaos.emplace_back(Chaos::kHoldConsumer, when);
    const Chaos loss = random.chance(0.5) ? Chaos::kFlush : Chaos::kLoseGate;
    const Micros later = when + random.between(100, 900) * kMillisecond;
    plan.chaos.emplace_back(loss, later);
  }
  return plan;
}

/// FNV-1a.
void mix(std::uint64_t& hash, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) {
    hash ^= (value >> (8 * i)) & 0xFF;
    hash *= 0x100000001B3ULL;
  }
}

/// One run, from the empty tables to the verdict.
class Run {
 public:
  Run(const RunOptions& options, Store& store, common::Metrics& metrics)
      : world_(options.seed),
        plan_(draw(world_.random(), options.planted)),
        metrics_(metrics),
        servers_(world_, store),
        clients_clock_(world_, 0),
        clients_(world_, clients_clock_, 0) {
    world_.tracing = options.trace;
    servers_.gate.has_replica = std::any_of(plan_.chaos.begin(), plan_.chaos.end(), [](auto& one) {
      return one.first == Chaos::kFailOver;
    });
    servers_.gate.loses_confirms = options.planted == Planted::kLostConfirm;
    servers_.gate.forgets_a_row = options.planted == Planted::kCounterOff;
    servers_.bank.refunds_twice = options.planted == Planted::kDoubledRefund;
    slot_held_ = &metrics.counter("engine_records_total", "Grants by what the ledger made of them",
                                  {{"outcome", "slot_held"}});
    watch_misses_ = &metrics.counter("engine_watch_misses_total",
                                     "Comparisons in which gate and ledger did not add up");
    same_terminal_ =
        &metrics.counter("engine_records_total", "Grants by what the ledger made of them",
                         {{"outcome", "same_terminal"}});
    fenced_ = &metrics.counter("engine_records_total", "Grants by what the ledger made of them",
                               {{"outcome", "fenced"}});
    retries_ = &metrics.counter("engine_record_retries_total",
                                "Batches that were sent to the ledger again");
    refused_ = &metrics.counter(
        "engine_standing_refused_total",
        "Grants that the journal had and that were not answered as given all the same");
  }

  RunResult go() {
    const std::int64_t slot_held = slot_held_->value();
    const std::int64_t same_terminal = same_terminal_->value();
    const std::int64_t fenced = fenced_->value();
    const std::int64_t retries = retries_->value();
    const std::int64_t refused = refused_->value();
    const std::int64_t misses = watch_misses_->value();
    world_.trace([&] { return plan_.words(); });
    make_sale();
    nodes_.resize(static_cast<std::size_t>(plan_.nodes));
    for (int i = 0; i < plan_.nodes; ++i) start_node(i);
    world_.run_until(2 * kSecond);
    set_troubles(true);
    const Micros begin = world_.now();
    for (int i = 1; i <= plan_.members; ++i) {
      const Micros spread = plan_.crowd_the_end ? kSecond : plan_.length / 2;
      come(i, world_.random().between(0, spread), true);
    }
    plan_chaos();
    if (plan_.closes > 0) world_.after(plan_.closes, [this] { close(); });
    world_.run_until(begin + plan_.length);
    heal();
    expect("somebody still waits for an answer", [this] { return waiting_ == 0; });
    if (plan_.closes == 0) {
      sell_the_rest();
      expect_quiet_books();
      holders_ask_again();
    }
    expect("a payment or refund stays undecided", [this] {
      return servers_.store.number(
                 "SELECT (SELECT count(*) FROM payment_attempt WHERE state IN ('OPEN', 'UNKNOWN')) "
                 "+ "
                 "(SELECT count(*) FROM refund WHERE state = 'WANTED')") == 0;
    });
    settle();
    if (slot_held_->value() != slot_held) books_.find("the gate gave a slot that is held", "");
    if (watch_misses_->value() - misses >= 2) {
      books_.find("gate and ledger did not add up",
                  fmt::format("{} times", watch_misses_->value() - misses));
    }
    if (same_terminal_->value() != same_terminal) world_.reached(4);
    if (fenced_->value() != fenced) world_.reached(16);
    if (retries_->value() != retries) world_.reached(17);
    if (refused_->value() != refused && paused_a_node_) world_.reached(15);
    for (auto& node : nodes_) {
      if (node) node->die();
    }
    clients_.wind_up([this] { return waiting_ == 0; });
    books_.check(servers_.store, servers_.bank,
                 {.quantity = plan_.quantity,
                  .items = plan_.items,
                  .per_member = plan_.per_member,
                  .one_each = plan_.per_member == 1 && plan_.items == 1,
                  .clocks_off = 2 * plan_.clocks_off + 10 * kMillisecond});
    check_reclaims();
    note_schedules();
    trace_rows();
    return result();
  }

 private:
  // ---------------------------------------------------------------- the stage

  void make_sale() {
    Store& store = servers_.store;
    store.clear();
    static_cast<Server&>(store) = Server{};
    store.must(fmt::format(
        "INSERT INTO flash_sale (name, state, opens_at, closes_at, limit_scope, per_member, "
        "hold_s, "
        "hold_max_s, resell_refunds, created_at, updated_at) VALUES ('sale', 'OPEN', 0, "
        "9000000000000000, 'SALE', {}, {}, {}, {}, 0, 0)",
        plan_.per_member, plan_.hold.count(), 3 * plan_.hold.count(), plan_.resell ? 1 : 0));
    rules_.id = {'s', 1};
    rules_.per_member = plan_.per_member;
    for (int i = 1; i <= plan_.items; ++i) {
      store.must(fmt::format(
          "INSERT INTO flash_sale_item (flash_sale_id, allotment, scope, name, list_price, "
          "sale_price, currency, quantity, per_member, created_at, updated_at) VALUES (1, 'i{}', "
          "'s1', 'item', {}, {}, 'KRW', {}, {}, 0, 0)",
          i, kPrice, kPrice, plan_.quantity, plan_.per_member));
      rules_.allotments.push_back({.id = {'i', i},
                                   .quantity = plan_.quantity,
                                   .amount = kPrice,
                                   .hold = plan_.hold,
                                   .may_become_final = !plan_.resell});
    }
  }

  Micros draw_clock() { return world_.random().between(-plan_.clocks_off, plan_.clocks_off); }

  void start_node(int index) {
    Node::Config config{
        .number = index, .setup = plan_.setup, .clock_off = draw_clock(), .engine = {}};
    engine::EngineConfig& engine = config.engine;
    engine.issue =
        plan_.setup == Setup::kStream ? engine::IssueMode::kAsync : engine::IssueMode::kSync;
    engine.lease_chunk = plan_.lease_chunk;
    engine.lease_every = std::chrono::milliseconds{500};
    engine.reclaim_after = kReclaimAfter;
    engine.reclaim_every = std::chrono::milliseconds{5000};
    engine.watch_backoff = std::chrono::seconds{5};
    engine.budget.batch_max = plan_.batch_max;
    engine.budget.queue_size = plan_.seats;
    engine.expiry_batch = plan_.expiry_batch;
    engine.rebuild_patience = std::chrono::milliseconds{3000};
    engine.node.name = fmt::format("node{}", index);
    engine.node.ttl = std::chrono::milliseconds{3000};
    engine.random = [this](std::span<std::uint8_t> out) { world_.random().fill(out); };
    config.superseded = [this, index] { superseded(index); };
    auto& place = nodes_[static_cast<std::size_t>(index)];
    if (place) past_.push_back(std::move(place));
    place = std::make_unique<Node>(world_, servers_, metrics_, std::move(config));
    place->open(rules_);
    if (troubled_) trouble(*place);
    world_.trace([&] { return fmt::format("node {} starts", index); });
  }

  /// The process asks for its end. A process that is alone has no other one to make room for; among
  /// several, what a dead one still had under way to the ledger can be behind its successor there.
  void superseded(int index) {
    if (plan_.setup == Setup::kEmbedded) {
      books_.find("a server that is alone ended itself", plan_.words());
    }
    world_.after(0, [this, index] { kill(index, kSecond); });
  }

  void kill(int index, Micros down_for) {
    Node& node = *nodes_[static_cast<std::size_t>(index)];
    if (!node.alive()) return;
    killed_ = true;
    node.die();
    world_.after(down_for, [this, index] {
      if (!nodes_[static_cast<std::size_t>(index)]->alive()) start_node(index);
    });
  }

  void trouble(Node& node) {
    node.links().store.trouble = troubled_ ? plan_.store : Link::Trouble{};
    node.links().gate.trouble = troubled_ ? plan_.gate : Link::Trouble{};
    node.links().broker.trouble = troubled_ ? plan_.broker : Link::Trouble{};
    node.links().bank.trouble = troubled_ ? plan_.bank : Link::Trouble{};
  }

  void set_troubles(bool on) {
    troubled_ = on;
    for (auto& node : nodes_) trouble(*node);
  }

  // ---------------------------------------------------------------- faults

  void plan_chaos() {
    if (!plan_.crowd_the_end) {
      for (const auto& [kind, when] : plan_.chaos) {
        world_.after(when, [this, kind = kind] { strike(kind); });
      }
      return;
    }
    wait_for_the_end(world_.now() + plan_.length);
  }

  /// Looks now and then whether the last slot has been given, and begins the faults then.
  void wait_for_the_end(Micros latest) {
    if (world_.now() >= latest) return;
    std::int64_t given = servers_.store.number(
        "SELECT count(*) FROM flash_sale_order WHERE state IN ('PENDING', 'PAID')");
    for (const auto& [scope, memory] : servers_.gate.memories) {
      given += static_cast<std::int64_t>(memory.read().in_flight.size());
    }
    if (given < plan_.items * plan_.quantity) {
      world_.after(kStepBetweenLooks, [this, latest] { wait_for_the_end(latest); });
      return;
    }
    world_.trace([] { return std::string("the last slot is given"); });
    for (const auto& [kind, when] : plan_.chaos) {
      world_.after(when / 4, [this, kind = kind] { strike(kind); });
    }
  }

  Node* some_node() {
    Node* node = nodes_[world_.random().below(nodes_.size())].get();
    return node != nullptr && node->alive() ? node : nullptr;
  }

  void strike(Chaos kind) {
    if (!troubled_) return;
    Random& random = world_.random();
    world_.trace([&] { return std::string(kChaosNames[static_cast<std::size_t>(kind)]); });
    const Micros length = random.between(200, 6000) * kMillisecond;
    switch (kind) {
      case Chaos::kKill: {
        Node* node = some_node();
        if (node == nullptr) break;
        note_unapplied_lease();
        kill(node->number(), random.between(100, 5000) * kMillisecond);
        break;
      }
      case Chaos::kPause: {
        Node* node = some_node();
        if (node == nullptr || node->paused()) break;
        paused_a_node_ = true;
        node->pause();
        world_.after(random.between(200, 9000) * kMillisecond, [node] { node->resume(); });
        servers_.broker.member_fell_silent();
        break;
      }
      case Chaos::kLoseGate:
        note_answered_without_row();
        servers_.gate.lose_memory();
        servers_.gate.down = true;
        world_.after(random.between(1, 1500) * kMillisecond,
                     [this] { servers_.gate.down = false; });
        break;
      case Chaos::kFlush:
        note_answered_without_row();
        servers_.gate.flush();
        break;
      case Chaos::kFailOver:
        servers_.gate.fail_over(static_cast<std::size_t>(random.between(0, 6)));
        break;
      case Chaos::kPauseGate:
        servers_.gate.paused_until = world_.now() + length;
        break;
      case Chaos::kCutGate:
        if (Node* node = some_node()) cut(node->links().gate, length);
        break;
      case Chaos::kDownStore:
        servers_.store.down = true;
        world_.after(length, [this] { servers_.store.down = false; });
        break;
      case Chaos::kPauseStore:
        if (plan_.nodes > 1 && length > 4 * kSecond) world_.reached(23);
        servers_.store.paused_until = world_.now() + 2 * length;
        break;
      case Chaos::kCutStore:
        if (Node* node = some_node()) cut(node->links().store, length);
        break;
      case Chaos::kDownBroker:
        servers_.broker.down = true;
        world_.after(length, [this] { servers_.broker.down = false; });
        break;
      case Chaos::kPauseBroker:
        servers_.broker.paused_until = world_.now() + length;
        break;
      case Chaos::kCutBroker:
        if (Node* node = some_node()) cut(node->links().broker, length);
        break;
      case Chaos::kHoldConsumer:
        servers_.broker.held_until = world_.now() + length;
        break;
      case Chaos::kRebalance:
        servers_.broker.rebalance();
        break;
      case Chaos::kNeedlessRebuild:
        if (Node* node = some_node()) node->rebuild(false);
        break;
      case Chaos::kStepClock:
        if (Node* node = some_node()) node->set_clock_off(draw_clock());
        break;
    }
  }

  void cut(Link& link, Micros length) {
    const bool refuses = world_.random().chance(0.5) || link.same_process;
    link.cut = refuses ? Link::Cut::kRefuses : Link::Cut::kSwallows;
    world_.after(length, [&link] { link.cut = Link::Cut::kNone; });
  }

  void heal() {
    world_.trace([] { return std::string("everything works again"); });
    set_troubles(false);
    servers_.gate.down = servers_.store.down = servers_.broker.down = false;
    servers_.gate.paused_until = servers_.store.paused_until = servers_.broker.paused_until = 0;
    servers_.broker.held_until = 0;
    for (int i = 0; i < plan_.nodes; ++i) {
      auto& node = nodes_[static_cast<std::size_t>(i)];
      node->resume();
      Node::Links& links = node->links();
      links.store.cut = links.gate.cut = links.broker.cut = links.bank.cut = Link::Cut::kNone;
      if (!node->alive()) start_node(i);
    }
    servers_.broker.expire_session();
  }

  // ---------------------------------------------------------------- members

  void come(std::int64_t member, Micros after, bool wanders) {
    ++waiting_;
    world_.after(after, [this, member, wanders] {
      clients_.post([this, member, wanders] { common::start(live(member, wanders)); });
    });
  }

  Task<void> nap(Micros length) {
    return common::sleep_until(clients_,
                               clients_clock_.steady() + std::chrono::microseconds{length});
  }

  /// One question and its answer, or none.
  Task<Told> ask(std::int64_t member, std::size_t item, std::string key) {
    const common::Completion<Told> done(clients_);
    const std::int64_t number = static_cast<std::int64_t>(item) + 1;
    Told nothing{
        .kind = Told::Kind::kNothing, .member = member, .item = number, .asked = world_.now()};
    const std::string named = key;
    const Micros asked = world_.now();
    // For a second some node may not have heard that the sale is closed.
    const bool open =
        !closed_at_ || (world_.now() < *closed_at_ + kSecond && world_.random().chance(0.5));
    if (!open) {
      // As the route does, without asking the engine.
      co_await nap(10 * kMillisecond);
      nothing.answered = world_.now();
      nothing.key = named;
      co_return nothing;
    }
    if (Node* node = some_node()) {
      const bool hangs_up = troubled_ && world_.random().chance(plan_.hang_up);
      node->purchase(member, item, std::move(key), [this, done, asked, hangs_up](Told told) {
        told.asked = asked;
        if (hangs_up) return;
        world_.after(world_.random().between(50, 400), [done, told] { done.complete(told); });
      });
    }
    const std::optional<Told> told =
        co_await done.wait_until(clients_clock_.steady() + std::chrono::seconds{6});
    if (!told) {
      nothing.answered = world_.now();
      nothing.key = named;
      books_.told(nothing);
      co_return nothing;
    }
    Told answer = *told;
    answer.answered = world_.now();
    answer.item = number;
    answer.key = named;
    books_.told(answer);
    world_.trace([&] {
      static constexpr std::string_view kKinds[] = {"granted", "holds", "sold out", "busy",
                                                    "nothing"};
      return fmt::format("member {} at node {}: {}{} {}", member, answer.node,
                         kKinds[static_cast<int>(answer.kind)], answer.final ? " finally" : "",
                         answer.kind == Told::Kind::kGranted || answer.kind == Told::Kind::kHolding
                             ? common::to_string(answer.grant).substr(0, 16)
                         : answer.busy ? std::string(engine::to_string(*answer.busy))
                                       : "");
    });
    co_return answer;
  }

  /// Asks until there is something definite, then pays, cancels, waits, or asks again; and comes
  /// back.
  Task<void> live(std::int64_t member, bool wanders) {
    Random& random = world_.random();
    int kept = 0;
    for (int asks = 0; asks < kMostAsks; ++asks) {
      const auto item = random.below(static_cast<std::uint64_t>(plan_.items));
      // Another unit of the same member has another key; asking again has the same.
      std::string key = plan_.per_member > 1 ? fmt::format("{}-{}-{}", member, item, kept) : "";
      Told told = co_await ask(member, item, std::move(key));
      const bool one = told.kind == Told::Kind::kGranted || told.kind == Told::Kind::kHolding;
      if (one) {
        if (wanders && random.chance(0.3)) continue;  // the same again, perhaps from another node
        const bool back = co_await use(told.grant, wanders);
        ++kept;
        if (!back && kept >= plan_.per_member) break;
        if (kept > plan_.per_member + 2) break;
        continue;
      }
      if (told.kind == Told::Kind::kNothing && closed_at_) break;
      if (told.kind == Told::Kind::kSoldOut) {
        if (told.final || random.chance(wanders ? 0.3 : 0.02)) break;
        co_await nap(random.between(100, 2000) * kMillisecond);
        continue;
      }
      co_await nap(random.between(50, 800) * kMillisecond);
    }
    --waiting_;
  }

  /// Whether the unit went back, as far as its buyer knows.
  Task<bool> use(GrantId grant, bool wanders) {
    Random& random = world_.random();
    co_await nap(random.between(0, 1500) * kMillisecond);
    const double dice = static_cast<double>(random.below(1000)) / 1000;
    if (!wanders || dice < plan_.pay) {
      const bool twice = wanders && random.chance(0.3);
      if (twice) {
        world_.reached(24);
        co_await pay_twice(grant);
      } else {
        const bool paid = co_await pay(grant);
        static_cast<void>(paid);
      }
      if (plan_.resell && wanders && random.chance(0.3)) {
        world_.reached(34);
        if (Node* node = some_node()) node->refund(grant);
        co_await nap(kSecond);
        co_return true;
      }
      co_return false;
    }
    if (dice < plan_.pay + plan_.cancel) {
      const common::Completion<bool> done(clients_);
      if (Node* node = some_node()) {
        node->cancel(grant, [this, done](bool cancelled) {
          world_.after(world_.random().between(50, 400),
                       [done, cancelled] { done.complete(cancelled); });
        });
      }
      const std::optional<bool> cancelled =
          co_await done.wait_until(clients_clock_.steady() + std::chrono::seconds{6});
      if (cancelled && *cancelled) books_.cancelled(grant);
      co_return cancelled && *cancelled;
    }
    // Lets it expire, and comes back about then.
    const Micros hold = std::chrono::microseconds{plan_.hold}.count();
    co_await nap(random.between(hold - kSecond, hold + 2 * kSecond));
    co_return true;
  }

  Task<bool> pay(GrantId grant) {
    for (int i = 0; i < 8; ++i) {
      const common::Completion<Payments::Outcome> done(clients_);
      if (Node* node = some_node()) {
        node->pay(grant, kPrice, [this, done](const Payments::Outcome& outcome) {
          world_.after(world_.random().between(50, 400),
                       [done, outcome] { done.complete(outcome); });
        });
      }
      const std::optional<Payments::Outcome> outcome =
          co_await done.wait_until(clients_clock_.steady() + std::chrono::seconds{8});
      if (outcome && outcome->kind == Payments::Kind::kPaid && !plan_.resell) books_.paid(grant);
      const bool definite = outcome && outcome->kind != Payments::Kind::kNoOrder &&
                            outcome->kind != Payments::Kind::kBusy &&
                            outcome->kind != Payments::Kind::kUnknown &&
                            outcome->kind != Payments::Kind::kDeclined;
      if (definite) co_return outcome->kind == Payments::Kind::kPaid;
      co_await nap(world_.random().between(100, 1000) * kMillisecond);
    }
    co_return false;
  }

  Task<void> pay_twice(GrantId grant) {
    const common::Completion<common::Done> other(clients_);
    common::start(pay_and_tell(grant, other));
    const bool paid = co_await pay(grant);
    static_cast<void>(paid);
    co_await other.wait();
  }
  Task<void> pay_and_tell(GrantId grant, common::Completion<common::Done> other) {
    const bool paid = co_await pay(grant);
    static_cast<void>(paid);
    other.complete(common::Done{});
  }

  // ---------------------------------------------------------------- the end

  bool expect(const std::string& what, const std::function<bool()>& done) {
    if (world_.run_until(world_.now() + kPatience, done)) return true;
    books_.find("stuck: " + what, plan_.words());
    return false;
  }

  std::int64_t holding() {
    return servers_.store.number(
        "SELECT count(*) FROM flash_sale_order WHERE state IN ('PENDING', 'PAID')");
  }
  std::int64_t open_holds() {
    return servers_.store.number("SELECT count(*) FROM flash_sale_order WHERE state = 'PENDING'");
  }

  /// Strangers come until every unit is paid: no unit may have been lost, no member blocked.
  void sell_the_rest() {
    const std::int64_t all = std::int64_t{plan_.items} * plan_.quantity;
    std::int64_t next = 1000;
    for (int round = 0; round < 8; ++round) {
      world_.run_until(world_.now() + kSecond);
      if (holding() == all && open_holds() == 0) return;
      for (std::int64_t i = 0; i < all; ++i) {
        come(next++, world_.random().between(0, 500) * kMillisecond, false);
      }
      if (!expect("a buyer does not get an answer", [this] { return waiting_ == 0; })) return;
      const Micros until = world_.now() + 3 * std::chrono::microseconds{plan_.hold}.count();
      world_.run_until(until, [&] { return holding() == all && open_holds() == 0; });
    }
    if (holding() != all) {
      books_.find("I5: a unit is lost", fmt::format("{} of {} sold", holding(), all));
    }
  }

  /// Quiet: what the gate can give and the rows that hold are all there is.
  void expect_quiet_books() {
    if (plan_.setup == Setup::kEmbedded) return;
    const auto sums_up = [this] {
      const engine::GateReading gate = servers_.gate.memories[rules_.id].read();
      std::int64_t free = 0;
      for (const auto& one : gate.allotments) free += one.free;
      // One that has replaced it and that nobody has noticed yet says nothing.
      const db::Row in_charge =
          servers_.store.rows("SELECT epoch, memory FROM engine_shard").front();
      return gate.state == engine::GateState::kOpen && gate.in_flight.empty() &&
             gate.epoch.value() == in_charge.integer(0) &&
             servers_.gate.run_id() == in_charge.text(1) &&
             free + holding() == std::int64_t{plan_.items} * plan_.quantity;
    };
    if (!expect("gate and rows do not sum up when it is quiet", sums_up)) return;
    const engine::GateMemory& memory = servers_.gate.memories[rules_.id];
    std::set<engine::MemberId> known;
    if (const auto holders = memory.holders(memory.epoch())) {
      known.insert(holders->begin(), holders->end());
    }
    std::set<engine::MemberId> holding;
    for (const db::Row& row : servers_.store.rows(
             "SELECT member FROM flash_sale_order WHERE state IN ('PENDING', 'PAID')")) {
      holding.insert(engine::MemberId{row.integer(0)});
    }
    for (const engine::MemberId member : holding) {
      if (!known.contains(member)) {
        books_.find("a holder is unknown at the gate", fmt::format("member {}", member.value()));
      }
    }
    for (const engine::MemberId member : known) {
      if (!holding.contains(member)) {
        books_.find("a member is blocked by a dead grant",
                    fmt::format("member {}", member.value()));
      }
    }
  }

  /// Whoever paid and asks once more gets that order, whatever got lost on the way to the gate.
  void holders_ask_again() {
    for (const db::Row& row : servers_.store.rows(
             "SELECT o.member, i.id, coalesce(o.member_key, ''), o.id FROM flash_sale_order o JOIN "
             "flash_sale_item i ON i.allotment = o.allotment WHERE o.state = 'PAID'")) {
      ++waiting_;
      clients_.post([this, member = row.integer(0),
                     item = static_cast<std::size_t>(row.integer(1)) - 1, key = row.text(2),
                     id = row.grant_id(3)] {
        std::string named = key;
        common::start(ask_again(member, item, std::move(named), id));
      });
    }
    expect("a holder does not get an answer", [this] { return waiting_ == 0; });
  }
  Task<void> ask_again(std::int64_t member, std::size_t item, std::string key, GrantId id) {
    Told told;
    // Few seats are taken by one another for a moment.
    for (int i = 0; i < 10; ++i) {
      std::string same = key;
      told = co_await ask(member, item, std::move(same));
      if (told.kind != Told::Kind::kBusy && told.kind != Told::Kind::kNothing) break;
      co_await nap(world_.random().between(100, 2000) * kMillisecond);
    }
    const bool known = told.kind == Told::Kind::kHolding || told.kind == Told::Kind::kGranted;
    if (!known || told.grant != id) {
      books_.find("who paid is not known any more", fmt::format("member {}", member));
    }
    --waiting_;
  }

  /// The sale's time is over. From now on somebody tries to settle it each second, as the jobs of
  /// every node do.
  void close() {
    closed_at_ = world_.now();
    world_.trace([] { return std::string("the sale is closed"); });
    try_to_settle();
  }
  void try_to_settle() {
    if (!troubled_) return;
    if (Node* node = some_node()) node->settle([](bool) {});
    world_.after(kSecond, [this] { try_to_settle(); });
  }

  void settle() {
    bool settled = false;
    const Micros until = world_.now() + kPatience;
    Random& random = world_.random();
    world_.run_until(world_.now() + random.between(0, 1000) * kMillisecond);
    // What the loops ask meanwhile is then answered together with it.
    if (random.chance(0.5)) {
      const Micros length = random.between(1, 1500) * kMillisecond;
      world_.after(random.between(0, 3000),
                   [this, length] { servers_.store.paused_until = world_.now() + length; });
    }
    while (!settled && world_.now() < until) {
      Node* node = some_node();
      bool answered = false;
      if (node != nullptr) {
        node->settle([&settled, &answered](bool done) {
          settled = settled || done;
          answered = true;
        });
      }
      world_.run_until(world_.now() + 5 * kSecond, [&] { return answered; });
      if (!settled) world_.run_until(world_.now() + kSecond);
    }
    if (!settled) books_.find("stuck: the sale cannot be settled", plan_.words());
    expect("a node does not notice that the sale is settled", [this] {
      return std::none_of(nodes_.begin(), nodes_.end(),
                          [](const auto& node) { return node->alive() && node->prepared(); });
    });
    if (servers_.store.number("SELECT count(*) FROM engine_shard WHERE state <> 'SETTLED'") != 0) {
      books_.find("a settled sale was opened again", plan_.words());
    }
    const std::int64_t miscounted = servers_.store.number(
        "SELECT count(*) FROM flash_sale_item i WHERE i.sold <> (SELECT count(*) FROM "
        "flash_sale_order o WHERE o.allotment = i.allotment AND o.state IN ('PENDING', 'PAID'))");
    if (miscounted != 0) books_.find("the counter of sold units is off", "");
    if (servers_.store.number("SELECT count(*) FROM dead_letter") != 0) {
      books_.find("a grant broke a rule", "");
    }
  }

  /// Where nothing but the ledger ever stopped, no node's grants may be taken for abandoned before
  /// their time.
  void check_reclaims() {
    const bool only_the_store =
        plan_.store.lose_request + plan_.store.lose_answer + plan_.store.refuse +
                plan_.store.refuse_late + plan_.store.slow + plan_.broker.refuse +
                plan_.broker.refuse_late ==
            0 &&
        std::all_of(plan_.chaos.begin(), plan_.chaos.end(), [](const auto& one) {
          return one.first == Chaos::kDownStore || one.first == Chaos::kPauseStore ||
                 one.first == Chaos::kNeedlessRebuild || one.first == Chaos::kHoldConsumer ||
                 one.first == Chaos::kRebalance || one.first == Chaos::kPauseGate;
        });
    if (!only_the_store || killed_) return;
    // A grant's age: it was taken a hold before its promised deadline.
    const std::int64_t early = servers_.store.number(fmt::format(
        "SELECT count(*) FROM flash_sale_order WHERE reason = 'ABANDONED' AND recorded_at - "
        "(expires_at - {}) < {}",
        std::chrono::microseconds{plan_.hold}.count(),
        std::chrono::microseconds{kReclaimAfter}.count()));
    if (early > 0) {
      books_.find("S11: grants of living nodes were reclaimed", fmt::format("{} grants", early));
    }
  }

  // ---------------------------------------------------------------- schedules

  void note_answered_without_row() {
    if (servers_.broker.committed < servers_.broker.log.size()) world_.reached(1);
  }
  void note_unapplied_lease() {
    if (plan_.setup == Setup::kEmbedded || plan_.lease_chunk == 0) return;
    const std::int64_t written =
        servers_.store.number("SELECT coalesce(max(number), 0) FROM engine_lease");
    for (const auto& one : servers_.gate.memories[rules_.id].read().allotments) {
      if (one.lease_number > 0 && one.lease_number < written) world_.reached(22);
    }
  }
  /// What the rows tell when all is over, with the times at which the gate's lives began.
  void note_schedules() {
    std::set<std::int64_t> abandoned;
    for (const db::Row& row : servers_.store.rows(
             "SELECT o.member, o.epoch, o.recorded_at, o.reason, o.state, (SELECT max(h.at) FROM "
             "flash_sale_order_history h WHERE h.order_id = o.id AND h.to_state IN ('EXPIRED', "
             "'CANCELED')) FROM flash_sale_order o ORDER BY o.recorded_at")) {
      const std::int64_t member = row.integer(0);
      const Micros recorded = row.integer(2) - common::to_micros(kEpochStart);
      const bool is_abandoned = !row.is_null(3) && row.text(3) == "ABANDONED";
      if (abandoned.contains(member) && !is_abandoned) world_.reached(19);
      if (is_abandoned) abandoned.insert(member);
      for (const auto& [epoch, life] : servers_.gate.lives) {
        if (epoch.value() <= row.integer(1)) continue;
        if (is_abandoned && recorded > life.begun) world_.reached(9);
        if (row.is_null(5)) continue;
        const Micros ended = row.integer(5) - common::to_micros(kEpochStart);
        if (recorded > life.begun) world_.reached(2);
        if (recorded < life.begun && ended > life.begun && life.loaded && ended < *life.loaded) {
          world_.reached(3);
        }
      }
    }
    if (servers_.store.number("SELECT count(*) FROM flash_sale_order WHERE reason = 'MERGED'") >
        0) {
      world_.reached(26);
    }
  }

  void trace_rows() {
    if (!world_.tracing) return;
    for (const db::Row& row : servers_.store.rows(
             "SELECT o.id, o.allotment, o.member, coalesce(o.slot, 0), o.epoch, o.state, "
             "coalesce(o.reason, '-'), o.recorded_at, coalesce((SELECT max(at) FROM "
             "flash_sale_order_history h WHERE h.order_id = o.id), 0), coalesce(o.nth, 0), "
             "coalesce(o.member_key, '-') FROM flash_sale_order o ORDER BY o.recorded_at")) {
      const auto at = [&](std::size_t column) {
        return static_cast<double>(row.integer(column) - common::to_micros(kEpochStart)) / 1e6;
      };
      world_.trace([&] {
        return fmt::format(
            "row {} {} member {} slot {} nth {} key {} epoch {} {} {} recorded {:.6f} changed "
            "{:.6f}",
            common::to_string(row.grant_id(0)).substr(0, 16), row.text(1), row.integer(2),
            row.integer(3), row.integer(9), row.text(10), row.integer(4), row.text(5), row.text(6),
            at(7), at(8));
      });
    }
    for (const auto& [epoch, life] : servers_.gate.lives) {
      world_.trace([&] {
        return fmt::format("epoch {} begun {:.6f} loaded {:.6f}", epoch.value(),
                           static_cast<double>(life.begun) / 1e6,
                           static_cast<double>(life.loaded.value_or(0)) / 1e6);
      });
    }
  }

  RunResult result() {
    RunResult out;
    out.findings = books_.findings();
    out.plan = plan_.words();
    out.simulated_s = static_cast<double>(world_.now()) / 1e6;
    out.events = world_.events();
    out.answers = books_.answers();
    out.merged = books_.merged();
    out.schedules = world_.schedules;
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    mix(hash, world_.events());
    mix(hash, static_cast<std::uint64_t>(world_.now()));
    mix(hash, books_.answers());
    for (const db::Row& row :
         servers_.store.rows("SELECT id, member, recorded_at FROM flash_sale_order ORDER BY id")) {
      for (const std::uint8_t byte : row.bytes(0)) mix(hash, byte);
      mix(hash, static_cast<std::uint64_t>(row.integer(1)));
      mix(hash, static_cast<std::uint64_t>(row.integer(2)));
    }
    out.fingerprint = hash;
    return out;
  }

  World world_;
  Plan plan_;
  common::Metrics& metrics_;
  Servers servers_;
  SimClock clients_clock_;
  SimExecutor clients_;
  Books books_;
  engine::ScopeRules rules_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> past_;  // dead ones; events may still name them
  bool troubled_ = false;
  bool paused_a_node_ = false;
  int waiting_ = 0;
  std::optional<Micros> closed_at_;
  bool killed_ = false;
  common::Counter* slot_held_;
  common::Counter* watch_misses_;
  common::Counter* same_terminal_;
  common::Counter* fenced_;
  common::Counter* retries_;
  common::Counter* refused_;
};

}  // namespace

struct Bench::Shared {
  Store store;
  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
};

Bench::Bench() : shared_(std::make_unique<Shared>()) {}
Bench::~Bench() = default;

RunResult Bench::run(const RunOptions& options) {
  switch_off(options.off);
  RunResult out;
  {
    Run run(options, shared_->store, *shared_->metrics);
    out = run.go();
  }
  switch_off(std::nullopt);
  return out;
}

}  // namespace doorbuster::sim

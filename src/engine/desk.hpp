#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "common/metrics.hpp"
#include "common/random.hpp"
#include "engine/leaser.hpp"
#include "engine/reclaim.hpp"
#include "engine/sold_out.hpp"
#include "engine/standing.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

// What a member gets who asks for a unit.

/// Recorded: durable, and the member's.
struct Granted {
  Grant grant;
};
/// The member has this one already, or the key has it.
struct Holding {
  GrantId id;
  AllotmentId allotment;
  Epoch epoch;         ///< the grant's; 0 when only its row knows
  Instant expires_at;  ///< as promised; only set where epoch is
};
struct SoldOutAnswer {
  bool final = false;
};
enum class BusyReason {
  kQueueFull,
  kLedgerDown,
  kNotPrepared,
  kRebuilding,
  kReturning,
  kTimeout,
  kUncertain,
  kCountAlarm,
  kNoSlotForRow
};
struct Busy {
  BusyReason reason = BusyReason::kUncertain;
};
using DeskAnswer = std::variant<Granted, Holding, SoldOutAnswer, Busy>;

[[nodiscard]] std::string_view to_string(BusyReason reason) noexcept;

/// When a grant is answered as given (engine page, section 4).
enum class IssueMode {
  kSync,   ///< its row is durable
  kAsync,  ///< a durable journal has it, and the check of S8 has passed
};

/// The path of one request behind admission: seat, gate, journal, ledger, answer (engine page,
/// section 4). Any loop; waits hold no thread and no connection.
///
/// K1: nothing is answered as given before its row is durable (sync), or before the journal has it
/// durably and its epoch is still in force, unmarked (async, S8).
/// K2: no slot is taken without a seat, nor while the ledger is known to be down.
/// K3: asking again joins the grant that is in flight (S8): same id, same deadline.
class Desk {
 public:
  struct Config {
    /// After it a waiting request is answered busy; its grant is recorded all the same, and asking
    /// again returns it.
    std::chrono::milliseconds request_budget{5000};
    IssueMode issue = IssueMode::kSync;
    std::function<void(std::span<std::uint8_t>)> random = common::fill_random;  ///< for grant ids
  };
  /// What the desk calls or wakes when it meets something that is theirs.
  struct Others {
    Writer& writer;
    SoldOut& sold_out;
    StandingCheck& standing;
    Reclaim& reclaim;
    Leaser& leaser;
    std::function<void()> gate_is_gone;  ///< absent, or in another epoch
  };
  Desk(Parts parts, Others others, const common::Clock& clock, Config config);

  struct Ask {
    std::shared_ptr<Scope> scope;
    std::size_t index = 0;  ///< the allotment's place in the scope's rules
    MemberId member;
    std::string key;  ///< Idempotency-Key, empty when there is none
  };
  [[nodiscard]] common::Task<DeskAnswer> take(common::Executor& caller, Ask ask);

 private:
  common::Task<DeskAnswer> record(common::Executor& caller, Grant grant, common::Steady deadline);
  DeskAnswer busy(BusyReason reason);

  Parts parts_;
  Others others_;
  const common::Clock& clock_;
  const Config config_;
  common::GrantIdMaker ids_;
  common::Counter& granted_;
  common::Counter& adopted_;
  common::Counter& already_;
  common::Counter& dry_;
  std::vector<common::Counter*> busy_;
  common::Histogram& durable_seconds_;
};

}  // namespace doorbuster::engine

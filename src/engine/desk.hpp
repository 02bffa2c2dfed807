#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "common/metrics.hpp"
#include "common/random.hpp"
#include "engine/sold_out.hpp"
#include "engine/writer.hpp"

namespace doorbuster::engine {

/// What a member gets who asks for a unit.
struct Granted {
  Grant grant;
};                ///< recorded: durable, and the member's
struct Holding {  ///< the member has this one already (or the key's)
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

/// The path of one request behind admission: seat, gate, journal, ledger, answer (engine page,
/// section 4). Any loop; waits hold no thread and no connection.
///
/// K1: nothing is answered as given before its row is durable (sync mode).
/// K2: no slot is taken without a seat, nor while the ledger is known to be down.
/// K3: asking again joins the grant that is in flight (S8): same id, same deadline.
class Desk {
 public:
  /// `request_budget`: after it a waiting request is answered busy; its grant is recorded all the
  /// same, and asking again returns it.
  Desk(Parts parts, Writer& writer, SoldOut& sold_out, const common::Clock& clock,
       std::chrono::milliseconds request_budget);

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
  Writer& writer_;
  SoldOut& sold_out_;
  const common::Clock& clock_;
  const std::chrono::milliseconds request_budget_;
  common::GrantIdMaker ids_;
  common::Counter& granted_;
  common::Counter& adopted_;
  common::Counter& already_;
  common::Counter& dry_;
  std::vector<common::Counter*> busy_;
  common::Histogram& durable_seconds_;
};

}  // namespace doorbuster::engine

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/desk.hpp"
#include "sim/bank.hpp"
#include "sim/store.hpp"

namespace doorbuster::sim {

/// What a member was told, as the member saw it.
struct Told {
  enum class Kind { kGranted, kHolding, kSoldOut, kBusy, kNothing };
  Kind kind = Kind::kNothing;  ///< kNothing: no answer came
  std::int64_t member = 0;
  int node = 0;
  std::int64_t item = 0;  ///< the allotment's number
  std::string key;
  Micros asked = 0;
  Micros answered = 0;
  std::optional<engine::BusyReason> busy;  ///< kBusy, from the engine
  bool final = false;                      ///< kSoldOut
  engine::GrantId grant;                   ///< kGranted, kHolding
  std::optional<engine::Instant> expires;  ///< as promised, where it was said
};

/// Something that must not be.
struct Finding {
  std::string what;    ///< one of a fixed list of sentences
  std::string detail;  ///< whom it struck
};

/// The checker's own books: kept from requests and answers alone, and compared with the rows when
/// all is quiet. It knows nothing of gates, journals and rules. The load tool's checker looks first
/// (rush/history.hpp); here is what it cannot see: when each row was written and ended, and the
/// bank.
class Books {
 public:
  void told(const Told& answer) { told_.push_back(answer); }
  void paid(const engine::GrantId& order) { paid_.insert(order); }
  void cancelled(const engine::GrantId& order) { cancelled_.insert(order); }
  void find(std::string what, std::string detail) {
    findings_.push_back({std::move(what), std::move(detail)});
  }

  struct End {
    std::int64_t quantity = 0;  ///< of each item
    std::int64_t items = 1;
    std::int64_t per_member = 1;
    bool one_each = true;   ///< one allotment, one unit a member
    Micros clocks_off = 0;  ///< how far nodes' clocks may differ
  };
  /// Compares with the rows and the bank's accounts.
  void check(Store& store, const Bank& bank, const End& end);

  [[nodiscard]] const std::vector<Finding>& findings() const noexcept { return findings_; }
  [[nodiscard]] std::size_t answers() const noexcept { return told_.size(); }
  [[nodiscard]] std::int64_t merged() const noexcept { return merged_; }

 private:
  struct Row {
    std::int64_t allotment = 0;
    std::int64_t member = 0;
    std::optional<std::int64_t> slot, nth;
    std::string state;
    std::string key;
    std::string reason;
    std::optional<engine::GrantId> merged_into;
    Micros recorded = 0;
    Micros expires = 0;
    std::optional<Micros> ended;  ///< when it stopped holding
    std::string ended_why;
  };
  using Rows = std::map<engine::GrantId, Row>;
  static Rows read(Store& store);
  void check_history(const Rows& rows, const End& end);
  void check_answers(const Rows& rows, const End& end);
  void check_money(Store& store, const Bank& bank, const Rows& rows);

  std::vector<Told> told_;
  std::set<engine::GrantId> paid_;
  std::set<engine::GrantId> cancelled_;
  std::vector<Finding> findings_;
  std::int64_t merged_ = 0;
};

}  // namespace doorbuster::sim

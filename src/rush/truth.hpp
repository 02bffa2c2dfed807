#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/clock.hpp"
#include "common/result.hpp"
#include "rush/history.hpp"
#include "rush/target.hpp"

namespace doorbuster::rush {

/// Asks the server, as an administrator, what really is in its ledger. Blocking; one thread at a
/// time.
class Truth {
 public:
  /// `token` is an administrator's; both references must outlive it.
  Truth(const Target& target, std::string token, const common::Clock& clock,
        std::chrono::milliseconds timeout)
      : target_(target), token_(std::move(token)), clock_(clock), timeout_(timeout) {}

  struct Item {
    std::int64_t quantity = 0;
    std::int64_t per_member = 1;
    std::int64_t sold = 0;
  };
  /// Errors: kUnavailable, kTimeout (no answer), kNotFound, kInvalid (the token does not open it),
  /// kCorrupt.
  [[nodiscard]] common::Result<Item> item(std::int64_t item_id) const;

  /// The item and all its rows, as one page after the other tells them.
  [[nodiscard]] common::Result<Ledger> ledger(std::int64_t item_id) const;

  struct Reading {
    Ledger ledger;
    bool quiet = false;  ///< two readings in a row were the same
  };
  /// Reads until two readings in a row, `apart` from each other, are the same, at most for
  /// `patience`; also over a restart of the server. Then the last reading, or the last error when
  /// there was none.
  [[nodiscard]] common::Result<Reading> quiet_ledger(std::int64_t item_id,
                                                     std::chrono::milliseconds apart,
                                                     std::chrono::milliseconds patience) const;

  /// Makes and opens a sale of one item, from now on for a day, and gives the item's id.
  [[nodiscard]] common::Result<std::int64_t> open_sale(std::int64_t units,
                                                       std::int64_t per_member) const;

 private:
  [[nodiscard]] common::Result<std::string> ask(std::string_view method, const std::string& path,
                                                const std::string& body = {}) const;

  const Target& target_;
  std::string token_;
  const common::Clock& clock_;
  std::chrono::milliseconds timeout_;
};

}  // namespace doorbuster::rush

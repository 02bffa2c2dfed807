#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/ids.hpp"
#include "common/money.hpp"
#include "engine/grant_table.hpp"
#include "engine/types.hpp"

namespace doorbuster::sale {

using common::Instant;
using common::ItemId;
using common::MemberId;
using common::Money;
using common::SaleId;

enum class SaleState { kDraft, kOpen, kPaused, kClosed, kSettled };
[[nodiscard]] std::string_view to_string(SaleState state) noexcept;
[[nodiscard]] SaleState parse_sale_state(std::string_view text);

enum class LimitScope { kSale, kItem };

/// One thing in a sale: an allotment with a price.
struct Item {
  ItemId id;
  SaleId sale;
  engine::AllotmentId allotment;
  engine::ScopeId scope;
  std::string name;
  Money list_price;
  Money sale_price;
  std::int32_t quantity = 0;
  std::int32_t per_member = 1;
  std::int32_t sold = 0;  ///< rows that hold a unit, as of the reading
};

struct Sale {
  SaleId id;
  std::string name;
  SaleState state = SaleState::kDraft;
  Instant opens_at;
  Instant closes_at;
  LimitScope limit_scope = LimitScope::kSale;
  std::int32_t per_member = 1;
  std::chrono::seconds hold{600};
  std::chrono::seconds hold_max{
      1800};  ///< open payments hold expiry back at most this long from recording
  bool resell_refunds = false;
  std::vector<Item> items;
};

/// Whether a purchase may reach the gate. By the server's clock; the window is half-open, [opens,
/// closes).
enum class Admission { kOpen, kHidden, kNotOpen, kPaused, kClosed };
[[nodiscard]] Admission admit(const Sale& sale, Instant now) noexcept;

/// Changes need this much time before the opening, so that a purchase never meets half of one.
inline constexpr std::chrono::seconds kChangeMargin{5};

/// Once begun, start, quantity, price and limits cannot change (engine page, section 13).
[[nodiscard]] bool has_begun(const Sale& sale, Instant now) noexcept;

/// How the orders' tables look to the engine.
[[nodiscard]] const engine::GrantTable& grant_table();

/// The scopes of a sale as the engine wants them: one for the sale, or one for each item.
[[nodiscard]] std::vector<engine::ScopeRules> scope_rules(const Sale& sale);

}  // namespace doorbuster::sale

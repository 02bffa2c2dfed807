#include "sale/sale.hpp"

#include "common/result.hpp"

namespace doorbuster::sale {
namespace {

constexpr std::string_view kStates[] = {"DRAFT", "OPEN", "PAUSED", "CLOSED", "SETTLED"};

}  // namespace

std::string_view to_string(SaleState state) noexcept {
  return kStates[static_cast<std::size_t>(state)];
}

SaleState parse_sale_state(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kStates); ++i) {
    if (kStates[i] == text) return static_cast<SaleState>(i);
  }
  DOORBUSTER_ENSURE(false, "the schema allows only these states");
  return SaleState::kDraft;
}

Admission admit(const Sale& sale, Instant now) noexcept {
  switch (sale.state) {
    case SaleState::kDraft:
      return Admission::kHidden;
    case SaleState::kClosed:
    case SaleState::kSettled:
      return Admission::kClosed;
    case SaleState::kOpen:
    case SaleState::kPaused:
      break;
  }
  if (now >= sale.closes_at) return Admission::kClosed;
  if (now < sale.opens_at) return Admission::kNotOpen;
  return sale.state == SaleState::kPaused ? Admission::kPaused : Admission::kOpen;
}

bool has_begun(const Sale& sale, Instant now) noexcept {
  return sale.state != SaleState::kDraft && now + kChangeMargin >= sale.opens_at;
}

const engine::GrantTable& grant_table() {
  static const engine::GrantTable table{.kind = 'i',
                                        .table = "flash_sale_order",
                                        .history = "flash_sale_order_history",
                                        .allotments = "flash_sale_item",
                                        .hold = "PENDING",
                                        .expired = "EXPIRED",
                                        .rejected = "REJECTED",
                                        .holding = {"PENDING", "PAID"}};
  return table;
}

std::vector<engine::ScopeRules> scope_rules(const Sale& sale) {
  std::vector<engine::ScopeRules> scopes;
  for (const Item& item : sale.items) {
    engine::AllotmentRules rules{.id = item.allotment,
                                 .quantity = item.quantity,
                                 .amount = item.sale_price.amount,
                                 .hold = sale.hold,
                                 .may_become_final = !sale.resell_refunds};
    if (scopes.empty() || scopes.back().id != item.scope) {
      scopes.push_back({.id = item.scope, .per_member = sale.per_member, .allotments = {}});
    }
    scopes.back().allotments.push_back(rules);
  }
  return scopes;
}

}  // namespace doorbuster::sale

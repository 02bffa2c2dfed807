#pragma once

#include <optional>
#include <vector>

#include "common/result.hpp"
#include "db/session.hpp"
#include "sale/sale.hpp"

namespace doorbuster::sale {

/// Settled sales that the catalog still shows (as closed); older ones are found by their id only.
inline constexpr int kSettledListed = 100;

/// Sales with their items, in id order, for the catalog: all that are not settled, and the newest
/// that are.
[[nodiscard]] common::Result<std::vector<Sale>> live_sales(db::Session& session);
/// In id order after `after`, at most `limit`; with drafts only where `drafts`.
[[nodiscard]] common::Result<std::vector<Sale>> sales_after(db::Session& session,
                                                            std::int64_t after, std::int64_t limit,
                                                            bool drafts);
[[nodiscard]] common::Result<std::optional<Sale>> find_sale(db::Session& session, SaleId id);
/// The sale that an item belongs to.
[[nodiscard]] common::Result<std::optional<Sale>> find_sale_of_item(db::Session& session,
                                                                    ItemId id);

/// Everything but id, state and items comes from `sale`.
[[nodiscard]] common::Result<SaleId> insert_sale(db::Session& session, const Sale& sale,
                                                 Instant now);
/// Everything but id, state, limit scope and items; the items' copies of the limit follow.
/// Errors also: kConflict when an order refers to the old limits.
[[nodiscard]] common::Result<common::Done> update_sale(db::Session& session, const Sale& sale,
                                                       Instant now);
/// Name, prices and quantity come from `item`; allotment and scope are made from the ids.
[[nodiscard]] common::Result<ItemId> insert_item(db::Session& session, const Sale& sale,
                                                 const Item& item, Instant now);
[[nodiscard]] common::Result<common::Done> update_item(db::Session& session, const Item& item,
                                                       Instant now);
[[nodiscard]] common::Result<common::Done> delete_item(db::Session& session, ItemId id);

/// Moves a sale from one state to another. False: it was not in `from`.
[[nodiscard]] common::Result<bool> change_sale_state(db::Session& session, SaleId id,
                                                     SaleState from, SaleState to, Instant now);

}  // namespace doorbuster::sale

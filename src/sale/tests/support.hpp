#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "edge/token.hpp"
#include "engine/order_id.hpp"
#include "engine/tests/support.hpp"
#include "sale/catalog.hpp"
#include "sale/order.hpp"
#include "sale/routes.hpp"
#include "sale/sale_store.hpp"

namespace doorbuster::sale::testing {

using engine::testing::kStart;
using engine::testing::milliseconds;
using engine::testing::seconds;
using engine::testing::words;

inline constexpr std::chrono::microseconds kTick{1};

/// Sale 1 with item 1 over a real file and the real engine, driven step by step; the hold is 10 s,
/// and an open payment holds expiry back until 30 s after recording.
struct SaleShop : engine::testing::Shop {
  explicit SaleShop(engine::testing::StoreOptions wanted = {}, engine::EngineConfig settings = {})
      : Shop(wanted, std::move(settings)) {}

  /// One transaction's worth of SQL, whose answer counts.
  template <class T>
  T in_write(const std::function<common::Result<T>(db::Session&)>& work) const {
    std::optional<T> answer;
    write([&](db::Session& session) -> common::Result<common::Done> {
      common::Result<T> result = work(session);
      if (!result) return common::fail(std::move(result.error()));
      answer.emplace(std::move(*result));
      return common::Done{};
    });
    DOORBUSTER_ENSURE(answer.has_value(), "the test's transaction commits");
    return std::move(*answer);
  }

  /// Buys and has the row.
  engine::Grant bought(std::int64_t member) {
    const engine::DeskAnswer answer = take(member);
    EXPECT_TRUE(std::holds_alternative<engine::Granted>(answer)) << words(answer);
    return std::get<engine::Granted>(answer).grant;
  }
  [[nodiscard]] Order order(const engine::GrantId& id) const {
    const std::function<common::Result<std::optional<Order>>(db::Session&)> find =
        [&](db::Session& session) { return find_order(session, id); };
    const std::optional<Order> found = in_write<std::optional<Order>>(find);
    DOORBUSTER_ENSURE(found.has_value(), "the order is there");
    return *found;
  }
  [[nodiscard]] std::vector<std::string> history(const engine::GrantId& id) const {
    return rows(
        fmt::format("SELECT to_state FROM flash_sale_order_history WHERE order_id = x'{}' "
                    "ORDER BY at, to_state <> 'PENDING'",
                    common::to_string(id)));
  }

  std::array<std::uint8_t, engine::OrderIdCodec::kKeyBytes> key{};
  engine::OrderIdCodec ids{key};
  std::unique_ptr<edge::TokenVerifier> tokens =
      edge::make_token_verifier({}, {edge::development_key()}, *metrics);
  Catalog catalog{*database, *engine};
  RouteParts parts{clock, *metrics, *database, *engine, catalog, ids, *tokens};
};

}  // namespace doorbuster::sale::testing

#include "engine/budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace doorbuster::engine {
namespace {

using common::ErrorCode;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// 50 + (5 + 1) x (100 + 500) + (50 + 500) + 50 = 4250 with the defaults: 4096 seats are 5 batches.
constexpr milliseconds kSum{4250};

TEST(Budget, TheDefaultsHold) {
  const auto text = check_budget(Budget{});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("5000 ms against 4250 ms"));
  EXPECT_THAT(*text, HasSubstr("5 batches ahead"));
}

TEST(Budget, MustBeAboveTheSumAndNotAtIt) {
  Budget budget;
  budget.request_budget = kSum - milliseconds{1};
  EXPECT_FALSE(check_budget(budget));
  budget.request_budget = kSum;
  const auto at = check_budget(budget);
  ASSERT_FALSE(at);
  EXPECT_EQ(at.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(at.error().message, HasSubstr("4250 ms against 4250 ms"));
  EXPECT_THAT(at.error().message, HasSubstr("engine.request_budget_ms"));
  budget.request_budget = kSum + milliseconds{1};
  EXPECT_TRUE(check_budget(budget));
}

TEST(Budget, EachPartCounts) {
  const auto at_edge = [](auto change) {
    Budget budget;
    budget.request_budget = kSum + milliseconds{1};
    change(budget);
    return check_budget(budget).has_value();
  };
  EXPECT_TRUE(at_edge([](Budget&) {}));
  EXPECT_FALSE(at_edge([](Budget& b) { b.take_timeout += milliseconds{1}; }));
  EXPECT_FALSE(at_edge([](Budget& b) { b.connection_wait += milliseconds{1}; }));
  EXPECT_FALSE(at_edge([](Budget& b) { b.statement_timeout += milliseconds{1}; }));
  EXPECT_FALSE(at_edge([](Budget& b) { b.confirm_timeout += milliseconds{1}; }));
  EXPECT_FALSE(at_edge([](Budget& b) { b.batch_max = 819; })) << "one more batch may stand ahead";
  EXPECT_TRUE(at_edge([](Budget& b) { b.queue_size = 5000; }));
  EXPECT_FALSE(at_edge([](Budget& b) { b.queue_size = 5001; }));
}

TEST(Budget, NeedsASeatAndABatch) {
  Budget budget;
  budget.queue_size = 0;
  EXPECT_EQ(check_budget(budget).error().code, ErrorCode::kInvalid);
  budget = Budget{};
  budget.batch_max = 0;
  EXPECT_EQ(check_budget(budget).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace doorbuster::engine

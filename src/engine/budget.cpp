#include "engine/budget.hpp"

#include <fmt/format.h>

namespace doorbuster::engine {

common::Result<std::string> check_budget(const Budget& b) {
  if (b.queue_size == 0 || b.batch_max == 0) {
    return common::fail(common::ErrorCode::kInvalid, "queue_size and batch_max must be at least 1");
  }
  const auto ahead = static_cast<std::int64_t>((b.queue_size + b.batch_max - 1) / b.batch_max);
  const std::int64_t batch = b.connection_wait.count() + b.statement_timeout.count();
  const std::int64_t retry = b.take_timeout.count() + b.statement_timeout.count();
  const std::int64_t sum =
      b.take_timeout.count() + (ahead + 1) * batch + retry + b.confirm_timeout.count();
  std::string text = fmt::format(
      "request budget {} ms against {} ms = take {} + ({} batches ahead + 1) x (connection wait {} "
      "+ "
      "statement timeout {}) + retry round {} + confirm {}",
      b.request_budget.count(), sum, b.take_timeout.count(), ahead, b.connection_wait.count(),
      b.statement_timeout.count(), retry, b.confirm_timeout.count());
  if (b.request_budget.count() <= sum) {
    return common::fail(
        common::ErrorCode::kInvalid,
        text + "; raise engine.request_budget_ms, or lower engine.queue_size or the timeouts");
  }
  return text;
}

}  // namespace doorbuster::engine

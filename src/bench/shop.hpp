#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load.hpp"
#include "bench/machine.hpp"
#include "common/clock.hpp"
#include "common/ids.hpp"
#include "common/result.hpp"

namespace doorbuster::bench {

inline constexpr const char* kThisProgram = "/proc/self/exe";

/// A server of this program with a ledger of its own, on the server's core with one I/O thread.
class Shop {
 public:
  /// Returns when it is ready. Errors: kIo, kUnavailable (it did not become ready; names its log).
  [[nodiscard]] static common::Result<std::unique_ptr<Shop>> start(
      const common::Clock& clock, const std::string& program = kThisProgram);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url() const;
  [[nodiscard]] Process& process() { return *process_; }
  [[nodiscard]] std::filesystem::path ledger() const { return folder_.path() / "ledger.db"; }

  /// Makes and opens a sale of one item; gives the item's number.
  [[nodiscard]] common::Result<std::int64_t> open_sale(std::int64_t units) const;
  /// How many units of it the ledger counts as sold.
  [[nodiscard]] common::Result<std::int64_t> sold(std::int64_t item) const;
  /// The value of a metric without labels, as /metrics tells it; 0 where it is absent.
  [[nodiscard]] double metric(std::string_view name) const;

 private:
  explicit Shop(const common::Clock& clock) : clock_(clock) {}
  [[nodiscard]] std::string admin_token() const;
  const common::Clock& clock_;
  TempFolder folder_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Process> process_;
};

/// A purchase as a plain client sends it, all of one size. `token_number` makes the tokens
/// of one member differ: the same number gives the same token.
inline constexpr std::size_t kRequestBytes = 360;
struct Ask {
  std::int64_t member = 0;  ///< kFirstMember or later: all tokens are equally long then
  std::int64_t token_number = 0;
};
inline constexpr std::int64_t kFirstMember = 1'000'000'000;
/// Another member for each number up to 4 thousand million, none near the one before it: real
/// members do not come sorted.
[[nodiscard]] constexpr std::int64_t scattered(std::int64_t number) noexcept {
  // A prime that does not divide the range: no two numbers meet.
  return 5 * kFirstMember + (number * 2'654'435'761) % (5 * kFirstMember - 1);
}
[[nodiscard]] Requests purchases(std::int64_t item, const std::vector<Ask>& asks,
                                 common::Instant now);

/// Who bought what.
using Holders = std::vector<std::pair<std::int64_t, std::string>>;
/// Opens a sale of `units`, has as many members buy them, and waits until strangers are refused.
struct SoldOutItem {
  std::int64_t item = 0;
  Holders holders;
};
[[nodiscard]] common::Result<SoldOutItem> sell_out(const Shop& shop, std::int64_t units,
                                                   const common::Clock& clock);

/// The whole answer to one request on a connection of its own.
[[nodiscard]] common::Result<std::string> fetch(std::uint16_t port, std::string_view request);

/// The text behind "name": in a JSON answer; empty where it is absent.
[[nodiscard]] std::string_view json_text(std::string_view body, std::string_view name);

}  // namespace doorbuster::bench

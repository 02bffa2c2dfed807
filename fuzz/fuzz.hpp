#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/executor.hpp"
#include "common/result.hpp"

/// What the targets share. A property that does not hold is DOORBUSTER_ENSURE's abort, which
/// libFuzzer reports like any other crash.
///
/// Every input is text with a few bytes of choices at its end: FuzzedDataProvider takes numbers
/// from there, so the text in front of them can be read, written by hand and cut by the fuzzer.
namespace doorbuster::fuzz {

/// A copy of exactly the text's size on the heap, so that the sanitizer sees a read behind its end.
class Exact {
 public:
  explicit Exact(std::string_view text) : bytes_(text.begin(), text.end()) {}
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_.data(), bytes_.size()}; }
  [[nodiscard]] std::vector<char>& bytes() noexcept { return bytes_; }

 private:
  std::vector<char> bytes_;
};

/// Takes the text up to the next `mark` off `rest`, or all of it.
inline std::string_view take_until(std::string_view& rest, std::string_view mark) {
  const std::size_t at = rest.find(mark);
  const std::string_view taken = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + mark.size());
  return taken;
}

/// For requests that no handler gets.
class NoExecutor final : public common::Executor {
 public:
  void post(Function) override { DOORBUSTER_ENSURE(false, "nothing runs here"); }
  TimerId post_at(common::Steady, Function) override {
    DOORBUSTER_ENSURE(false, "nothing runs here");
    return 0;
  }
  void cancel(TimerId) override {}
  [[nodiscard]] bool is_current() const noexcept override { return true; }
  [[nodiscard]] const common::Clock& clock() const noexcept override { return clock_; }

 private:
  common::SystemClock clock_;
};

}  // namespace doorbuster::fuzz

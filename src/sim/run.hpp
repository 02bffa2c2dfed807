#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/rules.hpp"
#include "sim/books.hpp"

namespace doorbuster::sim {

/// Bugs of another kind than a missing rule, planted to see that the checker is not made for the
/// rules alone.
enum class Planted : std::uint8_t {
  kNone,
  kLostConfirm,    ///< the writer never tells the gate what was recorded
  kCounterOff,     ///< a rebuilt gate has one unit more
  kDoubledRefund,  ///< the bank gives money back as often as it is asked
};

struct RunOptions {
  std::uint64_t seed = 1;
  std::optional<engine::Rule> off;  ///< a rule that is not in force
  Planted planted = Planted::kNone;
  bool trace = false;
};

struct RunResult {
  std::vector<Finding> findings;
  std::string plan;  ///< what the seed drew, in words
  double simulated_s = 0;
  std::uint64_t events = 0;
  std::size_t answers = 0;
  std::int64_t merged = 0;
  std::uint64_t fingerprint = 0;  ///< of all that was answered and stored: equal for equal seeds
  std::map<int, int> schedules;   ///< rows of the page of schedules that the run came through
};

/// What the runs of one thread share, since making it costs more than a run.
class Bench {
 public:
  Bench();
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// One whole life of a sale: opened, bought from under faults, healed, sold out, settled,
  /// checked.
  [[nodiscard]] RunResult run(const RunOptions& options);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace doorbuster::sim

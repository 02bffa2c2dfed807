#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/rules.hpp"
#include "engine/types.hpp"

namespace doorbuster::engine {

/// Who may hold a grant: never a wrong "no", rarely a wrong "maybe" (about 2 % at the size it was
/// made for). Strangers are told apart from holders without a lock; that is what makes refusing
/// cheap.
class HolderFilter {
 public:
  explicit HolderFilter(std::size_t expected);

  /// Any thread.
  void add(MemberId member);
  /// Starts over in two steps: begin, then read the list of holders from the gate, then finish.
  /// Members who are added in between stay in. One at a time.
  void begin_reset();
  void finish_reset(const std::vector<MemberId>& holders);
  /// False: certainly not added. Lock-free; any thread.
  [[nodiscard]] bool may_contain(MemberId member) const noexcept;

  [[nodiscard]] std::size_t bytes() const noexcept { return 2 * words_ * sizeof(std::uint64_t); }

 private:
  using Words = std::unique_ptr<std::atomic<std::uint64_t>[]>;
  void set(const Words& words, MemberId member) noexcept;

  std::size_t words_;             // a power of two
  std::mutex mutex_;              // one change at a time; readers do not take it
  bool collecting_ = false;       // Guarded by mutex_.
  std::vector<MemberId> recent_;  // Guarded by mutex_; added since begin_reset().
  Words tables_[2];
  // Even number n: tables_[(n / 2) % 2] is in use. A reader that sees it change looks again, so
  // that it never trusts a table which is being cleared.
  std::atomic<std::uint64_t> turn_{0};
};

enum class Flag : std::uint8_t { kDown, kUp, kFinal };

/// What a node keeps of a scope that is prepared: its rules, the epoch it knows, and the sold-out
/// flags. Shared by all threads; nothing in it decides who gets a unit.
class Scope {
 public:
  explicit Scope(ScopeRules rules);

  [[nodiscard]] const ScopeRules& rules() const noexcept { return rules_; }
  /// The place of an allotment in rules(), or -1.
  [[nodiscard]] int index_of(AllotmentId allotment) const noexcept;

  /// The epoch that calls name; 0 while the gate is not ready.
  [[nodiscard]] Epoch epoch() const noexcept {
    return Epoch{epoch_.load(std::memory_order_acquire)};
  }
  void set_epoch(Epoch epoch) noexcept { epoch_.store(epoch.value(), std::memory_order_release); }

  /// The refusal of section 5: kDown unless the flag is up and the member is a stranger for
  /// certain. Where other nodes sell too, a flag that is not final counts only for a while after
  /// the reading that it stands on: a process that was stopped wakes up with a list of holders that
  /// is old.
  [[nodiscard]] Flag refuse(std::size_t index, MemberId member, common::Steady now) const noexcept {
    const Flag flag = flags_[index].load(std::memory_order_acquire);
    if (flag == Flag::kDown) return flag;
    // Final is said of one item; whoever holds another one of the scope is no stranger.
    const bool ages = flag == Flag::kUp || flags_.size() > 1;
    if (ages && now.time_since_epoch().count() > fresh_until_.load(std::memory_order_relaxed)) {
      return Flag::kDown;
    }
    if (filter_.may_contain(member) && in_force(Rule::kStrangersOnly)) return Flag::kDown;
    return flag;
  }
  [[nodiscard]] Flag flag(std::size_t index) const noexcept {
    return flags_[index].load(std::memory_order_acquire);
  }

  /// Every grant that this node sees.
  void saw_holder(MemberId member) { filter_.add(member); }

  /// Raising is refused (false) when the flag was lowered after `generation` was read: the reading
  /// that it stands on is older than a returned unit.
  [[nodiscard]] std::uint64_t generation() const noexcept {
    return generation_.load(std::memory_order_acquire);
  }
  bool raise(std::uint64_t generation, std::size_t index, Flag flag);
  void set_fresh_until(common::Steady until) noexcept {
    fresh_until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void lower(std::size_t index);
  void lower_all();
  void begin_holders() { filter_.begin_reset(); }
  void finish_holders(const std::vector<MemberId>& holders) { filter_.finish_reset(holders); }

  /// Units left as the last probe read them; for pages, bounded staleness. -1 before the first
  /// probe.
  [[nodiscard]] std::int32_t remaining(std::size_t index) const noexcept {
    return remaining_[index].load(std::memory_order_relaxed);
  }
  void set_remaining(std::size_t index, std::int32_t units) noexcept {
    remaining_[index].store(units, std::memory_order_relaxed);
  }
  /// Set while the counter that is the second net contradicts the rows: takes answer busy until
  /// `doorbuster rebuild --counts`.
  [[nodiscard]] bool count_alarm() const noexcept {
    return count_alarm_.load(std::memory_order_relaxed);
  }
  void set_count_alarm(bool on) noexcept { count_alarm_.store(on, std::memory_order_relaxed); }

  /// While a rebuild is under way, and after one that failed, the ledger's epoch may be ahead of
  /// the gate's by our own doing, which says nothing about another server. Set on the engine's
  /// executor. What rebuild_begins() answers is for rebuild_ends().
  [[nodiscard]] int rebuild_begins() noexcept {
    rebuilds_->running.fetch_add(1, std::memory_order_relaxed);
    return rebuilds_->failures;
  }
  /// A scope that is prepared anew: what is under way for its former self counts for it, too.
  void succeed(const Scope& former) { rebuilds_ = former.rebuilds_; }
  enum class RebuildEnd { kDone, kFailed, kOvertaken };
  void rebuild_ends(RebuildEnd end, int begun) noexcept {
    rebuilds_->running.fetch_sub(1, std::memory_order_relaxed);
    // One that was overtaken says nothing about the one that overtook it, which may have failed.
    if (end == RebuildEnd::kOvertaken) return;
    if (end == RebuildEnd::kFailed) ++rebuilds_->failures;
    // One that failed since this one began may have raised the epoch all the same.
    if (end == RebuildEnd::kFailed || begun == rebuilds_->failures) {
      rebuilds_->failed.store(end == RebuildEnd::kFailed, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] bool rebuilding() const noexcept {
    return rebuilds_->running.load(std::memory_order_relaxed) > 0;
  }
  /// The last one did not end: takes answer busy until one does, and the watch tries again.
  [[nodiscard]] bool rebuild_failed() const noexcept {
    return rebuilds_->failed.load(std::memory_order_relaxed);
  }

 private:
  const ScopeRules rules_;
  HolderFilter filter_;
  std::atomic<std::int64_t> epoch_{0};
  std::mutex flag_mutex_;  // raise and lower, so that a lowering is never overwritten
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> fresh_until_{std::numeric_limits<std::int64_t>::max()};  // steady, ns
  std::vector<std::atomic<Flag>> flags_;
  std::vector<std::atomic<std::int32_t>> remaining_;
  std::atomic<bool> count_alarm_{false};
  // Only the engine's executor decides by these, so their order is enough.
  struct Rebuilds {
    std::atomic<int> running{0};
    std::atomic<bool> failed{false};
    int failures = 0;
  };
  std::shared_ptr<Rebuilds> rebuilds_ = std::make_shared<Rebuilds>();
};

}  // namespace doorbuster::engine

#include "engine/direct_journal.hpp"

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

namespace doorbuster::engine {
namespace {

using common::Completion;
using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Task;

class DirectJournal final : public Journal {
 public:
  DirectJournal(common::Executor& consumer, std::size_t seats)
      : consumer_(consumer), arrived_(consumer), free_seats_(static_cast<std::int64_t>(seats)) {}

  bool reserve_seat() noexcept override {
    // Relaxed: the count guards nothing but itself.
    if (free_seats_.fetch_sub(1, std::memory_order_relaxed) > 0) return true;
    free_seats_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  void release_seat() noexcept override { free_seats_.fetch_add(1, std::memory_order_relaxed); }

  Task<Result<Done>> append(Grant grant) override {
    Result<Done> answer = push(std::move(grant));
    co_return answer;
  }

  Task<std::vector<Grant>> next_batch(std::size_t max) override {
    std::vector<Grant> batch;
    for (;;) {
      bool ended = false;
      {
        const std::lock_guard lock(mutex_);
        while (!queue_.empty() && batch.size() < max) {
          batch.push_back(std::move(queue_.front()));
          queue_.pop_front();
        }
        in_hand_ = batch.size();
        ended = stopped_;
      }
      if (!batch.empty() || ended) co_return batch;
      // The deadline only bounds the wait for a signal that stop() also sends.
      const common::Steady later = consumer_.clock().steady() + std::chrono::hours{1};
      const bool woken = co_await arrived_.wait_until(later);
      static_cast<void>(woken);
    }
  }

  void commit() override {
    std::vector<Completion<Result<Done>>> reached;
    {
      const std::lock_guard lock(mutex_);
      committed_ += in_hand_;
      free_seats_.fetch_add(static_cast<std::int64_t>(in_hand_), std::memory_order_relaxed);
      in_hand_ = 0;
      std::erase_if(drains_, [&](const Drain& drain) {
        if (drain.end > committed_) return false;
        reached.push_back(drain.done);
        return true;
      });
    }
    for (const Completion<Result<Done>>& done : reached) done.complete(Done{});
  }

  Task<Result<Done>> consumed_to_end() override {
    const Completion<Result<Done>> done(consumer_);
    bool wait = false;
    {
      const std::lock_guard lock(mutex_);
      wait = appended_ > committed_;
      if (wait && abandoned_) co_return abandoned();
      if (wait) drains_.push_back(Drain{appended_, done});
    }
    Result<Done> answer = Done{};
    if (wait) answer = co_await done.wait();
    co_return answer;
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    arrived_.set();
  }

  void abandon() override {
    std::vector<Drain> drains;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      abandoned_ = true;
      drains = std::exchange(drains_, {});
    }
    for (const Drain& drain : drains) drain.done.complete(abandoned());
  }

  std::size_t depth() const noexcept override {
    const std::lock_guard lock(mutex_);
    return queue_.size() + in_hand_;
  }

 private:
  struct Drain {
    std::uint64_t end;
    Completion<Result<Done>> done;
  };

  static Result<Done> abandoned() {
    return fail(ErrorCode::kUnavailable, "the consumer gave up before the journal's end");
  }

  Result<Done> push(Grant grant) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) {
        release_seat();
        return fail(ErrorCode::kUnavailable, "the journal is stopping");
      }
      first = queue_.empty();
      queue_.push_back(std::move(grant));
      ++appended_;
    }
    if (first) arrived_.set();
    return Done{};
  }

  common::Executor& consumer_;
  common::Signal arrived_;
  std::atomic<std::int64_t> free_seats_;
  mutable std::mutex mutex_;
  std::deque<Grant> queue_;      // Guarded by mutex_.
  std::size_t in_hand_ = 0;      // Guarded by mutex_.
  std::uint64_t appended_ = 0;   // Guarded by mutex_.
  std::uint64_t committed_ = 0;  // Guarded by mutex_.
  std::vector<Drain> drains_;    // Guarded by mutex_.
  bool stopped_ = false;         // Guarded by mutex_.
  bool abandoned_ = false;       // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<Journal> make_direct_journal(common::Executor& consumer, std::size_t seats) {
  return std::make_unique<DirectJournal>(consumer, seats);
}

}  // namespace doorbuster::engine

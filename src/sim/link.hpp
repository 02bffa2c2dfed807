#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "common/result.hpp"
#include "common/task.hpp"
#include "sim/world.hpp"

namespace doorbuster::sim {

/// Something that answers calls: it can be down (calls fail, nothing happens) or paused (calls
/// wait).
struct Server {
  bool down = false;
  Micros paused_until = 0;
};

/// One node's way to one server, with what can go wrong on it: late, lost before it happened, lost
/// after it happened, refused, cut.
class Link {
 public:
  struct Trouble {
    double lose_request = 0;
    double lose_answer = 0;
    double refuse = 0;       ///< fails at once, and certainly did not happen
    double refuse_late = 0;  ///< the same, after the call has hung for some seconds
    double slow = 0;         ///< the request or the answer takes up to `slow_for`
    Micros slow_for = 3 * kSecond;
  };
  Link(World& world, Server& server, Micros timeout)
      : world_(world), server_(server), timeout_(timeout) {}

  /// A way that is cut refuses at once (no route, nobody listens), or swallows what is sent and
  /// what is on its way. A library of the own process swallows nothing.
  enum class Cut : std::uint8_t { kNone, kRefuses, kSwallows };

  Trouble trouble;
  Cut cut = Cut::kNone;
  /// The server is a library of the node's own process: it dies with the node, and with it what was
  /// on its way; it answers late but always, and a lost answer is an unknown commit.
  bool same_process = false;

  /// `effect` runs at the server, if it runs; `answer` is called once, here.
  template <class T>
  void send(std::function<common::Result<T>()> effect,
            std::function<void(common::Result<T>)> answer) {
    using common::ErrorCode;
    using common::fail;
    auto call = std::make_shared<std::function<void(common::Result<T>)>>(std::move(answer));
    const auto reply = [call](common::Result<T> result) {
      if (!*call) return;
      const auto once = std::exchange(*call, nullptr);
      once(std::move(result));
    };
    if (closed_) return reply(fail(ErrorCode::kUnavailable, "the node is over"));
    const std::uint64_t id = next_++;
    waiting_.emplace(id, [reply] {
      reply(fail(ErrorCode::kUnavailable, "the node is over", common::Proof::kUnknown));
    });
    const auto finish = [this, id, reply](common::Result<T> result) {
      waiting_.erase(id);
      reply(std::move(result));
    };
    Random& random = world_.random();
    if (cut == Cut::kRefuses || random.chance(trouble.refuse) ||
        (same_process && random.chance(trouble.lose_request))) {
      world_.after(random.between(1, 2) * kMillisecond,
                   [finish] { finish(fail(ErrorCode::kUnavailable, "refused")); });
      return;
    }
    if (random.chance(trouble.refuse_late)) {
      world_.after(random.between(kSecond, 4 * kSecond),
                   [finish] { finish(fail(ErrorCode::kUnavailable, "refused at last")); });
      return;
    }
    const auto time_out = [this, finish] {
      if (same_process) return;
      world_.after(timeout_, [finish] {
        finish(fail(ErrorCode::kTimeout, "no answer", common::Proof::kUnknown));
      });
    };
    Micros there = random.between(50, 400);
    Micros back = random.between(50, 400);
    if (random.chance(trouble.slow)) there += random.between(0, trouble.slow_for);
    if (random.chance(trouble.slow)) back += random.between(0, trouble.slow_for);
    const bool lost = random.chance(trouble.lose_answer);
    if (!same_process && random.chance(trouble.lose_request)) return time_out();
    if (cut == Cut::kSwallows) return time_out();
    if (lost || there + back > timeout_) time_out();
    arrive<T>(world_.now() + there, back, lost, std::move(effect), finish, time_out);
  }

  /// The same for a coroutine of the node, on `home`.
  template <class T>
  common::Task<common::Result<T>> call(common::Executor& home,
                                       std::function<common::Result<T>()> effect) {
    const common::Completion<common::Result<T>> done(home);
    send<T>(std::move(effect),
            [done](common::Result<T> result) { done.complete(std::move(result)); });
    common::Result<T> result = co_await done.wait();
    co_return result;
  }

  /// The node is over: whoever waits is told so now, and nothing more is sent.
  void close() {
    closed_ = true;
    for (const auto& [id, give_up] : std::exchange(waiting_, {})) give_up();
  }

 private:
  template <class T>
  void arrive(Micros when, Micros back, bool lost, std::function<common::Result<T>()> effect,
              std::function<void(common::Result<T>)> finish, std::function<void()> time_out) {
    world_.at(when, [=, this, effect = std::move(effect)]() mutable {
      if (server_.paused_until > world_.now()) {
        // A paused server takes what was sent when it wakes; the caller may have given up by then.
        time_out();
        const Micros late = server_.paused_until + world_.random().between(0, 5 * kMillisecond);
        arrive<T>(late, back, lost, std::move(effect), finish, [] {});
        return;
      }
      if (same_process && closed_) return;
      if (server_.down) {
        finish(common::fail(common::ErrorCode::kUnavailable, "the server is down"));
        return;
      }
      common::Result<T> result = effect();
      if (lost && !same_process) return;
      if (lost) {
        result = common::fail(common::ErrorCode::kIo, "whether it happened is not known",
                              common::Proof::kUnknown);
      }
      world_.after(back, [this, finish, time_out, result = std::move(result)]() mutable {
        if (cut == Cut::kSwallows) return time_out();
        finish(std::move(result));
      });
    });
  }

  World& world_;
  Server& server_;
  const Micros timeout_;
  bool closed_ = false;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::function<void()>> waiting_;
};

}  // namespace doorbuster::sim

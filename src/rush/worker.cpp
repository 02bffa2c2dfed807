#include "rush/worker.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <deque>
#include <iterator>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "rush/answer.hpp"
#include "rush/http_reader.hpp"

namespace doorbuster::rush {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;
using common::Steady;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kReadBytes = 64UL * 1024;
constexpr int kEventsAtOnce = 512;
/// Connects under way before the start: below every server's backlog, whose overflow costs a second
/// each.
constexpr std::size_t kOpeningAtOnce = 256;
/// For all connections before the start; what is not open by then is opened when it is needed.
constexpr std::chrono::seconds kOpeningTime{30};
/// A connection that failed is left alone so long, or a dead server would be asked as fast as
/// refusals come.
constexpr nanoseconds kRest = milliseconds{100};
/// How often timeouts are looked for.
constexpr nanoseconds kSweep = milliseconds{250};
/// The longest wait without an event, so that a stop is noticed.
constexpr nanoseconds kLongestWait = milliseconds{100};

std::int64_t thread_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// How long this thread was ready without a processor; 0 where the kernel does not tell.
std::int64_t thread_wait_ns() {
  std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re");
  if (file == nullptr) return 0;
  long long ran = 0;
  long long waited = 0;
  const int read = std::fscanf(file, "%lld %lld", &ran, &waited);
  std::fclose(file);
  return read == 2 ? waited : 0;
}

/// epoll_wait with the precision that arrivals by the clock need.
int wait_events(int epoll, epoll_event* events, std::int64_t wait_ns) {
  wait_ns = std::max<std::int64_t>(wait_ns, 0);
  const timespec timeout{.tv_sec = static_cast<time_t>(wait_ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(wait_ns % 1'000'000'000)};
  const int got = ::epoll_pwait2(epoll, events, kEventsAtOnce, &timeout, nullptr);
  if (got >= 0 || errno != ENOSYS) return got;
  // Before Linux 5.11: whole milliseconds, rounded up so as not to spin.
  return ::epoll_wait(epoll, events, kEventsAtOnce,
                      static_cast<int>((wait_ns + 999'999) / 1'000'000));
}

class EpollWorker final : public Worker {
 public:
  EpollWorker(const RushConfig& config, const Target& target, WorkerPlan plan,
              const common::Clock& clock)
      : config_(config),
        target_(target),
        plan_(std::move(plan)),
        clock_(clock),
        open_loop_(!plan_.arrivals.empty()),
        depth_(static_cast<std::size_t>(config.pipelining)),
        manners_{.patience = config.patience,
                 .come_back = config.come_back,
                 .pay_share = config.pay_share,
                 .ask_again_share = config.ask_again_share},
        random_(plan_.seed),
        buyers_(plan_.members.size()),
        connections_(plan_.connections + plan_.idle_connections),
        scratch_(std::make_unique<char[]>(kReadBytes)),
        purchase_head_(
            fmt::format("POST /api/flash-sales/items/{}/purchase HTTP/1.1\r\nHost: {}\r\n"
                        "Content-Length: 0\r\nAuthorization: Bearer ",
                        config.item_id, target.host)) {
    if (config_.keys) keys_.resize(buyers_.size(), 0);
    // Room for everybody's first request and some more; pages that are never used cost nothing.
    out_.history.reserve(
        std::min<std::size_t>(plan_.max_requests, buyers_.size() + buyers_.size() / 4 + 1024));
  }

  ~EpollWorker() override {
    close_all();
    if (epoll_ >= 0) ::close(epoll_);
  }

  Result<std::size_t> prepare() override {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return fail(ErrorCode::kIo, "epoll_create1 failed");
    make_tokens();
    open_connections();
    return opened_;
  }

  void run(Steady start) override {
    const std::int64_t cpu = thread_cpu_ns();
    const std::int64_t waited = thread_wait_ns();
    start_ns_ = start.time_since_epoch().count();
    const std::int64_t end_ns = start_ns_ + nanoseconds{config_.max_time}.count();
    std::int64_t last = now_ns();
    while (tally_.done < buyers_.size()) {
      const std::int64_t now = now_ns();
      last = now;
      if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) {
        out_.stopped = "it was interrupted";
      } else if (now >= end_ns) {
        out_.stopped = fmt::format("{} s were over (max_time)", config_.max_time.count());
      } else if (tally_.sent >= plan_.max_requests) {
        out_.stopped = fmt::format("{} requests were sent (max_requests)", config_.max_requests);
      }
      if (!out_.stopped.empty()) break;
      std::int64_t wait = 0;
      {
        const std::lock_guard lock(mutex_);
        if (now >= next_sweep_) sweep(now);
        release(now);
        dispatch(now);
        wait = std::min(next_event_ns(), end_ns) - now_ns();
      }
      take_events(std::min(wait, kLongestWait.count()));
      last = now_ns();
    }
    abandon(last);
    close_all();
    const double spent = static_cast<double>(std::max<std::int64_t>(1, now_ns() - start_ns_));
    out_.load.cpu_share = static_cast<double>(thread_cpu_ns() - cpu) / spent;
    out_.load.wait_share = static_cast<double>(thread_wait_ns() - waited) / spent;
    for (const Buyer& buyer : buyers_) ++out_.endings[static_cast<std::size_t>(buyer.ending)];
  }

  Tally tally(LatencyHistogram& recent) override {
    const std::lock_guard lock(mutex_);
    recent.merge(recent_);
    recent_ = LatencyHistogram();
    return tally_;
  }

  Results& results() override { return out_; }

 private:
  enum class State : std::uint8_t { kClosed, kConnecting, kOpen };

  /// A request that was sent, or waits in `unsent` of its connection.
  struct Flight {
    std::uint32_t buyer;
    Step step;
    std::int64_t due_ns;
    std::int64_t sent_ns;
  };

  struct Connection {
    int fd = -1;
    State state = State::kClosed;
    bool free = false;          ///< it is in free_
    std::int64_t since_ns = 0;  ///< connecting since
    std::size_t answered = 0;   ///< of `flights`; the rest waits for answers, in this order
    std::vector<Flight> flights;
    std::string unread;  ///< the beginning of an answer
    std::string unsent;
    [[nodiscard]] std::size_t in_flight() const noexcept { return flights.size() - answered; }
  };

  /// A request that somebody wants to send.
  struct Due {
    std::uint32_t buyer;
    Step step;
    std::int64_t due_ns;
  };
  struct Later {
    std::int64_t at_ns;
    std::uint32_t buyer;
    Step step;
    friend bool operator>(const Later& a, const Later& b) noexcept { return a.at_ns > b.at_ns; }
  };
  struct Resting {
    std::int64_t until_ns;
    std::uint32_t connection;
  };
  struct Price {
    std::int64_t amount;
    std::string currency;
  };

  [[nodiscard]] std::int64_t now_ns() const noexcept {
    return clock_.steady().time_since_epoch().count();
  }
  [[nodiscard]] bool is_idle(std::uint32_t number) const noexcept {
    return number >= plan_.connections;
  }

  // ---------------------------------------------------------------- before the start

  [[nodiscard]] std::string make_token(std::uint32_t buyer) const {
    return config_.make_token(plan_.members[buyer]);
  }

  void make_tokens() {
    if (config_.premade_tokens < config_.members * config_.units_per_member) return;
    token_ends_.reserve(buyers_.size());
    for (std::uint32_t i = 0; i < buyers_.size(); ++i) {
      tokens_ += make_token(i);
      token_ends_.push_back(tokens_.size());
    }
  }

  void open_connections() {
    const std::int64_t end = now_ns() + nanoseconds{kOpeningTime}.count();
    std::uint32_t next = 0;
    preparing_ = true;
    while (now_ns() < end) {
      while (next < connections_.size() && opening_ < kOpeningAtOnce) connect(next++, now_ns());
      if (next == connections_.size() && opening_ == 0) break;
      if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) break;
      if (now_ns() >= next_sweep_) sweep(now_ns());
      take_events(kLongestWait.count());
    }
    preparing_ = false;
    // Also those that are not open yet: the first request opens them.
    for (std::uint32_t i = 0; i < plan_.connections; ++i) {
      if (connections_[i].state != State::kConnecting) set_free(i);
    }
  }

  // ---------------------------------------------------------------- what is due

  /// Moves arrivals and retries whose time has come to ready_, and rested connections back to work.
  void release(std::int64_t now) {
    while (next_arrival_ < plan_.arrivals.size()) {
      const std::int64_t due = start_ns_ + plan_.arrivals[next_arrival_].count();
      if (due > now) break;
      out_.load.lag.record(nanoseconds{now - due});
      ready_.push_back({static_cast<std::uint32_t>(next_arrival_++), Step::kBuy, due});
    }
    while (!later_.empty() && later_.top().at_ns <= now) {
      const Later& one = later_.top();
      ready_.push_back({one.buyer, one.step, one.at_ns});
      later_.pop();
    }
    while (!resting_.empty() && resting_.front().until_ns <= now) {
      const std::uint32_t number = resting_.front().connection;
      resting_.pop_front();
      if (is_idle(number)) {
        connect(number, now);
      } else {
        set_free(number);
      }
    }
  }

  [[nodiscard]] std::int64_t next_event_ns() const {
    std::int64_t next = next_sweep_;
    if (next_arrival_ < plan_.arrivals.size()) {
      next = std::min(next, start_ns_ + plan_.arrivals[next_arrival_].count());
    }
    if (!later_.empty()) next = std::min(next, later_.top().at_ns);
    if (!resting_.empty()) next = std::min(next, resting_.front().until_ns);
    return next;
  }

  [[nodiscard]] bool something_due() const noexcept {
    return !ready_.empty() || (!open_loop_ && next_fresh_ < buyers_.size());
  }

  Due take_due(std::int64_t now) {
    if (!ready_.empty()) {
      const Due due = ready_.front();
      ready_.pop_front();
      return due;
    }
    return {next_fresh_++, Step::kBuy, now};
  }

  /// Gives what is due to connections that have room.
  void dispatch(std::int64_t now) {
    while (!free_.empty() && something_due() && tally_.sent < plan_.max_requests) {
      const std::uint32_t number = free_.front();
      Connection& connection = connections_[number];
      free_.pop_front();
      connection.free = false;
      out_buffer_.clear();
      while (connection.in_flight() < depth_ && something_due() &&
             tally_.sent < plan_.max_requests) {
        const Due due = take_due(now);
        Buyer& buyer = buyers_[due.buyer];
        if (buyer.since_ns < 0) buyer.since_ns = due.due_ns;
        if (open_loop_) out_.load.seat.record(nanoseconds{now - due.due_ns});
        connection.flights.push_back({due.buyer, due.step, due.due_ns, now});
        append_request(due.buyer, due.step);
        ++tally_.sent;
      }
      if (connection.state == State::kOpen && connection.unsent.empty()) {
        send_now(number, now);
      } else {
        connection.unsent += out_buffer_;
        if (connection.state == State::kClosed) connect(number, now);
      }
      if (connection.state != State::kClosed && connection.in_flight() < depth_) set_free(number);
    }
  }

  void append_request(std::uint32_t buyer, Step step) {
    const auto end_with_key = [&] {
      if (config_.keys) {
        out_buffer_ += "\r\nIdempotency-Key: ";
        out_buffer_ += out_.history.text(key_of(buyer));
      }
      out_buffer_ += "\r\n\r\n";
    };
    if (ask_of(step) == Ask::kPurchase) {
      out_buffer_ += purchase_head_;
      append_token(buyer);
      end_with_key();
      return;
    }
    const std::string& order = out_.history.text(buyers_[buyer].order);
    if (step != Step::kPay) {
      fmt::format_to(
          std::back_inserter(out_buffer_),
          "GET /api/flash-sales/orders/{} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer ", order,
          target_.host);
      append_token(buyer);
      out_buffer_ += "\r\n\r\n";
      return;
    }
    const Price& price = prices_[buyer];
    const std::string body =
        fmt::format(R"({{"cardNumber":"4242424242424242","amount":{},"currency":"{}"}})",
                    price.amount, price.currency);
    fmt::format_to(std::back_inserter(out_buffer_),
                   "POST /api/flash-sales/orders/{}/payment HTTP/1.1\r\nHost: {}\r\n"
                   "Content-Type: application/json\r\nContent-Length: {}\r\nAuthorization: Bearer ",
                   order, target_.host, body.size());
    append_token(buyer);
    out_buffer_ += "\r\n\r\n";
    out_buffer_ += body;
  }

  void append_token(std::uint32_t buyer) {
    if (token_ends_.empty()) {
      out_buffer_ += make_token(buyer);
      return;
    }
    const std::size_t begin = buyer == 0 ? 0 : token_ends_[buyer - 1];
    out_buffer_.append(tokens_, begin, token_ends_[buyer] - begin);
  }

  std::uint32_t key_of(std::uint32_t buyer) {
    std::uint32_t& key = keys_[buyer];
    if (key == 0) {
      key = out_.history.number_of(fmt::format("rush-{}-{}-{}", config_.seed, plan_.members[buyer],
                                               plan_.units.empty() ? 0 : plan_.units[buyer]));
    }
    return key;
  }

  // ---------------------------------------------------------------- connections

  void set_free(std::uint32_t number) {
    Connection& connection = connections_[number];
    if (connection.free || is_idle(number)) return;
    connection.free = true;
    free_.push_back(number);
  }

  void connect(std::uint32_t number, std::int64_t now) {
    Connection& connection = connections_[number];
    ++opening_;
    connection.state = State::kConnecting;
    connection.since_ns = now;
    const Result<int> fd = start_connect(target_, plan_.first_connection + number);
    if (!fd) {
      disconnect(number, AnswerKind::kConnectFailed, now);
      return;
    }
    connection.fd = *fd;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.u32 = number;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event) != 0) {
      disconnect(number, AnswerKind::kConnectFailed, now);
    }
  }

  void watch(std::uint32_t number, bool writing) {
    epoll_event event{};
    event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u32 = number;
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connections_[number].fd, &event);
  }

  /// Ends a connection. Requests without an answer get `kind`; a connection that failed rests
  /// first, one that the server just closed (kind kOther) is open to be used again.
  void disconnect(std::uint32_t number, AnswerKind kind, std::int64_t now) {
    Connection& connection = connections_[number];
    if (connection.state == State::kConnecting) {
      --opening_;
      kind = AnswerKind::kConnectFailed;
    }
    if (connection.fd >= 0) ::close(connection.fd);
    connection.fd = -1;
    connection.state = State::kClosed;
    connection.unread.clear();
    connection.unsent.clear();
    const std::vector<Flight> lost(
        connection.flights.begin() + static_cast<std::ptrdiff_t>(connection.answered),
        connection.flights.end());
    connection.flights.clear();
    connection.answered = 0;
    if (is_idle(number) && kind != AnswerKind::kConnectFailed) ++tally_.idle_lost;
    if (!preparing_) {
      if (kind == AnswerKind::kOther && !is_idle(number)) {
        set_free(number);
      } else if (!connection.free) {
        resting_.push_back({now + kRest.count(), number});
      }
    }
    // A request behind the last answer of a closing connection was not read by the server, or was:
    // unknown.
    Answer answer;
    answer.kind = kind == AnswerKind::kOther ? AnswerKind::kCut : kind;
    for (const Flight& flight : lost) finish(flight, answer, now);
  }

  /// Sends out_buffer_ on an open connection that has nothing unsent.
  void send_now(std::uint32_t number, std::int64_t now) {
    Connection& connection = connections_[number];
    const ssize_t sent =
        ::send(connection.fd, out_buffer_.data(), out_buffer_.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(out_buffer_.size())) return;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      disconnect(number, AnswerKind::kCut, now);
      return;
    }
    connection.unsent.assign(out_buffer_, static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    watch(number, true);
  }

  void on_writable(std::uint32_t number, std::int64_t now) {
    Connection& connection = connections_[number];
    if (connection.state == State::kConnecting) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        disconnect(number, AnswerKind::kConnectFailed, now);
        return;
      }
      --opening_;
      ++opened_;
      connection.state = State::kOpen;
      if (!preparing_ && connection.in_flight() < depth_) set_free(number);
    }
    while (!connection.unsent.empty()) {
      const ssize_t sent =
          ::send(connection.fd, connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return;
        disconnect(number, AnswerKind::kCut, now);
        return;
      }
      connection.unsent.erase(0, static_cast<std::size_t>(sent));
    }
    watch(number, false);
  }

  void on_readable(std::uint32_t number, std::int64_t now) {
    Connection& connection = connections_[number];
    const ssize_t got = ::recv(connection.fd, scratch_.get(), kReadBytes, 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) disconnect(number, AnswerKind::kCut, now);
      return;
    }
    const bool ended = got == 0;
    std::string_view bytes(scratch_.get(), static_cast<std::size_t>(got));
    if (!connection.unread.empty()) {
      connection.unread.append(bytes);
      bytes = connection.unread;
    }
    const std::size_t before = bytes.size();
    while (connection.in_flight() > 0 && !bytes.empty()) {
      HttpAnswer http;
      const ReadState state = read_http_answer(bytes, ended, HttpLimits{}, decoded_, http);
      if (state == ReadState::kNeedMore) break;
      const Flight flight = connection.flights[connection.answered++];
      if (connection.in_flight() == 0) {
        connection.flights.clear();
        connection.answered = 0;
      }
      if (state == ReadState::kBad) {
        finish(flight, Answer{}, now);
        disconnect(number, AnswerKind::kCut, now);
        return;
      }
      const Answer answer = reader_.read(ask_of(flight.step), http);
      bytes.remove_prefix(http.bytes);
      finish(flight, answer, now);
      if (http.close) {
        disconnect(number, AnswerKind::kOther, now);
        return;
      }
    }
    // The end, or bytes that nobody asked for (such as a 408 to an idle connection): not ours to
    // use any more.
    if (ended || (connection.in_flight() == 0 && !bytes.empty())) {
      disconnect(number, connection.in_flight() == 0 ? AnswerKind::kOther : AnswerKind::kCut, now);
      return;
    }
    if (bytes.empty()) {
      connection.unread.clear();
    } else if (connection.unread.empty()) {
      connection.unread.assign(bytes);
    } else {
      connection.unread.erase(0, before - bytes.size());
    }
    if (connection.in_flight() < depth_) set_free(number);
  }

  void take_events(std::int64_t wait) {
    const int count = wait_events(epoll_, events_.data(), wait);
    if (count <= 0) return;
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events_[static_cast<std::size_t>(i)];
      const std::uint32_t number = event.data.u32;
      // A descriptor has one event in a batch, and connections are opened between batches only, so
      // the event is of the connection that is there now.
      const std::int64_t now = now_ns();
      const bool broken = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
      if ((event.events & EPOLLOUT) != 0 ||
          (broken && connections_[number].state == State::kConnecting)) {
        on_writable(number, now);
      }
      if (((event.events & EPOLLIN) != 0 || broken) && connections_[number].state == State::kOpen) {
        on_readable(number, now);
      }
    }
  }

  /// Ends what took too long.
  void sweep(std::int64_t now) {
    next_sweep_ = now + kSweep.count();
    for (std::uint32_t number = 0; number < connections_.size(); ++number) {
      const Connection& connection = connections_[number];
      if (connection.state == State::kConnecting) {
        if (now - connection.since_ns > nanoseconds{config_.connect_timeout}.count()) {
          disconnect(number, AnswerKind::kConnectFailed, now);
        }
      } else if (connection.in_flight() > 0) {
        const Flight& oldest = connection.flights[connection.answered];
        if (now - oldest.sent_ns > nanoseconds{config_.answer_timeout}.count()) {
          disconnect(number, AnswerKind::kNoAnswer, now);
        }
      }
    }
  }

  void close_all() {
    for (Connection& connection : connections_) {
      if (connection.fd >= 0) ::close(connection.fd);
      connection.fd = -1;
      connection.state = State::kClosed;
    }
  }

  // ---------------------------------------------------------------- answers

  /// Writes an answer (or its absence) down.
  void note(const Flight& flight, const Answer& answer, std::uint32_t order, std::int64_t now) {
    const Ask ask = ask_of(flight.step);
    const std::int64_t waited = open_loop_ ? (flight.sent_ns - flight.due_ns) / 1000 : 0;
    out_.history.add(
        {.start_us = flight.sent_ns / 1000,
         // Rounded outwards, so that the checker never sees an answer before it was there.
         .end_us = (now + 999) / 1000,
         .member = plan_.members[flight.buyer],
         .expires_us = answer.expires_us,
         .key = config_.keys ? keys_[flight.buyer] : 0,
         .order = order,
         .waited_us = static_cast<std::uint32_t>(std::min<std::int64_t>(waited, UINT32_MAX)),
         .ask = ask,
         .answer = answer.kind,
         .status = answer.status,
         .final = answer.final});
    auto& counts = ask == Ask::kPurchase ? tally_.purchases : tally_.orders;
    ++counts[static_cast<std::size_t>(answer.kind)];
    if (answer.kind == AnswerKind::kConnectFailed || answer.kind == AnswerKind::kCut ||
        answer.kind == AnswerKind::kNoAnswer) {
      return;
    }
    // Against coordinated omission: by the clock, the wait for a free connection is part of the
    // answer's time.
    const nanoseconds took{now - (open_loop_ ? flight.due_ns : flight.sent_ns)};
    recent_.record(took);
    if (ask != Ask::kPurchase) {
      out_.payments.record(took);
      return;
    }
    out_.all.record(took);
    switch (answer.kind) {
      case AnswerKind::kGranted:
        out_.grants.record(took);
        break;
      case AnswerKind::kSoldOut:
        if (answer.final) ++tally_.sold_out_final;
        [[fallthrough]];
      case AnswerKind::kAlready:
      case AnswerKind::kClosed:
        out_.refusals.record(took);
        break;
      default:
        break;
    }
  }

  void finish(const Flight& flight, const Answer& answer, std::int64_t now) {
    Buyer& buyer = buyers_[flight.buyer];
    std::uint32_t order = out_.history.number_of(answer.order);
    if (order == 0 && ask_of(flight.step) != Ask::kPurchase) order = buyer.order;
    note(flight, answer, order, now);
    const bool held = answer.kind == AnswerKind::kGranted || answer.kind == AnswerKind::kAlready;
    if (flight.step == Step::kAskAgain && (held || answer.kind == AnswerKind::kSoldOut)) {
      ++tally_.asked_again;
      if (order == buyer.order) ++tally_.asked_again_same;
    }
    // A read may lead on to the order that this one was merged into.
    if (order != 0 && (held || answer.kind == AnswerKind::kOrder)) buyer.order = order;
    if (answer.kind == AnswerKind::kOrder && answer.payable) {
      prices_[flight.buyer] = {answer.amount, answer.currency};
    }
    const Move move = decide(flight.step, answer, manners_, now, clock_.now(), buyer, random_);
    if (move.step == Step::kDone) {
      ++tally_.done;
      prices_.erase(flight.buyer);
    } else {
      later_.push({now + move.wait.count(), flight.buyer, move.step});
    }
  }

  /// What is still under way when a bound is met may be decided later: the checker must know of it.
  void abandon(std::int64_t now) {
    const std::lock_guard lock(mutex_);
    Answer none;
    none.kind = AnswerKind::kNoAnswer;
    for (const Connection& connection : connections_) {
      for (std::size_t i = connection.answered; i < connection.flights.size(); ++i) {
        const Flight& flight = connection.flights[i];
        note(flight, none, ask_of(flight.step) == Ask::kPurchase ? 0 : buyers_[flight.buyer].order,
             now);
      }
    }
  }

  const RushConfig& config_;
  const Target& target_;
  const WorkerPlan plan_;
  const common::Clock& clock_;
  const bool open_loop_;
  const std::size_t depth_;
  const Manners manners_;
  Random random_;
  std::vector<Buyer> buyers_;        ///< one for each wanted unit
  std::vector<std::uint32_t> keys_;  ///< by buyer, numbers of History::text, made at first use
  std::unordered_map<std::uint32_t, Price> prices_;  ///< of buyers who are about to pay
  std::vector<Connection> connections_;              ///< those at work, then the idle ones
  std::deque<std::uint32_t> free_;  ///< connections with room, the longest unused first
  std::deque<Resting> resting_;     ///< rising, since all rest equally long
  std::deque<Due> ready_;
  std::priority_queue<Later, std::vector<Later>, std::greater<>> later_;
  std::size_t next_arrival_ = 0;
  std::uint32_t next_fresh_ = 0;         ///< closed loop: the next buyer who has not been served
  std::string tokens_;                   ///< one after the other
  std::vector<std::size_t> token_ends_;  ///< empty: made on the fly
  std::unique_ptr<char[]> scratch_;
  const std::string purchase_head_;
  std::string out_buffer_;
  std::string decoded_;
  AnswerReader reader_;
  std::array<epoll_event, kEventsAtOnce> events_{};
  int epoll_ = -1;
  std::size_t opening_ = 0;
  std::size_t opened_ = 0;
  bool preparing_ = false;
  std::int64_t start_ns_ = 0;
  std::int64_t next_sweep_ = 0;
  Results out_;

  // Held while the worker handles what came, never while it waits; the display asks once in a
  // while.
  std::mutex mutex_;
  Tally tally_;              // Guarded by mutex_ for the display; written by the worker only.
  LatencyHistogram recent_;  // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<Worker> make_worker(const RushConfig& config, const Target& target, WorkerPlan plan,
                                    const common::Clock& clock) {
  return std::make_unique<EpollWorker>(config, target, std::move(plan), clock);
}

}  // namespace doorbuster::rush

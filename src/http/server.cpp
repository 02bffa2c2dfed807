#include "http/server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "common/log.hpp"
#include "common/random.hpp"
#include "common/sanitizer.hpp"
#include "common/text.hpp"
#include "http/answer.hpp"
#include "http/parser.hpp"
#include "http/poller.hpp"
#include "http/rare_bytes.hpp"
#include "http/tls.hpp"

namespace doorbuster::http {
namespace {

using common::ErrorCode;
using common::fail;
using common::Steady;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Asio waits for the listening socket and for our own epoll set (poller.hpp); the system calls are
// made here, so that it can be seen how many there are.
using IoContext = boost::asio::io_context;
using Descriptor = boost::asio::posix::basic_stream_descriptor<IoContext::executor_type>;
using Timer = boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                                boost::asio::wait_traits<std::chrono::steady_clock>,
                                                IoContext::executor_type>;
using boost::system::error_code;

constexpr std::size_t kReadSize = std::size_t{64} * 1024;
/// No further request is read while more than this is unsent.
constexpr std::size_t kMaxUnsent = std::size_t{256} * 1024;
/// A loop's output buffer that grew beyond this for one answer is given back.
constexpr std::size_t kKeptOutput = std::size_t{1024} * 1024;
/// Where no route sets another limit.
constexpr std::size_t kDefaultMaxBody = std::size_t{16} * 1024;
/// How long we listen for the client's end after ours. Closing at once, with its bytes unread,
/// would send a reset, which can throw away the answer that it has not read yet.
constexpr milliseconds kLingerTime{1000};
constexpr milliseconds kEventInterval{1000};
constexpr int kAcceptBurst = 128;
constexpr int kBacklog = 4096;
/// After an error such as "too many open files".
constexpr milliseconds kAcceptPause{100};
constexpr seconds kAcceptLogInterval{10};
/// Connections beyond max_connections that are being told so; more are closed without a word.
constexpr std::size_t kMaxRefusedOpen = 256;

enum class Refused : std::uint8_t {
  kConnections,
  kMalformed,
  kBodyTooLarge,
  kTargetTooLong,
  kExpectation,
  kHeadersTooLarge,
  kMethod,
  kVersion,
  kEventStreams,
  kAcceptError,
};
constexpr std::array<const char*, 10> kRefusedNames{
    "connections",       "malformed", "body_too_large", "target_too_long", "expectation",
    "headers_too_large", "method",    "version",        "event_streams",   "accept_error"};

Refused refused_by(int status) noexcept {
  switch (status) {
    case 413:
      return Refused::kBodyTooLarge;
    case 414:
      return Refused::kTargetTooLong;
    case 417:
      return Refused::kExpectation;
    case 431:
      return Refused::kHeadersTooLarge;
    case 501:
      return Refused::kMethod;
    case 505:
      return Refused::kVersion;
    default:
      return Refused::kMalformed;
  }
}

enum class Timeout : std::uint8_t { kHeader, kBody, kIdle, kWrite, kRequest };
constexpr std::array<const char*, 5> kTimeoutNames{"header", "body", "idle", "write", "request"};

/// The server's counters, looked up by place and not by name.
class Figures {
 public:
  Figures(common::Metrics& metrics, const Router& router)
      : metrics_(metrics),
        connections_(metrics.gauge("http_connections", "Open connections")),
        by_status_(router.size() + 1) {
    for (std::size_t i = 0; i < router.size(); ++i) {
      const Route& route = router.at(i);
      names_.push_back(std::string(to_string(route.method)) + ' ' + route.pattern);
      seconds_.push_back(&metrics.histogram(
          "http_request_seconds", "Time from a request's last byte to its handler's answer",
          common::time_buckets(), {{"route", names_.back()}}));
    }
    names_.emplace_back("none");
    for (const char* const reason : kRefusedNames) {
      refused_.push_back(&metrics.counter("http_refused_total",
                                          "What the server refused by itself, by reason",
                                          {{"reason", reason}}));
    }
    for (const char* const kind : kTimeoutNames) {
      timeouts_.push_back(
          &metrics.counter("http_timeouts_total", "Timeouts, by kind", {{"kind", kind}}));
    }
  }

  /// `route` is its number, or the number of routes where none matched.
  void answered(std::size_t route, int status) {
    // Found in the registry once; two loops that do so at the same time find the same counter.
    std::atomic<common::Counter*>& place = by_status_[route][static_cast<std::size_t>(status)];
    common::Counter* counter = place.load(std::memory_order_acquire);
    if (counter == nullptr) {
      counter = &metrics_.counter("http_requests_total", "Answered requests, by route and status",
                                  {{"route", names_[route]}, {"status", std::to_string(status)}});
      place.store(counter, std::memory_order_release);
    }
    counter->add();
  }
  void took(std::size_t route, Steady began, Steady ended) {
    seconds_[route]->observe(std::chrono::duration<double>(ended - began).count());
  }
  void refused(Refused reason) { refused_[static_cast<std::size_t>(reason)]->add(); }
  void timed_out(Timeout kind) { timeouts_[static_cast<std::size_t>(kind)]->add(); }
  void connections(std::size_t open) { connections_.set(static_cast<double>(open)); }

 private:
  common::Metrics& metrics_;
  common::Gauge& connections_;
  std::vector<std::string> names_;
  std::vector<std::array<std::atomic<common::Counter*>, 600>> by_status_;
  std::vector<common::Histogram*> seconds_;
  std::vector<common::Counter*> refused_;
  std::vector<common::Counter*> timeouts_;
};

/// What all loops share. Lives as long as the last connection, since a handler may end after the
/// server.
struct Shared {
  Shared(const ServerConfig& settings, const Router& routes, common::Metrics& metrics)
      : config(settings),
        limits{settings.max_header_bytes, settings.max_target_bytes},
        router(routes),
        figures(metrics, routes) {
    std::array<std::uint8_t, 4> random{};
    common::fill_random(random);
    id_prefix = common::hex_encode(random);
  }

  /// One connection less of this kind. The last one wakes stop().
  void left(std::atomic<std::size_t>& kind) {
    // Under the mutex, so that stop() cannot look between the count and the wake-up.
    const std::lock_guard lock(mutex);
    --kind;
    changed.notify_all();
  }

  const ServerConfig config;
  const ParserLimits limits;
  const Router& router;
  Figures figures;
  std::unique_ptr<TlsContext> tls;
  std::string id_prefix;
  // Sequentially consistent, all of them: they change once per connection or stream, not per
  // request.
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> refused_open{0};
  std::atomic<std::size_t> event_streams{0};
  std::mutex mutex;
  std::condition_variable changed;
};

/// Takes a fast handler's answer.
class PreparedOutput final : public FastOutput {
 public:
  explicit PreparedOutput(std::string& out) : out_(out) {}
  void begin(const AnswerFrame& frame) {
    frame_ = frame;
    status_ = 0;
  }
  void answer(int status, std::string_view head, std::string_view body) override {
    DOORBUSTER_ENSURE(status_ == 0, "a fast handler answers once");
    DOORBUSTER_ENSURE(status >= 200 && status <= 599, "a fast handler answers with a final status");
    status_ = status;
    append_prepared(out_, head, body, frame_);
  }
  /// 0: no answer yet.
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  std::string& out_;
  AnswerFrame frame_;
  int status_ = 0;
};

// Without the library's cancellation points, of which each costs two atomic operations. A sanitizer
// must see the calls: it learns from them what happened before what.
ssize_t receive_bytes(int socket, char* bytes, std::size_t size) noexcept {
  if constexpr (common::kSanitized) return ::recv(socket, bytes, size, MSG_DONTWAIT);
  return ::syscall(SYS_recvfrom, socket, bytes, size, MSG_DONTWAIT, nullptr, nullptr);
}
ssize_t send_bytes(int socket, const char* bytes, std::size_t size) noexcept {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if constexpr (common::kSanitized) return ::send(socket, bytes, size, kFlags);
  return ::syscall(SYS_sendto, socket, bytes, size, kFlags, nullptr, 0);
}

/// Owns a socket until somebody else does.
class OwnedSocket {
 public:
  explicit OwnedSocket(int socket) : socket_(socket) {}
  ~OwnedSocket() {
    if (socket_ >= 0) ::close(socket_);
  }
  OwnedSocket(OwnedSocket&& other) noexcept : socket_(other.release()) {}
  OwnedSocket& operator=(OwnedSocket&&) = delete;
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;
  [[nodiscard]] int get() const noexcept { return socket_; }
  int release() noexcept { return std::exchange(socket_, -1); }

 private:
  int socket_;
};

/// A client's address without port, as short as it can be kept.
struct Peer {
  std::array<std::uint8_t, 16> address{};  ///< IPv4: the first four
  bool v4 = true;

  explicit Peer(const sockaddr_storage& from) noexcept {
    if (from.ss_family == AF_INET) {
      sockaddr_in one{};
      std::memcpy(&one, &from, sizeof one);
      std::memcpy(address.data(), &one.sin_addr, sizeof one.sin_addr);
      return;
    }
    sockaddr_in6 one{};
    std::memcpy(&one, &from, sizeof one);
    const std::uint8_t* const bytes = one.sin6_addr.s6_addr;
    v4 = IN6_IS_ADDR_V4MAPPED(&one.sin6_addr);
    std::copy_n(v4 ? bytes + 12 : bytes, v4 ? 4 : 16, address.begin());
  }
  /// IPv4 in IPv6's clothes is shown as IPv4.
  [[nodiscard]] std::string text() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(v4 ? AF_INET : AF_INET6, address.data(), text.data(), text.size());
    return text.data();
  }
};

class Connection;

/// One loop's share of the server. Everything here is only touched on that loop.
class LoopPart : public std::enable_shared_from_this<LoopPart> {
 public:
  LoopPart(std::shared_ptr<Shared> shared, common::Loop& loop, std::size_t number)
      : shared_(std::move(shared)),
        loop_(loop),
        ready_(loop.io(), poller_.descriptor()),
        timer_(loop.io()),
        first_(number == 0) {
    const std::string prefix = shared_->id_prefix + '-' + std::to_string(number) + '-';
    id_prefix_size_ = prefix.copy(id_.data(), id_.size() - 16);
    const ServerConfig& c = shared_->config;
    const milliseconds shortest = std::min(
        {c.header_timeout, c.body_timeout, c.idle_timeout, c.write_timeout, c.request_timeout});
    // A tenth late at most, where timeouts are short; for the usual ones, 100 ms.
    interval_ = std::clamp(shortest / 10, milliseconds{5}, milliseconds{100});
    refresh_date();
  }

  void start() {
    arm_sweep();
    wait_ready();
  }
  void adopt(OwnedSocket socket, const Peer& peer, bool room);
  void stop_gracefully();
  void close_all();

  [[nodiscard]] Shared& shared() noexcept { return *shared_; }
  [[nodiscard]] common::Loop& loop() noexcept { return loop_; }
  [[nodiscard]] Steady now() const noexcept { return loop_.clock().steady(); }
  /// For deadlines: when the work at hand began, or now.
  [[nodiscard]] Steady recently() const noexcept { return working_ ? work_began_ : now(); }
  [[nodiscard]] std::string_view date() const noexcept { return date_; }

  /// A fresh request id; valid until the next one.
  std::string_view make_request_id() noexcept {
    char* const number = id_.data() + id_prefix_size_;
    const auto end = std::to_chars(number, id_.data() + id_.size(), next_id_++, 16).ptr;
    return {id_.data(), static_cast<std::size_t>(end - id_.data())};
  }

  std::uint32_t add(std::shared_ptr<Connection> connection) {
    connections_.push_back(std::move(connection));
    deadlines_.push_back(Steady::max());
    return static_cast<std::uint32_t>(connections_.size() - 1);
  }
  void remove(std::size_t slot);
  /// False: the kernel watches no more sockets for us.
  [[nodiscard]] bool watch(int socket, Connection& connection) noexcept {
    return poller_.add(socket, &connection);
  }
  void unwatch(int socket) noexcept { poller_.remove(socket); }
  /// Has the connection told once more, soon, that it is readable.
  void read_later(std::shared_ptr<Connection> connection);
  void set_deadline(std::size_t slot, Steady at) noexcept { deadlines_[slot] = at; }

  /// The router's answer; good until the next one. In a rush it is the same one each time.
  const Router::Match& find_route(Method method, std::string_view path) {
    if (match_.route == nullptr || method != matched_method_ || path != matched_path_) {
      matched_path_.assign(path);
      matched_method_ = method;
      // Of our copy, which the match's views then point into.
      match_ = shared_->router.find(method, matched_path_);
    }
    return match_;
  }

  /// Shared by the loop's connections, of which one works at a time: idle ones own no buffers.
  std::vector<char> input = std::vector<char>(kReadSize);
  std::vector<char> plain;  ///< with TLS: what `input` says
  std::string out;          ///< answers of the connection that works; empty between two
  std::string cipher;       ///< with TLS: `out`, sealed
  RequestView view;
  PreparedOutput prepared{out};
  Connection* active = nullptr;  ///< the one that works, if any

 private:
  void wait_ready() {
    ready_.async_wait(Descriptor::wait_read, [self = shared_from_this()](const error_code& error) {
      if (error || self->closed_) return;
      self->take_events();
      self->wait_ready();
    });
  }
  void take_events();
  void take_later();
  template <class F>
  void work(F function);

  void arm_sweep() {
    timer_.expires_after(interval_);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->sweep();
    });
  }
  void sweep();
  void refresh_date() {
    const common::Instant at = loop_.clock().now();
    const auto second = std::chrono::floor<seconds>(at);
    if (second == date_second_) return;
    date_second_ = second;
    date_ = http_date(at);
  }

  const std::shared_ptr<Shared> shared_;
  common::Loop& loop_;
  Poller poller_;
  Descriptor ready_;  ///< owns the poller's descriptor
  Timer timer_;
  const bool first_;
  bool working_ = false;  ///< events are being handed out
  Steady work_began_{};
  // Closed while events are handed out, of which one may still name them.
  std::vector<std::shared_ptr<Connection>> gone_;
  std::vector<std::shared_ptr<Connection>> later_;
  milliseconds interval_{};
  bool closed_ = false;
  // Apart from the connections: a sweep over tens of thousands reads one short array.
  std::vector<Steady> deadlines_;
  std::vector<std::shared_ptr<Connection>> connections_;
  Router::Match match_;
  Method matched_method_ = Method::kGet;
  std::string matched_path_;
  std::string date_;
  std::chrono::sys_seconds date_second_{};
  std::array<char, 48> id_{};  ///< begins with what is the same in all ids of this loop
  std::size_t id_prefix_size_ = 0;
  std::uint64_t next_id_ = 1;
};

/// One client. Lives on its loop; held by the loop's list, its waits and its running handler.
///
/// C1: answers leave in the order of the requests: while a handler runs or a stream is open, no
///     further request is begun.
/// C2: one write per read, however many requests that read brought.
/// C3: at most kMaxUnsent and one answer wait to be sent; then nothing is read or begun.
/// C4: a handler runs to its end whatever becomes of the connection.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  /// `room`: it is one of `connections`, and not of `refused_open`.
  Connection(std::shared_ptr<LoopPart> part, OwnedSocket socket, const Peer& peer,
             std::unique_ptr<TlsSession> tls, bool room)
      : part_(std::move(part)),
        tls_(std::move(tls)),
        socket_(std::move(socket)),
        peer_(peer),
        room_(room) {}

  /// Once, right after construction.
  void start() {
    if (!enter()) return;
    // A client of TLS has the time of a header for its handshake.
    wanted_ = tls_ ? Phase::kHead : Phase::kIdle;
    progressed_ = true;
    settle();
  }

  /// Instead of start(): one connection too many.
  void start_refused() {
    if (!enter()) return;
    const Working working(*this);
    refuse(error_response(kBusy, Language::kEnglish), {});
    flush();
    settle();
  }

  /// read_later()'s answer.
  void on_later() {
    told_later_ = false;
    on_events(0);
  }

  /// What the poller says of the socket.
  void on_events(std::uint32_t events) {
    if (closed_) return;
    if ((events & Poller::kReadable) != 0) readable_ = true;
    if ((events & Poller::kNearEnd) != 0) end_is_near_ = true;
    const Working working(*this);
    if ((events & Poller::kWritable) != 0 && !pending_.empty()) on_writable();
    if (readable_ && listens()) receive();
    settle();
  }

  void expire(Steady now);
  void stop_gracefully();
  void close();

  /// A handler's answer, on the loop. `ticket` is the one that the handler was started with.
  void answered(std::uint32_t ticket, Response response) {
    if (part_->active == this) {
      // The handler never waited: process() is below us on the stack and goes on by itself.
      take_answer(ticket, std::move(response));
    } else if (part_->active != nullptr) {
      // Another connection's handler resumed ours in place; the loop's buffers are in use.
      boost::asio::post(part_->loop().io(),
                        [self = shared_from_this(), ticket, later = std::move(response)]() mutable {
                          self->answered(ticket, std::move(later));
                        });
    } else {
      const Working working(*this);
      take_answer(ticket, std::move(response));
      pump();
    }
  }

 private:
  enum class Phase : std::uint8_t {
    kIdle,     ///< between two requests
    kHead,     ///< a request's head is incomplete
    kBody,     ///< its body is
    kHandler,  ///< a handler runs
    kStream,   ///< an event stream is open
    kLinger,   ///< our side is closed, the client's not yet
  };

  /// Marks the connection that uses the loop's buffers.
  class Working {
   public:
    explicit Working(Connection& connection) : part_(*connection.part_) {
      DOORBUSTER_ENSURE(part_.active == nullptr, "one connection of a loop works at a time");
      part_.active = &connection;
    }
    ~Working() { part_.active = nullptr; }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;

   private:
    LoopPart& part_;
  };

  /// What is needed once the handler has answered.
  struct InFlight {
    std::string request_id;
    std::size_t route = 0;
    Steady began;
    bool close = false;
    bool head_only = false;
    bool chunks_allowed = true;
    Language language = Language::kEnglish;
  };
  struct Stream {
    std::function<std::optional<std::string>()> events;
    bool chunked = true;
    bool close = false;
  };
  struct Body {
    ChunkedBody chunks;
    std::string decoded;
  };

  [[nodiscard]] Shared& shared() noexcept { return part_->shared(); }
  [[nodiscard]] Figures& figures() noexcept { return part_->shared().figures; }
  [[nodiscard]] std::size_t unrouted() noexcept { return part_->shared().router.size(); }
  [[nodiscard]] std::size_t unsent() const noexcept { return pending_.size(); }
  [[nodiscard]] bool engaged() const noexcept {
    return in_flight_ != nullptr || stream_ != nullptr;
  }
  [[nodiscard]] bool may_begin() const noexcept { return !engaged() && !closing_ && !closed_; }

  // --- reading ---

  [[nodiscard]] bool enter() {
    slot_ = part_->add(shared_from_this());
    if (part_->watch(socket_.get(), *this)) return true;
    figures().refused(Refused::kAcceptError);
    close();
    return false;
  }

  /// Whether what the client sends is of use now; otherwise it waits in the kernel.
  [[nodiscard]] bool listens() const noexcept {
    if (closed_ || ended_) return false;
    if (phase_ == Phase::kLinger) return true;
    return in_flight_ == nullptr && !closing_ && unsent() <= kMaxUnsent &&
           (stream_ == nullptr || in_.empty());
  }

  /// One system call, and all that follows from what it brought.
  void receive() {
    std::vector<char>& input = part_->input;
    const ssize_t got = receive_bytes(socket_.get(), input.data(), input.size());
    if (got < 0) {
      if (errno == EINTR) return;
      readable_ = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) close();
      return;
    }
    // A short read has emptied the socket, and what comes later is told by another edge.
    if (static_cast<std::size_t>(got) < input.size() && !end_is_near_) readable_ = false;
    if (got == 0) return on_end();
    if (phase_ == Phase::kLinger) return;  // nobody will answer that
    const std::string_view bytes(input.data(), static_cast<std::size_t>(got));
    if (tls_) {
      tls_->feed(bytes);
      pump();
    } else {
      work(bytes);
    }
  }

  /// The client will send nothing more. It may still read: what was asked before gets its answer.
  void on_end() {
    ended_ = true;
    readable_ = false;
    if (stream_ || (pending_.empty() && in_flight_ == nullptr)) close();
  }

  /// Goes on with whatever has arrived already.
  void pump() {
    work({});
    if (!tls_) return settle();
    part_->plain.resize(kReadSize);
    while (!closed_ && !closing_ && in_flight_ == nullptr && unsent() <= kMaxUnsent) {
      if (stream_ && !in_.empty()) break;
      std::size_t size = 0;
      const TlsSession::State state = tls_->read(part_->plain, size);
      if (size > 0) {
        tls_open_ = true;
        work({part_->plain.data(), size});
        continue;
      }
      flush();  // the handshake's next step, or the alert that says what was wrong
      if (state == TlsSession::State::kClosed && !closed_) on_end();
      if (state == TlsSession::State::kFailed) close();
      break;
    }
    settle();
  }

  /// Answers what it can of `fresh`, behind what was left over before, and keeps the rest.
  void work(std::string_view fresh) {
    if (closed_ || closing_) return flush();
    const bool kept = !in_.empty();
    if (kept) in_.append(fresh);
    const std::string_view data = kept ? in_.view() : fresh;
    wanted_ = tls_ && !tls_open_ ? Phase::kHead : Phase::kIdle;
    std::size_t used = 0;
    bool blocked = false;
    do {
      used += process(data.substr(used), blocked);
      flush();
    } while (blocked && !closed_ && unsent() <= kMaxUnsent);

    if (!kept && used == data.size()) return;
    if (closed_ || closing_) {
      in_.clear();
    } else if (kept) {
      in_.remove_prefix(used);
    } else {
      in_.append(data.substr(used));
    }
  }

  /// Begins as many requests as it may. Returns how many bytes they had. `blocked` becomes true
  /// when it stopped because of too much output (C3).
  std::size_t process(std::string_view data, bool& blocked) {
    std::size_t used = 0;
    blocked = false;
    while (used < data.size() && may_begin()) {
      if (part_->out.size() + unsent() > kMaxUnsent) {
        blocked = true;
        break;
      }
      const std::size_t size = process_one(data.substr(used));
      if (size == 0) break;
      used += size;
      progressed_ = true;
    }
    return used;
  }

  /// The size of the request at the front of `data`; 0 when more of it must come first.
  std::size_t process_one(std::string_view data) {
    RequestView& view = part_->view;
    const Head head = parse_head(data, shared().limits, view);
    if (head.state == ParseState::kNeedMore) {
      wanted_ = Phase::kHead;
      return 0;
    }
    if (head.state == ParseState::kRefused) {
      return refuse_bytes(head.status, head.reason, data);
    }
    const Router::Match& match = part_->find_route(view.method, view.path);
    const std::size_t max_body = match.route != nullptr ? match.route->max_body : kDefaultMaxBody;
    if (head.content_length > max_body) return refuse_bytes(413, {}, data);

    const std::string_view rest = data.substr(head.bytes);
    std::size_t body_bytes = head.content_length;
    bool whole = rest.size() >= head.content_length;
    if (head.chunked) {
      if (!body_) body_ = std::make_unique<Body>();
      parse_chunked(rest, max_body, body_->chunks, body_->decoded);
      if (body_->chunks.state == ParseState::kRefused) {
        if (body_->chunks.too_large) return refuse_bytes(413, {}, data);
        return refuse_bytes(400, "The chunked body is malformed.", data);
      }
      whole = body_->chunks.state == ParseState::kDone;
      body_bytes = body_->chunks.consumed;
      view.body = body_->decoded;
    } else if (whole) {
      view.body = rest.substr(0, head.content_length);
    }
    if (!whole) {
      if (head.expect_continue && rest.empty() && !continued_) {
        // It waits for a word before it sends the body. Where the answer does not depend on the
        // body, that word is the answer.
        if (match.refusal != nullptr) {
          dispatch(match, head, true);
          return data.size();
        }
        part_->out += "HTTP/1.1 100 Continue\r\n\r\n";
        continued_ = true;
      }
      wanted_ = Phase::kBody;
      return 0;
    }
    dispatch(match, head, false);
    body_.reset();
    continued_ = false;
    return head.bytes + body_bytes;
  }

  void dispatch(const Router::Match& match, const Head& head, bool body_missing) {
    RequestView& view = part_->view;
    if (view.request_id.empty()) view.request_id = part_->make_request_id();
    const AnswerFrame frame{.date = part_->date(),
                            .request_id = view.request_id,
                            .close = !view.keep_alive || body_missing || shared().stopping,
                            .head_only = view.method == Method::kHead};
    if (match.route == nullptr) {
      Response response = error_response(*match.refusal, view.language);
      if (!match.allow.empty()) response.headers.emplace_back("Allow", match.allow);
      return answer_now(unrouted(), response, frame);
    }
    if (match.route->fast) {
      PreparedOutput& prepared = part_->prepared;
      prepared.begin(frame);
      const bool done =
          match.route->fast(view, std::span(match.params).first(match.param_count), prepared);
      DOORBUSTER_ENSURE(done == (prepared.status() != 0),
                        "a fast handler answers exactly when it returns true");
      if (done) {
        figures().answered(match.index, prepared.status());
        closing_ = closing_ || frame.close;
        return;
      }
    }
    Request request(view, part_->loop(), peer_.text());
    if (!Router::fill(request, match)) {
      return answer_now(match.index, error_response(kInvalidParameter, view.language), frame);
    }
    in_flight_ = std::make_unique<InFlight>(InFlight{.request_id = std::string(view.request_id),
                                                     .route = match.index,
                                                     .began = part_->now(),
                                                     .close = frame.close,
                                                     .head_only = frame.head_only,
                                                     .chunks_allowed = !head.version_1_0,
                                                     .language = view.language});
    common::start(run(shared_from_this(), ++ticket_, match.route, std::move(request)));
  }

  /// Keeps the connection until the handler has ended (C4).
  static common::Task<void> run(std::shared_ptr<Connection> connection, std::uint32_t ticket,
                                const Route* route, Request request) {
    common::ResumeOn home{request.home()};
    common::Task<Response> task = route->handler(std::move(request));
    Response response = co_await task;
    co_await home;
    connection->answered(ticket, std::move(response));
  }

  // --- answering ---

  void answer_now(std::size_t route, const Response& response, const AnswerFrame& frame) {
    append_answer(part_->out, response, frame);
    figures().answered(route, response.status);
    closing_ = closing_ || frame.close;
  }

  void take_answer(std::uint32_t ticket, Response response) {
    // The server has answered in its place already (request_timeout).
    if (ticket != ticket_ || in_flight_ == nullptr) return;
    const std::unique_ptr<InFlight> done = std::move(in_flight_);
    progressed_ = true;
    figures().took(done->route, done->began, part_->now());
    if (!is_sendable(response)) {
      common::log(common::LogLevel::kError, "http_unsendable_answer",
                  {{"route", shared().router.at(done->route).pattern},
                   {"status", std::int64_t{response.status}}});
      response = error_response(kInternalError, done->language);
    }
    if (response.events && !done->head_only && !take_stream_place()) {
      figures().refused(Refused::kEventStreams);
      response = error_response(kBusy, done->language);
    }
    if (closed_) {
      if (response.events && !done->head_only) --shared().event_streams;
      figures().answered(done->route, response.status);
      return;
    }
    const bool stops = shared().stopping;
    AnswerFrame frame{.date = part_->date(),
                      .request_id = done->request_id,
                      .close = done->close || stops,
                      .head_only = done->head_only};
    if (!response.events) return answer_now(done->route, response, frame);

    // Without chunks only the end of the connection ends the stream.
    frame.close = frame.close || !done->chunks_allowed;
    append_stream_head(part_->out, response, frame, done->chunks_allowed);
    figures().answered(done->route, response.status);
    if (done->head_only) {
      closing_ = closing_ || frame.close;
      return;
    }
    stream_ = std::make_unique<Stream>(Stream{.events = std::move(response.events),
                                              .chunked = done->chunks_allowed,
                                              .close = frame.close});
    if (stops) {
      end_stream();
    } else {
      next_event();
    }
  }

  [[nodiscard]] bool take_stream_place() {
    if (++shared().event_streams <= shared().config.max_event_streams) return true;
    --shared().event_streams;
    return false;
  }

  void next_event() {
    const std::optional<std::string> event = stream_->events();
    if (!event) return end_stream();
    const std::string_view data = event->empty() ? std::string_view(": \n\n") : *event;
    if (stream_->chunked) {
      append_chunk(part_->out, data);
    } else {
      part_->out += data;
    }
  }

  void end_stream() {
    if (stream_->chunked) part_->out += kLastChunk;
    closing_ = closing_ || stream_->close || shared().stopping;
    drop_stream();
    progressed_ = true;
  }

  void drop_stream() {
    if (!stream_) return;
    stream_.reset();
    --shared().event_streams;
  }

  /// An answer of the server's own, after which it listens no more.
  void refuse(const Response& response, std::string_view request_id) {
    answer_now(unrouted(), response,
               {.date = part_->date(), .request_id = request_id, .close = true});
    in_.clear();
  }

  /// Refuses the request at the front of `data`, and with it all the rest.
  std::size_t refuse_bytes(int status, std::string_view reason, std::string_view data) {
    figures().refused(refused_by(status));
    const RequestView& view = part_->view;
    AnswerFrame frame{.date = part_->date(),
                      .request_id = view.request_id,
                      .close = true,
                      .head_only = view.method == Method::kHead};
    if (frame.request_id.empty()) frame.request_id = part_->make_request_id();
    answer_now(unrouted(), refuse_request(status, reason, view.language), frame);
    return data.size();
  }

  // --- writing ---

  /// Sends what the loop's output buffer holds; what the kernel does not take is kept.
  void flush() {
    std::string& out = part_->out;
    if (!closed_) {
      if (!tls_) {
        send(out);
      } else if (tls_->write(out)) {
        part_->cipher.clear();
        tls_->take_output(part_->cipher);
        send(part_->cipher);
      } else {
        close();
      }
    }
    out.clear();
    if (out.capacity() > kKeptOutput) out.shrink_to_fit();
    if (part_->cipher.capacity() > kKeptOutput) part_->cipher = std::string();
  }

  void send(std::string_view bytes) {
    if (bytes.empty()) return;
    if (!pending_.empty()) return pending_.append(bytes);
    const std::size_t sent = send_some(bytes);
    if (closed_ || sent == bytes.size()) return;
    pending_.append(bytes.substr(sent));
    write_deadline_ = part_->recently() + shared().config.write_timeout;
  }

  /// One system call. Closes the connection when the client is gone.
  std::size_t send_some(std::string_view bytes) {
    const ssize_t sent = send_bytes(socket_.get(), bytes.data(), bytes.size());
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) close();
    return 0;
  }

  void on_writable() {
    const std::size_t sent = send_some(pending_.view());
    if (closed_) return;
    if (sent > 0) write_deadline_ = part_->recently() + shared().config.write_timeout;
    pending_.remove_prefix(sent);
    if (pending_.empty()) progressed_ = true;
    pump();
  }

  // --- what comes next ---

  /// Chooses what to wait for, and until when. Last in whatever changed something; harmless twice.
  void settle() {
    if (closed_) return;
    if (pending_.empty() && phase_ != Phase::kLinger) {
      if (ended_ && !engaged()) return close();
      // A stop waits for what has begun, and for nothing else.
      if (shared().stopping && may_begin() && in_.empty()) closing_ = true;
      if (closing_) return linger();
    }
    if (readable_ && !told_later_ && listens()) {
      told_later_ = true;
      part_->read_later(shared_from_this());
    }

    if (phase_ != Phase::kLinger) {
      const Phase next = in_flight_ ? Phase::kHandler : stream_ ? Phase::kStream : wanted_;
      if (next != phase_ || progressed_) {
        phase_ = next;
        phase_deadline_ = part_->recently() + time_for(next);
      }
    }
    progressed_ = false;
    set_deadline();
  }

  void set_deadline() {
    Steady at = phase_deadline_;
    if (!pending_.empty()) {
      // As long as the client takes its answers it is not idle.
      at = phase_ == Phase::kIdle ? write_deadline_ : std::min(at, write_deadline_);
    }
    part_->set_deadline(slot_, at);
  }

  [[nodiscard]] milliseconds time_for(Phase phase) {
    const ServerConfig& config = shared().config;
    switch (phase) {
      case Phase::kIdle:
        return config.idle_timeout;
      case Phase::kHead:
        return config.header_timeout;
      case Phase::kBody:
        return config.body_timeout;
      case Phase::kHandler:
        return config.request_timeout;
      case Phase::kStream:
        return kEventInterval;
      case Phase::kLinger:
        return kLingerTime;
    }
    return config.idle_timeout;
  }

  /// All is sent: closes our side and waits a moment for the client to close its own.
  void linger() {
    if (tls_ && !said_goodbye_) {
      said_goodbye_ = true;
      tls_->close();
      flush();
      if (closed_) return;
      if (!pending_.empty()) return settle();
    }
    if (ended_ || ::shutdown(socket_.get(), SHUT_WR) != 0) return close();
    phase_ = Phase::kLinger;
    // Not from when the batch began, which may have taken as long.
    phase_deadline_ = part_->now() + kLingerTime;
    settle();
  }

  // The larger ones first: there may be tens of thousands of these.
  const std::shared_ptr<LoopPart> part_;
  const std::unique_ptr<TlsSession> tls_;
  RareBytes in_;       ///< arrived, but not begun yet
  RareBytes pending_;  ///< to be sent
  std::unique_ptr<Body> body_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<Stream> stream_;
  Steady phase_deadline_{};
  Steady write_deadline_{};
  OwnedSocket socket_;
  std::uint32_t slot_ = 0;  ///< place in the loop's list; the list moves it
  std::uint32_t ticket_ = 0;
  const Peer peer_;
  Phase phase_ = Phase::kIdle;
  Phase wanted_ = Phase::kIdle;  ///< the phase when nothing runs
  const bool room_;
  bool progressed_ = false;   ///< the phase's time begins anew
  bool readable_ = false;     ///< the socket may hold something that was not read yet
  bool told_later_ = false;   ///< it is in the loop's list of those that are
  bool end_is_near_ = false;  ///< the client will send no more than what the socket holds
  bool continued_ = false;    ///< "100 Continue" is on its way
  bool closing_ = false;      ///< the last answer is written: begin nothing more
  bool ended_ = false;        ///< the client has closed its side
  bool tls_open_ = false;     ///< the handshake is done
  bool said_goodbye_ = false;
  bool closed_ = false;

  friend class LoopPart;  // keeps slot_
};

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  const std::shared_ptr<Connection> self = shared_from_this();
  drop_stream();
  in_.clear();
  body_.reset();
  pending_.clear();
  part_->remove(slot_);
  part_->unwatch(socket_.get());
  ::close(socket_.release());
  shared().left(room_ ? shared().connections : shared().refused_open);
}

void Connection::expire(Steady now) {
  if (closed_) return;
  const Working working(*this);
  if (!pending_.empty() && write_deadline_ <= now) {
    figures().timed_out(Timeout::kWrite);
    return close();
  }
  if (phase_deadline_ > now) return settle();
  switch (phase_) {
    case Phase::kIdle:
      // While answers wait to be taken, only the time for that counts.
      if (!pending_.empty()) return settle();
      figures().timed_out(Timeout::kIdle);
      if (tls_open_) {
        closing_ = true;
        break;
      }
      return close();
    case Phase::kHead:
    case Phase::kBody:
      figures().timed_out(phase_ == Phase::kHead ? Timeout::kHeader : Timeout::kBody);
      // A handshake that does not end cannot be answered.
      if (tls_ && !tls_open_) return close();
      refuse(refuse_request(408, {}, Language::kEnglish), part_->make_request_id());
      break;
    case Phase::kHandler: {
      figures().timed_out(Timeout::kRequest);
      const std::unique_ptr<InFlight> late = std::move(in_flight_);
      ++ticket_;
      const AnswerFrame frame{.date = part_->date(),
                              .request_id = late->request_id,
                              .close = true,
                              .head_only = late->head_only};
      answer_now(late->route, error_response(kBusy, late->language), frame);
      in_.clear();
      break;
    }
    case Phase::kStream:
      phase_deadline_ = now + kEventInterval;
      // A client that does not take its events gets no more of them, and is closed by
      // write_timeout.
      if (stream_ && pending_.empty()) next_event();
      flush();
      // The end of the stream: what arrived meanwhile is next.
      if (!stream_) return pump();
      return settle();
    case Phase::kLinger:
      return close();
  }
  flush();
  settle();
}

void Connection::stop_gracefully() {
  if (closed_ || in_flight_ || phase_ == Phase::kLinger) return;
  const Working working(*this);
  if (stream_) {
    end_stream();
    flush();
    return settle();
  }
  if (tls_ && !tls_open_) return close();
  if (!pending_.empty() || !in_.empty()) return settle();
  // A request may have arrived already, unread; that one is in flight too.
  receive();
  settle();
}

void LoopPart::adopt(OwnedSocket socket, const Peer& peer, bool room) {
  std::atomic<std::size_t>& counted = room ? shared_->connections : shared_->refused_open;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::unique_ptr<TlsSession> session;
  if (shared_->tls && room) session = shared_->tls->make_session();
  if (closed_ || shared_->stopping || (shared_->tls && room && session == nullptr)) {
    shared_->left(counted);
    return;
  }
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket), peer,
                                                       std::move(session), room);
  if (room) {
    connection->start();
  } else {
    connection->start_refused();
  }
}

template <class F>
void LoopPart::work(F function) {
  work_began_ = now();
  working_ = true;
  function();
  working_ = false;
  gone_.clear();
}

void LoopPart::take_events() {
  work([this] {
    for (const epoll_event& event : poller_.take()) {
      static_cast<Connection*>(event.data.ptr)->on_events(event.events);
    }
  });
}

void LoopPart::read_later(std::shared_ptr<Connection> connection) {
  later_.push_back(std::move(connection));
  // Behind what is posted already: a client that sends without end must not keep others waiting.
  if (later_.size() == 1) {
    boost::asio::post(loop_.io(), [self = shared_from_this()] { self->take_later(); });
  }
}

void LoopPart::take_later() {
  work([this, now_due = std::exchange(later_, {})] {
    for (const std::shared_ptr<Connection>& connection : now_due) connection->on_later();
  });
}

void LoopPart::remove(std::size_t slot) {
  if (working_) gone_.push_back(connections_[slot]);
  const std::size_t last = connections_.size() - 1;
  if (slot != last) {
    connections_[slot] = std::move(connections_[last]);
    deadlines_[slot] = deadlines_[last];
    connections_[slot]->slot_ = static_cast<std::uint32_t>(slot);
  }
  connections_.pop_back();
  deadlines_.pop_back();
}

void LoopPart::sweep() {
  refresh_date();
  if (first_) shared_->figures.connections(shared_->connections);
  const Steady at = now();
  for (std::size_t slot = 0; slot < deadlines_.size();) {
    if (deadlines_[slot] > at) {
      ++slot;
      continue;
    }
    const std::shared_ptr<Connection> connection = connections_[slot];
    connection->expire(at);
    // Otherwise it was removed, and another one stands in its place now.
    if (slot < connections_.size() && connections_[slot] == connection) ++slot;
  }
  if (!closed_) arm_sweep();
}

void LoopPart::stop_gracefully() {
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const std::shared_ptr<Connection>& connection : all) connection->stop_gracefully();
}

void LoopPart::close_all() {
  closed_ = true;
  timer_.cancel();
  error_code ignored;
  ready_.close(ignored);
  later_.clear();
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const std::shared_ptr<Connection>& connection : all) connection->close();
  if (first_) shared_->figures.connections(shared_->connections);
}

/// Accepts for all loops, round robin: with a listening socket per loop (SO_REUSEPORT) the kernel
/// chooses by hash, and of few connections most may land on one loop. Lives on the first loop.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(std::shared_ptr<Shared> shared, std::vector<std::shared_ptr<LoopPart>> parts, int socket)
      : shared_(std::move(shared)),
        parts_(std::move(parts)),
        socket_(parts_[0]->loop().io(), socket),
        pause_(parts_[0]->loop().io()) {}

  void wait() {
    if (!socket_.is_open()) return;
    socket_.async_wait(Descriptor::wait_read, [self = shared_from_this()](const error_code& error) {
      if (!error) self->accept_some();
    });
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    pause_.cancel();
  }

 private:
  void accept_some() {
    for (int i = 0; i < kAcceptBurst && socket_.is_open(); ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      const int client = ::accept4(socket_.native_handle(),
                                   reinterpret_cast<sockaddr*>(&address),  // the API's own way
                                   &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (client >= 0) {
        hand_over(OwnedSocket(client), Peer(address));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return pause(errno);
      }
      // Anything else is about that one connection, which is gone.
    }
    wait();
  }

  void hand_over(OwnedSocket client, const Peer& peer) {
    const bool room = shared_->connections < shared_->config.max_connections;
    if (!room) {
      shared_->figures.refused(Refused::kConnections);
      // With TLS the handshake would cost more than the answer is worth.
      if (shared_->tls || shared_->refused_open >= kMaxRefusedOpen) return;
    }
    // Counted here, by the only one who accepts, so that a burst cannot pass the limit.
    ++(room ? shared_->connections : shared_->refused_open);
    const std::shared_ptr<LoopPart>& part = parts_[next_++ % parts_.size()];
    boost::asio::post(part->loop().io(), [part, room, socket = std::move(client), peer]() mutable {
      part->adopt(std::move(socket), peer, room);
    });
  }

  /// The listening socket stays readable, so waiting for that would spin.
  void pause(int error) {
    shared_->figures.refused(Refused::kAcceptError);
    const Steady now = parts_[0]->now();
    if (now >= next_log_) {
      next_log_ = now + kAcceptLogInterval;
      common::log(common::LogLevel::kError, "http_accept_failed",
                  {{"error", std::string_view(std::strerror(error))}});
    }
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (!cancelled) self->wait();
    });
  }

  const std::shared_ptr<Shared> shared_;
  const std::vector<std::shared_ptr<LoopPart>> parts_;
  Descriptor socket_;
  Timer pause_;
  std::size_t next_ = 0;
  Steady next_log_{};
};

class ServerImpl final : public Server {
 public:
  ServerImpl(std::shared_ptr<Shared> shared, std::vector<std::shared_ptr<LoopPart>> parts,
             std::shared_ptr<Acceptor> acceptor, std::uint16_t port)
      : shared_(std::move(shared)),
        parts_(std::move(parts)),
        acceptor_(std::move(acceptor)),
        port_(port) {
    for (const std::shared_ptr<LoopPart>& part : parts_) {
      boost::asio::post(part->loop().io(), [part] { part->start(); });
    }
    boost::asio::post(parts_[0]->loop().io(), [acceptor = acceptor_] { acceptor->wait(); });
  }

  ~ServerImpl() override { stop(milliseconds{0}); }

  std::uint16_t port() const noexcept override { return port_; }

  void stop(milliseconds grace) override {
    for (const std::shared_ptr<LoopPart>& part : parts_) {
      DOORBUSTER_ENSURE(!part->loop().is_current(), "a server is not stopped from its own loops");
    }
    if (std::exchange(stopped_, true)) return;
    const auto end = std::chrono::steady_clock::now() + grace;
    shared_->stopping = true;
    boost::asio::post(parts_[0]->loop().io(), [acceptor = acceptor_] { acceptor->close(); });
    on_all_loops(end, [](LoopPart& part) { part.stop_gracefully(); });
    {
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait_until(
          lock, end, [this] { return shared_->connections == 0 && shared_->refused_open == 0; });
    }
    constexpr seconds kLoopAnswers{5};
    on_all_loops(std::chrono::steady_clock::now() + kLoopAnswers,
                 [](LoopPart& part) { part.close_all(); });
    for (const std::shared_ptr<LoopPart>& part : parts_) {
      // Its thread has ended, so this one may touch what lived there.
      if (part->loop().io().stopped()) part->close_all();
    }
  }

 private:
  /// Runs `function` on each loop that still runs, and waits until all are done, but for one that
  /// is stuck in a handler that blocks not longer than until `end`.
  template <class F>
  void on_all_loops(std::chrono::steady_clock::time_point end, F function) {
    struct Left {
      std::mutex mutex;
      std::condition_variable changed;
      std::size_t count = 0;  // Guarded by mutex.
    };
    const auto left = std::make_shared<Left>();
    for (const std::shared_ptr<LoopPart>& part : parts_) {
      if (part->loop().io().stopped()) continue;
      {
        const std::lock_guard lock(left->mutex);
        ++left->count;
      }
      boost::asio::post(part->loop().io(), [part, function, left] {
        function(*part);
        const std::lock_guard lock(left->mutex);
        --left->count;
        left->changed.notify_all();
      });
    }
    std::unique_lock lock(left->mutex);
    left->changed.wait_until(lock, end, [&left] { return left->count == 0; });
  }

  const std::shared_ptr<Shared> shared_;
  const std::vector<std::shared_ptr<LoopPart>> parts_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::uint16_t port_;
  bool stopped_ = false;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

std::optional<Address> parse_address(const std::string& text, std::uint16_t port) {
  Address address;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.bytes, &v4, sizeof v4);
    address.size = sizeof v4;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&address.bytes, &v6, sizeof v6);
    address.size = sizeof v6;
    return address;
  }
  return std::nullopt;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  // Both families have the port at the same place.
  sockaddr_in v4{};
  std::memcpy(&v4, &address, sizeof v4);
  return ntohs(v4.sin_port);
}

}  // namespace

common::Result<std::unique_ptr<Server>> start_server(const ServerConfig& config,
                                                     const Router& router,
                                                     const std::vector<common::Loop*>& loops,
                                                     common::Metrics& metrics) {
  DOORBUSTER_ENSURE(!loops.empty(), "a server needs a loop");
  const auto shared = std::make_shared<Shared>(config, router, metrics);
  if (config.tls_certificate.empty() != config.tls_key.empty()) {
    return fail(ErrorCode::kInvalid, "TLS needs both a certificate and a key");
  }
  if (!config.tls_certificate.empty()) {
    auto tls = make_tls_context(config.tls_certificate, config.tls_key);
    if (!tls) return fail(std::move(tls.error()));
    shared->tls = *std::move(tls);
  }

  const std::optional<Address> address = parse_address(config.address, config.port);
  if (!address) {
    return fail(ErrorCode::kInvalid, "not an IPv4 or IPv6 address: " + config.address);
  }
  const std::string where = config.address + " port " + std::to_string(config.port);
  const auto system_fail = [&where](const char* what) {
    const int error = errno;
    const ErrorCode code = error == EADDRINUSE      ? ErrorCode::kBusy
                           : error == EADDRNOTAVAIL ? ErrorCode::kInvalid
                                                    : ErrorCode::kIo;
    return fail(code, std::string("cannot ") + what + " on " + where + ": " + std::strerror(error));
  };
  OwnedSocket socket(
      ::socket(address->bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return system_fail("open a socket");
  const int on = 1;
  const int off = 0;
  // A restart must not wait for old connections to be forgotten. A second server on the same port
  // is still refused: that needs SO_REUSEPORT.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->bytes.ss_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  sockaddr_storage bound{};
  socklen_t bound_size = sizeof bound;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address->bytes), address->size) !=
          0 ||
      ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) {
    return system_fail("listen");
  }

  std::vector<std::shared_ptr<LoopPart>> parts;
  for (common::Loop* const loop : loops) {
    parts.push_back(std::make_shared<LoopPart>(shared, *loop, parts.size()));
  }
  const auto acceptor = std::make_shared<Acceptor>(shared, parts, socket.release());
  return std::make_unique<ServerImpl>(shared, parts, acceptor, port_of(bound));
}

}  // namespace doorbuster::http

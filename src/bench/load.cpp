#include "bench/load.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

namespace doorbuster::bench {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

constexpr std::size_t kReadBytes = std::size_t{256} * 1024;
constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMaxHead = 16'384;
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::string_view kVersion = "HTTP/1.1 ";

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

class Load {
 public:
  Load(const LoadPlan& plan, const Requests& requests, const common::Clock& clock)
      : plan_(plan),
        requests_(requests),
        clock_(clock),
        end_(plan.first + plan.count),
        next_(plan.first),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        scratch_(std::make_unique<char[]>(kReadBytes)) {}

  Result<LoadResult> run() {
    if (const Result<Done> opened = open(); !opened) return fail(opened.error());
    const std::int64_t begun = now_ns();
    for (std::size_t i = 0; i < connections_.size() && next_ < end_; ++i) {
      if (!send_next(connections_[i])) return fail(ErrorCode::kUnavailable, "a write failed");
    }
    std::array<epoll_event, 512> events{};
    std::int64_t idle = 0;
    std::int64_t idle_since = 0;  // 0: something came the last time
    while (answered_ < plan_.count) {
      // It never sleeps: waking it would be work for the server, whose write does that, and a
      // client behind a network is none of its work.
      const int ready =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
      if (ready <= 0) {
        const std::int64_t now = now_ns();
        if (idle_since == 0) idle_since = now;
        if (now - idle_since > std::chrono::nanoseconds{kPatience}.count()) {
          return fail(ErrorCode::kTimeout, "no answer came for ten seconds");
        }
        continue;
      }
      if (idle_since != 0) idle += now_ns() - std::exchange(idle_since, 0);
      for (int i = 0; i < ready; ++i) {
        const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
        const Result<Done> taken = take(connections_[number]);
        if (!taken) return fail(taken.error());
      }
    }
    const auto spent = static_cast<double>(std::max<std::int64_t>(1, now_ns() - begun));
    result_.seconds = spent / 1e9;
    result_.busy = 1 - static_cast<double>(idle) / spent;
    return std::move(result_);
  }

 private:
  struct Connection {
    Socket socket;
    std::size_t first = 0;  ///< the oldest request without an answer
    std::size_t end = 0;    ///< behind the newest that was sent
    std::int64_t sent_ns = 0;
    std::string unread;  ///< the beginning of an answer
    AnswerCutter cutter;
  };

  [[nodiscard]] std::int64_t now_ns() const { return clock_.steady().time_since_epoch().count(); }

  Result<Done> open() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(plan_.port);
    const int on = 1;
    connections_.reserve(plan_.connections);
    for (std::size_t i = 0; i < plan_.connections; ++i) {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
        return fail(ErrorCode::kUnavailable, "a connection was refused");
      }
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = static_cast<std::uint32_t>(i);
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
        return fail(ErrorCode::kIo, "a connection cannot be watched");
      }
      connections_.push_back({std::move(socket), 0, 0, 0, {}, {}});
    }
    return Done{};
  }

  bool send_next(Connection& connection) {
    connection.first = next_;
    connection.end = std::min(next_ + plan_.pipelined, end_);
    next_ = connection.end;
    connection.sent_ns = now_ns();
    std::string_view bytes = std::string_view(requests_.bytes)
                                 .substr(connection.first * requests_.size,
                                         (connection.end - connection.first) * requests_.size);
    while (!bytes.empty()) {
      // Blocking: what is in flight on a connection always fits into its buffers.
      const ssize_t sent =
          ::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  Result<Done> take(Connection& connection) {
    const ssize_t got = ::recv(connection.socket.get(), scratch_.get(), kReadBytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Done{};
    if (got <= 0) return fail(ErrorCode::kUnavailable, "a connection was closed");
    std::string_view bytes(scratch_.get(), static_cast<std::size_t>(got));
    const bool kept = !connection.unread.empty();
    if (kept) {
      connection.unread.append(bytes);
      bytes = connection.unread;
    }
    const std::chrono::nanoseconds took{now_ns() - connection.sent_ns};
    while (!bytes.empty()) {
      const AnswerCutter::Answer answer = connection.cutter.next(bytes);
      if (answer.bad || connection.first == connection.end) {
        return fail(ErrorCode::kCorrupt, "an answer is no HTTP, or nobody asked for it");
      }
      if (answer.bytes == 0) break;
      if (answer.status == plan_.usual) {
        ++result_.usual;
      } else {
        ++result_.other;
        if (plan_.other) plan_.other(connection.first, answer.status, answer.body);
      }
      result_.times.record(took);
      ++connection.first;
      ++answered_;
      bytes.remove_prefix(answer.bytes);
    }
    if (kept || !bytes.empty()) connection.unread = std::string(bytes);
    if (connection.first == connection.end && next_ < end_ && !send_next(connection)) {
      return fail(ErrorCode::kUnavailable, "a write failed");
    }
    return Done{};
  }

  const LoadPlan& plan_;
  const Requests& requests_;
  const common::Clock& clock_;
  const std::size_t end_;
  std::size_t next_;
  std::size_t answered_ = 0;
  Socket epoll_;
  std::vector<Connection> connections_;
  std::unique_ptr<char[]> scratch_;
  LoadResult result_;
};

}  // namespace

AnswerCutter::Answer AnswerCutter::next(std::string_view bytes) {
  Answer answer;
  if (bytes.size() < kVersion.size() + 3) return answer;
  if (!bytes.starts_with(kVersion)) {
    answer.bad = true;
    return answer;
  }
  const char* const status = bytes.data() + kVersion.size();
  std::from_chars(status, status + 3, answer.status);
  const bool same = head_ != 0 && bytes.size() >= head_ &&
                    bytes.substr(head_ - kHeadEnd.size(), kHeadEnd.size()) == kHeadEnd &&
                    bytes.substr(length_at_, length_line_.size()) == length_line_;
  if (!same) {
    const std::size_t end = bytes.substr(0, kMaxHead).find(kHeadEnd);
    if (end == std::string_view::npos) {
      answer.bad = bytes.size() >= kMaxHead;
      return answer;
    }
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const std::size_t line = bytes.substr(0, end).find(kLength);
    if (line == std::string_view::npos) {
      answer.bad = true;
      return answer;
    }
    head_ = end + kHeadEnd.size();
    length_at_ = line;
    length_line_ = std::string(bytes.substr(line, bytes.find("\r\n", line + 2) + 2 - line));
    const char* const number = length_line_.data() + kLength.size();
    std::from_chars(number, length_line_.data() + length_line_.size(), body_);
  }
  if (bytes.size() < head_ + body_) return answer;
  answer.body = bytes.substr(head_, body_);
  answer.bytes = head_ + body_;
  return answer;
}

Result<LoadResult> run_load(const LoadPlan& plan, const Requests& requests,
                            const common::Clock& clock) {
  DOORBUSTER_ENSURE(plan.first + plan.count <= requests.count(), "the requests are there");
  return Load(plan, requests, clock).run();
}

}  // namespace doorbuster::bench

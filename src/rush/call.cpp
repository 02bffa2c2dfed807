#include "rush/call.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rush/http_reader.hpp"

namespace doorbuster::rush {
namespace {

using common::ErrorCode;
using common::fail;
using common::Proof;
using common::Result;
using common::Steady;

/// A page of 1,000 orders has some 400 KB.
constexpr HttpLimits kLimits{.max_head = 16UL * 1024, .max_body = 8UL * 1024 * 1024};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

bool wait_for(int fd, short events, Steady deadline, const common::Clock& clock) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.steady()).count();
    if (left <= 0) return false;
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

Result<CallAnswer> call(const Target& target, std::string_view method, std::string_view path,
                        std::string_view headers, std::string_view body, const common::Clock& clock,
                        std::chrono::milliseconds timeout) {
  const Steady deadline = clock.steady() + timeout;
  const Result<int> connected = start_connect(target, 0);
  if (!connected) return fail(connected.error());
  const Descriptor socket(*connected);
  if (!wait_for(socket.get(), POLLOUT, deadline, clock)) {
    return fail(ErrorCode::kUnavailable, fmt::format("no connection to {} in time", target.host));
  }
  int refused = 0;
  socklen_t size = sizeof refused;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &refused, &size);
  if (refused != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("no connection to {}: {}", target.host,
                            std::error_code(refused, std::generic_category()).message()));
  }

  const std::string request = fmt::format(
      "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}", method,
      path, target.host, headers, body.size(), body);
  std::string_view left = request;
  while (!left.empty()) {
    const ssize_t sent = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("{} {}: the connection was closed", method, path), Proof::kUnknown);
    } else if (!wait_for(socket.get(), POLLOUT, deadline, clock)) {
      return fail(ErrorCode::kTimeout, fmt::format("{} {}: not taken in time", method, path),
                  Proof::kUnknown);
    }
  }

  std::string buffer;
  std::string decoded;
  std::array<char, 64UL * 1024> part;
  for (bool ended = false;;) {
    HttpAnswer answer;
    const ReadState state = read_http_answer(buffer, ended, kLimits, decoded, answer);
    if (state == ReadState::kDone)
      return CallAnswer{.status = answer.status, .body = std::string(answer.body)};
    if (state == ReadState::kBad) {
      return fail(ErrorCode::kCorrupt, fmt::format("{} {}: not an HTTP answer", method, path),
                  Proof::kUnknown);
    }
    if (ended) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("{} {}: the answer was cut off", method, path), Proof::kUnknown);
    }
    const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
    if (got > 0) {
      buffer.append(part.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      ended = true;
    } else if (!wait_for(socket.get(), POLLIN, deadline, clock)) {
      return fail(ErrorCode::kTimeout, fmt::format("{} {}: no answer in time", method, path),
                  Proof::kUnknown);
    }
  }
}

}  // namespace doorbuster::rush

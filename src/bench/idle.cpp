#include "bench/idle.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "bench/machine.hpp"

namespace doorbuster::bench {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

constexpr std::size_t kPerAddress = 4'000;
/// Answers that are waited for at a time: below any backlog.
constexpr std::size_t kAtOnce = 256;
constexpr std::chrono::milliseconds kReadEvery{100};
constexpr std::size_t kReadBytes = 512;

bool closed(int socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

Result<int> connect_from(std::uint16_t port, std::size_t number, int receive_buffer) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(ErrorCode::kUnavailable, "no more sockets");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (receive_buffer > 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr =
      htonl(INADDR_LOOPBACK + 1 + static_cast<std::uint32_t>(number / kPerAddress));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
      ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    ::close(fd);
    return fail(ErrorCode::kUnavailable, fmt::format("connection {} was refused", number));
  }
  return fd;
}

IdleConnections::~IdleConnections() {
  for (const int socket : sockets_) ::close(socket);
}

Result<Done> IdleConnections::grow(std::uint16_t port, std::size_t count,
                                   std::string_view request) {
  std::array<char, 4096> answer{};
  while (sockets_.size() < count) {
    const std::size_t first = sockets_.size();
    while (sockets_.size() < std::min(count, first + kAtOnce)) {
      const Result<int> socket = connect_from(port, sockets_.size());
      if (!socket) return fail(socket.error());
      sockets_.push_back(*socket);
      if (::send(*socket, request.data(), request.size(), MSG_NOSIGNAL) < 0) {
        return fail(ErrorCode::kUnavailable, "a connection was closed at once");
      }
    }
    for (std::size_t i = first; i < sockets_.size(); ++i) {
      if (::recv(sockets_[i], answer.data(), answer.size(), 0) <= 0) {
        return fail(ErrorCode::kUnavailable, "a connection was closed without an answer");
      }
    }
  }
  return Done{};
}

std::size_t IdleConnections::open() const {
  std::size_t count = 0;
  for (const int socket : sockets_) count += closed(socket) ? 0 : 1;
  return count;
}

SlowReaders::~SlowReaders() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  for (const int socket : sockets_) {
    if (socket >= 0) ::close(socket);
  }
}

Result<Done> SlowReaders::start(std::uint16_t port, std::size_t count, std::size_t first_number,
                                std::string_view request) {
  for (std::size_t i = 0; i < count; ++i) {
    const Result<int> socket = connect_from(port, first_number + i, static_cast<int>(kReadBytes));
    if (!socket) return fail(socket.error());
    sockets_.push_back(*socket);
    if (::send(*socket, request.data(), request.size(), MSG_NOSIGNAL) < 0) {
      return fail(ErrorCode::kUnavailable, "a connection was closed at once");
    }
  }
  open_ = sockets_.size();
  thread_ = std::thread([this] {
    pin_this_thread(kLoadCore);
    read_slowly();
  });
  return Done{};
}

void SlowReaders::read_slowly() {
  std::array<char, kReadBytes> bytes{};
  while (!stopping_) {
    std::this_thread::sleep_for(kReadEvery);
    for (int& socket : sockets_) {
      if (paused_ || stopping_) break;
      if (socket < 0) continue;
      const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0) {
        bytes_ += static_cast<std::uint64_t>(got);
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ::close(socket);
        socket = -1;
        --open_;
      }
    }
  }
}

}  // namespace doorbuster::bench

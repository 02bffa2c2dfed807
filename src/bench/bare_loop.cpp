#include "bench/bare_loop.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace doorbuster::bench {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} * 1024;

/// False when the client is gone.
bool write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes += sent;
      size -= static_cast<std::size_t>(sent);
      continue;
    }
    pollfd wait{fd, POLLOUT, 0};
    if (::poll(&wait, 1, 1000) <= 0 || (wait.revents & (POLLERR | POLLHUP)) != 0) return false;
  }
  return true;
}

}  // namespace

int listen_on_loopback(std::uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, size) != 0 || ::listen(fd, 4096) != 0 ||
      ::getsockname(fd, generic, &size) != 0) {
    ::close(fd);
    return -1;
  }
  port = ntohs(address.sin_port);
  return fd;
}

void serve_bare(int socket, std::size_t request_size, const std::string& answer) {
  // As many answers as one read can ask for, and the one that an earlier read began.
  std::string answers;
  for (std::size_t i = 0; i < kReadBytes / request_size + 1; ++i) answers += answer;
  std::vector<char> input(kReadBytes);
  std::vector<std::size_t> begun;  // by descriptor: bytes of a request that is not whole yet
  std::array<epoll_event, 512> events{};
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [epoll](int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  };
  watch(socket);
  while (true) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == socket) {
        const int client = ::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) continue;
        const int on = 1;
        ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        begun.resize(std::max(begun.size(), static_cast<std::size_t>(client) + 1));
        begun[static_cast<std::size_t>(client)] = 0;
        watch(client);
        continue;
      }
      const ssize_t got = ::recv(fd, input.data(), input.size(), MSG_DONTWAIT);
      bool gone = got <= 0;
      if (!gone) {
        std::size_t& bytes = begun[static_cast<std::size_t>(fd)];
        bytes += static_cast<std::size_t>(got);
        const std::size_t whole = bytes / request_size;
        bytes %= request_size;
        gone = !write_all(fd, answers.data(), whole * answer.size());
      }
      if (gone) ::close(fd);
    }
  }
}

}  // namespace doorbuster::bench

#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// Which sockets of a loop have something for us. Internal to this folder.
namespace doorbuster::http {

/// An epoll set in which a socket is registered once, edge-triggered, until it is closed. Asio arms
/// a socket anew for each wait, which is a system call for each request of a rush.
///
/// An edge is told once: whoever gets kReadable must remember it until a read brings less than it
/// has room for (then nothing is left). Behind a kNearEnd only a read that finds nothing says so:
/// an end is still to be read, and at urgent data a read stops short. kWritable means something
/// only after a write that was cut short.
class Poller {
 public:
  static constexpr std::uint32_t kNearEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI;
  static constexpr std::uint32_t kReadable = EPOLLIN | kNearEnd;
  static constexpr std::uint32_t kWritable = EPOLLOUT | EPOLLHUP | EPOLLERR;

  Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Readable while take() has something to give. Not closed by this object: who waits for it owns
  /// it.
  [[nodiscard]] int descriptor() const noexcept { return set_; }

  /// `who` comes back with each event. False: the kernel watches no more sockets for us.
  [[nodiscard]] bool add(int socket, void* who) noexcept;

  /// Before its socket is closed: what a child process holds open would still be told.
  void remove(int socket) noexcept;

  /// What has happened since, without waiting; good until the next call. Of more than there is room
  /// for, the rest comes next time. A socket that was closed since is not among them, one that is
  /// closed meanwhile may be.
  [[nodiscard]] std::span<const epoll_event> take() noexcept;

 private:
  int set_;
  std::array<epoll_event, 256> events_;  // written before they are read
};

}  // namespace doorbuster::http

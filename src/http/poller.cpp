#include "http/poller.hpp"

#include "common/result.hpp"

namespace doorbuster::http {

Poller::Poller() : set_(::epoll_create1(EPOLL_CLOEXEC)) {
  DOORBUSTER_ENSURE(set_ >= 0, "a loop has an epoll set of its own");
}

bool Poller::add(int socket, void* who) noexcept {
  epoll_event event{};
  // "Writable" costs nothing where nothing is unsent: the kernel tells it only after a short write.
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;
  event.data.ptr = who;
  return ::epoll_ctl(set_, EPOLL_CTL_ADD, socket, &event) == 0;
}

void Poller::remove(int socket) noexcept {
  static_cast<void>(::epoll_ctl(set_, EPOLL_CTL_DEL, socket, nullptr));
}

std::span<const epoll_event> Poller::take() noexcept {
  const int ready = ::epoll_wait(set_, events_.data(), static_cast<int>(events_.size()), 0);
  return std::span(events_).first(static_cast<std::size_t>(ready > 0 ? ready : 0));
}

}  // namespace doorbuster::http

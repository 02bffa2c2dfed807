#include "rush/target.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace doorbuster::rush {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;

/// Files that are neither connections nor known here: epoll, reports, standard streams, the
/// server's own when a test runs both in one process.
constexpr std::size_t kOtherFiles = 64;

std::string errno_text(int error) {
  return std::error_code(error, std::generic_category()).message();
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::kInvalid, fmt::format("url '{}': {}", text, why));
  };
  if (text.starts_with("https://")) {
    return wrong(
        "https is not supported; point rush at the server's http port, behind the proxy that ends "
        "TLS");
  }
  if (!text.starts_with("http://")) return wrong("expected http://HOST:PORT");
  std::string_view rest = text.substr(7);
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    if (slash + 1 != rest.size()) return wrong("expected no path, only http://HOST:PORT");
    rest = rest.substr(0, slash);
  }
  if (rest.find_first_of("?#@ \r\n\t") != std::string_view::npos) {
    return wrong("expected only a host and a port");
  }
  Url url;
  std::string_view port;
  bool has_port = false;
  if (rest.starts_with('[')) {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos)
      return wrong("the bracket of the IPv6 address is not closed");
    url.host = rest.substr(1, close - 1);
    const std::string_view after = rest.substr(close + 1);
    if (!after.empty() && after.front() != ':') return wrong("expected ':PORT' after the address");
    has_port = !after.empty();
    port = has_port ? after.substr(1) : after;
  } else {
    const std::size_t colon = rest.find(':');
    has_port = colon != std::string_view::npos;
    url.host = rest.substr(0, colon);
    if (has_port) port = rest.substr(colon + 1);
  }
  if (url.host.empty()) return wrong("the host is missing");
  if (has_port) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc{} || end != port.data() + port.size() || url.port == 0) {
      return wrong("the port is not a number from 1 to 65535");
    }
  }
  url.authority = rest;
  return url;
}

Result<Target> find_target(std::string_view text) {
  const Result<Url> url = parse_url(text);
  if (!url) return fail(url.error());
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(url->host.c_str(), std::to_string(url->port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (failed != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("no address for '{}': {}", url->host, ::gai_strerror(failed)));
  }
  // "localhost" is often both, and a server that listens on 127.0.0.1 only one of them.
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  if (chosen == nullptr) chosen = found;
  Target target;
  target.host = url->authority;
  std::memcpy(&target.address, chosen->ai_addr, chosen->ai_addrlen);
  target.address_size = chosen->ai_addrlen;
  if (chosen->ai_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, chosen->ai_addr, sizeof v4);
    target.loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  return target;
}

Result<int> start_connect(const Target& target, std::size_t number) {
  const int fd = ::socket(target.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(ErrorCode::kIo, fmt::format("socket: {}", errno_text(errno)));
  const int on = 1;
  // Without it, a request that follows another on a connection could wait for an acknowledgement.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto give_up = [fd](const char* what) {
    const int error = errno;
    ::close(fd);
    return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", what, errno_text(error)));
  };
  if (target.loopback && number >= kConnectionsPerSource) {
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr.s_addr =
        htonl(0x7F000001U + static_cast<std::uint32_t>(number / kConnectionsPerSource));
    // The port is chosen at connect, when the four numbers together must be unique, and not this
    // one alone.
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0)
      return give_up("bind");
  }
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&target.address), target.address_size) != 0 &&
      errno != EINPROGRESS) {
    return give_up("connect");
  }
  return fd;
}

Result<Done> raise_file_limit(std::size_t connections) {
  const rlim_t wanted = connections + kOtherFiles;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ErrorCode::kIo, fmt::format("getrlimit: {}", errno_text(errno)));
  }
  if (limit.rlim_cur >= wanted) return Done{};
  rlimit raised = limit;
  raised.rlim_cur = wanted;
  // Only the superuser may pass the hard limit; whether we are it, the attempt tells.
  if (raised.rlim_max < wanted) raised.rlim_max = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) return Done{};
  return fail(
      ErrorCode::kInvalid,
      fmt::format(
          "{} connections need {} open files, and the limit is {}: raise it (ulimit -n {}) or "
          "use fewer connections",
          connections, wanted, limit.rlim_max, wanted));
}

}  // namespace doorbuster::rush

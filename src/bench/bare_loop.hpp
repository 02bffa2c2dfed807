#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace doorbuster::bench {

/// The least that a server on this machine can do: an epoll loop that reads, counts requests by
/// their size and writes `answer` for each, one write per read. It parses nothing, so it is the
/// mark that a server is measured against, and no server. Runs until the process ends; `socket`
/// listens.
void serve_bare(int socket, std::size_t request_size, const std::string& answer);

/// Listens on a free port of loopback; gives the socket, or -1.
[[nodiscard]] int listen_on_loopback(std::uint16_t& port);

}  // namespace doorbuster::bench

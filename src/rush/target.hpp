#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.hpp"

namespace doorbuster::rush {

/// Where the buyers go.
struct Target {
  std::string host;  ///< as in the Host header, with the port when it is not 80
  sockaddr_storage address{};
  socklen_t address_size = 0;
  bool loopback = false;  ///< 127.0.0.0/8: there are more source addresses for the taking
};

/// A URL taken apart: "http://HOST[:PORT][/]", HOST a name, an IPv4 address or an IPv6 address in
/// brackets.
struct Url {
  std::string host;
  std::uint16_t port = 80;
  std::string authority;  ///< for the Host header
};
/// Errors: kInvalid, with what is wrong and what to do.
[[nodiscard]] common::Result<Url> parse_url(std::string_view text);

/// Parses, and looks the name up (blocks). Errors: kInvalid, kUnavailable (the name has no
/// address).
[[nodiscard]] common::Result<Target> find_target(std::string_view url);

/// A local address has some 28,000 ports for one server: this many connections share one, then the
/// next of 127.0.0.0/8 is used.
inline constexpr std::size_t kConnectionsPerSource = 25'000;

/// Starts a non-blocking connect. `number` counts the connections of the whole rush. Gives the
/// descriptor, whose connect may still be under way. Errors: kUnavailable (refused at once), kIo.
[[nodiscard]] common::Result<int> start_connect(const Target& target, std::size_t number);

/// Makes room for that many descriptors (and some for the rest of the process). Errors: kInvalid,
/// with the limit and how to raise it.
[[nodiscard]] common::Result<common::Done> raise_file_limit(std::size_t connections);

}  // namespace doorbuster::rush

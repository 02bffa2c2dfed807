#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace doorbuster::rush {

/// A small honest shop behind a real socket, with knobs for everything that may go wrong. Tokens
/// are the member's number, the administrator's is "admin". One thread; state survives a restart.
class FakeShop {
 public:
  struct Row {
    std::string order;
    std::int64_t member;
    std::int64_t slot;
    std::string state = "PENDING";
    std::string key;
  };
  struct Knobs {
    std::int64_t quantity = 10;
    int busy_first = 0;        ///< each member's first so many purchases are answered busy
    std::string busy_headers;  ///< such as "Retry-After: 1\r\n"
    int cut_first = 0;  ///< each member's first so many purchases are done, and the answer is cut
    std::size_t restart_after =
        0;  ///< once, after so many purchases, the server dies and comes back
    std::chrono::milliseconds down{300};
    bool close_each = false;      ///< Connection: close with every answer
    bool forget_row = false;      ///< the first grant is answered, and never recorded
    bool refuse_holders = false;  ///< who asks again is told sold out
    bool silent_first = false;    ///< the first purchase is never answered
    bool final = true;
    bool admin_fails = false;
    int not_ready_first = 0;  ///< so many payments are answered NOT_READY
  };

  explicit FakeShop(Knobs knobs) : knobs_(knobs), wake_(::eventfd(0, EFD_CLOEXEC)) {
    listen_again();
    thread_ = std::thread([this] { work(); });
  }
  FakeShop(const FakeShop&) = delete;
  FakeShop& operator=(const FakeShop&) = delete;
  ~FakeShop() {
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
    thread_.join();
    close_all();
    ::close(wake_);
  }

  [[nodiscard]] std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  [[nodiscard]] std::vector<Row> rows() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }
  [[nodiscard]] std::size_t most_connections() const {
    const std::lock_guard lock(mutex_);
    return most_connections_;
  }
  [[nodiscard]] std::size_t purchases() const {
    const std::lock_guard lock(mutex_);
    return purchases_;
  }
  [[nodiscard]] std::set<std::int64_t> askers() const {
    const std::lock_guard lock(mutex_);
    std::set<std::int64_t> list;
    for (const auto& [member, asked] : asked_) list.insert(member);
    return list;
  }

 private:
  struct Client {
    int fd;
    std::string in;
  };
  struct Reply {
    std::string bytes;
    bool cut = false;
    bool silent = false;
  };

  void listen_again() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_, 1024) != 0) {
      throw std::runtime_error("the fake shop cannot listen");
    }
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }

  void close_all() {
    ::close(listener_);
    for (const Client& client : clients_) ::close(client.fd);
    clients_.clear();
  }

  void work() {
    for (;;) {
      std::vector<pollfd> list{{.fd = wake_, .events = POLLIN, .revents = 0},
                               {.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Client& client : clients_)
        list.push_back({.fd = client.fd, .events = POLLIN, .revents = 0});
      ::poll(list.data(), list.size(), -1);
      if (list[0].revents != 0) return;
      std::vector<Client> kept;
      const std::size_t known = clients_.size();
      for (std::size_t i = 0; i < known; ++i) {
        if (list[i + 2].revents == 0 || serve(clients_[i])) {
          kept.push_back(clients_[i]);
        } else {
          ::close(clients_[i].fd);
        }
      }
      clients_ = std::move(kept);
      if (die_) {
        die_ = false;
        close_all();
        // The process is dead for a while; a stop of the test ends that, too.
        pollfd stop{.fd = wake_, .events = POLLIN, .revents = 0};
        ::poll(&stop, 1, static_cast<int>(knobs_.down.count()));
        listen_again();
        continue;
      }
      if (list[1].revents != 0) {
        // All that wait, before anybody is served again: whoever is connected then has been
        // counted.
        for (int fd = -1; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
          clients_.push_back({fd, {}});
        }
        const std::lock_guard lock(mutex_);
        most_connections_ = std::max(most_connections_, clients_.size());
      }
    }
  }

  /// False: close the connection.
  bool serve(Client& client) {
    char part[16384];
    const ssize_t got = ::recv(client.fd, part, sizeof part, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    client.in.append(part, static_cast<std::size_t>(got));
    for (;;) {
      const std::size_t end = client.in.find("\r\n\r\n");
      if (end == std::string::npos) return true;
      const std::string head = client.in.substr(0, end + 2);
      const std::size_t length =
          static_cast<std::size_t>(std::atoll(header(head, "Content-Length").c_str()));
      if (client.in.size() < end + 4 + length) return true;
      const std::string body = client.in.substr(end + 4, length);
      client.in.erase(0, end + 4 + length);
      const Reply reply = answer(head, body);
      if (reply.silent) continue;
      if (reply.cut) {
        ::send(client.fd, reply.bytes.data(), reply.bytes.size() / 2, MSG_NOSIGNAL);
        return false;
      }
      ::send(client.fd, reply.bytes.data(), reply.bytes.size(), MSG_NOSIGNAL);
      if (die_ || reply.bytes.find("Connection: close\r\n") != std::string::npos) return false;
    }
  }

  static std::string header(const std::string& head, const std::string& name) {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }

  [[nodiscard]] Reply reply(int status, const std::string& body,
                            const std::string& headers = {}) const {
    return {fmt::format("HTTP/1.1 {} X\r\n{}{}Content-Length: {}\r\n\r\n{}", status, headers,
                        knobs_.close_each ? "Connection: close\r\n" : "", body.size(), body)};
  }

  static std::string order_body(const Row& row, const std::string& before = {}) {
    return fmt::format(
        R"({{{}"orderId":"{}","status":"{}","payable":true,"expiresAt":"2030-01-01T00:00:{:02}Z",)"
        R"("amount":{{"amount":12000,"currency":"KRW"}}}})",
        before, row.order, row.state, row.slot % 60);
  }

  Reply answer(const std::string& head, const std::string& body) {
    const std::lock_guard lock(mutex_);
    const std::size_t space = head.find(' ');
    const std::string method = head.substr(0, space);
    const std::string path = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
    const std::string token = header(head, "Authorization");
    if (path == "/health/live") return reply(200, "{}");
    if (path.starts_with("/api/admin/")) return admin(path, token);
    if (!token.starts_with("Bearer ")) return reply(401, R"({"error":"UNAUTHORIZED"})");
    const std::int64_t member = std::atoll(token.substr(7).c_str());
    if (path == "/api/flash-sales/items/7/purchase" && method == "POST") {
      return purchase(member, header(head, "Idempotency-Key"));
    }
    const std::string orders = "/api/flash-sales/orders/";
    if (!path.starts_with(orders)) return reply(404, R"({"error":"NOT_FOUND"})");
    const std::string id =
        path.substr(orders.size(), path.find('/', orders.size()) - orders.size());
    for (Row& row : rows_) {
      if (row.order != id || row.member != member) continue;
      if (method == "GET") return reply(200, order_body(row));
      if (payments_++ < knobs_.not_ready_first) return reply(409, R"({"error":"NOT_READY"})");
      if (body != R"({"cardNumber":"4242424242424242","amount":12000,"currency":"KRW"})") {
        return reply(400, R"({"error":"INVALID_BODY"})");
      }
      row.state = "PAID";
      return reply(200, order_body(row));
    }
    return reply(404, R"({"error":"NOT_FOUND"})");
  }

  Reply purchase(std::int64_t member, const std::string& key) {
    if (++purchases_ == knobs_.restart_after) die_ = true;
    if (purchases_ == 1 && knobs_.silent_first) return {.silent = true};
    const int asked = ++asked_[member];
    if (asked <= knobs_.busy_first) return reply(503, R"({"error":"BUSY"})", knobs_.busy_headers);
    Reply done = decide(member, key);
    done.cut = asked <= knobs_.busy_first + knobs_.cut_first;
    return done;
  }

  Reply decide(std::int64_t member, const std::string& key) {
    const std::string gone = fmt::format(R"({{"error":"SOLD_OUT","final":{}}})", knobs_.final);
    for (const Row& row : rows_) {
      if (row.member != member || row.key != key) continue;
      return knobs_.refuse_holders ? reply(410, gone)
                                   : reply(409, order_body(row, R"("error":"ALREADY_PURCHASED",)"));
    }
    if (next_slot_ > knobs_.quantity) return reply(410, gone);
    const Row row{
        .order = fmt::format("o{}", next_slot_), .member = member, .slot = next_slot_, .key = key};
    ++next_slot_;
    if (!(knobs_.forget_row && row.slot == 1)) rows_.push_back(row);
    return reply(202, order_body(row));
  }

  Reply admin(const std::string& path, const std::string& token) {
    if (token != "Bearer admin") return reply(401, R"({"error":"UNAUTHORIZED"})");
    const std::string item = "/api/admin/flash-sales/items/7";
    if (path == "/api/admin/flash-sales") return reply(201, R"({"id":3})");
    if (path == "/api/admin/flash-sales/3/items") return reply(201, R"({"id":7})");
    if (path == "/api/admin/flash-sales/3/open") return reply(200, R"({"id":3})");
    if (!path.starts_with(item)) return reply(404, R"({"error":"NOT_FOUND"})");
    if (path == item) {
      return reply(200, fmt::format(R"({{"id":7,"quantity":{},"perMember":1,"sold":{}}})",
                                    knobs_.quantity, rows_.size()));
    }
    if (knobs_.admin_fails) return reply(503, R"({"error":"BUSY"})");
    // Pages of three, so that the cursor is used.
    const std::size_t cursor = path.find("after=");
    const std::size_t from = cursor == std::string::npos
                                 ? 0
                                 : static_cast<std::size_t>(std::atoll(path.c_str() + cursor + 6));
    const std::size_t to = std::min(rows_.size(), from + 3);
    std::string out = "{\"orders\":[";
    for (std::size_t i = from; i < to; ++i) {
      const Row& row = rows_[i];
      out += fmt::format(
          R"({}{{"grantId":"g{}","orderId":"{}","memberId":{},"slot":{},"nth":1,"state":"{}",)"
          R"("reason":null,"mergedInto":null,"key":{},"amount":{{"amount":12000,"currency":"KRW"}},)"
          R"("recordedAt":"2029-01-01T00:00:00Z","expiresAt":"2030-01-01T00:00:{:02}Z"}})",
          i == from ? "" : ",", row.order, row.order, row.member, row.slot, row.state,
          row.key.empty() ? "null" : fmt::format("\"{}\"", row.key), row.slot % 60);
    }
    out += fmt::format("],\"next\":{}}}", to < rows_.size() ? fmt::format("\"{}\"", to) : "null");
    return reply(200, out);
  }

  Knobs knobs_;
  int wake_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::vector<Client> clients_;
  bool die_ = false;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::vector<Row> rows_;              // Guarded by mutex_.
  std::map<std::int64_t, int> asked_;  // Guarded by mutex_.
  std::int64_t next_slot_ = 1;         // Guarded by mutex_.
  std::size_t purchases_ = 0;          // Guarded by mutex_.
  int payments_ = 0;                   // Guarded by mutex_.
  std::size_t most_connections_ = 0;   // Guarded by mutex_.
};

}  // namespace doorbuster::rush

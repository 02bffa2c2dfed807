#include "http/server.hpp"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <unordered_map>

#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "http/parser.hpp"

namespace doorbuster::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using common::ErrorCode;
using common::fail;
using common::Result;
using common::Steady;
using common::Task;
using Error = boost::system::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;          ///< what one readiness reads at most
constexpr std::size_t kMaxUnsent = 256 * 1024;         ///< answers that wait for a slow reader: no more is read
constexpr std::size_t kKeptCapacity = 16 * 1024;       ///< an idle connection keeps no larger buffer
constexpr std::size_t kUnknownRouteBody = 16 * 1024;
constexpr int kAcceptBurst = 64;
constexpr std::chrono::milliseconds kAcceptBackOff{100};
constexpr std::chrono::milliseconds kLingerTime{1000};     ///< how long a refused client may take to read why
constexpr std::chrono::seconds kEventEvery{1};

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

/// Codes for what the parser and the limits refuse; what is not listed is INVALID_REQUEST.
PublicError protocol_error(int status, std::string_view reason) {
  std::string_view code = "INVALID_REQUEST";
  switch (status) {
    case 408: code = "REQUEST_TIMEOUT"; break;
    case 413: code = "PAYLOAD_TOO_LARGE"; break;
    case 414: code = "URI_TOO_LONG"; break;
    case 417: code = "EXPECTATION_FAILED"; break;
    case 431: code = "HEADERS_TOO_LARGE"; break;
    case 501: code = "NOT_IMPLEMENTED"; break;
    case 505: code = "VERSION_NOT_SUPPORTED"; break;
    default: break;
  }
  return {status, code, reason, reason};
}

class Connection;

/// What all connections of one loop share; only touched on that loop.
struct LoopState {
  LoopState(common::Loop& its_loop, std::string id_prefix)
      : loop(its_loop), sweep(its_loop.io()), prefix(std::move(id_prefix)), buffer(kReadBytes) {}

  common::Loop& loop;
  asio::steady_timer sweep;
  std::list<std::shared_ptr<Connection>> connections;
  std::string prefix;
  std::uint64_t next_id = 0;
  std::vector<char> buffer;               ///< where plain connections read to
  std::int64_t date_second = -1;
  std::string date;                       ///< "Date: ...\r\n"
  std::unordered_map<std::size_t, common::Counter*> counters;   ///< by route and status
  bool stopping = false;

  std::string_view date_header() {
    const std::int64_t second = common::to_micros(loop.clock().now()) / 1'000'000;
    if (second != date_second) {
      date_second = second;
      const std::time_t time = second;
      std::tm utc{};
      gmtime_r(&time, &utc);
      char text[64];
      const std::size_t size = std::strftime(text, sizeof text, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
      date.assign(text, size);
    }
    return date;
  }
};

/// What all loops share.
struct Shared {
  Shared(const ServerConfig& its_config, const Router& its_router, common::Metrics& its_metrics)
      : config(its_config),
        router(its_router),
        metrics(its_metrics),
        seconds(metrics.histogram("http_request_seconds", "Requests that a handler answered",
                                  common::time_buckets())),
        open(metrics.gauge("http_connections", "Open connections")) {}

  const ServerConfig config;
  const Router& router;
  common::Metrics& metrics;
  common::Histogram& seconds;
  common::Gauge& open;
  std::unique_ptr<asio::ssl::context> tls;
  std::atomic<std::int64_t> connections{0};
  std::atomic<std::int64_t> streams{0};
  std::mutex mutex;
  std::condition_variable all_closed;

  void count_refused(std::string_view reason) {
    metrics
        .counter("http_refused_total", "Requests and connections that the server itself refused, by reason",
                 {{"reason", std::string(reason)}})
        .add();
  }
  void count_timeout(std::string_view kind) {
    metrics.counter("http_timeouts_total", "Connections closed because a time was over, by kind",
                    {{"kind", std::string(kind)}})
        .add();
  }
  void count(LoopState& state, const Route* route, Method method, int status) {
    const std::size_t key = reinterpret_cast<std::size_t>(route) ^ (static_cast<std::size_t>(status) << 48);
    common::Counter*& counter = state.counters[key];
    if (counter == nullptr) {
      const std::string name =
          route == nullptr ? "none" : fmt::format("{} {}", to_string(route->method), route->pattern);
      static_cast<void>(method);
      counter = &metrics.counter("http_requests_total", "Answers by route and status",
                                 {{"route", name}, {"status", std::to_string(status)}});
    }
    counter->add();
  }
};

enum class Phase { kHandshake, kIdle, kHead, kBody, kHandler, kWrite, kStream, kLinger };

class Connection final : public FastOutput, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, LoopState& state, tcp::socket socket, std::string peer)
      : shared_(shared), state_(state), socket_(std::move(socket)), peer_(std::move(peer)) {}

  ~Connection() override {
    if (shared_.connections.fetch_sub(1) == 1) {
      const std::lock_guard lock(shared_.mutex);
      shared_.all_closed.notify_all();
    }
    shared_.open.set(static_cast<double>(shared_.connections.load()));
  }

  void begin(std::list<std::shared_ptr<Connection>>::iterator place) {
    place_ = place;
    if (!shared_.tls) {
      set_phase(Phase::kIdle, shared_.config.idle_timeout);
      wait_readable();
      return;
    }
    set_phase(Phase::kHandshake, shared_.config.header_timeout);
    tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *shared_.tls);
    tls_in_.resize(kReadBytes / 4);
    tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](const Error& error) {
      if (error) return self->close();
      self->set_phase(Phase::kIdle, self->shared_.config.idle_timeout);
      self->wait_readable();
    });
  }

  /// FastOutput: called inside dispatch().
  void answer(int status, std::string_view head, std::string_view body) override {
    shared_.count(state_, route_, view_->method, status);
    out_.append(head);
    append_common(view_->request_id, body.size(), view_->keep_alive && !state_.stopping);
    if (view_->method != Method::kHead) out_.append(body);
  }

  /// Called by the sweep.
  void check_deadline(Steady now) {
    if (phase_ == Phase::kStream) return send_event(now);
    if (now < deadline_) return;
    switch (phase_) {
      case Phase::kHandshake:
      case Phase::kIdle: shared_.count_timeout("idle"); return close();
      case Phase::kHead:
      case Phase::kBody:
        shared_.count_timeout(phase_ == Phase::kHead ? "header" : "body");
        refuse(408, "the request took too long");
        return flush();
      case Phase::kHandler: {
        shared_.count_timeout("handler");
        ++sequence_;   // its late answer goes nowhere
        busy_ = false;
        close_after_ = true;
        append(error_response(kBusy, language_), request_id_, false, false);
        return flush();
      }
      case Phase::kWrite: shared_.count_timeout("write"); return close();
      case Phase::kLinger: return close();
      case Phase::kStream: return;
    }
  }

  /// For a stop: idle connections go at once, the others after their answer.
  void drain() {
    if (phase_ == Phase::kStream) return end_stream();
    if (!busy_ && out_.empty() && in_.empty()) close();
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    if (streaming_) {
      streaming_ = false;
      shared_.streams.fetch_sub(1);
    }
    events_ = nullptr;
    Error ignored;
    socket_.close(ignored);
    state_.connections.erase(place_);
  }

 private:
  void set_phase(Phase phase, std::chrono::milliseconds time) {
    phase_ = phase;
    deadline_ = state_.loop.clock().steady() + time;
  }

  void wait_readable() {
    if (closed_ || waiting_read_) return;
    waiting_read_ = true;
    if (tls_) {
      tls_->async_read_some(asio::buffer(tls_in_),
                            [self = shared_from_this()](const Error& error, std::size_t size) {
                              self->waiting_read_ = false;
                              if (error) return self->close();
                              self->on_bytes({self->tls_in_.data(), size});
                            });
      return;
    }
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const Error& error) {
      self->waiting_read_ = false;
      if (error) return self->close();
      self->on_readable();
    });
  }

  void on_readable() {
    if (closed_) return;
    const ssize_t size = ::recv(socket_.native_handle(), state_.buffer.data(), state_.buffer.size(), 0);
    if (size > 0) return on_bytes({state_.buffer.data(), static_cast<std::size_t>(size)});
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return wait_readable();
    close();
  }

  void on_bytes(std::string_view bytes) {
    if (phase_ == Phase::kLinger) return wait_readable();
    if (in_.empty()) {
      const std::size_t used = process(bytes);
      if (!close_after_) in_.assign(bytes.substr(used));
    } else {
      in_.append(bytes);
      in_.erase(0, process(in_));
    }
    if (close_after_) in_.clear();
    flush();
  }

  /// Answers as many requests as are whole, in order; the number of bytes that are done with.
  std::size_t process(std::string_view bytes) {
    std::size_t used = 0;
    processing_ = true;
    while (!busy_ && !close_after_ && !closed_ && used < bytes.size() && out_.size() < kMaxUnsent) {
      const std::size_t one = process_one(bytes.substr(used));
      if (one == 0) break;
      used += one;
    }
    processing_ = false;
    if (!busy_ && !close_after_ && used < bytes.size() && phase_ == Phase::kIdle) {
      set_phase(Phase::kHead, shared_.config.header_timeout);
    }
    return used;
  }

  std::size_t process_one(std::string_view bytes) {
    RequestView view;
    const Head head = parse_head(
        bytes, {shared_.config.max_header_bytes, shared_.config.max_target_bytes}, view);
    if (head.state == ParseState::kNeedMore) return 0;
    if (head.state == ParseState::kRefused) {
      refuse(head.status, head.reason);
      return bytes.size();
    }
    Router::Match match = shared_.router.find(view.method, view.path);
    const std::size_t max_body = match.route != nullptr ? match.route->max_body : kUnknownRouteBody;
    if (head.content_length > max_body) {
      refuse(413, "the body is too large");
      return bytes.size();
    }
    const std::string_view rest = bytes.substr(head.bytes);
    std::size_t body_bytes = head.content_length;
    if (head.chunked) {
      // Chunk lines cost bytes too: a body in tiny chunks must not grow the buffer without bound.
      const ChunkedBody body = parse_chunked(rest, max_body, chunked_);
      if (body.state == ParseState::kRefused) {
        refuse(body.too_large ? 413 : 400, body.too_large ? "the body is too large" : "broken chunked body");
        return bytes.size();
      }
      if (body.state == ParseState::kNeedMore) {
        if (rest.size() > 4 * max_body + 1024) {
          refuse(413, "the body is too large");
          return bytes.size();
        }
        return want_body(head);
      }
      view.body = chunked_;
      body_bytes = body.consumed;
    } else {
      if (rest.size() < head.content_length) return want_body(head);
      view.body = rest.substr(0, head.content_length);
    }
    continued_ = false;
    phase_ = Phase::kIdle;
    if (view.request_id.empty()) view.request_id = make_request_id();
    dispatch(view, match);
    return head.bytes + body_bytes;
  }

  std::size_t want_body(const Head& head) {
    if (phase_ != Phase::kBody) set_phase(Phase::kBody, shared_.config.body_timeout);
    if (head.expect_continue && !continued_) {
      continued_ = true;
      out_.append("HTTP/1.1 100 Continue\r\n\r\n");
    }
    return 0;
  }

  std::string_view make_request_id() {
    const auto end = fmt::format_to_n(id_.data(), id_.size(), "{}{:x}", state_.prefix, state_.next_id++);
    return {id_.data(), end.size};
  }

  void dispatch(const RequestView& view, const Router::Match& match) {
    const bool keep_alive = view.keep_alive && !state_.stopping;
    if (match.route == nullptr) {
      shared_.count(state_, nullptr, view.method, match.refusal->status);
      Response response = error_response(*match.refusal, view.language);
      if (!match.allow.empty()) response.headers.emplace_back("Allow", match.allow);
      append(response, view.request_id, keep_alive, view.method == Method::kHead);
      close_after_ = !keep_alive;
      return;
    }
    route_ = match.route;
    if (route_->fast) {
      view_ = &view;
      const bool answered =
          route_->fast(view, std::span(match.params.data(), match.param_count), *this);
      view_ = nullptr;
      if (answered) {
        close_after_ = !keep_alive;
        return;
      }
    }
    Request request(view, state_.loop, peer_);
    if (!Router::fill(request, match)) {
      shared_.count(state_, route_, view.method, kInvalidParameter.status);
      append(error_response(kInvalidParameter, view.language), view.request_id, keep_alive,
             view.method == Method::kHead);
      close_after_ = !keep_alive;
      return;
    }
    busy_ = true;
    head_only_ = view.method == Method::kHead;
    answer_keep_alive_ = view.keep_alive;
    language_ = view.language;
    request_id_.assign(view.request_id);
    begun_ = state_.loop.clock().steady();
    set_phase(Phase::kHandler, shared_.config.request_timeout);
    common::start(run(shared_from_this(), route_, std::move(request), ++sequence_));
  }

  static Task<void> run(std::shared_ptr<Connection> self, const Route* route, Request request,
                        std::uint64_t sequence) {
    Task<Response> handling = route->handler(std::move(request));
    Response response = co_await handling;
    self->answered(route, sequence, std::move(response));
  }

  void answered(const Route* route, std::uint64_t sequence, Response response) {
    shared_.count(state_, route, route->method, response.status);
    shared_.seconds.observe(
        std::chrono::duration<double>(state_.loop.clock().steady() - begun_).count());
    if (closed_ || sequence != sequence_) return;
    const bool keep_alive = answer_keep_alive_ && !state_.stopping;
    if (response.events && !head_only_) return begin_stream(std::move(response));
    busy_ = false;
    phase_ = Phase::kIdle;
    append(response, request_id_, keep_alive, head_only_);
    close_after_ = !keep_alive;
    // Inside process() its loop goes on; otherwise what was pipelined behind this request is next.
    if (processing_) return;
    go_on();
  }

  void go_on() {
    if (!in_.empty() && !close_after_) in_.erase(0, process(in_));
    flush();
  }

  void begin_stream(Response response) {
    if (shared_.streams.fetch_add(1) >= static_cast<std::int64_t>(shared_.config.max_event_streams) ||
        state_.stopping) {
      shared_.streams.fetch_sub(1);
      shared_.count_refused("event_streams");
      busy_ = false;
      close_after_ = true;
      append(error_response(kBusy, language_), request_id_, false, false);
    } else {
      streaming_ = true;
      events_ = std::move(response.events);
      phase_ = Phase::kStream;
      next_event_ = Steady{};
      out_.append("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
                  "X-Content-Type-Options: nosniff\r\nTransfer-Encoding: chunked\r\nX-Request-Id: ");
      out_.append(request_id_).append("\r\n").append(state_.date_header()).append("\r\n");
      send_event(state_.loop.clock().steady());
    }
    if (!processing_) flush();
  }

  void send_event(Steady now) {
    if (now < next_event_) return;
    next_event_ = now + kEventEvery;
    // A reader that does not keep up misses events, then the connection.
    if (out_.size() >= kMaxUnsent) {
      shared_.count_timeout("write");
      return close();
    }
    std::optional<std::string> chunk = events_();
    if (!chunk) return end_stream();
    if (chunk->empty()) *chunk = ":\n\n";
    out_.append(fmt::format("{:x}\r\n", chunk->size())).append(*chunk).append("\r\n");
    if (!processing_) flush();
  }

  void end_stream() {
    out_.append("0\r\n\r\n");
    events_ = nullptr;
    busy_ = false;
    close_after_ = true;
    phase_ = Phase::kIdle;
    if (!processing_) flush();
  }

  void refuse(int status, std::string_view reason) {
    shared_.count_refused(fmt::format("{}", status));
    shared_.count(state_, nullptr, Method::kGet, status);
    append(error_response(protocol_error(status, reason), Language::kEnglish), make_request_id(), false, false);
    close_after_ = true;
    linger_ = true;
  }

  void append(const Response& response, std::string_view request_id, bool keep_alive, bool head_only) {
    out_.append(fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status)));
    if (!response.body.empty()) out_.append("Content-Type: ").append(response.content_type).append("\r\n");
    bool cache_control = false;
    for (const auto& [name, value] : response.headers) {
      cache_control = cache_control || name == "Cache-Control";
      out_.append(name).append(": ").append(value).append("\r\n");
    }
    out_.append("X-Content-Type-Options: nosniff\r\n");
    if (!cache_control) out_.append("Cache-Control: no-store\r\n");
    append_common(request_id, response.body.size(), keep_alive);
    if (!head_only) out_.append(response.body);
  }

  void append_common(std::string_view request_id, std::size_t length, bool keep_alive) {
    out_.append(state_.date_header());
    out_.append("X-Request-Id: ").append(request_id);
    std::array<char, 32> digits;
    const auto end = fmt::format_to_n(digits.data(), digits.size(), "\r\nContent-Length: {}", length);
    out_.append(digits.data(), end.size);
    out_.append(keep_alive ? "\r\n\r\n" : "\r\nConnection: close\r\n\r\n");
  }

  /// Sends what is there in one call, then waits for what is next.
  void flush() {
    if (closed_ || writing_) return;
    if (!out_.empty()) {
      if (tls_) return flush_tls();
      while (sent_ < out_.size()) {
        const ssize_t size =
            ::send(socket_.native_handle(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_writable();
        if (size < 0) return close();
        sent_ += static_cast<std::size_t>(size);
      }
    }
    flushed();
  }

  void wait_writable() {
    out_.erase(0, sent_);
    sent_ = 0;
    if (phase_ != Phase::kHandler && phase_ != Phase::kStream) {
      set_phase(Phase::kWrite, shared_.config.write_timeout);
    }
    writing_ = true;
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const Error& error) {
      self->writing_ = false;
      if (error) return self->close();
      self->flush();
    });
  }

  void flush_tls() {
    writing_ = true;
    tls_out_.swap(out_);
    out_.clear();
    if (phase_ != Phase::kHandler && phase_ != Phase::kStream) {
      set_phase(Phase::kWrite, shared_.config.write_timeout);
    }
    asio::async_write(*tls_, asio::buffer(tls_out_),
                      [self = shared_from_this()](const Error& error, std::size_t) {
                        self->writing_ = false;
                        self->tls_out_.clear();
                        if (error) return self->close();
                        self->flush();
                      });
  }

  void flushed() {
    out_.clear();
    sent_ = 0;
    if (out_.capacity() > kKeptCapacity) out_.shrink_to_fit();
    if (phase_ == Phase::kStream || busy_) return;
    if (close_after_) {
      if (!linger_) return close();
      // The client reads why before it meets the end: a close with unread bytes would reset the connection.
      ::shutdown(socket_.native_handle(), SHUT_WR);
      set_phase(Phase::kLinger, kLingerTime);
      return wait_readable();
    }
    if (state_.stopping && in_.empty()) return close();
    if (!in_.empty() && out_was_full()) return;
    if (phase_ == Phase::kWrite || phase_ == Phase::kIdle) {
      if (in_.empty()) {
        if (in_.capacity() > kKeptCapacity) in_.shrink_to_fit();
        set_phase(Phase::kIdle, shared_.config.idle_timeout);
      } else {
        set_phase(Phase::kHead, shared_.config.header_timeout);
      }
    }
    wait_readable();
  }

  /// After a slow reader has caught up: whole requests may wait in `in_`. True when they were answered.
  bool out_was_full() {
    const std::size_t used = process(in_);
    if (used == 0) return false;
    in_.erase(0, used);
    flush();
    return true;
  }

  Shared& shared_;
  LoopState& state_;
  tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<tcp::socket&>> tls_;
  std::vector<char> tls_in_;
  std::string tls_out_;
  std::string peer_;
  std::list<std::shared_ptr<Connection>>::iterator place_;
  std::string in_;                    ///< what is not a whole request yet
  std::string out_;                   ///< answers that are not sent
  std::size_t sent_ = 0;              ///< bytes of out_ that are
  std::string chunked_;               ///< a decoded chunked body
  std::array<char, 48> id_{};
  Phase phase_ = Phase::kIdle;
  Steady deadline_{};
  Steady begun_{};
  Steady next_event_{};
  const Route* route_ = nullptr;
  const RequestView* view_ = nullptr;
  std::string request_id_;
  Language language_ = Language::kEnglish;
  std::uint64_t sequence_ = 0;
  std::function<std::optional<std::string>()> events_;
  bool busy_ = false;                 ///< a handler has not answered, or a stream is open
  bool processing_ = false;
  bool waiting_read_ = false;
  bool writing_ = false;
  bool close_after_ = false;
  bool linger_ = false;
  bool closed_ = false;
  bool continued_ = false;
  bool head_only_ = false;
  bool answer_keep_alive_ = true;
  bool streaming_ = false;
};

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerConfig& config, const Router& router, const std::vector<common::Loop*>& loops,
             common::Metrics& metrics)
      : shared_(config, router, metrics), acceptor_(loops.front()->io()), back_off_(loops.front()->io()) {
    std::array<std::uint8_t, 6> random{};
    common::fill_random(random);
    for (std::size_t i = 0; i < loops.size(); ++i) {
      states_.push_back(std::make_unique<LoopState>(
          *loops[i], fmt::format("{}{:x}-", common::base64url_encode(random), i)));
    }
  }

  ~ServerImpl() override { stop(std::chrono::milliseconds{0}); }

  Result<common::Done> open() {
    const ServerConfig& config = shared_.config;
    if (!config.tls_certificate.empty() || !config.tls_key.empty()) {
      try {
        shared_.tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
        shared_.tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                                 asio::ssl::context::no_tlsv1_1);
        shared_.tls->use_certificate_chain_file(config.tls_certificate);
        shared_.tls->use_private_key_file(config.tls_key, asio::ssl::context::pem);
      } catch (const boost::system::system_error& error) {
        return fail(ErrorCode::kInvalid, fmt::format("TLS certificate {} or key {}: {}", config.tls_certificate,
                                                     config.tls_key, error.what()));
      }
    }
    Error error;
    const auto address = asio::ip::make_address(config.address, error);
    if (error) return fail(ErrorCode::kInvalid, config.address + " is no IP address to listen on");
    const tcp::endpoint endpoint(address, config.port);
    acceptor_.open(endpoint.protocol(), error);
    // Not SO_REUSEPORT: a second server must not share the port unnoticed.
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) acceptor_.non_blocking(true, error);
    if (error) {
      const bool taken = error == asio::error::address_in_use;
      return fail(taken ? ErrorCode::kBusy : ErrorCode::kIo,
                  fmt::format("cannot listen on {}:{}: {}", config.address, config.port, error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    running_ = true;
    for (const auto& state : states_) {
      state->loop.post([this, one = state.get()] { sweep(*one); });
    }
    states_.front()->loop.post([this] { wait_accept(); });
    return common::Done{};
  }

  std::uint16_t port() const noexcept override { return port_; }

  void stop(std::chrono::milliseconds grace) override {
    if (!running_) return;
    running_ = false;
    on_each_loop([this](LoopState& state) {
      if (&state == states_.front().get()) {
        Error ignored;
        acceptor_.close(ignored);
        back_off_.cancel();
      }
      state.stopping = true;
      for_all(state, [](Connection& one) { one.drain(); });
    });
    {
      std::unique_lock lock(shared_.mutex);
      shared_.all_closed.wait_for(lock, grace, [this] { return shared_.connections.load() == 0; });
    }
    on_each_loop([this](LoopState& state) {
      state.sweep.cancel();
      for_all(state, [](Connection& one) { one.close(); });
    });
    // Handlers that still run keep their connection's memory until they answer; their loops outlive us.
    std::unique_lock lock(shared_.mutex);
    shared_.all_closed.wait(lock, [this] { return shared_.connections.load() == 0; });
  }

 private:
  template <class F>
  void on_each_loop(F&& work) {
    std::mutex mutex;
    std::condition_variable done;
    std::size_t left = states_.size();
    for (const auto& state : states_) {
      state->loop.post([&, one = state.get()] {
        work(*one);
        const std::lock_guard lock(mutex);
        if (--left == 0) done.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return left == 0; });
  }

  template <class F>
  static void for_all(LoopState& state, F&& work) {
    // A copy: closing takes a connection out of the list.
    const std::vector<std::shared_ptr<Connection>> all(state.connections.begin(), state.connections.end());
    for (const auto& one : all) work(*one);
  }

  void sweep(LoopState& state) {
    const Steady now = state.loop.clock().steady();
    for (auto it = state.connections.begin(); it != state.connections.end();) {
      const std::shared_ptr<Connection> one = *it++;
      one->check_deadline(now);
    }
    state.sweep.expires_after(sweep_every());
    state.sweep.async_wait([this, &state](const Error& error) {
      if (!error) sweep(state);
    });
  }

  std::chrono::milliseconds sweep_every() const {
    const ServerConfig& c = shared_.config;
    const auto least = std::min({c.header_timeout, c.body_timeout, c.idle_timeout, c.write_timeout,
                                 c.request_timeout});
    return std::clamp(least / 10, std::chrono::milliseconds{20}, std::chrono::milliseconds{250});
  }

  void wait_accept() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const Error& error) {
      if (error) return;
      accept_burst();
    });
  }

  void accept_burst() {
    for (int i = 0; i < kAcceptBurst; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      const int fd = ::accept4(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&address), &size,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        // Out of descriptors or memory: the connection stays in the queue, and trying at once would spin.
        shared_.count_refused("accept");
        back_off_.expires_after(kAcceptBackOff);
        back_off_.async_wait([this](const Error& error) {
          if (!error) wait_accept();
        });
        return;
      }
      take(fd, address, size);
    }
    wait_accept();
  }

  void take(int fd, const sockaddr_storage& address, socklen_t size) {
    if (shared_.connections.load() >= static_cast<std::int64_t>(shared_.config.max_connections)) {
      shared_.count_refused("connections");
      constexpr std::string_view busy =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
          "Connection: close\r\nContent-Length: 59\r\n\r\n"
          "{\"error\":\"BUSY\",\"message\":\"Too many connections are open.\"}";
      static_cast<void>(::send(fd, busy.data(), busy.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      ::close(fd);
      return;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    tcp::endpoint peer;
    if (size <= peer.capacity()) {
      std::memcpy(peer.data(), &address, size);
      peer.resize(size);
    }
    shared_.connections.fetch_add(1);
    shared_.open.set(static_cast<double>(shared_.connections.load()));
    LoopState& state = *states_[next_++ % states_.size()];
    const auto protocol = address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
    state.loop.post([this, &state, fd, protocol, name = peer.address().to_string()] {
      auto connection =
          std::make_shared<Connection>(shared_, state, tcp::socket(state.loop.io(), protocol, fd), name);
      state.connections.push_front(connection);
      connection->begin(state.connections.begin());
      if (state.stopping) connection->drain();
    });
  }

  Shared shared_;
  std::vector<std::unique_ptr<LoopState>> states_;
  tcp::acceptor acceptor_;
  asio::steady_timer back_off_;
  std::size_t next_ = 0;
  std::uint16_t port_ = 0;
  bool running_ = false;
};

}  // namespace

Result<std::unique_ptr<Server>> start_server(const ServerConfig& config, const Router& router,
                                             const std::vector<common::Loop*>& loops,
                                             common::Metrics& metrics) {
  DOORBUSTER_ENSURE(!loops.empty(), "a server needs a loop");
  auto server = std::make_unique<ServerImpl>(config, router, loops, metrics);
  const Result<common::Done> opened = server->open();
  if (!opened) return fail(opened.error());
  return server;
}

}  // namespace doorbuster::http

#include <type_traits>

#include "app/config.hpp"

namespace doorbuster::app {
namespace {

template <class T>
struct IsDuration : std::false_type {};
template <class Rep, class Period>
struct IsDuration<std::chrono::duration<Rep, Period>> : std::true_type {};

// `field` is a generic lambda from a Config, constant or not, to one of its members.
template <class Field>
ConfigKey integer(std::string name, std::int64_t min, std::int64_t max, std::string help,
                  Field field) {
  using T = std::remove_cvref_t<decltype(field(std::declval<Config&>()))>;
  ConfigKey key{std::move(name), KeyKind::kInteger, min, max, {}, std::move(help), {}, {}};
  key.get = [field](const Config& config) -> ConfigValue {
    if constexpr (IsDuration<T>::value) {
      return static_cast<std::int64_t>(field(config).count());
    } else {
      return static_cast<std::int64_t>(field(config));
    }
  };
  key.set = [field](Config& config, const ConfigValue& value) {
    field(config) = static_cast<T>(std::get<std::int64_t>(value));
  };
  return key;
}

template <class Field>
ConfigKey boolean(std::string name, std::string help, Field field) {
  ConfigKey key{std::move(name), KeyKind::kBoolean, 0, 0, {}, std::move(help), {}, {}};
  key.get = [field](const Config& config) -> ConfigValue { return field(config); };
  key.set = [field](Config& config, const ConfigValue& value) {
    field(config) = std::get<bool>(value);
  };
  return key;
}

template <class Field>
ConfigKey text(std::string name, std::int64_t min, std::int64_t max, std::string help,
               Field field) {
  ConfigKey key{std::move(name), KeyKind::kText, min, max, {}, std::move(help), {}, {}};
  key.get = [field](const Config& config) -> ConfigValue { return field(config); };
  key.set = [field](Config& config, const ConfigValue& value) {
    field(config) = std::get<std::string>(value);
  };
  return key;
}

// `choices` stand in the order of the enumerators.
template <class Field>
ConfigKey choice(std::string name, std::vector<std::string> choices, std::string help,
                 Field field) {
  using T = std::remove_cvref_t<decltype(field(std::declval<Config&>()))>;
  ConfigKey key{std::move(name),    KeyKind::kChoice, 0,  0,
                std::move(choices), std::move(help),  {}, {}};
  key.get = [field, words = key.choices](const Config& config) -> ConfigValue {
    return words.at(static_cast<std::size_t>(field(config)));
  };
  key.set = [field, words = key.choices](Config& config, const ConfigValue& value) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == std::get<std::string>(value)) field(config) = static_cast<T>(i);
    }
  };
  return key;
}

constexpr std::int64_t kPathLength = 4096;  // PATH_MAX
constexpr std::int64_t kHour = 3'600'000;   // in milliseconds

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys{
      choice(
          "mode", {"development", "production"},
          "`development` accepts tokens of the key that everybody knows; `production` refuses it "
          "and asks for `tokens.keys`.",
          [](auto& c) -> auto& { return c.mode; }),
      text("ledger", 1, kPathLength,
           "The truth: `sqlite:PATH`. The file and its folder are made when they are missing.",
           [](auto& c) -> auto& { return c.ledger; }),
      text("gate", 1, kPathLength, "Who decides who gets a unit: `local`, in this process.",
           [](auto& c) -> auto& { return c.gate; }),
      text("journal", 1, kPathLength,
           "What carries grants to the ledger: `direct`, a bounded queue in this process.",
           [](auto& c) -> auto& { return c.journal; }),
      integer("shutdown_grace_ms", 0, 600'000,
              "How long a shutdown waits for requests that are being answered.",
              [](auto& c) -> auto& { return c.shutdown_grace; }),
      boolean(
          "warm_up",
          "Go through each kind of work once before `/health/ready` says yes, so that the first "
          "buyer does not pay for it.",
          [](auto& c) -> auto& { return c.warm_up; }),

      text("http.address", 1, 255, "The address to listen on; `0.0.0.0` or `::` for all of them.",
           [](auto& c) -> auto& { return c.http.address; }),
      integer("http.port", 0, 65'535, "The port to listen on; 0 takes any free one.",
              [](auto& c) -> auto& { return c.http.port; }),
      integer("http.io_threads", 0, 256,
              "Threads that serve connections; 0 makes one for each core.",
              [](auto& c) -> auto& { return c.io_threads; }),
      text("http.tls_certificate", 0, kPathLength,
           "PEM file with the certificate chain; empty for plain HTTP.",
           [](auto& c) -> auto& { return c.http.tls_certificate; }),
      text("http.tls_key", 0, kPathLength, "PEM file with the certificate's private key.",
           [](auto& c) -> auto& { return c.http.tls_key; }),
      integer("http.max_connections", 1, 1'000'000,
              "Open connections; one more is answered 503 and closed.",
              [](auto& c) -> auto& { return c.http.max_connections; }),
      integer("http.max_header_bytes", 1024, 65'536,
              "Size of request line and headers; more is 431.",
              [](auto& c) -> auto& { return c.http.max_header_bytes; }),
      integer("http.max_target_bytes", 256, 65'536, "Size of path and query; more is 414.",
              [](auto& c) -> auto& { return c.http.max_target_bytes; }),
      integer("http.max_event_streams", 0, 1'000'000,
              "Open server-sent-event answers; one more is 503.",
              [](auto& c) -> auto& { return c.http.max_event_streams; }),
      integer("http.header_timeout_ms", 100, kHour,
              "From the first byte of a request to its last header; later is 408.",
              [](auto& c) -> auto& { return c.http.header_timeout; }),
      integer("http.body_timeout_ms", 100, kHour,
              "From the last header to the end of the body; later is 408.",
              [](auto& c) -> auto& { return c.http.body_timeout; }),
      integer("http.idle_timeout_ms", 100, kHour,
              "How long a connection may stay open between two requests.",
              [](auto& c) -> auto& { return c.http.idle_timeout; }),
      integer("http.write_timeout_ms", 100, kHour,
              "How long a client may leave an answer unread before the connection is closed.",
              [](auto& c) -> auto& { return c.http.write_timeout; }),
      integer(
          "http.request_timeout_ms", 100, kHour,
          "Safety net for a request that nobody answers: 503. Above `engine.request_budget_ms`.",
          [](auto& c) -> auto& { return c.http.request_timeout; }),

      text(
          "tokens.keys", 0, kPathLength,
          "Where the keys are that verify tokens: a file (JWK, JWK set or PEM) or the URL of a JWK "
          "set; empty for the development key.",
          [](auto& c) -> auto& { return c.token_keys.location; }),
      text("tokens.issuer", 0, 255, "The `iss` that tokens must carry; empty when any will do.",
           [](auto& c) -> auto& { return c.tokens.issuer; }),
      text("tokens.audience", 1, 255, "The `aud` of members' tokens.",
           [](auto& c) -> auto& { return c.tokens.audience; }),
      text("tokens.admin_audience", 1, 255, "The `aud` of administrators' tokens.",
           [](auto& c) -> auto& { return c.tokens.admin_audience; }),
      integer("tokens.leeway_s", 0, 300,
              "How far the issuer's clock may be off when `exp` and `nbf` are checked.",
              [](auto& c) -> auto& { return c.tokens.leeway; }),
      integer("tokens.cache_entries", 0, 10'000'000,
              "Verified tokens that each thread remembers; 0 for none.",
              [](auto& c) -> auto& { return c.tokens.cache_entries; }),
      integer("tokens.max_token_bytes", 256, 65'536, "A longer token is refused.",
              [](auto& c) -> auto& { return c.tokens.max_token_bytes; }),
      integer("tokens.refresh_s", 1, 86'400, "How often the keys are read again.",
              [](auto& c) -> auto& { return c.token_keys.refresh; }),
      integer("tokens.min_interval_s", 1, 86'400,
              "How soon the keys may be read again when a token names an unknown one.",
              [](auto& c) -> auto& { return c.token_keys.min_interval; }),
      integer("tokens.fetch_timeout_ms", 100, 60'000,
              "How long fetching the keys from a URL may take.",
              [](auto& c) -> auto& { return c.token_keys.timeout; }),
      integer("tokens.max_keys_bytes", 1024, 16 * 1024 * 1024,
              "A longer answer or file is refused.",
              [](auto& c) -> auto& { return c.token_keys.max_bytes; }),

      integer(
          "engine.request_budget_ms", 100, 60'000,
          "How long a purchase may take before it is answered 503. Must be above what it may have "
          "to wait for: the sum is checked, and logged, at start.",
          [](auto& c) -> auto& { return c.engine.budget.request_budget; }),
      integer("engine.queue_size", 1, 1'000'000,
              "Purchases that may wait for the ledger; one more is answered 503 before a unit is "
              "taken.",
              [](auto& c) -> auto& { return c.engine.budget.queue_size; }),
      integer("engine.batch_max", 1, 10'000, "Grants that one transaction writes.",
              [](auto& c) -> auto& { return c.engine.budget.batch_max; }),
      integer("engine.take_timeout_ms", 1, 60'000, "What one decision of the gate may take.",
              [](auto& c) -> auto& { return c.engine.budget.take_timeout; }),
      integer("engine.connection_wait_ms", 1, 60'000,
              "What a batch may wait for the transaction before it.",
              [](auto& c) -> auto& { return c.engine.budget.connection_wait; }),
      integer("engine.statement_timeout_ms", 1, 60'000,
              "How long the database may keep a statement waiting for a lock.",
              [](auto& c) -> auto& { return c.engine.budget.statement_timeout; }),
      integer("engine.confirm_timeout_ms", 1, 60'000,
              "What telling the gate of recorded grants may take.",
              [](auto& c) -> auto& { return c.engine.budget.confirm_timeout; }),
      integer("engine.expiry_every_ms", 10, 60'000, "How often unpaid holds are looked for.",
              [](auto& c) -> auto& { return c.engine.expiry_every; }),
      integer("engine.expiry_batch", 1, 10'000, "Holds that one transaction ends.",
              [](auto& c) -> auto& { return c.engine.expiry_batch; }),
      integer("engine.relay_every_ms", 10, 60'000,
              "How often returned units are looked for that no message announced.",
              [](auto& c) -> auto& { return c.engine.relay_every; }),
      integer("engine.probe_every_ms", 10, 60'000,
              "How often sold out is checked against gate and ledger.",
              [](auto& c) -> auto& { return c.engine.probe_every; }),
      integer("engine.watch_every_ms", 10, 60'000, "How often gate and ledger are compared.",
              [](auto& c) -> auto& { return c.engine.watch_every; }),
      integer("engine.watch_backoff_s", 1, 86'400,
              "How soon a gate may be rebuilt again after two comparisons that missed.",
              [](auto& c) -> auto& { return c.engine.watch_backoff; }),
      integer("engine.reclaim_every_ms", 10, kHour, "How often abandoned grants are looked for.",
              [](auto& c) -> auto& { return c.engine.reclaim_every; }),
      integer("engine.reclaim_after_s", 1, 86'400,
              "Age from which on a grant that nobody finishes counts as abandoned.",
              [](auto& c) -> auto& { return c.engine.reclaim_after; }),
      integer("engine.payment_timeout_ms", 100, 60'000,
              "How long the payment gateway may take; later the outcome is unknown and asked for.",
              [](auto& c) -> auto& { return c.payment_timeout; }),
      text("engine.order_id_key_file", 1, kPathLength,
           "File with the secret that order ids are signed with; made when it is missing. Keep it: "
           "without it every order id that was given out stops working.",
           [](auto& c) -> auto& { return c.order_id_key_file; }),

      choice("log.level", {"debug", "info", "warn", "error"}, "What is logged: this and worse.",
             [](auto& c) -> auto& { return c.log.level; }),
      choice("log.format", {"text", "json"}, "For people or for machines.",
             [](auto& c) -> auto& { return c.log.format; }),
  };
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

}  // namespace doorbuster::app

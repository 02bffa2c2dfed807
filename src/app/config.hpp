#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/log.hpp"
#include "common/result.hpp"
#include "edge/token.hpp"
#include "engine/engine.hpp"
#include "http/server.hpp"

namespace doorbuster::app {

enum class Mode {
  kDevelopment,  ///< the key that everybody knows is accepted, so that trying things out needs no
                 ///< set-up
  kProduction,   ///< it is refused
};

struct LogConfig {
  common::LogLevel level = common::LogLevel::kInfo;
  common::LogFormat format = common::LogFormat::kText;
};

/// Everything that can be set, with its defaults. Ranges, names and help are in config_keys().
struct Config {
  Mode mode = Mode::kDevelopment;
  std::string ledger = "sqlite:data/doorbuster.db";
  std::string gate = "local";
  std::string journal = "direct";
  std::chrono::milliseconds shutdown_grace{10'000};
  bool warm_up = true;

  http::ServerConfig http;
  std::size_t io_threads = 0;  ///< 0: one for each core

  edge::TokenConfig tokens;
  edge::KeySourceConfig token_keys;  ///< an empty location means the development key

  engine::EngineConfig engine;  ///< `budget.statement_timeout` is SQLite's busy timeout, too
  std::chrono::milliseconds payment_timeout{5000};
  std::string order_id_key_file = "data/order-id.key";

  LogConfig log;
};

/// What a key holds. Text also carries the word of a choice.
using ConfigValue = std::variant<std::int64_t, bool, std::string>;

enum class KeyKind { kInteger, kBoolean, kText, kChoice };

/// One line of the table that parsing, printing, flags and docs/configuration.md are made from.
struct ConfigKey {
  std::string name;  ///< "http.port"; the part before the dot is the TOML table
  KeyKind kind = KeyKind::kText;
  std::int64_t min = 0;              ///< kInteger: smallest value; kText: shortest length
  std::int64_t max = 0;              ///< kInteger: largest value; kText: longest length, in bytes
  std::vector<std::string> choices;  ///< kChoice
  std::string help;                  ///< one sentence, for people
  std::function<ConfigValue(const Config&)> get;
  std::function<void(Config&, const ConfigValue&)>
      set;  ///< the value is of the right kind and in range
};

/// All keys, those without a table first, then table by table.
[[nodiscard]] const std::vector<ConfigKey>& config_keys();

/// "http.port" -> "DOORBUSTER_HTTP_PORT".
[[nodiscard]] std::string environment_name(std::string_view key);

/// Where configuration comes from. Later ones win: file, environment, flags.
struct ConfigInputs {
  std::string file;  ///< the path that --config or DOORBUSTER_CONFIG names; empty:
                     ///< kDefaultConfigFile, if there
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< variable and value; others are ignored
  std::vector<std::pair<std::string, std::string>>
      flags;  ///< key and value, as in "--http.port 9000"
};

/// Read when nobody names a file, and allowed to be absent.
inline constexpr std::string_view kDefaultConfigFile = "doorbuster.toml";
/// Names the file; the only variable with our prefix that is no key.
inline constexpr std::string_view kConfigFileVariable = "DOORBUSTER_CONFIG";
/// A longer file is refused: nobody writes one by hand.
inline constexpr std::size_t kMaxConfigFileBytes = 256 * 1024;

/// The variables of this process that begin with DOORBUSTER_.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> process_environment();

struct LoadedConfig {
  Config config;
  std::vector<std::string>
      origins;  ///< for each of config_keys(): "default", "doorbuster.toml:12", ...
};

/// Puts file, environment and flags over the defaults and checks all of it. kInvalid with one line
/// for each problem: the place, the key, the value and what would be right; for an unknown key the
/// nearest known one. Kubernetes adds variables for every service (DOORBUSTER_SERVICE_HOST,
/// DOORBUSTER_PORT=tcp://...): those are left alone.
[[nodiscard]] common::Result<LoadedConfig> load_config(const ConfigInputs& inputs);

/// Whether the parts fit together (engine page, section 4, "legal set-ups", and rules that no
/// single key shows). Part of load_config(); callable alone for a configuration made by a program.
[[nodiscard]] common::Result<common::Done> check_config(const Config& config);

/// Whether these keys may verify tokens in this mode: the key that everybody knows may not in
/// production, also when somebody copied it into a file.
[[nodiscard]] common::Result<common::Done> check_keys(const Config& config,
                                                      std::span<const edge::VerificationKey> keys);

/// The file of a "sqlite:PATH" ledger.
[[nodiscard]] std::string sqlite_path(const Config& config);

/// What is in force as a TOML file that can be used again, each line with the place its value came
/// from. User names and passwords in URLs are left out, here and in every message.
[[nodiscard]] std::string print_toml(const LoadedConfig& loaded);
/// The same as JSON: {"http.port": {"value": 8080, "from": "default"}, ...}.
[[nodiscard]] std::string print_json(const LoadedConfig& loaded);
/// The text of docs/configuration.md.
[[nodiscard]] std::string configuration_page();

}  // namespace doorbuster::app

#include "app/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "common/text.hpp"
#include "engine/budget.hpp"

namespace doorbuster::app {
namespace {

constexpr std::string_view kPrefix = "DOORBUSTER_";
constexpr std::string_view kSqliteScheme = "sqlite:";
/// How much of a wrong value a message repeats, in bytes.
constexpr std::size_t kShownValue = 80;
/// How much of what toml++ says about a file a message repeats, in bytes. It quotes from the file.
constexpr std::size_t kShownReason = 200;

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// A URL may carry a password or an access token; neither may reach a terminal or a log. The last
// '@' counts, since a password that was not escaped may hold one of its own.
std::string without_secrets(std::string_view text) {
  const std::size_t scheme = text.find("://");
  if (scheme == std::string_view::npos) return std::string(text);
  const std::size_t begin = scheme + 3;
  std::string out(text.substr(0, begin));
  std::string_view rest = text.substr(begin);
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    out += "***@";
    rest.remove_prefix(at + 1);
  }
  const std::size_t extra = rest.find_first_of("?#");
  out += rest.substr(0, extra);
  if (extra != std::string_view::npos) out += "?***";
  return out;
}

bool is_one_line(std::string_view text) {
  return common::is_plain_utf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return std::iscntrl(static_cast<unsigned char>(c)) != 0;
         });
}

// Part of a line for terminal and log: control characters and bytes that are no UTF-8 become '?',
// and no character is cut in two.
std::string shown(std::string_view value, std::size_t most = kShownValue) {
  const std::string text = without_secrets(value);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
    std::string_view character = std::string_view(text).substr(begin, end - begin);
    if (!is_one_line(character)) character = "?";
    if (out.size() + character.size() > most) return out + "...";
    out += character;
    begin = end;
  }
  return out;
}

std::string wanted(const ConfigKey& key) {
  switch (key.kind) {
    case KeyKind::kInteger:
      return fmt::format("an integer from {} to {}", key.min, key.max);
    case KeyKind::kBoolean:
      return "true or false";
    case KeyKind::kChoice:
      return fmt::format("one of {}", fmt::join(key.choices, ", "));
    case KeyKind::kText:
      return fmt::format("one line of text of {} to {} bytes", key.min, key.max);
  }
  return {};
}

bool allowed(const ConfigKey& key, const ConfigValue& value) {
  switch (key.kind) {
    case KeyKind::kInteger: {
      const auto* number = std::get_if<std::int64_t>(&value);
      return number != nullptr && *number >= key.min && *number <= key.max;
    }
    case KeyKind::kBoolean:
      return std::holds_alternative<bool>(value);
    case KeyKind::kChoice: {
      const auto* word = std::get_if<std::string>(&value);
      return word != nullptr &&
             std::find(key.choices.begin(), key.choices.end(), *word) != key.choices.end();
    }
    case KeyKind::kText: {
      const auto* text = std::get_if<std::string>(&value);
      return text != nullptr && static_cast<std::int64_t>(text->size()) >= key.min &&
             static_cast<std::int64_t>(text->size()) <= key.max && is_one_line(*text);
    }
  }
  return false;
}

// What a variable or flag means for this key; nothing when the text is no such value.
std::optional<ConfigValue> from_text(const ConfigKey& key, const std::string& text) {
  switch (key.kind) {
    case KeyKind::kInteger: {
      std::int64_t number = 0;
      const char* const end = text.data() + text.size();
      const auto [stopped, error] = std::from_chars(text.data(), end, number);
      if (error != std::errc{} || stopped != end) return std::nullopt;
      return number;
    }
    case KeyKind::kBoolean:
      if (text == "true") return true;
      if (text == "false") return false;
      return std::nullopt;
    case KeyKind::kChoice:
    case KeyKind::kText:
      return text;
  }
  return std::nullopt;
}

std::optional<ConfigValue> from_toml(const toml::node& node) {
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* text = node.as_string()) return text->get();
  return std::nullopt;
}

std::string toml_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return quote(shown(text->get()));
  if (node.is_table()) return "a table";
  // Their text is not asked for: toml++ 3.3.0 counts its width with undefined results for inf.
  if (node.is_array()) return "an array";
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return shown(out.str());
}

// The part before the dot, empty for a key without one.
std::string_view section_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
}

std::string_view last_part(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [text](std::string_view end) { return text.ends_with(end); });
}

// What Kubernetes puts into every container for a service whose name begins with "doorbuster".
bool is_service_link(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != std::string_view::npos) {
    return true;
  }
  if (ends_with_any(name, {"_TCP_PROTO", "_TCP_PORT", "_TCP_ADDR", "_UDP_PROTO", "_UDP_PORT",
                           "_UDP_ADDR", "_SCTP_PROTO", "_SCTP_PORT", "_SCTP_ADDR"})) {
    return true;
  }
  const bool is_address =
      value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
  return is_address && name.find("_PORT") != std::string_view::npos;
}

class Loader {
 public:
  Loader() : keys_(config_keys()), loaded_{{}, std::vector<std::string>(keys_.size(), "default")} {
    for (const ConfigKey& key : keys_) {
      names_.push_back(key.name);
      variables_.push_back(environment_name(key.name));
    }
  }

  void read_file(const std::string& path, bool must_exist) {
    if (!is_one_line(path)) {
      problems_.push_back("the configuration file's name must be one line of UTF-8");
      return;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      const int why = errno;
      if (must_exist || why != ENOENT) {
        problems_.push_back(fmt::format("{}: cannot be read: {}", path, std::strerror(why)));
      }
      return;
    }
    std::string text(kMaxConfigFileBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (file.bad() || (text.empty() && !file.eof())) {
      problems_.push_back(fmt::format("{}: cannot be read", path));
      return;
    }
    if (text.size() > kMaxConfigFileBytes) {
      problems_.push_back(fmt::format("{}: longer than {} bytes", path, kMaxConfigFileBytes));
      return;
    }
    try {
      const toml::table root = toml::parse(text, path);
      read_table(root, "", path);
    } catch (const toml::parse_error& error) {
      problems_.push_back(fmt::format("{}:{}: not valid TOML: {}", path, error.source().begin.line,
                                      shown(error.description(), kShownReason)));
    }
  }

  void read_environment(const std::vector<std::pair<std::string, std::string>>& environment) {
    for (const auto& [name, value] : environment) {
      if (!name.starts_with(kPrefix) || name == kConfigFileVariable ||
          is_service_link(name, value)) {
        continue;
      }
      const auto found = std::find(variables_.begin(), variables_.end(), name);
      if (found == variables_.end()) {
        unknown("environment", name, variables_);
      } else {
        set_text(static_cast<std::size_t>(found - variables_.begin()), value, name, name);
      }
    }
  }

  void read_flags(const std::vector<std::pair<std::string, std::string>>& flags) {
    for (const auto& [name, value] : flags) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found == names_.end()) {
        unknown("command line", name, names_);
      } else {
        set_text(static_cast<std::size_t>(found - names_.begin()), value, "--" + name,
                 "flag --" + name);
      }
    }
  }

  common::Result<LoadedConfig> finish() {
    if (problems_.empty()) {
      if (const auto fits = check_config(loaded_.config); !fits) {
        return common::fail(fits.error());
      }
      return std::move(loaded_);
    }
    return common::fail(common::ErrorCode::kInvalid, fmt::format("{}", fmt::join(problems_, "\n")));
  }

 private:
  void read_table(const toml::table& table, const std::string& section, const std::string& path) {
    for (const auto& [word, node] : table) {
      const std::string name =
          section.empty() ? std::string(word.str()) : section + "." + std::string(word.str());
      const std::string place = fmt::format("{}:{}", path, word.source().begin.line);
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found != names_.end()) {
        set_node(static_cast<std::size_t>(found - names_.begin()), node, place);
      } else if (section.empty() && is_section(name)) {
        if (const toml::table* inner = node.as_table()) {
          read_table(*inner, name, path);
        } else {
          problems_.push_back(
              fmt::format("{}: {} = {} must be a table, [{}]", place, name, toml_text(node), name));
        }
      } else {
        unknown(place, name, section.empty() && node.is_table() ? sections() : names_);
      }
    }
  }

  void set_node(std::size_t index, const toml::node& node, const std::string& place) {
    const ConfigKey& key = keys_[index];
    const std::optional<ConfigValue> value = from_toml(node);
    if (loaded_.origins[index] != "default") {
      // "http.port" with quotation marks is another name for TOML, so it lets both of them pass.
      problems_.push_back(
          fmt::format("{}: {} is set already by {}", place, key.name, loaded_.origins[index]));
    } else if (value && allowed(key, *value)) {
      key.set(loaded_.config, *value);
      loaded_.origins[index] = place;
    } else {
      problems_.push_back(
          fmt::format("{}: {} = {} must be {}", place, key.name, toml_text(node), wanted(key)));
    }
  }

  void set_text(std::size_t index, const std::string& text, const std::string& name,
                const std::string& origin) {
    const ConfigKey& key = keys_[index];
    const std::optional<ConfigValue> value = from_text(key, text);
    if (value && allowed(key, *value)) {
      key.set(loaded_.config, *value);
      loaded_.origins[index] = origin;
    } else {
      problems_.push_back(fmt::format("{} = {} must be {}", name, quote(shown(text)), wanted(key)));
    }
  }

  // The value is not repeated: a mistyped name may stand before a secret.
  void unknown(const std::string& place, const std::string& name,
               const std::vector<std::string>& known) {
    std::string line = fmt::format("{}: unknown key {}", place, shown(name));
    if (const auto near = common::nearest(name, known))
      line += fmt::format("; did you mean {}?", *near);
    problems_.push_back(std::move(line));
  }

  [[nodiscard]] bool is_section(std::string_view name) const {
    return std::any_of(names_.begin(), names_.end(),
                       [name](const std::string& key) { return section_of(key) == name; });
  }

  [[nodiscard]] std::vector<std::string> sections() const {
    std::vector<std::string> found;
    for (const std::string& name : names_) {
      const std::string section(section_of(name));
      if (!section.empty() && (found.empty() || found.back() != section)) found.push_back(section);
    }
    return found;
  }

  const std::vector<ConfigKey>& keys_;
  std::vector<std::string> names_;
  std::vector<std::string> variables_;
  LoadedConfig loaded_;
  std::vector<std::string> problems_;
};

std::string value_text(const ConfigValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return quote(without_secrets(std::get<std::string>(value)));
}

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name(kPrefix);
  for (const char c : key) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::pair<std::string, std::string>> process_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(found.begin(), found.end());
  return found;
}

common::Result<LoadedConfig> load_config(const ConfigInputs& inputs) {
  std::string path = inputs.file;
  if (path.empty()) {
    for (const auto& [name, value] : inputs.environment) {
      if (name == kConfigFileVariable) path = value;
    }
  }
  Loader loader;
  loader.read_file(path.empty() ? std::string(kDefaultConfigFile) : path, !path.empty());
  loader.read_environment(inputs.environment);
  loader.read_flags(inputs.flags);
  return loader.finish();
}

common::Result<common::Done> check_config(const Config& config) {
  std::vector<std::string> problems;
  const std::string file = sqlite_path(config);
  const bool legal = config.ledger.starts_with(kSqliteScheme) && config.gate == "local" &&
                     config.journal == "direct";
  if (!legal) {
    problems.push_back(fmt::format(
        "ledger = {}, gate = {}, journal = {} is no set-up that this version supports: one node "
        "with "
        "ledger = \"sqlite:PATH\", gate = \"local\" and journal = \"direct\"",
        quote(shown(config.ledger)), quote(shown(config.gate)), quote(shown(config.journal))));
  } else if (file.empty() || file.starts_with(":memory:") || file.starts_with("file:")) {
    problems.push_back(
        fmt::format("ledger = {} must name a plain file: what is sold has to outlive the process",
                    quote(shown(config.ledger))));
  }
  if (config.http.tls_certificate.empty() != config.http.tls_key.empty()) {
    problems.push_back("http.tls_certificate and http.tls_key belong together: set both or none");
  }
  if (config.http.max_target_bytes >= config.http.max_header_bytes) {
    problems.push_back(fmt::format(
        "http.max_target_bytes = {} must be below http.max_header_bytes = {}, which contains it",
        config.http.max_target_bytes, config.http.max_header_bytes));
  }
  if (config.http.request_timeout <= config.engine.budget.request_budget) {
    problems.push_back(fmt::format(
        "http.request_timeout_ms = {} must be above engine.request_budget_ms = {}, or purchases "
        "are "
        "cut off before their own answer",
        config.http.request_timeout.count(), config.engine.budget.request_budget.count()));
  }
  if (config.tokens.audience == config.tokens.admin_audience) {
    problems.push_back(
        fmt::format("tokens.audience and tokens.admin_audience are both {}: every member would be "
                    "an administrator",
                    quote(shown(config.tokens.audience))));
  }
  if (config.mode == Mode::kProduction && config.token_keys.location.empty()) {
    problems.push_back(
        "mode = \"production\" needs tokens.keys: without it tokens are checked with the "
        "development "
        "key, which everybody knows");
  }
  if (const auto budget = engine::check_budget(config.engine.budget); !budget) {
    problems.push_back(budget.error().message);
  }
  if (problems.empty()) return common::Done{};
  return common::fail(common::ErrorCode::kInvalid, fmt::format("{}", fmt::join(problems, "\n")));
}

common::Result<common::Done> check_keys(const Config& config,
                                        std::span<const edge::VerificationKey> keys) {
  if (config.mode == Mode::kDevelopment) return common::Done{};
  const std::string& known = edge::development_key().secret;
  for (const edge::VerificationKey& key : keys) {
    if (key.algorithm == edge::Algorithm::kHs256 && key.secret == known) {
      return common::fail(
          common::ErrorCode::kInvalid,
          fmt::format("mode = \"production\", but {} holds the development key, which "
                      "everybody knows: make one of your own",
                      config.token_keys.location.empty() ? "tokens.keys"
                                                         : shown(config.token_keys.location)));
    }
  }
  return common::Done{};
}

std::string sqlite_path(const Config& config) {
  if (!config.ledger.starts_with(kSqliteScheme)) return {};
  return config.ledger.substr(kSqliteScheme.size());
}

std::string print_toml(const LoadedConfig& loaded) {
  std::string out;
  std::string_view section;
  const std::vector<ConfigKey>& keys = config_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (section_of(keys[i].name) != section) {
      section = section_of(keys[i].name);
      out += fmt::format("\n[{}]\n", section);
    }
    out += fmt::format("{} = {}  # {}\n", last_part(keys[i].name),
                       value_text(keys[i].get(loaded.config)), loaded.origins[i]);
  }
  return out;
}

std::string print_json(const LoadedConfig& loaded) {
  std::string out = "{";
  const std::vector<ConfigKey>& keys = config_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    // Names and values are one line each, so TOML's quoting is JSON's.
    out += fmt::format("{}\n  {}: {{\"value\": {}, \"from\": {}}}", i == 0 ? "" : ",",
                       quote(keys[i].name), value_text(keys[i].get(loaded.config)),
                       quote(loaded.origins[i]));
  }
  return out + "\n}\n";
}

std::string configuration_page() {
  const Config defaults;
  std::string out =
      "# Configuration\n"
      "\n"
      "Made from the program's own table of keys (`src/app/config_keys.cpp`); a test compares. To "
      "make it\n"
      "again: `UPDATE_DOCS=1 build/dev/bin/app_test --gtest_filter='ConfigurationPage.*'`.\n"
      "\n"
      "Nothing has to be set. What is set comes from one TOML file, then from environment "
      "variables, then\n"
      "from flags; later ones win. The file is `doorbuster.toml` in the working folder, or the one "
      "that\n"
      "`--config` or `DOORBUSTER_CONFIG` names. Every key is a flag under its own name, "
      "`--http.port 9000`.\n"
      "Unknown keys, wrong types and values out of range stop the start with their place and the "
      "right form.\n"
      "`doorbuster serve --print-config` shows what is in force and where each value came from.\n"
      "\n"
      "Secrets are never values here: keys that hold one name a file or a URL.\n";
  std::optional<std::string_view> section;
  for (const ConfigKey& key : config_keys()) {
    if (section_of(key.name) != section) {
      section = section_of(key.name);
      out += section->empty() ? "\n## Without a table\n" : fmt::format("\n## `[{}]`\n", *section);
      out += "\n| key | variable | values | default | what it does |\n|---|---|---|---|---|\n";
    }
    std::string values;
    switch (key.kind) {
      case KeyKind::kInteger:
        values = fmt::format("{} to {}", key.min, key.max);
        break;
      case KeyKind::kBoolean:
        values = "`true`, `false`";
        break;
      case KeyKind::kChoice:
        values = fmt::format("`{}`", fmt::join(key.choices, "`, `"));
        break;
      case KeyKind::kText:
        values = key.min == 0 ? "text, may be empty" : "text";
        break;
    }
    out += fmt::format("| `{}` | `{}` | {} | `{}` | {} |\n", last_part(key.name),
                       environment_name(key.name), values, value_text(key.get(defaults)), key.help);
  }
  return out;
}

}  // namespace doorbuster::app

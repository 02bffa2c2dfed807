#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "app/config.hpp"
#include "common/text.hpp"
#include "fuzz/fuzz.hpp"

/// Configuration: a TOML file, environment and flags. An input is the file; behind a line "---"
/// come lines NAME=value of the environment and --key=value of the command line.
///
/// - What is accepted is in its range, key by key; the last of file, environment and flags wins.
/// - print_toml is a file that sets the same values again, print_json is JSON with the same values.
/// - A refusal is lines of text for a terminal: UTF-8, none empty, no control characters.
/// - User name, password and token of a URL never come out, wherever the URL was put in.
namespace doorbuster::fuzz {
namespace {

using app::ConfigInputs;
using app::ConfigKey;
using app::ConfigValue;
using app::LoadedConfig;
using common::Result;
namespace json = boost::json;

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A file in memory with a path that load_config() can open.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    DOORBUSTER_ENSURE(fd_ >= 0, "a file in memory");
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  /// Its path, with this text in it.
  const std::string& with(std::string_view text) {
    DOORBUSTER_ENSURE(ftruncate(fd_, 0) == 0 && pwrite(fd_, text.data(), text.size(), 0) ==
                                                    static_cast<ssize_t>(text.size()),
                      "memory can be written");
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

/// The text without the characters that toml++ 3.3.0's table of blanks does not know: outside of
/// strings it comes to a __builtin_unreachable() there. The library as Debian builds it then
/// refuses the file, but what a compiler makes of it is luck.
std::string without_holes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto at = [text](std::size_t k) {
      return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
    };
    const bool two = at(i) >= 0xC2 && at(i) <= 0xDF;
    const bool three = at(i) >= 0xE0 && at(i) <= 0xEF;
    std::uint32_t code = 0;
    if (two) code = (at(i) & 0x1FU) << 6U | (at(i + 1) & 0x3FU);
    if (three) {
      code = (at(i) & 0x0FU) << 12U | (at(i + 1) & 0x3FU) << 6U | (at(i + 2) & 0x3FU);
    }
    const std::size_t length = two ? 2 : three ? 3 : 1;
    const std::uint32_t row = code < 0xA0 ? 1 : (code - 0xA0) / 0x3FA;
    if (row != 0 && row != 11 && row != 63) {
      out += text.substr(i, length);
    } else {
      out += '?';
    }
    i += length;
  }
  return out;
}

Result<LoadedConfig> load(std::string_view toml, Pairs environment = {}, Pairs flags = {}) {
  static MemoryFile file;
  return app::load_config({file.with(toml), std::move(environment), std::move(flags)});
}

bool in_range(const ConfigKey& key, const ConfigValue& value) {
  switch (key.kind) {
    case app::KeyKind::kInteger: {
      const auto* number = std::get_if<std::int64_t>(&value);
      return number && *number >= key.min && *number <= key.max;
    }
    case app::KeyKind::kBoolean:
      return std::holds_alternative<bool>(value);
    case app::KeyKind::kChoice: {
      const auto* word = std::get_if<std::string>(&value);
      return word && std::ranges::find(key.choices, *word) != key.choices.end();
    }
    case app::KeyKind::kText: {
      const auto* text = std::get_if<std::string>(&value);
      return text && common::is_plain_utf8(*text) &&
             std::cmp_greater_equal(text->size(), key.min) &&
             std::cmp_less_equal(text->size(), key.max);
    }
  }
  return false;
}

std::vector<ConfigValue> values(const LoadedConfig& loaded) {
  std::vector<ConfigValue> all;
  for (const ConfigKey& key : app::config_keys()) all.push_back(key.get(loaded.config));
  return all;
}

bool has_url(const std::vector<ConfigValue>& all) {
  return std::ranges::any_of(all, [](const ConfigValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    return text && text->find("://") != std::string::npos;
  });
}

void check_accepted(const LoadedConfig& loaded) {
  const std::vector<ConfigKey>& keys = app::config_keys();
  const std::vector<ConfigValue> all = values(loaded);
  DOORBUSTER_ENSURE(loaded.origins.size() == keys.size(), "an origin for each key");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    DOORBUSTER_ENSURE(in_range(keys[i], all[i]), "a value is in its range");
    DOORBUSTER_ENSURE(!loaded.origins[i].empty(), "a value has an origin");
  }
  DOORBUSTER_ENSURE(app::check_config(loaded.config), "the parts fit together");

  json::error_code error;
  const json::value printed = json::parse(app::print_json(loaded), error);
  DOORBUSTER_ENSURE(!error && printed.as_object().size() == keys.size(), "print_json is JSON");
  // Printed URLs have lost their secrets, so they are other values.
  if (has_url(all)) return;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const json::object& one = printed.as_object().at(keys[i].name).as_object();
    const json::value expected =
        std::visit([](const auto& value) { return json::value(value); }, all[i]);
    DOORBUSTER_ENSURE(
        one.at("value") == expected && one.at("from") == json::value(loaded.origins[i]),
        "print_json has the values");
  }
  const auto again = load(app::print_toml(loaded));
  DOORBUSTER_ENSURE(again && values(*again) == all, "print_toml sets the same values again");
}

void check_refused(const common::Error& error) {
  DOORBUSTER_ENSURE(error.code == common::ErrorCode::kInvalid, "kInvalid");
  DOORBUSTER_ENSURE(common::is_plain_utf8(error.message), "a message is text");
  std::string_view rest = error.message;
  do {
    const std::string_view line = take_until(rest, "\n");
    DOORBUSTER_ENSURE(!line.empty(), "each line says something");
    DOORBUSTER_ENSURE(std::ranges::none_of(line,
                                           [](char c) {
                                             const auto byte = static_cast<unsigned char>(c);
                                             return byte < 0x20 || byte == 0x7F;
                                           }),
                      "no control characters on a terminal");
  } while (!rest.empty());
}

/// Everything that can reach a terminal or a log.
std::string shown(const Result<LoadedConfig>& loaded) {
  if (!loaded) return loaded.error().message;
  std::string all = app::print_toml(*loaded) + app::print_json(*loaded);
  for (const std::string& origin : loaded->origins) all += origin;
  return all;
}

/// As a basic string of TOML; what TOML does not allow in one is for the reader to refuse.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// A URL with a secret in one of the places for them, put where a person may have put it.
void check_secrets(std::string_view around, FuzzedDataProvider& in) {
  constexpr std::string_view kSecret = "S3CRET";
  const std::string text(around.substr(0, 40));
  if (text.find(kSecret) != std::string::npos) return;
  std::string beside;
  for (const char c : text) {
    if (c != '@' && c != '/' && c != '?' && c != '#') beside += c;
  }
  const std::array<std::string, 4> urls{"https://" + beside + ":S3CRET@host/" + beside,
                                        "https://u:" + text + "S3CRET" + text + "@host/keys",
                                        "https://host/" + beside + "?token=S3CRET" + text,
                                        "https://host/" + beside + "#S3CRET" + text};
  const std::string& url = urls[in.ConsumeIntegralInRange<std::size_t>(0, urls.size() - 1)];
  const std::vector<ConfigKey>& keys = app::config_keys();
  const std::string& name = keys[in.ConsumeIntegralInRange<std::size_t>(0, keys.size() - 1)].name;
  const auto load_url = [&] {
    // A quoted key with a dot in it is the same key.
    switch (in.ConsumeIntegralInRange<int>(0, 6)) {
      case 0:
        return load("", {{app::environment_name(name), url}});
      case 1:
        return load("", {}, {{name, url}});
      case 2:
        return load('"' + name + "\" = " + toml_string(url));
      case 3:
        return load(name + " = [" + toml_string(url) + ", 1979-05-27]");
      case 4:
        return load(name + " = " + without_holes(url));
      case 5:
        return load(toml_string(url) + " = 1\n" + toml_string(url) + " = 2");
      default:
        return load(name + " = {x = " + toml_string(url) + '}');
    }
  };
  DOORBUSTER_ENSURE(shown(load_url()).find(kSecret) == std::string::npos, "no secret comes out");
}

/// The value that a key has from `pairs`, the last one counts; nothing when it is not there.
std::optional<std::string> last(const Pairs& pairs, std::string_view name) {
  std::optional<std::string> found;
  for (const auto& [key, value] : pairs) {
    if (key == name) found = value;
  }
  return found;
}

void check_order(const LoadedConfig& loaded, const Pairs& environment, const Pairs& flags) {
  for (const ConfigKey& key : app::config_keys()) {
    auto text = last(flags, key.name);
    if (!text) text = last(environment, app::environment_name(key.name));
    if (!text) continue;
    const ConfigValue value = key.get(loaded.config);
    if (const auto* word = std::get_if<std::string>(&value)) {
      DOORBUSTER_ENSURE(*word == *text, "flags over environment over file");
    } else if (const auto* yes = std::get_if<bool>(&value)) {
      DOORBUSTER_ENSURE((*yes ? "true" : "false") == *text, "flags over environment over file");
    } else {
      DOORBUSTER_ENSURE(std::get<std::int64_t>(value) == std::stoll(*text),
                        "flags over environment over file");
    }
  }
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  FuzzedDataProvider in(data, size);
  FuzzedDataProvider choices(data, size);
  for (int i = 0; i < 3; ++i) in.ConsumeIntegral<std::uint8_t>();
  const std::string text = in.ConsumeRemainingBytesAsString();
  std::string_view rest = text;
  const std::string toml = without_holes(take_until(rest, "\n---\n"));
  Pairs environment;
  Pairs flags;
  while (!rest.empty()) {
    std::string_view value = take_until(rest, "\n");
    const std::string name(take_until(value, "="));
    // No process has NUL in either.
    if (value.find('\0') != std::string_view::npos || name.find('\0') != std::string::npos)
      continue;
    if (name.starts_with("--")) {
      flags.emplace_back(name.substr(2), value);
    } else {
      environment.emplace_back(name, value);
    }
  }
  const auto loaded = load(toml, environment, flags);
  if (loaded) {
    check_accepted(*loaded);
    check_order(*loaded, environment, flags);
  } else {
    check_refused(loaded.error());
  }
  check_secrets(text, choices);
  return 0;
}

#include "app/config_flags.hpp"

#include <CLI/CLI.hpp>

namespace doorbuster::app {

std::shared_ptr<ConfigInputs> add_config_flags(CLI::App& command) {
  auto inputs = std::make_shared<ConfigInputs>();
  inputs->environment = process_environment();
  command
      .add_option("--config", inputs->file,
                  "TOML file with the configuration (default: doorbuster.toml, if it is there; "
                  "variable DOORBUSTER_CONFIG)")
      ->type_name("FILE");
  for (const ConfigKey& key : config_keys()) {
    command
        .add_option_function<std::string>(
            "--" + key.name,
            [inputs, name = key.name](const std::string& value) {
              inputs->flags.emplace_back(name, value);
            },
            key.help)
        ->type_name(key.kind == KeyKind::kInteger ? "N" : "VALUE")
        ->group("Configuration (docs/configuration.md)");
  }
  return inputs;
}

}  // namespace doorbuster::app

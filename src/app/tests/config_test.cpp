#include "app/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "app/config_flags.hpp"
#include "common/text.hpp"

namespace doorbuster::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A folder of its own for each test, so that no doorbuster.toml of anybody else is found.
class ConfigFiles : public testing::Test {
 protected:
  ConfigFiles() : before_(std::filesystem::current_path()) {
    std::string pattern = testing::TempDir() + "/config-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    std::filesystem::current_path(folder_);
  }
  ~ConfigFiles() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  ConfigFiles(const ConfigFiles&) = delete;
  ConfigFiles& operator=(const ConfigFiles&) = delete;

  static void write(const std::string& name, const std::string& text) {
    std::ofstream(name, std::ios::binary) << text;
  }

  /// Loads `toml` from a file s.toml.
  static common::Result<LoadedConfig> load(const std::string& toml, Pairs environment = {},
                                           Pairs flags = {}) {
    write("s.toml", toml);
    return load_config({"s.toml", std::move(environment), std::move(flags)});
  }

  /// The refusal's message, or a text that no test expects.
  static std::string refusal(const common::Result<LoadedConfig>& loaded) {
    if (loaded) return "was accepted";
    EXPECT_EQ(loaded.error().code, common::ErrorCode::kInvalid);
    return loaded.error().message;
  }

  static std::string origin(const LoadedConfig& loaded, const std::string& name) {
    for (std::size_t i = 0; i < config_keys().size(); ++i) {
      if (config_keys()[i].name == name) return loaded.origins.at(i);
    }
    return "no such key";
  }

 private:
  std::filesystem::path before_;
  std::filesystem::path folder_;
};

using ConfigLoad = ConfigFiles;
using ConfigRules = ConfigFiles;
using ConfigPrint = ConfigFiles;

TEST_F(ConfigLoad, WithNothingSetTheDefaultsStart) {
  const auto loaded = load_config({});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->config.mode, Mode::kDevelopment);
  EXPECT_EQ(loaded->config.ledger, "sqlite:data/doorbuster.db");
  EXPECT_EQ(loaded->config.gate, "local");
  EXPECT_EQ(loaded->config.journal, "direct");
  EXPECT_EQ(loaded->config.http.port, 8080);
  EXPECT_EQ(sqlite_path(loaded->config), "data/doorbuster.db");
  for (const std::string& place : loaded->origins) EXPECT_EQ(place, "default");
}

TEST_F(ConfigLoad, EachSourceWinsOverTheOneBefore) {
  const auto loaded =
      load("[http]\nport = 1\nmax_connections = 2\nmax_event_streams = 3\n",
           {{"DOORBUSTER_HTTP_PORT", "11"}, {"DOORBUSTER_HTTP_MAX_CONNECTIONS", "12"}},
           {{"http.port", "21"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->config.http.port, 21);
  EXPECT_EQ(loaded->config.http.max_connections, 12U);
  EXPECT_EQ(loaded->config.http.max_event_streams, 3U);
  EXPECT_EQ(origin(*loaded, "http.port"), "flag --http.port");
  EXPECT_EQ(origin(*loaded, "http.max_connections"), "DOORBUSTER_HTTP_MAX_CONNECTIONS");
  EXPECT_EQ(origin(*loaded, "http.max_event_streams"), "s.toml:4");
  EXPECT_EQ(origin(*loaded, "http.address"), "default");
}

TEST_F(ConfigLoad, TheFileIsTheOneNamedElseTheOneInTheWorkingFolder) {
  write("doorbuster.toml", "http.port = 1\n");
  write("env.toml", "http.port = 2\n");
  write("flag.toml", "http.port = 3\n");
  const Pairs environment{{"DOORBUSTER_CONFIG", "env.toml"}};
  EXPECT_EQ(load_config({}).value().config.http.port, 1);
  EXPECT_EQ(load_config({"", environment, {}}).value().config.http.port, 2);
  EXPECT_EQ(load_config({"flag.toml", environment, {}}).value().config.http.port, 3);
}

TEST_F(ConfigLoad, AFileThatSomebodyNamedMustBeThere) {
  EXPECT_EQ(refusal(load_config({"none.toml", {}, {}})),
            "none.toml: cannot be read: No such file or directory");
  EXPECT_EQ(refusal(load_config({"", {{"DOORBUSTER_CONFIG", "none.toml"}}, {}})),
            "none.toml: cannot be read: No such file or directory");
}

TEST_F(ConfigLoad, AFolderOrAHugeFileIsNoConfiguration) {
  std::filesystem::create_directory("folder");
  EXPECT_EQ(refusal(load_config({"folder", {}, {}})), "folder: cannot be read");
  EXPECT_TRUE(load(std::string(kMaxConfigFileBytes, '\n')));
  EXPECT_EQ(refusal(load(std::string(kMaxConfigFileBytes + 1, '\n'))),
            "s.toml: longer than 262144 bytes");
}

TEST_F(ConfigLoad, EveryKeyCanBeSetInEachSource) {
  for (const ConfigKey& key : config_keys()) {
    // The default again is a legal value of every key, and its place shows that it was read.
    const ConfigValue value = key.get(Config{});
    std::string text;
    std::string toml;
    if (const auto* number = std::get_if<std::int64_t>(&value))
      text = toml = std::to_string(*number);
    if (const auto* flag = std::get_if<bool>(&value)) text = toml = *flag ? "true" : "false";
    if (const auto* word = std::get_if<std::string>(&value))
      text = *word, toml = "\"" + text + "\"";

    const auto file = load(key.name + " = " + toml + "\n");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(origin(*file, key.name), "s.toml:1");
    const auto variable = load("", {{environment_name(key.name), text}});
    ASSERT_TRUE(variable) << variable.error().message;
    EXPECT_EQ(origin(*variable, key.name), environment_name(key.name));
    const auto flag = load("", {}, {{key.name, text}});
    ASSERT_TRUE(flag) << flag.error().message;
    EXPECT_EQ(origin(*flag, key.name), "flag --" + key.name);
  }
}

TEST_F(ConfigLoad, EveryKeyReachesAPlaceOfItsOwn) {
  for (const ConfigKey& key : config_keys()) {
    Config changed;
    switch (key.kind) {
      case KeyKind::kInteger:
        key.set(changed, key.get(Config{}) == ConfigValue{key.min} ? key.max : key.min);
        break;
      case KeyKind::kBoolean:
        key.set(changed, !std::get<bool>(key.get(Config{})));
        break;
      case KeyKind::kText:
        key.set(changed, std::string("something else"));
        break;
      case KeyKind::kChoice:
        key.set(changed, key.get(Config{}) == ConfigValue{key.choices.front()}
                             ? key.choices.back()
                             : key.choices.front());
        break;
    }
    for (const ConfigKey& other : config_keys()) {
      EXPECT_EQ(other.get(changed) != other.get(Config{}), other.name == key.name)
          << "set " << key.name << ", looked at " << other.name;
    }
  }
}

TEST_F(ConfigLoad, EveryIntegerEndsExactlyAtItsRange) {
  for (const ConfigKey& key : config_keys()) {
    if (key.kind != KeyKind::kInteger) continue;
    const std::string rule =
        "must be an integer from " + std::to_string(key.min) + " to " + std::to_string(key.max);
    // At the edge another rule may speak (budget against timeout), but never this one.
    EXPECT_THAT(refusal(load("", {}, {{key.name, std::to_string(key.min)}})), Not(HasSubstr(rule)));
    EXPECT_THAT(refusal(load("", {}, {{key.name, std::to_string(key.max)}})), Not(HasSubstr(rule)));
    for (const std::int64_t wrong : {key.min - 1, key.max + 1}) {
      EXPECT_EQ(refusal(load("", {}, {{key.name, std::to_string(wrong)}})),
                "--" + key.name + " = \"" + std::to_string(wrong) + "\" " + rule);
    }
  }
}

TEST_F(ConfigLoad, ATextThatIsNoIntegerIsRefusedWithKeyValueAndPlace) {
  for (const char* wrong :
       {"", " 80", "80 ", "+80", "8e1", "80.0", "0x50", "99999999999999999999"}) {
    EXPECT_EQ(
        refusal(load("", {{"DOORBUSTER_HTTP_PORT", wrong}})),
        std::string("DOORBUSTER_HTTP_PORT = \"") + wrong + "\" must be an integer from 0 to 65535");
  }
}

TEST_F(ConfigLoad, AWrongTypeInTheFileIsRefusedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\"8080\"", "\"8080\""}, {"80.5", "80.5"},       {"true", "true"},
      {"[80]", "an array"},     {"{a = 1}", "a table"},
  };
  for (const auto& [written, told] : cases) {
    EXPECT_EQ(refusal(load("mode = \"development\"\n[http]\nport = " + written + "\n")),
              "s.toml:3: http.port = " + told + " must be an integer from 0 to 65535");
  }
  EXPECT_EQ(refusal(load("warm_up = 1\n")), "s.toml:1: warm_up = 1 must be true or false");
  EXPECT_EQ(refusal(load("", {{"DOORBUSTER_WARM_UP", "yes"}})),
            "DOORBUSTER_WARM_UP = \"yes\" must be true or false");
  EXPECT_EQ(refusal(load("[log]\nlevel = \"loud\"\n")),
            "s.toml:2: log.level = \"loud\" must be one of debug, info, warn, error");
  EXPECT_EQ(refusal(load("http = 3\n")), "s.toml:1: http = 3 must be a table, [http]");
}

TEST_F(ConfigLoad, TextIsOneLineOfUtf8OfBoundedLength) {
  EXPECT_EQ(
      load("", {}, {{"tokens.issuer", std::string(255, 'a')}}).value().config.tokens.issuer.size(),
      255U);
  for (const std::string& wrong :
       {std::string(256, 'a'), std::string("a\nb"), std::string("a\x7F"), std::string("\xFF")}) {
    EXPECT_THAT(
        refusal(load("", {}, {{"tokens.issuer", wrong}})),
        AllOf(StartsWith("--tokens.issuer = \""),
              HasSubstr("must be one line of text of 0 to 255 bytes"), Not(HasSubstr("\n"))));
  }
  EXPECT_THAT(refusal(load("", {}, {{"tokens.audience", ""}})), HasSubstr("1 to 255 bytes"));
}

// A message reaches terminals, logs and JSON, which refuse or garble what is no text.
TEST_F(ConfigLoad, AMessageIsTextWhateverTheValueWas) {
  const auto told = [](const std::string& value) {
    const std::string message = refusal(load("", {{"DOORBUSTER_LOG_LEVEL", value}}));
    EXPECT_TRUE(common::is_plain_utf8(message)) << message;
    const std::string_view rest = std::string_view(message).substr(24);
    return std::string(rest.substr(0, rest.find("\" must be one of debug, info, warn, error")));
  };
  const std::string korean = "\xED\x95\x9C";
  EXPECT_EQ(told("a\x1B[2J\x7F"), "a?[2J?");
  EXPECT_EQ(told("\xFF" + korean + "\xED\x95"), "?" + korean + "?");
  EXPECT_EQ(told("\xC0\x80\xED\xA0\x80"), "??");
  EXPECT_EQ(told(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(told(std::string(81, 'a')), std::string(80, 'a') + "...");
  EXPECT_EQ(told(std::string(77, 'a') + korean), std::string(77, 'a') + korean);
  for (const std::size_t before : {78, 79, 80}) {
    EXPECT_EQ(told(std::string(before, 'a') + korean), std::string(before, 'a') + "...");
  }
  EXPECT_EQ(refusal(load("", {{"DOORBUSTER_\xFF", "1"}})),
            "environment: unknown key DOORBUSTER_?; did you mean DOORBUSTER_MODE?");
}

TEST_F(ConfigLoad, WhatAnArrayHoldsIsNotRepeated) {
  for (const char* array :
       {"[inf]", "[-inf, nan]", "[-9223372036854775808]", "[[1979-05-27], {}]"}) {
    EXPECT_EQ(refusal(load(std::string("mode = ") + array)),
              "s.toml:1: mode = an array must be one of development, production");
  }
}

TEST_F(ConfigLoad, AnUnknownKeyIsRefusedWithTheNearestKnownOne) {
  EXPECT_EQ(refusal(load("[http]\nprot = 1\n")),
            "s.toml:2: unknown key http.prot; did you mean http.port?");
  EXPECT_EQ(refusal(load("[htpp]\nport = 1\n")), "s.toml:1: unknown key htpp; did you mean http?");
  EXPECT_EQ(refusal(load("mod = \"production\"\n")),
            "s.toml:1: unknown key mod; did you mean mode?");
  EXPECT_EQ(refusal(load("", {{"DOORBUSTER_HTTP_PROT", "1"}})),
            "environment: unknown key DOORBUSTER_HTTP_PROT; did you mean DOORBUSTER_HTTP_PORT?");
  EXPECT_EQ(refusal(load("", {}, {{"http.prot", "1"}})),
            "command line: unknown key http.prot; did you mean http.port?");
}

TEST_F(ConfigLoad, AKeyThatIsLikeNoneGetsNoAdvice) {
  EXPECT_EQ(refusal(load("entirely_different_thing = 1\n")),
            "s.toml:1: unknown key entirely_different_thing");
}

TEST_F(ConfigLoad, AllProblemsAreToldAtOnce) {
  EXPECT_EQ(refusal(load("[http]\nport = -1\nprot = 1\n", {{"DOORBUSTER_WARM_UP", "2"}})),
            "s.toml:2: http.port = -1 must be an integer from 0 to 65535\n"
            "s.toml:3: unknown key http.prot; did you mean http.port?\n"
            "DOORBUSTER_WARM_UP = \"2\" must be true or false");
}

TEST_F(ConfigLoad, BrokenTomlIsRefusedWithItsLine) {
  EXPECT_THAT(refusal(load("[http]\nport = = 1\n")), StartsWith("s.toml:2: not valid TOML: "));
  EXPECT_THAT(refusal(load("warm_up = true\nwarm_up = true\n")),
              StartsWith("s.toml:2: not valid TOML: "));
  // What is quoted from the file cannot move the terminal's cursor.
  EXPECT_THAT(refusal(load("http = in\x1B[2J\n")),
              AllOf(StartsWith("s.toml:1: not valid TOML: "), HasSubstr("in?")));
  EXPECT_TRUE(common::is_plain_utf8(refusal(load("http = in\xED\x95\n"))));
}

TEST_F(ConfigLoad, AKeyIsSetOnceInAFileHoweverItIsSpelled) {
  EXPECT_EQ(load("\"http.port\" = 1\n").value().config.http.port, 1);
  EXPECT_EQ(refusal(load("\"http.port\" = 1\n[http]\nport = 2\n")),
            "s.toml:1: http.port is set already by s.toml:3");
  EXPECT_EQ(load("[http]\nport = 1\n", {{"DOORBUSTER_HTTP_PORT", "2"}}).value().config.http.port,
            2);
}

TEST_F(ConfigLoad, VariablesThatKubernetesMakesOfAServiceAreLeftAlone) {
  const auto loaded = load("", {{"DOORBUSTER_SERVICE_HOST", "10.0.0.1"},
                                {"DOORBUSTER_SERVICE_PORT", "80"},
                                {"DOORBUSTER_SERVICE_PORT_HTTP", "80"},
                                {"DOORBUSTER_PORT", "tcp://10.0.0.1:80"},
                                {"DOORBUSTER_PORT_80_TCP", "tcp://10.0.0.1:80"},
                                {"DOORBUSTER_PORT_80_TCP_PROTO", "tcp"},
                                {"DOORBUSTER_PORT_80_TCP_PORT", "80"},
                                {"DOORBUSTER_PORT_80_TCP_ADDR", "10.0.0.1"},
                                {"DOORBUSTER_HTTP_PORT", "tcp://10.0.0.1:80"},
                                {"PATH", "/bin"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->config.http.port, 8080);
  EXPECT_THAT(refusal(load("", {{"DOORBUSTER_PORT", "80"}})),
              StartsWith("environment: unknown key DOORBUSTER_PORT"));
}

TEST_F(ConfigLoad, TheProcessEnvironmentGivesOnlyOurVariables) {
  ASSERT_EQ(setenv("DOORBUSTER_HTTP_PORT", "1234", 1), 0);
  const Pairs found = process_environment();
  ASSERT_EQ(unsetenv("DOORBUSTER_HTTP_PORT"), 0);
  EXPECT_THAT(found, testing::Contains(
                         std::pair<std::string, std::string>("DOORBUSTER_HTTP_PORT", "1234")));
  for (const auto& [name, value] : found) EXPECT_THAT(name, StartsWith("DOORBUSTER_"));
}

TEST_F(ConfigLoad, TheCommandLineHasAFlagForEveryKey) {
  CLI::App app;
  const auto inputs = add_config_flags(app);
  app.parse("--config s.toml --http.port 9000 --log.level=debug");
  EXPECT_EQ(inputs->file, "s.toml");
  EXPECT_THAT(inputs->flags, testing::UnorderedElementsAre(
                                 std::pair<std::string, std::string>("http.port", "9000"),
                                 std::pair<std::string, std::string>("log.level", "debug")));
  for (const ConfigKey& key : config_keys()) {
    EXPECT_THAT(app.help(), HasSubstr("--" + key.name + " "));
  }
}

TEST_F(ConfigRules, OnlyTheSetUpOfThisVersionStarts) {
  for (const auto& [key, value] : Pairs{{"ledger", "postgres://db/shop"},
                                        {"ledger", "data/doorbuster.db"},
                                        {"gate", "redis://cache"},
                                        {"gate", "ledger"},
                                        {"journal", "kafka://queue"}}) {
    EXPECT_THAT(refusal(load("", {}, {{key, value}})),
                AllOf(HasSubstr(key + " = \"" + value + "\""),
                      HasSubstr("one node with ledger = \"sqlite:PATH\", gate = \"local\" and "
                                "journal = \"direct\"")));
  }
}

TEST_F(ConfigRules, ALedgerThatDiesWithTheProcessIsRefused) {
  for (const char* ledger : {"sqlite:", "sqlite::memory:", "sqlite:file:x?mode=memory"}) {
    EXPECT_THAT(refusal(load("", {}, {{"ledger", ledger}})), HasSubstr("must name a plain file"));
  }
}

TEST_F(ConfigRules, CertificateAndKeyBelongTogether) {
  EXPECT_TRUE(load("[http]\ntls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\n"));
  EXPECT_THAT(refusal(load("[http]\ntls_certificate = \"c.pem\"\n")),
              HasSubstr("set both or none"));
  EXPECT_THAT(refusal(load("[http]\ntls_key = \"k.pem\"\n")), HasSubstr("set both or none"));
}

TEST_F(ConfigRules, TheSafetyNetLiesBehindThePurchasesOwnBudget) {
  EXPECT_TRUE(load("", {}, {{"http.request_timeout_ms", "5001"}}));
  EXPECT_THAT(
      refusal(load("", {}, {{"http.request_timeout_ms", "5000"}})),
      HasSubstr("http.request_timeout_ms = 5000 must be above engine.request_budget_ms = 5000"));
}

TEST_F(ConfigRules, ATargetFitsIntoTheHead) {
  EXPECT_TRUE(load("", {}, {{"http.max_target_bytes", "8191"}}));
  EXPECT_THAT(refusal(load("", {}, {{"http.max_target_bytes", "8192"}})),
              HasSubstr("http.max_target_bytes = 8192 must be below http.max_header_bytes = 8192"));
}

TEST_F(ConfigRules, MembersAndAdministratorsAreTwoAudiences) {
  EXPECT_THAT(refusal(load("[tokens]\naudience = \"x\"\nadmin_audience = \"x\"\n")),
              HasSubstr("every member would be an administrator"));
}

TEST_F(ConfigRules, ABudgetThatCannotHoldIsRefusedWithItsSum) {
  EXPECT_THAT(
      refusal(load("", {}, {{"engine.statement_timeout_ms", "60000"}})),
      AllOf(HasSubstr("request budget 5000 ms against "), HasSubstr("statement timeout 60000")));
}

TEST_F(ConfigRules, ProductionNeedsKeysAndRefusesTheOneThatEverybodyKnows) {
  EXPECT_THAT(refusal(load("mode = \"production\"\n")), HasSubstr("needs tokens.keys"));
  const auto loaded = load("mode = \"production\"\n[tokens]\nkeys = \"keys.json\"\n");
  ASSERT_TRUE(loaded) << loaded.error().message;

  edge::VerificationKey copied{"mine", edge::Algorithm::kHs256, edge::development_key().secret, {}};
  edge::VerificationKey own{"mine", edge::Algorithm::kHs256, std::string(32, 'k'), {}};
  const std::vector<edge::VerificationKey> good{own};
  const std::vector<edge::VerificationKey> bad{own, copied};
  EXPECT_TRUE(check_keys(loaded->config, good));
  const auto refused = check_keys(loaded->config, bad);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, common::ErrorCode::kInvalid);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("keys.json holds the development key"),
                                             Not(HasSubstr(edge::development_key().secret))));
  EXPECT_TRUE(check_keys(Config{}, bad)) << "development mode accepts it";
}

TEST_F(ConfigPrint, TheTomlCanBeUsedAgainAndMeansTheSame) {
  const auto first = load(
      "mode = \"production\"\nledger = 'sqlite:a \"quoted\" \\ name.db'\n[tokens]\nkeys = "
      "\"k.json\"\n",
      {{"DOORBUSTER_HTTP_PORT", "0"}, {"DOORBUSTER_WARM_UP", "false"}}, {{"log.format", "json"}});
  ASSERT_TRUE(first) << first.error().message;
  const std::string printed = print_toml(*first);
  const auto second = load(printed);
  ASSERT_TRUE(second) << second.error().message;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(key.get(second->config), key.get(first->config)) << key.name;
  }
  EXPECT_THAT(printed, AllOf(HasSubstr("mode = \"production\"  # s.toml:1\n"),
                             HasSubstr("\n[http]\naddress = \"127.0.0.1\"  # default\n"
                                       "port = 0  # DOORBUSTER_HTTP_PORT\n"),
                             HasSubstr("format = \"json\"  # flag --log.format\n")));
}

TEST_F(ConfigPrint, TheJsonNamesValueAndPlace) {
  const auto loaded = load("ledger = 'sqlite:a\"b.db'\n", {{"DOORBUSTER_HTTP_PORT", "1"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(
      print_json(*loaded),
      AllOf(StartsWith("{\n  \"mode\": {\"value\": \"development\", \"from\": \"default\"},\n"),
            HasSubstr("\"ledger\": {\"value\": \"sqlite:a\\\"b.db\", \"from\": \"s.toml:1\"}"),
            HasSubstr("\"http.port\": {\"value\": 1, \"from\": \"DOORBUSTER_HTTP_PORT\"}"),
            HasSubstr("\"warm_up\": {\"value\": true, \"from\": \"default\"}"),
            testing::EndsWith("}\n}\n")));
}

TEST_F(ConfigPrint, NoPasswordOfAUrlIsEverShown) {
  const auto loaded =
      load("[tokens]\nkeys = \"https://shop:hush@ hush@keys.example/set?token=hush#hush\"\n");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->config.token_keys.location,
            "https://shop:hush@ hush@keys.example/set?token=hush#hush");
  const std::string toml = print_toml(*loaded);
  EXPECT_THAT(toml,
              AllOf(HasSubstr("\"https://***@keys.example/set?***\""), Not(HasSubstr("hush"))));
  EXPECT_THAT(print_json(*loaded), Not(HasSubstr("hush")));

  EXPECT_THAT(refusal(load("ledger = \"postgres://shop:hush@db/x\"\n")), Not(HasSubstr("hush")));
  EXPECT_THAT(refusal(load("gate = \"redis://:hush@c\"\n", {{"DOORBUSTER_WARM_UP", "x://hush@"}})),
              Not(HasSubstr("hush")));
  EXPECT_THAT(refusal(load("pasword = \"hush\"\n")), Not(HasSubstr("hush")));
}

TEST(ConfigurationPage, IsTheOneThatTheProgramMakes) {
  const std::string path = DOORBUSTER_SOURCE_DIR "/docs/configuration.md";
  if (std::getenv("UPDATE_DOCS") != nullptr) std::ofstream(path) << configuration_page();
  std::ifstream file(path);
  std::stringstream kept;
  kept << file.rdbuf();
  EXPECT_EQ(kept.str(), configuration_page());
}

TEST(ConfigurationPage, ExplainsEveryKeyInASentenceThatFitsATable) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name << " is listed twice";
    EXPECT_TRUE(key.help.ends_with(".")) << key.name;
    EXPECT_EQ(key.help.find('|'), std::string::npos) << key.name;
  }
}

}  // namespace
}  // namespace doorbuster::app

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "app/api_client.hpp"
#include "app/config_flags.hpp"
#include "app/doctor.hpp"
#include "app/serve.hpp"
#include "app/verify.hpp"
#include "bench/bench.hpp"
#include "db/database.hpp"
#include "db/migrations.hpp"
#include "rush/rush.hpp"

namespace {

using namespace doorbuster;
using app::ApiClient;
using common::Result;
namespace json = boost::json;

// Exit codes, as --help says them.
constexpr int kOk = 0;
constexpr int kBroken = 1;  ///< an invariant does not hold, or doctor found a problem
constexpr int kFailed = 2;  ///< it could not be done; the reason is on standard error

int fail_with(const common::Error& error) {
  std::fprintf(stderr, "doorbuster: %s\n", error.message.c_str());
  return kFailed;
}

int print_or_fail(const Result<std::string>& answer) {
  if (!answer) return fail_with(answer.error());
  std::printf("%s\n", answer->c_str());
  return kOk;
}

std::atomic<bool> interrupted{false};

/// What every command about a running server takes.
struct Remote {
  std::string url = "http://127.0.0.1:8080";
  std::string token;
  void add_to(CLI::App& command) {
    command.add_option("--url", url, "The server")->capture_default_str();
    command
        .add_option("--token", token,
                    "Administrator's token; without it one of the development key is made")
        ->envname("DOORBUSTER_ADMIN_TOKEN");
  }
  [[nodiscard]] ApiClient client() const { return {url, token}; }
};

int run_serve(const app::ConfigInputs& inputs, bool print, bool as_json) {
  const auto loaded = app::load_config(inputs);
  if (!loaded) return fail_with(loaded.error());
  if (print) {
    std::fputs((as_json ? app::print_json(*loaded) : app::print_toml(*loaded)).c_str(), stdout);
    return kOk;
  }
  const Result<int> code = app::serve(loaded->config);
  return code ? *code : fail_with(code.error());
}

int run_migrate(const app::ConfigInputs& inputs, bool as_json) {
  const auto loaded = app::load_config(inputs);
  if (!loaded) return fail_with(loaded.error());
  const std::string path = app::sqlite_path(loaded->config);
  // The lock of the server: a schema never changes under a running one.
  const auto lock = db::lock_file(path);
  if (!lock) return fail_with(lock.error());
  const common::SystemClock clock;
  const auto metrics = common::make_metrics();
  const auto database = db::open_sqlite({.path = path, .readers = 1}, clock, *metrics);
  if (!database) return fail_with(database.error());
  std::optional<Result<db::MigrationStatus>> status;
  (*database)->submit_write(
      db::Priority::kRest,
      [&](db::Session& session) -> Result<common::Done> {
        status = db::migrate(session, db::sqlite_migrations(), common::to_micros(clock.now()));
        if (!*status) return common::fail(status->error());
        return common::Done{};
      },
      [&](Result<common::Done> outcome) {
        if (!outcome) status = common::fail(outcome.error());
      });
  (*database)->stop();
  if (!*status) return fail_with(status->error());
  if (as_json) {
    std::printf("{\"applied\":%d,\"known\":%d}\n", (*status)->applied, (*status)->known);
  } else {
    std::printf("the schema is at step %d of %d\n", (*status)->applied, (*status)->known);
  }
  return kOk;
}

int run_verify(const app::ConfigInputs& inputs, bool as_json) {
  const auto loaded = app::load_config(inputs);
  if (!loaded) return fail_with(loaded.error());
  app::VerifyReport report;
  const Result<common::Done> read = db::read_sqlite_once(
      app::sqlite_path(loaded->config), [&](db::Session& session) -> Result<common::Done> {
        Result<app::VerifyReport> found = app::verify(session);
        if (!found) return common::fail(found.error());
        report = std::move(*found);
        return common::Done{};
      });
  if (!read) return fail_with(read.error());
  std::printf("%s%s", (as_json ? app::to_json(report) : app::to_text(report)).c_str(),
              as_json ? "\n" : "");
  return report.ok() ? kOk : kBroken;
}

int run_doctor(const app::ConfigInputs& inputs, bool as_json) {
  const auto loaded = app::load_config(inputs);
  if (!loaded) return fail_with(loaded.error());
  bool well = true;
  json::array all;
  static constexpr const char* kNames[] = {"ok", "warning", "problem"};
  for (const app::Finding& one : app::examine(loaded->config)) {
    well = well && one.level != app::Finding::Level::kProblem;
    const char* level = kNames[static_cast<std::size_t>(one.level)];
    if (as_json) {
      all.push_back(json::object{{"level", level}, {"what", one.what}, {"advice", one.advice}});
    } else {
      std::printf("%-8s %s\n", level, one.what.c_str());
      if (!one.advice.empty()) std::printf("         -> %s\n", one.advice.c_str());
    }
  }
  if (as_json) std::printf("%s\n", json::serialize(all).c_str());
  return well ? kOk : kBroken;
}

std::string rfc3339_in(std::chrono::seconds from_now) {
  return common::to_rfc3339(
      std::chrono::floor<std::chrono::seconds>(common::SystemClock().now() + from_now));
}

Result<std::int64_t> make_sale(const ApiClient& client, const std::string& name,
                               std::chrono::seconds opens_in, std::int64_t hold_s) {
  const json::object body{{"name", name},
                          {"opensAt", rfc3339_in(opens_in)},
                          {"closesAt", rfc3339_in(std::chrono::hours{24})},
                          {"holdSeconds", hold_s}};
  const auto made = client.expect_ok("POST", "/api/admin/flash-sales", json::serialize(body));
  if (!made) return common::fail(made.error());
  return json::parse(*made).at("id").as_int64();
}

Result<std::int64_t> make_item(const ApiClient& client, std::int64_t sale, const std::string& name,
                               std::int64_t list_price, std::int64_t sale_price,
                               std::int64_t quantity) {
  const json::object body{
      {"name", name}, {"listPrice", list_price}, {"salePrice", sale_price}, {"quantity", quantity}};
  const auto made = client.expect_ok("POST", fmt::format("/api/admin/flash-sales/{}/items", sale),
                                     json::serialize(body));
  if (!made) return common::fail(made.error());
  return json::parse(*made).at("id").as_int64();
}

/// A believable small shop window: one sale that is on, one that opens tomorrow.
int run_seed(const ApiClient& client) {
  struct Item {
    const char* name;
    std::int64_t list_price, sale_price, quantity;
  };
  static constexpr Item kNow[] = {{"Strawberries 1 kg", 19'900, 9'900, 500},
                                  {"Mackerel, two fillets", 12'900, 6'900, 300}};
  static constexpr Item kLater[] = {{"Beef rib eye 300 g", 34'900, 19'900, 200}};
  const auto fill = [&](const char* name, std::chrono::seconds opens_in,
                        std::span<const Item> items) -> Result<std::int64_t> {
    const Result<std::int64_t> sale = make_sale(client, name, opens_in, 600);
    if (!sale) return sale;
    for (const Item& item : items) {
      const auto made =
          make_item(client, *sale, item.name, item.list_price, item.sale_price, item.quantity);
      if (!made) return made;
    }
    const auto opened =
        client.expect_ok("POST", fmt::format("/api/admin/flash-sales/{}/open", *sale));
    if (!opened) return common::fail(opened.error());
    return sale;
  };
  const auto now = fill("Tonight's fresh rush", std::chrono::seconds{0}, kNow);
  if (!now) return fail_with(now.error());
  const auto later = fill("Tomorrow's rush", std::chrono::hours{23}, kLater);
  if (!later) return fail_with(later.error());
  std::printf("demo data: sale %lld is on, sale %lld opens tomorrow\n",
              static_cast<long long>(*now), static_cast<long long>(*later));
  return kOk;
}

int run_rush_command(rush::RushConfig config, const std::string& json_path,
                     const std::string& curve) {
  config.curve = curve == "ramp"      ? rush::Curve::kRamp
                 : curve == "poisson" ? rush::Curve::kPoisson
                                      : rush::Curve::kAllAtOnce;
  config.stop = &interrupted;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted.store(true); };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const common::SystemClock clock;
  const auto report = rush::run_rush(config, clock);
  if (!report) return fail_with(report.error());
  std::fputs(rush::text_report(*report).c_str(), stdout);
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << rush::json_report(*report) << '\n';
    if (!file) return fail_with({common::ErrorCode::kIo, json_path + " cannot be written"});
  }
  return report->exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program{"Doorbuster sells limited stock to a stampede without ever overselling.",
                   "doorbuster"};
  program.set_version_flag("--version", DOORBUSTER_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Exit codes: 0 done; 1 an invariant is broken or doctor found a problem; 2 it could not be "
      "done (the reason is "
      "on standard error); 3 serve: another server took over, rush: the ledger could not be read; "
      "above 100: the "
      "command line is wrong.");
  bool as_json = false;
  int code = kOk;

  CLI::App& serve = *program.add_subcommand("serve", "Run the server until SIGTERM or SIGINT");
  const auto serve_inputs = app::add_config_flags(serve);
  bool print_config = false;
  serve.add_flag("--print-config", print_config,
                 "Print what is in force and where each value came from, and end");
  serve.add_flag("--json", as_json, "With --print-config: as JSON");
  serve.callback([&] { code = run_serve(*serve_inputs, print_config, as_json); });

  CLI::App& migrate = *program.add_subcommand(
      "migrate", "Bring the ledger's schema up to date (serve does it too)");
  const auto migrate_inputs = app::add_config_flags(migrate);
  migrate.add_flag("--json", as_json, "Answer as JSON");
  migrate.callback([&] { code = run_migrate(*migrate_inputs, as_json); });

  Remote remote;
  CLI::App& seed = *program.add_subcommand("seed", "Make demo sales on a running server");
  remote.add_to(seed);
  seed.callback([&] { code = run_seed(remote.client()); });

  CLI::App& token = *program.add_subcommand(
      "token", "Make a token of the development key, for trying things out");
  std::int64_t member = 0;
  std::string admin;
  std::int64_t minutes = 60;
  auto* who = token.add_option_group("who")->require_option(1);
  who->add_option("--member", member, "A member's number")
      ->check(CLI::Range(std::int64_t{1}, INT64_MAX));
  who->add_option("--admin", admin, "An administrator's name");
  token.add_option("--minutes", minutes, "How long it is good")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{525'600}))
      ->capture_default_str();
  token.callback([&] {
    const common::Instant now = common::SystemClock().now();
    const std::string text =
        edge::make_hs256_token({.subject = admin.empty() ? std::to_string(member) : admin,
                                .audience = admin.empty() ? "doorbuster" : "doorbuster-admin",
                                .issued_at = now,
                                .expires_at = now + std::chrono::minutes{minutes}},
                               edge::development_key());
    std::printf("%s\n", text.c_str());
  });

  CLI::App& rush_command = *program.add_subcommand(
      "rush", "Imitate buyers against a server, then compare with its ledger");
  rush::RushConfig rush_config;
  std::string rush_json;
  std::string curve = "all";
  std::int64_t patience_s = 60, come_back_ms = 0, ramp_ms = 10'000, max_s = 300, quiet_s = 10;
  rush_command.add_option("--url", rush_config.url, "The server, http://HOST:PORT")
      ->capture_default_str();
  rush_command.add_option("--item", rush_config.item_id,
                          "The item to buy; without it a new sale of --units is made");
  rush_command.add_option("--units", rush_config.units, "Units of the new sale");
  rush_command.add_option("--members", rush_config.members, "How many members come")
      ->capture_default_str();
  rush_command
      .add_option("--first-member", rush_config.first_member, "Member numbers run from here")
      ->capture_default_str();
  rush_command
      .add_option("--units-per-member", rush_config.units_per_member,
                  "How many each wants; above 1 needs --keys")
      ->capture_default_str();
  rush_command.add_flag("--keys", rush_config.keys, "Send an Idempotency-Key for each wanted unit");
  rush_command
      .add_option("--seed", rush_config.seed, "Order of members, arrivals, pauses, choices")
      ->capture_default_str();
  rush_command.add_option("--curve", curve, "all: as fast as the server takes them; ramp; poisson")
      ->check(CLI::IsMember({"all", "ramp", "poisson"}))
      ->capture_default_str();
  rush_command.add_option("--ramp-ms", ramp_ms, "ramp: from the first to the last arrival")
      ->capture_default_str();
  rush_command.add_option("--rate", rush_config.rate, "poisson: arrivals a second")
      ->capture_default_str();
  rush_command
      .add_option("--patience-s", patience_s, "How long one tries, over failures and busy answers")
      ->capture_default_str();
  rush_command
      .add_option("--come-back-ms", come_back_ms,
                  "Ask again so long after \"sold out for now\"; 0: never")
      ->capture_default_str();
  rush_command.add_option("--pay-share", rush_config.pay_share, "Of those who got one, 0 to 1")
      ->capture_default_str();
  rush_command
      .add_option("--ask-again-share", rush_config.ask_again_share,
                  "Of those who got one: buy again, must get the same")
      ->capture_default_str();
  rush_command.add_option("--threads", rush_config.threads, "Worker threads")
      ->capture_default_str();
  rush_command.add_option("--connections", rush_config.connections, "Connections at work")
      ->capture_default_str();
  rush_command
      .add_option("--idle-connections", rush_config.idle_connections,
                  "Connections that are only held open")
      ->capture_default_str();
  rush_command
      .add_option("--pipelining", rush_config.pipelining,
                  "Requests on a connection before the first is answered")
      ->capture_default_str();
  rush_command.add_option("--max-s", max_s, "Bound of the whole load")->capture_default_str();
  rush_command.add_option("--quiet-s", quiet_s, "How long to wait until the ledger is quiet")
      ->capture_default_str();
  rush_command
      .add_option("--token-secret", rush_config.token_secret,
                  "HS256 secret for members' tokens; without it the development key")
      ->envname("DOORBUSTER_TOKEN_SECRET");
  rush_command.add_option("--token-kid", rush_config.token_kid, "Its kid");
  rush_command
      .add_option("--admin-token", rush_config.admin_token, "To make the sale and read the ledger")
      ->envname("DOORBUSTER_ADMIN_TOKEN");
  rush_command.add_flag("!--no-check", rush_config.check_server, "Do not compare with the ledger");
  rush_command.add_option("--report", rush_config.report_path, "HTML report");
  rush_command.add_option("--history", rush_config.history_path, "Every request as CSV");
  rush_command.add_option("--json", rush_json, "The report as JSON, into this file");
  rush_command.callback([&] {
    rush_config.patience = std::chrono::seconds{patience_s};
    rush_config.come_back = std::chrono::milliseconds{come_back_ms};
    rush_config.ramp = std::chrono::milliseconds{ramp_ms};
    rush_config.max_time = std::chrono::seconds{max_s};
    rush_config.quiet_patience = std::chrono::seconds{quiet_s};
    code = run_rush_command(rush_config, rush_json, curve);
  });

  CLI::App& bench_command = *program.add_subcommand(
      "bench", "Print figures of this machine; starts servers of its own on loopback");
  bench::BenchConfig bench_config;
  bench_command.add_option("--runs", bench_config.runs, "Alternating runs; medians are printed")
      ->check(CLI::Range(1, 50))
      ->capture_default_str();
  bench_command.add_option("--members", bench_config.members, "Buyers of the rush")
      ->check(CLI::Range(std::int64_t{1000}, std::int64_t{5'000'000}))
      ->capture_default_str();
  bench_command.add_option("--units", bench_config.units, "Units of the rush")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  bench_command.add_option("--only", bench_config.only, "These figures, not all of them")
      ->check(CLI::IsMember(bench::figure_names()));
  bench_command
      .add_option("--other", bench_config.other,
                  "Another build of this program, measured beside this one (sold-out)")
      ->check(CLI::ExistingFile);
  bench_command.add_flag("--json", bench_config.as_json, "Answer as JSON");
  bench_command.callback([&] {
    const Result<int> done = bench::bench(bench_config, common::SystemClock());
    code = done ? *done : fail_with(done.error());
  });

  CLI::App& verify =
      *program.add_subcommand("verify", "Check every invariant that rows can show; never repairs");
  const auto verify_inputs = app::add_config_flags(verify);
  verify.add_flag("--json", as_json, "Answer as JSON");
  verify.callback([&] { code = run_verify(*verify_inputs, as_json); });

  CLI::App& doctor =
      *program.add_subcommand("doctor", "Check configuration and dependencies, and say what to do");
  const auto doctor_inputs = app::add_config_flags(doctor);
  doctor.add_flag("--json", as_json, "Answer as JSON");
  doctor.callback([&] { code = run_doctor(*doctor_inputs, as_json); });

  CLI::App& job = *program.add_subcommand("job", "Have a running server run a job now");
  std::string job_name;
  job.add_option("name", job_name, "expire-holds, close-events, reclaim or reconcile-payments")
      ->required()
      ->check(CLI::IsMember({"expire-holds", "close-events", "reclaim", "reconcile-payments"}));
  remote.add_to(job);
  job.callback([&] {
    code = print_or_fail(remote.client().expect_ok("POST", "/api/admin/jobs/" + job_name, "{}"));
  });

  CLI::App& rebuild = *program.add_subcommand(
      "rebuild", "Have a running server load a sale's gate from its rows again");
  std::int64_t sale_id = 0;
  bool counts = false;
  rebuild.add_option("sale", sale_id, "The sale's number")->required();
  rebuild.add_flag("--counts", counts, "Set the counters of sold units from the rows first");
  remote.add_to(rebuild);
  rebuild.callback([&] {
    code = print_or_fail(
        remote.client().expect_ok("POST", fmt::format("/api/admin/flash-sales/{}/rebuild", sale_id),
                                  counts ? R"({"counts":true})" : "{}"));
  });

  CLI::App& sale = *program.add_subcommand("sale", "Administer sales of a running server");
  sale.require_subcommand(1);
  std::string name, opens_at, closes_at, scope = "SALE";
  std::int64_t per_member = 1, hold_s = 600, list_price = 0, sale_price = 0, quantity = 0;
  bool resell = false;
  CLI::App& create = *sale.add_subcommand("create", "Make a sale, as a draft");
  create.add_option("--name", name, "What buyers see")->required();
  create.add_option("--opens-at", opens_at, "RFC 3339")->required();
  create.add_option("--closes-at", closes_at, "RFC 3339")->required();
  create.add_option("--limit-scope", scope, "Where the limit per member counts")
      ->check(CLI::IsMember({"SALE", "ITEM"}))
      ->capture_default_str();
  create.add_option("--per-member", per_member, "Units that one member may hold")
      ->capture_default_str();
  create.add_option("--hold-s", hold_s, "Time to pay")->capture_default_str();
  create.add_flag("--resell-refunds", resell, "A refunded unit is sold again");
  remote.add_to(create);
  create.callback([&] {
    const json::object body{
        {"name", name},           {"opensAt", opens_at},     {"closesAt", closes_at},
        {"limitScope", scope},    {"perMember", per_member}, {"holdSeconds", hold_s},
        {"resellRefunds", resell}};
    code = print_or_fail(
        remote.client().expect_ok("POST", "/api/admin/flash-sales", json::serialize(body)));
  });
  CLI::App& add_item = *sale.add_subcommand("add-item", "Add an item to a draft");
  add_item.add_option("sale", sale_id, "The sale's number")->required();
  add_item.add_option("--name", name, "What buyers see")->required();
  add_item.add_option("--list-price", list_price, "In the currency's smallest unit")->required();
  add_item.add_option("--sale-price", sale_price, "In the currency's smallest unit")->required();
  add_item.add_option("--quantity", quantity, "Units")->required();
  remote.add_to(add_item);
  add_item.callback([&] {
    const json::object body{{"name", name},
                            {"listPrice", list_price},
                            {"salePrice", sale_price},
                            {"quantity", quantity}};
    code = print_or_fail(remote.client().expect_ok(
        "POST", fmt::format("/api/admin/flash-sales/{}/items", sale_id), json::serialize(body)));
  });
  CLI::App& show = *sale.add_subcommand("show", "Show a sale");
  show.add_option("sale", sale_id, "The sale's number")->required();
  remote.add_to(show);
  show.callback([&] {
    code = print_or_fail(
        remote.client().expect_ok("GET", fmt::format("/api/admin/flash-sales/{}", sale_id)));
  });
  CLI::App& list = *sale.add_subcommand("list", "List sales");
  remote.add_to(list);
  list.callback(
      [&] { code = print_or_fail(remote.client().expect_ok("GET", "/api/admin/flash-sales")); });
  for (const auto& [word, help] :
       {std::pair{"open", "Prepare the gate, then switch the sale on"},
        std::pair{"pause", "No new grants; everything given stays"},
        std::pair{"resume", "Go on after a pause"}, std::pair{"close", "End the sale now"}}) {
    CLI::App& move = *sale.add_subcommand(word, help);
    move.add_option("sale", sale_id, "The sale's number")->required();
    remote.add_to(move);
    move.callback([&, action = std::string(word)] {
      code = print_or_fail(remote.client().expect_ok(
          "POST", fmt::format("/api/admin/flash-sales/{}/{}", sale_id, action), "{}"));
    });
  }

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error);
  } catch (const std::exception& error) {
    return fail_with({common::ErrorCode::kInternal, error.what()});
  }
  return code;
}

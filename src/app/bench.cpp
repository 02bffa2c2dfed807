#include "app/bench.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <thread>

#include "app/api_client.hpp"
#include "common/random.hpp"
#include "db/database.hpp"
#include "db/migrations.hpp"
#include "rush/rush.hpp"

namespace doorbuster::app {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
namespace json = boost::json;

void pin(int core) {
  if (std::thread::hardware_concurrency() < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

Result<std::uint16_t> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) return fail(ErrorCode::kIo, "no free port on loopback");
  return ntohs(address.sin_port);
}

/// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "doorbuster-bench-XXXXXX").string();
    DOORBUSTER_ENSURE(::mkdtemp(name.data()) != nullptr, "a folder for the figures can be made");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A server of this program on core 0, ended with the object by its own process id.
class Child {
 public:
  static Result<std::unique_ptr<Child>> start(const std::filesystem::path& folder) {
    const Result<std::uint16_t> port = free_port();
    if (!port) return fail(port.error());
    auto child = std::unique_ptr<Child>(new Child(fmt::format("http://127.0.0.1:{}", *port)));
    const std::string ledger = fmt::format("sqlite:{}", (folder / "ledger.db").string());
    const std::string key = (folder / "order-id.key").string();
    const std::string log = (folder / "server.log").string();
    const std::string port_text = std::to_string(*port);
    child->pid_ = ::fork();
    if (child->pid_ == 0) {
      pin(0);
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execl("/proc/self/exe", "doorbuster", "serve", "--ledger", ledger.c_str(),
              "--engine.order_id_key_file", key.c_str(), "--http.port", port_text.c_str(),
              "--http.io_threads", "1", nullptr);
      ::_exit(127);
    }
    const ApiClient client(child->url_, {});
    for (int i = 0; i < 200; ++i) {
      const auto ready = client.call("GET", "/health/ready");
      if (ready && ready->status == 200) return child;
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
    }
    return fail(ErrorCode::kUnavailable,
                "the server for the figures did not become ready; its log: " + log);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] const std::string& url() const { return url_; }

 private:
  explicit Child(std::string url) : url_(std::move(url)) {}
  std::string url_;
  pid_t pid_ = -1;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

struct Line {
  std::string name;
  std::vector<double> per_second;
  std::vector<rush::RushReport> reports;
};

Result<rush::RushReport> run_load(rush::RushConfig config, const common::Clock& clock) {
  config.live = rush::Live::kOff;
  Result<rush::RushReport> report = rush::run_rush(config, clock);
  if (report && report->outcome() != rush::Outcome::kOk) {
    return fail(ErrorCode::kConflict,
                "a rush for the figures broke an invariant:\n" + rush::text_report(*report));
  }
  return report;
}

/// The rows that a grant writes (order and history row, the counter), bare, in batches of `batch`:
/// grants a second.
Result<double> raw_inserts(std::int64_t rows, std::int64_t batch, const common::Clock& clock) {
  const TempFolder folder;
  const auto metrics = common::make_metrics();
  const auto database =
      db::open_sqlite({.path = (folder.path() / "raw.db").string(), .readers = 1}, clock, *metrics);
  if (!database) return fail(database.error());
  Result<Done> last = Done{};
  const auto submit = [&](db::Database::Work work) {
    (*database)->submit_write(db::Priority::kRush, std::move(work), [&last](Result<Done> outcome) {
      if (!outcome) last = outcome;
    });
  };
  submit([&](db::Session& session) -> Result<Done> {
    const auto migrated = db::migrate(session, db::sqlite_migrations(), 0);
    if (!migrated) return fail(migrated.error());
    for (const std::string& sql :
         {std::string("INSERT INTO flash_sale (id, name, opens_at, closes_at, limit_scope, "
                      "per_member, hold_s, "
                      "hold_max_s, resell_refunds, created_at, updated_at) VALUES (1, 'x', 0, 1, "
                      "'SALE', 1, 600, "
                      "1800, 0, 0, 0)"),
          fmt::format(
              "INSERT INTO flash_sale_item (id, flash_sale_id, allotment, scope, name, list_price, "
              "sale_price, currency, quantity, per_member, created_at, updated_at) VALUES (1, 1, "
              "'i1', "
              "'s1', 'x', 1, 1, 'KRW', {}, 1, 0, 0)",
              rows)}) {
      const auto made = session.execute(sql);
      if (!made) return fail(made.error());
    }
    return Done{};
  });
  common::GrantIdMaker ids(clock);
  const common::Steady begun = clock.steady();
  for (std::int64_t first = 1; first <= rows; first += batch) {
    const std::int64_t end = std::min(rows, first + batch - 1);
    submit([&, first, end](db::Session& session) -> Result<Done> {
      for (std::int64_t slot = first; slot <= end; ++slot) {
        const common::GrantId id = ids.make();
        const auto row = session.execute(
            "INSERT INTO flash_sale_order (id, allotment, scope, epoch, member, slot, slot_limit, "
            "nth, per_member, "
            "state, amount, recorded_at, expires_at, due_at, updated_at) VALUES ($1, 'i1', 's1', "
            "1, $2, $3, $4, 1, 1, "
            "'PENDING', 1, 1, 2, 2, 1)",
            {db::param(id), slot, slot, rows});
        if (!row) return fail(row.error());
        const auto history = session.execute(
            "INSERT INTO flash_sale_order_history (order_id, to_state, at) VALUES ($1, 'PENDING', "
            "1)",
            {db::param(id)});
        if (!history) return fail(history.error());
      }
      const auto sold = session.execute("UPDATE flash_sale_item SET sold = sold + $1 WHERE id = 1",
                                        {end - first + 1});
      if (!sold) return fail(sold.error());
      return Done{};
    });
  }
  (*database)->stop();
  if (!last) return fail(last.error());
  return static_cast<double>(rows) / std::chrono::duration<double>(clock.steady() - begun).count();
}

/// Mean batch of the server's writer so far: what the raw inserts are compared at.
std::int64_t mean_batch(const ApiClient& client) {
  const auto text = client.call("GET", "/metrics");
  double sum = 0;
  double count = 0;
  if (text) {
    const auto value = [&](std::string_view name) {
      const std::size_t at = text->body.find(fmt::format("\n{} ", name));
      return at == std::string::npos
                 ? 0.0
                 : std::strtod(text->body.c_str() + at + 2 + name.size(), nullptr);
    };
    sum = value("engine_batch_rows_sum");
    count = value("engine_batch_rows_count");
  }
  return count > 0 ? std::max<std::int64_t>(1, static_cast<std::int64_t>(sum / count)) : 100;
}

void print_line(const std::string& name, const std::vector<double>& rates,
                const rush::LatencyHistogram* h, const std::string& note) {
  const auto time = [&](double q) {
    return h == nullptr ? std::string("-") : rush::for_people(h->percentile(100 * q));
  };
  fmt::print("| {:<44} | {:>10.0f} | {:>9} | {:>9} | {:>9} | {} |\n", name, median(rates),
             time(0.5), time(0.99), time(0.999), note);
}

}  // namespace

Result<int> bench(const BenchConfig& config) {
  const common::SystemClock clock;
  pin(1);
  const TempFolder folder;
  const auto server = Child::start(folder.path());
  if (!server) return fail(server.error());
  const ApiClient client((*server)->url(), {});
  rush::RushConfig base;
  base.url = (*server)->url();
  base.check_server = true;

  // An item that is gone, for the refusals.
  rush::RushConfig gone = base;
  gone.units = 1;
  gone.members = 100;
  gone.connections = 10;
  const auto sold = run_load(gone, clock);
  if (!sold) return fail(sold.error());

  Line refused{"sold-out answers, one at a time, 64 connections", {}, {}};
  Line pipelined{"sold-out answers, 16 pipelined, 64 connections", {}, {}};
  Line durable{"durable purchases, 256 connections", {}, {}};
  Line rushes{
      fmt::format("rush: {} units, {} members, 256 connections", config.units, config.members),
      {},
      {}};
  Line all_refused{"the same requests, all refused", {}, {}};
  std::vector<double> raw;
  std::vector<double> ratio_rush;
  std::vector<double> ratio_raw;
  std::vector<double> last_grant;
  const auto load = [&](Line& line, std::int64_t item, std::int64_t units, std::int64_t members,
                        int connections, int pipelining) -> Result<Done> {
    rush::RushConfig one = base;
    one.item_id = item;
    one.units = units;
    one.first_member = 1'000'000;
    one.members = members;
    one.connections = connections;
    one.pipelining = pipelining;
    one.check_server = units > 0;
    Result<rush::RushReport> report = run_load(one, clock);
    if (!report) return fail(report.error());
    line.per_second.push_back(static_cast<double>(report->answers) / report->seconds);
    line.reports.push_back(std::move(*report));
    return Done{};
  };
  for (int run = 0; run < config.runs; ++run) {
    for (const auto& step : {std::function<Result<Done>()>([&] {
                               return load(refused, sold->item_id, 0, config.members, 64, 1);
                             }),
                             std::function<Result<Done>()>([&] {
                               return load(pipelined, sold->item_id, 0, config.members, 64, 16);
                             }),
                             std::function<Result<Done>()>([&] {
                               return load(durable, 0, config.units, config.units, 256, 1);
                             }),
                             std::function<Result<Done>()>([&] {
                               return load(rushes, 0, config.units, config.members, 256, 1);
                             }),
                             std::function<Result<Done>()>([&] {
                               return load(all_refused, sold->item_id, 0, config.members, 256, 1);
                             })}) {
      const Result<Done> done = step();
      if (!done) return fail(done.error());
    }
    const Result<double> rows = raw_inserts(config.units, mean_batch(client), clock);
    if (!rows) return fail(rows.error());
    raw.push_back(*rows);
    ratio_raw.push_back(durable.per_second.back() / *rows);
    ratio_rush.push_back(rushes.reports.back().seconds / all_refused.reports.back().seconds);
    last_grant.push_back(rushes.reports.back().last_grant_s.value_or(0) /
                         rushes.reports.back().seconds);
    fmt::print(stderr, "run {} of {}\n", run + 1, config.runs);
  }
  if (config.as_json) {
    const json::object out{{"refusalsPerSecond", median(refused.per_second)},
                           {"refusalsPipelinedPerSecond", median(pipelined.per_second)},
                           {"durablePerSecond", median(durable.per_second)},
                           {"rawRowsPerSecond", median(raw)},
                           {"durableToRaw", median(ratio_raw)},
                           {"rushToRefused", median(ratio_rush)},
                           {"lastGrantShare", median(last_grant)}};
    fmt::print("{}\n", json::serialize(out));
    return 0;
  }
  const auto newest = [](const Line& line) { return &line.reports.back().all; };
  fmt::print(
      "medians of {} alternating runs; server on one core, load and raw inserts on the other\n\n",
      config.runs);
  fmt::print("| {:<44} | {:>10} | {:>9} | {:>9} | {:>9} | {} |\n", "what", "per second", "p50",
             "p99", "p99.9", "ratio");
  fmt::print("|---|---|---|---|---|---|\n");
  print_line(refused.name, refused.per_second, newest(refused), "");
  print_line(pipelined.name, pipelined.per_second, newest(pipelined), "");
  print_line(durable.name, durable.per_second, newest(durable),
             fmt::format("{:.2f} of the raw inserts", median(ratio_raw)));
  print_line(fmt::format("raw inserts of the same rows, batches of {}", mean_batch(client)), raw,
             nullptr, "");
  print_line(rushes.name, rushes.per_second, newest(rushes),
             fmt::format("{:.2f} times as long as all refused; last unit durable at {:.0f} %",
                         median(ratio_rush), 100 * median(last_grant)));
  print_line(all_refused.name, all_refused.per_second, newest(all_refused), "");
  fmt::print("\ngrants of the rush: p50 {}, p99 {}, p99.9 {}\n",
             rush::for_people(rushes.reports.back().grants.percentile(50)),
             rush::for_people(rushes.reports.back().grants.percentile(99)),
             rush::for_people(rushes.reports.back().grants.percentile(99.9)));
  return 0;
}

}  // namespace doorbuster::app

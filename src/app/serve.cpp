#include "app/serve.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "admin/routes.hpp"
#include "app/docs_page.hpp"
#include "app/service_routes.hpp"
#include "common/log.hpp"
#include "common/loop.hpp"
#include "common/random.hpp"
#include "db/migrations.hpp"
#include "engine/direct_journal.hpp"
#include "engine/local_gate.hpp"
#include "engine/sql_ledger.hpp"
#include "payment/routes.hpp"
#include "payment/simulator.hpp"
#include "sale/jobs.hpp"

namespace doorbuster::app {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::LogLevel;
using common::Result;
using common::Task;

/// Waits on the main thread for what a coroutine on `loop` brings.
template <class T>
T wait_for(common::Loop& loop, std::function<Task<T>()> work) {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<T> value;
  loop.post([&] {
    common::start([](std::function<Task<T>()> task, std::mutex& m, std::condition_variable& c,
                     std::optional<T>& out) -> Task<void> {
      Task<T> running = task();
      T result = co_await running;
      const std::lock_guard lock(m);
      out.emplace(std::move(result));
      c.notify_one();
    }(work, mutex, arrived, value));
  });
  std::unique_lock lock(mutex);
  arrived.wait(lock, [&] { return value.has_value(); });
  return std::move(*value);
}

/// Starts a loop that ends with its `stop`, and waits for its end.
class Background {
 public:
  void start(common::Loop& loop, std::function<Task<void>()> work) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    loop.post([this, work = std::move(work)] { common::start(run(work)); });
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  Task<void> run(std::function<Task<void>()> work) {
    Task<void> running = work();
    co_await running;
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;  // Guarded by mutex_.
};

void raise_descriptor_limit(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t need = wanted + 256;
  if (limit.rlim_cur >= need) return;
  rlimit higher = limit;
  higher.rlim_cur = need;
  higher.rlim_max = std::max(limit.rlim_max, need);
  if (setrlimit(RLIMIT_NOFILE, &higher) == 0) return;
  higher.rlim_cur = higher.rlim_max = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &higher);
  if (higher.rlim_cur < need) {
    common::log(LogLevel::kWarn, "fewer file descriptors than http.max_connections needs",
                {{"allowed", static_cast<std::int64_t>(higher.rlim_cur)},
                 {"needed", static_cast<std::int64_t>(need)}});
  }
}

Result<Done> run_migrations(db::Database& database, common::Loop& loop,
                            const common::Clock& clock) {
  const std::int64_t now = common::to_micros(clock.now());
  std::function<Task<Result<db::MigrationStatus>>()> work = [&database, &loop, now] {
    std::function<Result<db::MigrationStatus>(db::Session&)> step = [now](db::Session& session) {
      return db::migrate(session, db::sqlite_migrations(), now);
    };
    return database.write<db::MigrationStatus>(loop, db::Priority::kRest, std::move(step));
  };
  const Result<db::MigrationStatus> status = wait_for(loop, std::move(work));
  if (!status) return fail(status.error());
  return Done{};
}

/// One rolled-back write and one read of each kind, so that the first buyer finds statements and
/// pages ready.
void warm_up(db::Database& database, common::Loop& loop) {
  std::function<Task<Result<Done>>()> write = [&database, &loop] {
    std::function<Result<Done>(db::Session&)> work = [](db::Session& session) -> Result<Done> {
      for (const char* sql :
           {"INSERT INTO job_run (job, started_at, finished_at, changed) VALUES ('warm-up', 0, 0, "
            "0)",
            "UPDATE flash_sale_item SET sold = sold WHERE id = 0",
            "UPDATE flash_sale_order SET updated_at = updated_at WHERE id = x'00'"}) {
        const Result<std::int64_t> done = session.execute(sql);
        if (!done) return fail(done.error());
      }
      return fail(ErrorCode::kConflict, "rolled back on purpose");
    };
    return database.write<Done>(loop, db::Priority::kRush, std::move(work));
  };
  const Result<Done> rolled_back = wait_for(loop, std::move(write));
  static_cast<void>(rolled_back);
  std::function<Task<Result<db::Rows>>()> read = [&database, &loop] {
    std::function<Result<db::Rows>(db::Session&)> work = [](db::Session& session) {
      return session.query("SELECT count(*) FROM flash_sale");
    };
    return database.read<db::Rows>(loop, std::move(work));
  };
  const Result<db::Rows> rows = wait_for(loop, std::move(read));
  static_cast<void>(rows);
}

}  // namespace

Result<std::array<std::uint8_t, 32>> order_id_key(const std::string& file) {
  std::array<std::uint8_t, 32> key{};
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t size = ::read(fd, key.data(), key.size());
    char more = 0;
    const bool longer = ::read(fd, &more, 1) > 0;
    ::close(fd);
    if (size != static_cast<ssize_t>(key.size()) || longer) {
      return fail(ErrorCode::kInvalid, file +
                                           " is no order-id key of 32 bytes; restore it from your "
                                           "backup (a new one makes all order ids unknown)");
    }
    return key;
  }
  common::fill_random(key);
  const int made = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made < 0 || ::write(made, key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
      ::fsync(made) != 0) {
    const int error = errno;
    if (made >= 0) ::close(made);
    return fail(ErrorCode::kIo, fmt::format("{} cannot be made: {}", file, std::strerror(error)));
  }
  ::close(made);
  return key;
}

Result<int> serve(const Config& config) {
  common::configure_log(config.log.level, config.log.format);
  // Blocked before any thread starts, so that only the wait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, one);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit(config.http.max_connections);

  const Result<std::string> budget = engine::check_budget(config.engine.budget);
  if (!budget) return fail(budget.error());
  common::log(LogLevel::kInfo, *budget);

  const std::string path = sqlite_path(config);
  for (const std::string& file : {path, config.order_id_key_file}) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code error;
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error)
      return fail(ErrorCode::kIo,
                  fmt::format("{} cannot be made: {}", folder.string(), error.message()));
  }
  const auto file_lock = db::lock_file(path);
  if (!file_lock) return fail(file_lock.error());
  const auto key = order_id_key(config.order_id_key_file);
  if (!key) return fail(key.error());
  const engine::OrderIdCodec order_ids(*key);

  const common::SystemClock clock;
  const auto metrics = common::make_metrics();

  std::vector<edge::VerificationKey> keys{edge::development_key()};
  if (!config.token_keys.location.empty()) {
    auto fetched = edge::fetch_keys(config.token_keys);
    if (!fetched) return fail(fetched.error());
    keys = std::move(*fetched);
  }
  const Result<Done> keys_fine = check_keys(config, keys);
  if (!keys_fine) return fail(keys_fine.error());
  const auto tokens = edge::make_token_verifier(config.tokens, std::move(keys), *metrics);
  std::unique_ptr<edge::KeySource> key_source;
  if (!config.token_keys.location.empty()) {
    key_source = edge::start_key_source(config.token_keys, *tokens, clock, *metrics);
    tokens->on_unknown_key([&key_source] { key_source->want_refresh(); });
  }

  const auto database = db::open_sqlite(
      {.path = path, .busy_timeout = config.engine.budget.statement_timeout}, clock, *metrics);
  if (!database) return fail(database.error());

  const auto home = common::make_loop(clock, "engine");
  std::vector<std::unique_ptr<common::Loop>> io;
  std::vector<common::Loop*> loops;
  const std::size_t io_threads = config.io_threads != 0
                                     ? config.io_threads
                                     : std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < io_threads; ++i) {
    io.push_back(common::make_loop(clock, fmt::format("io-{}", i)));
    loops.push_back(io.back().get());
  }

  const Result<Done> migrated = run_migrations(**database, *home, clock);
  if (!migrated) return fail(migrated.error());

  const auto gate = engine::make_local_gate();
  const auto journal = engine::make_direct_journal(*home, config.engine.budget.queue_size);
  const auto ledger =
      engine::make_sql_ledger(**database, *home, clock, *metrics, sale::grant_table());
  std::atomic<bool> superseded{false};
  const auto engine = engine::make_engine(config.engine, *home, clock, *gate, *journal, *ledger,
                                          nullptr, *metrics, [&superseded] {
                                            superseded.store(true);
                                            ::kill(::getpid(), SIGUSR1);
                                          });
  sale::Catalog catalog(**database, *engine);
  const Result<Done> prepared =
      wait_for<Result<Done>>(*home, [&] { return catalog.prepare_all(*home); });
  if (!prepared) return fail(prepared.error());

  const sale::RouteParts parts{clock, *metrics, **database, *engine, catalog, order_ids, *tokens};
  sale::SaleJobs sale_jobs(parts, *home);
  const auto gateway = payment::make_simulator(**database, clock);
  payment::Payments payments(parts, *gateway, *home, config.payment_timeout);
  Background background;
  background.start(*home, [&] { return sale_jobs.run(); });
  background.start(*home, [&] { return payments.run(); });

  Readiness readiness;
  http::Router router;
  sale::add_routes(router, parts);
  sale::add_admin_routes(router, parts);
  payment::add_routes(router, parts, payments);
  admin::add_routes(router, **database, *tokens, clock);
  add_docs_routes(router);
  add_service_routes(router, {parts, sale_jobs, payments, readiness});

  if (config.warm_up) warm_up(**database, *home);
  auto server = http::start_server(config.http, router, loops, *metrics);
  int code = 0;
  if (server) {
    readiness.state.store(Readiness::State::kReady);
    common::log(LogLevel::kInfo, "listening",
                {{"url", std::string_view(fmt::format(
                             "{}://{}:{}", config.http.tls_certificate.empty() ? "http" : "https",
                             config.http.address, (*server)->port()))},
                 {"pid", std::int64_t{::getpid()}},
                 {"ledger", std::string_view(config.ledger)}});
    int signal = 0;
    sigwait(&signals, &signal);
    readiness.state.store(Readiness::State::kStopping);
    if (superseded.load()) {
      code = 3;
      common::log(LogLevel::kError,
                  "the ledger shows a higher epoch: another server has taken over; this one ends");
    } else {
      common::log(LogLevel::kInfo, "stopping", {{"signal", std::string_view(strsignal(signal))}});
    }
    (*server)->stop(config.shutdown_grace);
  }
  sale_jobs.stop();
  payments.stop();
  background.wait();
  engine->stop(config.shutdown_grace);
  if (key_source) key_source->stop();
  (*database)->stop();
  for (const auto& loop : io) loop->stop();
  home->stop();
  if (!server) return fail(server.error());
  common::log(LogLevel::kInfo, "stopped");
  return code;
}

}  // namespace doorbuster::app

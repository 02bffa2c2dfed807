#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/log.hpp"
#include "db/database.hpp"

namespace doorbuster::db {
namespace {

using common::Done;
using common::Error;
using common::ErrorCode;
using common::fail;
using common::Proof;
using common::Result;

/// Distinct SQL texts that one connection keeps prepared. More than this means that somebody puts
/// values into the text; then all are dropped and prepared again, which is slow and stays correct.
constexpr std::size_t kMaxStatements = 512;

/// Pages (4 KiB) in the write-ahead log after which the writer copies them into the file. The log
/// is read and copied in one go, so that a page which many transactions changed is written once.
constexpr int kCheckpointPages = 4000;
/// From here on the writer also waits for readers, since readers that always overlap would
/// otherwise keep the log growing for ever; at most kInsistFor, because `verify` may hold its
/// snapshot for minutes.
constexpr int kInsistPages = 4 * kCheckpointPages;
constexpr std::chrono::milliseconds kInsistFor{50};

/// How long read_sqlite_once waits for a lock, which is only ever taken for moments.
constexpr std::chrono::milliseconds kOnceTimeout{5000};

constexpr int primary(int rc) { return rc & 0xff; }

bool means_full(int os_error) {
  return os_error == ENOSPC || os_error == EDQUOT || os_error == EFBIG;
}

bool means_read_only(int os_error) {
  return os_error == EROFS || os_error == EACCES || os_error == EPERM;
}

std::string os_text(int os_error) { return std::generic_category().message(os_error); }

/// What SQLite's code means for us.
ErrorCode code_of(int rc, int os_error) {
  switch (primary(rc)) {
    case SQLITE_CONSTRAINT:
      return ErrorCode::kConflict;
    case SQLITE_BUSY:
      return ErrorCode::kBusy;
    case SQLITE_FULL:
      return ErrorCode::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return ErrorCode::kReadOnly;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    case SQLITE_INTERRUPT:
      return ErrorCode::kTimeout;
    case SQLITE_IOERR:
      if (rc == SQLITE_IOERR_NOMEM) return ErrorCode::kInternal;
      if (rc == SQLITE_IOERR_CORRUPTFS) return ErrorCode::kCorrupt;
      // The index of the log could not grow; SQLite does not keep the system's reason.
      if (rc == SQLITE_IOERR_SHMSIZE) return ErrorCode::kFull;
      [[fallthrough]];
    case SQLITE_CANTOPEN:
      if (means_full(os_error)) return ErrorCode::kFull;
      if (means_read_only(os_error)) return ErrorCode::kReadOnly;
      return ErrorCode::kIo;
    default:
      return ErrorCode::kInternal;
  }
}

std::string_view advice(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBusy:
      return "another process holds the file's write lock; find it (for example with lsof) and let "
             "it "
             "finish, writes go on by themselves";
    case ErrorCode::kFull:
      return "the disk, a quota or a limit on the file's size is full; make room on its file "
             "system, "
             "writes go on by themselves";
    case ErrorCode::kReadOnly:
      return "it cannot be written; check the mount, the owner and the permissions of the file, "
             "its "
             "-wal and -shm beside it, and their folder";
    case ErrorCode::kIo:
      return "the operating system reported an error; check the disk and the kernel's log before "
             "trusting this machine again";
    case ErrorCode::kCorrupt:
      return "it is not a readable SQLite database; stop the server, keep a copy of all its files, "
             "and "
             "restore a backup";
    default:
      return "";
  }
}

/// Why the file cannot be opened for writing; 0 when it could be. SQLite tries again as a reader,
/// and then reports why that failed.
int why_not_writable(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (const std::string& name : {folder, path}) {
    if (faccessat(AT_FDCWD, name.c_str(), W_OK, AT_EACCESS) != 0 && errno != ENOENT) return errno;
  }
  return 0;
}

/// The system's reason for the last error of a file, which SQLite keeps per file.
int last_errno(sqlite3_file* file) {
  int os_error = 0;
  if (file != nullptr && file->pMethods != nullptr) {
    file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &os_error);
  }
  return os_error;
}

/// The system's reason beneath the connection's last error, 0 where there is none. A COMMIT that
/// fails does not pass it on to sqlite3_system_errno(); the log's file has it.
int system_reason(const std::string& path, sqlite3* db, int rc) {
  int os_error = 0;
  if (primary(rc) == SQLITE_CANTOPEN) {
    os_error = why_not_writable(path);
  } else if (rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_FSYNC) {
    sqlite3_file* log = nullptr;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, static_cast<void*>(&log));
    os_error = last_errno(log);
  } else if (primary(rc) != SQLITE_IOERR) {
    return 0;
  }
  return os_error != 0 ? os_error : sqlite3_system_errno(db);
}

/// The error of the connection's last call, with the file's name and what an operator can do.
Error explain(const std::string& path, sqlite3* db, int rc, int os_error) {
  const ErrorCode code = code_of(rc, os_error);
  const char* text = sqlite3_errmsg(db);
  if (code == ErrorCode::kConflict) return Error{.code = code, .message = text};
  std::string detail = fmt::format("SQLite {}: {}", rc, text);
  if (os_error != 0) detail += fmt::format("; system: {}", os_text(os_error));
  const std::string_view todo = advice(code);
  if (!todo.empty()) detail = fmt::format("{} ({})", todo, detail);
  return Error{.code = code, .message = fmt::format("database file {}: {}", path, detail)};
}

/// What a failed COMMIT proves. The last frame of a transaction in the log counts only when it is
/// whole: SQLITE_FULL and a write that the system refused leave it incomplete. After a failed
/// fsync, or an error of the disk itself, it may be whole, and recovery after a crash would then
/// find the transaction.
Proof proof_of_commit(int rc, int os_error) {
  switch (primary(rc)) {
    case SQLITE_BUSY:
    case SQLITE_CONSTRAINT:
    case SQLITE_FULL:
    case SQLITE_READONLY:
      return Proof::kDidNotHappen;
    case SQLITE_IOERR:
      return rc == SQLITE_IOERR_WRITE && (means_full(os_error) || means_read_only(os_error))
                 ? Proof::kDidNotHappen
                 : Proof::kUnknown;
    default:
      return Proof::kUnknown;
  }
}

struct CloseDatabase {
  void operator()(sqlite3* db) const noexcept { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
};

struct Statement {
  std::unique_ptr<sqlite3_stmt, FinalizeStatement> handle;
  std::size_t parameters = 0;
};

/// Lets the cache be searched by view, without making a string for each call.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

// SQLITE_STATIC: the caller's bytes outlive the call, so nothing is copied.
constexpr sqlite3_destructor_type kStatic = nullptr;

struct Binder {
  sqlite3_stmt* statement;
  int index;

  int operator()(std::nullptr_t) const { return sqlite3_bind_null(statement, index); }
  int operator()(std::int64_t value) const { return sqlite3_bind_int64(statement, index, value); }
  // SQLite takes a null pointer for NULL, also where the text is empty.
  int operator()(std::string_view text) const {
    return sqlite3_bind_text64(statement, index, text.data() == nullptr ? "" : text.data(),
                               text.size(), kStatic, SQLITE_UTF8);
  }
  int operator()(std::span<const std::uint8_t> bytes) const {
    const void* data = bytes.data() == nullptr ? static_cast<const void*>("") : bytes.data();
    return sqlite3_bind_blob64(statement, index, data, bytes.size(), kStatic);
  }
};

/// A statement in use. At the end it lets go of locks and of the caller's bytes.
class Running {
 public:
  explicit Running(sqlite3_stmt* statement) : statement_(statement) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

  [[nodiscard]] int bind(std::span<const Param> params) const {
    for (std::size_t i = 0; i < params.size(); ++i) {
      const int rc = std::visit(Binder{statement_, static_cast<int>(i) + 1}, params[i]);
      if (rc != SQLITE_OK) return rc;
    }
    return SQLITE_OK;
  }

  [[nodiscard]] int step() const { return sqlite3_step(statement_); }

  /// The present row; nothing when a column is of a type that no table here has (REAL).
  [[nodiscard]] std::optional<std::vector<Value>> row() const {
    const int columns = sqlite3_column_count(statement_);
    std::vector<Value> values;
    values.reserve(static_cast<std::size_t>(columns));
    for (int i = 0; i < columns; ++i) {
      switch (sqlite3_column_type(statement_, i)) {
        case SQLITE_NULL:
          values.emplace_back(nullptr);
          break;
        case SQLITE_INTEGER:
          values.emplace_back(std::int64_t{sqlite3_column_int64(statement_, i)});
          break;
        case SQLITE_TEXT: {
          const void* data = sqlite3_column_text(statement_, i);
          const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, i));
          values.emplace_back(std::string(static_cast<const char*>(data), size));
          break;
        }
        case SQLITE_BLOB: {
          const auto* data = static_cast<const std::uint8_t*>(sqlite3_column_blob(statement_, i));
          const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, i));
          values.emplace_back(size == 0 ? std::vector<std::uint8_t>()
                                        : std::vector<std::uint8_t>(data, data + size));
          break;
        }
        default:
          return std::nullopt;
      }
    }
    return values;
  }

 private:
  sqlite3_stmt* statement_;
};

enum class Role { kWriter, kReader, kMemory };

/// One connection with its prepared statements, used by one thread at a time.
class Connection final : public Session {
 public:
  static Result<std::unique_ptr<Connection>> open(const std::string& path, Role role,
                                                  std::chrono::milliseconds busy_timeout) {
    // NOMUTEX: one thread at a time uses a connection, so SQLite need not lock it.
    const int flags =
        SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
        (role == Role::kReader ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    sqlite3* handle = nullptr;
    const int rc = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
    std::unique_ptr<sqlite3, CloseDatabase> db(handle);
    if (db == nullptr) return fail(ErrorCode::kInternal, "no memory for a database connection");
    if (rc != SQLITE_OK) {
      return fail(explain(path, db.get(), rc, system_reason(path, db.get(), rc)));
    }
    std::unique_ptr<Connection> connection(new Connection(path, role, busy_timeout, std::move(db)));
    const Result<Done> ready = connection->prepare_for_use();
    if (!ready) return fail(ready.error());
    return connection;
  }

  /// Runs `work` in a transaction that holds the write lock from the start, so that it never has to
  /// be given up half way because somebody else wrote in between.
  Result<Done> write(const Database::Work& work) {
    failure_.reset();
    if (const Result<std::int64_t> begun = execute("BEGIN IMMEDIATE", {}); !begun) {
      return fail(begun.error());
    }
    Result<Done> done = work(*this);
    if (failure_ || !done) {
      roll_back();
      return outcome(std::move(done));
    }
    DOORBUSTER_ENSURE(sqlite3_get_autocommit(db_.get()) == 0, "work must not end its transaction");
    const Result<std::int64_t> committed = execute("COMMIT", {});
    if (!committed) {
      Error error = committed.error();
      error.proof = proof_of_commit(failure_rc_, failure_os_error_);
      failure_ = error;
      roll_back();
      return fail(std::move(error));
    }
    return Done{};
  }

  /// Runs `work` in one snapshot, which is let go at the end.
  Result<Done> read(const Database::Work& work) {
    failure_.reset();
    if (const Result<std::int64_t> begun = execute("BEGIN", {}); !begun) return fail(begun.error());
    Result<Done> done = work(*this);
    roll_back();
    return outcome(std::move(done));
  }

  /// What SQLite itself reported in the last transaction, if it ended it.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

  Result<std::int64_t> execute(std::string_view sql, std::span<const Param> params) override {
    if (failure_) return fail(*failure_);
    const Result<sqlite3_stmt*> prepared = prepare(sql, params.size());
    if (!prepared) return fail(prepared.error());
    const Running running(*prepared);
    int rc = running.bind(params);
    // sqlite3_changes() speaks of the last statement that changed rows, which may be an earlier
    // one.
    const std::int64_t before = sqlite3_total_changes64(db_.get());
    if (rc == SQLITE_OK) {
      do {
        rc = running.step();
      } while (rc == SQLITE_ROW);
    }
    if (rc != SQLITE_DONE) return fail(failed(rc));
    if (sqlite3_total_changes64(db_.get()) == before) return std::int64_t{0};
    return std::int64_t{sqlite3_changes64(db_.get())};
  }

  Result<Rows> query(std::string_view sql, std::span<const Param> params) override {
    if (failure_) return fail(*failure_);
    const Result<sqlite3_stmt*> prepared = prepare(sql, params.size());
    if (!prepared) return fail(prepared.error());
    const Running running(*prepared);
    Rows rows;
    int rc = running.bind(params);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
      rc = running.step();
      if (rc != SQLITE_ROW) break;
      std::optional<std::vector<Value>> row = running.row();
      if (!row) return fail(misused("answers with a floating-point column", sql));
      rows.emplace_back(std::move(*row));
    }
    if (rc != SQLITE_DONE) return fail(failed(rc));
    return rows;
  }

  /// Pages in the write-ahead log after the last commit.
  [[nodiscard]] int log_pages() const { return log_pages_; }
  [[nodiscard]] bool checkpoint_due() const { return log_pages_ >= checkpoint_at_; }

  /// Copies the log into the file. Blocks no reader; a reader's snapshot limits how far it gets.
  /// Only to be called between transactions.
  Result<Done> checkpoint() {
    const bool insist = log_pages_ >= kInsistPages;
    if (insist) sqlite3_busy_timeout(db_.get(), static_cast<int>(kInsistFor.count()));
    const int rc = sqlite3_wal_checkpoint_v2(
        db_.get(), "main", insist ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, nullptr,
        nullptr);
    if (insist) sqlite3_busy_timeout(db_.get(), static_cast<int>(busy_timeout_.count()));
    // However far it got: not at every commit again, since each try costs an fsync of the file.
    checkpoint_at_ = log_pages_ + kCheckpointPages;
    if (rc != SQLITE_OK && primary(rc) != SQLITE_BUSY) {
      return fail(explain(path_, db_.get(), rc, sqlite3_system_errno(db_.get())));
    }
    return Done{};
  }

 private:
  Connection(std::string path, Role role, std::chrono::milliseconds busy_timeout,
             std::unique_ptr<sqlite3, CloseDatabase> db)
      : path_(std::move(path)), role_(role), busy_timeout_(busy_timeout), db_(std::move(db)) {}

  Result<Done> prepare_for_use() {
    sqlite3_busy_timeout(db_.get(), static_cast<int>(busy_timeout_.count()));
    // "text" in double quotes is a column or an error, never silently a string.
    sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
    sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
    const Result<Done> ready = role_ == Role::kWriter   ? set_up_writer()
                               : role_ == Role::kReader ? set_up_reader()
                                                        : settings({"PRAGMA foreign_keys = ON"});
    statements_.clear();
    return ready;
  }

  Result<Done> set_up_writer() {
    if (sqlite3_db_readonly(db_.get(), "main") == 1) {
      return fail(ErrorCode::kReadOnly,
                  fmt::format("database file {}: {}", path_, advice(ErrorCode::kReadOnly)));
    }
    const Result<Done> paged = settings({"PRAGMA page_size = 4096"});
    if (!paged) return paged;
    const Result<Rows> mode = query("PRAGMA journal_mode = WAL", {});
    if (!mode) return fail(mode.error());
    if (mode->size() != 1 || mode->front().text(0) != "wal") {
      return fail(
          ErrorCode::kIo,
          fmt::format("database file {}: its file system allows no write-ahead log (it needs "
                      "shared memory); put it on a local disk",
                      path_));
    }
    const Result<Done> set = settings({
        // An answered commit survives a power cut (D1): fsync of the log at each one.
        "PRAGMA synchronous = FULL",
        "PRAGMA foreign_keys = ON",
        // Pages of a damaged file are recognized where they are read.
        "PRAGMA cell_size_check = ON",
        // Deleted rows are overwritten where the page is written anyway, and cost no page of their
        // own.
        "PRAGMA secure_delete = FAST",
        "PRAGMA temp_store = MEMORY",
        // In KiB: the indexes of a big sale stay in memory while it runs.
        "PRAGMA cache_size = -65536",
        // After a burst the log's file shrinks to this.
        "PRAGMA journal_size_limit = 67108864",
    });
    if (!set) return set;
    // Instead of SQLite's own automatic checkpoint, which would run before COMMIT returns: here the
    // commit is answered first.
    sqlite3_wal_hook(db_.get(), &Connection::on_commit, this);
    // Shows at start-up, instead of in the first sale, that the file is a database and can be
    // locked.
    return write([](Session& session) -> Result<Done> {
      const Result<Rows> rows = session.query("SELECT count(*) FROM sqlite_master");
      if (!rows) return fail(rows.error());
      return Done{};
    });
  }

  Result<Done> set_up_reader() {
    return settings({"PRAGMA cell_size_check = ON", "PRAGMA temp_store = MEMORY",
                     "PRAGMA cache_size = -16384"});
  }

  Result<Done> settings(std::initializer_list<std::string_view> pragmas) {
    for (const std::string_view pragma : pragmas) {
      const Result<Rows> set = query(pragma, {});
      if (!set) return fail(set.error());
    }
    return Done{};
  }

  static int on_commit(void* self, sqlite3*, const char*, int pages) {
    auto* connection = static_cast<Connection*>(self);
    if (pages < connection->log_pages_)
      connection->checkpoint_at_ = kCheckpointPages;  // began anew
    connection->log_pages_ = pages;
    return SQLITE_OK;
  }

  Result<sqlite3_stmt*> prepare(std::string_view sql, std::size_t parameters) {
    auto found = statements_.find(sql);
    if (found == statements_.end()) {
      Result<Statement> made = compile(sql);
      if (!made) return fail(made.error());
      if (statements_.size() >= kMaxStatements) statements_.clear();
      found = statements_.emplace(std::string(sql), std::move(*made)).first;
    }
    DOORBUSTER_ENSURE(found->second.parameters == parameters,
                      "a statement gets as many parameters as it names");
    return found->second.handle.get();
  }

  Result<Statement> compile(std::string_view sql) {
    sqlite3_stmt* handle = nullptr;
    const char* tail = nullptr;
    const int rc = sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &handle, &tail);
    Statement statement;
    statement.handle.reset(handle);
    if (rc != SQLITE_OK) return fail(failed(rc));
    const std::string_view rest = sql.substr(static_cast<std::size_t>(tail - sql.data()));
    if (handle == nullptr || rest.find_first_not_of(" \t\r\n;") != std::string_view::npos) {
      return fail(misused("is not exactly one statement", sql));
    }
    if (role_ == Role::kReader && sqlite3_stmt_readonly(handle) == 0) {
      return fail(misused("writes, inside a read", sql));
    }
    const int count = sqlite3_bind_parameter_count(handle);
    for (int i = 1; i <= count; ++i) {
      const char* name = sqlite3_bind_parameter_name(handle, i);
      DOORBUSTER_ENSURE(name != nullptr && fmt::format("${}", i) == name,
                        "parameters are $1, $2, ... in order of their first appearance");
    }
    statement.parameters = static_cast<std::size_t>(count);
    return statement;
  }

  /// To be called before the statement is reset, which would lose the message.
  Error failed(int rc) {
    failure_os_error_ = system_reason(path_, db_.get(), rc);
    Error error = explain(path_, db_.get(), rc, failure_os_error_);
    failure_rc_ = rc;
    // With a constraint only the statement is undone, unless it asked for more.
    const bool transaction_lives =
        error.code == ErrorCode::kConflict && sqlite3_get_autocommit(db_.get()) == 0;
    if (!transaction_lives) failure_ = error;
    return error;
  }

  /// The work's result, unless the transaction had ended before. Then the work may have put what it
  /// was doing into the message, but it cannot make a success of it.
  Result<Done> outcome(Result<Done> done) const {
    if (!failure_) return done;
    Error error = *failure_;
    if (!done && done.error().code == error.code) error.message = std::move(done.error().message);
    return fail(std::move(error));
  }

  Error misused(std::string_view how, std::string_view sql) {
    failure_ = Error{.code = ErrorCode::kInternal,
                     .message = fmt::format("a bug: this SQL {}: {}", how, sql)};
    return *failure_;
  }

  /// SQLite may have rolled back already, as it does when the disk is full.
  void roll_back() {
    if (sqlite3_get_autocommit(db_.get()) == 0) {
      sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
    DOORBUSTER_ENSURE(sqlite3_get_autocommit(db_.get()) != 0, "a rolled back transaction is over");
  }

  const std::string path_;
  const Role role_;
  const std::chrono::milliseconds busy_timeout_;
  std::unique_ptr<sqlite3, CloseDatabase> db_;
  // After db_, since statements must be gone before it is closed.
  std::unordered_map<std::string, Statement, TextHash, std::equal_to<>> statements_;
  std::optional<Error> failure_;  // what ended the transaction
  int failure_rc_ = SQLITE_OK;    // the last error's code, and the system's beneath it
  int failure_os_error_ = 0;
  int log_pages_ = 0;
  int checkpoint_at_ = kCheckpointPages;
};

/// A call that waits for a thread.
struct Job {
  Database::Work work;
  Database::Answer answer;
};

/// What waits for the threads of one kind, in lanes: the first goes first. Callable from any
/// thread.
class Queue {
 public:
  struct Lane {
    std::string_view name;
    common::Gauge* depth;
    std::deque<Job> jobs = {};
  };

  Queue(std::size_t limit, std::vector<Lane> lanes) : limit_(limit), lanes_(std::move(lanes)) {}

  /// Takes the job, or says why not and leaves it as it was.
  std::optional<Error> push(std::size_t lane, Job& job) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_)
        return Error{.code = ErrorCode::kUnavailable, .message = "the database is closed"};
      Lane& here = lanes_[lane];
      if (here.jobs.size() >= limit_) {
        return Error{.code = ErrorCode::kBusy,
                     .message = fmt::format("{} calls wait for the database already ({})", limit_,
                                            here.name)};
      }
      here.jobs.push_back(std::move(job));
      here.depth->set(static_cast<double>(here.jobs.size()));
    }
    filled_.notify_one();
    return std::nullopt;
  }

  struct Taken {
    std::size_t lane;
    Job job;
  };

  /// Waits for a job; nothing once the queue is closed and empty.
  std::optional<Taken> pop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& here = lanes_[i];
        if (here.jobs.empty()) continue;
        Taken taken{i, std::move(here.jobs.front())};
        here.jobs.pop_front();
        here.depth->set(static_cast<double>(here.jobs.size()));
        return taken;
      }
      if (closed_) return std::nullopt;
      filled_.wait(lock);
    }
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    filled_.notify_all();
  }

 private:
  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<Lane> lanes_;  // Guarded by mutex_.
  bool closed_ = false;      // Guarded by mutex_.
};

class SqliteDatabase;
thread_local const SqliteDatabase* serving = nullptr;

class SqliteDatabase final : public Database {
 public:
  SqliteDatabase(const SqliteConfig& config, const common::Clock& clock, common::Metrics& metrics,
                 std::unique_ptr<Connection> writer,
                 std::vector<std::unique_ptr<Connection>> readers)
      : path_(config.path),
        clock_(clock),
        metrics_(metrics),
        writes_(config.max_queued, {{"rush", &depth("rush")}, {"rest", &depth("rest")}}),
        reads_(config.max_queued, {{"read", &depth("read")}}),
        write_seconds_{&write_seconds("rush"), &write_seconds("rest")},
        read_seconds_(metrics.histogram("db_read_seconds", "One reading transaction",
                                        common::time_buckets())),
        checkpoint_seconds_(metrics.histogram("db_checkpoint_seconds",
                                              "Copying the write-ahead log into the database file",
                                              common::time_buckets())),
        log_pages_(
            metrics.gauge("db_wal_pages", "Pages in the write-ahead log after the last commit")),
        commits_(metrics.counter("db_commits_total", "Writing transactions that were committed")),
        writer_(std::move(writer)),
        readers_(std::move(readers)) {
    // So that each one can be seen, and alerted on, before it happens.
    for (const ErrorCode code : {ErrorCode::kBusy, ErrorCode::kFull, ErrorCode::kReadOnly,
                                 ErrorCode::kIo, ErrorCode::kCorrupt, ErrorCode::kInternal}) {
      write_errors(code).add(0);
    }
    threads_.emplace_back([this] { run_writer(); });
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      threads_.emplace_back([this, i] { run_reader(*readers_[i]); });
    }
  }

  ~SqliteDatabase() override { close(); }

  void submit_write(Priority priority, Work work, Answer answer) override {
    submit(writes_, priority == Priority::kRush ? 0 : 1, std::move(work), std::move(answer));
  }

  void submit_read(Work work, Answer answer) override {
    submit(reads_, 0, std::move(work), std::move(answer));
  }

  std::optional<Error> trouble() const override {
    const std::lock_guard lock(trouble_mutex_);
    return trouble_;
  }

  void stop() override { close(); }

 private:
  common::Gauge& depth(const char* lane) {
    return metrics_.gauge("db_queue_depth", "Calls that wait for the database", {{"lane", lane}});
  }

  common::Histogram& write_seconds(const char* priority) {
    return metrics_.histogram("db_write_seconds", "One writing transaction, its commit included",
                              common::time_buckets(), {{"priority", priority}});
  }

  common::Counter& write_errors(ErrorCode code) {
    return metrics_.counter("db_write_errors_total",
                            "Writing transactions that the database itself could not finish",
                            {{"code", std::string(common::to_string(code))}});
  }

  static void submit(Queue& queue, std::size_t lane, Work work, Answer answer) {
    Job job{std::move(work), std::move(answer)};
    std::optional<Error> refusal = queue.push(lane, job);
    if (refusal) job.answer(fail(std::move(*refusal)));
  }

  void close() {
    DOORBUSTER_ENSURE(serving != this, "a database cannot be stopped from its own threads");
    writes_.close();
    reads_.close();
    const std::lock_guard lock(stop_mutex_);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    // The writer last: the last connection to close copies the log into the file, and a reader may
    // not.
    readers_.clear();
    writer_.reset();
  }

  void run_writer() {
    pthread_setname_np(pthread_self(), "db-writer");
    serving = this;
    while (std::optional<Queue::Taken> taken = writes_.pop()) {
      const common::Steady begun = clock_.steady();
      Result<Done> done = writer_->write(taken->job.work);
      write_seconds_[taken->lane]->observe(seconds_since(begun));
      note_write(done.has_value());
      finish(std::move(taken->job), std::move(done));
      if (writer_->checkpoint_due()) run_checkpoint();
    }
  }

  void run_reader(Connection& connection) {
    pthread_setname_np(pthread_self(), "db-reader");
    serving = this;
    while (std::optional<Queue::Taken> taken = reads_.pop()) {
      const common::Steady begun = clock_.steady();
      Result<Done> done = connection.read(taken->job.work);
      read_seconds_.observe(seconds_since(begun));
      finish(std::move(taken->job), std::move(done));
    }
  }

  /// What the work holds is released first: whoever is answered may take it apart.
  static void finish(Job job, Result<Done> done) {
    job.work = nullptr;
    job.answer(std::move(done));
  }

  void note_write(bool committed) {
    const std::optional<Error>& failure = writer_->failure();
    if (committed) {
      commits_.add();
      log_pages_.set(writer_->log_pages());
    } else if (failure) {
      write_errors(failure->code).add();
    } else {
      return;  // The work refused; the database is fine, and proved nothing.
    }
    // An error in the SQL is a bug and no trouble of the database: the next write has nothing to
    // wait for.
    const bool troubled =
        failure && (failure->code == ErrorCode::kBusy || failure->code == ErrorCode::kFull ||
                    failure->code == ErrorCode::kReadOnly || failure->code == ErrorCode::kIo ||
                    failure->code == ErrorCode::kCorrupt);
    if (!committed && !troubled) return;
    bool changed = false;
    {
      const std::lock_guard lock(trouble_mutex_);
      changed = troubled ? !trouble_ || trouble_->code != failure->code : trouble_.has_value();
      trouble_ = troubled ? failure : std::nullopt;
    }
    if (!changed) return;
    if (troubled) {
      common::log(common::LogLevel::kError, "the database cannot write",
                  {{"code", common::to_string(failure->code)},
                   {"why", std::string_view(failure->message)}});
    } else {
      common::log(common::LogLevel::kInfo, "the database writes again",
                  {{"file", std::string_view(path_)}});
    }
  }

  void run_checkpoint() {
    const common::Steady begun = clock_.steady();
    const Result<Done> done = writer_->checkpoint();
    checkpoint_seconds_.observe(seconds_since(begun));
    if (done) return;
    // The commits are safe in the log; it only stays longer than it should.
    common::log(common::LogLevel::kWarn,
                "the write-ahead log could not be copied into the database file",
                {{"code", common::to_string(done.error().code)},
                 {"why", std::string_view(done.error().message)}});
  }

  double seconds_since(common::Steady begun) const {
    return std::chrono::duration<double>(clock_.steady() - begun).count();
  }

  const std::string path_;
  const common::Clock& clock_;
  common::Metrics& metrics_;
  Queue writes_;
  Queue reads_;
  const std::array<common::Histogram*, 2> write_seconds_;
  common::Histogram& read_seconds_;
  common::Histogram& checkpoint_seconds_;
  common::Gauge& log_pages_;
  common::Counter& commits_;
  std::unique_ptr<Connection> writer_;  // used by its thread only, until that has ended
  std::vector<std::unique_ptr<Connection>> readers_;  // each used by its thread only, as above
  mutable std::mutex trouble_mutex_;
  std::optional<Error> trouble_;  // Guarded by trouble_mutex_.
  std::mutex stop_mutex_;
  std::vector<std::thread> threads_;  // Guarded by stop_mutex_ once the constructor is through.
};

class OpenFileLock final : public FileLock {
 public:
  explicit OpenFileLock(int file) : file_(file) {}
  // The file stays: removing it would race with a process that has opened it and is about to lock
  // it.
  ~OpenFileLock() override { close(file_); }

 private:
  const int file_;
};

/// The process id in a lock file, as it was written by its holder.
std::optional<pid_t> read_pid(int file) {
  std::array<char, 32> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  pid_t pid = 0;
  if (size <= 0 || std::from_chars(text.data(), text.data() + size, pid).ec != std::errc{})
    return {};
  return pid;
}

/// Absolute, so that messages can be followed from anywhere, and that ":memory:" and "file:..." are
/// names like all others.
Result<std::string> absolute_path(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kInvalid, "the database file's name is empty");
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{}: {}", path, error.message()));
  const std::filesystem::path folder = absolute.parent_path();
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: the folder {} does not exist; create it, or name another file",
                            path, folder.string()));
  }
  return absolute.string();
}

}  // namespace

Result<std::unique_ptr<Database>> open_sqlite(const SqliteConfig& config,
                                              const common::Clock& clock,
                                              common::Metrics& metrics) {
  if (config.readers < 1 || config.readers > 16) {
    return fail(ErrorCode::kInvalid, "the number of reading connections is 1 to 16");
  }
  if (config.max_queued < 1)
    return fail(ErrorCode::kInvalid, "at least one call must be able to wait");
  if (config.busy_timeout.count() < 0 || config.busy_timeout > std::chrono::hours{1}) {
    return fail(ErrorCode::kInvalid, "the wait for another process's lock is 0 to 1 hour");
  }
  const Result<std::string> path = absolute_path(config.path);
  if (!path) return fail(path.error());
  SqliteConfig exact = config;
  exact.path = *path;

  Result<std::unique_ptr<Connection>> writer =
      Connection::open(exact.path, Role::kWriter, exact.busy_timeout);
  if (!writer) return fail(writer.error());
  std::vector<std::unique_ptr<Connection>> readers;
  for (std::size_t i = 0; i < exact.readers; ++i) {
    Result<std::unique_ptr<Connection>> reader =
        Connection::open(exact.path, Role::kReader, exact.busy_timeout);
    if (!reader) return fail(reader.error());
    readers.push_back(std::move(*reader));
  }
  return std::make_unique<SqliteDatabase>(exact, clock, metrics, std::move(*writer),
                                          std::move(readers));
}

class SqliteInMemory final : public InMemoryDatabase {
 public:
  explicit SqliteInMemory(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  Result<Done> write(const Database::Work& work) override { return connection_->write(work); }
  Result<Done> read(const Database::Work& work) override { return connection_->read(work); }

 private:
  std::unique_ptr<Connection> connection_;
};

Result<std::unique_ptr<InMemoryDatabase>> open_sqlite_in_memory() {
  Result<std::unique_ptr<Connection>> connection =
      Connection::open(":memory:", Role::kMemory, std::chrono::milliseconds{0});
  if (!connection) return fail(connection.error());
  return std::make_unique<SqliteInMemory>(std::move(*connection));
}

Result<Done> read_sqlite_once(const std::string& path, const Database::Work& work) {
  const Result<std::string> exact = absolute_path(path);
  if (!exact) return fail(exact.error());
  std::error_code error;
  if (!std::filesystem::exists(*exact, error)) {
    return fail(ErrorCode::kNotFound, fmt::format("database file {}: does not exist", *exact));
  }
  Result<std::unique_ptr<Connection>> connection =
      Connection::open(*exact, Role::kReader, kOnceTimeout);
  if (!connection) return fail(connection.error());
  return (*connection)->read(work);
}

Result<std::unique_ptr<FileLock>> lock_file(const std::string& path) {
  const Result<std::string> absolute = absolute_path(path);
  if (!absolute) return fail(absolute.error());
  // One file has one lock, also when a second name leads to it.
  std::error_code unresolved;
  std::filesystem::path target = std::filesystem::weakly_canonical(*absolute, unresolved);
  if (unresolved) target = *absolute;
  const std::string name = target.string() + ".lock";

  const int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    const int os_error = errno;
    return fail(
        means_read_only(os_error) ? ErrorCode::kReadOnly : ErrorCode::kIo,
        fmt::format("lock file {}: {}; the server must be able to create and write it beside "
                    "the database",
                    name, os_text(os_error)));
  }
  auto lock = std::make_unique<OpenFileLock>(file);
  // The system lets go of it when the process ends, however that happens; what stays is only a
  // file.
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    const int os_error = errno;
    if (os_error != EWOULDBLOCK) {
      return fail(ErrorCode::kIo, fmt::format("lock file {}: {}", name, os_text(os_error)));
    }
    const std::optional<pid_t> pid = read_pid(file);
    return fail(
        ErrorCode::kBusy,
        fmt::format("another server ({}) uses {}: stop that one first, or give this one a file "
                    "of its own",
                    pid ? fmt::format("process {}", *pid) : "its process id is not known",
                    target.string()));
  }
  // Only for that message, so a full disk does not stop the start here.
  const std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(file, 0) != 0 ||
      pwrite(file, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    common::log(common::LogLevel::kWarn, "the lock file does not name this process",
                {{"file", std::string_view(name)}, {"why", std::string_view(os_text(errno))}});
  }
  return lock;
}

}  // namespace doorbuster::db

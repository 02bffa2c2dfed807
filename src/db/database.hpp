#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.hpp"
#include "common/executor.hpp"
#include "common/metrics.hpp"
#include "common/result.hpp"
#include "common/task.hpp"
#include "db/session.hpp"

namespace doorbuster::db {

/// Whose write goes first when several wait: the rush's batches, then everything else.
enum class Priority { kRush, kRest };

struct SqliteConfig {
  /// The database file; its folder must exist.
  std::string path;
  /// How long a statement waits for another process's lock. 0 to 1 hour.
  std::chrono::milliseconds busy_timeout{1000};
  /// Reading connections, each with a thread. 1 to 16.
  std::size_t readers = 2;
  /// Waiting calls per lane (rush, rest, reads), at least 1; more are refused with kBusy.
  std::size_t max_queued = 4096;
};

/// The database behind the ledger and the domains: one writer, several readers. Calls queue, run on
/// the database's own threads in a transaction of their own, and answer on the executor that asked.
///
/// D1: a write that answered without an error is durable (fsync) and visible to every later read.
///
/// D2: a write that answered with Proof::kDidNotHappen left nothing; after kUnknown either is
/// possible.
///
/// D3: a read sees one snapshot from its first statement to its last.
///
/// D4: writes run one after another; a waiting kRush write starts before a waiting kRest one.
///
/// D5: a full queue refuses with kBusy at once, and so does every call after stop() with
/// kUnavailable.
class Database {
 public:
  using Work = std::function<common::Result<common::Done>(Session&)>;
  using Answer = std::function<void(common::Result<common::Done>)>;

  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  virtual ~Database() = default;

  /// Commits when `work` returns a value, rolls back when it returns an error. `answer` runs on a
  /// database thread (or inside the call when it is refused) and must not block.
  virtual void submit_write(Priority priority, Work work, Answer answer) = 0;
  virtual void submit_read(Work work, Answer answer) = 0;

  /// Why the last write failed for the database's own sake (full, read-only, locked, I/O), if it
  /// did. Cleared by the next write that commits. Callable from any thread.
  [[nodiscard]] virtual std::optional<common::Error> trouble() const = 0;

  /// Finishes what is queued, then closes. Idempotent.
  virtual void stop() = 0;

  /// As submit_write, for coroutines on `home`.
  template <class T>
  [[nodiscard]] common::Task<common::Result<T>> write(
      common::Executor& home, Priority priority, std::function<common::Result<T>(Session&)> work) {
    return run<T>(home, std::move(work), [this, priority](Work inner, Answer answer) {
      submit_write(priority, std::move(inner), std::move(answer));
    });
  }
  template <class T>
  [[nodiscard]] common::Task<common::Result<T>> read(
      common::Executor& home, std::function<common::Result<T>(Session&)> work) {
    return run<T>(home, std::move(work), [this](Work inner, Answer answer) {
      submit_read(std::move(inner), std::move(answer));
    });
  }

 private:
  template <class T>
  static common::Task<common::Result<T>> run(common::Executor& home,
                                             std::function<common::Result<T>(Session&)> work,
                                             std::function<void(Work, Answer)> submit) {
    const common::Completion<common::Result<T>> arrival(home);
    // The value is set before `answer` runs, by the same thread.
    auto slot = std::make_shared<std::optional<T>>();
    Work inner = [slot, work = std::move(work)](Session& session) -> common::Result<common::Done> {
      common::Result<T> result = work(session);
      if (!result) return tl::make_unexpected(std::move(result.error()));
      slot->emplace(std::move(*result));
      return common::Done{};
    };
    Answer answer = [slot, arrival](common::Result<common::Done> outcome) {
      if (outcome) {
        arrival.complete(std::move(**slot));
      } else {
        arrival.complete(tl::make_unexpected(std::move(outcome.error())));
      }
    };
    submit(std::move(inner), std::move(answer));
    common::Result<T> result = co_await arrival.wait();
    co_return result;
  }
};

/// Opens (and creates) a SQLite file in WAL mode with synchronous=FULL. Starts the writer's and the
/// readers' threads. Refuses, with what to do, a file that is no database or cannot be written.
/// Errors: kInvalid (the settings), kNotFound (the folder), kBusy, kFull, kReadOnly, kIo, kCorrupt.
[[nodiscard]] common::Result<std::unique_ptr<Database>> open_sqlite(const SqliteConfig& config,
                                                                    const common::Clock& clock,
                                                                    common::Metrics& metrics);

/// One connection to a database that lives in memory and goes with the object: the same SQL and
/// rules without a file, for one thread, each call a transaction. The simulation's ledger stands on
/// it.
class InMemoryDatabase {
 public:
  InMemoryDatabase() = default;
  InMemoryDatabase(const InMemoryDatabase&) = delete;
  InMemoryDatabase& operator=(const InMemoryDatabase&) = delete;
  virtual ~InMemoryDatabase() = default;
  /// Commits when `work` returns a value, rolls back when it returns an error.
  [[nodiscard]] virtual common::Result<common::Done> write(const Database::Work& work) = 0;
  [[nodiscard]] virtual common::Result<common::Done> read(const Database::Work& work) = 0;
};
[[nodiscard]] common::Result<std::unique_ptr<InMemoryDatabase>> open_sqlite_in_memory();

/// A reading connection for a command beside the server (`verify`): runs `work` in one snapshot.
/// Sees what is in the log of a running server, or of a killed one, and changes neither file.
/// Errors: kNotFound (the file or its folder), and those of a read.
[[nodiscard]] common::Result<common::Done> read_sqlite_once(const std::string& path,
                                                            const Database::Work& work);

/// Holds `<path>.lock` until destroyed, so that one server has one file.
class FileLock {
 public:
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  virtual ~FileLock() = default;

 protected:
  FileLock() = default;
};

/// Errors: kBusy when another living process holds it (the message names its process id),
/// kReadOnly, kIo, kNotFound (the folder).
[[nodiscard]] common::Result<std::unique_ptr<FileLock>> lock_file(const std::string& path);

}  // namespace doorbuster::db

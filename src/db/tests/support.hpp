#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/clock.hpp"
#include "common/metrics.hpp"
#include "db/database.hpp"

namespace doorbuster::db::testing {

/// A folder of its own, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "doorbuster-db-XXXXXX").string();
    DOORBUSTER_ENSURE(mkdtemp(name.data()) != nullptr, "a test needs a temporary folder");
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name = "test.db") const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// Another process's connection, so to speak: nothing of `db` is used.
class RawConnection {
 public:
  explicit RawConnection(const std::string& path) {
    const int rc =
        sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "unix");
    EXPECT_EQ(rc, SQLITE_OK);
  }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection() { sqlite3_close(db_); }

  int run(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  }

  /// The first row's values, joined by '|'; "none" without a row, "error ..." where it failed.
  std::string first(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
      return std::string("error ") + sqlite3_errmsg(db_);
    }
    std::string text = "none";
    if (sqlite3_step(statement) == SQLITE_ROW) {
      text.clear();
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        const void* value = sqlite3_column_text(statement, i);
        if (i > 0) text += '|';
        text += value == nullptr ? "null" : static_cast<const char*>(value);
      }
    }
    sqlite3_finalize(statement);
    return text;
  }

 private:
  sqlite3* db_ = nullptr;
};

/// An answer that a test waits for.
class Arrival {
 public:
  /// Owned by both sides: the answering thread may still be inside it when get() returns.
  [[nodiscard]] Database::Answer answer() const {
    return [promise = promise_](common::Result<common::Done> done) {
      promise->set_value(std::move(done));
    };
  }
  [[nodiscard]] common::Result<common::Done> get() { return future_.get(); }

 private:
  std::shared_ptr<std::promise<common::Result<common::Done>>> promise_ =
      std::make_shared<std::promise<common::Result<common::Done>>>();
  std::future<common::Result<common::Done>> future_ = promise_->get_future();
};

/// A database over a file in a folder of its own, with calls that wait for their answers.
struct Fixture {
  explicit Fixture(SqliteConfig settings = {}) : config(std::move(settings)) {
    if (config.path.empty()) config.path = dir.file();
    reopen();
  }

  void reopen() {
    database.reset();
    auto opened = open_sqlite(config, clock, *metrics);
    DOORBUSTER_ENSURE(opened.has_value(), "the test's database opens");
    database = std::move(*opened);
  }

  common::Result<common::Done> write(Database::Work work,
                                     Priority priority = Priority::kRest) const {
    Arrival arrival;
    database->submit_write(priority, std::move(work), arrival.answer());
    return arrival.get();
  }
  common::Result<common::Done> read(Database::Work work) const {
    Arrival arrival;
    database->submit_read(std::move(work), arrival.answer());
    return arrival.get();
  }

  /// One statement in a write of its own.
  common::Result<common::Done> run(std::string sql) const {
    return write([sql = std::move(sql)](Session& session) -> common::Result<common::Done> {
      const common::Result<std::int64_t> done = session.execute(sql);
      if (!done) return common::fail(done.error());
      return common::Done{};
    });
  }

  /// The first column of the first row, in a read of its own; -1 where it failed.
  std::int64_t number(const std::string& sql) const {
    std::int64_t value = -1;
    const common::Result<common::Done> done =
        read([&](Session& session) -> common::Result<common::Done> {
          const common::Result<Rows> rows = session.query(sql);
          if (!rows) return common::fail(rows.error());
          value = rows->front().integer(0);
          return common::Done{};
        });
    EXPECT_TRUE(done) << done.error().message;
    return value;
  }

  /// For death tests, whose process cannot tidy up: the writer keeps what it has open.
  void remove_files() const { std::filesystem::remove_all(dir.path()); }

  TempDir dir;
  SqliteConfig config;
  common::SystemClock clock;
  std::unique_ptr<common::Metrics> metrics = common::make_metrics();
  std::unique_ptr<Database> database;
};

/// What a crash at this instant would leave: the files' bytes, opened somewhere else.
class CrashCopy {
 public:
  explicit CrashCopy(const std::string& path) {
    for (const char* suffix : {"", "-wal"}) {
      if (std::filesystem::exists(path + suffix)) {
        std::filesystem::copy_file(path + suffix, dir_.file("copy.db") + suffix);
      }
    }
  }
  [[nodiscard]] std::string path() const { return dir_.file("copy.db"); }
  std::string first(const std::string& sql) { return RawConnection(path()).first(sql); }

 private:
  TempDir dir_;
};

}  // namespace doorbuster::db::testing

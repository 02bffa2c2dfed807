// What goes wrong around the file: locked, full, read-only, broken, used twice.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "db/database.hpp"
#include "db/tests/faulty_disk.hpp"
#include "db/tests/support.hpp"

namespace doorbuster::db {
namespace {

using common::Done;
using common::Error;
using common::ErrorCode;
using common::fail;
using common::Proof;
using common::Result;
using ::testing::AllOf;
using testing::CrashCopy;
using testing::FaultyDisk;
using testing::Fixture;
using ::testing::HasSubstr;
using testing::RawConnection;
using testing::TempDir;

Result<Done> open_only(const std::string& path) {
  const common::SystemClock clock;
  const auto metrics = common::make_metrics();
  SqliteConfig config;
  config.path = path;
  config.busy_timeout = std::chrono::milliseconds{5};
  const auto opened = open_sqlite(config, clock, *metrics);
  if (!opened) return fail(opened.error());
  return Done{};
}

void expect_refused(const Result<Done>& done, ErrorCode code, const std::string& names) {
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, code) << done.error().message;
  EXPECT_EQ(done.error().proof, Proof::kDidNotHappen) << done.error().message;
  EXPECT_THAT(done.error().message, HasSubstr(names));
}

/// A small file system of its own, where the system allows one to be mounted.
class SmallDisk {
 public:
  explicit SmallDisk(const char* options) {
    if (mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, options) != 0)
      reason_ = std::strerror(errno);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted()) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool mounted() const { return reason_.empty(); }
  [[nodiscard]] std::string why_not() const {
    return "a tmpfs cannot be mounted (" + reason_ +
           "): run this test as root, or in a container with "
           "CAP_SYS_ADMIN";
  }
  [[nodiscard]] std::string file(const std::string& name = "test.db") const {
    return dir_.file(name);
  }

  void set_read_only(bool on) const {
    const unsigned long flags = on ? MS_REMOUNT | MS_RDONLY : MS_REMOUNT;
    ASSERT_EQ(mount("tmpfs", dir_.path().c_str(), "tmpfs", flags, nullptr), 0)
        << std::strerror(errno);
  }

  /// Leaves exactly `pages` free pages.
  void fill_up_to(int pages) const {
    const int file = open(this->file("filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const std::string block(4096, 'x');
    off_t size = lseek(file, 0, SEEK_END);
    while (pwrite(file, block.data(), block.size(), size) == static_cast<ssize_t>(block.size())) {
      size += static_cast<off_t>(block.size());
    }
    ASSERT_EQ(errno, ENOSPC);
    ASSERT_GE(size, off_t{4096} * pages);
    ASSERT_EQ(ftruncate(file, size - off_t{4096} * pages), 0);
    close(file);
  }
  void make_room() const { std::filesystem::remove(file("filler")); }

 private:
  TempDir dir_;
  std::string reason_;
};

TEST(Refusal, NamesTheFolderThatDoesNotExist) {
  const TempDir dir;
  expect_refused(open_only(dir.file("no/such.db")), ErrorCode::kNotFound, dir.file("no"));
  expect_refused(open_only(""), ErrorCode::kInvalid, "name is empty");
}

TEST(Refusal, TakesNoFileThatIsNoDatabaseAndLeavesItAlone) {
  const TempDir dir;
  const std::string text =
      "these are the minutes of a meeting, and somebody will want them again\n";
  for (const int copies : {1, 100}) {
    std::string content;
    for (int i = 0; i < copies; ++i) content += text;
    {
      std::ofstream(dir.file(), std::ios::binary) << content;
    }
    const Result<Done> done = open_only(dir.file());
    expect_refused(done, ErrorCode::kCorrupt, dir.file());
    EXPECT_THAT(done.error().message, HasSubstr("not a readable SQLite database"));
    std::ifstream in(dir.file(), std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), content);
  }
}

TEST(Refusal, TakesNoFolderForAFile) {
  const TempDir dir;
  expect_refused(open_only(dir.path().string()), ErrorCode::kIo, dir.path().string());
}

TEST(Refusal, TakesNoFileThatAnotherProcessHasLocked) {
  const Fixture f;
  f.database->stop();
  RawConnection other(f.config.path);
  ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK);
  const Result<Done> done = open_only(f.config.path);
  expect_refused(done, ErrorCode::kBusy, f.config.path);
  EXPECT_THAT(done.error().message, HasSubstr("another process holds the file's write lock"));
  ASSERT_EQ(other.run("ROLLBACK"), SQLITE_OK);
  EXPECT_TRUE(open_only(f.config.path)) << "and now it works again";
}

TEST(Refusal, TakesNoDatabaseOnAReadOnlyFileSystem) {
  const SmallDisk disk("size=4m");
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  ASSERT_TRUE(open_only(disk.file()));
  disk.set_read_only(true);
  expect_refused(open_only(disk.file()), ErrorCode::kReadOnly, disk.file());
  expect_refused(open_only(disk.file("new.db")), ErrorCode::kReadOnly, disk.file("new.db"));
  const auto lock = lock_file(disk.file());
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::kReadOnly);
  EXPECT_THAT(lock.error().message, HasSubstr(disk.file() + ".lock"));
  disk.set_read_only(false);
  EXPECT_TRUE(open_only(disk.file())) << "and now it works again";
}

TEST(Refusal, TakesNoFileWithoutPermissionToWriteIt) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write every file: run this test as another user";
  const TempDir dir;
  ASSERT_TRUE(open_only(dir.file()));
  std::filesystem::permissions(dir.file(), std::filesystem::perms::owner_read);
  expect_refused(open_only(dir.file()), ErrorCode::kReadOnly, dir.file());
}

TEST(Locked, FailsAsBusyAfterTheTimeoutAndWorksOnceTheLockIsGone) {
  SqliteConfig config;
  config.busy_timeout = std::chrono::milliseconds{20};
  const Fixture f(config);
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  RawConnection other(f.config.path);
  ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK);
  for (int i = 0; i < 2; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    const Result<Done> done = f.run("INSERT INTO t VALUES (1)");
    EXPECT_GE(std::chrono::steady_clock::now() - begun, config.busy_timeout);
    expect_refused(done, ErrorCode::kBusy, f.config.path);
    ASSERT_TRUE(f.database->trouble());
    EXPECT_EQ(f.database->trouble()->code, ErrorCode::kBusy);
    EXPECT_EQ(f.database->trouble()->message, done.error().message);
  }
  EXPECT_EQ(f.metrics->counter("db_write_errors_total", "", {{"code", "BUSY"}}).value(), 2);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0) << "reading needs no lock";
  ASSERT_EQ(other.run("COMMIT"), SQLITE_OK);
  EXPECT_TRUE(f.run("INSERT INTO t VALUES (2)")) << "and now it works again";
  EXPECT_FALSE(f.database->trouble());
  EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 2);
}

TEST(Locked, WaitsForALockThatIsLetGoInTime) {
  SqliteConfig config;
  config.busy_timeout = std::chrono::minutes{1};
  const Fixture f(config);
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  RawConnection other(f.config.path);
  ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK);
  testing::Arrival arrival;
  f.database->submit_write(
      Priority::kRush,
      [](Session& session) -> Result<Done> {
        const Result<std::int64_t> done = session.execute("INSERT INTO t VALUES (1)");
        if (!done) return fail(done.error());
        return Done{};
      },
      arrival.answer());
  // The job is out of the queue, so the writer has taken it up.
  while (f.metrics->gauge("db_queue_depth", "", {{"lane", "rush"}}).value() > 0)
    std::this_thread::yield();
  ASSERT_EQ(other.run("COMMIT"), SQLITE_OK);
  EXPECT_TRUE(arrival.get());
}

TEST(Trouble, IsNotEndedByAWorkThatRefuses) {
  SqliteConfig config;
  config.busy_timeout = std::chrono::milliseconds{1};
  const Fixture f(config);
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  {
    RawConnection other(f.config.path);
    ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK);
    EXPECT_FALSE(f.run("INSERT INTO t VALUES (1)"));
  }
  EXPECT_FALSE(f.write([](Session&) -> Result<Done> { return fail(ErrorCode::kConflict, "own"); }));
  EXPECT_TRUE(f.database->trouble());
  EXPECT_FALSE(f.run("nonsense"));
  EXPECT_TRUE(f.database->trouble());
  EXPECT_TRUE(f.run("INSERT INTO t VALUES (1)"));
  EXPECT_FALSE(f.database->trouble());
}

/// One kind of failure, put at the first step of a write, at the second, and so on.
struct Walk {
  const char* name;
  FaultyDisk::Fault fault;
  ErrorCode code;     ///< what a failing write is called
  Proof write_proof;  ///< of a failure before the fsync
};

/// With `true`, the log was copied before, so that the write begins it anew with a header and an
/// fsync.
class WalkedFault : public ::testing::TestWithParam<std::tuple<Walk, bool>> {};

TEST_P(WalkedFault, ProvesWhatItSaysAndTheNextWriteWorks) {
  const auto& [walk, log_begins_anew] = GetParam();
  int steps = 0;
  bool last_was_sync = false;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 100) << "the write never got through";
    FaultyDisk disk;
    const Fixture f;
    ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)"));
    ASSERT_TRUE(f.run("INSERT INTO t VALUES (1, NULL)"));

    if (log_begins_anew) {
      ASSERT_EQ(RawConnection(f.config.path).first("PRAGMA wal_checkpoint(RESTART)").substr(0, 2),
                "0|");
    }
    static_cast<void>(disk.take_log_steps());
    disk.fail_from(n, walk.fault);
    const Result<Done> done = f.run("INSERT INTO t VALUES (2, randomblob(9000))");
    const std::string log = disk.take_log_steps();
    if (!disk.fired()) {
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_FALSE(f.database->trouble());
      EXPECT_EQ(CrashCopy(f.config.path).first("SELECT sum(id) FROM t"), "3");
      break;
    }
    ++steps;
    last_was_sync = log.ends_with('s');
    ASSERT_FALSE(done) << "step " << n;
    EXPECT_EQ(done.error().code, walk.code) << done.error().message;
    EXPECT_THAT(done.error().message, HasSubstr(f.config.path));
    EXPECT_EQ(done.error().proof, last_was_sync ? Proof::kUnknown : walk.write_proof)
        << "step " << n << " of " << log;
    ASSERT_TRUE(f.database->trouble());
    EXPECT_EQ(f.database->trouble()->code, walk.code);
    const std::string after_crash = CrashCopy(f.config.path).first("SELECT sum(id) FROM t");
    if (done.error().proof == Proof::kDidNotHappen) {
      EXPECT_EQ(after_crash, "1") << "step " << n << ": it said that it had not happened";
    } else {
      EXPECT_THAT(after_crash, ::testing::AnyOf("1", "3")) << "step " << n;
    }
    EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 1) << "readers see the last good commit";

    EXPECT_FALSE(f.run("INSERT INTO t VALUES (4, NULL)")) << "the cause is still there";
    EXPECT_TRUE(f.database->trouble());
    disk.heal();
    const Result<Done> again = f.run("INSERT INTO t VALUES (8, NULL)");
    EXPECT_TRUE(again) << "and now it works again: " << again.error().message;
    EXPECT_FALSE(f.database->trouble());
    EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 9);
    EXPECT_EQ(CrashCopy(f.config.path).first("SELECT sum(id) FROM t"), "9");
    EXPECT_EQ(CrashCopy(f.config.path).first("PRAGMA integrity_check"), "ok");
  }
  // Header and page of each of four pages, then the fsync.
  EXPECT_GE(steps, 5);
  EXPECT_TRUE(last_was_sync) << "the walk has reached the commit's fsync";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, WalkedFault,
    ::testing::Combine(::testing::Values(Walk{"DiskFull",
                                              {SQLITE_FULL, SQLITE_IOERR_FSYNC, ENOSPC},
                                              ErrorCode::kFull,
                                              Proof::kDidNotHappen},
                                         Walk{"QuotaReached",
                                              {SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, EDQUOT},
                                              ErrorCode::kFull,
                                              Proof::kDidNotHappen},
                                         Walk{"ReadOnly",
                                              {SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, EROFS},
                                              ErrorCode::kReadOnly,
                                              Proof::kDidNotHappen},
                                         Walk{"DiskError",
                                              {SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, EIO},
                                              ErrorCode::kIo,
                                              Proof::kUnknown}),
                       ::testing::Bool()),
    [](const auto& one) {
      return std::string(std::get<0>(one.param).name) + (std::get<1>(one.param) ? "InANewLog" : "");
    });

TEST(FullDisk, FailsWritesWithoutHarmAtEveryFillLevelUntilThereIsRoom) {
  const SmallDisk disk("size=2m");
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  SqliteConfig config;
  config.path = disk.file();
  const Fixture f(config);
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)"));
  ASSERT_TRUE(f.run("INSERT INTO t VALUES (1, NULL)"));
  int refused = 0;
  for (int pages = 0;; ++pages) {
    ASSERT_LT(pages, 50);
    disk.fill_up_to(pages);
    const Result<Done> done = f.run("INSERT INTO t VALUES (2, randomblob(20000))");
    if (done) break;
    ++refused;
    expect_refused(done, ErrorCode::kFull, disk.file());
    ASSERT_TRUE(f.database->trouble());
    EXPECT_EQ(f.database->trouble()->code, ErrorCode::kFull);
    EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 1) << "reading goes on";
    EXPECT_EQ(CrashCopy(f.config.path).first("SELECT sum(id) FROM t"), "1");
  }
  // What a refused write has put into the log stays allocated, so each level adds to the one
  // before.
  EXPECT_GE(refused, 2);
  EXPECT_FALSE(f.database->trouble());
  disk.fill_up_to(0);
  expect_refused(f.run("INSERT INTO t VALUES (4, randomblob(20000))"), ErrorCode::kFull,
                 disk.file());
  disk.make_room();
  EXPECT_TRUE(f.run("INSERT INTO t VALUES (8, randomblob(20000))")) << "and now it works again";
  EXPECT_FALSE(f.database->trouble());
  EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 11);
}

TEST(FullDisk, LetsNoDatabaseBeCreatedAndSaysWhy) {
  const SmallDisk disk("size=1m");
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  disk.fill_up_to(0);
  expect_refused(open_only(disk.file()), ErrorCode::kFull, disk.file());
  EXPECT_TRUE(lock_file(disk.file())) << "the lock needs no room";
  disk.make_room();
  EXPECT_TRUE(open_only(disk.file())) << "and now it works again";
}

TEST(FullDisk, IsAlsoALimitOnTheFilesSize) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = std::filesystem::file_size(f.config.path + "-wal") + 5000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<Done> done = f.run("INSERT INTO t VALUES (1, randomblob(20000))");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  expect_refused(done, ErrorCode::kFull, f.config.path);
  EXPECT_TRUE(f.run("INSERT INTO t VALUES (2, randomblob(20000))")) << "and now it works again";
  EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 2);
}

TEST(Checkpoint, ThatFailsLosesNothingAndIsMadeUpFor) {
  FaultyDisk disk;
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)"));
  disk.fail_from(1, {SQLITE_FULL, SQLITE_IOERR_FSYNC, ENOSPC, true});
  // Each of 2100 pages: the second one reaches the 4000 at which the log is to be copied.
  const std::string update = "INSERT OR REPLACE INTO t VALUES (1, randomblob(2100 * 4096))";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.run(update)) << "the log can be written";
  EXPECT_TRUE(disk.fired());
  EXPECT_FALSE(f.database->trouble());
  common::Gauge& pages = f.metrics->gauge("db_wal_pages", "");
  EXPECT_GT(pages.value(), 6300);
  EXPECT_EQ(CrashCopy(f.config.path).first("SELECT sum(id) FROM t"), "1");
  disk.heal();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.run(update));
  EXPECT_LT(pages.value(), 6400) << "and now it works again";
  EXPECT_EQ(CrashCopy(f.config.path).first("PRAGMA integrity_check"), "ok");
}

TEST(Damage, IsReportedAsCorruptAndNotAsAnAnswer) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)"));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(f.run("INSERT INTO t (b) VALUES (randomblob(3000))"));
  f.database->stop();
  {
    std::fstream file(f.config.path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string zeros(4096, '\0');
    file.seekp(4096);  // the table's root page
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }
  const Result<Done> done = read_sqlite_once(f.config.path, [](Session& session) -> Result<Done> {
    const Result<Rows> rows = session.query("SELECT count(*) FROM t");
    if (!rows) return fail(rows.error());
    return Done{};
  });
  expect_refused(done, ErrorCode::kCorrupt, f.config.path);
}

/// The pid that a refusal names, 0 when it names none.
pid_t named_pid(const Error& error) {
  const std::size_t at = error.message.find("process ");
  return at == std::string::npos ? 0 : std::atoi(error.message.c_str() + at + 8);
}

TEST(FileLock, RefusesASecondHolderAndNamesTheFirst) {
  const TempDir dir;
  auto first = lock_file(dir.file());
  ASSERT_TRUE(first) << first.error().message;
  const auto second = lock_file(dir.file());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_EQ(named_pid(second.error()), getpid());
  EXPECT_THAT(second.error().message, HasSubstr(dir.file()));
  EXPECT_TRUE(lock_file(dir.file("other.db"))) << "another file has its own lock";
  first->reset();
  EXPECT_TRUE(lock_file(dir.file())) << "and now it works again";
}

TEST(FileLock, IsOnePerFileHoweverTheFileIsNamed) {
  const TempDir dir;
  ASSERT_TRUE(open_only(dir.file()));
  std::filesystem::create_symlink(dir.file(), dir.file("link.db"));
  const auto first = lock_file(dir.file("link.db"));
  ASSERT_TRUE(first);
  for (const std::string& name : {dir.file(), dir.file("link.db"), dir.file("./test.db")}) {
    const auto second = lock_file(name);
    ASSERT_FALSE(second) << name;
    EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  }
}

TEST(FileLock, OfAKilledProcessIsFreeAlthoughItsFileStays) {
  const TempDir dir;
  int ready[2] = {-1, -1};
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = lock_file(dir.file());
    const char answer = lock ? 'y' : 'n';
    if (write(ready[1], &answer, 1) == 1) pause();
    _exit(1);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto refused = lock_file(dir.file());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(named_pid(refused.error()), child);

  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(dir.file() + ".lock"));
  const auto mine = lock_file(dir.file());
  ASSERT_TRUE(mine) << mine.error().message;
  const auto second = lock_file(dir.file());
  ASSERT_FALSE(second);
  EXPECT_EQ(named_pid(second.error()), getpid()) << "not the dead one";
  close(ready[0]);
  close(ready[1]);
}

TEST(FileLock, MindsNoNonsenseInALeftoverFile) {
  const TempDir dir;
  {
    std::ofstream(dir.file() + ".lock")
        << "123456789012345678901234567890 and more, by somebody else";
  }
  const auto mine = lock_file(dir.file());
  ASSERT_TRUE(mine);
  const auto second = lock_file(dir.file());
  ASSERT_FALSE(second);
  EXPECT_EQ(named_pid(second.error()), getpid());
}

TEST(FileLock, NeedsTheFolder) {
  const TempDir dir;
  const auto lock = lock_file(dir.file("no/such.db"));
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::kNotFound);
}

Result<Done> sum_once(const std::string& path, std::int64_t& sum) {
  return read_sqlite_once(path, [&](Session& session) -> Result<Done> {
    const Result<Rows> rows = session.query("SELECT sum(id) FROM t");
    if (!rows) return fail(rows.error());
    sum = rows->front().integer(0);
    return Done{};
  });
}

TEST(ReadOnce, SeesWhatIsOnlyInTheLogOfARunningServerAndChangesNothing) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  std::int64_t sum = 0;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(f.run("INSERT INTO t VALUES (" + std::to_string(i) + ")"));
    const auto log_size = std::filesystem::file_size(f.config.path + "-wal");
    ASSERT_TRUE(sum_once(f.config.path, sum));
    EXPECT_EQ(sum, i * (i + 1) / 2);
    EXPECT_EQ(std::filesystem::file_size(f.config.path + "-wal"), log_size);
  }
  const Result<Done> snapshot =
      read_sqlite_once(f.config.path, [&](Session& session) -> Result<Done> {
        EXPECT_EQ(session.query("SELECT count(*) FROM t")->front().integer(0), 3);
        EXPECT_TRUE(f.run("INSERT INTO t VALUES (9)")) << "the server goes on";
        EXPECT_EQ(session.query("SELECT count(*) FROM t")->front().integer(0), 3);
        return Done{};
      });
  EXPECT_TRUE(snapshot);
}

TEST(ReadOnce, SeesWhatAKilledServerLeftInItsLog) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  ASSERT_TRUE(f.run("INSERT INTO t VALUES (5)"));
  const CrashCopy copy(f.config.path);
  ASSERT_GT(std::filesystem::file_size(copy.path() + "-wal"), 0U);
  std::int64_t sum = 0;
  const Result<Done> done = sum_once(copy.path(), sum);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(sum, 5);
  EXPECT_GT(std::filesystem::file_size(copy.path() + "-wal"), 0U) << "evidence stays as it is";
}

TEST(ReadOnce, WorksOnAFileThatWasClosedInOrder) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE t (id INTEGER PRIMARY KEY)"));
  ASSERT_TRUE(f.run("INSERT INTO t VALUES (5)"));
  f.database->stop();
  std::int64_t sum = 0;
  ASSERT_TRUE(sum_once(f.config.path, sum));
  EXPECT_EQ(sum, 5);
}

TEST(ReadOnce, CreatesNothingAndWritesNothing) {
  const TempDir dir;
  std::int64_t sum = 0;
  expect_refused(sum_once(dir.file(), sum), ErrorCode::kNotFound, dir.file());
  EXPECT_FALSE(std::filesystem::exists(dir.file()));
  ASSERT_TRUE(open_only(dir.file()));
  const Result<Done> done = read_sqlite_once(dir.file(), [](Session& session) -> Result<Done> {
    EXPECT_FALSE(session.execute("CREATE TABLE t (id INTEGER)"));
    return Done{};
  });
  expect_refused(done, ErrorCode::kInternal, "writes, inside a read");
}

}  // namespace
}  // namespace doorbuster::db

#include "db/database.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "common/loop.hpp"
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
using testing::Arrival;
using testing::CrashCopy;
using ::testing::ElementsAre;
using testing::FaultyDisk;
using testing::Fixture;
using ::testing::HasSubstr;
using testing::RawConnection;
using ::testing::StartsWith;

constexpr const char* kTable =
    "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE, small INTEGER CHECK (small < 10))";
constexpr const char* kInsert = "INSERT INTO t (id, name) VALUES ($1, $2)";

Result<Done> insert(Session& session, std::int64_t id, std::string_view name) {
  const Result<std::int64_t> done = session.execute(kInsert, {id, name});
  if (!done) return fail(done.error());
  return Done{};
}

/// Keeps one of the database's threads inside a call until it is let go.
class Blocker {
 public:
  Database::Work work() {
    return [this](Session&) -> Result<Done> {
      entered_.set_value();
      go_.get_future().wait();
      return Done{};
    };
  }
  void wait_until_inside() { entered_.get_future().wait(); }
  void let_go() { go_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> go_;
};

TEST(Open, CreatesAFileWithDurableCommitsAndForeignKeys) {
  const Fixture f;
  std::vector<std::string> seen;
  const Result<Done> done = f.write([&](Session& session) -> Result<Done> {
    for (const char* pragma : {"journal_mode", "synchronous", "foreign_keys", "page_size"}) {
      const Result<Rows> rows = session.query("PRAGMA " + std::string(pragma));
      if (!rows) return fail(rows.error());
      const Row& row = rows->front();
      seen.push_back(pragma == std::string("journal_mode") ? row.text(0)
                                                           : std::to_string(row.integer(0)));
    }
    return Done{};
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(seen, ElementsAre("wal", "2", "1", "4096"));
}

TEST(Open, WantsOneToSixteenReadersAndRoomForAtLeastOneCall) {
  for (const auto& [readers, queued, good] :
       {std::tuple(0, 1, false), std::tuple(1, 1, true), std::tuple(16, 1, true),
        std::tuple(17, 1, false), std::tuple(1, 0, false)}) {
    const testing::TempDir dir;
    const common::SystemClock clock;
    const auto metrics = common::make_metrics();
    SqliteConfig config;
    config.path = dir.file();
    config.readers = static_cast<std::size_t>(readers);
    config.max_queued = static_cast<std::size_t>(queued);
    const auto opened = open_sqlite(config, clock, *metrics);
    EXPECT_EQ(opened.has_value(), good) << readers << " " << queued;
    if (!opened) {
      EXPECT_EQ(opened.error().code, ErrorCode::kInvalid);
    }
  }
}

TEST(Open, TakesSpecialNamesOfSqliteAsFileNames) {
  for (const char* name : {":memory:", "file:x?mode=memory"}) {
    const testing::TempDir dir;
    const common::SystemClock clock;
    const auto metrics = common::make_metrics();
    SqliteConfig config;
    config.path = dir.file(name);
    const auto opened = open_sqlite(config, clock, *metrics);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE(std::filesystem::exists(dir.file(name)));
  }
}

TEST(Write, IsVisibleToEveryLaterReadAndSurvivesReopening) {
  Fixture f;
  ASSERT_TRUE(f.run(kTable));
  for (int i = 1; i <= 20; ++i) {
    ASSERT_TRUE(f.run("INSERT INTO t (id) VALUES (" + std::to_string(i) + ")"));
    // Every reader, each of which has its own connection.
    EXPECT_EQ(f.number("SELECT count(*) FROM t"), i);
    EXPECT_EQ(f.number("SELECT count(*) FROM t"), i);
  }
  f.reopen();
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 20);
}

TEST(Write, IsInTheFilesAndSyncedBeforeItIsAnswered) {
  FaultyDisk disk;
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  for (int i = 1; i <= 3; ++i) {
    static_cast<void>(disk.take_log_steps());
    ASSERT_TRUE(f.run("INSERT INTO t (id) VALUES (" + std::to_string(i) + ")"));
    const std::string steps = disk.take_log_steps();
    EXPECT_THAT(steps, StartsWith("w"));
    EXPECT_THAT(steps, ::testing::EndsWith("s")) << "nothing may be written after the last fsync";
    EXPECT_EQ(CrashCopy(f.config.path).first("SELECT count(*) FROM t"), std::to_string(i));
  }
}

TEST(Write, LeavesNothingWhenItsWorkReturnsAnError) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    EXPECT_TRUE(insert(session, 1, "a"));
    return fail(ErrorCode::kNotFound, "the work's own reason");
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(done.error().message, "the work's own reason");
  EXPECT_EQ(done.error().proof, Proof::kDidNotHappen);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0);
  EXPECT_FALSE(f.database->trouble()) << "the database is fine";
}

TEST(Write, SeesItsOwnChangesBeforeTheCommit) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  const Result<Done> done = f.write([&](Session& session) -> Result<Done> {
    EXPECT_TRUE(insert(session, 1, "a"));
    EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0) << "nobody else may";
    const Result<Rows> rows = session.query("SELECT name FROM t WHERE id = $1", {std::int64_t{1}});
    EXPECT_EQ(rows->front().text(0), "a");
    return Done{};
  });
  EXPECT_TRUE(done);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 1);
}

TEST(Write, GoesOnAfterAStatementThatBreaksAConstraint) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  ASSERT_TRUE(f.run("CREATE TABLE child (t INTEGER NOT NULL REFERENCES t (id))"));
  ASSERT_TRUE(f.run("INSERT INTO t (id, name) VALUES (1, 'a')"));
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    EXPECT_TRUE(insert(session, 2, "b"));
    for (const char* sql :
         {"INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id, name) VALUES (3, 'a')",
          "INSERT INTO t (id, small) VALUES (3, 10)", "INSERT INTO child VALUES (NULL)",
          "INSERT INTO child VALUES (99)"}) {
      const Result<std::int64_t> refused = session.execute(sql);
      EXPECT_FALSE(refused) << sql;
      EXPECT_EQ(refused.error().code, ErrorCode::kConflict) << sql;
      EXPECT_THAT(refused.error().message, HasSubstr("constraint failed"));
    }
    // Of a statement with several rows, the good ones go with the bad one.
    const Result<std::int64_t> half =
        session.execute("INSERT INTO t (id) SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 1");
    EXPECT_EQ(half.error().code, ErrorCode::kConflict);
    EXPECT_TRUE(insert(session, 5, "c"));
    return Done{};
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 3);
  EXPECT_EQ(f.number("SELECT sum(id) FROM t"), 8);
}

TEST(Write, EndsWithAConstraintThatAsksForARollback) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  ASSERT_TRUE(f.run("INSERT INTO t (id) VALUES (1)"));
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    EXPECT_TRUE(insert(session, 2, "b"));
    EXPECT_FALSE(session.execute("INSERT OR ROLLBACK INTO t (id) VALUES (1)"));
    EXPECT_FALSE(insert(session, 3, "c")) << "there is no transaction any more";
    return Done{};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kConflict);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 1);
}

TEST(Write, IsNotCommittedAfterAnyOtherErrorEvenIfItsWorkGoesOn) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    EXPECT_TRUE(insert(session, 1, "a"));
    const Result<std::int64_t> wrong = session.execute("INSERT INTO nowhere VALUES (1)");
    EXPECT_EQ(wrong.error().code, ErrorCode::kInternal);
    EXPECT_THAT(wrong.error().message, HasSubstr("no such table: nowhere"));
    const Result<Done> next = insert(session, 2, "b");
    EXPECT_EQ(next.error().message, wrong.error().message);
    const Result<Rows> rows = session.query("SELECT 1");
    EXPECT_EQ(rows.error().message, wrong.error().message);
    return Done{};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInternal);
  EXPECT_EQ(done.error().proof, Proof::kDidNotHappen);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0);
  EXPECT_FALSE(f.database->trouble()) << "a bug in the SQL is no trouble of the file";
  EXPECT_TRUE(f.run("INSERT INTO t (id) VALUES (1)")) << "and now it works again";
}

TEST(Write, DidNotHappenWhenItsCommitBreaksADeferredConstraint) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  ASSERT_TRUE(
      f.run("CREATE TABLE child (t INTEGER REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)"));
  const Result<Done> done = f.run("INSERT INTO child VALUES (7)");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kConflict);
  EXPECT_EQ(done.error().proof, Proof::kDidNotHappen);
  EXPECT_FALSE(f.database->trouble());
  EXPECT_EQ(f.number("SELECT count(*) FROM child"), 0);
  EXPECT_TRUE(f.run("INSERT INTO child VALUES (NULL)")) << "and now it works again";
}

TEST(Read, SeesOneSnapshotFromItsFirstStatementToItsLast) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  ASSERT_TRUE(f.run("INSERT INTO t (id) VALUES (1)"));
  const Result<Done> done = f.read([&](Session& session) -> Result<Done> {
    EXPECT_EQ(session.query("SELECT count(*) FROM t")->front().integer(0), 1);
    EXPECT_TRUE(f.run("INSERT INTO t (id) VALUES (2)"));
    EXPECT_EQ(session.query("SELECT count(*) FROM t")->front().integer(0), 1);
    EXPECT_EQ(f.number("SELECT count(*) FROM t"), 2) << "the other reader begins later";
    return Done{};
  });
  EXPECT_TRUE(done);
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 2);
}

TEST(Read, HoldsNoSnapshotOnceItHasAnswered) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0);
  EXPECT_TRUE(f.read([](Session& session) -> Result<Done> {
    EXPECT_TRUE(session.query("SELECT * FROM t"));
    return Done{};
  }));
  const Result<Done> refused = f.read([](Session& session) -> Result<Done> {
    EXPECT_TRUE(session.query("SELECT * FROM t"));
    return fail(ErrorCode::kNotFound, "the work's own reason");
  });
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  // Busy (the first column) as long as anybody reads.
  RawConnection other(f.config.path);
  EXPECT_EQ(other.first("PRAGMA wal_checkpoint(TRUNCATE)"), "0|0|0");
}

TEST(Read, CannotWrite) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  const Result<Done> done = f.read([](Session& session) -> Result<Done> {
    const Result<Done> wrong = insert(session, 1, "a");
    EXPECT_EQ(wrong.error().code, ErrorCode::kInternal);
    return Done{};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInternal);
  EXPECT_THAT(done.error().message, HasSubstr("a bug: this SQL writes, inside a read: INSERT"));
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 0);
}

TEST(Queue, StartsAWaitingRushWriteBeforeAWaitingRestOne) {
  const Fixture f;
  Blocker blocker;
  std::vector<std::string> order;  // touched by the writer's thread, read after the last answer
  std::vector<Arrival> arrivals(5);
  const auto note = [&](const char* name) -> Database::Work {
    return [&order, name](Session&) -> Result<Done> {
      order.emplace_back(name);
      return Done{};
    };
  };
  f.database->submit_write(Priority::kRest, blocker.work(), arrivals[0].answer());
  blocker.wait_until_inside();
  f.database->submit_write(Priority::kRest, note("rest 1"), arrivals[1].answer());
  f.database->submit_write(Priority::kRest, note("rest 2"), arrivals[2].answer());
  f.database->submit_write(Priority::kRush, note("rush 1"), arrivals[3].answer());
  f.database->submit_write(Priority::kRush, note("rush 2"), arrivals[4].answer());
  blocker.let_go();
  for (Arrival& one : arrivals) EXPECT_TRUE(one.get());
  EXPECT_THAT(order, ElementsAre("rush 1", "rush 2", "rest 1", "rest 2"));
}

TEST(Queue, RefusesAtItsLimitAtOnceAndEachLaneHasItsOwn) {
  SqliteConfig config;
  config.readers = 1;
  config.max_queued = 2;
  const Fixture f(config);
  const Database::Work nothing = [](Session&) -> Result<Done> { return Done{}; };
  Blocker writer;
  Blocker reader;
  std::vector<Arrival> arrivals(8);
  f.database->submit_write(Priority::kRush, writer.work(), arrivals[0].answer());
  f.database->submit_read(reader.work(), arrivals[1].answer());
  writer.wait_until_inside();
  reader.wait_until_inside();
  common::Gauge& rush = f.metrics->gauge("db_queue_depth", "", {{"lane", "rush"}});

  for (int lane = 0; lane < 3; ++lane) {
    const auto submit = [&](Database::Answer answer) {
      if (lane == 0) f.database->submit_write(Priority::kRush, nothing, std::move(answer));
      if (lane == 1) f.database->submit_write(Priority::kRest, nothing, std::move(answer));
      if (lane == 2) f.database->submit_read(nothing, std::move(answer));
    };
    submit(arrivals[static_cast<std::size_t>(2 + lane * 2)].answer());
    submit(arrivals[static_cast<std::size_t>(3 + lane * 2)].answer());
    std::optional<Error> refusal;  // set inside the call, by this thread
    submit([&](Result<Done> done) { refusal = done.error(); });
    ASSERT_TRUE(refusal) << lane;
    EXPECT_EQ(refusal->code, ErrorCode::kBusy);
    EXPECT_EQ(refusal->proof, Proof::kDidNotHappen);
    EXPECT_THAT(refusal->message, HasSubstr("2 calls wait for the database already"));
  }
  EXPECT_EQ(rush.value(), 2);
  EXPECT_FALSE(f.database->trouble()) << "a full queue says nothing about the file";
  writer.let_go();
  reader.let_go();
  for (Arrival& one : arrivals) EXPECT_TRUE(one.get());
  EXPECT_EQ(rush.value(), 0);
  EXPECT_TRUE(f.write(nothing, Priority::kRush)) << "and now it works again";
}

TEST(Stop, FinishesWhatIsQueuedThenRefuses) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  Blocker blocker;
  std::vector<Arrival> arrivals(4);
  f.database->submit_write(Priority::kRest, blocker.work(), arrivals[0].answer());
  blocker.wait_until_inside();
  for (int i = 1; i <= 3; ++i) {
    f.database->submit_write(
        i == 2 ? Priority::kRush : Priority::kRest,
        [i](Session& session) { return insert(session, i, std::to_string(i)); },
        arrivals[static_cast<std::size_t>(i)].answer());
  }
  std::thread stopping([&] { f.database->stop(); });
  // Refusals show that stop() has begun; nothing before them may be lost.
  for (bool refused = false; !refused;) {
    const Result<Done> done = f.read([](Session&) -> Result<Done> { return Done{}; });
    refused = !done;
    if (refused) {
      EXPECT_EQ(done.error().code, ErrorCode::kUnavailable);
    }
  }
  blocker.let_go();
  stopping.join();
  for (Arrival& one : arrivals) EXPECT_TRUE(one.get());

  const Result<Done> late = f.run("INSERT INTO t (id) VALUES (9)");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  f.database->stop();  // again: nothing happens
  EXPECT_FALSE(std::filesystem::exists(f.config.path + "-wal"))
      << "closed in order, the log is empty";
  EXPECT_EQ(RawConnection(f.config.path).first("SELECT count(*), sum(id) FROM t"), "3|6");
}

TEST(Coroutines, AnswerWithTheWorksValueOnTheExecutorThatAsked) {
  const Fixture f;
  const std::unique_ptr<common::Loop> loop = common::make_loop(f.clock, "test");
  std::promise<void> ended;
  const auto story = [](const Fixture& fixture, common::Loop& home,
                        std::promise<void>& end) -> common::Task<void> {
    std::function<Result<std::string>(Session&)> work =
        [](Session& session) -> Result<std::string> {
      if (const auto made = session.execute(kTable); !made) return fail(made.error());
      if (const auto made = insert(session, 1, "a"); !made) return fail(made.error());
      return std::string("written");
    };
    const Result<std::string> written =
        co_await fixture.database->write<std::string>(home, Priority::kRush, std::move(work));
    EXPECT_EQ(written.value(), "written");
    EXPECT_TRUE(home.is_current());

    std::function<Result<std::int64_t>(Session&)> count =
        [](Session& session) -> Result<std::int64_t> {
      return session.query("SELECT count(*) FROM t")->front().integer(0);
    };
    const Result<std::int64_t> counted =
        co_await fixture.database->read<std::int64_t>(home, std::move(count));
    EXPECT_EQ(counted.value(), 1);
    EXPECT_TRUE(home.is_current());

    std::function<Result<std::string>(Session&)> refusal = [](Session&) -> Result<std::string> {
      return fail(ErrorCode::kConflict, "no");
    };
    const Result<std::string> refused =
        co_await fixture.database->write<std::string>(home, Priority::kRest, std::move(refusal));
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    end.set_value();
  };
  loop->post([&] { common::start(story(f, *loop, ended)); });
  ended.get_future().wait();
  loop->stop();
}

TEST(Work, IsReleasedBeforeItsAnswerRuns) {
  const Fixture f;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  std::promise<bool> released;
  f.database->submit_write(
      Priority::kRest, [held = std::move(held)](Session&) -> Result<Done> { return Done{}; },
      [&](Result<Done>) { released.set_value(watched.expired()); });
  EXPECT_TRUE(released.get_future().get());
  f.database->stop();
}

TEST(Values, ComeBackAsTheyWereStored) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE v (n INTEGER, t TEXT, b BLOB)"));
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::string text("\xEC\x84\xA0\xEC\xB0\xA9\xEC\x88\x9C 'x'");
  common::GrantId id;
  id.bytes = {0, 1, 2, 3, 0, 255, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0};
  const std::string_view no_text;                // without an address
  const std::span<const std::uint8_t> no_bytes;  // likewise

  const Result<Done> done = f.write([&](Session& session) -> Result<Done> {
    const char* insert_all = "INSERT INTO v VALUES ($1, $2, $3)";
    EXPECT_EQ(session.execute(insert_all, {kLeast, text, param(id)}).value(), 1);
    EXPECT_EQ(session.execute(insert_all, {kMost, no_text, no_bytes}).value(), 1);
    EXPECT_EQ(session.execute(insert_all, {nullptr, nullptr, nullptr}).value(), 1);
    return Done{};
  });
  ASSERT_TRUE(done);
  Rows rows;
  ASSERT_TRUE(f.read([&](Session& session) -> Result<Done> {
    rows = session.query("SELECT n, t, b FROM v ORDER BY rowid").value();
    return Done{};
  }));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].size(), 3U);
  EXPECT_EQ(rows[0].integer(0), kLeast);
  EXPECT_EQ(rows[0].text(1), text);
  EXPECT_EQ(rows[0].grant_id(2), id);
  EXPECT_EQ(rows[0].bytes(2).size(), 16U);
  EXPECT_EQ(rows[1].integer(0), kMost);
  EXPECT_FALSE(rows[1].is_null(1)) << "empty is not NULL";
  EXPECT_EQ(rows[1].text(1), "");
  EXPECT_FALSE(rows[1].is_null(2));
  EXPECT_TRUE(rows[1].bytes(2).empty());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(rows[2].is_null(i));
}

TEST(Values, OfATypeThatNoTableHasAreABug) {
  const Fixture f;
  const Result<Done> done = f.read([](Session& session) -> Result<Done> {
    const Result<Rows> rows = session.query("SELECT 0.5");
    if (!rows) return fail(rows.error());
    return Done{};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInternal);
  EXPECT_THAT(done.error().message, HasSubstr("floating-point"));
}

TEST(ValuesDeathTest, AskedForWithAnotherTypeThanTheyHaveStopTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Row row({Value{nullptr}, Value{std::int64_t{1}}, Value{std::string("a")},
                 Value{std::vector<std::uint8_t>(15)}});
  EXPECT_DEATH(static_cast<void>(row.integer(0)), "another type");
  EXPECT_DEATH(static_cast<void>(row.text(1)), "another type");
  EXPECT_DEATH(static_cast<void>(row.bytes(2)), "another type");
  EXPECT_DEATH(static_cast<void>(row.grant_id(3)), "16 bytes");
  EXPECT_DEATH(static_cast<void>(row.integer(4)), "no such column");
}

TEST(Statements, SayHowManyRowsTheyChanged) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    EXPECT_EQ(session.execute("INSERT INTO t (id) SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
                  .value(),
              3);
    EXPECT_EQ(session.execute("INSERT INTO t (id) VALUES (1) ON CONFLICT DO NOTHING").value(), 0);
    EXPECT_EQ(session.execute("UPDATE t SET small = 1 WHERE id < 3").value(), 2);
    EXPECT_EQ(session.execute("CREATE TABLE u (x)").value(), 0) << "not the UPDATE's number again";
    EXPECT_EQ(session.execute("SELECT id FROM t").value(), 0);
    EXPECT_EQ(session.execute("DELETE FROM t WHERE id = 7").value(), 0);
    const Result<Rows> rows =
        session.query("UPDATE t SET small = 2 WHERE id = 1 RETURNING id, small");
    EXPECT_EQ(rows->size(), 1U);
    EXPECT_EQ(rows->front().integer(1), 2);
    EXPECT_EQ(session.execute("DELETE FROM t").value(), 3);
    return Done{};
  });
  EXPECT_TRUE(done) << done.error().message;
}

TEST(Statements, MayNameAParameterTwice) {
  const Fixture f;
  Rows rows;
  ASSERT_TRUE(f.read([&](Session& session) -> Result<Done> {
    rows = session.query("SELECT $1, $2, $1", {std::int64_t{5}, std::string_view("x")}).value();
    return Done{};
  }));
  EXPECT_EQ(rows.front().integer(0), 5);
  EXPECT_EQ(rows.front().text(1), "x");
  EXPECT_EQ(rows.front().integer(2), 5);
}

TEST(Statements, ThatAreNotExactlyOneAreABug) {
  const Fixture f;
  for (const char* sql : {"", "-- nothing", "SELECT 1; SELECT 2"}) {
    const Result<Done> done = f.run(sql);
    ASSERT_FALSE(done) << sql;
    EXPECT_EQ(done.error().code, ErrorCode::kInternal);
    EXPECT_THAT(done.error().message, HasSubstr("is not exactly one statement"));
  }
  EXPECT_TRUE(f.run("SELECT 1; \n"));
  EXPECT_FALSE(f.run("SELECT \"text in double quotes\"")) << "a misspelt column is no string";
}

TEST(Statements, StayCorrectWhenThereAreMoreOfThemThanAreKept) {
  const Fixture f;
  const Result<Done> done = f.write([](Session& session) -> Result<Done> {
    for (int round = 0; round < 2; ++round) {
      for (std::int64_t i = 0; i < 1100; ++i) {
        const Result<Rows> rows =
            session.query("SELECT $1 + " + std::to_string(i), {std::int64_t{i}});
        if (!rows) return fail(rows.error());
        EXPECT_EQ(rows->front().integer(0), 2 * i);
      }
    }
    return Done{};
  });
  EXPECT_TRUE(done) << done.error().message;
}

TEST(Statements, FollowAChangeOfTheSchema) {
  const Fixture f;
  ASSERT_TRUE(f.run(kTable));
  ASSERT_TRUE(f.run("INSERT INTO t (id, name) VALUES (1, 'a')"));
  EXPECT_EQ(f.number("SELECT count(*) FROM t"), 1);
  ASSERT_TRUE(f.run("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 3"));
  std::int64_t more = 0;
  ASSERT_TRUE(f.read([&](Session& session) -> Result<Done> {
    more = session.query("SELECT * FROM t").value().front().integer(3);
    return Done{};
  }));
  EXPECT_EQ(more, 3);
}

TEST(StatementsDeathTest, WithOtherParametersThanTheyNameStopTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](std::string_view sql, std::vector<Param> params) {
    const Fixture f;
    f.remove_files();
    static_cast<void>(f.write([&](Session& session) -> Result<Done> {
      static_cast<void>(session.query(sql, std::span<const Param>(params)));
      return Done{};
    }));
  };
  const Param one = std::int64_t{1};
  EXPECT_DEATH(run("SELECT $1, $2", {one}), "as many parameters as it names");
  EXPECT_DEATH(run("SELECT $1", {one, one}), "as many parameters as it names");
  EXPECT_DEATH(run("SELECT $2, $1", {one, one}), "order of their first appearance");
  EXPECT_DEATH(run("SELECT ?", {one}), "order of their first appearance");
}

TEST(WorkDeathTest, ThatEndsItsOwnTransactionStopsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const Fixture f;
    f.remove_files();
    static_cast<void>(f.run("COMMIT"));
  };
  EXPECT_DEATH(run(), "work must not end its transaction");
}

TEST(Metrics, CountCommitsAndErrorsOfTheDatabase) {
  const Fixture f;
  common::Counter& commits = f.metrics->counter("db_commits_total", "");
  common::Counter& internal =
      f.metrics->counter("db_write_errors_total", "", {{"code", "INTERNAL"}});
  EXPECT_EQ(commits.value(), 0);
  ASSERT_TRUE(f.run(kTable));
  EXPECT_EQ(commits.value(), 1);
  EXPECT_FALSE(f.run("nonsense"));
  EXPECT_EQ(commits.value(), 1);
  EXPECT_EQ(internal.value(), 1);
  EXPECT_FALSE(f.write([](Session&) -> Result<Done> { return fail(ErrorCode::kInternal, "own"); }));
  EXPECT_EQ(internal.value(), 1) << "the work's refusals are not the database's errors";
  EXPECT_THAT(f.metrics->names(), ElementsAre("db_checkpoint_seconds", "db_commits_total",
                                              "db_queue_depth", "db_read_seconds", "db_wal_pages",
                                              "db_write_errors_total", "db_write_seconds"));
}

TEST(Log, IsCopiedIntoTheFileSoThatItStaysBounded) {
  const Fixture f;
  ASSERT_TRUE(f.run("CREATE TABLE big (id INTEGER PRIMARY KEY, b BLOB)"));
  ASSERT_TRUE(f.run("INSERT INTO big VALUES (1, NULL)"));
  common::Gauge& pages = f.metrics->gauge("db_wal_pages", "");
  // 2100 pages each, so that the second reaches the limit of 4000 and the third begins anew.
  double most = 0;
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(f.run("UPDATE big SET b = randomblob(2100 * 4096)"));
    most = std::max(most, pages.value());
  }
  EXPECT_GT(most, 4000);
  EXPECT_LT(most, 6400) << "a third write has been added to a log that was due";
}

TEST(Log, OfAReaderThatStaysGrowsAndShrinksAgainOnceItHasGone) {
  SqliteConfig config;
  config.busy_timeout = std::chrono::minutes{1};
  const Fixture f(config);
  ASSERT_TRUE(f.run("CREATE TABLE big (id INTEGER PRIMARY KEY, b BLOB)"));
  ASSERT_TRUE(f.run("INSERT INTO big VALUES (1, NULL)"));
  common::Gauge& pages = f.metrics->gauge("db_wal_pages", "");
  RawConnection verify(f.config.path);
  ASSERT_EQ(verify.run("BEGIN"), SQLITE_OK);
  ASSERT_EQ(verify.first("SELECT count(*) FROM big"), "1");
  const auto begun = std::chrono::steady_clock::now();
  // Far enough for the writer to insist; it may not wait for the reader as it would for a lock.
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(f.run("UPDATE big SET b = randomblob(2100 * 4096)"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds{50});
  EXPECT_GT(pages.value(), 16000);
  EXPECT_EQ(verify.first("SELECT b IS NULL FROM big"), "1") << "its snapshot is untouched";
  ASSERT_EQ(verify.run("COMMIT"), SQLITE_OK);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.run("UPDATE big SET b = randomblob(2100 * 4096)"));
  EXPECT_LT(pages.value(), 6400);
}

}  // namespace
}  // namespace doorbuster::db

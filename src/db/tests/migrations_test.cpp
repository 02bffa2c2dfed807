#include "db/migrations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "db/tests/support.hpp"

namespace doorbuster::db {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Result;
using ::testing::AllOf;
using testing::Fixture;
using ::testing::HasSubstr;
using testing::RawConnection;

constexpr std::int64_t kNow = 1'700'000'000'000'000;

constexpr std::string_view kFirst = "CREATE TABLE a (x INTEGER);\nINSERT INTO a VALUES (1);\n";
constexpr std::string_view kSecond = "ALTER TABLE a ADD COLUMN y INTEGER;\n";

const std::vector<Migration> kOne = {{1, "0001_a.sql", kFirst}};
const std::vector<Migration> kTwo = {{1, "0001_a.sql", kFirst}, {2, "0002_b.sql", kSecond}};

Result<MigrationStatus> bring_up(const Fixture& f, std::span<const Migration> steps,
                                 std::int64_t now_us = kNow) {
  MigrationStatus status;
  const Result<Done> done = f.write([&](Session& session) -> Result<Done> {
    const Result<MigrationStatus> migrated = migrate(session, steps, now_us);
    if (!migrated) return fail(migrated.error());
    status = *migrated;
    return Done{};
  });
  if (!done) return fail(done.error());
  return status;
}

Result<MigrationStatus> ask(const Fixture& f, std::span<const Migration> steps) {
  MigrationStatus status;
  const Result<Done> done = f.read([&](Session& session) -> Result<Done> {
    const Result<MigrationStatus> found = migration_status(session, steps);
    if (!found) return fail(found.error());
    status = *found;
    return Done{};
  });
  if (!done) return fail(done.error());
  return status;
}

void expect_status(const Result<MigrationStatus>& status, int applied, int known) {
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->applied, applied);
  EXPECT_EQ(status->known, known);
}

TEST(Embedded, StepsAreTheFilesByteForByte) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(DOORBUSTER_SOURCE_DIR "/migrations/sqlite")) {
    if (entry.path().extension() == ".sql") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const std::span<const Migration> steps = sqlite_migrations();
  ASSERT_FALSE(files.empty());
  ASSERT_EQ(steps.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(steps[i].version, static_cast<int>(i) + 1);
    EXPECT_EQ(steps[i].name, files[i].filename().string());
    std::ifstream in(files[i], std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(steps[i].sql, content);
  }
}

TEST(Embedded, StepsMakeTheWholeSchemaFromNothing) {
  const Fixture f;
  const int known = static_cast<int>(sqlite_migrations().size());
  expect_status(bring_up(f, sqlite_migrations()), known, known);
  for (const char* table : {"flash_sale", "flash_sale_order", "engine_shard", "outbox",
                            "idempotency_answer", "payment_attempt", "audit_log", "job_run"}) {
    EXPECT_EQ(f.number(std::string("SELECT count(*) FROM ") + table), 0) << table;
  }
  EXPECT_EQ(f.number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

TEST(Migrate, AppliesEveryStepToAnEmptyDatabaseAndNotesIt) {
  const Fixture f;
  expect_status(ask(f, kTwo), 0, 2);
  expect_status(bring_up(f, kTwo), 2, 2);
  expect_status(ask(f, kTwo), 2, 2);
  // printf 'ALTER TABLE a ADD COLUMN y INTEGER;\n' | sha256sum
  EXPECT_EQ(RawConnection(f.config.path).first("SELECT * FROM schema_migration WHERE version = 2"),
            "2|0002_b.sql|"
            "5fd694631a368bef480e2885beb52102d847aeef69303c24a2dfebc942998254"
            "|1700000000000000");
  EXPECT_EQ(f.number("SELECT count(y) + sum(x) FROM a"), 1);
}

TEST(Migrate, ChangesNothingWhenItIsCalledAgain) {
  const Fixture f;
  expect_status(bring_up(f, kTwo), 2, 2);
  expect_status(bring_up(f, kTwo, kNow + 1), 2, 2);
  EXPECT_EQ(f.number("SELECT count(*) FROM schema_migration"), 2);
  EXPECT_EQ(f.number("SELECT max(applied_at) FROM schema_migration"), kNow);
  EXPECT_EQ(f.number("SELECT count(*) FROM a"), 1);
}

TEST(Migrate, AppliesOnlyWhatAnOlderDatabaseLacks) {
  const Fixture f;
  expect_status(bring_up(f, kOne), 1, 1);
  expect_status(ask(f, kTwo), 1, 2);
  expect_status(bring_up(f, kTwo, kNow + 5), 2, 2);
  EXPECT_EQ(f.number("SELECT count(*) FROM a"), 1) << "the first step has run once";
  EXPECT_EQ(f.number("SELECT applied_at FROM schema_migration WHERE version = 1"), kNow);
  EXPECT_EQ(f.number("SELECT applied_at FROM schema_migration WHERE version = 2"), kNow + 5);
}

TEST(Migrate, RefusesADatabaseThatIsNewerThanTheProgram) {
  const Fixture f;
  expect_status(bring_up(f, kTwo), 2, 2);
  for (const Result<MigrationStatus>& refused : {bring_up(f, kOne), ask(f, kOne)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("at migration 2 (0002_b.sql)"), HasSubstr("knows only 1")));
  }
}

TEST(Migrate, RefusesAnAppliedStepWithAnotherChecksumAndNamesIt) {
  const Fixture f;
  expect_status(bring_up(f, kTwo), 2, 2);
  // One byte of white space is enough: nobody can tell which edits are harmless.
  const std::vector<Migration> edited = {
      {1, "0001_a.sql", kFirst}, {2, "0002_b.sql", "ALTER TABLE a ADD COLUMN y INTEGER; \n"}};
  for (const Result<MigrationStatus>& refused : {bring_up(f, edited), ask(f, edited)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message, HasSubstr("migration 2 (0002_b.sql)"));
  }
  expect_status(ask(f, kTwo), 2, 2);
}

TEST(Migrate, RefusesADatabaseInWhichAStepIsMissing) {
  const Fixture f;
  expect_status(bring_up(f, kTwo), 2, 2);
  ASSERT_TRUE(f.run("DELETE FROM schema_migration WHERE version = 1"));
  const Result<MigrationStatus> refused = bring_up(f, kTwo);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("lacks migration 1 (0001_a.sql)"));
}

TEST(Migrate, LeavesNothingOfARunInWhichOneStepFails) {
  const Fixture f;
  expect_status(bring_up(f, kOne), 1, 1);
  std::vector<Migration> broken = kTwo;
  broken.push_back({3, "0003_c.sql", "CREATE TABLE c (x);\nINSERT INTO missing VALUES (1);\n"});
  const Result<MigrationStatus> refused = bring_up(f, broken);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInternal);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("migration 3 (0003_c.sql)"), HasSubstr("no such table: missing")));
  expect_status(ask(f, kTwo), 1, 2);
  EXPECT_EQ(f.number("SELECT count(*) FROM sqlite_master WHERE name = 'c'"), 0);
  expect_status(bring_up(f, kTwo), 2, 2);  // and now it works again
}

TEST(Migrate, FindsTheEndsOfStatementsOutsideOfQuotesAndComments) {
  const Fixture f;
  const std::vector<Migration> steps = {{1, "0001_hard.sql",
                                         "-- a comment; with an end;\n"
                                         "/* and\n another;\n */\n"
                                         "CREATE TABLE \"a;\n\" (x TEXT); \t\n"
                                         "\n"
                                         "INSERT INTO \"a;\n\" VALUES ('it''s;\n -- here');\r\n"
                                         "CREATE TABLE b (x INTEGER -- why;\n"
                                         ");\n"
                                         "CREATE TRIGGER tr AFTER INSERT ON b BEGIN\n"
                                         "  INSERT INTO b SELECT new.x + 1 WHERE new.x < 1; END;\n"
                                         "INSERT INTO b VALUES (0) -- no end\n"
                                         "-- last\n"}};
  expect_status(bring_up(f, steps), 1, 1);
  EXPECT_EQ(RawConnection(f.config.path).first("SELECT x FROM \"a;\n\""), "it's;\n -- here");
  EXPECT_EQ(f.number("SELECT count(*) FROM b"), 2);
}

TEST(MigrateDeathTest, StopsTheProcessWhenTheProgramsOwnStepsHaveAGap) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const Fixture f;
    f.remove_files();
    const std::vector<Migration> gap = {{1, "0001_a.sql", kFirst}, {3, "0003_c.sql", kSecond}};
    static_cast<void>(bring_up(f, gap));
  };
  EXPECT_DEATH(run(), "no gaps");
}

}  // namespace
}  // namespace doorbuster::db

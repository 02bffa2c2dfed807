#include "db/idempotency.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/migrations.hpp"
#include "db/tests/support.hpp"

namespace doorbuster::db {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Instant;
using common::Result;

constexpr Instant kNow = common::from_micros(1'700'000'000'000'000);
constexpr std::chrono::microseconds kTick{1};
constexpr KeyUse kUse{.subject = "m42", .route = "POST /api/x/1", .key = "k", .body = "{\"a\":1}"};

struct Answers : testing::Fixture {
  Answers() {
    const Result<Done> done = write([](Session& session) -> Result<Done> {
      const Result<MigrationStatus> migrated = migrate(session, sqlite_migrations(), 0);
      if (!migrated) return fail(migrated.error());
      return Done{};
    });
    EXPECT_TRUE(done);
  }

  Result<Done> keep(const KeyUse& use, const KeptAnswer& answer, Instant now) const {
    return write([&](Session& session) { return keep_answer(session, use, answer, now); });
  }

  /// "200 body", "none", or the error's code.
  std::string find(const KeyUse& use, Instant now) const {
    std::string text;
    const Result<Done> done = read([&](Session& session) -> Result<Done> {
      const Result<std::optional<KeptAnswer>> found = find_answer(session, use, now);
      if (!found) return fail(found.error());
      text = *found ? std::to_string((*found)->status) + " " + (*found)->body : "none";
      return Done{};
    });
    return done ? text : std::string(common::to_string(done.error().code));
  }

  std::int64_t drop(Instant now, std::int64_t limit) const {
    std::int64_t dropped = -1;
    EXPECT_TRUE(write([&](Session& session) -> Result<Done> {
      const Result<std::int64_t> done = drop_old_answers(session, now, limit);
      if (!done) return fail(done.error());
      dropped = *done;
      return Done{};
    }));
    return dropped;
  }
};

TEST(Idempotency, GivesTheFirstAnswerAgain) {
  const Answers a;
  EXPECT_EQ(a.find(kUse, kNow), "none");
  ASSERT_TRUE(a.keep(kUse, {201, "{\"id\":7}"}, kNow));
  EXPECT_EQ(a.find(kUse, kNow), "201 {\"id\":7}");
  EXPECT_EQ(a.find(kUse, kNow + std::chrono::hours{1}), "201 {\"id\":7}");
}

TEST(Idempotency, RefusesTheKeyWithAnotherBody) {
  const Answers a;
  ASSERT_TRUE(a.keep(kUse, {201, "x"}, kNow));
  KeyUse other = kUse;
  for (const char* body : {"{\"a\":2}", "{\"a\":1} ", ""}) {
    other.body = body;
    EXPECT_EQ(a.find(other, kNow), "CONFLICT") << body;
  }
}

TEST(Idempotency, KeepsSubjectsRoutesAndKeysApart) {
  const Answers a;
  ASSERT_TRUE(a.keep(kUse, {201, "x"}, kNow));
  KeyUse other = kUse;
  other.subject = "m43";
  EXPECT_EQ(a.find(other, kNow), "none");
  EXPECT_TRUE(a.keep(other, {200, "other member"}, kNow));
  other = kUse;
  other.route = "POST /api/x/2";
  EXPECT_EQ(a.find(other, kNow), "none");
  EXPECT_TRUE(a.keep(other, {200, "other route"}, kNow));
  other = kUse;
  other.key = "K";
  EXPECT_EQ(a.find(other, kNow), "none") << "keys are compared byte by byte";
  EXPECT_TRUE(a.keep(other, {200, "other key"}, kNow));
  EXPECT_EQ(a.find(kUse, kNow), "201 x");
}

TEST(Idempotency, KeepsAnEmptyBodyOfRequestAndAnswer) {
  const Answers a;
  KeyUse use = kUse;
  use.body = {};
  ASSERT_TRUE(a.keep(use, {204, ""}, kNow));
  EXPECT_EQ(a.find(use, kNow), "204 ");
}

TEST(Idempotency, NeverKeepsAnAnswerThatAsksToComeBackLater) {
  const Answers a;
  for (const int status : {429, 500, 503, 504}) {
    EXPECT_TRUE(a.keep(kUse, {status, "busy"}, kNow));
    EXPECT_EQ(a.find(kUse, kNow), "none") << status;
  }
  EXPECT_TRUE(a.keep(kUse, {499, "final"}, kNow));
  EXPECT_EQ(a.find(kUse, kNow), "499 final");
}

TEST(Idempotency, KeepsRefusalsThatAreFinal) {
  const Answers a;
  for (const int status : {409, 428, 430}) {
    KeyUse use = kUse;
    const std::string key = std::to_string(status);
    use.key = key;
    EXPECT_TRUE(a.keep(use, {status, "no"}, kNow));
    EXPECT_EQ(a.find(use, kNow), key + " no");
  }
}

TEST(Idempotency, RefusesASecondAnswerSoThatItsTransactionIsUndone) {
  const Answers a;
  ASSERT_TRUE(a.keep(kUse, {201, "first"}, kNow));
  const Result<Done> second = a.write([](Session& session) -> Result<Done> {
    const Result<std::int64_t> worked = session.execute(
        "INSERT INTO job_run (job, started_at, finished_at, changed) VALUES ('x', 1, 1, 0)");
    EXPECT_TRUE(worked);
    return keep_answer(session, kUse, {201, "second"}, kNow + kTick);
  });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_EQ(a.find(kUse, kNow), "201 first");
  EXPECT_EQ(a.number("SELECT count(*) FROM job_run"), 0);
}

TEST(Idempotency, EndsAtTwentyFourHoursWhetherOrNotItWasCleanedUp) {
  const Answers a;
  ASSERT_TRUE(a.keep(kUse, {201, "first"}, kNow));
  const Instant end = kNow + kIdempotencyKept;
  KeyUse other = kUse;
  other.body = "other";
  EXPECT_EQ(a.find(kUse, end - kTick), "201 first");
  EXPECT_EQ(a.find(other, end - kTick), "CONFLICT");
  EXPECT_FALSE(a.keep(other, {201, "second"}, end - kTick));
  EXPECT_EQ(a.find(kUse, end), "none");
  EXPECT_EQ(a.find(other, end), "none");

  ASSERT_TRUE(a.keep(other, {200, "second"}, end)) << "the key is free again";
  EXPECT_EQ(a.find(other, end), "200 second");
  EXPECT_EQ(a.find(kUse, end), "CONFLICT");
  EXPECT_EQ(a.find(other, end + kIdempotencyKept - kTick), "200 second");
  EXPECT_EQ(a.find(other, end + kIdempotencyKept), "none");
}

TEST(Idempotency, SurvivesAClockThatStepsBack) {
  const Answers a;
  ASSERT_TRUE(a.keep(kUse, {201, "first"}, kNow));
  EXPECT_EQ(a.find(kUse, kNow - std::chrono::hours{1}), "201 first");
  EXPECT_FALSE(a.keep(kUse, {201, "second"}, kNow - std::chrono::hours{1}));
}

TEST(Cleanup, RemovesTheOldestFirstAndNeverMoreThanItsLimit) {
  const Answers a;
  for (int i = 0; i < 5; ++i) {
    KeyUse use = kUse;
    const std::string key = std::to_string(i);
    use.key = key;
    ASSERT_TRUE(a.keep(use, {200, "x"}, kNow + i * kTick));
  }
  const Instant end = kNow + kIdempotencyKept;
  EXPECT_EQ(a.drop(end - kTick, 10), 0);
  EXPECT_EQ(a.drop(end, 10), 1);
  EXPECT_EQ(a.drop(end + 3 * kTick, 2), 2);
  EXPECT_EQ(a.number("SELECT min(CAST(key AS INTEGER)) FROM idempotency_answer"), 3);
  EXPECT_EQ(a.drop(end + 3 * kTick, 2), 1);
  EXPECT_EQ(a.drop(end + 3 * kTick, 2), 0);
  EXPECT_EQ(a.number("SELECT count(*) FROM idempotency_answer"), 1);
}

}  // namespace
}  // namespace doorbuster::db

#include "db/idempotency.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <array>

namespace doorbuster::db {
namespace {

using common::Done;
using common::ErrorCode;
using common::fail;
using common::Instant;
using common::Result;
using common::to_micros;

using Digest = std::array<std::uint8_t, SHA256_DIGEST_LENGTH>;

Digest digest_of(std::string_view body) {
  Digest digest{};
  // The one-shot form takes unsigned characters, which may alias any bytes.
  SHA256(reinterpret_cast<const unsigned char*>(body.data()), body.size(), digest.data());
  return digest;
}

/// Answers from this instant or earlier are over, whether or not they have been removed yet.
std::int64_t newest_that_is_over(Instant now) { return to_micros(now - kIdempotencyKept); }

/// "Come back later" is not the answer to the question, so that the question may be asked again.
bool asks_to_come_back(int status) { return status == 429 || status >= 500; }

}  // namespace

Result<std::optional<KeptAnswer>> find_answer(Session& session, const KeyUse& use, Instant now) {
  const Result<Rows> rows = session.query(
      "SELECT body_hash, status, body FROM idempotency_answer "
      "WHERE subject = $1 AND route = $2 AND key = $3 AND created_at > $4",
      {use.subject, use.route, use.key, newest_that_is_over(now)});
  if (!rows) return fail(rows.error());
  if (rows->empty()) return std::optional<KeptAnswer>{};
  const Row& row = rows->front();
  const Digest digest = digest_of(use.body);
  if (!std::equal(digest.begin(), digest.end(), row.bytes(0).begin(), row.bytes(0).end())) {
    return fail(ErrorCode::kConflict, "the idempotency key was used with another body");
  }
  return std::optional{KeptAnswer{.status = static_cast<int>(row.integer(1)), .body = row.text(2)}};
}

Result<Done> keep_answer(Session& session, const KeyUse& use, const KeptAnswer& answer,
                         Instant now) {
  if (asks_to_come_back(answer.status)) return Done{};
  const Digest digest = digest_of(use.body);
  const Result<std::int64_t> kept = session.execute(
      "INSERT INTO idempotency_answer (subject, route, key, body_hash, status, body, created_at) "
      "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (subject, route, key) DO UPDATE SET "
      "body_hash = excluded.body_hash, status = excluded.status, body = excluded.body, "
      "created_at = excluded.created_at WHERE idempotency_answer.created_at <= $8",
      {use.subject, use.route, use.key, std::span<const std::uint8_t>(digest),
       std::int64_t{answer.status}, answer.body, to_micros(now), newest_that_is_over(now)});
  if (!kept) return fail(kept.error());
  if (*kept == 0) {
    return fail(ErrorCode::kConflict,
                "another request under this idempotency key has committed first");
  }
  return Done{};
}

Result<std::int64_t> drop_old_answers(Session& session, Instant now, std::int64_t limit) {
  DOORBUSTER_ENSURE(limit > 0, "SQLite reads a negative limit as none");
  return session.execute(
      "DELETE FROM idempotency_answer WHERE (subject, route, key) IN (SELECT subject, route, key "
      "FROM idempotency_answer WHERE created_at <= $1 ORDER BY created_at LIMIT $2)",
      {newest_that_is_over(now), limit});
}

}  // namespace doorbuster::db

#include "sim/store.hpp"

#include "db/migrations.hpp"

namespace doorbuster::sim {

using common::Done;
using common::fail;
using common::Result;

Store::Store() {
  auto opened = db::open_sqlite_in_memory();
  DOORBUSTER_ENSURE(opened.has_value(), "a database in memory opens");
  database_ = std::move(*opened);
  const Result<Done> migrated = write([](db::Session& session) -> Result<Done> {
    const auto done = db::migrate(session, db::sqlite_migrations(), 0);
    if (!done) return fail(done.error());
    return Done{};
  });
  DOORBUSTER_ENSURE(migrated.has_value(), "the schema can be made");
}

void Store::clear() {
  for (const char* table :
       {"refund", "payment_attempt", "simulated_charge", "flash_sale_order_history",
        "flash_sale_order", "flash_sale_item", "flash_sale", "engine_shard", "engine_lease",
        "engine_node", "outbox", "reclaim_mark", "dead_letter", "idempotency_answer", "audit_log",
        "job_run", "sqlite_sequence"}) {
    must(std::string("DELETE FROM ") + table);
  }
}

Result<Done> Store::write(const db::Database::Work& work) { return database_->write(work); }
Result<Done> Store::read(const db::Database::Work& work) { return database_->read(work); }

void Store::must(const std::string& sql) {
  const Result<Done> done = write([&](db::Session& session) -> Result<Done> {
    const Result<std::int64_t> changed = session.execute(sql);
    if (!changed) return fail(changed.error());
    return Done{};
  });
  DOORBUSTER_ENSURE(done.has_value(), "the simulation's own SQL is right");
}

db::Rows Store::rows(const std::string& sql) {
  db::Rows found;
  const Result<Done> done = read([&](db::Session& session) -> Result<Done> {
    Result<db::Rows> rows = session.query(sql);
    if (!rows) return fail(rows.error());
    found = std::move(*rows);
    return Done{};
  });
  DOORBUSTER_ENSURE(done.has_value(), "the simulation's own SQL is right");
  return found;
}

std::int64_t Store::number(const std::string& sql) { return rows(sql).front().integer(0); }

void NodeDatabase::submit_write(db::Priority, Work work, Answer answer) {
  link_.send<Done>([this, work = std::move(work)] { return store_.write(work); },
                   std::move(answer));
}

void NodeDatabase::submit_read(Work work, Answer answer) {
  link_.send<Done>([this, work = std::move(work)] { return store_.read(work); }, std::move(answer));
}

}  // namespace doorbuster::sim

#include "admin/audit.hpp"

namespace doorbuster::admin {

common::Result<common::Done> write_audit(db::Session& session, const Actor& actor,
                                         std::string_view action, std::string_view target,
                                         std::string_view detail, common::Instant now) {
  const common::Result<std::int64_t> written = session.execute(
      "INSERT INTO audit_log (admin, action, target, detail, request_id, at) "
      "VALUES ($1, $2, $3, $4, $5, $6)",
      {std::string_view(actor.name), action, target, detail, std::string_view(actor.request_id),
       common::to_micros(now)});
  if (!written) return common::fail(written.error());
  return common::Done{};
}

}  // namespace doorbuster::admin

#include "app/doctor.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "app/verify.hpp"
#include "db/database.hpp"
#include "db/migrations.hpp"

namespace doorbuster::app {
namespace {

using common::Done;
using common::Result;
using Level = Finding::Level;

/// Below it a rush of a million grants could fill the disk.
constexpr std::uint64_t kWantedFreeBytes = 1'000'000'000;

void check_disk(const std::string& path, std::vector<Finding>& findings) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!std::filesystem::exists(folder)) {
    findings.push_back({Level::kWarning, fmt::format("the folder {} is not there", folder.string()),
                        "the server makes it at its first start"});
    return;
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    findings.push_back({Level::kProblem,
                        fmt::format("the folder {} cannot be written", folder.string()),
                        "change its owner or permissions"});
    return;
  }
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free < kWantedFreeBytes) {
    findings.push_back({Level::kWarning,
                        fmt::format("{} MB are free at {}", free / 1'000'000, folder.string()),
                        "free some space before a sale: a full disk answers busy"});
  } else {
    findings.push_back(
        {Level::kOk, fmt::format("{} MB are free at {}", free / 1'000'000, folder.string()), {}});
  }
}

void check_ledger(const std::string& path, std::vector<Finding>& findings) {
  if (!std::filesystem::exists(path)) {
    findings.push_back({Level::kWarning, fmt::format("the ledger {} is not there", path),
                        "the server makes it at its first start"});
    return;
  }
  const Result<Done> read = db::read_sqlite_once(path, [&](db::Session& session) -> Result<Done> {
    const auto status = db::migration_status(session, db::sqlite_migrations());
    if (!status) return common::fail(status.error());
    if (status->applied < status->known) {
      findings.push_back(
          {Level::kWarning,
           fmt::format("the schema is at step {} of {}", status->applied, status->known),
           "run doorbuster migrate, or start the server, which does it too"});
      if (status->applied == 0) return Done{};
    } else {
      findings.push_back(
          {Level::kOk, fmt::format("the schema is at step {}", status->applied), {}});
    }
    const auto report = verify(session);
    if (!report) return common::fail(report.error());
    findings.push_back(
        report->ok()
            ? Finding{Level::kOk, "the rows obey every invariant that rows can show", {}}
            : Finding{Level::kProblem, "rows break an invariant", "see doorbuster verify"});
    return Done{};
  });
  if (!read) {
    findings.push_back(
        {Level::kProblem, fmt::format("the ledger {} cannot be read", path), read.error().message});
  }
}

void check_keys_of(const Config& config, std::vector<Finding>& findings) {
  if (config.token_keys.location.empty()) {
    findings.push_back({Level::kWarning,
                        "tokens are verified with the development key, which everybody knows",
                        "set tokens.keys and mode = \"production\" before real members come"});
    return;
  }
  const auto keys = edge::fetch_keys(config.token_keys);
  if (!keys) {
    findings.push_back({Level::kProblem, "the token keys cannot be read", keys.error().message});
    return;
  }
  const Result<Done> fine = check_keys(config, *keys);
  findings.push_back(
      fine ? Finding{Level::kOk, fmt::format("{} token keys can verify", keys->size()), {}}
           : Finding{Level::kProblem, "the token keys are not for production",
                     fine.error().message});
}

}  // namespace

std::vector<Finding> examine(const Config& config) {
  std::vector<Finding> findings;
  const Result<std::string> budget = engine::check_budget(config.engine.budget);
  findings.push_back(
      budget ? Finding{Level::kOk, *budget, {}}
             : Finding{Level::kProblem, "the request budget is too small", budget.error().message});
  const std::string path = sqlite_path(config);
  check_disk(path, findings);
  check_ledger(path, findings);
  check_keys_of(config, findings);
  if (!std::filesystem::exists(config.order_id_key_file) && std::filesystem::exists(path)) {
    findings.push_back({Level::kProblem,
                        fmt::format("{} is missing beside a ledger", config.order_id_key_file),
                        "restore it from your backup: with a new one, all order ids that members "
                        "have are unknown"});
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < config.http.max_connections + 256 &&
      ::geteuid() != 0) {
    findings.push_back({Level::kWarning,
                        fmt::format("{} file descriptors are allowed, http.max_connections is {}",
                                    limit.rlim_max, config.http.max_connections),
                        "raise the limit (LimitNOFILE in a systemd unit)"});
  }
  return findings;
}

}  // namespace doorbuster::app

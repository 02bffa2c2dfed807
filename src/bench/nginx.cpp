#include "bench/nginx.hpp"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "bench/shop.hpp"

namespace doorbuster::bench {
namespace {

using common::ErrorCode;
using common::fail;
using common::Result;

constexpr int kLooks = 200;
constexpr std::chrono::milliseconds kLookAgain{20};

/// Debian has it where users have no search path to.
std::string find_program() {
  for (const char* path : {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Nginx>> Nginx::start(const std::string& body) {
  const std::string program = find_program();
  if (program.empty()) return fail(ErrorCode::kNotFound, "nginx is not installed");
  const Result<std::uint16_t> port = free_port();
  if (!port) return fail(port.error());
  auto nginx = std::unique_ptr<Nginx>(new Nginx);
  nginx->port_ = *port;
  const std::string folder = nginx->folder_.path().string();
  const std::string config = folder + "/nginx.conf";
  std::ofstream(config) << fmt::format(
      "daemon off;\nmaster_process off;\npid {0}/nginx.pid;\nerror_log {0}/error.log;\n"
      "events {{ worker_connections 19000; }}\n"
      "http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 600s;\n"
      "  client_body_temp_path {0}/body;\n  proxy_temp_path {0}/proxy;\n"
      "  fastcgi_temp_path {0}/fastcgi;\n  uwsgi_temp_path {0}/uwsgi;\n"
      "  scgi_temp_path {0}/scgi;\n"
      "  server {{\n    listen 127.0.0.1:{1} backlog=4096;\n"
      "    location / {{ default_type application/json; return 410 '{2}'; }}\n  }}\n}}\n",
      folder, *port, body);
  auto process =
      Process::exec({program, "-p", folder, "-c", config}, nginx->folder_.path() / "output.log");
  if (!process) return fail(process.error());
  nginx->process_ = std::move(*process);
  for (int i = 0; i < kLooks && nginx->process_->alive(); ++i) {
    if (fetch(*port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")) return nginx;
    std::this_thread::sleep_for(kLookAgain);
  }
  return fail(ErrorCode::kUnavailable, "nginx is installed but does not answer");
}

}  // namespace doorbuster::bench

#pragma once

#include <memory>

#include "bench/machine.hpp"
#include "common/result.hpp"

namespace doorbuster::bench {

/// nginx as one process on the server's core, answering every request with `return 410 'body'`;
/// configuration, logs and temporary files in a folder of its own.
class Nginx {
 public:
  /// Errors: kNotFound (nginx is not installed), kUnavailable (it does not answer).
  [[nodiscard]] static common::Result<std::unique_ptr<Nginx>> start(const std::string& body);
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] Process& process() { return *process_; }

 private:
  Nginx() = default;
  TempFolder folder_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace doorbuster::bench

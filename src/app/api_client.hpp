#pragma once

#include <string>
#include <string_view>

#include "common/result.hpp"

namespace doorbuster::app {

/// A running server's administrators' routes, for the commands that ask it.
class ApiClient {
 public:
  /// `token`: an administrator's; empty: one of the development key.
  ApiClient(std::string url, std::string token);

  struct Answer {
    int status = 0;
    std::string body;
  };
  /// Errors: kUnavailable (nobody answers there), kTimeout. Every HTTP status is an answer.
  [[nodiscard]] common::Result<Answer> call(std::string_view method, const std::string& path,
                                            const std::string& body = {}) const;
  /// The same, where anything but 2xx is an error with the server's message.
  [[nodiscard]] common::Result<std::string> expect_ok(std::string_view method,
                                                      const std::string& path,
                                                      const std::string& body = {}) const;

 private:
  std::string url_;
  std::string token_;
};

}  // namespace doorbuster::app

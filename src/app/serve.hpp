#pragma once

#include "app/config.hpp"
#include "common/result.hpp"

namespace doorbuster::app {

/// Runs the server until SIGTERM or SIGINT, then ends it in order: stop accepting, answer what is
/// in flight, record, close. The exit code: 0 after a signal, 3 when another server took over. An
/// error means that it did not start.
[[nodiscard]] common::Result<int> serve(const Config& config);

/// The key that order ids are signed with; made, with mode 0600, when the file is not there.
[[nodiscard]] common::Result<std::array<std::uint8_t, 32>> order_id_key(const std::string& file);

}  // namespace doorbuster::app

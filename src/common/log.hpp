#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace doorbuster::common {

/// kOff: nothing is written; not a level of a line.
enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };
enum class LogFormat { kText, kJson };

/// One named value of a log line. Never a token, e-mail address or phone number.
struct LogField {
  std::string_view name;
  std::variant<std::int64_t, double, bool, std::string_view> value;
};

/// Sets level and shape for the whole process; once, at start-up.
void configure_log(LogLevel level, LogFormat format);

/// One line on standard error: time, level, what happened, fields. Callable from any thread.
void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace doorbuster::common

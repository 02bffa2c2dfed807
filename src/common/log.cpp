#include "common/log.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cmath>
#include <memory>

#include "common/clock.hpp"
#include "common/text.hpp"

namespace doorbuster::common {
namespace {

std::atomic<LogFormat> line_format{LogFormat::kText};

spdlog::logger& logger() {
  // Never destroyed: what is destroyed at the process's end may still have something to say.
  static spdlog::logger& one = *[] {
    auto* made =
        new spdlog::logger("doorbuster", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    // The line is put together below, in one of two shapes.
    made->set_pattern("%v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return one;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};

/// As a JSON string; in text lines too, so that no value can forge a line of its own.
void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  // Bytes that are no UTF-8 come from clients and broken files; the line must stay readable by
  // machines.
  const bool utf8 = is_plain_utf8(text);
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 0xFU];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, const LogField& field) {
  if (const auto* number = std::get_if<std::int64_t>(&field.value)) {
    out += std::to_string(*number);
  } else if (const auto* real = std::get_if<double>(&field.value)) {
    // JSON has no infinity.
    out += std::isfinite(*real) ? fmt::format("{}", *real) : "null";
  } else if (const auto* yes = std::get_if<bool>(&field.value)) {
    out += *yes ? "true" : "false";
  } else {
    append_quoted(out, std::get<std::string_view>(field.value));
  }
}

}  // namespace

void configure_log(LogLevel level, LogFormat shape) {
  logger().set_level(to_spdlog(level));
  line_format.store(shape);
}

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::logger& out = logger();
  if (!out.should_log(to_spdlog(level))) return;
  const std::string at = to_rfc3339(SystemClock().now());
  const std::string_view name = kLevels[static_cast<std::size_t>(level)];
  std::string line;
  if (line_format.load() == LogFormat::kJson) {
    line = "{\"time\":\"" + at + "\",\"level\":\"" + std::string(name) + "\",\"event\":";
    append_quoted(line, event);
    for (const LogField& field : fields) {
      line += ',';
      append_quoted(line, field.name);
      line += ':';
      append_value(line, field);
    }
    line += '}';
  } else {
    line = at + " " + std::string(name) + " ";
    line += event;
    for (const LogField& field : fields) {
      line += ' ';
      line += field.name;
      line += '=';
      append_value(line, field);
    }
  }
  out.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace doorbuster::common

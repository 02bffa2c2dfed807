#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/ids.hpp"
#include "common/result.hpp"

namespace doorbuster::db {

/// A column's value as it was read. BOOLEANs and instants (microseconds) are integers, ids are
/// bytes.
using Value = std::variant<std::nullptr_t, std::int64_t, std::string, std::vector<std::uint8_t>>;

/// A parameter. Views must live until the call returns.
using Param =
    std::variant<std::nullptr_t, std::int64_t, std::string_view, std::span<const std::uint8_t>>;

[[nodiscard]] inline Param param(const common::GrantId& id) {
  return std::span<const std::uint8_t>(id.bytes);
}

/// One row of an answer. Asking for a column with another type than it has is a bug (ensure).
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}
  [[nodiscard]] bool is_null(std::size_t column) const;
  [[nodiscard]] std::int64_t integer(std::size_t column) const;
  [[nodiscard]] const std::string& text(std::size_t column) const;
  [[nodiscard]] const std::vector<std::uint8_t>& bytes(std::size_t column) const;
  [[nodiscard]] common::GrantId grant_id(std::size_t column) const;
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }

 private:
  std::vector<Value> values_;
};

using Rows = std::vector<Row>;

/// One connection inside one transaction; used by one thread. SQL names its parameters $1, $2, ...
/// in order of their first appearance, which SQLite and PostgreSQL both read. Statements are
/// prepared once per connection and kept.
///
/// Errors: kConflict (a constraint), kBusy (locked by another process), kFull, kReadOnly, kIo,
/// kCorrupt, kTimeout, kInternal. A constraint error leaves the transaction usable; every other one
/// ends it.
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;

  /// Runs a statement; the number of rows that it inserted, changed or deleted.
  [[nodiscard]] virtual common::Result<std::int64_t> execute(std::string_view sql,
                                                             std::span<const Param> params) = 0;
  [[nodiscard]] virtual common::Result<Rows> query(std::string_view sql,
                                                   std::span<const Param> params) = 0;

  [[nodiscard]] common::Result<std::int64_t> execute(std::string_view sql,
                                                     std::initializer_list<Param> params = {}) {
    return execute(sql, std::span<const Param>(params.begin(), params.size()));
  }
  [[nodiscard]] common::Result<Rows> query(std::string_view sql,
                                           std::initializer_list<Param> params = {}) {
    return query(sql, std::span<const Param>(params.begin(), params.size()));
  }
};

}  // namespace doorbuster::db

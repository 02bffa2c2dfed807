#include "db/session.hpp"

#include <algorithm>

namespace doorbuster::db {
namespace {

const Value& at(const std::vector<Value>& values, std::size_t column) {
  DOORBUSTER_ENSURE(column < values.size(), "the row has no such column");
  return values[column];
}

template <class T>
const T& as(const std::vector<Value>& values, std::size_t column) {
  const T* value = std::get_if<T>(&at(values, column));
  DOORBUSTER_ENSURE(value != nullptr, "the column has another type");
  return *value;
}

}  // namespace

bool Row::is_null(std::size_t column) const {
  return std::holds_alternative<std::nullptr_t>(at(values_, column));
}

std::int64_t Row::integer(std::size_t column) const { return as<std::int64_t>(values_, column); }

const std::string& Row::text(std::size_t column) const { return as<std::string>(values_, column); }

const std::vector<std::uint8_t>& Row::bytes(std::size_t column) const {
  return as<std::vector<std::uint8_t>>(values_, column);
}

common::GrantId Row::grant_id(std::size_t column) const {
  const std::vector<std::uint8_t>& stored = bytes(column);
  common::GrantId id;
  DOORBUSTER_ENSURE(stored.size() == id.bytes.size(), "a grant id has 16 bytes");
  std::copy(stored.begin(), stored.end(), id.bytes.begin());
  return id;
}

}  // namespace doorbuster::db

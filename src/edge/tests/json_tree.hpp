#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "edge/json_reader.hpp"

namespace doorbuster::edge {

/// The value that comes next, read to its end as a tree; each literal becomes null.
inline boost::json::value tree(JsonReader& in) {
  switch (in.peek()) {
    case JsonReader::Kind::kString:
      return boost::json::value(in.read_string());
    case JsonReader::Kind::kNumber: {
      const JsonReader::Number number = in.read_number();
      return number.whole ? boost::json::value(*number.whole) : boost::json::value(number.real);
    }
    case JsonReader::Kind::kObject: {
      boost::json::object object;
      std::string_view name;
      if (!in.begin_object()) return object;
      while (in.next_name(name)) {
        const std::string key(name);
        object[key] = tree(in);
      }
      return object;
    }
    case JsonReader::Kind::kArray: {
      boost::json::array array;
      if (!in.begin_array()) return array;
      while (in.next_element()) array.push_back(tree(in));
      return array;
    }
    default:
      in.skip();
      return nullptr;
  }
}

}  // namespace doorbuster::edge

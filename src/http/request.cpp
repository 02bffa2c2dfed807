#include "http/request.hpp"

#include <algorithm>

namespace doorbuster::http {
namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

std::string_view to_string(Method method) noexcept {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kPut:
      return "PUT";
    case Method::kPatch:
      return "PATCH";
    case Method::kDelete:
      return "DELETE";
    case Method::kOptions:
      return "OPTIONS";
  }
  return "GET";
}

std::string_view RequestView::header(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < header_count; ++i) {
    const auto& [known, value] = headers[i];
    if (std::equal(known.begin(), known.end(), name.begin(), name.end(),
                   [](char a, char b) { return lower(a) == lower(b); })) {
      return value;
    }
  }
  return {};
}

Request::Request(const RequestView& view, common::Executor& home, std::string peer)
    : method_(view.method), language_(view.language), peer_(std::move(peer)), home_(&home) {
  bytes_.reserve(view.path.size() + view.query.size() + view.body.size() + view.request_id.size() +
                 view.authorization.size() + view.idempotency_key.size() +
                 view.content_type.size() + view.traceparent.size());
  path_ = keep(view.path);
  query_ = keep(view.query);
  body_ = keep(view.body);
  request_id_ = keep(view.request_id);
  authorization_ = keep(view.authorization);
  idempotency_key_ = keep(view.idempotency_key);
  content_type_ = keep(view.content_type);
  traceparent_ = keep(view.traceparent);
}

Request::Range Request::keep(std::string_view text) {
  const Range range{static_cast<std::uint32_t>(bytes_.size()),
                    static_cast<std::uint32_t>(text.size())};
  bytes_.append(text);
  return range;
}

std::string_view Request::param(std::string_view name) const noexcept {
  for (const auto& [known, value] : params_) {
    if (known == name) return value;
  }
  return {};
}

std::optional<std::string> Request::query(std::string_view name) const {
  for (const auto& [known, value] : query_values_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::vector<std::string> Request::query_names() const {
  std::vector<std::string> names;
  names.reserve(query_values_.size());
  for (const auto& [name, value] : query_values_) names.push_back(name);
  return names;
}

}  // namespace doorbuster::http

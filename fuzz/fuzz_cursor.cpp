#include <boost/json.hpp>
#include <charconv>

#include "common/text.hpp"
#include "fuzz/fuzz.hpp"
#include "http/json.hpp"
#include "http/router.hpp"

/// Lists' `?after=cursor&limit=`. An input is a query, or the text that a cursor is made of.
///
/// - A cursor gives back the text that it was made of, and only its own spelling is accepted.
/// - A page has a limit of 1 to 1000, and a text without NUL; nothing but the two parameters and
/// the
///   route's own is accepted.
/// - A refusal is 400 INVALID_PARAMETER and names the parameter.
namespace doorbuster::fuzz {
namespace {

/// The longest text whose cursor is accepted: 512 characters of base64url.
constexpr std::size_t kMaxText = 384;

/// Nothing where the router has refused the query already.
std::optional<http::Request> request_of(std::string_view query) {
  static NoExecutor nowhere;
  static const http::Route route{
      .method = http::Method::kGet, .pattern = "/", .handler = {}, .fast = {}};
  http::RequestView view;
  view.path = "/";
  view.query = query;
  http::Request request(view, nowhere, "192.0.2.1");
  http::Router::Match match;
  match.route = &route;
  if (!http::Router::fill(request, match)) return std::nullopt;
  return request;
}

void check_refusal(const http::Response& refusal) {
  DOORBUSTER_ENSURE(refusal.status == 400 && common::is_plain_utf8(refusal.body), "400");
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(refusal.body, error);
  DOORBUSTER_ENSURE(!error && parsed.as_object().at("error") == "INVALID_PARAMETER" &&
                        parsed.as_object().at("field").is_string(),
                    "it names the parameter");
}

void check_query(std::string_view query) {
  const std::optional<http::Request> request = request_of(query);
  if (!request) return;
  const auto page = http::read_page(*request, {"state"});
  if (!page) return check_refusal(page.error());
  for (const std::string& name : request->query_names()) {
    DOORBUSTER_ENSURE(name == "after" || name == "limit" || name == "state", "known names only");
  }
  DOORBUSTER_ENSURE(page->limit >= 1 && page->limit <= 1000, "a limit within limits");
  const auto limit = request->query("limit");
  if (limit) {
    DOORBUSTER_ENSURE(std::stoll(*limit) == page->limit, "the limit that was sent");
  } else {
    DOORBUSTER_ENSURE(page->limit == 100, "the limit of who sends none");
  }
  const auto after = request->query("after");
  DOORBUSTER_ENSURE(after.has_value() == page->after.has_value(), "a cursor when one was sent");
  if (!after) return;
  DOORBUSTER_ENSURE(!page->after->empty() && page->after->size() <= kMaxText &&
                        common::is_plain_utf8(*page->after),
                    "a cursor is short text");
  DOORBUSTER_ENSURE(http::make_cursor(*page->after) == *after, "one spelling");
}

void check_text(std::string_view text) {
  const auto request = request_of("limit=7&after=" + http::make_cursor(text));
  DOORBUSTER_ENSURE(request, "a cursor needs no escapes");
  const auto page = http::read_page(*request);
  const bool good = !text.empty() && text.size() <= kMaxText && common::is_plain_utf8(text);
  DOORBUSTER_ENSURE(page.has_value() == good, "text up to its limit");
  if (!page) return check_refusal(page.error());
  DOORBUSTER_ENSURE(page->after == text && page->limit == 7, "the text comes back");
}

}  // namespace
}  // namespace doorbuster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace doorbuster::fuzz;  // NOLINT(google-build-using-namespace)
  const Exact text(std::string_view(reinterpret_cast<const char*>(data), size));
  check_query(text.view());
  check_text(text.view());
  return 0;
}

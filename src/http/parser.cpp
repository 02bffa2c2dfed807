#include "http/parser.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace doorbuster::http {
namespace {

enum CharClass : std::uint8_t {
  kToken = 1,      ///< RFC 9110 token: methods and header names
  kTarget = 2,     ///< RFC 3986 path and query, '%' included
  kHostName = 4,   ///< what a Host header may hold
  kRequestId = 8,  ///< what we take over as a request id
  kValue = 16,     ///< header values: all but control characters; tab is allowed
};

constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> table{};
  const auto add = [&table](std::string_view chars, std::uint8_t bits) {
    for (const char c : chars) table[static_cast<unsigned char>(c)] |= bits;
  };
  add("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
      kToken | kTarget | kHostName | kRequestId);
  add("!#$%&'*+-.^_`|~", kToken);
  add("-._~!$&'()*+,;=:@/?%", kTarget);
  add("-._~!$&'()*+,;=:%[]", kHostName);
  add("-._", kRequestId);
  for (std::size_t byte = 0; byte < table.size(); ++byte) {
    if (byte == '\t' || (byte >= 0x20 && byte != 0x7F)) table[byte] |= kValue;
  }
  return table;
}
constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

bool is(char c, CharClass wanted) noexcept {
  return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0;
}

bool all(std::string_view text, CharClass wanted) noexcept {
  std::uint8_t common = wanted;
  for (const char c : text) common &= kClasses[static_cast<unsigned char>(c)];
  return common != 0;
}

template <class Word>
Word load(const char* from) noexcept {
  Word word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

/// Whether `text` is `lower` but for case. `lower` holds lower-case letters, digits and '-' only,
/// and `text` no control characters: for those, setting bit 5 is exactly "to lower case". The
/// length of `lower` is known when compiling, so this becomes a few comparisons of words; the last
/// one may overlap.
template <std::size_t kSize>
bool same_word(std::string_view text, const char (&lower)[kSize]) noexcept {
  constexpr std::size_t kLength = kSize - 1;
  if (text.size() != kLength) return false;
  const char* const have = text.data();
  std::uint64_t differs = 0;
  const auto compare = [&]<class Word>(std::size_t at, Word bit5) noexcept {
    differs |= (load<Word>(have + at) | bit5) ^ load<Word>(lower + at);
  };
  constexpr std::uint64_t kBit5 = 0x2020202020202020U;
  if constexpr (kLength >= 8) {
    for (std::size_t at = 0; at + 8 < kLength; at += 8) compare(at, kBit5);
    compare(kLength - 8, kBit5);
  } else if constexpr (kLength >= 4) {
    compare(0, static_cast<std::uint32_t>(kBit5));
    compare(kLength - 4, static_cast<std::uint32_t>(kBit5));
  } else {
    for (std::size_t at = 0; at < kLength; ++at) compare(at, static_cast<std::uint8_t>(0x20));
  }
  return differs == 0;
}

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The next member of a comma-separated list, which `rest` loses.
std::string_view next_member(std::string_view& rest) noexcept {
  const std::size_t comma = rest.find(',');
  const std::string_view member = rest.substr(0, comma);
  rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  return trim(member);
}

// Most bytes of a request belong to long runs of one kind, so they are looked at sixteen at a time.
using Lanes = unsigned char __attribute__((vector_size(16)));
using Marks = signed char __attribute__((vector_size(16)));  ///< all bits set where something holds

Marks letters(Lanes bytes) noexcept { return ((bytes | 0x20) - 'a') <= ('z' - 'a'); }

// Each one marks bytes that are surely of its class; what it leaves out is looked up one by one.
Marks usual_token(Lanes bytes) noexcept { return letters(bytes) | (bytes == '-'); }
Marks usual_target(Lanes bytes) noexcept { return letters(bytes) | ((bytes - '-') <= ('9' - '-')); }
Marks usual_value(Lanes bytes) noexcept { return (bytes >= 0x20) & (bytes != 0x7F); }

/// The place of the first byte that is not marked; 16 when all are.
int first_unmarked(Marks marks) noexcept {
#if defined(__SSE2__)
  const int marked = _mm_movemask_epi8(std::bit_cast<__m128i>(marks));
  return std::countr_one(static_cast<std::uint32_t>(marked));
#else
  static_assert(std::endian::native == std::endian::little, "the first byte is the lowest one");
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(marks);
  const int low = std::countr_one(halves[0]) / 8;
  return low < 8 ? low : 8 + std::countr_one(halves[1]) / 8;
#endif
}

/// The first byte at or after `p` that is not of the class.
template <Marks (*kUsual)(Lanes)>
const char* skip(const char* p, const char* end, CharClass wanted) noexcept {
  while (true) {
    while (end - p >= 16) {
      Lanes bytes;
      std::memcpy(&bytes, p, sizeof bytes);
      const int usual = first_unmarked(kUsual(bytes));
      if (usual < 16) {
        p += usual;
        break;
      }
      // A constant, so that the next sixteen bytes need not wait for what these were.
      p += 16;
    }
    if (p == end || !is(*p, wanted)) return p;
    ++p;
  }
}

bool parse_method(std::string_view text, Method& method) noexcept {
  switch (text.size()) {
    case 3:
      if (text == "GET") return method = Method::kGet, true;
      if (text == "PUT") return method = Method::kPut, true;
      return false;
    case 4:
      if (text == "POST") return method = Method::kPost, true;
      if (text == "HEAD") return method = Method::kHead, true;
      return false;
    case 5:
      return text == "PATCH" ? (method = Method::kPatch, true) : false;
    case 6:
      return text == "DELETE" ? (method = Method::kDelete, true) : false;
    case 7:
      return text == "OPTIONS" ? (method = Method::kOptions, true) : false;
    default:
      return false;
  }
}

bool lower_hex(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool all_zero(std::string_view text) noexcept {
  return text.find_first_not_of('0') == std::string_view::npos;
}

/// W3C Trace Context: version-trace-parent-flags; later versions may add more behind a '-'.
bool usable_traceparent(std::string_view text) noexcept {
  if (text.size() < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2);
  if (!lower_hex(version) || version == "ff") return false;
  if (version == "00" ? text.size() != 55 : (text.size() > 55 && text[55] != '-')) return false;
  const std::string_view trace = text.substr(3, 32);
  const std::string_view parent = text.substr(36, 16);
  return lower_hex(trace) && !all_zero(trace) && lower_hex(parent) && !all_zero(parent) &&
         lower_hex(text.substr(53, 2));
}

/// The weight of a language range in thousandths; a weight that cannot be read counts as "not
/// wanted".
int weight_of(std::string_view parameters) noexcept {
  if (parameters.empty()) return 1000;
  const std::string_view text = trim(parameters);
  if (text.size() < 3 || (text[0] | 0x20) != 'q' || text[1] != '=') return 0;
  if (text[2] != '0' && text[2] != '1') return 0;
  int weight = (text[2] - '0') * 1000;
  if (text.size() == 3) return weight;
  if (text[3] != '.' || text.size() > 7) return 0;
  int place = 100;
  for (const char c : text.substr(4)) {
    if (c < '0' || c > '9') return 0;
    weight += (c - '0') * place;
    place /= 10;
  }
  return weight > 1000 ? 0 : weight;
}

/// Korean when it is wanted more than English, or as much and named first; else English.
Language choose_language(std::string_view accepted) noexcept {
  int best = 0;
  Language chosen = Language::kEnglish;
  while (!accepted.empty()) {
    const std::string_view member = next_member(accepted);
    const std::size_t semicolon = member.find(';');
    const std::string_view range = trim(member.substr(0, semicolon));
    const std::string_view primary = range.substr(0, range.find('-'));
    const bool korean = same_word(primary, "ko");
    if (!korean && !same_word(primary, "en")) continue;
    const int weight = weight_of(
        semicolon == std::string_view::npos ? std::string_view{} : member.substr(semicolon + 1));
    if (weight > best) {
      best = weight;
      chosen = korean ? Language::kKorean : Language::kEnglish;
    }
  }
  return chosen;
}

struct Refusal {
  int status = 0;
  std::string_view reason;
};
constexpr Refusal kFine{};

/// What has been seen of the headers that may come once only.
struct Seen {
  bool host = false;
  bool length = false;
  bool coding = false;
  bool authorization = false;
  bool idempotency_key = false;
  bool content_type = false;
  bool expect = false;
  bool accept_language = false;
  bool request_id = false;
  bool traceparent = false;
};

bool twice(bool& seen) noexcept { return std::exchange(seen, true); }

constexpr Refusal kTwice{400, "A header that may come once came twice."};
constexpr Refusal kTwoLengths{400, "Content-Length and Transfer-Encoding cannot come together."};

Refusal read_length(std::string_view value, Head& head) noexcept {
  // No sign, no blank, no list, no leading zero: each length has one spelling.
  if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos ||
      (value.size() > 1 && value[0] == '0')) {
    return {400, "Content-Length is not a plain decimal number."};
  }
  if (value.size() > 18) return {413, "The body is too large."};
  std::from_chars(value.data(), value.data() + value.size(), head.content_length);
  return kFine;
}

/// Takes over what the server or the handlers need to know of one header.
Refusal read_header(std::string_view name, std::string_view value, Seen& seen, Head& head,
                    RequestView& view) noexcept {
  switch (name.size()) {
    case 4:
      if (same_word(name, "host")) {
        if (twice(seen.host)) return kTwice;
        if (value.empty() || !all(value, kHostName)) return {400, "Host is malformed."};
      }
      break;
    case 6:
      if (same_word(name, "expect")) {
        if (twice(seen.expect)) return kTwice;
        if (!same_word(value, "100-continue")) {
          return {417, "Only 'Expect: 100-continue' is understood."};
        }
        // A client of HTTP/1.0 would take "100 Continue" for the answer.
        head.expect_continue = !head.version_1_0;
      }
      break;
    case 10:
      if (same_word(name, "connection")) {
        std::string_view rest = value;
        while (!rest.empty()) {
          if (same_word(next_member(rest), "close")) view.keep_alive = false;
        }
      }
      break;
    case 11:
      if (same_word(name, "traceparent")) {
        const bool again = twice(seen.traceparent);
        view.traceparent = !again && usable_traceparent(value) ? value : std::string_view{};
      }
      break;
    case 12:
      if (same_word(name, "content-type")) {
        if (twice(seen.content_type)) return kTwice;
        view.content_type = value;
      } else if (same_word(name, "x-request-id")) {
        const bool usable = !twice(seen.request_id) && !value.empty() && value.size() <= 64 &&
                            all(value, kRequestId);
        view.request_id = usable ? value : std::string_view{};
      }
      break;
    case 13:
      if (same_word(name, "authorization")) {
        if (twice(seen.authorization)) return kTwice;
        view.authorization = value;
      }
      break;
    case 14:
      if (same_word(name, "content-length")) {
        if (seen.coding) return kTwoLengths;
        if (twice(seen.length)) return kTwice;
        return read_length(value, head);
      }
      break;
    case 15:
      if (same_word(name, "accept-language")) {
        if (!twice(seen.accept_language)) view.language = choose_language(value);
      } else if (same_word(name, "idempotency-key")) {
        if (twice(seen.idempotency_key)) return kTwice;
        view.idempotency_key = value;
      }
      break;
    case 17:
      if (same_word(name, "transfer-encoding")) {
        if (seen.length) return kTwoLengths;
        if (twice(seen.coding)) return kTwice;
        if (value != "chunked" || head.version_1_0) {
          return {400, "Only 'Transfer-Encoding: chunked' is understood."};
        }
        head.chunked = true;
      }
      break;
    default:
      break;
  }
  return kFine;
}

void reset(RequestView& view) noexcept {
  view.method = Method::kGet;
  view.target = view.path = view.query = view.body = view.request_id = view.authorization =
      view.idempotency_key = view.content_type = view.traceparent = {};
  view.language = Language::kEnglish;
  view.keep_alive = true;
  view.header_count = 0;
}

Head refused(const Refusal& refusal) noexcept {
  Head head;
  head.state = ParseState::kRefused;
  head.status = refusal.status;
  head.reason = refusal.reason;
  return head;
}

constexpr Refusal kBadRequestLine{400, "The request line is malformed."};
constexpr Refusal kBadHeader{400, "A header line is malformed."};
constexpr Refusal kBadVersion{505, "Only HTTP/1.1 and HTTP/1.0 are spoken here."};

enum class Step { kOn, kNeedMore, kRefused };

/// Reads "HTTP/1.1\r\n" at `p`, one byte after the other where it is not whole or not that.
Step read_version(const char*& p, const char* end, bool& version_1_0, Refusal& refusal) noexcept {
  constexpr std::string_view kUsual = "HTTP/1.1\r\n";
  if (static_cast<std::size_t>(end - p) >= kUsual.size() &&
      std::memcmp(p, kUsual.data(), kUsual.size()) == 0) {
    p += kUsual.size();
    return Step::kOn;
  }
  constexpr std::string_view kShape = "HTTP/d.d\r\n";
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (p + i == end) return Step::kNeedMore;
    const char c = p[i];
    if (kShape[i] == 'd' ? (c < '0' || c > '9') : c != kShape[i]) {
      refusal = kBadRequestLine;
      return Step::kRefused;
    }
    if (i == 7 && (p[5] != '1' || c > '1')) {
      refusal = kBadVersion;
      return Step::kRefused;
    }
  }
  version_1_0 = p[7] == '0';
  p += kShape.size();
  return Step::kOn;
}

}  // namespace

Head parse_head(std::string_view buffer, const ParserLimits& limits, RequestView& view) {
  // Everything is decided from left to right, by the first byte that decides it: so the answer does
  // not depend on how the bytes were cut into packets.
  reset(view);
  const std::string_view text = buffer.substr(0, limits.max_header_bytes);
  const auto need_more = [&]() noexcept {
    if (buffer.size() < limits.max_header_bytes) return Head{};
    return refused({431, "The request's headers are too large."});
  };
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto since = [&p](const char* begin) noexcept {
    return std::string_view(begin, static_cast<std::size_t>(p - begin));
  };

  constexpr std::ptrdiff_t kLongestMethod = 16;
  const char* begin = p;
  if (text.starts_with("POST ")) {
    view.method = Method::kPost;
    p += 4;
  } else {
    while (p != end && is(*p, kToken) && p - begin < kLongestMethod) ++p;
    if (p == end) return need_more();
    if (p == begin) return refused(kBadRequestLine);
    if (*p != ' ' && !is(*p, kToken)) return refused(kBadRequestLine);
    if (!parse_method(since(begin), view.method)) {
      return refused({501, "This method is not implemented."});
    }
  }
  ++p;

  begin = p;
  if (p == end) return need_more();
  if (*p != '/') return refused({400, "The request's target must begin with '/'."});
  p = skip<usual_target>(p, end, kTarget);
  if (since(begin).size() > limits.max_target_bytes) {
    return refused({414, "The request's target is too long."});
  }
  if (p == end) return need_more();
  if (*p != ' ') return refused(kBadRequestLine);
  view.target = since(begin);
  const std::size_t question = view.target.find('?');
  view.path = view.target.substr(0, question);
  if (question != std::string_view::npos) view.query = view.target.substr(question + 1);
  ++p;

  bool version_1_0 = false;
  Refusal refusal;
  switch (read_version(p, end, version_1_0, refusal)) {
    case Step::kOn:
      break;
    case Step::kNeedMore:
      return need_more();
    case Step::kRefused:
      return refused(refusal);
  }
  view.keep_alive = !version_1_0;

  Head head;
  head.version_1_0 = version_1_0;
  Seen seen;
  while (true) {
    if (p == end) return need_more();
    if (*p == '\r') {
      if (p + 1 == end) return need_more();
      if (p[1] != '\n') return refused(kBadHeader);
      p += 2;
      break;
    }
    begin = p;
    p = skip<usual_token>(p, end, kToken);
    if (p == end) return need_more();
    if (*p != ':' || p == begin) {
      if (p == begin && is_blank(*p)) return refused({400, "A header is folded over two lines."});
      return refused(kBadHeader);
    }
    const std::string_view name = since(begin);
    ++p;

    if (p != end && *p == ' ') ++p;
    while (p != end && is_blank(*p)) ++p;
    begin = p;
    p = skip<usual_value>(p, end, kValue);
    if (p == end) return need_more();
    if (*p != '\r') return refused(kBadHeader);
    if (p + 1 == end) return need_more();
    if (p[1] != '\n') return refused(kBadHeader);
    std::string_view value = since(begin);
    while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
    p += 2;

    if (view.header_count == RequestView::kMaxHeaders) {
      return refused({431, "The request has too many headers."});
    }
    view.headers[view.header_count++] = {name, value};
    refusal = read_header(name, value, seen, head, view);
    if (refusal.status != 0) return refused(refusal);
  }
  if (!seen.host) return refused({400, "Host is missing."});

  head.state = ParseState::kDone;
  head.bytes = static_cast<std::size_t>(p - text.data());
  return head;
}

void parse_chunked(std::string_view buffer, std::size_t max_body, ChunkedBody& body,
                   std::string& decoded) {
  constexpr std::size_t kMaxFraming = 4096;
  const auto refuse = [&body](bool too_large) {
    body.state = ParseState::kRefused;
    body.too_large = too_large;
  };
  while (body.state == ParseState::kNeedMore) {
    const std::string_view rest = buffer.substr(body.consumed);
    std::size_t size = 0;
    std::size_t digits = 0;
    // Eight digits hold more than any limit, and cannot overflow.
    while (digits < rest.size() && digits < 8) {
      const char c = rest[digits];
      std::size_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<std::size_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<std::size_t>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<std::size_t>(c - 'A') + 10;
      } else {
        break;
      }
      if (digits == 1 && rest[0] == '0') return refuse(false);
      size = size * 16 + digit;
      ++digits;
    }
    if (digits == rest.size()) return;
    // Also where a ninth digit, an extension or a blank stands.
    if (digits == 0 || rest[digits] != '\r') return refuse(false);
    if (digits + 1 == rest.size()) return;
    if (rest[digits + 1] != '\n') return refuse(false);
    const std::size_t data = digits + 2;

    if (size > max_body - body.size) return refuse(true);
    if (rest.size() <= data + size) return;
    // Behind the last chunk this is the end of the body; a trailer would stand here.
    if (rest[data + size] != '\r') return refuse(false);
    if (rest.size() == data + size + 1) return;
    if (rest[data + size + 1] != '\n') return refuse(false);
    decoded.append(rest.substr(data, size));
    body.size += size;
    body.consumed += data + size + 2;
    // Otherwise one-byte chunks make a small body arbitrarily expensive.
    if (body.consumed - body.size > max_body + kMaxFraming) return refuse(true);
    if (size == 0) body.state = ParseState::kDone;
  }
}

}  // namespace doorbuster::http

#include "http/response.hpp"

namespace doorbuster::http {
namespace {

/// Length of the well-formed UTF-8 sequence at the front of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [text](std::size_t i) noexcept { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  // The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (at(i) < 0x80 || at(i) > 0xBF) return 0;
  }
  return length;
}

}  // namespace

Response error_response(const PublicError& error, Language language, std::string_view extra,
                        int retry_after_s) {
  Response response;
  response.status = error.status;
  response.body = R"({"error":)" + json_quote(error.code) + R"(,"message":)" +
                  json_quote(language == Language::kKorean ? error.korean : error.english);
  if (!extra.empty()) {
    response.body += ',';
    response.body += extra;
  }
  response.body += '}';
  if (retry_after_s > 0 || error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After",
                                  std::to_string(retry_after_s > 0 ? retry_after_s : 1));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

const PublicError kInvalidBody{400, "INVALID_BODY",
                               "The body is not a JSON object of the expected form.",
                               "본문이 올바른 형식의 JSON 객체가 아닙니다."};
const PublicError kInvalidParameter{400, "INVALID_PARAMETER",
                                    "A part of the path or a query parameter is malformed.",
                                    "경로 또는 쿼리 매개변수의 형식이 올바르지 않습니다."};
const PublicError kUnauthorized{401, "UNAUTHORIZED", "Please sign in.", "로그인이 필요합니다."};
const PublicError kForbidden{403, "FORBIDDEN", "You are not allowed to do this.",
                             "권한이 없습니다."};
const PublicError kNotFound{404, "NOT_FOUND", "There is nothing of this name.",
                            "요청하신 항목을 찾을 수 없습니다."};
const PublicError kMethodNotAllowed{405, "METHOD_NOT_ALLOWED", "This method is not allowed here.",
                                    "허용되지 않는 메서드입니다."};
const PublicError kPayloadTooLarge{413, "PAYLOAD_TOO_LARGE", "The body is too large.",
                                   "본문이 너무 큽니다."};
const PublicError kUnsupportedMediaType{415, "UNSUPPORTED_MEDIA_TYPE",
                                        "The body must be application/json.",
                                        "본문은 application/json 형식이어야 합니다."};
const PublicError kKeyReused{422, "KEY_REUSED", "This Idempotency-Key was used with another body.",
                             "이 Idempotency-Key는 다른 본문에 이미 사용되었습니다."};
const PublicError kInternalError{500, "INTERNAL",
                                 "Something went wrong on our side. Please try again.",
                                 "서버에 문제가 발생했습니다. 다시 시도해 주세요."};
const PublicError kBusy{503, "BUSY", "We are very busy. Please try again in a moment.",
                        "접속이 많습니다. 잠시 후 다시 시도해 주세요."};

std::string json_quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    std::size_t used = 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte < 0x20 || byte == 0x7F) {
          out += "\\u00";
          out += kHex[byte >> 4U];
          out += kHex[byte & 0xFU];
        } else if (const std::size_t length = utf8_length(text); length != 0) {
          out += text.substr(0, length);
          used = length;
        } else {
          // A reader would refuse the whole answer for one broken byte.
          out += "\\ufffd";
        }
    }
    text.remove_prefix(used);
  }
  out += '"';
  return out;
}

}  // namespace doorbuster::http

#include "http/response.hpp"

#include <fmt/format.h>

namespace doorbuster::http {

const PublicError kInvalidBody{400, "INVALID_BODY", "The body is not what this route takes.",
                               "요청 본문이 올바르지 않습니다."};
const PublicError kInvalidParameter{400, "INVALID_PARAMETER", "A parameter is not what this route takes.",
                                    "요청 매개변수가 올바르지 않습니다."};
const PublicError kUnauthorized{401, "UNAUTHORIZED", "A valid token is needed.", "유효한 토큰이 필요합니다."};
const PublicError kForbidden{403, "FORBIDDEN", "This token does not allow it.", "이 토큰으로는 할 수 없습니다."};
const PublicError kNotFound{404, "NOT_FOUND", "There is no such thing.", "찾을 수 없습니다."};
const PublicError kMethodNotAllowed{405, "METHOD_NOT_ALLOWED", "Not with this method.",
                                    "허용되지 않는 메서드입니다."};
const PublicError kPayloadTooLarge{413, "PAYLOAD_TOO_LARGE", "The body is too large.", "요청 본문이 너무 큽니다."};
const PublicError kUnsupportedMediaType{415, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json.",
                                        "요청 본문은 application/json이어야 합니다."};
const PublicError kKeyReused{422, "KEY_REUSED", "This Idempotency-Key was used with another body.",
                             "이 Idempotency-Key는 다른 요청 본문에 이미 사용되었습니다."};
const PublicError kInternalError{500, "INTERNAL", "Something went wrong here.", "서버에서 오류가 발생했습니다."};
const PublicError kBusy{503, "BUSY", "Busy. Ask again in a moment: nothing that is yours is lost.",
                        "요청이 많습니다. 잠시 후 다시 시도해 주세요. 확보한 주문은 유지됩니다."};

std::string json_quote(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

Response error_response(const PublicError& error, Language language, std::string_view extra,
                        int retry_after_s) {
  Response response;
  response.status = error.status;
  response.body = fmt::format(R"({{"error":"{}","message":{}{}{}}})", error.code,
                              json_quote(language == Language::kKorean ? error.korean : error.english),
                              extra.empty() ? "" : ",", extra);
  if (error.status == 429 || error.status == 503 || retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(retry_after_s > 0 ? retry_after_s : 1));
  }
  return response;
}

}  // namespace doorbuster::http

#pragma once

#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "http/parser.hpp"
#include "http/response.hpp"

// How an answer is put into bytes. Internal to this folder: the server's side of parser.hpp.
namespace doorbuster::http {

/// What the server adds to every answer.
struct AnswerFrame {
  std::string_view date;        ///< as http_date() makes it
  std::string_view request_id;  ///< empty: no header (the request could not be read)
  bool close = false;           ///< "Connection: close"
  bool head_only = false;       ///< answers HEAD: all headers, no body
};

/// IMF-fixdate, "Mon, 30 Nov 2026 01:02:03 GMT".
[[nodiscard]] std::string http_date(common::Instant at);

/// Whether the answer can be sent as it is: a status from 200 to 599, header names that are tokens,
/// values without control characters, and none of the headers that frame the message (they are the
/// server's).
[[nodiscard]] bool is_sendable(const Response& response) noexcept;

/// A whole answer that is_sendable(). 204 and 304 have neither body nor Content-Length.
void append_answer(std::string& out, const Response& response, const AnswerFrame& frame);

/// The same from a FastHandler's prepared parts (router.hpp); does not allocate while `out` has
/// room.
void append_prepared(std::string& out, std::string_view head, std::string_view body,
                     const AnswerFrame& frame);

/// The head of an event stream; chunked, or until the end of the connection.
void append_stream_head(std::string& out, const Response& response, const AnswerFrame& frame,
                        bool chunked);
/// One chunk; empty data would end the stream and is skipped.
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// The JSON error for a request that the server refuses by itself: 400, 408, 413, 414, 417, 431,
/// 501, 505. `english` is the reason; empty for the status's general one.
[[nodiscard]] Response refuse_request(int status, std::string_view english, Language language);

}  // namespace doorbuster::http

// The head of an HTTP/1 request: parsed and judged. Pure functions over bytes.
//
// The parser is strict where two readers of one request could disagree (RFC 9112, 11.2): a space
// before a colon, a folded line, a control character, two lengths, a length beside chunks, a header
// twice. Each such head is refused and its connection closed.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_BYTES 16384 // of a whole head
#define HTTP_HEAD_LINES 100
#define HTTP_PATH_BYTES 256

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_UNKNOWN
};
const char *http_method_name(enum http_method m); // "" for HTTP_UNKNOWN

enum http_framing { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED };

enum http_header {
    HEADER_HOST,
    HEADER_CONTENT_LENGTH,
    HEADER_TRANSFER_ENCODING,
    HEADER_CONTENT_ENCODING,
    HEADER_CONTENT_TYPE,
    HEADER_EXPECT,
    HEADER_CONNECTION,
    HEADER_AUTHORIZATION,
    HEADER_ORIGIN,
    HEADER_ACCEPT_ENCODING,
    HEADER_IF_NONE_MATCH,
    HEADER_UPGRADE,
    HEADER_WS_KEY,
    HEADER_WS_VERSION,
    HEADER_WS_PROTOCOL,
    HEADER_JSON_LENGTH,
    HEADER_SESSION_ID,
    HEADER_SESSION,
    HEADER_CLAUDE_SESSION,
    HEADER_DYNAMO_SESSION,
    HEADER_AFFINITY,
    HEADER_PARENT_SESSION,
    HEADER_API_KEY,
    HEADER_ANTHROPIC_VERSION,
    HEADER_CORS_METHOD,
    HEADER_CORS_HEADERS,
    HEADER_CORS_PRIVATE,
    HEADER_COUNT
};

struct http_head {
    enum http_method method;
    char path[HTTP_PATH_BYTES];       // decoded, without the query
    const char *query;                // as it came, "" when absent; borrowed as the headers are
    const char *header[HEADER_COUNT]; // "" when absent; borrowed from the parsed text
    enum http_framing framing;
    int64_t content_length; // HTTP_LENGTH
    bool http10, keep_alive, expects_continue, zipped;
    bool lacks_length; // a POST, PUT or PATCH that does not say how long its body is: it has none
};

// A refusal; status 0: none. Every refusal of a head closes the connection.
struct http_refusal {
    int status;
    const char *code, *message;
    int64_t retry_after_ms; // 0: none
};
#define REFUSE(status, code, message) ((struct http_refusal){status, code, message, 0})

// The length of the head at the start of text, its empty line included; 0 while it is incomplete.
size_t http_head_find(const char *text, size_t len);
// Parses the head text[0..len) in place: the strings of *h point into it.
struct http_refusal http_head_parse(struct http_head *h, char *text, size_t len);
// The value of the query's first `name`, decoded. false: it is missing or too long.
bool http_query_get(const char *query, const char *name, char *out, size_t cap);
// Whether a comma-separated list, or header, has the item (len), or token, in any case.
bool http_list_has(const char *list, const char *item, size_t len);
bool http_has_token(const char *header, const char *token);

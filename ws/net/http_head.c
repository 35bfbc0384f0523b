// The parser of request heads. See http_head.h.
#include "ws/net/http_head.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BAD(message) REFUSE(400, "bad_message", message)
#define OK REFUSE(0, NULL, NULL)

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

const char *http_method_name(enum http_method m) {
    return m < HTTP_UNKNOWN ? methods[m] : "";
}

// Headers that the server reads. RFC 9110 lets a header that is a list (list) come several times. None of
// these needs to, and the first would hide the others.
static const struct {
    const char *name;
    size_t max; // bytes of its value
} headers[HEADER_COUNT] = {
    [HEADER_HOST] = {"host", 255},
    [HEADER_CONTENT_LENGTH] = {"content-length", 31},
    [HEADER_TRANSFER_ENCODING] = {"transfer-encoding", 255},
    [HEADER_CONTENT_ENCODING] = {"content-encoding", 255},
    [HEADER_CONTENT_TYPE] = {"content-type", 255},
    [HEADER_EXPECT] = {"expect", 255},
    [HEADER_CONNECTION] = {"connection", 255},
    // Longer than any token (AUTH_TOKEN_MAX): clients send keys of other services, such as JWTs.
    [HEADER_AUTHORIZATION] = {"authorization", 4095},
    [HEADER_ORIGIN] = {"origin", 255},
    [HEADER_ACCEPT_ENCODING] = {"accept-encoding", 1023},
    [HEADER_IF_NONE_MATCH] = {"if-none-match", 1023},
    [HEADER_UPGRADE] = {"upgrade", 255},
    [HEADER_WS_KEY] = {"sec-websocket-key", 255},
    [HEADER_WS_VERSION] = {"sec-websocket-version", 255},
    [HEADER_WS_PROTOCOL] = {"sec-websocket-protocol", 1023},
    [HEADER_JSON_LENGTH] = {"inference-header-content-length", 31},
    [HEADER_SESSION_ID] = {"x-session-id", 255},
    [HEADER_SESSION] = {"session-id", 255},
    [HEADER_CLAUDE_SESSION] = {"x-claude-code-session-id", 255},
    [HEADER_DYNAMO_SESSION] = {"x-dynamo-session-id", 255},
    [HEADER_AFFINITY] = {"x-session-affinity", 255},
    [HEADER_PARENT_SESSION] = {"x-parent-session-id", 255},
    [HEADER_API_KEY] = {"x-api-key", 4095},
    [HEADER_ANTHROPIC_VERSION] = {"anthropic-version", 63},
    [HEADER_CORS_METHOD] = {"access-control-request-method", 63},
    [HEADER_CORS_HEADERS] = {"access-control-request-headers", 4095},
    [HEADER_CORS_PRIVATE] = {"access-control-request-private-network", 63},
};

// Of a method or a header's name (RFC 9110, 5.6.2).
static const char token_chars[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "!#$%&'*+-.^_`|~";

// --- lines ---

// A line that ends in LF alone may be one line for a proxy in front and two for us, or the other way round.
static bool has_bare_lf(const char *text, size_t len) {
    for (const char *p = text, *end = text + len; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        if (p == text || p[-1] != '\r') return true;
    return false;
}

// Without its CR LF, which become NUL. NULL when no line is left.
static char *next_line(char **text, char *end) {
    char *line = *text;
    char *lf = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (!lf) return NULL;
    *text = lf + 1;
    if (lf > line && lf[-1] == '\r') lf[-1] = '\0';
    *lf = '\0';
    return line;
}

// Also finds the end of a head that is refused later, so that the client gets an answer.
size_t http_head_find(const char *text, size_t len) {
    const char *p = text, *end = text + len;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
        p++;
        if (p < end && *p == '\n') return (size_t)(p - text) + 1;
        if (p + 1 < end && p[0] == '\r' && p[1] == '\n') return (size_t)(p - text) + 2;
    }
    return 0;
}

// --- request line ---

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static struct http_refusal parse_target(struct http_head *h, const char *target) {
    size_t n = 0;
    const char *query = target + strcspn(target, "?#");
    h->query = *query == '?' ? query + 1 : "";
    if (*target != '/') return BAD("the request's target must be a path");
    for (const char *p = target; *p && *p != '?' && *p != '#'; p++) {
        int c = (unsigned char)*p;
        if (c < ' ' || c == 0x7f) return BAD("the path has a control character");
        if (c == '%') {
            int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
            c = high < 0 || low < 0 ? 0 : high << 4 | low;
            if (!c) return BAD("the path has an invalid escape");
            p += 2;
        }
        if (n + 1 == sizeof(h->path)) return REFUSE(414, "too_large", "the path is too long");
        h->path[n++] = (char)c;
    }
    h->path[n] = '\0';
    return OK;
}

bool http_query_get(const char *query, const char *name, char *out, size_t cap) {
    size_t len = strlen(name), n = 0;
    while (strncmp(query, name, len) != 0 || query[len] != '=') {
        query += strcspn(query, "&#");
        if (*query != '&') return false;
        query++;
    }
    for (const char *p = query + len + 1; *p && *p != '&' && *p != '#'; p++) {
        int c = *p == '+' ? ' ' : (unsigned char)*p;
        if (c == '%') {
            int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
            c = low < 0 ? 0 : high << 4 | low;
            p += 2;
        }
        if (!c || n + 1 >= cap) return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static struct http_refusal parse_request_line(struct http_head *h, char *line) {
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return BAD("the first line must be METHOD PATH HTTP/1.1");
    *target++ = '\0';
    *version++ = '\0';
    if (line[strspn(line, token_chars)]) return BAD("the method is malformed");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return strncmp(version, "HTTP/", 5) == 0
                   ? REFUSE(505, "unsupported", "only HTTP/1.1 and HTTP/1.0 are served")
                   : BAD("the first line must be METHOD PATH HTTP/1.1");
    h->http10 = version[7] == '0';
    h->keep_alive = !h->http10;
    h->method = HTTP_GET;
    while (h->method < HTTP_UNKNOWN && strcmp(line, methods[h->method]) != 0) h->method++;
    if (h->method == HTTP_UNKNOWN) return REFUSE(405, "unsupported", "this method is not served");
    return parse_target(h, target);
}

// --- header lines ---

// seen: a bit for each earlier header, also for one with an empty value.
static struct http_refusal parse_header(struct http_head *h, char *line, uint32_t *seen) {
    char *colon = line + strspn(line, token_chars);
    // Folding begins a line with a space; "Transfer-Encoding : chunked" has one before its colon.
    if (colon == line || *colon != ':') return BAD("a header line is malformed");
    *colon = '\0';
    char *value = colon + 1;
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) value[--len] = '\0';
    for (const unsigned char *p = (unsigned char *)value; *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f) return BAD("a header has a control character");
    for (int i = 0; i < HEADER_COUNT; i++) {
        if (strcasecmp(line, headers[i].name) != 0) continue;
        if (*seen & 1u << i) return BAD("a header that must come once came twice");
        *seen |= 1u << i;
        if (len > headers[i].max) return REFUSE(431, "too_large", "a header is too long");
        // A proxy in front may read an empty one in another way.
        if (!*value && (i == HEADER_CONTENT_LENGTH || i == HEADER_TRANSFER_ENCODING))
            return BAD("a header that frames the body is empty");
        h->header[i] = value;
    }
    return OK;
}

static bool is_length(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 18 && s[n] == '\0';
}

// --- meaning ---

static struct http_refusal judge_framing(struct http_head *h) {
    const char *length = h->header[HEADER_CONTENT_LENGTH];
    const char *coding = h->header[HEADER_TRANSFER_ENCODING];
    if (*coding && *length) return BAD("a request has a length or chunks, not both");
    if (*coding && h->http10) return BAD("HTTP/1.0 has no chunks");
    if (*coding && strcasecmp(coding, "chunked") != 0)
        return REFUSE(501, "unsupported", "the only Transfer-Encoding served is chunked");
    if (*length && !is_length(length)) return BAD("Content-Length is not a number");
    h->framing = *coding ? HTTP_CHUNKED : *length ? HTTP_LENGTH : HTTP_NO_BODY;
    h->content_length = *length ? strtoll(length, NULL, 10) : 0;
    bool takes_body = h->method == HTTP_POST || h->method == HTTP_PUT || h->method == HTTP_PATCH;
    h->lacks_length = takes_body && h->framing == HTTP_NO_BODY;
    return OK;
}

static struct http_refusal judge(struct http_head *h) {
    const char *expect = h->header[HEADER_EXPECT], *coding = h->header[HEADER_CONTENT_ENCODING];
    struct http_refusal r = judge_framing(h);
    if (r.status) return r;
    if (!*h->header[HEADER_HOST]) return BAD("Host is missing");
    h->expects_continue = strcasecmp(expect, "100-continue") == 0;
    if (*expect && !h->expects_continue)
        return REFUSE(417, "unsupported", "the only expectation served is 100-continue");
    h->zipped = strcasecmp(coding, "gzip") == 0 || strcasecmp(coding, "x-gzip") == 0 ||
                strcasecmp(coding, "deflate") == 0;
    if (*coding && !h->zipped && strcasecmp(coding, "identity") != 0)
        return REFUSE(415, "unsupported", "Content-Encoding must be gzip, deflate or identity");
    if (http_has_token(h->header[HEADER_CONNECTION], "close")) h->keep_alive = false;
    return OK;
}

struct http_refusal http_head_parse(struct http_head *h, char *text, size_t len) {
    char *end = text + len, *line;
    int n_lines = 0;
    uint32_t seen = 0;
    memset(h, 0, sizeof(*h));
    for (int i = 0; i < HEADER_COUNT; i++) h->header[i] = "";
    if (memchr(text, '\0', len)) return BAD("a head has a NUL");
    bool bare_lf = has_bare_lf(text, len);
    line = next_line(&text, end);
    if (!line) return BAD("the head is empty");
    struct http_refusal r = parse_request_line(h, line);
    if (bare_lf) return BAD("a line of the head ends without CR");
    // A bad header line is reported before a bad method: it is about framing.
    while ((line = next_line(&text, end)) && *line) {
        if (++n_lines > HTTP_HEAD_LINES)
            return REFUSE(431, "too_large", "there are too many headers");
        struct http_refusal bad = parse_header(h, line, &seen);
        if (bad.status) return bad;
    }
    return r.status ? r : judge(h);
}

bool http_list_has(const char *list, const char *item, size_t len) {
    for (const char *p = list; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n == len && n > 0 && strncasecmp(p, item, n) == 0) return true;
        p += n;
    }
    return false;
}

bool http_has_token(const char *header, const char *token) {
    return http_list_has(header, token, strlen(token));
}

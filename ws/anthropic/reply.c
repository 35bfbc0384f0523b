// Errors and headers of replies. See reply.h.
#include "ws/anthropic/reply.h"
#include "base/clock.h"
#include "base/random_id.h"
#include "ws/anthropic/anthropic.h"
#include "ws/anthropic/messages_write.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

void anthropic_request_id(char out[REQUEST_ID_MAX]) {
    char id[RANDOM_ID_LEN + 1];
    random_id(id);
    snprintf(out, REQUEST_ID_MAX, "req_%s", id);
}

static void put_rate(struct buf *extra, const struct owner *o, enum owner_limit which,
                     const char *name) {
    char reset[32];
    int64_t full_ms = 0, limit = (int64_t)owner_limit_value(&o->limits, which);
    if (limit == 0) return;
    int64_t left = owner_rate_left(o, which, net_now_us(), &full_ms);
    time_t at = (time_t)((clock_wall_us(&clock_system) / 1000 + full_ms + 999) / 1000);
    struct tm utc;
    gmtime_r(&at, &utc);
    strftime(reset, sizeof reset, "%Y-%m-%dT%H:%M:%SZ", &utc);
    buf_addf(extra,
             "anthropic-ratelimit-%s-limit: %lld\r\nanthropic-ratelimit-%s-remaining: %lld\r\n"
             "anthropic-ratelimit-%s-reset: %s\r\n",
             name, (long long)limit, name, (long long)left, name, reset);
}

void anthropic_put_headers(struct buf *extra, const struct http *h, const char *request_id) {
    const struct owner *o = http_peer(h)->as.owner;
    buf_addf(extra, "request-id: %s\r\n", request_id);
    if (!o) return;
    put_rate(extra, o, OWNER_REQUESTS, "requests");
    put_rate(extra, o, OWNER_TOKENS, "tokens");
}

void anthropic_reply(struct http *h, struct buf *body) {
    char request_id[REQUEST_ID_MAX];
    struct buf extra;
    anthropic_request_id(request_id);
    buf_init(&extra, 2048);
    buf_addz(&extra, "cache-control: no-store\r\n");
    anthropic_put_headers(&extra, h, request_id);
    http_reply_buf(h, 200, "application/json", buf_z(&extra), body);
    buf_release(&extra);
    buf_release(body);
}

int anthropic_status(int status, const char *code) {
    if (status == 503)
        return strcmp(code, "overloaded") == 0 || strcmp(code, "shutting_down") == 0 ? 529 : 500;
    return status;
}

const char *anthropic_sentence(const char *code, const char *message, char out[600]) {
    if (strcmp(code, "context_length_exceeded") != 0) return message;
    snprintf(out, 600, "prompt is too long: %s", message);
    return out;
}

void anthropic_shape_error(struct http *h, struct http_error *e, struct buf *body,
                           struct buf *extra) {
    char request_id[REQUEST_ID_MAX], sentence[600];
    anthropic_request_id(request_id);
    e->status = anthropic_status(e->status, e->code);
    message_write_error(body, e->status, e->code, anthropic_sentence(e->code, e->message, sentence),
                        request_id);
    anthropic_put_headers(extra, h, request_id);
    // Anthropic's clients would retry, and waiting does not help.
    if (strcmp(e->code, "limit_reached") == 0) buf_addz(extra, "x-should-retry: false\r\n");
}

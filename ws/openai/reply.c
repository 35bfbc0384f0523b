// Errors, and the headers of all replies: an id for error reports, and the remaining rates, by which OpenAI's SDKs
// and agents pace themselves. See openai.h, failure.h.
#include "base/random_id.h"
#include "sessions/state/owners.h"
#include "ws/openai/failure.h"
#include "ws/openai/openai.h"

// A time in OpenAI's form: 250ms, 1.5s, 2m30s.
static void put_time(struct buf *out, int64_t ms) {
    if (ms < 1000)
        buf_addf(out, "%lldms", (long long)ms);
    else if (ms < 60000)
        buf_addf(out, "%lld.%03llds", (long long)(ms / 1000), (long long)(ms % 1000));
    else
        buf_addf(out, "%lldm%llds", (long long)(ms / 60000), (long long)(ms / 1000 % 60));
}

static void put_rate(struct buf *out, const struct owner *o, enum owner_limit which,
                     const char *name) {
    double limit = owner_limit_value(&o->limits, which);
    int64_t full_ms = 0;
    if (limit == 0) return; // there is none
    int64_t left = owner_rate_left(o, which, net_now_us(), &full_ms);
    buf_addf(out, "x-ratelimit-limit-%s: %.0f\r\nx-ratelimit-remaining-%s: %lld\r\n", name, limit,
             name, (long long)left);
    buf_addf(out, "x-ratelimit-reset-%s: ", name);
    put_time(out, full_ms > 0 ? full_ms : 0);
    buf_addz(out, "\r\n");
}

void openai_put_headers(const struct http *h, struct buf *out) {
    const struct owner *o = http_peer(h)->as.owner;
    char id[RANDOM_ID_LEN + 1];
    random_id(id);
    buf_addf(out, "x-request-id: req_%s\r\n", id);
    if (!o || !http_is_authorised(h)) return; // no token came
    put_rate(out, o, OWNER_REQUESTS, "requests");
    put_rate(out, o, OWNER_TOKENS, "tokens");
}

void openai_write_error(struct buf *out, int status, const char *code, const char *message) {
    struct completion_failure f = {0};
    openai_fail(&f, status, code, NULL, message);
    openai_write_failure(out, &f);
}

void openai_reply_failure(struct http *h, const struct completion_failure *f) {
    struct buf out, extra;
    buf_init(&out, 8192);
    buf_init(&extra, 256);
    openai_write_failure(&out, f);
    buf_addz(&extra, "cache-control: no-store\r\n");
    http_add_retry(&extra, f->retry_after_ms);
    http_reply_buf(h, f->status, "application/json", buf_z(&extra), &out);
    buf_release(&extra);
}

void openai_write_stream_failure(const struct http_completion *x,
                                 const struct completion_failure *f, struct buf *out) {
    buf_addz(out, "data: ");
    openai_write_failure(out, f);
    buf_addz(out, "\n\n");
}

void openai_stream_failure(struct http *h, const struct completion_failure *f) {
    struct buf out;
    buf_init(&out, 8192);
    openai_write_stream_failure(NULL, f, &out);
    http_stream_buf(h, &out);
    http_stream_end(h);
}

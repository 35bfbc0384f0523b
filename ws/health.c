// Health, readiness, metrics, configuration. See health.h.
#include "ws/health.h"
#include "base/json.h"
#include "ws/service.h"
#include "ws/version.h"

// One step is bounded by prefill_chunk_tokens; on slow processors with big models that is still
// many seconds.
#define HEARTBEAT_MIN_US 30000000
#define HEARTBEAT_STEPS 20
#define REPLY_MAX_BYTES (1 << 20)

static bool engine_alive(const struct service *s, int64_t *age_us) {
    struct engine_load load;
    engine_load(s->engine, &load);
    int64_t age = net_now_us() - load.heartbeat_us;
    int64_t limit = load.step_us_ewma * HEARTBEAT_STEPS;
    *age_us = load.heartbeat_us ? age : 0;
    if (load.running + load.queued == 0) return true; // at rest it has nothing to say
    return age < (limit > HEARTBEAT_MIN_US ? limit : HEARTBEAT_MIN_US);
}

static void begin(struct json_writer *w, struct buf *out) {
    buf_init(out, REPLY_MAX_BYTES);
    json_writer_init(w, out);
}

static void reply(struct http *h, int status, const char *type, struct buf *body) {
    http_reply_buf(h, status, type, "cache-control: no-store\r\n", body);
    buf_release(body);
}

static void finish(struct http *h, int status, struct json_writer *w) {
    json_close(w, '}');
    buf_addc(w->buf, '\n');
    reply(h, status, "application/json", w->buf);
}

bool health_is_live(const struct service *s) {
    int64_t age;
    return engine_alive(s, &age);
}

static const char *unready_reason(const struct service *s, const char **detail) {
    int64_t age;
    *detail = NULL;
    if (s->state != SERVICE_RUNNING) {
        *detail = "the server is shutting down";
        return "draining";
    }
    if (!engine_alive(s, &age)) {
        *detail = "the engine has not finished a step for too long";
        return "model";
    }
    return sessions_store_ok(s->sessions, detail) ? NULL : "store";
}

bool health_is_ready(const struct service *s) {
    const char *detail;
    return !unready_reason(s, &detail);
}

void health_live(void *user, struct http *h) {
    struct buf out;
    struct json_writer w;
    int64_t age;
    bool alive = engine_alive(user, &age); // that this runs is the net thread's sign of life
    begin(&w, &out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "status", alive ? "ok" : "stuck");
    json_put_string(&w, "version", PARLEY_VERSION);
    json_put_int(&w, "engine_heartbeat_ms", age / 1000);
    finish(h, alive ? 200 : 503, &w);
}

void health_ready(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const char *detail, *reason = unready_reason(s, &detail);
    begin(&w, &out);
    json_open(&w, NULL, '{');
    json_put_bool(&w, "ready", !reason);
    if (reason) json_put_string(&w, "reason", reason);
    if (!reason && !sessions_tail_ok(s->sessions, &detail))
        json_put_string(&w, "degraded", "tail"); // answers come in pieces of a commit interval
    if (detail) json_put_string(&w, "detail", detail);
    finish(h, reason ? 503 : 200, &w);
}

void health_metrics(void *user, struct http *h) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    metrics_write(((struct service *)user)->registry, &out);
    reply(h, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

void health_config(void *user, struct http *h) {
    struct buf out;
    struct json_writer w;
    begin(&w, &out);
    config_write_json(serve_config_table(), ((struct service *)user)->config, &w);
    buf_addc(&out, '\n');
    reply(h, 200, "application/json", &out);
}

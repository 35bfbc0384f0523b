// Health, readiness, metrics, configuration. See health.h.
#include "ws/net/health.h"
#include "ws/parley/connection.h"
#include "ws/version.h"
#include <string.h>

// One step is bounded by prefill_chunk_tokens; on slow processors with big models that is still
// many seconds.
#define HEARTBEAT_MIN_US 30000000
#define HEARTBEAT_STEPS 20

static bool engine_alive(const struct server *s, int64_t *age_us) {
    struct engine_load load;
    engine_load(s->engine, &load);
    int64_t age = server_now_us() - load.heartbeat_us;
    int64_t limit = load.step_us_ewma * HEARTBEAT_STEPS;
    *age_us = load.heartbeat_us ? age : 0;
    if (load.running + load.queued == 0) return true; // at rest it has nothing to say
    return age < (limit > HEARTBEAT_MIN_US ? limit : HEARTBEAT_MIN_US);
}

static int finish(struct json_writer *w, struct buf *out, int status) {
    json_close(w, '}');
    buf_addc(out, '\n');
    return status;
}

int health_live(struct server *s, struct buf *out) {
    struct json_writer w;
    int64_t age;
    bool alive = engine_alive(s, &age); // that this runs at all is the net thread's sign of life
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "status", alive ? "ok" : "stuck");
    json_put_string(&w, "version", PARLEY_VERSION);
    json_put_int(&w, "engine_heartbeat_ms", age / 1000);
    return finish(&w, out, alive ? 200 : 503);
}

int health_ready(struct server *s, struct buf *out) {
    struct json_writer w;
    int64_t age;
    const char *detail = NULL, *reason = NULL;
    if (s->state != SERVER_RUNNING)
        reason = "draining", detail = "the server is shutting down";
    else if (!engine_alive(s, &age))
        reason = "model", detail = "the engine has not finished a step for too long";
    else if (!sessions_store_ok(s->sessions, &detail))
        reason = "store";
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_bool(&w, "ready", !reason);
    if (reason) json_put_string(&w, "reason", reason);
    if (!reason && !sessions_tail_ok(s->sessions, &detail))
        json_put_string(&w, "degraded", "tail"); // answers come in pieces of a commit interval
    if (detail) json_put_string(&w, "detail", detail);
    return finish(&w, out, reason ? 503 : 200);
}

int health_metrics(struct server *s, struct buf *out) {
    return metrics_write(s->registry, out) < 0 ? 500 : 200;
}

int health_config(struct server *s, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    config_write_json(serve_config_table(), s->config, &w);
    buf_addc(out, '\n');
    return out->error ? 500 : 200;
}

// --- metrics ---

static double uptime(void *ctx) {
    return (double)(server_now_us() - ((struct server *)ctx)->start_us) / 1e6;
}
static double n_connections(void *ctx) {
    return (double)((struct server *)ctx)->n_peers;
}
static double n_websockets(void *ctx) {
    return (double)((struct server *)ctx)->n_connections;
}
static double n_turns(void *ctx) {
    struct server *s = ctx;
    return s->sessions ? sessions_n_running(s->sessions) : 0;
}

void health_register(struct server *s) {
    static const double token_bounds[] = {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3,
                                          5e-3,  10e-3,  50e-3,  250e-3, 1};
    struct metrics *m = s->registry;
    struct server_metrics *x = &s->metrics;
    metrics_gauge_fn(m, "parley_uptime_seconds", "Time since the start", NULL, uptime, s);
    metrics_gauge_fn(m, "parley_connections", "Open sockets", NULL, n_connections, s);
    metrics_gauge_fn(m, "parley_websockets", "Open WebSockets", NULL, n_websockets, s);
    metrics_gauge_fn(m, "parley_turns", "Turns running or queued", NULL, n_turns, s);
    x->accepted = metrics_counter(m, "parley_accepted_total", "Sockets accepted", NULL);
    static const char *refused = "Sockets refused at accept, by the limit they met";
    x->refused_total =
        metrics_counter(m, "parley_refused_total", refused, "limit=\"max_connections\"");
    x->refused_ip =
        metrics_counter(m, "parley_refused_total", refused, "limit=\"max_connections_per_ip\"");
    x->messages_in =
        metrics_counter(m, "parley_messages_in_total", "WebSocket messages received", NULL);
    x->frames_out = metrics_counter(m, "parley_frames_out_total", "WebSocket messages sent", NULL);
    x->bytes_out = metrics_counter(m, "parley_bytes_out_total", "Payload bytes written", NULL);
    x->errors_out =
        metrics_counter(m, "parley_error_messages_total", "Error messages sent to clients", NULL);
    x->slow_readers = metrics_counter(m, "parley_slow_readers_total",
                                      "Connections cut off for reading too slowly", NULL);
    x->rate_limited =
        metrics_counter(m, "parley_rate_limited_total", "Messages refused by the rate limit", NULL);
    static const char *http = "HTTP answers by class of status";
    x->http_2xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"2xx\"");
    x->http_4xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"4xx\"");
    x->http_5xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"5xx\"");
    x->token_to_socket =
        metrics_histogram(m, "parley_token_to_socket_seconds",
                          "From the draw of a token to the write of the delta that tells it", NULL,
                          token_bounds, (int)(sizeof(token_bounds) / sizeof(token_bounds[0])));
}

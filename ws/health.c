// Health, readiness, metrics, configuration. See health.h.
#include "ws/health.h"
#include "base/json_form.h"
#include "ws/service.h"
#include "ws/version.h"
#include <string.h>

// One step is bounded by prefill_chunk_tokens; on slow processors with big models that is still
// many seconds.
#define HEARTBEAT_MIN_US 30000000
#define HEARTBEAT_STEPS 20
#define REPLY_MAX_BYTES (1 << 20)
#define HISTORY_MAX_BYTES (1 << 23)

static bool engine_alive(const struct engine *e, int64_t *age_us) {
    struct engine_load load;
    engine_load(e, &load);
    int64_t age = net_now_us() - load.heartbeat_us;
    int64_t limit = load.step_us_ewma * HEARTBEAT_STEPS;
    *age_us = load.heartbeat_us ? age : 0;
    if (load.running + load.queued == 0) return true; // at rest it has nothing to say
    return age < (limit > HEARTBEAT_MIN_US ? limit : HEARTBEAT_MIN_US);
}

static const struct instance *instances(const struct service *s) {
    return sessions_placement(s->sessions)->instances;
}

// The oldest heartbeat. A server whose engine stands still is restarted, also where others work:
// nothing else gets a hanging device back. An engine process is restarted by its server.
static bool engines_alive(const struct service *s, int64_t *age_us) {
    bool alive = true;
    *age_us = 0;
    for (const struct instance *i = instances(s); i; i = i->next) {
        int64_t age;
        if (!engine_alive(i->engine, &age) && !i->reopens) alive = false;
        if (age > *age_us) *age_us = age;
    }
    return alive;
}

static bool is_lost(const struct instance *i) {
    struct engine_load load;
    engine_load(i->engine, &load);
    return load.device_lost;
}

static bool model_is_lost(const struct service *s, const struct served_model *m) {
    for (const struct instance *i = instances(s); i; i = i->next)
        if (i->model == m && (i->reopens || !is_lost(i))) return false;
    return true;
}

bool health_is_lost(const struct service *s) {
    const struct served_model *m = sessions_placement(s->sessions)->models;
    while (m && !model_is_lost(s, m)) m = m->next;
    return m;
}

static bool takes_turns(const struct instance *i) {
    int64_t age;
    return i->state == INSTANCE_SERVING && engine_alive(i->engine, &age) && !is_lost(i);
}

static bool any_takes_turns(const struct service *s) {
    const struct instance *i = instances(s);
    while (i && !takes_turns(i)) i = i->next;
    return i;
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
    return engines_alive(s, &age);
}

static const char *unready_reason(const struct service *s, const char **detail) {
    *detail = NULL;
    if (s->state != SERVICE_RUNNING) {
        *detail = "the server is shutting down";
        return "draining";
    }
    if (!any_takes_turns(s)) {
        *detail = instances(s) ? "no instance of a model takes turns: see instances"
                               : "no model is loaded";
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
    bool alive = engines_alive(user, &age); // that this runs is the net thread's sign of life
    begin(&w, &out);
    json_form(&w, "{status:%s,version:%s,engine_heartbeat_ms:%ld", alive ? "ok" : "stuck",
              PARLEY_VERSION, age / 1000);
    finish(h, alive ? 200 : 503, &w);
}

// A state of the instance, or "stuck". A lost device shows here before the sessions have noticed it.
#define STUCK "stuck"
static const char *shown_state(const struct instance *i) {
    int64_t age;
    if (i->state == INSTANCE_DRAINED) return instance_state_name(i->state);
    if (is_lost(i)) return instance_state_name(INSTANCE_LOST);
    return engine_alive(i->engine, &age) ? instance_state_name(i->state) : STUCK;
}

static void put_instance(struct json_writer *w, const struct instance *i) {
    json_form(w, "{name:%s,model:%s,state:%s,turns:%ld,sessions:%ld}", i->name, i->model->name,
              shown_state(i), i->n_turns, i->n_sessions);
}

static void put_instances(struct json_writer *w, const struct service *s) {
    json_open(w, "instances", '[');
    for (const struct instance *i = instances(s); i; i = i->next) put_instance(w, i);
    json_close(w, ']');
}

void health_ready(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const char *detail, *reason = unready_reason(s, &detail);
    begin(&w, &out);
    json_form(&w, "{ready:%hhd", !reason);
    if (reason) json_put_string(&w, "reason", reason);
    if (!reason && !sessions_tail_ok(s->sessions, &detail))
        json_put_string(&w, "degraded", "tail"); // answers come in pieces of a commit interval
    if (detail) json_put_string(&w, "detail", detail);
    put_instances(&w, s);
    finish(h, reason ? 503 : 200, &w);
}

// A model's name is that of a folder, and may have any character.
static void add_label_value(struct buf *out, const char *value) {
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"' || *p == '\n') buf_addc(out, '\\');
        buf_addc(out, *p == '\n' ? 'n' : *p);
    }
}

static void add_state(struct buf *out, const struct instance *i, const char *state) {
    buf_addz(out, "parley_instance_state{");
    if (*i->name) buf_addf(out, "engine=\"%s\",", i->name);
    buf_addz(out, "model=\"");
    add_label_value(out, i->model->name);
    buf_addf(out, "\",state=\"%s\"} %d\n", state, strcmp(state, shown_state(i)) == 0);
}

// Not in the registry: instances come, go and change their model's name while the server runs.
static void add_states(struct buf *out, const struct service *s) {
    const struct instance *i = instances(s);
    if (!i) return;
    buf_addz(out, "# HELP parley_instance_state 1 in the row of an instance's state, else 0.\n"
                  "# TYPE parley_instance_state gauge\n");
    for (; i; i = i->next) {
        for (int state = 0; state < N_INSTANCE_STATES; state++)
            add_state(out, i, instance_state_name(state));
        add_state(out, i, STUCK);
    }
}

void health_metrics(void *user, struct http *h) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    metrics_write(((struct service *)user)->registry, &out);
    add_states(&out, user);
    reply(h, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

void health_history(void *user, struct http *h) {
    struct buf out;
    buf_init(&out, HISTORY_MAX_BYTES);
    metrics_history_write(&((struct service *)user)->history, net_now_us(), &out);
    reply(h, 200, "text/plain; charset=utf-8", &out);
}

void health_config(void *user, struct http *h) {
    struct buf out;
    struct json_writer w;
    begin(&w, &out);
    const struct serve_config *c = ((struct service *)user)->config;
    json_open(&w, NULL, '{');
    config_put_sections(serve_config_table(), c, &w);
    if (c->parts.first) config_put_parts(&w, "instances", &c->parts);
    finish(h, 200, &w);
}

// Loading and unloading while the server runs. See hosting.h.
//
// A tick looks at what is under way: it is there while something is. An engine that has been taken
// from the session service may still be used for texts by workers; it is closed when they have let go.
#include "ws/hosting.h"
#include "base/json_form.h"
#include "base/log.h"
#include "base/thread.h"
#include "sessions/sessions.h"
#include "ws/service.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define TICK_MS 20

// One engine that a thread opens or closes.
struct task {
    struct hosting *hosting;
    struct hosted *hosted;
    const struct served_model *model; // CLOSING: waits until it is unused; NULL: it need not
    pthread_t thread;
    bool runs;
    atomic_bool done;
    int rc; // of the thread
    struct err err;
    struct task *prev, *next;
};
struct hosting {
    struct instances *instances;
    struct service *service;
    struct task *tasks;
    uv_timer_t tick;
};

static struct instance *served(const struct hosting *h, const char *name) {
    return placement_find(sessions_placement(h->service->sessions), name);
}

// --- threads ---

static void *open_engine(void *arg) {
    struct task *t = arg;
    static const struct instance_opening alone;
    pthread_setname_np(pthread_self(), "parley-load");
    t->rc = instances_open_one(t->hosting->instances, t->hosted, &alone, &t->err);
    if (t->rc == 0) sessions_tidy(t->hosted->engine, t->hosting->service->config->db);
    atomic_store(&t->done, true);
    return NULL;
}

static void *close_engine(void *arg) {
    struct task *t = arg;
    pthread_setname_np(pthread_self(), "parley-unload");
    engine_unload(t->hosted->engine);
    t->hosted->engine = NULL;
    atomic_store(&t->done, true);
    return NULL;
}

static int task_start(struct task *t, void *(*run)(void *), struct err *err) {
    int rc = thread_start(&t->thread, run, t);
    t->runs = rc == 0;
    return rc == 0 ? 0 : err_set(err, E_NOMEM, "a thread cannot start: %s", strerror(rc));
}

static void task_join(struct task *t) {
    if (t->runs) pthread_join(t->thread, NULL);
    t->runs = false;
}

static void task_free(struct task *t) {
    DL_DELETE(t->hosting->tasks, t);
    placement_drop(t->model);
    free(t);
}

static void on_tick(uv_timer_t *handle);

static struct task *task_new(struct hosting *h, struct hosted *hosted) {
    struct task *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->hosting = h;
    t->hosted = hosted;
    DL_APPEND(h->tasks, t);
    uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    return t;
}

// --- what is under way ---

static void failed(struct hosted *hosted, const struct err *err) {
    char quoted[1200];
    hosted->why = *err;
    hosted_set(hosted, HOSTED_FAILED);
    log_error("instance.load", "instance=%s error=%s", hosted->name,
              log_quote(quoted, sizeof quoted, err->text));
}

static void end_loading(struct task *t) {
    struct hosted *x = t->hosted;
    task_join(t);
    if (t->rc == 0)
        t->rc = instances_add_one(t->hosting->instances, x, t->hosting->service->sessions, true,
                                  &t->err);
    if (t->rc == 0) {
        log_info("instance.loaded", "instance=%s model=%s", x->name,
                 engine_info(x->engine)->model_name);
    } else {
        engine_unload(x->engine); // its thread has nothing to do
        x->engine = NULL;
        failed(x, &t->err);
    }
    service_poll_soon(t->hosting->service);
    task_free(t);
}

static void remove_drained(struct task *t) {
    struct err err = {0};
    struct hosted *x = t->hosted;
    int rc = sessions_remove_instance(t->hosting->service->sessions, x->name, &t->model, &err);
    service_poll_soon(t->hosting->service);
    if (rc == 0) hosted_set(x, HOSTED_CLOSING); // else it is not drained yet
}

static void close_unused(struct task *t) {
    struct err err = {0};
    if (t->runs || (t->model && !placement_is_unused(t->model))) return;
    if (task_start(t, close_engine, &err) < 0)
        log_warn("instance.unload", "error=\"%s\"", err.text);
}

static void end_closing(struct task *t) {
    task_join(t);
    log_info("instance.unloaded", "instance=%s", t->hosted->name);
    instances_forget(t->hosting->instances, t->hosted);
    task_free(t);
}

static void go_on(struct task *t) {
    enum hosted_state state = t->hosted->state;
    if (state == HOSTED_LOADING && atomic_load(&t->done))
        end_loading(t);
    else if (state == HOSTED_UNLOADING)
        remove_drained(t);
    else if (state == HOSTED_CLOSING && atomic_load(&t->done))
        end_closing(t);
    else if (state == HOSTED_CLOSING)
        close_unused(t);
}

static void on_tick(uv_timer_t *handle) {
    struct hosting *h = handle->data;
    struct task *t, *next;
    DL_FOREACH_SAFE(h->tasks, t, next) go_on(t);
    if (!h->tasks) uv_timer_stop(&h->tick);
}

// --- requests ---

static int give(struct config_parts *parts, struct config_part *p, const cJSON *v,
                struct err *err) {
    const struct config_key *key = config_find(serve_config_table(), v->string);
    struct buf text;
    if (!key) return err_set(err, E_NOTFOUND, "there is no setting '%.64s'", v->string);
    if (!parts->may_give(key))
        return err_set(err, E_INVAL, "'%s' holds for the whole server", key->name);
    buf_init(&text, 1 << 16);
    if (cJSON_IsString(v))
        buf_addz(&text, v->valuestring);
    else if (cJSON_IsBool(v))
        buf_addz(&text, cJSON_IsTrue(v) ? "on" : "off");
    else if (cJSON_IsNumber(v))
        buf_add_double(&text, v->valuedouble);
    int rc = text.error;
    if (rc == 0 && text.len == 0 && !cJSON_IsString(v))
        rc = err_set(err, E_INVAL, "'%s' must be a text, a number or a boolean", key->name);
    if (rc == 0) rc = config_part_give(p, key, buf_z(&text));
    buf_release(&text);
    return rc < 0 && err->code == 0 ? err_set(err, rc, "'%s': %s", key->name, err_name(rc)) : rc;
}

static const struct config_part *section(const struct hosting *h, const char *name) {
    const struct config_part *p = h->instances->config->parts.first;
    while (p && strcmp(p->name, name) != 0) p = p->next;
    return p;
}

static int plan(struct hosting *h, const char *name, const cJSON *settings, struct hosted **out,
                struct err *err) {
    struct config_parts parts = h->instances->config->parts;
    parts.first = NULL;
    if (!settings) return instances_plan_more(h->instances, name, section(h, name), out, err);
    struct config_part *p = config_part_add(&parts, name, err);
    int rc = p ? 0 : err->code;
    const cJSON *v;
    cJSON_ArrayForEach(v, settings) {
        if (rc == 0) rc = give(&parts, p, v, err);
    }
    if (rc == 0) rc = instances_plan_more(h->instances, name, p, out, err);
    config_parts_release(&parts);
    return rc;
}

int hosting_load(struct hosting *h, const char *name, const cJSON *settings, struct err *err) {
    struct hosted *x = instances_find(h->instances, name);
    if (h->service->state != SERVICE_RUNNING)
        return err_set(err, E_BUSY, "the server is shutting down");
    const struct instance *i = served(h, name);
    if (i && i->state != INSTANCE_SERVING)
        return err_set(err, E_EXISTS, "instance '%s' is %s; unload it before you load it again",
                       name, instance_state_name(i->state));
    if (x && x->state == HOSTED_FAILED) instances_forget(h->instances, x);
    TRY(plan(h, name, settings, &x, err));
    struct task *t = task_new(h, x);
    if (!t || task_start(t, open_engine, err) < 0) {
        if (t) task_free(t);
        instances_forget(h->instances, x);
        return err_set(err, E_NOMEM, "no memory to load an instance");
    }
    hosted_set(x, HOSTED_LOADING);
    log_info("instance.loading", "instance=%s", name);
    return 0;
}

int hosting_drain(struct hosting *h, const char *name, bool last, struct err *err) {
    service_poll_soon(h->service);
    return sessions_drain_instance(h->service->sessions, name, last, err);
}

int hosting_unload(struct hosting *h, const char *name, bool last, struct err *err) {
    struct hosted *x = instances_find(h->instances, name);
    if (x && x->state == HOSTED_FAILED) {
        instances_forget(h->instances, x);
        return 0;
    }
    if (x && x->state != HOSTED_OPEN && x->state != HOSTED_UNLOADING)
        return err_set(err, E_BUSY, "instance '%s' is %s", name, hosted_state_name(x->state));
    TRY(hosting_drain(h, name, last, err));
    if (x->state == HOSTED_UNLOADING) return 0;
    if (!task_new(h, x)) return err_set(err, E_NOMEM, "no memory to unload an instance");
    hosted_set(x, HOSTED_UNLOADING);
    return 0;
}

int hosting_reached(const struct hosting *h, const char *name, enum hosting_goal goal,
                    struct err *err) {
    const struct hosted *x = instances_find(h->instances, name);
    const struct instance *i = served(h, name);
    if (goal == HOSTING_GONE) return !x;
    if (!x) return err_set(err, E_NOTFOUND, "instance '%s' was unloaded", name);
    if (x->state == HOSTED_FAILED) return err_set(err, x->why.code, "%s", x->why.text);
    if (!i) return 0;
    if (i->state == INSTANCE_LOST && goal == HOSTING_SERVES)
        return err_set(err, E_DEVICE, "instance '%s' is lost", name);
    return goal == HOSTING_SERVES ? i->state == INSTANCE_SERVING : i->state == INSTANCE_DRAINED;
}

static const char *state_of(const struct hosted *x, const struct instance *i) {
    if (!i || x->state != HOSTED_OPEN) return hosted_state_name(x->state);
    return instance_state_name(i->state);
}

static void put_loss(struct json_writer *w, const struct instance *i) {
    char why[ENGINE_WHY_MAX];
    engine_why_lost(i->engine, why, sizeof why);
    json_form(w, "lost_ms:%ld,error?:%s", i->lost_ms, why);
}

void hosting_put(const struct hosting *h, struct json_writer *w) {
    const struct hosted *x;
    DL_FOREACH(h->instances->list, x) {
        const struct instance *i = served(h, x->name);
        json_form(w, "{name:%s,state:%s,folder:%s,turns:%ld,sessions:%ld,max_sequences:%ld",
                  x->name, state_of(x, i), x->config.model.model, i ? i->n_turns : 0,
                  i ? i->n_sessions : 0, i ? i->max_sequences : x->config.max_sequences);
        json_put_string(w, "model", i ? i->model->name : NULL);
        json_put_string(w, "backend", i ? i->info->backend : NULL);
        if (x->state == HOSTED_FAILED) json_put_string(w, "error", x->why.text);
        if (i && i->state == INSTANCE_LOST) put_loss(w, i);
        json_close(w, '}');
    }
}

// --- life ---

int hosting_open(struct hosting **out, struct instances *v, struct service *s, struct err *err) {
    struct hosting *h = calloc(1, sizeof *h);
    if (!h) return err_set(err, E_NOMEM, "no memory for the server");
    h->instances = v;
    h->service = s;
    uv_timer_init(&s->net->loop, &h->tick);
    h->tick.data = h;
    *out = h;
    return 0;
}

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

// An engine that is not the service's yet, or any more, is closed with the others.
void hosting_close(struct hosting *h) {
    struct task *t, *next;
    if (!h) return;
    DL_FOREACH_SAFE(h->tasks, t, next) {
        task_join(t);
        task_free(t);
    }
    uv_close((uv_handle_t *)&h->tick, on_closed);
}

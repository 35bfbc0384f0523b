// The engines of a server. See instances.h.
#include "ws/instances.h"
#include "base/cgroup.h"
#include "base/err.h"
#include "base/log.h"
#include "sessions/sessions.h"
#include "ws/progress.h"
#include "ws/suggestions.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#define TO(state) (1u << HOSTED_##state)
static const struct {
    const char *name;
    unsigned next;
} states[N_HOSTED_STATES] = {
    [HOSTED_PLANNED] = {"planned", TO(LOADING) | TO(OPEN)},
    [HOSTED_LOADING] = {"loading", TO(OPEN) | TO(FAILED)},
    [HOSTED_FAILED] = {"failed", 0},
    [HOSTED_OPEN] = {"open", TO(UNLOADING)},
    [HOSTED_UNLOADING] = {"unloading", TO(CLOSING)},
    [HOSTED_CLOSING] = {"closing", 0},
};

void hosted_set(struct hosted *h, enum hosted_state to) {
    assert(states[h->state].next >> to & 1);
    h->state = to;
}

const char *hosted_state_name(enum hosted_state s) {
    return states[s].name;
}

struct hosted *instances_find(const struct instances *v, const char *name) {
    struct hosted *h;
    DL_FOREACH(v->list, h) {
        if (strcmp(h->name, name) == 0) return h;
    }
    return NULL;
}

size_t instances_n(const struct instances *v) {
    const struct hosted *h;
    size_t n;
    DL_COUNT(v->list, h, n);
    return n;
}

// --- the plan ---

static int set(struct serve_config *c, const char *key, const char *value, struct err *err) {
    return config_set(serve_config_table(), c, key, value, err);
}

// Several instances share the cores, where their number of threads is not set.
static int share_cores(struct serve_config *c, int64_t n, struct err *err) {
    char text[24];
    int64_t cores = cgroup_processors();
    if (c->model.threads != 0 || n < 2) return 0;
    snprintf(text, sizeof text, "%lld", (long long)(cores / n > 1 ? cores / n : 1));
    return set(c, "threads", text, err);
}

// Instances without sections take the devices in order, or the GPUs in turn, and a part of one each where they are
// more.
static int share_devices(struct serve_config *c, int64_t i, int64_t n, struct err *err) {
    char text[24], devices[ENGINE_DEVICES_BYTES];
    struct engine_options o;
    int32_t on_it;
    model_settings_engine(&c->model, &o);
    TRY(engine_devices(&o, (int32_t)i, (int32_t)n, devices, &on_it, err));
    TRY(set(c, "device", devices, err));
    if (on_it < 2) return 0;
    snprintf(text, sizeof text, "%g", c->model.gpu_memory_fraction / on_it);
    return set(c, "gpu_memory_fraction", text, err);
}

// engine_process = auto: a process for each instance that can be lost without the server: of several ranks, on a
// GPU, beside others.
static int choose_process(struct serve_config *c, int64_t n, struct err *err) {
    bool gpus[ENGINE_MAX_GPUS];
    struct engine_options o;
    if (c->engine_process != SERVE_PROCESS_AUTO) return 0;
    model_settings_engine(&c->model, &o);
    bool on = n > 1 || o.tensor_parallel * o.pipeline_parallel > 1 || engine_gpus(&o, gpus) > 0;
    return set(c, "engine_process", on && !engine_is_launched() ? "on" : "off", err);
}

static bool gives(const struct config_part *p, const char *key) {
    for (size_t i = 0; p && i < p->n_given; i++)
        if (strcmp(p->given[i].key->name, key) == 0) return true;
    return false;
}

// Only one engine can use a folder of snapshots.
static int own_folder(struct hosted *h, const struct config_part *p, struct err *err) {
    char path[4200];
    if (!*h->config.snapshot_dir || gives(p, "snapshot_dir")) return 0;
    snprintf(path, sizeof path, "%.4000s/%s", h->config.snapshot_dir, h->name);
    return set(&h->config, "snapshot_dir", path, err);
}

// Instance i of n. Without a section of its own, it gets its part of what the instances share.
static int plan_one(struct instances *v, const char *name, const struct config_part *p, int64_t i,
                    int64_t n, struct err *err) {
    struct config_parts none = {0};
    struct hosted *h = calloc(1, sizeof *h);
    if (!h) return err_set(err, E_NOMEM, "out of memory for instances");
    int rc = config_part_settings(serve_config_table(), v->config, p, &h->config, err);
    if (rc < 0) {
        free(h);
        return rc;
    }
    DL_APPEND(v->list, h); // released with the others
    h->config.parts = none;
    if (name) snprintf(h->name, sizeof h->name, "%s", name);
    if (!p && n > 1) TRY(share_devices(&h->config, i, n, err));
    return h->name[0] ? own_folder(h, p, err) : 0;
}

static int plan_all(struct instances *v, struct err *err) {
    const struct config_part *p = v->config->parts.first;
    int64_t n = p ? 0 : v->config->instances, i = 0;
    struct hosted *h;
    for (; p; p = p->next) n++;
    for (p = v->config->parts.first; p; p = p->next) TRY(plan_one(v, p->name, p, i++, n, err));
    for (; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i + 1);
        TRY(plan_one(v, n > 1 ? number : NULL, NULL, i, n, err));
    }
    DL_FOREACH(v->list, h) {
        TRY(share_cores(&h->config, n, err));
        TRY(choose_process(&h->config, n, err));
    }
    return 0;
}

// *err names the instance, if it has a name.
static int err_of(const struct hosted *h, int rc, const struct err *why, struct err *err) {
    if (h->name[0]) return err_set(err, rc, "instance %s: %s", h->name, why->text);
    return err_set(err, rc, "%s", why->text);
}

// Two spellings of one folder pass here; the folder's lock refuses the second (engine/cache/snapshots.h).
static int check_folder(const struct instances *v, const struct hosted *h, struct err *err) {
    const char *dir = h->config.snapshot_dir;
    const struct hosted *other;
    DL_FOREACH(v->list, other) {
        if (other == h) break;
        bool same = *dir && strcmp(other->config.snapshot_dir, dir) == 0;
        if (same && other->state != HOSTED_FAILED)
            return err_set(err, E_INVAL, "snapshot_dir %s: instance %s uses it already", dir,
                           other->name);
    }
    return 0;
}

static int check_one(const struct instances *v, const struct hosted *h, struct err *err) {
    struct err why = {0};
    int rc = serve_config_check(&h->config, &why);
    if (rc == 0) rc = check_folder(v, h, &why);
    if (rc == 0) return 0;
    return err_of(h, rc, &why, err);
}

int instances_plan(struct instances *v, const struct serve_config *c, struct err *err) {
    struct hosted *h;
    v->config = c;
    int rc = plan_all(v, err);
    DL_FOREACH(v->list, h) {
        if (rc >= 0) rc = check_one(v, h, err);
    }
    if (rc < 0) instances_release(v);
    return rc;
}

int instances_plan_more(struct instances *v, const char *name, const struct config_part *p,
                        struct hosted **out, struct err *err) {
    int64_t n = (int64_t)instances_n(v) + 1;
    struct hosted *last = v->list ? v->list->prev : NULL;
    if (!instance_name_valid(name))
        return err_set(err, E_INVAL, "'%.40s': a name has 1 to %d letters, digits, '-', '_' or '.'",
                       name, INSTANCE_NAME_MAX);
    if (instances_find(v, name))
        return err_set(err, E_EXISTS, "there is an instance '%s' already", name);
    int rc = plan_one(v, name, p, 0, 1, err);
    struct hosted *h = v->list && v->list->prev != last ? v->list->prev : NULL;
    if (rc == 0) rc = share_cores(&h->config, n, err);
    if (rc == 0) rc = choose_process(&h->config, n, err);
    if (rc == 0) rc = check_one(v, h, err);
    if (rc < 0 && h) instances_forget(v, h);
    *out = rc < 0 ? NULL : h;
    return rc;
}

void instances_forget(struct instances *v, struct hosted *h) {
    DL_DELETE(v->list, h);
    serve_config_release(&h->config);
    free(h);
}

// --- opening ---

static int decide_process(const struct serve_config *c, struct engine_options *o, struct err *err) {
    if (c->engine_process != SERVE_PROCESS_ON) return 0;
    if (engine_is_launched())
        return err_set(err, E_UNSUPPORTED,
                       "engine_process: not under mpirun or srun, whose ranks are the job's own "
                       "processes; leave it off");
    o->process = "/proc/self/exe";
    o->process_timeout = c->engine_timeout;
    o->process_backoff = c->engine_backoff;
    o->run_ahead = c->run_ahead;
    return 0;
}

static int open_one(const struct instances *v, struct hosted *h,
                    const struct instance_opening *with, struct err *err) {
    const struct serve_config *c = &h->config;
    struct engine_options o;
    model_settings_engine(&c->model, &o);
    o.host_cache_bytes = c->host_cache_bytes;
    o.snapshot_dir = *c->snapshot_dir ? c->snapshot_dir : NULL;
    o.snapshot_bytes = c->snapshot_bytes;
    o.max_sequences = (int32_t)c->max_sequences;
    o.max_queued_turns = (int32_t)c->max_queued_turns;
    o.wake = v->wake;
    o.wake_ctx = v->wake_ctx;
    TRY(decide_process(c, &o, err));
    o.metrics = v->metrics;
    o.instance = h->name[0] ? h->name : NULL;
    o.n_beside = with->n_beside;
    o.wanted = with->wanted;
    o.wanted_ctx = with->wanted_ctx;
    o.progress = with->loading ? progress_report : NULL;
    o.progress_ctx = with->loading;
    o.measuring = with->measuring ? progress_report : NULL;
    o.measuring_ctx = with->measuring;
    return engine_open(&h->engine, &o, err);
}

// The folder around those of the instances.
static int make_folder(const struct instances *v, const struct hosted *h, struct err *err) {
    const char *dir = v->config->snapshot_dir;
    if (!h->name[0] || !*dir || !*h->config.snapshot_dir) return 0;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) return err_errno(err, "cannot create %s", dir);
    return 0;
}

int instances_open_one(const struct instances *v, struct hosted *h,
                       const struct instance_opening *with, struct err *err) {
    struct err why = {0};
    int rc = make_folder(v, h, &why);
    if (rc >= 0) rc = open_one(v, h, with, &why);
    if (rc >= 0) return 0;
    return err_of(h, rc, &why, err);
}

int instances_add_one(const struct instances *v, struct hosted *h, struct sessions *ss,
                      bool is_tidy, struct err *err) {
    const struct serve_config *c = &h->config;
    const struct engine_info *info = engine_info(h->engine);
    struct instance_options o = {.name = h->name,
                                 .alias = c->model_name,
                                 .engine = h->engine,
                                 .is_tidy = is_tidy,
                                 .reopens = engine_reopens(h->engine),
                                 .max_sequences = info->max_sequences,
                                 .memory_len = (int32_t)c->model.memory_len,
                                 .sink_len = (int32_t)c->model.sink_len,
                                 .session_len = c->model.session_len,
                                 .volatile_text = v->volatile_text,
                                 .sampling = info->suggested};
    TRY(serve_config_sampling(c, &o.sampling, err));
    TRY(sampling_params_check(&o.sampling, info->n_vocab, err));
    // A file that is not as it should be costs no model: the chat is empty without it too.
    char *suggestions = NULL, quoted[1200];
    struct err why = {0};
    if (suggestions_read(c->model.model, &suggestions, &why) < 0)
        log_warn("model.suggestions", "error=%s", log_quote(quoted, sizeof quoted, why.text));
    o.suggestions = suggestions;
    int rc = sessions_add_instance(ss, &o, err);
    free(suggestions);
    if (rc < 0) return rc;
    hosted_set(h, HOSTED_OPEN);
    return 0;
}

int instances_add(struct instances *v, struct sessions *ss, struct err *err) {
    struct hosted *h;
    DL_FOREACH(v->list, h) TRY(instances_add_one(v, h, ss, false, err));
    return 0;
}

void instances_save_at_stop(struct instances *v) {
    struct hosted *h;
    DL_FOREACH(v->list, h) {
        if (h->engine) engine_save_at_stop(h->engine);
    }
}

void instances_release(struct instances *v) {
    struct hosted *h;
    DL_FOREACH(v->list, h) { // all at once: each may take seconds to write snapshots
        if (h->engine) engine_stop(h->engine);
    }
    while (v->list) {
        engine_close(v->list->engine);
        instances_forget(v, v->list);
    }
}

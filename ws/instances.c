// The engines of a server. See instances.h.
#include "ws/instances.h"
#include "base/cgroup.h"
#include "base/err.h"
#include "sessions/sessions.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAR_WIDTH 30

// --- progress ---

struct bar {
    const char *what;
    int shown; // percent; -1: nothing yet
};

static void on_progress(void *ctx, int64_t done, int64_t total) {
    struct bar *b = ctx;
    int percent = total > 0 ? (int)(done * 100 / total) : 100;
    if (percent == b->shown) return;
    b->shown = percent;
    int full = percent * BAR_WIDTH / 100;
    fprintf(stderr, "\r%s [%.*s%*s] %3d %%", b->what, full, "##############################",
            BAR_WIDTH - full, "", percent);
    if (percent == 100) fputc('\n', stderr);
}

// --- the plan ---

static int set(struct serve_config *c, const char *key, const char *value, struct err *err) {
    return config_set(serve_config_table(), c, key, value, err);
}

// Several instances share the cores, where their number of threads is not set.
static int share_cores(struct serve_config *c, int64_t n, struct err *err) {
    char text[24];
    int64_t cores = cgroup_processors();
    if (c->threads != 0 || n < 2) return 0;
    snprintf(text, sizeof text, "%lld", (long long)(cores / n > 1 ? cores / n : 1));
    return set(c, "threads", text, err);
}

// Instances without sections take the GPUs in turn, and a part of one each where they are more.
static int share_devices(struct serve_config *c, int64_t i, int64_t n, struct err *err) {
    char text[40];
    int n_gpus = strcmp(c->device, "auto") == 0 ? engine_n_gpus() : 0;
    if (n_gpus == 0) return 0;
    snprintf(text, sizeof text, "cuda:%d", (int)(i % n_gpus));
    TRY(set(c, "device", text, err));
    int64_t on_it = n / n_gpus + (i % n_gpus < n % n_gpus);
    snprintf(text, sizeof text, "%g", c->gpu_memory_fraction / (double)on_it);
    return set(c, "gpu_memory_fraction", text, err);
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

static int plan_one(struct instances *v, const struct config_part *p, struct err *err) {
    struct hosted *h = &v->list[v->n];
    int64_t n = v->config->instances;
    struct config_parts none = {0};
    TRY(config_part_settings(serve_config_table(), v->config, p, &h->config, err));
    h->config.parts = none;
    if (p)
        snprintf(h->name, sizeof h->name, "%s", p->name);
    else if (n > 1)
        snprintf(h->name, sizeof h->name, "%zu", v->n + 1);
    int rc = p || n < 2 ? 0 : share_devices(&h->config, (int64_t)v->n, n, err);
    v->n++; // released with the others
    TRY(rc);
    return h->name[0] ? own_folder(h, p, err) : 0;
}

static int plan_all(struct instances *v, struct err *err) {
    const struct config_part *p = v->config->parts.first;
    int64_t n = p ? 0 : v->config->instances;
    for (; p; p = p->next) n++;
    v->list = calloc((size_t)n, sizeof *v->list);
    if (!v->list) return err_set(err, E_NOMEM, "out of memory for instances");
    for (p = v->config->parts.first; p; p = p->next) TRY(plan_one(v, p, err));
    while ((int64_t)v->n < n) TRY(plan_one(v, NULL, err));
    for (size_t i = 0; i < v->n; i++) TRY(share_cores(&v->list[i].config, n, err));
    return 0;
}

int instances_plan(struct instances *v, const struct serve_config *c, struct err *err) {
    v->config = c;
    int rc = plan_all(v, err);
    for (size_t i = 0; i < v->n && rc >= 0; i++) {
        struct err why = {0};
        rc = serve_config_check(&v->list[i].config, &why);
        if (rc < 0 && v->list[i].name[0])
            err_set(err, rc, "instance %s: %s", v->list[i].name, why.text);
        else if (rc < 0)
            err_set(err, rc, "%s", why.text);
    }
    if (rc < 0) instances_release(v);
    return rc;
}

// --- opening ---

static int open_one(const struct instances *v, struct hosted *h, struct err *err) {
    const struct serve_config *c = &h->config;
    struct engine_options o;
    char loading_what[64], measuring_what[64];
    struct bar loading = {loading_what, -1}, measuring = {measuring_what, -1};
    const char *space = h->name[0] ? " of " : "";
    snprintf(loading_what, sizeof loading_what, "Loading the model%s%s", space, h->name);
    snprintf(measuring_what, sizeof measuring_what, "Measuring this GPU%s%s",
             h->name[0] ? " for " : "", h->name);
    engine_options_init(&o);
    o.model_dir = c->model;
    o.chat_template = *c->chat_template ? c->chat_template : NULL;
    o.prompt_tasks = c->prompt_tasks;
    o.device = c->device;
    o.isa = c->isa;
    o.compute_dtype = c->compute_dtype;
    o.deterministic = c->deterministic;
    o.fp8_activations = c->fp8_activations;
    o.gpu_memory_fraction = c->gpu_memory_fraction;
    o.n_threads = (int32_t)c->threads;
    o.tensor_parallel = (int32_t)c->tensor_parallel;
    o.pipeline_parallel = (int32_t)c->pipeline_parallel;
    o.rank_timeout = c->rank_timeout;
    o.weight_format = (enum weight_format)c->weight_dtype;
    engine_options_kv_dtype(&o, c->kv_dtype);
    o.kv_cache_bytes = c->kv_cache_bytes;
    o.host_cache_bytes = c->host_cache_bytes;
    o.snapshot_dir = *c->snapshot_dir ? c->snapshot_dir : NULL;
    o.snapshot_bytes = c->snapshot_bytes;
    o.block_tokens = (int32_t)c->block_tokens;
    o.default_memory_len = (int32_t)c->memory_len;
    o.max_sequences = (int32_t)c->max_sequences;
    o.max_queued_turns = (int32_t)c->max_queued_turns;
    o.prefill_chunk_tokens = (int32_t)c->prefill_chunk_tokens;
    o.wake = v->wake;
    o.wake_ctx = v->wake_ctx;
    o.metrics = v->metrics;
    o.instance = h->name[0] ? h->name : NULL;
    if (v->shows_progress) {
        o.progress = on_progress;
        o.progress_ctx = &loading;
        o.measuring = on_progress;
        o.measuring_ctx = &measuring;
    }
    return engine_open(&h->engine, &o, err);
}

// The folder around those of the instances.
static int make_folder(const struct instances *v, const struct hosted *h, struct err *err) {
    const char *dir = v->config->snapshot_dir;
    if (!h->name[0] || !*dir || !*h->config.snapshot_dir) return 0;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) return err_errno(err, "cannot create %s", dir);
    return 0;
}

int instances_open(struct instances *v, struct err *err) {
    for (size_t i = 0; i < v->n; i++) {
        struct hosted *h = &v->list[i];
        struct err why = {0};
        int rc = make_folder(v, h, &why);
        if (rc >= 0) rc = open_one(v, h, &why);
        if (rc >= 0) continue;
        if (h->name[0]) return err_set(err, rc, "instance %s: %s", h->name, why.text);
        return err_set(err, rc, "%s", why.text);
    }
    return 0;
}

static int add_one(const struct hosted *h, struct sessions *ss, struct err *err) {
    const struct serve_config *c = &h->config;
    const struct engine_info *info = engine_info(h->engine);
    struct instance_options o = {.name = h->name,
                                 .alias = c->model_name,
                                 .engine = h->engine,
                                 .max_sequences = (int32_t)c->max_sequences,
                                 .memory_len = (int32_t)c->memory_len,
                                 .sink_len = (int32_t)c->sink_len,
                                 .session_len = c->session_len,
                                 .sampling = info->suggested};
    TRY(serve_config_sampling(c, &o.sampling, err));
    TRY(sampling_params_check(&o.sampling, info->n_vocab, err));
    return sessions_add_instance(ss, &o, err);
}

int instances_add(struct instances *v, struct sessions *ss, struct err *err) {
    for (size_t i = 0; i < v->n; i++) TRY(add_one(&v->list[i], ss, err));
    return 0;
}

void instances_save_at_stop(struct instances *v) {
    for (size_t i = 0; i < v->n; i++) engine_save_at_stop(v->list[i].engine);
}

void instances_release(struct instances *v) {
    for (size_t i = 0; i < v->n; i++) // all at once: each may take seconds to write snapshots
        if (v->list[i].engine) engine_stop(v->list[i].engine);
    for (size_t i = 0; i < v->n; i++) {
        engine_close(v->list[i].engine);
        serve_config_release(&v->list[i].config);
    }
    free(v->list);
    v->list = NULL;
    v->n = 0;
}

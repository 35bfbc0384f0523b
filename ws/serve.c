// Starts and stops the parts of the server. See serve.h.
#include "ws/serve.h"
#include "base/log.h"
#include "base/thread_priority.h"
#include "ws/server.h"
#include "ws/version.h"
#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 30

struct serving {
    const struct serve_config *config;
    struct metrics *metrics;
    struct server *server;
    struct engine *engine;
    struct sessions *sessions;
    struct service_defaults defaults;
};

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

static int open_engine(struct serving *v, struct err *err) {
    const struct serve_config *c = v->config;
    struct engine_options o;
    struct bar loading = {"Loading the model", -1}, measuring = {"Measuring this GPU", -1};
    engine_options_init(&o);
    o.model_dir = c->model;
    o.chat_template = *c->chat_template ? c->chat_template : NULL;
    o.device = c->device;
    o.isa = c->isa;
    o.compute_dtype = c->compute_dtype;
    o.deterministic = c->deterministic;
    o.gpu_memory_fraction = c->gpu_memory_fraction;
    o.n_threads = (int32_t)c->threads;
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
    o.wake = service_wake;
    o.wake_ctx = server_service(v->server);
    o.metrics = v->metrics;
    if (isatty(STDERR_FILENO)) {
        o.progress = on_progress;
        o.progress_ctx = &loading;
        o.measuring = on_progress;
        o.measuring_ctx = &measuring;
    }
    return engine_open(&v->engine, &o, err);
}

static int open_sessions(struct serving *v, struct err *err) {
    const struct serve_config *c = v->config;
    const struct engine_info *info = engine_info(v->engine);
    struct sessions_callbacks callbacks;
    char build[VERSION_BUILD_MAX];
    version_build(build);
    struct sessions_options o = {
        .db_path = c->db,
        .build = build,
        .max_sequence_idle_microseconds = c->max_sequence_idle_microseconds,
        .default_memory_len = (int32_t)c->memory_len,
        .default_sink_len = (int32_t)c->sink_len,
        .default_session_len = c->session_len,
        .max_queued_turns = (int32_t)c->max_queued_turns_per_session,
        .max_resident_sessions = (int32_t)c->max_resident_sessions,
        .max_session_age = c->max_session_age,
        .max_sessions = c->max_sessions,
        .commit_interval_us = c->commit_interval_us,
        .durable = (enum sessions_durable)c->durable,
        .run_ahead = c->run_ahead,
        .sampling = info->suggested,
        .metrics = v->metrics,
        .owners = &server_service(v->server)->net->owners,
        .workers = server_service(v->server)->net->workers,
        .wake = service_wake,
        .wake_ctx = server_service(v->server),
    };
    TRY(serve_config_sampling(c, &o.sampling, err));
    TRY(sampling_params_check(&o.sampling, info->n_vocab, err));
    v->defaults = (struct service_defaults){
        .sampling = o.sampling,
        .session_len = c->session_len ? c->session_len : info->max_session_len,
        .memory_len = c->memory_len ? c->memory_len : info->default_memory_len,
        .sink_len = (int32_t)c->sink_len,
    };
    followers_callbacks(&server_service(v->server)->followers, &callbacks);
    return sessions_open(&v->sessions, v->engine, &o, &callbacks, err);
}

static void say_hello(const struct serving *v) {
    char url[256];
    const struct engine_info *info = engine_info(v->engine);
    printf("Parley serves %s at %s (Ctrl-C to stop)\n", info->model_name,
           server_url(v->server, url, sizeof(url)));
    fflush(stdout);
    log_info("server.ready", "url=%s model=%s n_params=%lld", url, info->model_name,
             (long long)info->n_params);
}

static int run(struct serving *v, struct err *err) {
    TRY(server_listen(v->server, v->engine, v->sessions, &v->defaults, err));
    if (v->config->run_ahead && thread_run_ahead() < 0)
        log_debug("server.ordinary_priority", "reason=denied");
    say_hello(v);
    int rc = server_run(v->server);
    if (rc == E_DEVICE)
        return err_set(err, rc,
                       "the GPU failed; all sessions and turns are stored; start Parley again");
    if (rc == 0) return 0;
    return err_set(err, E_CANCELLED,
                   "stopped by a second signal; %d running turns are recorded as interrupted",
                   sessions_n_running(v->sessions));
}

int serve_run(const struct serve_config *c, struct err *err) {
    struct serving v = {.config = c};
    int rc;
    TRY(serve_config_check(c, err));
    log_set_level((enum log_level)c->log_level);
    v.metrics = metrics_new();
    if (!v.metrics) return err_set(err, E_NOMEM, "out of memory for metrics");
    TRY_GOTO(no_server, server_open(&v.server, c, v.metrics, err));
    TRY_GOTO(no_engine, open_engine(&v, err));
    TRY_GOTO(no_sessions, open_sessions(&v, err));
    rc = run(&v, err);
    server_stop(v.server);
    if (rc == 0) engine_save_at_stop(v.engine); // a second signal skips the snapshots
    sessions_close(v.sessions);
    // Freeing the memory of a failed GPU may crash, so the process exits without it.
    if (rc == E_DEVICE) return rc;
no_sessions:
    engine_close(v.engine);
no_engine:
    server_close(v.server);
no_server:
    metrics_free(v.metrics);
    return rc;
}

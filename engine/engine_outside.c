// Opens an engine whose model is in a process of its own (engine/process). Here are its owner's table, its
// texts and its grammars, which need no weights; the two queues lead to the process instead of a thread.
#include "engine/cache/snapshots.h"
#include "engine/engine_internal.h"
#include "engine/model/ft_folder.h"
#include "engine/run/command.h"
#include <stdlib.h>

enum { EVENT_QUEUE_LEN = 1024 };

static int read_config(struct engine *e, const struct engine_options *o, struct err *err) {
    e->own_config = calloc(1, sizeof *e->own_config);
    if (!e->own_config) return err_set(err, E_NOMEM, "no memory for an engine");
    e->config = e->own_config;
    return model_config_load(e->own_config, o->model_dir, err);
}

static void take_report(struct engine *e, const struct wire_report *r) {
    e->info = r->info;
    e->maker = r->maker;
    e->own_groups = r->groups;
    e->groups = &e->own_groups;
    e->info.family = process_text(e->process, PROCESS_FAMILY);
    e->info.fingerprint = process_text(e->process, PROCESS_FINGERPRINT);
    e->info.backend = process_text(e->process, PROCESS_BACKEND);
    e->info.weight_dtype = process_text(e->process, PROCESS_WEIGHT_DTYPE);
    e->info.weight_format = process_text(e->process, PROCESS_WEIGHT_FORMAT);
    e->max_running = r->max_running;
    e->prefill_tokens = r->prefill_tokens;
    e->host_blocks = r->host_blocks;
    e->max_queued = r->max_queued;
    e->max_known = r->max_known;
    e->has_final_norm = r->has_final_norm;
    e->has_snapshots = r->has_snapshots;
    e->load = process_load(e->process);
    for (size_t i = 0; i < process_n_found(e->process); i++) {
        const char *id = process_found(e->process, i);
        engine_note_snapshot(e, snapshot_name(id), id);
    }
}

int engine_open_outside(struct engine **out, const struct engine_options *o, struct err *err) {
    struct wire_report r;
    struct engine *e = calloc(1, sizeof *e);
    int rc;
    *out = NULL;
    if (!e) return err_set(err, E_NOMEM, "no memory for an engine");
    e->clock = &clock_system;
    e->load = &e->own_load;
    ft_folder_model_name(e->model_name, sizeof e->model_name, o->model_dir);
    TRY_GOTO(fail, read_config(e, o, err));
    TRY_GOTO(fail, engine_open_texts(e, o, err));
    TRY_GOTO(fail, engine_open_tasks(e, o, err));
    TRY_GOTO(fail, process_open(&e->process, o, &r, err));
    take_report(e, &r);
    engine_describe_texts(e);
    TRY_GOTO(fail, engine_open_grammars(e, err));
    // One more command than there: the supervisor's bell.
    TRY_GOTO(fail,
             queue_init(&e->commands, sizeof(struct command), r.n_commands + 2, NULL, NULL, err));
    TRY_GOTO(fail, queue_init(&e->events, sizeof(struct engine_event), EVENT_QUEUE_LEN, o->wake,
                              o->wake_ctx, err));
    engine_metrics_init(&e->core.metrics, o->metrics, o->instance, e, e->info.kv_dtype,
                        (double)e->info.n_blocks * (double)e->info.block_bytes);
    TRY_GOTO(fail, process_serve(e->process, &e->commands, &e->events, &e->core.metrics, err));
    e->has_thread = true;
    *out = e;
    return 0;
fail:
    engine_metrics_remove(&e->core.metrics);
    engine_close(e);
    return rc;
}

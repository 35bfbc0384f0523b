// Stops, closes and unloads an engine. See engine.h.
#include "engine/engine_internal.h"
#include "engine/run/command.h"

#include <stdlib.h>

void engine_stop(struct engine *e) {
    if (e->stopped) return;
    e->stopped = true;
    struct command c = {.kind = COMMAND_STOP};
    if (e->process) process_stop(e->process);
    (void)queue_try_push(&e->commands, &c); // one place is kept for it
}

static void free_owned(struct engine *e) {
    struct owned *w, *next;
    HASH_ITER(hh, e->owned, w, next) {
        HASH_DEL(e->owned, w);
        free(w);
    }
    struct turn_owner *o, *next_owner;
    HASH_ITER(hh, e->turn_owners, o, next_owner) {
        HASH_DEL(e->turn_owners, o);
        free(o);
    }
    struct known_snapshot *k, *next_known;
    HASH_ITER(hh, e->known, k, next_known) {
        HASH_DEL(e->known, k);
        free(k);
    }
}

static void end_thread(struct engine *e) {
    if (e->has_thread) {
        struct engine_event dropped;
        engine_stop(e);
        while (queue_pop(&e->events, &dropped, -1) != E_CLOSED) // the thread may wait for room
            wire_event_release(&dropped);
        if (e->process)
            process_join(e->process);
        else
            pthread_join(e->thread, NULL);
    }
    e->has_thread = false;
}

void engine_retire(struct engine *e) {
    end_thread(e);
    engine_metrics_remove(&e->core.metrics);
}

void engine_unload(struct engine *e) {
    if (!e) return;
    engine_retire(e);
    engine_close(e);
}

void engine_close(struct engine *e) {
    if (!e) return;
    end_thread(e);
    struct command c;
    snapshots_stop(&e->core.caches.snapshots); // its jobs come back as commands
    while (e->commands.items && queue_try_pop(&e->commands, &c) == 1) {
        live_turn_free(c.turn);
        snapshot_job_free(c.job);
        packed_cache_free(c.cache);
    }
    if (e->core.model) core_release(&e->core);
    lead_close(&e->lead);
    free_owned(e);
    free(e->lent);
    free(e->lent_scores);
    branches_free((struct branches *)e->lent_branches);
    queue_release(&e->events);
    queue_release(&e->commands);
    if (e->chat) chat_template_close(e->chat);
    grammars_free(e->grammars);
    thinking_marks_free(e->thinking);
    thinking_marks_free(e->channel);
    if (e->tokenizer) tokenizer_close(e->tokenizer);
    prompt_tasks_release(&e->tasks);
    if (e->model) model_free(e->model);
    if (e->backend) e->backend->ops->close(e->backend);
    process_close(e->process);
    free(e->own_config);
    free(e);
}

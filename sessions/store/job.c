// The messages between the service and the store: made and freed. See store.h.
#include "sessions/store/store.h"
#include <stdlib.h>

struct store_job *store_job_new(enum store_job_kind kind, int64_t key) {
    struct store_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->kind = kind;
    job->key = key;
    return job;
}

void session_save_free(struct session_save *save) {
    if (!save) return;
    session_record_release(&save->rec);
    prompt_free(save->prompt);
    for (size_t i = 0; i < save->n_turns; i++) {
        turn_record_release(&save->turns[i].rec);
        token_run_release(&save->turns[i].tokens);
    }
    for (size_t i = 0; i < save->n_erased; i++) turn_record_release(&save->erased[i]);
    free(save->erased);
    free(save->lost);
    free(save->turns);
    free(save->events);
    free(save->fork_turns);
    free(save);
}

static void list_free(struct store_list *l) {
    if (!l) return;
    store_list_release(l);
    free(l->owner);
    free(l->query);
    free(l->forked_from);
    free(l->cursor);
    free(l);
}

void store_job_free(struct store_job *job) {
    if (!job) return;
    session_save_free(job->save);
    stored_session_free(job->loaded);
    list_free(job->list);
    if (job->cursor) job->cursor->free(job->cursor);
    store_told_free(job->told);
    buf_release(&job->archive);
    free(job->id);
    free(job->owner);
    free(job->turns);
    free(job);
}

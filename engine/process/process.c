// The owner's side of an engine process: opening, the queues, closing. See process.h; supervise.c has the thread.
#include "base/err.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/thread.h"
#include "engine/engine_metrics.h"
#include "engine/process/process_state.h"
#include "engine/process/spawn.h"
#include "engine/run/command.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TIMEOUT_S 60.0
#define BACKOFF_S 60.0

static int put_open(struct buf *b, const struct engine_options *o) {
    const enum log_level level = log_level();
    buf_init(b, 1 << 24);
    wire_begin(b, WIRE_OPEN);
    wire_put(b, &level, sizeof level);
    wire_put_options(b, o);
    return wire_end(b);
}

// A later life has the first one's cache and places, whatever memory is free by then.
static int put_open_again(struct process *p, const struct engine_options *o) {
    struct engine_options again = *o;
    again.kv_cache_bytes = (int64_t)p->report.info.n_blocks * p->report.info.block_bytes;
    again.max_sequences = p->report.max_running;
    return put_open(&p->open_again, &again);
}

static int await_first(struct process *p, struct err *err) {
    int rc = thread_start(&p->thread, process_supervise, p);
    if (rc != 0) return thread_refused(err, rc, "the thread of an engine process");
    p->has_thread = true;
    pthread_mutex_lock(&p->lock);
    while (p->state == STARTING) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return p->open_rc < 0 ? err_set(err, p->open_rc, "%s", p->open_err.text) : 0;
}

int process_open(struct process **out, const struct engine_options *o, struct wire_report *report,
                 struct err *err) {
    struct process *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return err_set(err, E_NOMEM, "no memory for an engine");
    pthread_mutex_init(&p->lock, NULL);
    loss_init(&p->loss);
    pthread_cond_init(&p->changed, NULL);
    p->fd = p->memory = -1;
    p->program = strdup(o->process);
    p->name = strdup(o->instance ? o->instance : "");
    p->timeout_us = (int64_t)((o->process_timeout > 0 ? o->process_timeout : TIMEOUT_S) * 1e6);
    p->backoff_us = (int64_t)((o->process_backoff > 0 ? o->process_backoff : BACKOFF_S) * 1e6);
    p->run_ahead = o->run_ahead;
    p->wake = o->wake;
    p->wake_ctx = o->wake_ctx;
    p->opening = o;
    buf_init(&p->out, SIZE_MAX / 2);
    buf_init(&p->texts, 1);
    buf_init(&p->open_again, 1);
    int rc = put_open(&p->open_first, o);
    if (rc < 0 || !p->program || !p->name) rc = err_set(err, E_NOMEM, "no memory for an engine");
    if (rc == 0) rc = spawn_memory(sizeof *p->load, &p->memory, (void **)&p->load, err);
    if (rc == 0) rc = await_first(p, err);
    if (rc == 0 && put_open_again(p, o) < 0) rc = err_set(err, E_NOMEM, "no memory for an engine");
    if (rc < 0) {
        process_close(p);
        return rc;
    }
    p->opening = NULL;
    *report = p->report;
    *out = p;
    return 0;
}

struct core_load *process_load(const struct process *p) {
    return p->load;
}

const char *process_text(const struct process *p, int i) {
    return p->text[i];
}

size_t process_n_found(const struct process *p) {
    return p->n_found;
}

const char *process_found(const struct process *p, size_t i) {
    return p->found_ids[i];
}

int process_serve(struct process *p, struct queue *commands, struct queue *events,
                  struct engine_metrics *m, struct err *err) {
    size_t n = 0;
    for (int i = 0; i < m->n_rows; i++) n += (size_t)metric_n_numbers(m->rows[i]);
    double *numbers = calloc(n + 1, sizeof *numbers);
    if (!numbers) return err_set(err, E_NOMEM, "no memory for an engine");
    pthread_mutex_lock(&p->lock);
    p->numbers = numbers;
    p->n_numbers = n;
    p->commands = commands;
    p->events = events;
    p->metrics = m;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

bool process_take_up(struct process *p) {
    const struct command c = {.kind = COMMAND_TAKEN_UP};
    pthread_mutex_lock(&p->lock);
    bool ready = p->state == READY && queue_try_push(p->commands, &c) == 0;
    if (ready) {
        p->state = SERVES;
        loss_note(&p->loss, "");
        atomic_store(&p->load->device_lost, false);
    }
    pthread_mutex_unlock(&p->lock);
    return ready;
}

void process_why_lost(struct process *p, char *out, size_t cap) {
    loss_read(&p->loss, out, cap);
}

int64_t process_restarts(const struct process *p) {
    return atomic_load(&p->restarts);
}

void process_stop(struct process *p) {
    pthread_mutex_lock(&p->lock);
    p->give_up = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void process_join(struct process *p) {
    process_stop(p);
    if (p->has_thread) pthread_join(p->thread, NULL);
    p->has_thread = false;
}

void process_close(struct process *p) {
    if (!p) return;
    process_join(p);
    if (p->load) munmap(p->load, sizeof *p->load);
    if (p->memory >= 0) close(p->memory);
    buf_release(&p->open_first);
    buf_release(&p->open_again);
    buf_release(&p->texts);
    buf_release(&p->out);
    free(p->found_ids);
    free(p->numbers);
    free(p->program);
    free(p->name);
    pthread_mutex_destroy(&p->lock);
    loss_release(&p->loss);
    pthread_cond_destroy(&p->changed);
    free(p);
}

// The thread that supervises an engine process across all restarts. See process.h.
//
// Only this thread starts the process, because the kernel kills a process when the thread that started it ends
// (PR_SET_PDEATHSIG). Each start has a second thread, which receives.
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/thread_priority.h"
#include "engine/cache/packed_cache.h"
#include "engine/engine_metrics.h"
#include "engine/process/process_state.h"
#include "engine/process/spawn.h"
#include "engine/run/command.h"
#include "engine/run/live_turn.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WATCH_US = 250000,    // interval of looks at the heartbeat
    HEARTBEAT_STEPS = 20, // a process is not taken for hung within so many of its mean steps
    EVENTS_AT_ONCE = 16,  // of one push into the queue
    LOADING_TIMES = 10,   // a loading process may be silent for as many times engine_timeout
    STOP_US = 30000000,   // for its end after COMMAND_STOP; snapshots take at most 8 s of it
    // After COMMAND_STOP a process begins no step, and its heartbeat goes on while it saves: it may
    // be silent for a few mean steps, and longer while it computes the last one, a long prompt's.
    STOP_SILENCE_US = 1000000,
    STOP_SILENCE_STEPS = 4,
    STOP_COMPUTES_US = 10000000,
    STOP_LEAVES_US = 5000000, // after its last message: it frees its memory, its ranks end
    COMPUTES_US =
        WATCH_US / 100,  // of processor time within WATCH_US: a process that waits uses less
    LASTS_US = 60000000, // a life of this length begins with the first pause again
    BACKOFF_FIRST_US = 1000000
};

static int64_t now_us(void) {
    return clock_mono_us(&clock_system);
}

static bool said_goodbye(const struct process *p) {
    int life = atomic_load(&p->life);
    return life == LEAVING || life == LEFT;
}

static bool is_gone(const struct process *p) {
    return atomic_load(&p->life) >= LEFT;
}

static bool is_stopping(const struct process *p) {
    return p->stop_until_us > 0;
}

static void set_state(struct process *p, enum state s) {
    pthread_mutex_lock(&p->lock);
    p->state = s;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

// --- starting ------------------------------------------------------------------------------------

// The process and all that was its own are gone afterwards.
static void bury(struct process *p) {
    int status = 0;
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) continue;
    }
    if (p->pid > 0 && !said_goodbye(p)) loss_ended(&p->loss, p->name, p->pid, status);
    p->pid = 0;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    wire_reader_release(&p->reader);
    wire_reader_init(&p->reader, -1);
    if (p->numbers) memset(p->numbers, 0, p->n_numbers * sizeof *p->numbers);
}

static bool still_wanted(void *ctx) {
    struct process *p = ctx;
    pthread_mutex_lock(&p->lock);
    bool yes = !p->give_up;
    pthread_mutex_unlock(&p->lock);
    const struct engine_options *o = p->opening;
    return yes && (!o || !o->wanted || o->wanted(o->wanted_ctx));
}

static void report_progress(struct process *p, struct wire_message *m) {
    int64_t of[2];
    const struct engine_options *o = p->opening;
    if (!wire_take(m, of, sizeof of) || !o) return;
    if (m->kind == WIRE_MEASURING && o->measuring) o->measuring(o->measuring_ctx, of[0], of[1]);
    if (m->kind == WIRE_PROGRESS && o->progress) o->progress(o->progress_ctx, of[0], of[1]);
}

static int take_report(struct process *p, struct wire_message *m, bool first, struct err *err) {
    struct wire_report r;
    const char *text[PROCESS_N_TEXTS];
    wire_take(m, &r, sizeof r);
    for (int i = 0; i < PROCESS_N_TEXTS; i++) text[i] = wire_take_text(m);
    if (m->bad) return err_set(err, E_DEVICE, "the engine process is of another build");
    if (!first) {
        bool same =
            r.info.n_blocks == p->report.info.n_blocks && r.n_commands == p->report.n_commands;
        for (int i = 0; i < PROCESS_N_TEXTS; i++)
            same = same && strcmp(text[i] ? text[i] : "", p->text[i] ? p->text[i] : "") == 0;
        if (same) return 0;
        return err_set(
            err, E_DEVICE,
            "the engine process would not compute as before: another model is in its folder, "
            "or it has another device");
    }
    p->report = r;
    wire_take(m, &p->n_found, sizeof p->n_found);
    p->found_ids = calloc(p->n_found + 1, sizeof *p->found_ids);
    if (!p->found_ids) return err_set(err, E_NOMEM, "no memory for an engine");
    // The message's memory is used again: all that is kept of it is copied at once.
    size_t n = (size_t)(m->end - m->at), at = 0;
    for (int i = 0; i < PROCESS_N_TEXTS; i++) n += text[i] ? strlen(text[i]) + 1 : 0;
    buf_init(&p->texts, SIZE_MAX / 2);
    if (buf_reserve(&p->texts, n + 1) < 0) return err_set(err, E_NOMEM, "no memory for an engine");
    char *to = p->texts.data;
    for (int i = 0; i < PROCESS_N_TEXTS; i++) {
        p->text[i] = text[i] ? strcpy(to + at, text[i]) : NULL;
        at += text[i] ? strlen(text[i]) + 1 : 0;
    }
    for (size_t i = 0; i < p->n_found; i++) {
        const char *id = wire_take_text(m);
        if (m->bad || !id) return err_set(err, E_DEVICE, "the engine process does not make sense");
        p->found_ids[i] = strcpy(to + at, id);
        at += strlen(id) + 1;
    }
    return 0;
}

// Waits until the model is loaded. A large model takes minutes, so only the time without a message is limited.
static int await_opened(struct process *p, bool first, struct err *err) {
    struct wire_message m;
    int64_t silent_us = 0;
    for (;;) {
        int got = wire_receive(&p->reader, &m, WATCH_US / 1000);
        if (!still_wanted(p)) return err_set(err, E_CLOSED, "the engine is shutting down");
        if (got == E_CLOSED)
            return err_set(err, E_DEVICE, "the engine process ended while it loaded the model");
        if (got < 0) return err_set(err, got, "the engine process does not make sense");
        silent_us = got == 0 ? silent_us + WATCH_US : 0;
        if (silent_us > LOADING_TIMES * p->timeout_us)
            return err_set(err, E_DEVICE,
                           "the engine process said nothing for %g s while it loaded the model",
                           (double)silent_us * 1e-6);
        if (got == 0) continue;
        if (m.kind == WIRE_PROGRESS || m.kind == WIRE_MEASURING) report_progress(p, &m);
        if (m.kind == WIRE_OPENED) return take_report(p, &m, first, err);
        if (m.kind != WIRE_REFUSED) continue;
        struct err why;
        if (!wire_take(&m, &why, sizeof why)) return E_INVAL;
        return err_set(err, why.code, "%s", why.text);
    }
}

static int start(struct process *p, bool first, struct err *err) {
    const struct buf *open = first ? &p->open_first : &p->open_again;
    atomic_store(&p->life, ALIVE);
    p->began_us = now_us();
    if (!still_wanted(p)) return err_set(err, E_CLOSED, "the engine is shutting down");
    int rc = spawn_process(p->program, p->memory, &p->pid, &p->fd, err);
    wire_reader_init(&p->reader, p->fd);
    if (rc == 0 && wire_send(p->fd, open->data, open->len, still_wanted, p) < 0)
        rc = err_set(err, E_DEVICE, "the engine process ended at once");
    if (rc == 0) rc = await_opened(p, first, err);
    if (rc == 0)
        log_info("engine.process", "instance=%s pid=%d load_ms=%lld", p->name, p->pid,
                 (long long)(now_us() - p->began_us) / 1000);
    if (rc < 0) {
        atomic_store(&p->life, LEFT); // *err says why: bury() need not log it
        bury(p);
    }
    return rc;
}

// --- receiving -----------------------------------------------------------------------------------

static void grow_metrics(struct process *p, struct wire_message *m) {
    size_t n, at = 0;
    const char *bytes = wire_take_bytes(m, &n);
    double from[64], to[64];
    if (m->bad || n != p->n_numbers * sizeof(double)) return;
    for (int i = 0; p->metrics && i < p->metrics->n_rows; i++) {
        int k = metric_n_numbers(p->metrics->rows[i]);
        if (k > 64 || at + (size_t)k > p->n_numbers) return;
        memcpy(to, bytes + at * sizeof(double), (size_t)k * sizeof(double));
        memcpy(from, p->numbers + at, (size_t)k * sizeof(double));
        metric_grow(p->metrics->rows[i], from, to);
        at += (size_t)k;
    }
    memcpy(p->numbers, bytes, n);
}

static int take_events(struct process *p, struct wire_message *m) {
    struct engine_event list[EVENTS_AT_ONCE];
    size_t n = wire_n_events(m);
    while (n > 0) {
        size_t k = 0, most = n < EVENTS_AT_ONCE ? n : EVENTS_AT_ONCE;
        for (; k < most; k++) {
            int rc = wire_take_event(m, p->report.info.width, &list[k]);
            if (rc < 0) return rc; // the process is given up with all its turns
        }
        (void)queue_push_all(p->events, list, k);
        n -= k;
    }
    return 0;
}

static void *receive(void *arg) {
    struct process *p = arg;
    struct wire_message m;
    int rc = 0;
    pthread_setname_np(pthread_self(), "parley-events");
    if (p->run_ahead) (void)thread_run_ahead();
    while (rc == 0 && wire_receive(&p->reader, &m, -1) == 1) {
        if (m.kind == WIRE_EVENTS) rc = take_events(p, &m);
        if (m.kind == WIRE_METRICS) grow_metrics(p, &m);
        if (m.kind == WIRE_ENDED) atomic_store(&p->life, LEAVING);
    }
    atomic_store(&p->life, said_goodbye(p) ? LEFT : DIED);
    const struct command bell = {.kind = COMMAND_BELL};
    (void)queue_try_push(p->commands, &bell); // a full queue wakes it too
    return NULL;
}

// --- serving -------------------------------------------------------------------------------------

static void free_command(struct command *c) {
    live_turn_free(c->turn);
    packed_cache_free(c->cache);
    c->turn = NULL;
    c->cache = NULL;
}

static bool computes(struct process *p) {
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(p->pid, &clock) != 0 || clock_gettime(clock, &t) < 0) return false;
    int64_t before = p->processor_us;
    p->processor_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return p->processor_us - before > COMPUTES_US;
}

static bool hangs(struct process *p, bool is_silent) {
    int64_t step = atomic_load_explicit(&p->load->step_us_ewma, memory_order_relaxed);
    bool works = is_stopping(p) && computes(p);
    p->unchanged_us = is_silent ? p->unchanged_us + WATCH_US : 0;
    p->still_us = is_silent && !works ? p->still_us + WATCH_US : 0;
    if (atomic_load(&p->life) == LEAVING) return p->unchanged_us > STOP_LEAVES_US;
    int64_t steps_us = step * (is_stopping(p) ? STOP_SILENCE_STEPS : HEARTBEAT_STEPS);
    if (is_stopping(p))
        return p->still_us > STOP_SILENCE_US + steps_us ||
               p->unchanged_us > STOP_COMPUTES_US + steps_us;
    return p->unchanged_us > (steps_us > p->timeout_us ? steps_us : p->timeout_us);
}

// Counts our own ticks, not the time between them: where both processes were stopped, nothing hangs.
static bool watch(void *ctx) {
    struct process *p = ctx;
    int64_t beat = atomic_load_explicit(&p->load->heartbeat_us, memory_order_relaxed);
    if (is_gone(p)) return false;
    if (is_stopping(p) && now_us() > p->stop_until_us) return false;
    bool is_silent = beat == p->seen_heartbeat_us;
    p->seen_heartbeat_us = beat;
    if (!hangs(p, is_silent)) return true;
    loss_hangs(&p->loss, p->name, p->pid, p->unchanged_us);
    return false;
}

// Where this process has no memory to send a command, it answers that itself.
static int send_command(struct process *p, struct command *c) {
    struct engine_event ev;
    wire_begin(&p->out, WIRE_COMMAND);
    wire_put_command(&p->out, c);
    int rc = wire_end(&p->out);
    if (rc == E_NOMEM && wire_refusal(c, NULL, now_us(), &ev))
        rc = queue_push(p->events, &ev);
    else if (rc == 0)
        rc = wire_send(p->fd, p->out.data, p->out.len, watch, p);
    wire_sent(&p->out);
    return rc;
}

// The silence of an engine that had nothing to do does not count against its end.
static void begin_stop(struct process *p) {
    p->stop_until_us = now_us() + STOP_US;
    p->unchanged_us = p->still_us = 0;
}

// Sends commands until the process has ended or hangs.
static void serve(struct process *p, bool again) {
    struct command c;
    bool taken_up = !again;
    int64_t looked_us = now_us();
    p->unchanged_us = p->still_us = p->processor_us = 0;
    if (pthread_create(&p->receiver, NULL, receive, p) != 0) return;
    for (bool goes_on = true; goes_on;) {
        bool got = queue_pop(p->commands, &c, WATCH_US) == 1;
        if (got && c.kind == COMMAND_TAKEN_UP) taken_up = true;
        if (got && c.kind == COMMAND_STOP) begin_stop(p);
        bool is_own = got && (c.kind == COMMAND_BELL || c.kind == COMMAND_TAKEN_UP);
        bool keeps = c.kind == COMMAND_STOP || c.kind == COMMAND_FORGET || c.kind == COMMAND_SAVE;
        if (got && !is_own && (taken_up || keeps)) goes_on = send_command(p, &c) == 0;
        if (got) free_command(&c);
        if (is_gone(p)) goes_on = false;
        if (goes_on && now_us() - looked_us >= WATCH_US) {
            looked_us = now_us();
            goes_on = watch(p);
        }
    }
    if (p->pid > 0 && !is_gone(p)) kill(p->pid, SIGKILL); // the receiver reads its end
    pthread_join(p->receiver, NULL);
}

// All counts are those of a process that is gone.
static void lose(struct process *p) {
    static const struct engine_event lost = {.kind = EVENT_PROCESS_LOST};
    if (atomic_load(&p->load->says_why)) loss_note(&p->loss, p->load->why_lost);
    pthread_mutex_lock(&p->lock);
    p->state = LOST;
    memset((void *)p->load, 0, sizeof *p->load);
    atomic_store(&p->load->device_lost, true);
    atomic_store(&p->load->drawing_on, -1);
    atomic_store(&p->load->heartbeat_us, now_us());
    pthread_mutex_unlock(&p->lock);
    (void)queue_push(p->events, &lost);
}

// Snapshots that are to be removed meanwhile are removed by the next life.
static void keep_forgets(struct process *p, const struct command *c, struct buf *kept) {
    if (c->kind == COMMAND_FORGET) (void)buf_add(kept, c, sizeof *c);
}

static void pause_for(struct process *p, int64_t us, struct buf *kept) {
    struct command c;
    int64_t until = now_us() + us;
    while (!is_stopping(p) && now_us() < until) {
        int64_t left = until - now_us();
        if (queue_pop(p->commands, &c, left < WATCH_US ? left : WATCH_US) != 1) continue;
        if (c.kind == COMMAND_STOP) begin_stop(p);
        keep_forgets(p, &c, kept);
        free_command(&c);
    }
}

static void send_kept(struct process *p, const struct buf *kept) {
    for (size_t at = 0; at < kept->len; at += sizeof(struct command)) {
        struct command c;
        memcpy(&c, kept->data + at, sizeof c);
        if (send_command(p, &c) < 0) return;
    }
}

// Starts it again, after a pause that grows with each life that was short.
static bool start_again(struct process *p, int *n_short) {
    struct buf kept;
    bool up = false;
    buf_init(&kept, 1 << 24);
    while (!up && !is_stopping(p) && still_wanted(p)) {
        struct err err = {0};
        int64_t wait = BACKOFF_FIRST_US;
        for (int i = 0; i < *n_short && wait < p->backoff_us; i++) wait *= 2;
        pause_for(p, wait < p->backoff_us ? wait : p->backoff_us, &kept);
        ++*n_short;
        if (is_stopping(p)) break;
        up = start(p, false, &err) == 0;
        // Between these two it may have ended again: then its next loss is noted by serve().
        if (!up && err.code != E_CLOSED) loss_not_reopened(&p->loss, p->name, *n_short, &err);
    }
    if (up) {
        send_kept(p, &kept);
        atomic_fetch_add(&p->restarts, 1);
        metric_add(p->metrics->restarts, 1);
        atomic_store(&p->load->device_lost, true); // until the owner takes it up
        set_state(p, READY);
        log_info("engine.reopened", "instance=%s pid=%d", p->name, p->pid);
        if (p->wake) p->wake(p->wake_ctx);
    }
    buf_release(&kept);
    return up;
}

void *process_supervise(void *arg) {
    struct process *p = arg;
    int n_short = 0;
    pthread_setname_np(pthread_self(), "parley-process");
    if (p->run_ahead) (void)thread_run_ahead();
    p->open_rc = start(p, true, &p->open_err);
    pthread_mutex_lock(&p->lock);
    p->state = p->open_rc == 0 ? SERVES : ENDED;
    pthread_cond_broadcast(&p->changed);
    while (!p->events && !p->give_up) pthread_cond_wait(&p->changed, &p->lock);
    bool up = p->events && p->open_rc == 0;
    pthread_mutex_unlock(&p->lock);
    for (bool again = false; up; again = true) {
        serve(p, again);
        bury(p);
        if (is_stopping(p)) break;
        if (now_us() - p->began_us > LASTS_US) n_short = 0;
        lose(p);
        up = start_again(p, &n_short);
    }
    bury(p);
    set_state(p, ENDED);
    if (p->events) queue_close(p->events); // the owner can still poll the remaining events
    return NULL;
}

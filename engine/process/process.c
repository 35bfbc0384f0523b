// The server's side of an engine process. See process.h.
//
// One thread supervises the process across all restarts. Only this thread starts it, because the kernel kills
// a process when the thread that started it ends (PR_SET_PDEATHSIG). Each start has a second thread, which
// receives.
#include "engine/process/process.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/thread_priority.h"
#include "engine/cache/packed_cache.h"
#include "engine/process/loss.h"
#include "engine/process/spawn.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WATCH_US = 250000,    // interval of looks at the heartbeat
    HEARTBEAT_STEPS = 20, // a process is not taken for hung within so many of its mean steps
    EVENTS_AT_ONCE = 16,  // of one push into the queue
    LOADING_TIMES = 10,   // a loading process may be silent for as many times engine_timeout
    STOP_US = 30000000,   // for its end after COMMAND_STOP; snapshots take at most 8 s of it
    LASTS_US = 60000000,  // a life of this length begins with the first pause again
    BACKOFF_FIRST_US = 1000000
};
#define TIMEOUT_S 60.0
#define BACKOFF_S 60.0

enum state { STARTING, SERVES, LOST, READY, ENDED };
// The life of one start of the process, as its receiver sees it.
enum life {
    ALIVE,
    LEAVING, // it has sent ENDED: its last message
    LEFT,    // its socket has closed after that
    DIED,    // its socket has closed before that
};

struct process {
    // Constant once it serves.
    char *program, *name;              // name: the instance's, for the log
    struct buf open_first, open_again; // the message OPEN, of the first life and of others
    struct wire_report report;
    struct buf texts; // of the first report
    const char *text[PROCESS_N_TEXTS];
    const char **found_ids;
    size_t n_found;
    int64_t timeout_us, backoff_us;
    bool run_ahead;
    void (*wake)(void *ctx);
    void *wake_ctx;
    const struct engine_options *opening; // the caller's, until process_open returns; then NULL
    struct queue *commands, *events;
    struct engine_metrics *metrics;

    struct instance_load *load; // shared with the process
    int memory;                 // its descriptor

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state; // under the lock, as all up to here; `events` is set by process_serve
    bool give_up;     // process_stop or process_join was called
    int open_rc;
    struct err open_err;
    atomic_llong restarts;

    // The supervising thread's.
    pthread_t thread, receiver;
    bool has_thread;
    pid_t pid;
    int fd;
    struct wire_reader reader; // the receiving thread's, while that runs
    struct buf out;
    double *numbers; // (n_numbers) the metrics of this life so far
    size_t n_numbers;
    int64_t stop_until_us; // COMMAND_STOP came: the process may live until then; 0: it has not come
    int64_t began_us;
    int64_t seen_heartbeat_us;
    int64_t unchanged_us; // how long the heartbeat has been the same, by our own clock's ticks
    atomic_int life;      // enum life

    struct loss loss; // the supervising thread writes it
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

static int64_t limit_us(const struct process *p) {
    int64_t step = atomic_load_explicit(&p->load->step_us_ewma, memory_order_relaxed);
    return step * HEARTBEAT_STEPS > p->timeout_us ? step * HEARTBEAT_STEPS : p->timeout_us;
}

// Counts our own ticks, not the time between them: where both processes were stopped, nothing hangs.
static bool watch(void *ctx) {
    struct process *p = ctx;
    int64_t beat = atomic_load_explicit(&p->load->heartbeat_us, memory_order_relaxed);
    if (is_gone(p)) return false;
    if (is_stopping(p) && now_us() > p->stop_until_us) return false;
    p->unchanged_us = beat == p->seen_heartbeat_us ? p->unchanged_us + WATCH_US : 0;
    p->seen_heartbeat_us = beat;
    if (is_stopping(p) || p->unchanged_us <= limit_us(p)) return true;
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

// Sends commands until the process has ended or hangs.
static void serve(struct process *p, bool again) {
    struct command c;
    bool taken_up = !again;
    int64_t looked_us = now_us();
    p->unchanged_us = 0;
    if (pthread_create(&p->receiver, NULL, receive, p) != 0) return;
    for (bool goes_on = true; goes_on;) {
        bool got = queue_pop(p->commands, &c, WATCH_US) == 1;
        if (got && c.kind == COMMAND_TAKEN_UP) taken_up = true;
        if (got && c.kind == COMMAND_STOP) p->stop_until_us = now_us() + STOP_US;
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
        if (c.kind == COMMAND_STOP) p->stop_until_us = now_us() + STOP_US;
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

static void *supervise(void *arg) {
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

// --- the owner's side ----------------------------------------------------------------------------

static int put_open(struct buf *b, const struct engine_options *o) {
    const enum log_level level = log_level();
    buf_init(b, 1 << 24);
    wire_begin(b, WIRE_OPEN);
    wire_put(b, &level, sizeof level);
    wire_put_options(b, o);
    return wire_end(b);
}

// A later life has the first one's cache, whatever memory is free by then.
static int put_open_again(struct process *p, const struct engine_options *o) {
    struct engine_options again = *o;
    again.kv_cache_bytes = (int64_t)p->report.info.n_blocks * p->report.info.block_bytes;
    return put_open(&p->open_again, &again);
}

static int await_first(struct process *p, struct err *err) {
    int rc = thread_start(&p->thread, supervise, p);
    if (rc != 0) return err_set(err, E_NOMEM, "a thread cannot start: %s", strerror(rc));
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

struct instance_load *process_load(const struct process *p) {
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

// An engine process: `parley engine`, started by a server (engine/process/process.h). It has the model, the
// device or, as the leader, the ranks, and the engine's thread; the server has the owner's side. The main
// thread takes commands and puts them into the engine's queue; the engine's thread writes its events to the
// socket itself. When the socket ends, its server is gone, and the process ends at once.
#include "engine/engine_process.h"
#include "base/err.h"
#include "base/log.h"
#include "base/patience.h"
#include "engine/cache/packed_cache.h"
#include "engine/engine_internal.h"
#include "engine/run/command.h"
#include "engine/run/load.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUND_US = 500000, METRICS_US = 500000, RAISED_OOM_SCORE = 300, PROBE_BYTES = 1 << 20 };

struct inside {
    struct engine *engine;
    pthread_mutex_t lock; // of the socket and the buffer: two threads write
    struct buf out;
    double *numbers, *sent; // (n_numbers) the metrics now, and as they were sent last
    size_t n_numbers;
    int64_t sent_us;
    atomic_bool ended; // the engine has stopped in order
    bool dirty;        // events were sent that may have changed metrics since
    bool has_served;   // a turn has ended without an error
};

// Ends the process: the server reads the rest from the socket's end.
static void give_up(void) {
    _exit(1);
}

// A new process may have memory again.
static void give_up_for_memory(const char *what) {
    log_error("engine.out_of_memory", "what=\"%s\"", what);
    give_up();
}

static void send_out(struct inside *in) {
    if (wire_end(&in->out) < 0) give_up_for_memory("events");
    if (wire_send(WIRE_SOCKET, in->out.data, in->out.len, NULL, NULL) < 0) give_up();
    wire_sent(&in->out);
}

// --- events and metrics, on the engine's thread --------------------------------------------------

static void send_metrics(struct inside *in) {
    const struct engine_metrics *m = &in->engine->core.metrics;
    size_t at = 0, bytes = in->n_numbers * sizeof *in->numbers;
    for (int i = 0; i < m->n_rows; i++) {
        metric_read(m->rows[i], in->numbers + at);
        at += (size_t)metric_n_numbers(m->rows[i]);
    }
    in->dirty = false;
    in->sent_us = clock_mono_us(&clock_system);
    if (memcmp(in->numbers, in->sent, bytes) == 0) return;
    memcpy(in->sent, in->numbers, bytes);
    wire_begin(&in->out, WIRE_METRICS);
    wire_put(&in->out, in->numbers, bytes);
    send_out(in);
}

// The kernel gives this process no more memory, however little. Otherwise what failed was too large, and
// would be for a new process.
static bool memory_has_ended(void) {
    void *p = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) munmap(p, PROBE_BYTES);
    return p == MAP_FAILED;
}

// Reserves memory for the caches among the events. A cache that cannot be sent is gone.
static void make_room(struct inside *in, struct engine_event *events, size_t n) {
    size_t room = PROBE_BYTES; // of all else
    for (size_t i = 0; i < n; i++) {
        struct engine_event *ev = &events[i];
        const struct packed_cache *p = ev->kind == ENGINE_EXPORTED ? ev->cache : NULL;
        if (!p) continue;
        size_t block = (size_t)p->maker.block_bytes + sizeof *p->numbers;
        size_t more = (size_t)p->n_blocks * block + (size_t)p->n_ids * sizeof *p->ids;
        buf_reset(&in->out);
        if (buf_reserve(&in->out, room + more) == 0) {
            room += more;
            continue;
        }
        wire_event_release(ev);
        ev->kind = ENGINE_RELEASED;
        ev->why = RELEASE_PRESSURE;
    }
}

// Returns whether one of these turns ended because memory was short.
static bool note_ends(struct inside *in, const struct engine_event *events, size_t n,
                      bool *changes) {
    bool is_short = false;
    for (size_t i = 0; i < n; i++) {
        const struct engine_event *ev = &events[i];
        bool failed = ev->kind == ENGINE_DONE && ev->finish == FINISH_ERROR;
        *changes = *changes || (ev->kind != ENGINE_TOKEN && ev->kind != ENGINE_PROGRESS);
        is_short = is_short || (failed && ev->error_code == E_NOMEM);
        in->has_served = in->has_served || (ev->kind == ENGINE_DONE && !failed);
    }
    return is_short;
}

// A process that has served and then has no memory for a turn ends, once the turn's end is sent: the turn
// counts its attempts (sessions/migration/failover.c). One that has never served would start in vain.
static void send_events(void *ctx, struct engine_event *events, size_t n) {
    struct inside *in = ctx;
    bool ends = false;
    if (n == 0) return;
    pthread_mutex_lock(&in->lock);
    bool is_short = note_ends(in, events, n, &ends);
    if (ends && in->numbers) send_metrics(in); // so that a client that has the end finds it counted
    in->dirty = in->dirty || ends;
    make_room(in, events, n);
    wire_begin(&in->out, WIRE_EVENTS);
    wire_put_events(&in->out, events, n, in->engine ? in->engine->info.width : 0);
    send_out(in);
    if (is_short && in->has_served && memory_has_ended()) give_up_for_memory("a turn");
    pthread_mutex_unlock(&in->lock);
}

static void *engine_main(void *arg) {
    struct inside *in = arg;
    struct engine *e = in->engine;
    const int64_t idle_us = patience_us(ROUND_US);
    bool goes_on = true;
    pthread_setname_np(pthread_self(), "parley-engine");
    while (goes_on) {
        goes_on = core_round(&e->core, idle_us);
        if (!in->dirty && clock_mono_us(&clock_system) - in->sent_us < METRICS_US && goes_on)
            continue;
        pthread_mutex_lock(&in->lock);
        send_metrics(in);
        pthread_mutex_unlock(&in->lock);
    }
    // What a failed device holds may not be freed, and ranks see that their leader is gone.
    if (atomic_load(&e->load->device_lost)) give_up();
    pthread_mutex_lock(&in->lock);
    wire_begin(&in->out, WIRE_ENDED);
    send_out(in);
    pthread_mutex_unlock(&in->lock);
    atomic_store(&in->ended, true);
    shutdown(WIRE_SOCKET, SHUT_RD); // the main thread goes on
    return NULL;
}

// --- commands, on the main thread ----------------------------------------------------------------

// Takes the log in every case, and drops the holds that the message had.
static int make_turn(struct engine *e, struct wire_turn *w, struct live_turn **out,
                     struct err *err) {
    struct engine_turn *s = &w->spec;
    s->compiled = NULL; // the server's
    struct live_turn *t = live_turn_new(s, w->submitted_us);
    prompt_free((struct prompt *)(size_t)s->prompt);
    grammar_text_free(s->sampling.grammar);
    free((void *)(size_t)s->expected);
    *out = t;
    if (!t) {
        free(s->ids);
        return err_set(err, E_NOMEM, "no memory for another turn");
    }
    t->names = w->names;
    t->deadline_us = w->deadline_us;
    t->sched.reserve = w->reserve;
    t->sched.places = w->places;
    t->sched.priority = w->priority;
    TRY(engine_grammar_take(e, t, err));
    TRY(context_reserve(&t->context, &t->spec, e->info.width, err));
    return branches_new(&t->branches, &t->spec, live_turn_max_log(&t->spec), e->info.n_vocab,
                        e->eos_ids, e->n_eos, err);
}

// The owner then takes the sequence for one without a cache, so it may keep none.
static void refuse(struct inside *in, const struct command *c, const struct err *err) {
    const struct command release = {.kind = COMMAND_RELEASE, .sequence = c->sequence};
    struct engine_event ev;
    if (!wire_refusal(c, err, clock_mono_us(&clock_system), &ev)) give_up_for_memory("a command");
    if (c->kind == COMMAND_SUBMIT) (void)queue_push(&in->engine->commands, &release);
    send_events(in, &ev, 1);
}

// rc: wire_receive's.
static void take_command(struct inside *in, struct wire_message *m, int rc) {
    static struct wire_command w; // of some 12 KiB
    struct command *c = &w.command;
    struct err err = {0};
    bool cut = rc == E_NOMEM && wire_take(m, c, sizeof *c);
    if (!cut) rc = wire_take_command(m, &w);
    if (rc < 0 && rc != E_NOMEM) give_up();
    if (rc == 0 && c->turn && make_turn(in->engine, &w.turn, &c->turn, &err) < 0)
        live_turn_free(c->turn);
    if (rc == E_NOMEM || err.code < 0)
        refuse(in, c, rc < 0 ? NULL : &err);
    else
        (void)queue_push(&in->engine->commands, c);
}

static void take_commands(struct inside *in, struct wire_reader *r) {
    struct wire_message m;
    int rc;
    while ((rc = wire_receive(r, &m, -1)) == 1 || rc == E_NOMEM)
        if (m.kind == WIRE_COMMAND) take_command(in, &m, rc);
}

// --- opening -------------------------------------------------------------------------------------

static void tell(struct inside *in, enum wire_kind kind, int64_t done, int64_t total) {
    const int64_t of[] = {done, total};
    wire_begin(&in->out, kind);
    wire_put(&in->out, of, sizeof of);
    send_out(in);
}

static void on_progress(void *ctx, int64_t done, int64_t total) {
    tell(ctx, WIRE_PROGRESS, done, total);
}

static void on_measuring(void *ctx, int64_t done, int64_t total) {
    tell(ctx, WIRE_MEASURING, done, total);
}

static void send_opened(struct inside *in) {
    const struct engine *e = in->engine;
    const struct known_snapshot *k;
    struct kv_groups groups = *e->groups;
    groups.places = NULL; // of this process
    struct wire_report r = {.info = e->info,
                            .maker = e->maker,
                            .groups = groups,
                            .max_running = e->max_running,
                            .prefill_tokens = e->prefill_tokens,
                            .host_blocks = e->host_blocks,
                            .max_queued = e->max_queued,
                            .max_known = e->max_known,
                            .n_commands = e->commands.capacity,
                            .has_final_norm = e->has_final_norm,
                            .has_snapshots = e->has_snapshots};
    size_t n = HASH_COUNT(e->known);
    wire_begin(&in->out, WIRE_OPENED);
    wire_put(&in->out, &r, sizeof r);
    wire_put_text(&in->out, e->info.family);
    wire_put_text(&in->out, e->info.fingerprint);
    wire_put_text(&in->out, e->info.backend);
    wire_put_text(&in->out, e->info.weight_dtype);
    wire_put_text(&in->out, e->info.weight_format);
    wire_put(&in->out, &n, sizeof n);
    for (k = e->known; k; k = k->hh.next) wire_put_text(&in->out, k->id);
    send_out(in);
}

static int prepare_metrics(struct inside *in) {
    const struct engine_metrics *m = &in->engine->core.metrics;
    for (int i = 0; i < m->n_rows; i++) in->n_numbers += (size_t)metric_n_numbers(m->rows[i]);
    in->sent = calloc(in->n_numbers + 1, sizeof *in->sent);
    in->numbers = calloc(in->n_numbers + 1, sizeof *in->numbers);
    return in->sent && in->numbers ? 0 : E_NOMEM;
}

static int open_engine(struct inside *in, struct wire_message *m, struct metrics *registry) {
    struct engine_options o;
    enum log_level level;
    struct err err = {0};
    void *memory =
        mmap(NULL, sizeof(struct core_load), PROT_READ | PROT_WRITE, MAP_SHARED, WIRE_MEMORY, 0);
    if (!wire_take(m, &level, sizeof level) || !wire_take_options(m, &o) || memory == MAP_FAILED) {
        fputs("parley engine: started by a server alone\n", stderr);
        return E_INVAL;
    }
    const struct engine_outlets at = {.load = memory, .sink = send_events, .sink_ctx = in};
    log_set_level(level);
    o.metrics = registry;
    o.progress = on_progress;
    o.measuring = on_measuring;
    o.progress_ctx = o.measuring_ctx = in;
    int rc = engine_open_inside(&in->engine, &o, &at, &err);
    if (rc == 0 && prepare_metrics(in) < 0) rc = err_set(&err, E_NOMEM, "no memory for metrics");
    if (rc == 0) {
        send_opened(in);
        return 0;
    }
    wire_begin(&in->out, WIRE_REFUSED);
    wire_put(&in->out, &err, sizeof err);
    send_out(in);
    return rc;
}

// The server's signals are its own business; when memory is out, the kernel is to take this process, which
// the server starts again, and not the server.
static void become_a_child(void) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "parley-engine");
    close_range(WIRE_MEMORY + 1, UINT_MAX, 0);
    fcntl(WIRE_SOCKET, F_SETFD, FD_CLOEXEC); // not its ranks'
    fcntl(WIRE_MEMORY, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    FILE *f = fopen("/proc/self/oom_score_adj", "we");
    if (!f) return;
    fprintf(f, "%d", RAISED_OOM_SCORE);
    fclose(f);
}

int engine_process_run(void) {
    static struct inside in = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct wire_reader reader;
    struct wire_message m;
    struct metrics *registry = metrics_new();
    pthread_t thread;
    become_a_child();
    buf_init(&in.out, SIZE_MAX / 2);
    wire_reader_init(&reader, WIRE_SOCKET);
    int rc = wire_receive(&reader, &m, -1) == 1 && m.kind == WIRE_OPEN ? 0 : E_INVAL;
    if (rc == 0) rc = open_engine(&in, &m, registry);
    if (rc == 0) rc = pthread_create(&thread, NULL, engine_main, &in);
    if (rc == 0) {
        take_commands(&in, &reader);
        if (!atomic_load(&in.ended)) give_up(); // the server has gone
        pthread_join(thread, NULL);
        engine_close(in.engine);
    }
    metrics_free(registry);
    wire_reader_release(&reader);
    buf_release(&in.out);
    free(in.numbers);
    free(in.sent);
    return rc == 0 ? 0 : 1;
}

// A session service over the fake engine, with a clock that the test moves and clients that record.
// They behave like careful clients on the wire: they check that numbers have no gap, and build each
// turn's text from its events.
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function" // no test needs all of it
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sessions/state/service.h"
#include "tests/cmocka.h"
#include "tests/unit/asks.h"
#include "tests/unit/fake_engine.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define CLIENTS 8
#define ANSWERS 256
#define SEEN_TURNS 64
#define FX_REQUESTS 32768

struct seen_answer {
    uint64_t client;
    enum session_answer_kind kind;
    char request_id[64], code[32], message[512], session_id[80], title[256], cursor[64];
    int64_t retry_after_ms, seq, turn, n_tokens, n_turns_total;
    bool reset, more, deleted, first, last;
    enum session_state state;
    size_t n_turns, n_sessions;
    char ids[16][80];
    char titles[16][80];
    enum session_state states[16];
    struct {
        int64_t turn, seq_last;
        enum turn_state state;
        char text[4096], input[256], finish[16];
        struct turn_numbers numbers;
    } turns[SEEN_TURNS];
};
struct seen_turn {
    char text[8192];
    size_t text_len;
    int32_t ids[2048];
    size_t n_ids;
    float logprobs[2048];
    bool started, done, queued;
    char finish[16], error[32];
    struct turn_numbers numbers;
    uint64_t seed;
};
// What one client knows of one session.
struct follower {
    struct session *s; // what on_ready named; NULL: nothing
    bool ready, following;
    char id[80];
    int64_t last; // seq
    int n_events, n_deltas, n_lost;
    int count[EVENT_KINDS];
    struct {
        int64_t n;
        size_t len;
        char text[2048];
    } samples[2];          // other answers of the last turn that had some
    int64_t last_drawn_us; // of a delta
    char last_reason[16], title[256], last_request_id[64];
    bool closed, deleted, gone, attached;
    int n_turns; // so many entries below are used; the last member: fx_clear_follower()
    struct seen_turn turns[SEEN_TURNS];
};
static struct {
    struct sessions *ss;
    struct sessions_options o;
    struct clock_fake clock;
    struct metrics *metrics;
    char path[256];
    int n_answers;
    bool by_hand; // events are not taken as they come
    void (*on_answer)(const struct seen_answer *a);
    size_t max_text;
    int n_changed, n_removed, n_progress, n_stalled, n_moved;
    int64_t stalled_us;
    char stalled[1024]; // the last one: session and reason
    char last_changed[80];
    int64_t changed_key;
    char *archive;                       // of the last ANSWER_EXPORTED
    int n_pieces;                        // of it
    size_t longest_piece;                // of all
    uint64_t going_on;                   // the client whose answer has a further piece
    bool wants_nothing;                  // clients have no room for further pieces
    unsigned char answered[FX_REQUESTS]; // how often request "qN" was
    struct seen_answer answers[ANSWERS];
    struct follower followers[CLIENTS][4]; // client 1 .. CLIENTS - 1
} fx;

// An answer takes 300 kB and a follower 1.6 MB, nearly all of it unused. Only the used part is
// cleared, because some tests start over a thousand times.
static void fx_clear_answer(struct seen_answer *s) {
    size_t used = s->n_turns < SEEN_TURNS ? s->n_turns : SEEN_TURNS;
    memset(s->turns, 0, used * sizeof *s->turns);
    memset(s, 0, offsetof(struct seen_answer, turns));
}
static void fx_clear_follower(struct follower *f) {
    memset(f->turns, 0, (size_t)f->n_turns * sizeof *f->turns);
    memset(f, 0, offsetof(struct follower, turns));
}
static void fx_clear_followers(void) {
    for (int i = 0; i < CLIENTS * 4; i++) fx_clear_follower(&fx.followers[i / 4][i % 4]);
}
static void fx_clear(void) {
    for (int i = 0; i < ANSWERS; i++) fx_clear_answer(&fx.answers[i]);
    fx_clear_followers();
    free(fx.archive);
    memset(&fx, 0, offsetof(typeof(fx), answers));
}
static struct seen_turn *fx_seen_turn(struct follower *f, int64_t turn) {
    int at = (int)(turn % SEEN_TURNS);
    if (at >= f->n_turns) f->n_turns = at + 1;
    return &f->turns[at];
}

static void fx_count_answer(const char *request_id) {
    if (request_id[0] == 'q' && request_id[1] >= '0' && request_id[1] <= '9')
        fx.answered[atoi(request_id + 1) % FX_REQUESTS]++;
}

static struct follower *fx_follower(uint64_t client, const char *id) {
    struct follower *free_one = NULL;
    for (int i = 0; i < 4; i++) {
        struct follower *f = &fx.followers[client][i];
        if (strcmp(f->id, id) == 0) return f;
        if (!free_one && !f->id[0]) free_one = f;
    }
    if (!free_one) free_one = &fx.followers[client][0];
    fx_clear_follower(free_one);
    snprintf(free_one->id, sizeof free_one->id, "%s", id);
    return free_one;
}

// A piece of another answer: behind the one before it, and while its turn runs.
static void fx_take_sample(struct follower *f, const struct session_event *e) {
    assert_true(e->branch >= 1 && e->branch <= 2);
    assert_int_equal(e->seq, 0);
    assert_false(fx_seen_turn(f, e->delta_turn)->done);
    assert_int_equal(e->first_token, f->samples[e->branch - 1].n);
    f->samples[e->branch - 1].n += (int64_t)e->n_ids;
    char *text = f->samples[e->branch - 1].text;
    size_t *len = &f->samples[e->branch - 1].len;
    assert_true(*len + e->text_len < sizeof f->samples[0].text);
    memcpy(text + *len, e->text, e->text_len);
    text[ *len += e->text_len] = '\0';
}

static void fx_take_event(struct follower *f, const struct session_event *e) {
    if (e->kind == EVENT_SAMPLE) {
        fx_take_sample(f, e);
        return;
    }
    if (f->last < 0) f->last = e->first_seq - 1; // an attach that does not know the last event
    assert_int_equal(e->first_seq, f->last + 1); // no gap, nothing twice
    assert_true(e->seq >= e->first_seq);
    f->last = e->seq;
    f->n_events++;
    f->count[e->kind]++;
    snprintf(f->last_request_id, sizeof f->last_request_id, "%s", e->request_id);
    fx_count_answer(e->request_id);
    if (e->kind == EVENT_OPENED || e->kind == EVENT_UPDATED || e->kind == EVENT_CLOSED) {
        assert_int_equal(e->session.rec.seq, e->seq);
        snprintf(f->title, sizeof f->title, "%s", e->session.rec.title);
    }
    if (e->kind == EVENT_CLOSED) f->closed = true, f->deleted = e->deleted;
    if (e->kind == EVENT_EVICTED) snprintf(f->last_reason, sizeof f->last_reason, "%s", e->reason);
    if (e->kind == EVENT_DELTA) {
        struct seen_turn *t = fx_seen_turn(f, e->delta_turn);
        f->last_drawn_us = e->drawn_us;
        if (e->n_ids == 0) {
            f->n_lost++;
            return;
        }
        assert_int_equal(e->n_ids, e->seq - e->first_seq + 1);
        assert_true(t->text_len + e->text_len < sizeof t->text);
        memcpy(t->text + t->text_len, e->text, e->text_len);
        t->text[t->text_len += e->text_len] = '\0';
        memcpy(t->ids + t->n_ids, e->ids, e->n_ids * sizeof *e->ids);
        if (e->logprobs) memcpy(t->logprobs + t->n_ids, e->logprobs, e->n_ids * sizeof(float));
        t->n_ids += e->n_ids;
        f->n_deltas++;
    }
    bool of_turn = e->kind == EVENT_STARTED || e->kind == EVENT_QUEUED || e->kind == EVENT_DONE;
    if (!of_turn) return;
    struct seen_turn *t = fx_seen_turn(f, e->turn.turn);
    if (e->kind == EVENT_STARTED || e->kind == EVENT_QUEUED) {
        memset(t, 0, sizeof *t);
        t->seed = e->turn.seed;
        t->queued = e->kind == EVENT_QUEUED;
        t->started = e->kind == EVENT_STARTED;
    }
    if (e->kind == EVENT_DONE) {
        assert_false(t->done);
        t->done = true;
        memcpy(t->text + t->text_len, e->turn.text, e->turn.text_len);
        t->text[t->text_len += e->turn.text_len] = '\0';
        snprintf(t->finish, sizeof t->finish, "%s", e->turn.finish_reason);
        snprintf(t->error, sizeof t->error, "%s", e->turn.error_code ? e->turn.error_code : "");
        t->numbers = e->turn.numbers;
    }
}

static void fx_take(uint64_t client, struct follower *f) {
    struct session_event e;
    f->ready = false;
    while (f->s && session_next_event(f->s, client, fx.max_text ? fx.max_text : 64, &e) == 1)
        fx_take_event(f, &e);
}

static void fx_take_archive(const struct session_answer *a) {
    char *whole = NULL;
    assert_true(a->first || fx.archive);
    if (asprintf(&whole, "%s%.*s", a->first ? "" : fx.archive, (int)a->archive_len, a->archive) < 0)
        fail_msg("no memory");
    free(fx.archive);
    fx.archive = whole;
    fx.n_pieces = a->first ? 1 : fx.n_pieces + 1;
    if (a->archive_len > fx.longest_piece) fx.longest_piece = a->archive_len;
}

static void fx_on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    assert_true(fx.n_answers < ANSWERS);
    struct seen_answer *s = &fx.answers[fx.n_answers++];
    fx_clear_answer(s);
    s->client = client;
    s->kind = a->kind;
    s->retry_after_ms = a->retry_after_ms;
    s->seq = a->seq;
    s->turn = a->turn;
    s->reset = a->reset;
    s->more = a->more;
    s->deleted = a->deleted;
    s->n_turns = a->n_turns;
    s->n_sessions = a->n_sessions;
    s->n_tokens = a->session.rec.n_tokens;
    s->n_turns_total = a->session.rec.n_turns;
    s->state = a->session.state;
    snprintf(s->request_id, sizeof s->request_id, "%s", a->request_id);
    snprintf(s->code, sizeof s->code, "%s", a->code ? a->code : "");
    snprintf(s->message, sizeof s->message, "%s", a->message ? a->message : "");
    assert_null(strstr(s->message, fx.path)); // clients must not learn where the database lies
    snprintf(s->session_id, sizeof s->session_id, "%s", a->session_id ? a->session_id : "");
    snprintf(s->title, sizeof s->title, "%s", a->session.rec.title ? a->session.rec.title : "");
    snprintf(s->cursor, sizeof s->cursor, "%s", a->cursor ? a->cursor : "");
    for (size_t i = 0; i < a->n_sessions && i < 16; i++) {
        snprintf(s->ids[i], sizeof s->ids[i], "%s", a->sessions[i].rec.id);
        snprintf(s->titles[i], sizeof s->titles[i], "%s", a->sessions[i].rec.title);
        s->states[i] = a->sessions[i].state;
    }
    for (size_t i = 0; i < a->n_turns && i < SEEN_TURNS; i++) {
        const struct turn_view *t = &a->turns[i];
        s->turns[i].turn = t->turn;
        s->turns[i].state = t->state;
        s->turns[i].seq_last = t->seq_last;
        s->turns[i].numbers = t->numbers;
        snprintf(s->turns[i].text, sizeof s->turns[i].text, "%.*s", (int)t->text_len, t->text);
        snprintf(s->turns[i].input, sizeof s->turns[i].input, "%.*s", (int)t->input.text_len,
                 t->input.text ? t->input.text : "");
        snprintf(s->turns[i].finish, sizeof s->turns[i].finish, "%s",
                 t->finish_reason ? t->finish_reason : "");
    }
    if (a->kind == ANSWER_EXPORTED) fx_take_archive(a);
    s->first = a->first;
    s->last = a->last;
    if ((a->kind == ANSWER_EXPORTED || a->kind == ANSWER_LIST) && !a->last) fx.going_on = client;
    if ((a->kind == ANSWER_EXPORTED || a->kind == ANSWER_LIST) && !a->first) return;
    fx_count_answer(a->request_id);
    if (fx.on_answer) fx.on_answer(s);
}
static void fx_on_ready(void *ctx, uint64_t client, struct session *s) {
    struct follower *f = fx_follower(client, session_id(s));
    f->s = s;
    f->ready = f->attached = true;
    f->gone = false;
    if (!fx.by_hand) fx_take(client, f);
}
static void fx_on_progress(void *ctx, uint64_t client, struct session *s, int64_t turn,
                           int64_t done, int64_t total) {
    fx.n_progress++;
}
static void fx_on_gone(void *ctx, uint64_t client, struct session *s) {
    struct follower *f = fx_follower(client, session_id(s));
    f->s = NULL;
    f->gone = true;
    f->attached = false;
}
static void fx_on_changed(void *ctx, int64_t key, const char *owner, const char *id, bool removed) {
    fx.n_changed++;
    fx.changed_key = key;
    snprintf(fx.last_changed, sizeof fx.last_changed, "%s", id);
    fx.n_removed += removed;
}

static void fx_on_stalled(void *ctx, uint64_t client, struct session *s, const struct err *why,
                          int64_t stalled_us) {
    fx.n_stalled++;
    fx.stalled_us = stalled_us;
    snprintf(fx.stalled, sizeof fx.stalled, "%s: %s", session_id(s), why->text);
    assert_null(strstr(why->text, fx.path));
}

static void fx_on_moved(void *ctx, uint64_t client, struct session *s, int64_t turn,
                        const char *reason) {
    fx.n_moved++;
}

// The fake engine number `e`; the first one is NULL.
static int fx_add_instance(const char *name, struct engine *e, struct err *err) {
    struct instance_options o = {.name = name, .engine = e, .max_sequences = 4, .sink_len = 4};
    sampling_params_init(&o.sampling);
    int rc = sessions_add_instance(fx.ss, &o, err);
    if (rc < 0) sessions_close(fx.ss);
    if (rc < 0) fx.ss = NULL;
    return rc;
}

static int fx_try_open(struct err *err) {
    static const struct sessions_callbacks cb = {NULL,           fx_on_answer, fx_on_ready,
                                                 fx_on_progress, fx_on_gone,   fx_on_changed,
                                                 fx_on_stalled,  fx_on_moved};
    fx.o.db_path = fx.path;
    fx.o.clock = &fx.clock.clock;
    metrics_free(fx.metrics); // of the last service: a name may be registered once
    fx.o.metrics = fx.metrics = metrics_new();
    TRY(sessions_open(&fx.ss, &fx.o, &cb, err));
    return fx_add_instance(NULL, NULL, err);
}
static void fx_open(void) {
    struct err err = {0};
    if (fx_try_open(&err) < 0) fail_msg("%s", err.text);
}
// The service doesn't open: with this code, and an error that has the words and names the file.
static inline void fx_expect_refused(int code, const char *words) {
    struct err err = {0};
    int rc = fx_try_open(&err);
    if (rc != code || !strstr(err.text, words)) fail_msg("%d, %s", rc, err.text);
    assert_non_null(strstr(err.text, fx.path));
}
static void fx_remove_files(void) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", ".tail"};
    char path[300];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", fx.path, suffixes[i]);
        unlink(path);
    }
}
static void fx_settings(const char *path) {
    log_set_level(LOG_OFF);
    fx_clear();
    fake_reset();
    clock_fake_init(&fx.clock, 1700000000000000);
    snprintf(fx.path, sizeof fx.path, "%s", path);
    fx.o = (struct sessions_options){.max_sequence_idle_microseconds = 60000000,
                                     .max_queued_turns = 4,
                                     .max_resident_sessions = 100,
                                     .commit_interval_us = 20000};
}
// A file of this test's own in the temporary folder.
static void fx_setup_file(void) {
    char path[200];
    snprintf(path, sizeof path, "%s/parley-test-%ld.db",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    fx_settings(path);
    fx_remove_files();
    fx_open();
}
static void fx_setup_memory(void) {
    fx_settings(":memory:");
    fx_open();
}
static void fx_teardown(void) {
    sessions_close(fx.ss);
    fx.ss = NULL;
    if (strcmp(fx.path, ":memory:") != 0) fx_remove_files();
    metrics_free(fx.metrics);
    free(fx.archive);
    fx.archive = NULL;
    fake_reset();
    free(fake.events);
    fake.events = NULL;
}
static void fx_forget_clients(void) {
    for (uint64_t client = 1; fx.ss && client < CLIENTS; client++)
        sessions_client_gone(fx.ss, client);
    fx_clear_followers();
    fx.n_answers = 0;
}
static void fx_shut_down(void) {
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fake_reset();
}
static void fx_restart(void) {
    fx_shut_down();
    fx_open();
}

static bool fx_quiet(void) {
    bool further_piece = fx.going_on && !fx.wants_nothing;
    return !further_piece && store_n_waiting(fx.ss->store) == 0 &&
           fake.first_event >= fake.n_events;
}
// Runs everything that can happen without time passing or the engine stepping.
// It ends after two quiet polls: what the first delivers may ask the store for more.
static void fx_settle(void) {
    for (int n_quiet = 0; n_quiet < 2;) {
        sessions_poll(fx.ss);
        uint64_t client = fx.wants_nothing ? 0 : fx.going_on;
        if (client) fx.going_on = 0;
        if (client) sessions_continue(fx.ss, client);
        n_quiet = fx_quiet() ? n_quiet + 1 : 0;
        if (store_n_waiting(fx.ss->store) > 0) usleep(50);
    }
}
// Until the store has looked for news since the call: a look that was under way may have begun before.
static void fx_await_look(void) {
    uint64_t until = store_n_looks(fx.ss->store) + 2;
    for (int ms = 0; store_n_looks(fx.ss->store) < until; ms++) {
        if (ms == 60000) fail_msg("the store looks for no news");
        usleep(1000);
    }
}
static void fx_step(void) {
    fake_step();
    fx_settle();
}
static void fx_run(void) { // until no turn runs or waits
    int n = 0;
    fx_settle();
    while ((sessions_n_running(fx.ss) || fake_n_running()) && n++ < 10000) {
        clock_fake_advance(&fx.clock, 1000);
        fx_step();
    }
    clock_fake_advance(&fx.clock, 30000); // past the commit interval
    fx_settle();
}
static void fx_advance(int64_t us) {
    clock_fake_advance(&fx.clock, us);
    fx_settle();
}

static struct request fx_request(uint64_t client, const char *request_id) {
    struct request r = {.client = client, .owner = "local"};
    snprintf(r.request_id, sizeof r.request_id, "%s", request_id ? request_id : "");
    return r;
}
static void fx_open_session(uint64_t client, const char *id) {
    struct request r = fx_request(client, "open");
    struct ask_open o = {.id = id, .sink_len = -1};
    fx_follower(client, id);
    ask_open(fx.ss, &r, &o);
    fx_settle();
}
static void fx_start_with(uint64_t client, const char *id, const char *text, const char *sampling,
                          bool queue, const char *request_id) {
    struct request r = fx_request(client, request_id);
    struct turn_input in = {.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
    ask_start(fx.ss, &r, id, TURN_HEAD, &in, sampling, queue);
}
static void fx_start(uint64_t client, const char *id, const char *text) {
    fx_start_with(client, id, text, NULL, false, NULL);
}
// From `after` on, knowing nothing before it.
static void fx_attach(uint64_t client, const char *id, int64_t after) {
    struct request r = fx_request(client, "attach");
    struct follower *f = fx_follower(client, id);
    if (after >= 0) f->last = after;
    ask_attach(fx.ss, &r, id, after);
    fx_settle();
}
static const struct seen_answer *fx_last_answer(void) {
    return fx.n_answers ? &fx.answers[fx.n_answers - 1] : NULL;
}
static const struct seen_answer *fx_get(uint64_t client, const char *id) {
    struct request r = fx_request(client, "get");
    ask_get(fx.ss, &r, id, false, 0, -1);
    fx_settle();
    return fx_last_answer();
}
static void fx_update(uint64_t client, const char *id, const char *title, const char *sampling) {
    struct request r = fx_request(client, "update");
    ask_update(fx.ss, &r, id, title, sampling, -1);
    fx_settle();
}
static void fx_close(uint64_t client, const char *id, bool delete_it) {
    struct request r = fx_request(client, "close");
    ask_close(fx.ss, &r, id, delete_it);
    fx_settle();
}
static void fx_cancel(uint64_t client, const char *id, int64_t turn) {
    struct request r = fx_request(client, "cancel");
    ask_for(fx.ss, &r, REQUEST_CANCEL, id, turn);
    fx_settle();
}
static const struct seen_answer *fx_list(const char *query, int64_t limit, const char *cursor) {
    struct request r = fx_request(1, "list");
    ask_list(fx.ss, &r, query, NULL, limit, cursor);
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_LIST);
    return fx_last_answer();
}
static void fx_start_ids(uint64_t client, const char *id, const int32_t *ids, size_t n) {
    struct request r = fx_request(client, NULL);
    struct turn_input in = {.kind = INPUT_IDS, .ids = ids, .n_ids = n};
    ask_start(fx.ss, &r, id, TURN_HEAD, &in, NULL, false);
}
static void fx_start_text(uint64_t client, const char *id, const char *text) {
    struct request r = fx_request(client, NULL);
    struct turn_input in = {.kind = INPUT_TEXT, .text = text, .text_len = strlen(text)};
    ask_start(fx.ss, &r, id, TURN_HEAD, &in, NULL, false);
}
// START in a session of its own, new or a fork, behind turn `after`.
static void fx_start_in(uint64_t client, const char *id, enum start_in in, int64_t after,
                        const char *text) {
    struct request r = fx_request(client, "start"), start = ask_as(&r, REQUEST_START, id);
    start.turn = after;
    start.input = ask_content(text);
    start.start.in = in;
    start.attach = true;
    if (in == START_IN_NEW) fx_follower(client, id);
    sessions_submit(fx.ss, &start);
}
// A turn from its start to its end.
static void fx_turn(uint64_t client, const char *id, const char *text) {
    fx_start(client, id, text);
    fx_run();
}

// A database in a file with a session of one turn, which no server has open.
static void fx_start_closed(void) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    fx_shut_down();
}
static void fx_end_closed(void) {
    fx_remove_files();
    metrics_free(fx.metrics);
    fx.metrics = NULL;
    fake_reset();
}
static const struct seen_answer *fx_answer_to(const char *request_id) {
    for (int i = fx.n_answers; i-- > 0;)
        if (strcmp(fx.answers[i].request_id, request_id) == 0) return &fx.answers[i];
    fail_msg("no answer to %s", request_id);
    return NULL;
}
static void fx_expect_error(const char *code) {
    const struct seen_answer *a = fx_last_answer();
    assert_non_null(a);
    assert_int_equal(a->kind, ANSWER_ERROR);
    assert_string_equal(a->code, code);
    assert_true(a->message[0] != 0);
}
static struct session *fx_session(const char *id) {
    return service_find(fx.ss, "local", id);
}

// Keeps the store, and all others, from writing to the file, until the descriptor is closed. Waits for what is being written.
static inline int fx_hold_write_lock(void) {
    char lock[320];
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    snprintf(lock, sizeof lock, "%s.lock", fx.path);
    int fd = open(lock, O_RDWR);
    assert_int_equal(fcntl(fd, F_OFD_SETLKW, &l), 0);
    return fd;
}

// Lets no file of this process grow past the log's current size: to SQLite the disk is full.
static inline void fx_disk_full(bool full) {
    char wal[300];
    struct stat st;
    snprintf(wal, sizeof wal, "%s-wal", fx.path);
    assert_int_equal(stat(wal, &st), 0);
    struct rlimit limit = {full ? (rlim_t)st.st_size : RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

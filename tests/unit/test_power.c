// Power cuts at any moment, and disks that refuse the n-th write, sync or open: the database is
// intact, has all that clients were sent, and the service recovers when the disk does.
#include "sessions/store/db.h"
#include "tests/scale.h"
#include "tests/unit/power_vfs.h"
#include "tests/unit/sessions_fixture.h"

#define SESSIONS 3
#define TURNS 40
#define FORKS 4
#define FORKER 7
#define CUTS 120   // fewer under the sanitizers
#define VARIANTS 4 // states of the disk tried for each cut

static int n_forks; // that were asked for

static bool opened_by_turn(int i) {
    return i > 0;
}

static unsigned random_state;
static unsigned below(unsigned n) {
    return (unsigned)rand_r(&random_state) % n;
}

static const char *name_of(int i) {
    static const char *const names[SESSIONS] = {"one", "two", "three"};
    return names[i];
}

// --- what clients have been told ---------------------------------------------

struct told {
    int64_t n_ops; // disk operations done when the client was told
    size_t n_forks;
    struct {
        int64_t last;
        struct {
            int n_ids;
            bool started, done;
        } turns[TURNS];
    } sessions[SESSIONS];
};
static struct told *history;
static int n_history, cap_history;
static struct seen_turn final[SESSIONS][TURNS];

static struct told told_now(void) {
    struct told t = {0};
    pthread_mutex_lock(&pv.mutex);
    t.n_ops = pv.n_ops;
    pthread_mutex_unlock(&pv.mutex);
    for (int i = 0; i < FORKS; i++) t.n_forks += fx.followers[FORKER][i].last > 0;
    for (int i = 0; i < SESSIONS; i++) {
        struct follower *f = fx_follower((uint64_t)i + 1, name_of(i));
        t.sessions[i].last = f->last;
        for (int k = 0; k < TURNS; k++) {
            t.sessions[i].turns[k].n_ids = (int)f->turns[k].n_ids;
            t.sessions[i].turns[k].started = f->turns[k].started;
            t.sessions[i].turns[k].done = f->turns[k].done;
        }
    }
    return t;
}

static void remember(void) {
    if (n_history == cap_history) {
        cap_history = cap_history ? cap_history * 2 : 256;
        history = realloc(history, (size_t)cap_history * sizeof *history);
    }
    history[n_history++] = told_now();
}

static bool is_fork(const char *id) {
    for (int i = 0; i < SESSIONS; i++)
        if (strcmp(id, name_of(i)) == 0) return false;
    return true;
}

// One commit has a fork and the turn that it was made for.
static void expect_forks(const struct told *t) {
    struct seen_answer list = *fx_list(NULL, 0, NULL);
    size_t n = 0;
    for (size_t i = 0; i < list.n_sessions; i++) {
        if (!is_fork(list.ids[i])) continue;
        n++;
        fx_attach(FORKER, list.ids[i], 0);
        assert_true(fx_follower(FORKER, list.ids[i])->turns[1].started);
    }
    assert_true(n >= t->n_forks);
}

// After a restart a client reads every event from the first one on, then continues each session.
static void expect_told(const struct told *t, bool tokens_too) {
    for (int i = 0; i < SESSIONS; i++) {
        uint64_t client = (uint64_t)i + 4;
        struct follower *f = fx_follower(client, name_of(i));
        fx_attach(client, name_of(i), 0);
        bool there = fx_last_answer()->kind != ANSWER_ERROR;
        if (!there && t->sessions[i].last == 0) continue;
        if (!there) fail_msg("%s: %s", name_of(i), fx_last_answer()->message);
        if (opened_by_turn(i)) assert_true(f->turns[0].started); // never one without the other
        assert_true(f->last >= t->sessions[i].last);
        for (int k = 0; k < TURNS; k++) {
            const struct seen_turn *kept = &f->turns[k], *whole = &final[i][k];
            if (t->sessions[i].turns[k].started) assert_true(kept->started);
            assert_int_equal(kept->started && !kept->done, 0);
            if (tokens_too) assert_true((int)kept->n_ids >= t->sessions[i].turns[k].n_ids);
            size_t both = kept->n_ids < whole->n_ids ? kept->n_ids : whole->n_ids;
            assert_memory_equal(kept->ids, whole->ids, both * sizeof *whole->ids);
            if (!t->sessions[i].turns[k].done) continue;
            assert_true(kept->done);
            assert_string_equal(kept->finish, whole->finish);
            assert_string_equal(kept->text, whole->text);
            assert_int_equal(kept->n_ids, whole->n_ids);
        }
        fx_turn(client, name_of(i), "goes on");
        assert_true(fx_last_answer()->kind == ANSWER_ACCEPTED);
        assert_int_equal(sessions_n_running(fx.ss), 0);
    }
    expect_forks(t);
}

// --- a life ------------------------------------------------------------------

static void some_steps(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        clock_fake_advance(&fx.clock, 8000);
        fx_step();
        remember();
    }
}

static void act(int i) {
    char text[64];
    uint64_t client = (uint64_t)i + 1;
    struct follower *f = fx_follower(client, name_of(i));
    if (!f->count[EVENT_OPENED] && opened_by_turn(i)) {
        fx_start_in(client, name_of(i), START_IN_NEW, TURN_HEAD, "first words");
        some_steps(2);
        return;
    }
    if (!f->count[EVENT_OPENED]) {
        fx_open_session(client, name_of(i));
        remember();
        return;
    }
    struct session *s = fx_session(name_of(i));
    if (s && s->n_turns + 2 >= TURNS) return;
    snprintf(text, sizeof text, "{\"seed\":%u,\"max_tokens\":%u}", below(1000), 1 + below(20));
    switch (below(7)) {
    case 6:
        if (n_forks == FORKS || !f->turns[0].done || !s || !session_is_busy(s)) return;
        n_forks++;
        fx_start_in(FORKER, name_of(i), START_OR_FORK, 0, "in a fork");
        break;
    case 0:
        fx_update(client, name_of(i), text, NULL);
        break;
    case 1:
        fx_start_with(client, name_of(i), "queued", text, true, NULL);
        break;
    case 2:
        fx_cancel(client, name_of(i), -1);
        break;
    default:
        fx_start_with(client, name_of(i), "some words to be indexed", text, false, NULL);
    }
    some_steps(below(8));
}

static void live(int n_acts, int n_rests) {
    for (int n = 0; n < n_acts; n++) {
        act((int)below(SESSIONS));
        if (n_rests && n % (n_acts / n_rests) == 0) usleep(300000); // time for a checkpoint
        fx_settle();
        remember();
    }
    fx_run();
    remember();
}

static void note_final(void) {
    for (int i = 0; i < SESSIONS; i++)
        for (int k = 0; k < TURNS; k++)
            final[i][k] = fx_follower((uint64_t)i + 1, name_of(i))->turns[k];
}

static void setup(enum sessions_durable durable) {
    char path[200];
    snprintf(path, sizeof path, "%s/parley-test-%ld.db",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    fx_settings(path);
    fx_remove_files();
    fx.o.durable = durable;
    fx.o.commit_interval_us = 10000;
    n_history = n_forks = 0;
    pv_install(true);
}

static void teardown(void) {
    if (fx.ss) sessions_close(fx.ss);
    fx.ss = NULL;
    fx_remove_files();
    metrics_free(fx.metrics);
    fx.metrics = NULL;
    fake_reset();
    free(fake.events);
    fake.events = NULL;
    pv_install(false);
    pv_reset();
}

static void expect_whole(void) {
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
    sqlite3_finalize(s);
    sqlite3_close(db);
}

// --- power cuts --------------------------------------------------------------

struct cut {
    int64_t n_ops;
    struct {
        char name[300];
        bool there;
        unsigned char *bytes;
        sqlite3_int64 len;
    } files[VARIANTS][PV_FILES];
    int n_files;
};
static struct cut *cuts;
static int n_cuts, most_cuts, cut_every;
static unsigned cut_state;

// Called before every disk operation. Now and then it keeps what a power cut at this moment would
// leave.
static void maybe_cut(void) {
    if (n_cuts == most_cuts || rand_r(&cut_state) % (unsigned)cut_every != 0) return;
    struct cut *c = &cuts[n_cuts++];
    c->n_ops = pv.n_ops;
    c->n_files = pv.n_files;
    for (int v = 0; v < VARIANTS; v++)
        for (int i = 0; i < pv.n_files; i++) {
            const struct pv_disk_file *f = &pv.files[i];
            snprintf(c->files[v][i].name, sizeof c->files[v][i].name, "%s", f->name);
            c->files[v][i].there = f->synced || (f->n && v % 2);
            int keep = v == 0 ? 0 : v == 1 ? 2 : v == 2 ? 3 : 4; // of 4
            c->files[v][i].bytes = pv_cut(f, keep, &cut_state, &c->files[v][i].len);
        }
}

static void start_from_cut(const struct cut *c, int v) {
    fx_remove_files();
    for (int i = 0; i < c->n_files; i++) {
        if (!c->files[v][i].there) continue;
        FILE *f = fopen(c->files[v][i].name, "wb");
        assert_non_null(f);
        size_t len = (size_t)c->files[v][i].len;
        assert_int_equal(fwrite(c->files[v][i].bytes, 1, len, f), len);
        fclose(f);
    }
    fx_forget_clients();
    fake_reset();
    fx_open();
}

static const struct told *told_before(int64_t n_ops) {
    static const struct told nothing;
    const struct told *t = &nothing;
    for (int i = 0; i < n_history && history[i].n_ops <= n_ops; i++) t = &history[i];
    return t;
}

static void release_cuts(void) {
    for (int k = 0; k < n_cuts; k++)
        for (int v = 0; v < VARIANTS; v++)
            for (int i = 0; i < cuts[k].n_files; i++) free(cuts[k].files[v][i].bytes);
    free(cuts);
}

static void cut_power(enum sessions_durable durable, unsigned seed) {
    random_state = cut_state = seed;
    setup(durable);
    most_cuts = test_scaled(CUTS);
    cuts = calloc((size_t)most_cuts, sizeof *cuts);
    n_cuts = 0;
    cut_every = 9 * CUTS / most_cuts; // spreads the cuts over the whole run
    pv.on_op = maybe_cut;
    fx_open();
    live(60, 4);
    note_final();
    sessions_close(fx.ss); // includes a checkpoint, which may be cut too
    fx.ss = NULL;
    pv.on_op = NULL;
    pv_install(false);
    assert_true(n_cuts > most_cuts / 3);
    for (int k = 0; k < n_cuts; k++) {
        for (int v = 0; v < VARIANTS; v++) {
            start_from_cut(&cuts[k], v);
            expect_told(told_before(cuts[k].n_ops), durable == DURABLE_POWER);
            sessions_close(fx.ss);
            fx.ss = NULL;
            expect_whole();
        }
    }
    release_cuts();
    teardown();
}

static void a_power_cut_takes_no_end_of_a_turn(void **state) {
    cut_power(DURABLE_TURN, 1);
}

static void with_power_it_takes_no_token_that_was_told(void **state) {
    cut_power(DURABLE_POWER, 2);
}

// --- a disk that refuses -----------------------------------------------------

static int n_unready, total_unready; // how often readyz would have failed

static void watch(void) {
    const char *reason;
    if (sessions_store_ok(fx.ss, &reason)) return;
    n_unready++;
    assert_true(reason[0] != '\0');
}

// Opens sessions and runs turns as far as the disk allows. Every refusal must have a reason.
static void try_to_live(int n_acts) {
    for (int n = 0; n < n_acts; n++) {
        act((int)below(SESSIONS));
        fx_settle();
        watch();
        remember();
    }
    for (int i = 0; i < 40; i++) {
        clock_fake_advance(&fx.clock, 8000);
        fx_step();
        watch();
    }
    for (int i = 0; i < fx.n_answers; i++) {
        const struct seen_answer *a = &fx.answers[i];
        if (a->kind == ANSWER_ERROR) assert_true(a->message[0] != '\0');
        if (strcmp(a->code, "store_failed") == 0) assert_true(n_unready > 0);
    }
}

static bool refuse_nth(int kinds, int code, int64_t nth, bool from_start) {
    struct err err = {0};
    n_unready = 0;
    setup(DURABLE_TURN);
    random_state = 7;
    if (!from_start) fx_open();
    if (!from_start) act(0), act(1);
    pv_fail(kinds, code, nth);
    if (from_start && fx_try_open(&err) < 0) { // the sentence names the file
        fx.ss = NULL;
        assert_non_null(strstr(err.text, fx.path));
        pv_fail(0, 0, -1);
        fx_open(); // the next start finds no damage
    }
    try_to_live(10);
    int64_t n_failed = pv.n_failed;
    pv_fail(0, 0, -1); // there is room again
    fx_advance(6000000);
    fx_run();
    fx_advance(6000000);
    assert_true(sessions_store_ok(fx.ss, NULL));
    for (int i = 0; i < SESSIONS; i++) act(i);
    fx_run();
    struct told t = told_now();
    note_final();
    sessions_close(fx.ss);
    fx.ss = NULL;
    expect_whole();
    fx_forget_clients();
    fake_reset();
    fx_open();
    expect_told(&t, true);
    teardown();
    total_unready += n_unready;
    return n_failed > 0;
}

static void refuse_all(int kinds, int code) {
    int64_t n = 0;
    total_unready = 0;
    while (n < 400 && refuse_nth(kinds, code, n, false)) n += n < 20 ? 1 : 7;
    assert_true(n > 20 && total_unready > 20);
    for (n = 0; n < 60 && refuse_nth(kinds, code, n, true);) n += n < 12 ? 1 : 5;
    assert_true(n > 0);
}

static void a_full_disk(void **state) {
    refuse_all(PV_WRITE, SQLITE_FULL);
}
static void a_disk_that_cannot_write(void **state) {
    refuse_all(PV_WRITE, SQLITE_IOERR_WRITE);
}
static void a_disk_that_cannot_sync(void **state) {
    refuse_all(PV_SYNC, SQLITE_IOERR_FSYNC);
}
static void a_disk_that_has_become_read_only(void **state) {
    refuse_all(PV_WRITE | PV_SYNC, SQLITE_READONLY);
}
static void files_that_cannot_be_opened(void **state) {
    for (int64_t n = 0; n < 4; n++) refuse_nth(PV_OPEN, SQLITE_CANTOPEN, n, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_cut_takes_no_end_of_a_turn),
        cmocka_unit_test(with_power_it_takes_no_token_that_was_told),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_disk_that_cannot_write),
        cmocka_unit_test(a_disk_that_cannot_sync),
        cmocka_unit_test(a_disk_that_has_become_read_only),
        cmocka_unit_test(files_that_cannot_be_opened),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(history);
    return rc;
}

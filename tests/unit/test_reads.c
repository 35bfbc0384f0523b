// Reads beside the writer: commits do not wait for them, owners take turns, a queue has a bound, and
// what its client left behind is dropped.
#include "base/clock.h"
#include "sessions/store/reads.h"
#include "tests/unit/tmp_dir.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_SESSIONS 500
#define LONG 500
#define LOG_SAVES 4000 // of 30 kB each
#define SLOW "one two three four five six seven eight nine ten eleven twelve"

static struct tmp_dir folder;
static char path[300];
static struct store *st;

static struct session_save *new_session(int64_t key, const char *owner, const char *title) {
    char id[32];
    struct session_save *save = calloc(1, sizeof *save);
    snprintf(id, sizeof id, "s%" PRId64, key);
    struct session_record r = {.key = key,
                               .id = id,
                               .owner = (char *)owner,
                               .model = (char *)"m",
                               .fingerprint = (char *)"f",
                               .title = (char *)title,
                               .sampling = (char *)"{}",
                               .updated_ms = key};
    assert_int_equal(session_record_copy(&save->rec, &r), 0);
    save->insert = save->title_changed = true;
    return save;
}

static void send_save(int64_t key, const char *owner, const char *title) {
    struct store_job *job = store_job_new(STORE_SAVE, key);
    job->save = new_session(key, owner, title);
    store_send(st, job);
}

static void send_list(const char *owner, const char *query, uint64_t client) {
    struct store_job *job = store_job_new(STORE_LIST, 0);
    job->list = calloc(1, sizeof *job->list);
    job->list->owner = strdup(owner);
    job->list->query = query ? strdup(query) : NULL;
    job->list->limit = 200;
    job->client = client;
    store_send(st, job);
}

static struct store_job *next_answer(void) {
    struct store_job *job;
    do {
        job = store_wait(st, 20000000);
        assert_non_null(job);
    } while (job->kind == STORE_NEWS && (store_job_free(job), true));
    return job;
}

static void answers(size_t n) {
    while (n--) store_job_free(next_answer());
}

static void open_store(void) {
    struct store_options o = {.path = path, .clock = &clock_system};
    struct store_start start;
    struct err err = {0};
    if (store_open(&st, &o, &start, &err) < 0) fail_msg("%s", err.text);
    store_start_release(&start);
}

static int set_up(void **state) {
    tmp_dir_open(&folder);
    snprintf(path, sizeof path, "%s/reads.db", folder.path);
    open_store();
    for (int i = 1; i <= N_SESSIONS; i++) send_save(i, "a", SLOW);
    answers(N_SESSIONS);
    return 0;
}

static int tear_down(void **state) {
    store_close(st);
    tmp_dir_close(&folder);
    return 0;
}

static void a_commit_waits_for_no_read(void **state) {
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    send_save(N_SESSIONS + 1, "b", "title");
    int n_lists = 0;
    struct store_job *job;
    while ((job = next_answer())->kind == STORE_LIST) {
        assert_int_equal(job->rc, 0);
        n_lists++;
        store_job_free(job);
    }
    assert_int_equal(job->kind, STORE_SAVE);
    assert_int_equal(job->rc, 0);
    assert_in_range(n_lists, 0, 20);
    store_job_free(job);
    answers((size_t)(100 - n_lists));
}

// And it sees what was sent before it.
static void owners_take_turns(void **state) {
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    send_save(N_SESSIONS + 2, "b", "title");
    send_list("b", NULL, 8);
    for (int i = 0, n_lists = 0; i < 102; i++) {
        struct store_job *job = next_answer();
        bool own = job->kind == STORE_LIST && job->client == 8;
        n_lists += job->kind == STORE_LIST;
        if (own) {
            assert_int_equal(job->list->n_rows, 2);
            assert_in_range(n_lists, 1, 20);
        }
        store_job_free(job);
    }
    assert_int_equal(store_n_waiting(st), 0);
}

static void a_queue_has_a_bound(void **state) {
    int n_refused = 0;
    for (int i = 0; i < 400; i++) send_list("a", SLOW, 7);
    for (int i = 0; i < 400; i++) {
        struct store_job *job = next_answer();
        assert_true(job->rc == 0 || job->rc == E_BUSY);
        n_refused += job->rc == E_BUSY;
        if (job->rc < 0) assert_non_null(strstr(job->err.text, "too many requests"));
        store_job_free(job);
    }
    assert_in_range(n_refused, 1, 400 - READS_PER_OWNER);
}

// With so many turns that reading them takes about as long as a search.
static void send_long_session(int64_t key) {
    struct store_job *job = store_job_new(STORE_SAVE, key);
    job->save = new_session(key, "a", "long");
    job->save->turns = calloc(LONG, sizeof *job->save->turns);
    job->save->n_turns = LONG;
    for (int i = 0; i < LONG; i++) {
        struct turn_save *t = &job->save->turns[i];
        struct turn_record r = {.turn = i,
                                .parent = i - 1,
                                .request_id = (char *)"",
                                .request = (char *)"{}",
                                .sampling = (char *)"{}",
                                .instance = (char *)"",
                                .build = (char *)"",
                                .input_text = (char *)"some words",
                                .input_text_len = 10,
                                .finish_reason = "eos"};
        t->kind = TURN_INSERT;
        t->whole = true;
        assert_int_equal(turn_record_copy(&t->rec, &r), 0);
    }
    store_send(st, job);
}

static void send_load(int64_t key) {
    char id[32];
    struct store_job *job = store_job_new(STORE_LOAD, 0);
    snprintf(id, sizeof id, "s%" PRId64, key);
    job->id = strdup(id);
    job->owner = strdup("a");
    store_send(st, job);
}

#define LARGE 30000
static void send_large_save(int64_t key) {
    struct store_job *job = store_job_new(STORE_SAVE, key);
    job->save = new_session(key, "b", "title");
    job->save->rec.system = malloc(LARGE);
    memset(job->save->rec.system, 'p', LARGE - 1);
    job->save->rec.system[LARGE - 1] = '\0';
    store_send(st, job);
}

// The log is emptied where no read uses it. Reads that come without a pause would let it grow.
static void reads_without_a_pause_let_no_log_grow(void **state) {
    char log[320];
    int64_t largest = 0;
    struct stat was;
    snprintf(log, sizeof log, "%s-wal", path);
    send_long_session(999);
    for (int i = 0; i < 20; i++) send_list("a", SLOW, 7), send_load(999);
    for (int64_t key = 1000; key < 1000 + LOG_SAVES;) {
        struct store_job *job = next_answer();
        bool read = job->kind != STORE_SAVE;
        assert_int_equal(job->rc, 0);
        if (job->kind == STORE_LIST) send_list("a", SLOW, 7); // another in its place
        if (job->kind == STORE_LOAD) send_load(999);
        store_job_free(job);
        for (int n = 0; read && n < 20; n++) send_large_save(key++);
        assert_int_equal(stat(log, &was), 0);
        if (was.st_size > largest) largest = was.st_size;
    }
    while (store_n_waiting(st) > 0) store_job_free(next_answer());
    if (largest > LOG_SAVES / 3 * 2 * (int64_t)LARGE)
        fail_msg("%lld bytes of log for %d saves", (long long)largest, LOG_SAVES);
}

// Another process may keep the log as it is, as a backup does: that holds up no list.
static void a_foreign_reader_holds_up_no_list(void **state) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM sessions", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int64_t key = 20000; key < 21500; key++) send_large_save(key); // 12,000 pages of log
    answers(1500);
    for (int i = 0; i < 30; i++) {
        send_list("b", NULL, 7);
        answers(1); // within 20 s
        usleep(50000);
    }
    sqlite3_close(db);
}

static void a_client_takes_its_reads_along(void **state) {
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    for (int i = 0; i < 3; i++) send_list("a", NULL, 8);
    store_cancel(st, 7);
    assert_in_range(store_n_waiting(st), 3, 5); // one may run, one be answered
    for (int others = 0; others < 3;) {
        struct store_job *job = next_answer();
        if (job->client == 8) {
            assert_int_equal(job->rc, 0);
            others++;
        }
        store_job_free(job);
    }
}

static void a_stop_waits_for_writes_alone(void **state) {
    for (int i = 0; i < 200; i++) send_list("a", SLOW, 7);
    send_save(N_SESSIONS + 3, "b", "last");
    assert_int_equal(store_n_writing(st), 1);
    store_flush(st);
    int64_t start = clock_mono_us(&clock_system);
    store_close(st);
    assert_in_range(clock_mono_us(&clock_system) - start, 0, 3000000);
    open_store();
    send_list("b", "last", 1);
    struct store_job *job = next_answer();
    assert_int_equal(job->list->n_rows, 1);
    store_job_free(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_waits_for_no_read),
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(a_queue_has_a_bound),
        cmocka_unit_test(reads_without_a_pause_let_no_log_grow),
        cmocka_unit_test(a_foreign_reader_holds_up_no_list),
        cmocka_unit_test(a_client_takes_its_reads_along),
        cmocka_unit_test(a_stop_waits_for_writes_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

// Reads beside the writer: commits do not wait for them, owners take turns, a queue is bounded, and
// the reads of a client that left are dropped.
#include "base/clock.h"
#include "sessions/store/reads.h"
#include "tests/cmocka.h"
#include "tests/unit/new_session.h"
#include "tests/unit/tmp_dir.h"
#include <sys/stat.h>
#include <unistd.h>

#define N_SESSIONS 500
#define LONG 500
#define LOG_SAVES 4000 // of 30 kB each
#define SLOW "one two three four five six seven eight nine ten eleven twelve"

static struct tmp_dir folder;
static char path[300];
static struct store *st;

static struct session_save *new_save(int64_t key, const char *owner, const char *title) {
    char id[32];
    struct session_save *save = calloc(1, sizeof *save),
                        borrowed = new_session(id, key, owner, title);
    *save = borrowed;
    assert_int_equal(session_record_copy(&save->rec, &borrowed.rec), 0);
    return save;
}

static void send_save(int64_t key, const char *owner, const char *title) {
    struct store_job *job = store_job_new(STORE_SAVE, key);
    job->save = new_save(key, owner, title);
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
        job = store_wait(st, 120000000);
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

// Returns how many lists were answered before the save. The caller tries again if they are many: a
// busy machine may run the readers first.
static int lists_before_a_save(int64_t key) {
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    send_save(key, "b", "title");
    int n_lists = 0;
    struct store_job *job;
    while ((job = next_answer())->kind == STORE_LIST) {
        assert_int_equal(job->rc, 0);
        n_lists++;
        store_job_free(job);
    }
    assert_int_equal(job->kind, STORE_SAVE);
    assert_int_equal(job->rc, 0);
    store_job_free(job);
    answers((size_t)(100 - n_lists));
    return n_lists;
}

static void a_commit_waits_for_no_read(void **state) {
    for (int attempt = 1; attempt < 10; attempt++)
        if (lists_before_a_save(1000000 + attempt) <= 20) return;
    fail_msg("it waits for most of 100 lists");
}

// A long search is read in slices, and another owner's search goes between two of them.
static void a_search_of_another_owner_does_not_wait_for_the_whole_one(void **state) {
    for (int attempt = 0; attempt < 10; attempt++) { // a busy machine may send the second one late
        send_list("a", SLOW, 7);
        send_list("b", "zero", 8);
        struct store_job *first = next_answer(), *second = next_answer();
        bool passed = first->client == 8 && second->client == 7;
        assert_int_equal(first->rc | second->rc, 0);
        assert_int_equal((passed ? second : first)->list->n_rows, 200);
        store_job_free(first);
        store_job_free(second);
        if (passed) return;
    }
    fail_msg("it always waits");
}

// Answers of the other owner's lists that come before this owner's.
static int lists_before_another(int64_t key) {
    int n_lists = 0, before = 0;
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    send_save(key, "c", "title");
    send_list("c", "title", 8);
    for (int i = 0; i < 102; i++) {
        struct store_job *job = next_answer();
        if (job->kind == STORE_LIST && job->client == 8) {
            assert_in_range(job->list->n_rows, 1, 10); // it sees what was sent before it
            before = n_lists;
        }
        n_lists += job->kind == STORE_LIST;
        store_job_free(job);
    }
    assert_int_equal(store_n_waiting(st), 0);
    return before;
}

static void owners_take_turns(void **state) {
    for (int attempt = 1; attempt < 10; attempt++)
        if (lists_before_another(2000000 + attempt) <= 20) return;
    fail_msg("it waits for most of 100 lists");
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
    job->save = new_save(key, "a", "long");
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
    job->save = new_save(key, "b", "title");
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
        if (job->kind == STORE_LIST) send_list("a", SLOW, 7); // sends another in its place
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

// Another process, such as a backup, may keep the log from being emptied. Lists do not wait for it.
static void a_foreign_reader_holds_up_no_list(void **state) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM sessions", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int64_t key = 20000; key < 21500; key++) send_large_save(key); // 12,000 pages of log
    answers(1500);
    for (int i = 0; i < 30; i++) {
        send_list("b", NULL, 7);
        answers(1);
        usleep(50000);
    }
    sqlite3_close(db);
}

// 1 if client 8 asked for it.
static int is_of_8(struct store_job *job) {
    const int is = job->client == 8;
    if (is) assert_int_equal(job->rc, 0);
    store_job_free(job);
    return is;
}

static void a_client_takes_its_reads_along(void **state) {
    for (int i = 0; i < 100; i++) send_list("a", SLOW, 7);
    for (int i = 0; i < 3; i++) send_list("a", NULL, 8);
    store_cancel(st, 7);
    int others = 0;
    for (struct store_job *job; (job = store_receive(st));) others += is_of_8(job);
    // Nothing is left but client 8's and the one of client 7 that was running.
    assert_in_range(store_n_waiting(st), 3 - others, 3 - others + 1);
    while (others < 3) others += is_of_8(next_answer());
}

static void a_stop_waits_for_writes_alone(void **state) {
    int64_t begun = clock_mono_us(&clock_system);
    send_list("a", SLOW, 7);
    answers(1);
    int64_t one = clock_mono_us(&clock_system) - begun; // on this machine, now
    for (int i = 0; i < 200; i++) send_list("a", SLOW, 7);
    send_save(N_SESSIONS + 3, "b", "last");
    assert_int_equal(store_n_writing(st), 1);
    store_flush(st);
    int64_t start = clock_mono_us(&clock_system);
    store_close(st);
    assert_in_range(clock_mono_us(&clock_system) - start, 0, 3000000 + 10 * one);
    open_store();
    send_list("b", "last", 1);
    struct store_job *job = next_answer();
    assert_int_equal(job->list->n_rows, 1);
    store_job_free(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_waits_for_no_read),
        cmocka_unit_test(a_search_of_another_owner_does_not_wait_for_the_whole_one),
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(a_queue_has_a_bound),
        cmocka_unit_test(reads_without_a_pause_let_no_log_grow),
        cmocka_unit_test(a_foreign_reader_holds_up_no_list),
        cmocka_unit_test(a_client_takes_its_reads_along),
        cmocka_unit_test(a_stop_waits_for_writes_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

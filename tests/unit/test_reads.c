// Reads beside the writer: commits do not wait for them, owners take turns, a queue has a bound, and
// what its client left behind is dropped.
#include "base/clock.h"
#include "sessions/store/reads.h"
#include "tests/unit/tmp_dir.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define N_SESSIONS 500
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
        cmocka_unit_test(a_client_takes_its_reads_along),
        cmocka_unit_test(a_stop_waits_for_writes_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

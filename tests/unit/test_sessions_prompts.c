// Sessions with a table of virtual tokens: one of a task, and one that a client brought, whose content
// is the session's. Through restarts, forks, archives, limits and damaged rows.
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"
#include <sqlite3.h>

#define ROWS 3
#define N_VALUES (ROWS * FAKE_WIDTH)

static struct prompt *table(float first) {
    struct err err = {0};
    struct prompt *p;
    float data[N_VALUES];
    for (int i = 0; i < N_VALUES; i++) data[i] = first + (float)i;
    assert_int_equal(prompt_new(&p, PROMPT_ROWS, ROWS, FAKE_WIDTH, data, &err), 0);
    return p;
}

// Serves one task, under this name.
static struct prompt_task task;
static void serve(const char *name, float first) {
    prompt_free((struct prompt *)(uintptr_t)task.prompt);
    task.prompt = table(first);
    snprintf(task.name, sizeof task.name, "%s", name);
    fake.info.prompt_tasks = &task;
    fake.info.n_prompt_tasks = 1;
}
static void withdraw(void) {
    prompt_free((struct prompt *)(uintptr_t)task.prompt);
    task.prompt = NULL;
    fake.info.n_prompt_tasks = 0;
}

static const struct seen_answer *open_with(const char *id, const char *name,
                                           const struct prompt *own, int64_t session_len) {
    struct request r = fx_request(1, "open");
    r.kind = REQUEST_OPEN;
    r.session = id;
    r.open.sink_len = -1;
    r.open.prompt_task = name;
    r.open.prompt = own;
    r.open.session_len = session_len;
    sessions_submit(fx.ss, &r);
    fx_settle();
    return fx_last_answer();
}

static void refused(const struct seen_answer *a, const char *code, const char *says) {
    assert_int_equal(a->kind, ANSWER_ERROR);
    assert_string_equal(a->code, code);
    if (!strstr(a->message, says)) fail_msg("'%s' does not say '%s'", a->message, says);
}

static void begins_with_rows(const char *id, int64_t n) {
    const struct session *s = fx_session(id);
    for (int i = 0; i < ROWS; i++) assert_int_equal(s->log[i], PROMPT_ID_FIRST + i);
    assert_true((int64_t)s->n_log > ROWS && s->log[ROWS] < PROMPT_ID_FIRST);
    assert_true(n < 0 || s->turns[0]->rec.n_input == n);
}

static void start_ids(const char *id, const int32_t *ids, size_t n, int64_t after) {
    struct request r = fx_request(1, NULL);
    struct turn_input in = {.kind = INPUT_IDS, .ids = ids, .n_ids = n};
    ask_start(fx.ss, &r, id, after, &in, "{\"max_tokens\":2}", false);
    fx_settle();
    fx_run();
}

static void follow(const char *id) {
    fx_follower(1, id)->last = -1;
    fx_attach(1, id, -1);
}

static void a_first_input_begins_with_the_rows(void **state) {
    static const int32_t ids[] = {5, 6}, mixed[] = {5, PROMPT_ID_FIRST + 2, 6},
                         beyond[] = {PROMPT_ID_FIRST + ROWS};
    fx_setup_memory();
    serve("squad", 1);
    open_with("s", "squad", NULL, 0);
    assert_string_equal(fx_session("s")->rec.prompt_task, "squad");
    assert_int_equal(fx_session("s")->rec.sink_len, 4);
    fx_turn(1, "s", "hello");
    begins_with_rows("s", -1);
    assert_string_equal(fake.table, task.prompt->digits);
    size_t n_log = fx_session("s")->n_log;
    fx_turn(1, "s", "on"); // a second turn has none
    for (size_t i = n_log; i < fx_session("s")->n_log; i++)
        assert_true(fx_session("s")->log[i] < PROMPT_ID_FIRST);
    start_ids("s", ids, 2, TURN_NONE); // another first turn
    assert_int_equal(fx_session("s")->turns[2]->rec.n_input, ROWS + 2);
    begins_with_rows("s", -1);
    start_ids("s", mixed, 3, TURN_NONE); // as it is
    assert_int_equal(fx_session("s")->turns[3]->rec.n_input, 3);
    assert_int_equal(fx_session("s")->log[0], 5);
    start_ids("s", beyond, 1, TURN_NONE);
    refused(fx_last_answer(), "invalid", "1073741827");
    fx_open_session(1, "plain");
    start_ids("plain", mixed, 3, TURN_HEAD);
    refused(fx_last_answer(), "invalid", "1073741826");
    fx_turn(1, "plain", "hello");
    assert_string_equal(fake.table, "");
    withdraw();
    fx_teardown();
}

static void bad_tables_are_refused(void **state) {
    struct err err = {0};
    float data[ROWS * 5] = {0};
    struct prompt *wide, *own;
    fx_setup_memory();
    refused(open_with("s", "squad", NULL, 0), "invalid", "this server has none");
    serve("squad", 1);
    refused(open_with("s", "quad", NULL, 0), "invalid",
            "no prompt task 'quad'; this server has 'squad'");
    refused(open_with("s", "squad", NULL, ROWS + 1), "invalid", "session_len 4 has no room");
    assert_int_equal(prompt_new(&wide, PROMPT_ROWS, ROWS, 5, data, &err), 0);
    refused(open_with("s", NULL, wide, 0), "invalid", "5 values; this model's have 4");
    own = table(2);
    refused(open_with("s", "squad", own, 0), "invalid", "exclude");
    prompt_free(own);
    prompt_free(wide);
    withdraw();
    fx_teardown();
}

static void a_changed_task_stops_its_sessions(void **state) {
    fx_setup_file();
    serve("squad", 1);
    open_with("s", "squad", NULL, 0);
    fx_turn(1, "s", "hello");
    char was[PROMPT_HASH_DIGITS + 1];
    strcpy(was, fake.table);
    fx_restart();
    serve("squad", 9);
    follow("s");
    fx_start(1, "s", "again");
    refused(fx_last_answer(), "unsupported", "another table of the prompt task 'squad'");
    withdraw();
    fx_start(1, "s", "again");
    refused(fx_last_answer(), "unsupported", "'squad', which is not served");
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    serve("renamed", 1);
    fx_turn(1, "s", "again");
    assert_string_equal(fake.table, was);
    withdraw();
    fx_teardown();
}

static void a_clients_table_is_the_sessions_for_good(void **state) {
    char digits[PROMPT_HASH_DIGITS + 1];
    fx_setup_file();
    struct prompt *own = table(3);
    strcpy(digits, own->digits);
    open_with("s", NULL, own, 0);
    prompt_free(own); // the session has its own
    assert_null(fx_session("s")->rec.prompt_task);
    assert_true(fx_session("s")->rec.stored_bytes >= (int64_t)(N_VALUES * sizeof(float)));
    fx_turn(1, "s", "hello");
    begins_with_rows("s", -1);
    assert_string_equal(fake.table, digits);
    fx_restart();
    follow("s");
    fx_turn(1, "s", "again");
    assert_string_equal(fake.table, digits);
    struct request r = fx_request(1, "fork");
    ask_fork(fx.ss, &r, "s", TURN_HEAD, "copy", NULL);
    fx_settle();
    fx_restart();
    fx_close(1, "s", true); // the copy has the table itself
    follow("copy");
    fx_turn(1, "copy", "on");
    assert_string_equal(fake.table, digits);
    assert_int_equal(fx_session("copy")->prompt->n_rows, ROWS);
    fx_teardown();
}

static struct stored_session *load(const char *id) {
    struct archive *a;
    struct stored_session *s;
    struct err err = {0};
    if (archive_open(&a, fx.path, &err) < 0 || archive_load(a, NULL, id, &s, &err) < 0)
        fail_msg("%s", err.text);
    archive_close(a);
    return s;
}

static void an_archive_has_the_table(void **state) {
    struct buf text;
    struct stored_session *s, *back;
    struct err err = {0};
    fx_setup_file();
    struct prompt *own = table(4);
    open_with("s", NULL, own, 0);
    fx_turn(1, "s", "hello");
    fx_shut_down();
    s = load("s");
    assert_int_equal(s->rec.prompt_bytes, N_VALUES * sizeof(float));
    assert_memory_equal(s->rec.prompt_data, own->data, s->rec.prompt_bytes);
    buf_init(&text, 1 << 20);
    assert_int_equal(archive_export(s, &text), 0);
    assert_int_equal(archive_read(&back, buf_z(&text), text.len, 1, &err), 0);
    assert_memory_equal(back->rec.prompt_data, own->data, s->rec.prompt_bytes);
    assert_string_equal(back->rec.prompt_hash, own->digits);
    stored_session_free(back);
    // Another table under that hash, and none at all, are no session's.
    char *data = strstr(text.data, "prompt_data_base64\":\"");
    assert_non_null(data);
    data += strlen("prompt_data_base64\":\"");
    data[9] = data[9] == 'A' ? 'B' : 'A';
    assert_int_equal(archive_read(&back, buf_z(&text), text.len, 1, &err), E_CORRUPT);
    if (!strstr(err.text, "prompt")) fail_msg("%s", err.text);
    memcpy(strstr(text.data, "prompt_data_base64"), "x", 1);
    assert_int_equal(archive_read(&back, buf_z(&text), text.len, 1, &err), E_CORRUPT);
    buf_release(&text);
    stored_session_free(s);
    prompt_free(own);
    fx_open();
    fx_teardown();
}

static void a_damaged_table_stops_the_turn_and_nothing_else(void **state) {
    fx_setup_file();
    struct prompt *own = table(5);
    open_with("s", NULL, own, 0);
    fx_turn(1, "s", "hello");
    fx_shut_down();
    sqlite3 *sql;
    assert_int_equal(sqlite3_open(fx.path, &sql), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(sql, "UPDATE prompts SET data = zeroblob(length(data))", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(sql);
    fx_open();
    follow("s");
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_start(1, "s", "again");
    refused(fx_last_answer(), "unsupported", "missing or damaged");
    prompt_free(own);
    fx_teardown();
}

static void a_table_counts_of_its_owners_bytes(void **state) {
    static struct owners owners;
    fx_settings(":memory:");
    owners_init(&owners, NULL);
    fx.o.owners = &owners;
    fx_open();
    struct owner *o = owners_get(&owners, "local");
    owner_set_limits(o, &(struct owner_limits){.stored_bytes = 1050},
                     clock_mono_us(&fx.clock.clock));
    struct prompt *own = table(6);
    open_with("small", NULL, NULL, 0);
    assert_non_null(fx_session("small"));
    fx_close(1, "small", true);
    fx_run();
    refused(open_with("s", NULL, own, 0), "limit_reached", "");
    assert_int_equal(o->used[OWNER_STORED_BYTES], 0);
    assert_int_equal(own->n_holders, 1);
    owner_set_limits(o, &(struct owner_limits){.stored_bytes = 100000},
                     clock_mono_us(&fx.clock.clock));
    open_with("s", NULL, own, 0);
    assert_int_equal(o->used[OWNER_STORED_BYTES], 1024 + (int64_t)(N_VALUES * sizeof(float)));
    fx_close(1, "s", true);
    fx_run();
    assert_int_equal(o->used[OWNER_STORED_BYTES], 0);
    prompt_free(own);
    fx_teardown();
    owners_release(&owners);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_input_begins_with_the_rows),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(a_changed_task_stops_its_sessions),
        cmocka_unit_test(a_clients_table_is_the_sessions_for_good),
        cmocka_unit_test(an_archive_has_the_table),
        cmocka_unit_test(a_damaged_table_stops_the_turn_and_nothing_else),
        cmocka_unit_test(a_table_counts_of_its_owners_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The tree of turns: whatever is done to it, the log is the path in use, and clients and the disk
// agree on it.
#include "base/json.h"
#include "sessions/archive/backup.h"
#include "sessions/store/recover.h"
#include "tests/unit/tree_fixture.h"
#include <time.h>

// --- one thing at a time -----------------------------------------------------

static void what_is_said_later_follows_the_head(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    const struct session *s = fx_session("s");
    size_t first_end = (size_t)tree_log_end(s, 0);
    rewind_to(1, "s", 0, false, "back");
    fx_settle();
    const struct follower *f = fx_follower(1, "s");
    assert_int_equal(f->count[EVENT_REWOUND], 1);
    assert_string_equal(f->last_request_id, "back");
    assert_int_equal(s->n_log, first_end);
    check_tree("s");
    fx_turn(1, "s", "three");
    assert_int_equal(s->turns[2]->rec.parent, 0);
    assert_int_equal(s->turns[2]->rec.log_first, first_end);
    say_after("s", TURN_NONE, "four", "edit");
    fx_run();
    check_tree("s");
    assert_int_equal(s->turns[3]->rec.log_first, 0);
    assert_int_equal(f->count[EVENT_REWOUND], 2);
    const struct seen_answer *a = fx_get(1, "s");
    assert_int_equal(a->n_turns, 1);
    assert_int_equal(a->turns[0].turn, 3);
    assert_int_equal(a->n_turns_total, 4);
    rewind_to(1, "s", 0, true, "newest");
    fx_settle();
    assert_int_equal(s->head, 2);
    int before = f->n_events;
    rewind_to(1, "s", 2, false, "there");
    fx_settle();
    assert_int_equal(f->n_events, before);
    assert_int_equal(fx_answer_to("there")->kind, ANSWER_REWOUND);
    assert_int_equal(fx_answer_to("there")->seq, 0);
    rewind_to(2, "s", 1, false, "outside"); // not attached: it gets an answer instead of an event
    fx_settle();
    assert_int_equal(fx_answer_to("outside")->kind, ANSWER_REWOUND);
    assert_true(fx_answer_to("outside")->seq > 0);
    assert_int_equal(f->count[EVENT_REWOUND], 4);
    stored_session_free(load(fx.path, "s"));
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 2);
    check_tree("s");
    fx_attach(3, "s", 0); // all of it, in order
    assert_int_equal(fx_follower(3, "s")->count[EVENT_REWOUND], 4);
    assert_int_equal(fx_follower(3, "s")->count[EVENT_DONE], 4);
    fx_teardown();
}

static void what_cannot_be_is_refused(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    go_on("s", TURN_HEAD, "c0");
    again("s", TURN_HEAD, NULL, "r0");
    rewind_to(1, "s", 0, false, "w0");
    fx_settle();
    assert_string_equal(fx_answer_to("c0")->code, "invalid");
    assert_string_equal(fx_answer_to("r0")->code, "invalid");
    assert_string_equal(fx_answer_to("w0")->code, "invalid");
    fx_turn(1, "s", "one"); // ends by itself
    go_on("s", TURN_HEAD, "c1");
    say_after("s", 7, "x", "a7");
    again("s", 7, NULL, "r7");
    fork_at("s", 7, "t", "f7");
    struct request from = fx_request(1, "bad"), bad = ask_as(&from, REQUEST_REGENERATE, "s");
    static struct turn_sampling below;
    turn_sampling_init(&below);
    below.set = SAMPLING_EVERY_KEY;
    below.params.top_k = -1;
    bad.turn = 0;
    bad.sampling = &below;
    sessions_submit(fx.ss, &bad);
    fx_settle();
    assert_string_equal(fx_answer_to("c1")->code, "invalid");
    assert_string_equal(fx_answer_to("a7")->code, "invalid");
    assert_string_equal(fx_answer_to("r7")->code, "invalid");
    assert_string_equal(fx_answer_to("f7")->code, "invalid");
    assert_string_equal(fx_answer_to("bad")->code, "invalid");
    fx_start_with(1, "s", "long", "{\"max_tokens\":50}", false, NULL);
    fx_settle();
    rewind_to(1, "s", 0, false, "busy");
    again("s", TURN_HEAD, NULL, "busy2");
    say_after("s", 0, "x", "busy3");
    fork_at("s", 1, "t", "busy4");
    fx_settle();
    for (int i = 0; i < 4; i++) {
        static const char *const q[] = {"busy", "busy2", "busy3", "busy4"};
        assert_string_equal(fx_answer_to(q[i])->code, "session_busy");
    }
    fx_run();
    // A turn that the new path has no room for: the head stays where it was.
    struct session *s = fx_session("s");
    s->rec.session_len = (int64_t)s->n_log + 3;
    rewind_to(1, "s", TURN_NONE, false, NULL);
    fx_settle();
    int64_t seq = event_log_seq(&s->events);
    say_after("s", 1, "far too long", "full");
    fx_settle();
    assert_string_equal(fx_answer_to("full")->code, "session_full");
    assert_int_equal(event_log_seq(&s->events), seq);
    assert_int_equal(s->head, TURN_NONE);
    assert_int_equal(s->n_turns, 2);
    check_tree("s");
    say_after("s", TURN_HEAD, "fits", "ok"); // this path has room
    fx_run();
    assert_int_equal(fx_answer_to("ok")->kind, ANSWER_ACCEPTED);
    fx_close(1, "s", false);
    rewind_to(1, "s", 0, false, "closed");
    fx_settle();
    assert_string_equal(fx_answer_to("closed")->code, "session_closed");
    fork_at("s", TURN_HEAD, "t", NULL); // but its text can be continued in another session
    fx_settle();
    assert_int_equal(fx_session("t")->n_turns, 1);
    fx_teardown();
}

static void an_answer_goes_on_where_it_was_cut_off(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "one", "{\"max_tokens\":4}", false, NULL);
    fx_run();
    const struct session *s = fx_session("s");
    size_t end = s->n_log;
    go_on("s", TURN_HEAD, "c");
    fx_run();
    check_tree("s");
    const struct turn *t = s->turns[1];
    assert_int_equal(t->rec.kind, INPUT_CONTINUE);
    assert_int_equal(t->rec.n_input, 0);
    assert_int_equal(t->rec.log_first, end);
    assert_int_equal(fake_token(s->log[end - 1], (int64_t)end, t->rec.seed), s->log[end]);
    fx_turn(1, "s", "two"); // the system prompt does not come again, nor a second opening
    stored_session_free(load(fx.path, "s"));
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 3);
    again("s", 1, NULL, "again"); // of a continuation: goes on once more, differently
    fx_run();
    s = fx_session("s");
    assert_int_equal(s->turns[3]->rec.kind, INPUT_CONTINUE);
    assert_int_equal(s->turns[3]->rec.log_first, end);
    check_tree("s");
    fx_teardown();
}

static void asking_again_keeps_what_was_asked_for(void **state) {
    fx_setup_memory();
    struct request r = fx_request(1, NULL);
    struct ask_open o = {.id = "s", .sink_len = -1, .sampling = "{\"top_k\":9}"};
    fx_follower(1, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
    fx_start_with(1, "s", "one", "{\"temperature\":0.5,\"seed\":\"7\",\"max_tokens\":3}", false,
                  "q");
    fx_run();
    again("s", 0, NULL, "a");
    fx_run();
    again("s", 1, "{\"temperature\":0.25,\"seed\":\"8\"}", "b");
    fx_run();
    again("s", TURN_HEAD, NULL, "b"); // the same request again: the same turn
    fx_settle();
    const struct session *s = fx_session("s");
    assert_int_equal(s->n_turns, 3);
    assert_int_equal(fx_answer_to("b")->turn, 2);
    assert_true(s->turns[1]->rec.seed != 7);
    assert_int_equal(s->turns[2]->rec.seed, 8);
    assert_non_null(strstr(s->turns[1]->rec.sampling, "\"temperature\":0.5,"));
    assert_non_null(strstr(s->turns[1]->rec.sampling, "\"max_tokens\":3,"));
    assert_non_null(strstr(s->turns[2]->rec.sampling, "\"temperature\":0.25,"));
    assert_non_null(strstr(s->turns[2]->rec.sampling, "\"top_k\":9,")); // the session's
    assert_null(strstr(s->turns[2]->rec.request, "top_k"));
    assert_non_null(strstr(s->turns[2]->rec.request, "\"max_tokens\":3"));
    check_tree("s");
    fx_teardown();
}

// The system prompt belongs to the log's first chat turn, wherever that is.
static void the_system_prompt_comes_once_on_every_path(void **state) {
    static const int32_t ids[] = {50, 51};
    fx_setup_memory();
    struct request r = fx_request(1, NULL);
    struct ask_open o = {.id = "s", .sink_len = -1, .system = "S"};
    fx_follower(1, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
    fx_start_ids(1, "s", ids, 2);
    fx_run();
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    say_after("s", 0, "other", NULL);
    fx_run();
    say_after("s", TURN_NONE, "first", NULL);
    fx_run();
    fork_at("s", 1, "t", NULL);
    fx_settle();
    fx_turn(1, "t", "behind a copy");
    static const int n_prompts[] = {0, 1, 0, 1, 1};
    for (int i = 0; i < 5; i++) {
        const struct turn_record *t = &fx_session("s")->turns[i]->rec;
        int n = 0;
        for (size_t k = 0; k < t->n_input_ids; k++) n += t->input_ids[k] == 3;
        assert_int_equal(n, n_prompts[i]);
    }
    const struct turn_record *t = &fx_session("t")->turns[2]->rec;
    for (size_t k = 0; k < t->n_input_ids; k++) assert_int_not_equal(t->input_ids[k], 3);
    fx_teardown();
}

// --- forks -------------------------------------------------------------------

// A copied turn's row equals the original but for the columns that place it. Comparing all columns
// makes sure that a column of a later schema is copied too.
static void check_copied_row(int64_t from_turn, const char *to, int64_t to_turn) {
    static const char *const own[] = {"key",       "session",  "turn",      "parent",
                                      "seq_first", "seq_last", "request_id"};
    sqlite3 *db;
    sqlite3_stmt *rows[2];
    const char *sql = "SELECT t.* FROM turns t JOIN sessions s ON s.key = t.session WHERE s.id = "
                      "?1 AND t.turn = ?2";
    assert_int_equal(sqlite3_open_v2(fx.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &rows[i], NULL), SQLITE_OK);
        sqlite3_bind_text(rows[i], 1, i ? to : "s", -1, SQLITE_STATIC);
        sqlite3_bind_int64(rows[i], 2, i ? to_turn : from_turn);
        assert_int_equal(sqlite3_step(rows[i]), SQLITE_ROW);
    }
    int n_columns = sqlite3_column_count(rows[0]), n_compared = 0;
    for (int c = 0; c < n_columns; c++) {
        const char *name = sqlite3_column_name(rows[0], c);
        bool its_own = false;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) its_own |= strcmp(name, own[k]) == 0;
        if (its_own) continue;
        n_compared++;
        int n = sqlite3_column_bytes(rows[0], c);
        if (sqlite3_column_type(rows[0], c) != sqlite3_column_type(rows[1], c) ||
            sqlite3_column_bytes(rows[1], c) != n ||
            (n && memcmp(sqlite3_column_blob(rows[0], c), sqlite3_column_blob(rows[1], c),
                         (size_t)n) != 0))
            fail_msg("the copy's %s is another one", name);
    }
    assert_int_equal(n_compared, n_columns - (int)(sizeof own / sizeof *own));
    for (int i = 0; i < 2; i++) sqlite3_finalize(rows[i]);
    sqlite3_close(db);
}

static const struct seen_answer *copies_of(const char *id) {
    struct request r = fx_request(1, "copies");
    ask_list(fx.ss, &r, NULL, id, 0, NULL);
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_LIST);
    return fx_last_answer();
}

static void a_fork_is_a_session_of_its_own(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    say_after("s", 0, "two, otherwise", NULL);
    fx_run();
    fork_at("s", 1, "t", "fork"); // off the path in use
    fx_settle();
    const struct follower *f = fx_follower(1, "t");
    assert_int_equal(f->count[EVENT_OPENED], 1);
    assert_string_equal(f->last_request_id, "fork");
    const struct session *s = fx_session("s"), *t = fx_session("t");
    assert_int_equal(t->n_turns, 2);
    assert_int_equal(t->n_log, tree_log_end(s, 1));
    assert_string_equal(t->rec.title, s->rec.title);
    check_tree("t");
    assert_true(t->cached_tokens > 0); // shared with the source
    check_copied_row(0, "t", 0);
    check_copied_row(1, "t", 1);
    fx_advance(61000000);
    assert_int_equal(f->count[EVENT_EVICTED], 1);
    assert_int_equal(t->cached_tokens, 0);
    const struct seen_answer *a = fx_get(1, "t"); // from the store
    assert_int_equal(a->n_turns, 2);
    assert_string_equal(a->turns[1].input, "two");
    assert_string_equal(a->turns[1].finish, "eos");
    assert_true(a->turns[1].text[0] != 0);
    check_tree("t"); // ids of what was read agree with the log
    fx_turn(1, "t", "three");
    again("t", 0, NULL, "again");
    fx_run();
    check_tree("t");
    assert_int_equal(fx_session("t")->head, 3);
    assert_int_equal(fx_list("otherwise", 0, NULL)->n_sessions, 1);
    assert_int_equal(fx_list("one", 0, NULL)->n_sessions, 2);
    // A session does not know of them, the list does
    assert_string_equal(copies_of("s")->ids[0], "t");
    assert_int_equal(fx_last_answer()->n_sessions, 1);
    assert_int_equal(copies_of("t")->n_sessions, 0);
    fx_close(1, "s", true); // the copy lives on
    stored_session_free(load(fx.path, "t"));
    fx_restart();
    a = fx_get(1, "t");
    assert_int_equal(a->n_turns, 1);
    assert_int_equal(a->n_turns_total, 4);
    fx_attach(2, "t", 0);
    assert_int_equal(fx_follower(2, "t")->count[EVENT_STARTED], 2);
    fork_at("t", TURN_HEAD, "t", "taken");
    fx_settle();
    assert_string_equal(fx_answer_to("taken")->code, "session_exists");
    // An id that is on disk but not in memory.
    fx_open_session(1, "u");
    fx_restart();
    fork_at("t", TURN_HEAD, "u", "taken2");
    fx_settle();
    assert_string_equal(fx_answer_to("taken2")->code, "session_exists");
    fx_teardown();
}

// A crash while the first turn after a fork runs: no client was told numbers of the copied turns.
static void a_cut_off_turn_of_a_fork_is_found_again(void **state) {
    char path[300];
    struct store_db db;
    struct err err = {0};
    int64_t n;
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fork_at("s", TURN_HEAD, "t", NULL);
    fx_settle();
    fx_start_with(1, "t", "two", "{\"max_tokens\":50}", false, NULL);
    for (int i = 0; i < 10; i++) {
        clock_fake_advance(&fx.clock, 30000);
        fx_step();
    }
    snprintf(path, sizeof path, "%s-copy", fx.path);
    if (backup_database(fx.path, path, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    if (store_db_open(&db, path, &err) < 0) fail_msg("%s", err.text);
    if (store_recover(&db, 5, &n, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(n, 1);
    store_db_close(&db, true);
    struct stored_session *t = load(path, "t");
    assert_true(t->turns[1].tokens.n >= 8);
    assert_int_equal(t->rec.head, 1);
    assert_int_equal(t->rec.stored_bytes, stored_session_bytes(t)); // with the turn cut off
    stored_session_free(t);
    remove_database(path);
    fx_teardown();
}

// --- long and wide ones ------------------------------------------------------

static void old_branches_come_from_the_disk(void **state) {
    fx_settings(":memory:");
    fake.info.max_session_len = 1000000;
    fake.default_tokens = 2;
    fx.max_text = 4096;
    fx_open();
    fx_open_session(1, "s");
    char text[32];
    for (int i = 0; i < 400; i++) {
        fx.n_answers = 0;
        snprintf(text, sizeof text, "turn %d", i);
        fx_turn(1, "s", text);
    }
    struct session *s = fx_session("s");
    size_t n_log = s->n_log;
    int32_t *log = malloc(n_log * sizeof *log);
    memcpy(log, s->log, n_log * sizeof *log);
    assert_int_equal(s->turns[10]->storage, TURN_SLIM);
    say_after("s", 5, "branch", NULL);
    fx_run();
    assert_int_equal(s->turns[400]->rec.log_first, tree_log_end(s, 5));
    rewind_to(1, "s", 399, false, "back"); // 6 to 271 are slim, and off the path
    fx_settle();
    assert_int_equal(s->head, 399);
    assert_int_equal(s->n_log, n_log);
    assert_memory_equal(s->log, log, n_log * sizeof *log);
    check_tree("s");
    again("s", 7, NULL, "again");
    fx_run();
    assert_string_equal(s->turns[401]->rec.input_text, "turn 7");
    fork_at("s", 300, "t", NULL);
    fx_settle();
    const struct session *t = fx_session("t");
    assert_int_equal(t->n_turns, 301);
    assert_memory_equal(t->log, log, t->n_log * sizeof *log);
    const struct seen_answer *a = fx_get(1, "t");
    assert_int_equal(a->n_turns, 100);
    assert_int_equal(a->turns[0].turn, 201);
    assert_string_equal(a->turns[0].input, "turn 201");
    fx_turn(1, "t", "goes on");
    check_tree("t");
    free(log);
    fx_teardown();
}

static double cpu_s(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void ten_thousand_versions_are_no_burden(void **state) {
    fx_settings(":memory:");
    fake.default_tokens = 1;
    fx_open();
    fx_open_session(1, "s");
    double first = 0, last = 0;
    for (int i = 0; i < 10000; i++) {
        double start = cpu_s();
        fx.n_answers = 0;
        say_after("s", TURN_NONE, "version", NULL);
        fx_settle();
        fx_step();
        fx_step();
        clock_fake_advance(&fx.clock, 30000);
        fx_settle();
        *(i < 1000 ? &first : i >= 9000 ? &last : &start) += cpu_s() - start;
    }
    struct session *s = fx_session("s");
    assert_int_equal(s->n_turns, 10000);
    assert_int_equal(s->n_log, tree_log_end(s, 9999));
    if (last > 5 * first + 0.2) fail_msg("1000 turns took %.2f s, later %.2f s", first, last);
    const struct seen_answer *a = fx_get(1, "s");
    assert_int_equal(a->n_turns, 1);
    rewind_to(1, "s", 3, false, "old");
    fx_settle();
    assert_int_equal(s->head, 3);
    check_tree("s");
    fx_teardown();
}

static void a_protocol_finds_its_note_again(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    struct request r = fx_request(1, NULL);
    struct turn_sampling sampling;
    turn_sampling_init(&sampling);
    r.kind = REQUEST_START;
    r.session = "s";
    r.turn = TURN_HEAD;
    r.input = (struct turn_input){.kind = INPUT_CONTENT, .text = "hi", .text_len = 2};
    r.sampling = &sampling;
    r.note = "{\"echo\":\"of \\\"me\\\"\"}";
    sessions_submit(fx.ss, &r);
    fx_run();
    const struct session *s = fx_session("s");
    assert_int_equal(s->n_turns, 1);
    struct err err = {0};
    cJSON *json = json_parse(s->turns[0]->rec.request, strlen(s->turns[0]->rec.request),
                             &json_limits_message, &err);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "note")), r.note);
    cJSON_Delete(json);
    again("s", 0, NULL, "a"); // another answer is another request
    fx_run();
    assert_null(strstr(s->turns[1]->rec.request, "note"));
    check_tree("s");
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_protocol_finds_its_note_again),
        cmocka_unit_test(what_is_said_later_follows_the_head),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(an_answer_goes_on_where_it_was_cut_off),
        cmocka_unit_test(asking_again_keeps_what_was_asked_for),
        cmocka_unit_test(the_system_prompt_comes_once_on_every_path),
        cmocka_unit_test(a_fork_is_a_session_of_its_own),
        cmocka_unit_test(a_cut_off_turn_of_a_fork_is_found_again),
        cmocka_unit_test(old_branches_come_from_the_disk),
        cmocka_unit_test(ten_thousand_versions_are_no_burden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

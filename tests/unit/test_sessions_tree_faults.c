// The tree of turns when things fail: a crash keeps all that clients were sent, and a move that the
// disk refuses is undone.
#include "base/buf.h"
#include "sessions/archive/backup.h"
#include "sessions/requests/settle.h"
#include "sessions/store/recover.h"
#include "sessions/store/tail.h"
#include "tests/unit/tree_fixture.h"

// --- crashes -----------------------------------------------------------------

// A crash leaves the last committed transaction, whatever the store's thread is doing. The tail is
// written by this thread.
static void copy_database(const char *to) {
    char path[512];
    struct buf tail;
    struct err err = {0};
    if (backup_database(fx.path, to, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s.tail", fx.path);
    if (buf_read_file(&tail, path, 1 << 24, &err) < 0) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s.tail", to);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(tail.data, 1, tail.len, f), tail.len);
    assert_int_equal(fclose(f), 0);
    buf_release(&tail);
}

// The database as a dead process leaves it: it opens, is consistent, and has all that clients were
// sent.
static void check_as_left(const char *path) {
    struct store_db db;
    struct err err = {0};
    int64_t n;
    const struct follower *f = fx_follower(1, "s");
    copy_database(path);
    if (store_db_open(&db, path, &err) < 0 || tail_recover(&db, &n, &err) < 0 ||
        store_recover(&db, 5, &n, &err) < 0)
        fail_msg("%s", err.text);
    store_db_close(&db, true);
    struct stored_session *s = load(path, "s");
    assert_true(s->rec.seq >= f->last);
    int64_t head = TURN_NONE, n_rewound = 0; // as clients were told, or newer
    for (size_t i = 0; i < s->n_events; i++)
        if (s->events[i].kind == EVENT_REWOUND) n_rewound++, head = s->events[i].turn;
    assert_true(n_rewound >= f->count[EVENT_REWOUND]);
    // A move that was made for a turn is saved together with that turn.
    const struct event_record *last = &s->events[s->n_events - 1];
    if (last->kind == EVENT_REWOUND) assert_int_equal(head, 1); // the only move without a turn
    stored_session_free(s);
    remove_database(path);
}

static void a_crash_at_any_step_leaves_a_whole_tree(void **state) {
    char path[300];
    fx_setup_file();
    sessions_close(fx.ss);
    fx.o.durable = DURABLE_DELTA;
    fx_open();
    snprintf(path, sizeof path, "%s-left", fx.path);
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    for (int step = 0; step < 60; step++) {
        switch (step) {
        case 1:
            say_after("s", 0, "edited", NULL);
            break;
        case 15:
            rewind_to(1, "s", 1, false, NULL);
            break;
        case 17:
            again("s", TURN_HEAD, "{\"max_tokens\":4}", NULL);
            break;
        case 30:
            go_on("s", TURN_HEAD, NULL);
            fx_start_with(1, "s", "waits", NULL, true, NULL);
            break;
        case 50:
            say_after("s", TURN_NONE, "anew", NULL);
            break;
        }
        check_as_left(path); // the request was made, nothing has been saved yet
        sessions_poll(fx.ss);
        check_as_left(path);
        clock_fake_advance(&fx.clock, 30000);
        fake_step();
        sessions_poll(fx.ss);
        usleep(300);
        check_as_left(path);
        fx_settle();
        check_as_left(path);
    }
    fx_run();
    check_tree("s");
    assert_int_equal(fx_session("s")->n_turns, 7);
    fx_teardown();
}

// --- a disk that refuses -----------------------------------------------------

static void what_the_disk_refuses_has_not_happened(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    fx_turn(1, "s", "three");
    struct session *s = fx_session("s");
    size_t n_log = s->n_log;
    int32_t *log = malloc(n_log * sizeof *log);
    memcpy(log, s->log, n_log * sizeof *log);
    const struct follower *f = fx_follower(1, "s");
    int64_t last = f->last;
    fx_disk_full(true);
    rewind_to(1, "s", 1, false, "w1"); // all of it in one save, and taken back as one
    rewind_to(1, "s", 1, false, "w1 too");
    rewind_to(1, "s", TURN_NONE, false, "w2");
    rewind_to(1, "s", 2, false, "w3");
    say_after("s", 0, "refused", "edit");
    fork_at("s", 2, "t", "fork");
    fx_settle();
    fx_run();
    static const char *const q[] = {"w1", "w1 too", "w2", "w3", "edit", "fork"};
    for (int i = 0; i < 6; i++) {
        const struct seen_answer *a = fx_answer_to(q[i]);
        if (strcmp(a->code, "store_failed")) fail_msg("%s: %s", q[i], a->code);
    }
    assert_int_equal(f->last, last);
    assert_int_equal(s->head, 2);
    assert_int_equal(s->n_turns, 3);
    assert_int_equal(s->n_log, n_log);
    assert_memory_equal(s->log, log, n_log * sizeof *log);
    assert_null(fx_session("t"));
    check_tree("s");
    fx_disk_full(false);
    say_after("s", 0, "taken", "edit");
    fx_run();
    assert_int_equal(fx_answer_to("edit")->kind, ANSWER_ACCEPTED);
    assert_int_equal(s->turns[3]->rec.parent, 0);
    check_tree("s");
    stored_session_free(load(fx.path, "s"));
    free(log);
    fx_teardown();
}

// Clients are shown only what may be told: the old path until the move is on disk.
static void an_uncommitted_move_is_not_shown(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    struct request r = fx_request(1, "get");
    service_enter(fx.ss); // nothing is saved before it is left
    rewind_to(1, "s", 0, false, "back");
    rewind_to(1, "s", 0, false, "there");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    assert_int_equal(fx_session("s")->head, 0);
    assert_int_equal(fx_answer_to("get")->n_turns, 2);
    assert_int_equal(fx_answer_to("get")->n_tokens, tree_log_end(fx_session("s"), 1));
    for (int i = 0; i < fx.n_answers; i++)
        assert_string_not_equal(fx.answers[i].request_id, "there"); // it waits for the first one
    service_leave(fx.ss);
    fx_settle();
    assert_int_equal(fx_answer_to("there")->kind, ANSWER_REWOUND);
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

// --- edits and deletions -----------------------------------------------------

// The database at this moment: what it has fits together.
static void check_copy(const char *path) {
    struct err err = {0};
    if (backup_database(fx.path, path, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    stored_session_free(load(path, "s"));
    remove_database(path);
}

static void edits_and_deletions_are_taken_back_or_kept_whole(void **state) {
    char path[300];
    fx_setup_file();
    snprintf(path, sizeof path, "%s-left", fx.path);
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    fx_turn(1, "s", "three");
    struct session *s = fx_session("s");
    int64_t bytes = s->rec.stored_bytes, n_log = (int64_t)s->n_log;
    fx_disk_full(true);
    edit("s", 1, "refused", "e1");
    edit("s", 3, "refused too", "e2"); // of the first edit's turn, which goes as well
    fx_settle();
    fx_run();
    erase("s", 1, "d1");
    rewind_to(1, "s", 2, false, "waits"); // for the verdict
    fx_settle();
    fx_run();
    static const char *const q[] = {"e1", "e2", "d1"};
    for (int i = 0; i < 3; i++) assert_string_equal(fx_answer_to(q[i])->code, "store_failed");
    assert_int_equal(fx_answer_to("waits")->kind, ANSWER_REWOUND);
    assert_int_equal(s->n_turns, 3);
    assert_int_equal(s->head, 2);
    assert_int_equal(s->n_log, n_log);
    assert_int_equal(s->rec.stored_bytes, bytes);
    check_tree("s");
    fx_disk_full(false);

    edit("s", 1, "in other words", "e3");
    check_copy(path);
    sessions_poll(fx.ss);
    check_copy(path);
    fx_run();
    assert_int_equal(s->head, 3);
    assert_memory_equal(buf_z(&s->turns[3]->out.text), "in other words", 14);
    check_tree("s");
    fx_turn(1, "s", "four");
    erase("s", 1, "d2"); // off the path
    check_copy(path);
    sessions_poll(fx.ss);
    check_copy(path);
    fx_run();
    assert_true(turn_was_erased(&s->turns[1]->rec) && turn_was_erased(&s->turns[2]->rec));
    assert_int_equal(s->head, 4);
    check_tree("s");
    erase("s", 0, "d3");
    erase("s", 0, "d4"); // waits for the first one, and finds nothing
    fx_run();
    assert_string_equal(fx_answer_to("d4")->code, "invalid");
    assert_int_equal(s->head, TURN_NONE);
    assert_int_equal(s->n_log, 0);
    assert_true(s->rec.stored_bytes < bytes + 5 * 512);
    check_tree("s");
    check_copy(path);
    fx_turn(1, "s", "anew");
    assert_int_equal(s->head, 5);
    stored_session_free(load(fx.path, "s"));
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_step_leaves_a_whole_tree),
        cmocka_unit_test(what_the_disk_refuses_has_not_happened),
        cmocka_unit_test(an_uncommitted_move_is_not_shown),
        cmocka_unit_test(edits_and_deletions_are_taken_back_or_kept_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Databases of earlier versions, left behind by a killed process: each opens, means the same, and is
// continued.
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "tests/unit/sessions_fixture.h"
#include <fcntl.h>

static void copy_file(const char *from, const char *to) {
    static char bytes[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    ssize_t n = read(in, bytes, sizeof bytes);
    assert_true(n > 0 && n < (ssize_t)sizeof bytes);
    assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in), close(out);
}

static struct stored_session *load_sound(const char *id) {
    struct archive *a;
    struct stored_session *s = NULL;
    struct err err = {0};
    if (archive_open(&a, fx.path, &err) < 0 || archive_load(a, id, &s, &err) < 0 ||
        stored_session_check(s, &err) < 0)
        fail_msg("%s: %s", id, err.text);
    archive_close(a);
    return s;
}

static void check_linear(const char *id, int64_t n_turns, int64_t n_tokens) {
    struct stored_session *s = load_sound(id);
    assert_int_equal(s->n_turns, n_turns);
    assert_int_equal(s->rec.n_tokens, n_tokens);
    assert_int_equal(s->rec.head, n_turns - 1);
    assert_null(s->rec.forked_from);
    for (int64_t i = 0; i < n_turns; i++) assert_int_equal(s->turns[i].rec.parent, i - 1);
    stored_session_free(s);
}

// Killed at schema 1 in the middle of a turn; the next version goes on with it.
static void a_database_of_schema_1_means_the_same(void **state) {
    char tail[300];
    fx_setup_file();
    sessions_close(fx.ss);
    fx_remove_files();
    snprintf(tail, sizeof tail, "%s.tail", fx.path);
    copy_file("tests/fixtures/sessions/schema-1.sqlite", fx.path);
    copy_file("tests/fixtures/sessions/schema-1.sqlite.tail", tail);
    fx_open();
    check_linear("linear", 3, 92);
    check_linear("waiting", 4, 430);
    check_linear("empty", 0, 0);
    check_linear("closed", 1, 18);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_int_equal(a->n_turns, 3);
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_string_equal(a->turns[2].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 40); // streamed before the end: from the tail
    check_linear("cut-off", 3, 20 + 17 + a->turns[1].numbers.output_tokens);
    fx.max_text = 4096;
    fx_attach(1, "linear", 0);
    assert_int_equal(fx_follower(1, "linear")->count[EVENT_DONE], 3);
    assert_int_equal(fx_follower(1, "linear")->count[EVENT_EVICTED], 2);
    // And branches, once its model is there.
    free(fx_session("linear")->rec.fingerprint);
    fx_session("linear")->rec.fingerprint = strdup(fake.info.fingerprint);
    struct request r = fx_request(1, "back");
    ask_rewind(fx.ss, &r, "linear", 0, false);
    fx_settle();
    fx_turn(1, "linear", "another way");
    assert_int_equal(fx_session("linear")->turns[3]->rec.parent, 0);
    assert_int_equal(fx_session("linear")->turns[3]->rec.log_first, 36);
    fx_restart();
    assert_int_equal(fx_get(1, "linear")->n_turns, 2);
    unlink(tail);
    fx_teardown();
}

static void expect_tree(const char *id, int64_t head, const int64_t *parents, int64_t n) {
    struct stored_session *s = load_sound(id);
    assert_int_equal(s->n_turns, n);
    assert_int_equal(s->rec.head, head);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(s->turns[i].rec.parent, parents[i]);
        assert_int_equal(s->turns[i].rec.numbers.resume_us, 0); // not recorded before this version
    }
    stored_session_free(s);
}

// Killed at schema 2, which knows of trees, and at 3, which knows of lost clients.
static void a_database_of_a_later_schema_means_the_same(void **state) {
    static const int64_t linear[] = {-1, 0, 1}, branched[] = {-1, 0, 0, 0};
    int version = *(const int *)*state;
    char from[300], tail[300];
    fx_setup_file();
    sessions_close(fx.ss);
    fx_remove_files();
    snprintf(tail, sizeof tail, "%s.tail", fx.path);
    snprintf(from, sizeof from, "tests/fixtures/sessions/schema-%d.sqlite", version);
    copy_file(from, fx.path);
    strcat(from, ".tail");
    copy_file(from, tail);
    fx_open();
    expect_tree("linear", 2, linear, 3);
    expect_tree("branched", 1, branched, 4);
    expect_tree("copy", 1, linear, 2);
    expect_tree("empty", -1, NULL, 0);
    expect_tree("cut-off", 2, linear, 3);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 40); // streamed before the end: from the tail
    fx.max_text = 4096;
    fx_attach(1, "branched", 0);
    assert_int_equal(fx_follower(1, "branched")->count[EVENT_DONE], 4);
    assert_int_equal(fx_follower(1, "branched")->count[EVENT_REWOUND], 3);
    assert_int_equal(fx_session("branched")->rec.cancel_after_ms, version > 2 ? 700 : 0);
    fx_attach(2, "copy", 0);
    assert_string_equal(fx_session("copy")->rec.forked_from, "branched");
    // It is written as any other: what a turn took to resume is kept from here on.
    free(fx_session("branched")->rec.fingerprint);
    fx_session("branched")->rec.fingerprint = strdup(fake.info.fingerprint);
    fx_turn(1, "branched", "on");
    fx_restart();
    a = fx_get(1, "branched");
    assert_int_equal(a->turns[a->n_turns - 1].turn, 4);
    assert_int_equal(a->turns[a->n_turns - 1].numbers.resume_us, 40);
    unlink(tail);
    fx_teardown();
}

int main(void) {
    static int two = 2, three = 3;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_database_of_schema_1_means_the_same),
        cmocka_unit_test_prestate(a_database_of_a_later_schema_means_the_same, &two),
        cmocka_unit_test_prestate(a_database_of_a_later_schema_means_the_same, &three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

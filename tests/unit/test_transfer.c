// transfer: sessions to files and back on a running service.
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"

#define ASKED "{\"seed\":\"18446744073709551615\"}"

static struct request of_owner(const char *owner) {
    struct request r = fx_request(1, "move");
    r.owner = owner;
    return r;
}

static const struct seen_answer *export(const char *id, const char *owner) {
    struct request r = of_owner(owner);
    ask_for(fx.ss, &r, REQUEST_EXPORT, id, TURN_HEAD);
    fx_settle();
    return fx_answer_to("move");
}

static const struct seen_answer *import(const char *json, const char *owner) {
    struct request r = of_owner(owner);
    ask_import(fx.ss, &r, json, strlen(json));
    fx_settle();
    return fx_answer_to("move");
}

static void a_session_comes_back_whole_under_an_id_of_its_own(void **state) {
    char fresh[80];
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "quetzalcoatl");
    fx_start_with(1, "s", "again", ASKED, false, NULL);
    fx_run();
    assert_int_equal(export("s", "local")->kind, ANSWER_EXPORTED);
    assert_non_null(strstr(fx.archive, ASKED)); // as it was said
    char *file = strdup(fx.archive);

    const struct seen_answer *a = import(file, "local");
    assert_int_equal(a->kind, ANSWER_IMPORTED);
    assert_int_equal(a->n_turns_total, 2);
    assert_int_equal(a->state, SESSION_COLD);
    assert_string_equal(fx.last_changed, a->session_id); // its watchers know
    assert_string_not_equal(a->session_id, "s");
    snprintf(fresh, sizeof fresh, "%s", a->session_id);
    assert_int_equal(fx_list("quetzal", 0, NULL)->n_sessions, 2);
    struct seen_answer was = *fx_get(1, "s");
    const struct seen_answer *is = fx_get(1, fresh);
    assert_int_equal(is->n_tokens, was.n_tokens);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(is->turns[i].text, was.turns[i].text);
        assert_string_equal(is->turns[i].input, was.turns[i].input);
    }
    // It continues, also after a restart, and no other session has its number.
    fx_open_session(1, "next");
    fx_restart();
    fx_follower(1, fresh)->last = -1;
    fx_attach(1, fresh, -1);
    fx_turn(1, fresh, "on");
    assert_int_equal(fx_get(1, fresh)->n_turns, 3);
    assert_int_equal(fx_get(1, "s")->n_turns, 2);
    free(file);
    fx_teardown();
}

static void a_running_turn_is_in_the_file_as_far_as_it_has_come(void **state) {
    fx_setup_file();
    fake.default_tokens = 100;
    fx_open_session(1, "s");
    fx_start(1, "s", "long");
    for (int i = 0; i < 10; i++) {
        clock_fake_advance(&fx.clock, 30000);
        fx_step();
    }
    assert_int_equal(export("s", "local")->kind, ANSWER_EXPORTED);
    const struct seen_answer *a = import(fx.archive, "local");
    assert_int_equal(a->kind, ANSWER_IMPORTED);
    assert_string_equal(fx_get(1, a->session_id)->turns[0].finish, "interrupted");
    fx_run();
    assert_int_equal(fx_follower(1, "s")->turns[0].n_ids, 100); // and was not disturbed
    fx_teardown();
}

static void somebody_elses_session_does_not_exist(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_turn(1, "s", "mine");
    assert_string_equal(export("s", "bob")->code, "session_not_found");
    assert_string_equal(export("carol", "local")->code, "session_not_found");
    // An imported session belongs to the owner who imports it.
    assert_int_equal(export("s", "local")->kind, ANSWER_EXPORTED);
    assert_int_equal(import(fx.archive, "bob")->kind, ANSWER_IMPORTED);
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1); // of "local"
    fx_close(1, "s", true);
    assert_string_equal(export("s", "local")->code, "session_not_found");
    fx_teardown();
}

static void what_does_not_fit_together_is_refused_by_name(void **state) {
    static const struct {
        const char *what, *from, *to, *word;
    } damage[] = {
        {"format", "parley.session", "parley.sausage", "Parley session"},
        {"version", "\"version\":2", "\"version\":99", "newer"},
        {"a length", "\"n_tokens\":", "\"n_tokens\":7", "tokens"},
        {"a type", "\"turn\":0", "\"turn\":\"0\"", "turn"},
    };
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    export("s", "local");
    char *file = strdup(fx.archive);
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char *at = strstr(file, damage[i].from), *bad = NULL;
        assert_non_null(at);
        assert_true(asprintf(&bad, "%.*s%s%s", (int)(at - file), file, damage[i].to,
                             at + strlen(damage[i].from)) > 0);
        const struct seen_answer *a = import(bad, "local");
        assert_int_equal(a->kind, ANSWER_ERROR);
        assert_string_equal(a->code, i == 1 ? "unsupported" : "invalid");
        if (!strstr(a->message, damage[i].word)) fail_msg("%s: %s", damage[i].what, a->message);
        free(bad);
    }
    assert_string_equal(import("{}", "local")->code, "invalid");
    assert_string_equal(import("nonsense", "local")->code, "invalid");
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    sessions_drain(fx.ss);
    assert_string_equal(import(file, "local")->code, "shutting_down");
    free(file);
    fx_teardown();
}

// The archive with a text of half a megabyte in place of the first input.
static char *with_long_turn(const char *archive) {
    const char *word = "\"input_text\":\"hello\"", *at = strstr(archive, word);
    struct buf out;
    assert_non_null(at);
    buf_init(&out, 1 << 21);
    buf_add(&out, archive, (size_t)(at - archive));
    buf_addz(&out, "\"input_text\":\"");
    for (int i = 0; i < 60000; i++) buf_addf(&out, "%d \xe2\x82\xac ", i % 10);
    buf_addz(&out, "\"");
    buf_addz(&out, at + strlen(word));
    return buf_take(&out, NULL);
}

static char *whole_record(const char *id) {
    struct archive *a;
    struct stored_session *s;
    struct buf out;
    buf_init(&out, 1 << 22);
    assert_int_equal(archive_open(&a, fx.path, NULL), 0);
    assert_int_equal(archive_load(a, NULL, id, &s, NULL), 0);
    assert_int_equal(archive_export(s, &out), 0);
    stored_session_free(s);
    archive_close(a);
    return buf_take(&out, NULL);
}

static void an_export_in_pieces_is_the_session_as_it_was(void **state) {
    char id[80];
    fx_setup_file();
    fake.default_tokens = 100;
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    fx_turn(1, "s", "second");
    export("s", "local");
    assert_int_equal(fx.n_pieces, 1);
    char *file = with_long_turn(fx.archive);
    const struct seen_answer *a = import(file, "local");
    assert_string_equal(a->message, "");
    snprintf(id, sizeof id, "%s", a->session_id);
    fx_follower(1, id)->last = -1;
    fx_attach(1, id, -1);
    fx_start(1, id, "third"); // runs when the export begins
    for (int i = 0; i < 10; i++) {
        clock_fake_advance(&fx.clock, 30000);
        fx_step();
    }
    char *record = whole_record(id);

    fx.wants_nothing = true;
    export(id, "local");
    assert_int_equal(fx.n_pieces, 1);
    fx_run();
    fx_turn(1, id, "fourth");
    fx.wants_nothing = false;
    fx_settle();
    assert_string_equal(fx.archive, record);
    assert_in_range(fx.n_pieces, 3, 10);
    assert_in_range(fx.longest_piece, 1, 400 << 10);
    assert_true(fx_last_answer()->last);
    assert_string_equal(fx_last_answer()->code, "");

    fx.wants_nothing = true;
    export(id, "local");
    fx_close(2, id, true);
    fx.wants_nothing = false;
    fx_settle();
    assert_true(fx_last_answer()->last && !fx_last_answer()->first);
    assert_string_equal(fx_last_answer()->code, "session_not_found");
    free(file);
    free(record);
    fx_teardown();
}

// A client that takes no piece, and leaves.
static void exports_of_a_client_wait_for_each_other_and_go_with_it(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    export("s", "local");
    char *file = with_long_turn(fx.archive), id[80];
    snprintf(id, sizeof id, "%s", import(file, "local")->session_id);
    fx.wants_nothing = true;
    fx.n_answers = 0;
    struct request r = fx_request(2, "many");
    for (int i = 0; i < 300; i++) ask_for(fx.ss, &r, REQUEST_EXPORT, id, TURN_HEAD);
    fx_settle();
    int refused = 0, begun = 0;
    for (int i = 0; i < fx.n_answers; i++) {
        refused += strcmp(fx.answers[i].code, "overloaded") == 0;
        begun += fx.answers[i].first;
    }
    assert_int_equal(refused, 300 - 256 - 1);
    assert_int_equal(begun, 1);
    sessions_client_gone(fx.ss, 2);
    sessions_continue(fx.ss, 2); // nothing
    fx_settle();
    fx.wants_nothing = false;
    fx.n_answers = 0;
    assert_int_equal(export(id, "local")->kind, ANSWER_EXPORTED);
    free(file);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_comes_back_whole_under_an_id_of_its_own),
        cmocka_unit_test(a_running_turn_is_in_the_file_as_far_as_it_has_come),
        cmocka_unit_test(somebody_elses_session_does_not_exist),
        cmocka_unit_test(what_does_not_fit_together_is_refused_by_name),
        cmocka_unit_test(an_export_in_pieces_is_the_session_as_it_was),
        cmocka_unit_test(exports_of_a_client_wait_for_each_other_and_go_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

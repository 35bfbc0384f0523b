// An id belongs to its owner: two owners may use the same one, and neither learns of the other.
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"

#define ALICE 1 // clients
#define BOB 2

static struct request from(uint64_t client) {
    struct request r = fx_request(client, "r");
    r.owner = client == ALICE ? "alice" : "bob";
    return r;
}

static void open_s(uint64_t client) {
    struct request r = from(client);
    struct ask_open o = {.id = "s", .sink_len = -1};
    fx_clear_follower(fx_follower(client, "s"));
    fx_follower(client, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
}

static void say(uint64_t client, const char *text) {
    struct request r = from(client);
    r.request_id[0] = '\0';
    struct turn_input in = ask_content(text);
    ask_start(fx.ss, &r, "s", TURN_HEAD, &in, NULL, false);
    fx_run();
}

// The answer to session.get.
static const struct seen_answer *got(uint64_t client) {
    struct request r = from(client);
    ask_get(fx.ss, &r, "s", false, 0, -1);
    fx_settle();
    return fx_last_answer();
}

static void expect_turns(uint64_t client, size_t n, const char *first) {
    const struct seen_answer *a = got(client);
    assert_int_equal(a->kind, ANSWER_STATE);
    assert_int_equal(a->n_turns, n);
    if (n) assert_string_equal(a->turns[0].input, first);
}

static void both_have_one(void) {
    open_s(ALICE);
    open_s(BOB);
    assert_int_equal(fx.n_answers, 0); // opened, both
    say(ALICE, "I am Alice");
    say(BOB, "I am Bob");
    say(BOB, "still Bob");
}

static void one_id_is_two_sessions(void **state) {
    fx_setup_file();
    both_have_one();
    expect_turns(ALICE, 1, "I am Alice");
    expect_turns(BOB, 2, "I am Bob");
    open_s(ALICE);
    fx_expect_error("session_exists"); // her own session
    fx_restart();                      // and after reading it from the disk
    expect_turns(BOB, 2, "I am Bob");
    open_s(ALICE);
    fx_expect_error("session_exists");
    expect_turns(ALICE, 1, "I am Alice");
    fx_teardown();
}

static void one_goes_and_the_other_stays(void **state) {
    fx_setup_file();
    both_have_one();
    struct request r = from(BOB);
    ask_close(fx.ss, &r, "s", true);
    fx_settle();
    assert_string_equal(got(BOB)->code, "session_not_found");
    expect_turns(ALICE, 1, "I am Alice");
    open_s(BOB); // the id is free again for its owner
    expect_turns(BOB, 0, NULL);
    fx_restart();
    expect_turns(ALICE, 1, "I am Alice");
    expect_turns(BOB, 0, NULL);
    fx_teardown();
}

// Copies take ids of their owner, and the engine gets a name for each session.
static void copies_and_snapshots_are_an_owners(void **state) {
    char alice[SESSION_LASTING_BYTES], bob[SESSION_LASTING_BYTES];
    fx_setup_file();
    both_have_one();
    for (uint64_t client = ALICE; client <= BOB; client++) {
        struct request r = from(client);
        ask_fork(fx.ss, &r, "s", TURN_HEAD, "copy", NULL);
        fx_settle();
    }
    const struct session *copy = service_find(fx.ss, "alice", "copy");
    assert_int_equal(copy->n_turns, 1);
    session_lasting_name("alice", "s", alice);
    session_lasting_name("bob", "s", bob);
    assert_string_not_equal(alice, bob);
    assert_int_equal(copy->n_origins, 1);
    assert_string_equal(copy->origins[0], alice);
    fx_restart();
    struct request r = from(BOB);
    ask_get(fx.ss, &r, "copy", false, 0, -1);
    fx_settle();
    assert_int_equal(fx_last_answer()->n_turns, 2);
    copy = service_find(fx.ss, "bob", "copy");
    assert_string_equal(copy->origins[0], bob);
    assert_string_equal(service_find(fx.ss, "bob", "copy")->rec.forked_from, "s");
    fx_teardown();
}

// A snapshot of a session that is gone is removed at the next start, though another owner's has its id.
static void a_file_goes_with_its_owners_session(void **state) {
    static char alice[SESSION_LASTING_BYTES], bob[SESSION_LASTING_BYTES];
    fx_setup_file();
    both_have_one();
    struct request r = from(BOB);
    ask_close(fx.ss, &r, "s", true);
    fx_settle();
    fx_shut_down();
    session_lasting_name("alice", "s", alice);
    session_lasting_name("bob", "s", bob);
    fake.files[0] = alice;
    fake.files[1] = bob;
    fx_open();
    assert_string_equal(fake.files[0], alice);
    assert_string_equal(fake.files[1], "");
    fx_teardown();
}

// Tools need the owner's name if an id is ambiguous.
static void tools_ask_for_the_owner(void **state) {
    struct archive *a;
    struct stored_session *s;
    struct err err = {0};
    fx_setup_file();
    both_have_one();
    fx_shut_down();
    assert_int_equal(archive_open(&a, fx.path, &err), 0);
    assert_int_equal(archive_load(a, NULL, "s", &s, &err), E_INVAL);
    assert_string_equal(err.text,
                        "2 owners have a session 's': alice, bob; --owner NAME selects one");
    assert_int_equal(archive_load(a, "carol", "s", &s, &err), E_NOTFOUND);
    assert_int_equal(archive_load(a, "bob", "s", &s, &err), 0);
    assert_string_equal(s->rec.owner, "bob");
    assert_int_equal(s->n_turns, 2);
    stored_session_free(s);
    archive_close(a);
    assert_int_equal(archive_remove(fx.path, NULL, "s", &err), E_INVAL);
    assert_int_equal(archive_remove(fx.path, "bob", "s", &err), 0);
    assert_int_equal(archive_open(&a, fx.path, &err), 0);
    assert_int_equal(archive_load(a, NULL, "s", &s, &err), 0); // one is left
    assert_string_equal(s->rec.owner, "alice");
    stored_session_free(s);
    archive_close(a);
    fx_open();
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_id_is_two_sessions),
        cmocka_unit_test(one_goes_and_the_other_stays),
        cmocka_unit_test(copies_and_snapshots_are_an_owners),
        cmocka_unit_test(a_file_goes_with_its_owners_session),
        cmocka_unit_test(tools_ask_for_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

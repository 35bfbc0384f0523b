// Two owners open, use, close and delete four ids again and again, in turn, while other sessions
// run. The owner of an id sees its own session from the first event on and no other words; the
// other owner sees nothing.
#include "tests/unit/sessions_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 200
#else
#define ROUNDS 1500
#endif

static const char *const owners[2] = {"alice", "mallory"};
static const char *const ids[4] = {"a", "b", "c", "d"};

static struct request as(int owner, const char *request_id) {
    struct request r = fx_request((uint64_t)owner + 1, request_id);
    r.owner = owners[owner];
    return r;
}

static void start_as(int owner, const char *id, const char *text) {
    struct request r = as(owner, "start");
    struct turn_input in = {.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
    ask_start(fx.ss, &r, id, TURN_HEAD, &in, NULL, false);
}

static void expect_not_found(const char *request_id) {
    const struct seen_answer *a = fx_answer_to(request_id);
    assert_int_equal(a->kind, ANSWER_ERROR);
    assert_string_equal(a->code, "session_not_found");
}

static void expect_nothing(int owner, const char *id) {
    struct request r = as(owner, "attach");
    ask_attach(fx.ss, &r, id, 0);
    r = as(owner, "look");
    ask_get(fx.ss, &r, id, true, 0, -1);
    fx_settle();
    expect_not_found("attach");
    expect_not_found("look");
}

// A turn of the fake engine: each token follows from the one before it.
static void check_turn(const struct follower *f, const char *text) {
    const struct seen_turn *t = &f->turns[0];
    int64_t at = (int64_t)strlen(text) + 3; // a token for each byte, one before and two behind them
    int32_t last = 5;
    assert_true(t->done && t->n_ids > 0);
    for (size_t i = 0; i < t->n_ids; i++, at++) {
        last = fake_token(last, at, t->seed);
        assert_int_equal(t->ids[i], last);
    }
}

// Knows nothing of the id's previous session.
static struct follower *new_follower(uint64_t client, const char *id) {
    struct follower *f = fx_follower(client, id);
    memset(f, 0, sizeof *f);
    snprintf(f->id, sizeof f->id, "%s", id);
    return f;
}

static void one_round(int round) {
    int owner = (int)(random() % 2);
    const char *id = ids[random() % 4];
    char text[64];
    fx.n_answers = 0;
    struct follower *f = new_follower((uint64_t)owner + 1, id);
    struct request r = as(owner, "open");
    struct ask_open o = {.id = id, .sink_len = -1};
    ask_open(fx.ss, &r, &o);
    fx_settle();
    assert_int_equal(f->last, 1);
    snprintf(text, sizeof text, "%s's round %d", owners[owner], round);
    start_as(owner, id, text);
    if (round % 3 == 0) fx_step();
    expect_nothing(!owner, id);
    fx_run();
    check_turn(f, text);
    r = as(owner, "get");
    ask_get(fx.ss, &r, id, false, 0, -1);
    fx_settle();
    const struct seen_answer *a = fx_answer_to("get");
    assert_int_equal(a->n_turns, 1);
    assert_string_equal(a->turns[0].input, text);
    r = as(owner, "close");
    ask_close(fx.ss, &r, id, true);
    fx_settle();
    assert_true(f->closed && f->deleted);
    expect_nothing(owner, id);
}

static void ids_are_used_again(void **state) {
    fx_setup_memory();
    fx_open_session(3, "load"); // another session runs turns meanwhile
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 5 == 0) fx_start(3, "load", "and on");
        one_round(round);
        if (round % 50 == 49) { // or its log would be full
            fx_close(3, "load", true);
            new_follower(3, "load");
            fx_open_session(3, "load");
        }
    }
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

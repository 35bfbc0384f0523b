// Looking into sessions: the record is shown as it is, a replay changes no session, and whatever
// happens meanwhile, each request is answered once and leaves nothing behind.
#include "sessions/replay/debug.h"
#include "tests/unit/sessions_fixture.h"

static struct {
    int n;
    enum session_answer_kind kind;
    char code[32], request_id[64];
    struct replay_turn found;
    size_t n_tokens;
    int64_t log_first;
    int32_t input[64], ids[256];
    size_t n_input;
    enum turn_state state;
    struct listed_event events[64];
    size_t n_events;
    bool more;
    int n_replaying, n_replayed;
    int pieces_left, n_pieces; // answers in pieces: how many more the client wants of the next one
} got;

static void on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    got.n++;
    got.kind = a->kind;
    if (a->code) snprintf(got.code, sizeof got.code, "%s", a->code);
    snprintf(got.request_id, sizeof got.request_id, "%s", a->request_id);
    if (a->position) {
        if (a->first) got.n_pieces = 0;
        assert_int_equal(a->position->part, got.n_pieces++);
        a->position->part++;
        a->position->more = !a->code && got.pieces_left-- > 0;
    }
    if (a->kind == ANSWER_TURN && a->detail) {
        const struct turn_detail *d = a->detail;
        got.log_first = d->rec->log_first;
        got.n_input = d->rec->n_input_ids;
        memcpy(got.input, d->rec->input_ids, got.n_input * sizeof *got.input);
        got.n_tokens = d->n_ids;
        if (d->n_ids) memcpy(got.ids, d->ids, d->n_ids * sizeof *got.ids);
        got.state = d->turn.state;
    }
    if (a->kind == ANSWER_EVENTS) {
        memcpy(got.events, a->events, a->n_events * sizeof *got.events);
        got.n_events = a->n_events;
        got.more = a->more;
    }
    if (a->kind == ANSWER_REPLAYING) got.n_replaying++;
    if (a->kind != ANSWER_REPLAYED) return;
    got.n_replayed++;
    got.found = *a->replay->found;
    got.n_tokens = a->replay->answer->n;
}

static int setup(void **state) {
    fx_setup_memory();
    fake.eos_after = 6;
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    memset(&got, 0, sizeof got);
    fx.ss->cb.on_answer = on_answer;
    return 0;
}

static int teardown(void **state) {
    fx_teardown();
    return 0;
}

static void ask_turn(uint64_t client, int64_t turn) {
    struct request r = fx_request(client, "t");
    ask_for(fx.ss, &r, REQUEST_TURN, "s", turn);
    fx_settle();
}

static void ask_events(int64_t before, int64_t last) {
    struct request r = fx_request(2, "e");
    ask_for_events(fx.ss, &r, "s", before, last);
    fx_settle();
}

static void ask_replay(uint64_t client, int64_t turn) {
    struct request r = fx_request(client, "r");
    ask_for(fx.ss, &r, REQUEST_REPLAY, "s", turn);
    fx_settle();
}

static void finish(void) {
    for (int i = 0; i < 50 && fake_n_running(); i++) fx_step();
    fx_settle();
    assert_int_equal(fake_n_running(), 0);
}

static void expect_error(const char *code) {
    assert_int_equal(got.kind, ANSWER_ERROR);
    assert_string_equal(got.code, code);
    got.code[0] = '\0';
}

// Engine and service hold nothing more, and the session is unchanged.
static void expect_nothing_left(int64_t seq) {
    int n = 0;
    assert_null(fx.ss->replays);
    for (int i = 0; i < FAKE_TURNS; i++) n += fake.sequences[i].sequence >> 63;
    assert_int_equal(n, 0);
    assert_int_equal(event_log_seq(&fx_session("s")->events), seq);
}

static void a_turn_as_it_is_on_record(void **state) {
    const struct session *s = fx_session("s");
    const struct turn_record *t = &s->turns[1]->rec;
    ask_turn(2, 1);
    assert_int_equal(got.kind, ANSWER_TURN);
    assert_int_equal(got.log_first, t->log_first);
    assert_int_equal(got.n_input, t->n_input);
    assert_memory_equal(got.input, s->log + t->log_first, got.n_input * sizeof(int32_t));
    assert_int_equal(got.n_tokens, t->n_output);
    assert_memory_equal(got.ids, s->log + t->log_first + t->n_input,
                        got.n_tokens * sizeof(int32_t));
    assert_int_equal(got.state, TURN_DONE);
    ask_turn(2, 2);
    expect_error("invalid");
    ask_turn(2, INT64_MAX);
    expect_error("invalid");
}

static void turns_that_run_and_wait(void **state) {
    fx_start(1, "s", "three");
    fx_start_with(1, "s", "four", NULL, true, NULL);
    for (int i = 0; i < 4; i++) fx_step();
    fx_advance(30000); // its commit
    fx_step();
    ask_turn(2, 2);
    assert_int_equal(got.state, TURN_RUNNING);
    assert_true(got.n_tokens > 0);
    ask_turn(2, 3);
    assert_int_equal(got.state, TURN_QUEUED);
    assert_int_equal(got.log_first, -1);
    ask_replay(2, 2);
    expect_error("invalid");
    fx_run();
}

static void events_in_pages(void **state) {
    ask_events(-1, 0);
    assert_int_equal(got.n_events, 5);
    assert_false(got.more);
    static const int kinds[] = {EVENT_OPENED, EVENT_STARTED, EVENT_DONE, EVENT_STARTED, EVENT_DONE};
    for (int i = 0; i < 5; i++) assert_int_equal(got.events[i].rec.kind, kinds[i]);
    assert_int_equal(got.events[3].rec.turn, 1);
    int64_t second = got.events[1].rec.seq;
    ask_events(-1, 4);
    assert_int_equal(got.n_events, 4);
    assert_true(got.more);
    assert_int_equal(got.events[0].rec.seq, second);
    ask_events(second, 4);
    assert_int_equal(got.n_events, 1);
    assert_false(got.more);
    ask_events(0, 4);
    assert_int_equal(got.n_events, 0);
    ask_events(1 << 20, 1);
    assert_int_equal(got.n_events, 1);
}

// All such sequences in the engine belong to the session's owner.
static int n_turns_of(enum engine_priority priority) {
    int n = 0;
    for (int i = 0; i < FAKE_TURNS; i++) {
        if (!fake.turns[i].used || fake.turns[i].t.priority != priority) continue;
        assert_int_equal(fake.turns[i].t.owner, fx_session("s")->owner->number);
        n++;
    }
    return n;
}

static void replays_are_equal(void **state) {
    int64_t seq = event_log_seq(&fx_session("s")->events), cached = fx_session("s")->cached_tokens;
    for (int turn = 0; turn < 2; turn++) {
        ask_replay(2, turn);
        assert_int_equal(got.kind, ANSWER_REPLAYING);
        assert_int_equal(n_turns_of(ENGINE_IDLE), 1); // behind all turns
        finish();
        assert_int_equal(got.kind, ANSWER_REPLAYED);
        assert_string_equal(got.request_id, "r");
        assert_int_equal(got.found.verdict, REPLAY_EQUAL);
        assert_int_equal(got.found.n_compared, fx_session("s")->turns[turn]->out.n);
    }
    assert_int_equal(got.n, 4);
    expect_nothing_left(seq);
    assert_int_equal(fx_session("s")->cached_tokens, cached);
}

// From now on the engine's turns end after another number of tokens.
static void another_end_is_told_with_its_alternatives(void **state) {
    fake.eos_after = 4;
    ask_replay(2, 0);
    finish();
    assert_int_equal(got.found.verdict, REPLAY_DIVERGED);
    assert_int_equal(got.found.first.kind, REPLAY_END);
    assert_int_equal(got.found.first.index, 4);
    assert_int_equal(got.found.first.n_top, REPLAY_TOP);
    assert_int_equal(got.n_tokens, 4);
}

static void while_its_session_talks_and_leaves_memory(void **state) {
    ask_replay(2, 1);
    fx_start(1, "s", "three");
    assert_int_equal(n_turns_of(ENGINE_INTERACTIVE), 1);
    fx_step();
    ask_replay(3, 0); // another connection's
    finish();
    fx_run();
    assert_int_equal(got.n_replayed, 2);
    assert_int_equal(got.found.verdict, REPLAY_EQUAL);
    fx.ss->o.max_resident_sessions = 0;
    ask_replay(3, 1);
    sessions_client_gone(fx.ss, 1);
    fx_settle();
    finish();
    fx_settle();
    assert_null(fx_session("s"));
    assert_int_equal(got.n_replayed, 3);
    assert_int_equal(got.found.verdict, REPLAY_EQUAL);
}

static void continue_piece(uint64_t client) {
    sessions_continue(fx.ss, client);
    fx_settle();
}

// The client asks for each piece; a list that was asked for later waits until the answer is
// complete.
static void in_pieces(void **state) {
    static const enum request_kind kinds[] = {REQUEST_TURN, REQUEST_REPLAY};
    for (int k = 0; k < 2; k++) {
        got.pieces_left = 2;
        k ? ask_replay(2, 0) : ask_turn(2, 0);
        finish();
        assert_int_equal(got.kind, kinds[k] == REQUEST_TURN ? ANSWER_TURN : ANSWER_REPLAYED);
        assert_int_equal(got.n_pieces, 1);
        struct request r = fx_request(2, "list");
        ask_list(fx.ss, &r, NULL, NULL, 0, NULL);
        fx_settle();
        assert_int_not_equal(got.kind, ANSWER_LIST);
        continue_piece(3); // another client's
        assert_int_equal(got.n_pieces, 1);
        continue_piece(2);
        assert_int_equal(got.n_pieces, 2);
        continue_piece(2);
        assert_int_equal(got.n_pieces, 3);
        assert_int_equal(got.kind, ANSWER_LIST);
        continue_piece(2); // nothing is left
        assert_int_equal(got.n_pieces, 3);
    }
}

static void its_client_leaves_between_two_pieces(void **state) {
    int64_t seq = event_log_seq(&fx_session("s")->events);
    for (int k = 0; k < 2; k++) {
        got.pieces_left = 2;
        k ? ask_replay(2 + k, 0) : ask_turn(2 + k, 0);
        finish();
        sessions_client_gone(fx.ss, 2 + (uint64_t)k);
        continue_piece(2 + (uint64_t)k);
        assert_int_equal(got.n_pieces, 1);
    }
    expect_nothing_left(seq);
    got.pieces_left = 2;
    ask_turn(5, 0); // fx_teardown closes the service: nothing leaks
}

// A running turn is shown as it was at the first piece.
static void a_running_turn_in_pieces(void **state) {
    fake.eos_after = 0;
    fx_start(1, "s", "three");
    for (int i = 0; i < 4; i++) fx_step();
    fx_advance(1000000); // its commit
    fx_step();
    got.pieces_left = 1;
    ask_turn(2, 2);
    size_t n = got.n_tokens;
    assert_true(n > 0);
    for (int i = 0; i < 4; i++) fx_step();
    struct request r = fx_request(1, "stop");
    ask_for(fx.ss, &r, REQUEST_CANCEL, "s", TURN_HEAD);
    fx_run();
    continue_piece(2);
    assert_int_equal(got.n_pieces, 2);
    assert_int_equal(got.state, TURN_RUNNING);
    assert_int_equal(got.n_tokens, n);
}

static void deleted_between_two_pieces(void **state) {
    struct request r = fx_request(3, "close");
    got.pieces_left = 5;
    ask_turn(2, 1);
    ask_close(fx.ss, &r, "s", true);
    fx_settle();
    continue_piece(2);
    assert_int_equal(got.kind, ANSWER_TURN);
    assert_string_equal(got.code, "session_not_found");
    assert_int_equal(got.n_pieces, 2);
    ask_turn(2, 1);
    expect_error("session_not_found");
}

// A turn off the path in use is read from the record turn by turn: more turns than one read takes,
// all slim in memory.
static void on_a_path_of_its_own(void **state) {
    enum { DEEP = 200 };
    for (int i = 0; i < DEEP; i++) fx_turn(1, "s", "deeper");
    int64_t deepest = fx_session("s")->head;
    struct request r = fx_request(1, "back");
    ask_rewind(fx.ss, &r, "s", 0, false);
    fx_settle();
    for (int i = 0; i < DEEP; i++) fx_turn(1, "s", "elsewhere");
    assert_int_equal(fx_session("s")->turns[deepest]->storage, TURN_SLIM);
    ask_replay(2, deepest);
    finish();
    assert_int_equal(got.found.verdict, REPLAY_EQUAL);
    assert_int_equal(got.n_replayed, 1);
    ask_replay(2, fx_session("s")->head);
    finish();
    assert_int_equal(got.found.verdict, REPLAY_EQUAL);
    assert_int_equal(got.n_replayed, 2);
    assert_null(fx.ss->replays);
}

static void it_can_be_cancelled(void **state) {
    int64_t seq = event_log_seq(&fx_session("s")->events);
    struct request mine = fx_request(2, "stop"), other = fx_request(3, "stop");
    ask_replay(2, 0);
    fx_step();
    ask_cancel_replay(fx.ss, &other, "s"); // only the client's own replay
    fx_settle();
    assert_string_equal(got.code, "");
    ask_cancel_replay(fx.ss, &mine, "s");
    fx_settle();
    assert_string_equal(got.code, "cancelled"); // and then the canceller's own answer
    ask_replay(2, 0);                           // the next one may begin at once
    finish();
    assert_int_equal(got.n_replayed, 1);
    expect_nothing_left(seq);
    // While its record is read.
    struct request r = fx_request(2, "again");
    got.code[0] = '\0';
    ask_for(fx.ss, &r, REQUEST_REPLAY, "s", 1);
    ask_cancel_replay(fx.ss, &mine, "s");
    fx_settle();
    assert_string_equal(got.code, "cancelled"); // and then the canceller's own answer
    finish();
    assert_int_equal(got.n_replayed, 1);
    expect_nothing_left(seq);
}

static void one_for_each_client(void **state) {
    ask_replay(2, 0);
    ask_replay(2, 1);
    expect_error("session_busy");
    finish();
    ask_replay(2, 1);
    finish();
    assert_int_equal(got.n_replayed, 2);
}

static void a_client_that_leaves_ends_its_own(void **state) {
    int64_t seq = event_log_seq(&fx_session("s")->events);
    ask_replay(2, 0);
    fx_step();
    sessions_client_gone(fx.ss, 2);
    finish();
    assert_int_equal(got.n_replayed, 0);
    expect_nothing_left(seq);
    // Before the record has been read.
    struct request r = fx_request(3, "r");
    ask_for(fx.ss, &r, REQUEST_REPLAY, "s", 1);
    sessions_client_gone(fx.ss, 3);
    fx_settle();
    finish();
    assert_int_equal(got.n_replaying, 1);
    expect_nothing_left(seq);
}

static void deleted_and_shut_down_meanwhile(void **state) {
    ask_replay(2, 0);
    sessions_drain(fx.ss);
    expect_error("shutting_down");
    finish();
    ask_replay(2, 0);
    expect_error("shutting_down");
    fx.ss->draining = false;
    ask_replay(2, 0);
    struct request r = fx_request(3, "close");
    got.code[0] = '\0';
    ask_close(fx.ss, &r, "s", true);
    fx_settle();
    assert_string_equal(got.code, "session_not_found");
    finish();
    assert_null(fx.ss->replays);
    assert_int_equal(got.n_replayed, 0);
}

static void closed_under_it(void **state) {
    ask_replay(2, 0); // fx_teardown closes the service: nothing leaks
    fx_step();
}

static void what_the_engine_refuses(void **state) {
    static const struct {
        int rc;
        const char *code;
    } rows[] = {{E_BUSY, "overloaded"}, {E_NOMEM, "invalid"}, {E_INVAL, "invalid"}};
    int64_t seq = event_log_seq(&fx_session("s")->events);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake.submit_rc = rows[i].rc;
        ask_replay(2, 0);
        expect_error(rows[i].code);
        fake.submit_rc = 0;
        expect_nothing_left(seq);
    }
    fake.fail_after = 2;
    ask_replay(2, 0);
    finish();
    expect_error("internal");
    assert_int_equal(got.n_replaying, 1);
    fake.fail_after = 0;
    fake.info.fingerprint = "f-2";
    fx.ss->placement.models_version++; // as when models come and go
    ask_replay(2, 0);
    expect_error("unsupported");
    expect_nothing_left(seq);
}

static void another_owners(void **state) {
    struct request r = {.client = 4, .owner = "mallory"};
    ask_for(fx.ss, &r, REQUEST_TURN, "s", 0);
    fx_settle();
    expect_error("session_not_found");
    ask_for_events(fx.ss, &r, "s", -1, 0);
    fx_settle();
    expect_error("session_not_found");
    ask_for(fx.ss, &r, REQUEST_REPLAY, "s", 0);
    fx_settle();
    expect_error("session_not_found");
    assert_int_equal(got.n, 3);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_turn_as_it_is_on_record),
        T(turns_that_run_and_wait),
        T(events_in_pages),
        T(replays_are_equal),
        T(another_end_is_told_with_its_alternatives),
        T(while_its_session_talks_and_leaves_memory),
        T(in_pieces),
        T(its_client_leaves_between_two_pieces),
        T(a_running_turn_in_pieces),
        T(deleted_between_two_pieces),
        T(on_a_path_of_its_own),
        T(it_can_be_cancelled),
        T(one_for_each_client),
        T(a_client_that_leaves_ends_its_own),
        T(deleted_and_shut_down_meanwhile),
        T(closed_under_it),
        T(what_the_engine_refuses),
        T(another_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

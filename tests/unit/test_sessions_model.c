// Ten thousand random operations, with clients that come, go, read slowly and return, an engine
// that evicts, a disk that fills up, and restarts. Whatever happens: every client's numbers are
// gapless, the text it builds is the turn's, every accepted turn is there and ends, every request
// is answered exactly once, and every token follows from its log.
#include "tests/scale.h"
#include "tests/unit/sessions_fixture.h"
#include <signal.h>
#include <sys/resource.h>

#define SESSIONS 3
#define READERS 6 // clients 1 .. READERS; CLIENTS - 1 looks on

static struct {
    char id[SESSIONS][16]; // "" when there is none
    int generation;
    bool closed[SESSIONS];
    bool accepted[SESSIONS][SEEN_TURNS];
    int n_requests;
    uint64_t asker[FX_REQUESTS];
    // No answer is expected: its client left or skipped the event with the answer
    bool excused[FX_REQUESTS];
    bool full;
    int n_accepted, n_restarts, n_refused, n_resets;
} m;

static int pick(int n) {
    return (int)(random() % n);
}

static struct request ask(uint64_t client) {
    char id[16];
    int n = m.n_requests++ % FX_REQUESTS;
    fx.answered[n] = 0;
    m.asker[n] = client;
    m.excused[n] = false;
    snprintf(id, sizeof id, "q%d", n);
    return fx_request(client, id);
}

static void excuse(uint64_t client) {
    for (int i = 0; i < FX_REQUESTS && i < m.n_requests; i++)
        if (m.asker[i] == client) m.excused[i] = true;
}

static int session_of(const char *id) {
    for (int i = 0; i < SESSIONS; i++)
        if (strcmp(m.id[i], id) == 0) return i;
    return -1;
}

static void note_answer(const struct seen_answer *a) {
    int s = session_of(a->session_id);
    if (a->kind == ANSWER_ACCEPTED && s >= 0) {
        m.accepted[s][a->turn] = true;
        m.n_accepted++;
    }
    if (a->kind == ANSWER_ERROR) m.n_refused++;
    if (a->kind == ANSWER_ATTACHED || a->kind == ANSWER_STATE) m.n_resets += a->reset;
    if (a->kind == ANSWER_STATE &&
        a->request_id[0] == 'q') { // answers attach: this is what the client knows now
        struct follower *f = fx_follower(a->client, a->session_id);
        memset(f->turns, 0, sizeof f->turns);
        f->last = a->seq;
        f->attached = true;
        for (size_t i = 0; i < a->n_turns && i < SEEN_TURNS; i++) {
            struct seen_turn *t = &f->turns[a->turns[i].turn];
            strcpy(t->text, a->turns[i].text);
            t->text_len = strlen(t->text);
            t->done = a->turns[i].state == TURN_DONE;
            strcpy(t->finish, a->turns[i].finish);
        }
    }
}

static void set_full(bool full) {
    char wal[300];
    struct stat st;
    snprintf(wal, sizeof wal, "%s-wal", fx.path);
    if (stat(wal, &st) < 0) return;
    struct rlimit limit = {full ? (rlim_t)st.st_size : RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    m.full = full;
}

static void open_one(int s) {
    uint64_t client = (uint64_t)(1 + pick(READERS));
    char id[16];
    snprintf(id, sizeof id, "g%d", m.generation++);
    struct request r = ask(client);
    struct ask_open o = {
        .id = id, .sink_len = -1, .session_len = 900, .system = pick(2) ? "Be brief" : NULL};
    for (uint64_t c = 1; c < CLIENTS; c++) { // room for what it is going to know
        struct follower *f = &fx.followers[c][s];
        memset(f, 0, sizeof *f);
        strcpy(f->id, id);
    }
    fx_follower(client, id)->attached = true;
    ask_open(fx.ss, &r, &o);
    fx_settle();
    if (!fx_session(id)) return; // the disk was full
    strcpy(m.id[s], id);
    m.closed[s] = false;
    memset(m.accepted[s], 0, sizeof m.accepted[s]);
}

static void attach_one(uint64_t client, const char *id) {
    struct follower *f = fx_follower(client, id);
    excuse(client);                   // an answer by an event that it now skips or reads again
    if (!fx_session(id)) fx_settle(); // a careful client has one question of this kind at a time
    if (pick(3) == 0) {
        struct request r = ask(client);
        ask_get(fx.ss, &r, id, true, SEEN_TURNS, -1);
        fx_settle();
        return;
    }
    if (f->s && f->ready) fx_take(client, f); // a client that has been given events knows them
    if (pick(3) == 0) {
        memset(f->turns, 0, sizeof f->turns);
        f->last = 0;
    }
    f->attached = true;
    struct request r = ask(client);
    ask_attach(fx.ss, &r, id, f->last);
    fx_settle();
}

static void leave(uint64_t client, const char *id) {
    excuse(client);
    struct follower *f = fx_follower(client, id);
    struct request r = ask(client);
    ask_for(fx.ss, &r, REQUEST_DETACH, id, TURN_HEAD);
    f->attached = f->ready = false;
    f->s = NULL;
}

static void vanish(uint64_t client) {
    excuse(client);
    sessions_client_gone(fx.ss, client);
    for (int i = 0; i < 4; i++) {
        fx.followers[client][i].attached = fx.followers[client][i].ready = false;
        fx.followers[client][i].s = NULL;
    }
}

static void start_one(uint64_t client, int s) {
    static const char *const samplings[] = {NULL, "{\"max_tokens\":1}",
                                            "{\"max_tokens\":30,\"logprobs\":true}",
                                            "{\"top_logprobs\":2,\"max_tokens\":9}"};
    struct session *open = fx_session(m.id[s]);
    if (open && open->n_turns >= SEEN_TURNS - 6) return;
    struct request r = ask(client);
    const char *text = pick(2) ? "hello" : "what was that?";
    struct turn_input in = {
        .kind = pick(2) ? INPUT_CONTENT : INPUT_TEXT, .text = text, .text_len = strlen(text)};
    ask_start(fx.ss, &r, m.id[s], TURN_HEAD, &in, samplings[pick(4)], pick(3) == 0);
    if (pick(10)) return;
    struct request again = r; // sent again, by another client
    again.client = (uint64_t)(1 + pick(READERS));
    fx.answered[atoi(r.request_id + 1)] = 0;
    m.excused[atoi(r.request_id + 1)] = true;
    ask_start(fx.ss, &again, m.id[s], TURN_HEAD, &in, NULL, true);
}

static void close_one(uint64_t client, int s) {
    struct request r = ask(client);
    bool delete_it = m.closed[s] || pick(2);
    fx_settle();
    ask_close(fx.ss, &r, m.id[s], delete_it);
    fx_run();
    struct session *left = fx_session(m.id[s]);
    if (!delete_it) m.closed[s] = left && left->rec.closed_ms;
    if (delete_it && !left) {
        for (uint64_t c = 1; c < CLIENTS; c++) {
            struct follower *f = fx_follower(c, m.id[s]);
            if (f->s) fx_take(c, f);
            f->attached = false;
            excuse(c);
        }
        fx_settle();
        m.id[s][0] = '\0';
    }
}

static void check_log(const struct session *s) {
    size_t at = 0;
    for (size_t i = 0; i < s->n_turns; i++) {
        const struct turn *t = s->turns[i];
        if (t->rec.log_first < 0) {
            assert_int_equal(t->out.n, 0);
            continue;
        }
        at = (size_t)t->rec.log_first;
        assert_memory_equal(s->log + at, t->rec.input_ids, t->rec.n_input_ids * sizeof(int32_t));
        at += t->rec.n_input_ids;
        for (size_t k = 0; k < t->out.n; k++, at++)
            assert_int_equal(s->log[at], fake_token(s->log[at - 1], (int64_t)at, t->rec.seed));
    }
    assert_int_equal(at, s->n_log);
}

static void check_session(int s) {
    const struct seen_answer *a = fx_get(CLIENTS - 1, m.id[s]);
    assert_int_equal(a->kind, ANSWER_STATE);
    for (int t = 0; t < SEEN_TURNS; t++)
        if (m.accepted[s][t]) assert_true(t < (int)a->n_turns);
    for (size_t t = 0; t < a->n_turns; t++) {
        assert_int_equal(a->turns[t].state, TURN_DONE);
        assert_true(m.accepted[s][t]); // every turn was accepted
    }
    for (uint64_t c = 1; c <= READERS; c++) {
        struct follower *f = fx_follower(c, m.id[s]);
        if (!f->attached) continue;
        assert_int_equal(f->last, a->seq);
        for (size_t t = 0; t < a->n_turns; t++) {
            assert_string_equal(f->turns[t].text, a->turns[t].text);
            assert_string_equal(f->turns[t].finish, a->turns[t].finish);
            assert_true(f->turns[t].done);
        }
    }
    if (fx_session(m.id[s])) check_log(fx_session(m.id[s])); // if it is still in memory
}

static void check_all(void) {
    if (m.full) set_full(false);
    fx_run();
    fx_advance(6000000);
    fx_run();
    for (uint64_t c = 1; c <= READERS; c++)
        for (int i = 0; i < 4; i++)
            if (fx.followers[c][i].s) fx_take(c, &fx.followers[c][i]);
    fx.ss->o.max_resident_sessions = 100; // none is evicted meanwhile
    fx.by_hand = false;
    fx_settle();
    for (int s = 0; s < SESSIONS; s++)
        if (m.id[s][0]) check_session(s);
    fx.ss->o.max_resident_sessions = 1;
    for (int i = m.n_requests > 2000 ? m.n_requests - 2000 : 0; i < m.n_requests; i++)
        if (!m.excused[i]) assert_int_equal(fx.answered[i], 1);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    assert_int_equal(store_n_waiting(fx.ss->store), 0);
    assert_true(sessions_store_ok(fx.ss, NULL));
}

static void restart(void) {
    for (uint64_t c = 1; c < CLIENTS; c++) vanish(c);
    for (int i = 0; i < FX_REQUESTS; i++) m.excused[i] = true;
    sessions_close(fx.ss);
    fake_reset();
    fx_open();
    m.n_restarts++;
}

static void one_operation(void) {
    int s = pick(SESSIONS), what = pick(100);
    uint64_t client = (uint64_t)(1 + pick(READERS));
    if (fx.n_answers > ANSWERS / 2) fx.n_answers = 0;
    if (!m.id[s][0]) {
        open_one(s);
        return;
    }
    if (what < 14)
        start_one(client, s);
    else if (what < 50)
        fake_step();
    else if (what < 60)
        attach_one(client, m.id[s]);
    else if (what < 63)
        leave(client, m.id[s]);
    else if (what < 65)
        vanish(client);
    else if (what < 68) {
        struct request r = ask(client);
        ask_for(fx.ss, &r, REQUEST_CANCEL, m.id[s], pick(2) ? -1 : pick(20));
    } else if (what < 72) {
        struct request r = ask(client);
        ask_update(fx.ss, &r, m.id[s], pick(2) ? "Title" : "", pick(2) ? "{\"top_k\":3}" : NULL,
                   -1);
    } else if (what < 76) {
        fx.by_hand = pick(2);
        fx.max_text = (size_t)(1 + pick(60));
    } else if (what < 82) {
        struct follower *f = fx_follower(client, m.id[s]);
        if (f->s) fx_take(client, f);
    } else if (what < 90)
        clock_fake_advance(&fx.clock, pick(40000));
    else if (what < 92)
        clock_fake_advance(&fx.clock, pick(70000000));
    else if (what < 94) {
        struct session *live = fx_session(m.id[s]);
        if (live) fake_pressure((uint64_t)live->rec.key);
    } else if (what < 96)
        set_full(pick(3) == 0);
    else if (what == 96 && pick(2))
        close_one(client, s);
    else if (what == 97 && pick(10) == 0)
        check_all(), restart();
    if (pick(3) == 0)
        fx_settle();
    else
        sessions_poll(fx.ss);
}

static void ten_thousand_random_operations(void **state) {
    signal(SIGXFSZ, SIG_IGN);
    fx_setup_file();
    sessions_close(fx.ss);
    fx.o.max_resident_sessions = 1;
    fx_open();
    fx.on_answer = note_answer;
    srandom(getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 42);
    int n_operations = test_scaled(10000);
    for (int i = 0; i < n_operations; i++) {
        one_operation();
        if (i % 250 == 249) check_all();
    }
    check_all();
    if (getenv("SEED"))
        print_message("%d accepted, %d refused, %d resets, %d restarts, %d sessions\n",
                      m.n_accepted, m.n_refused, m.n_resets, m.n_restarts, m.generation);
    assert_true(m.n_accepted > n_operations * 0.03 && m.n_refused > n_operations * 0.005 &&
                m.n_restarts > 0 && m.generation > n_operations * 0.001);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_thousand_random_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

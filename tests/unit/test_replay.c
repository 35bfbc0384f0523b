// Replay over an engine with predictable answers: equal records, and each kind of difference at its
// place; what-if's turns on their new log.
#include "base/err.h"
#include "sessions/replay/replay.h"
#include "tests/cmocka.h"
#include "tests/unit/fake_engine.h"
#include <math.h>

#define N_TURNS 6
enum { HELLO, LIMITED, CANCELLED, IDS, BUSY, QUEUED };

static struct {
    struct stored_session *s;
    struct replay *r;
    int32_t last; // last token of the log
    int64_t n_log;
} world;

static int32_t *new_ids(struct turn_record *t, const char *text, bool system) {
    struct token_list list;
    token_list_init(&list);
    struct engine_message m[2] = {{"system", "S"}, {"user", text}};
    if (t->kind == INPUT_IDS)
        engine_tokenize(NULL, text, strlen(text), true, &list, NULL);
    else
        engine_render_turn(NULL, system ? m : m + 1, system ? 2 : 1, world.n_log ? world.last : -1,
                           &list, NULL);
    t->n_input_ids = list.len;
    t->n_input = (int64_t)list.len;
    return token_list_take(&list, &t->n_input_ids);
}

// The answer that the fake engine gives with this seed.
static void answer(struct stored_turn *t, size_t n) {
    struct token_run *k = &t->tokens;
    k->n = n;
    k->ids = calloc(n + 1, sizeof *k->ids);
    k->logprobs = calloc(n + 1, sizeof *k->logprobs);
    k->text = strdup("as it was");
    k->text_len = strlen(k->text);
    for (size_t i = 0; i < n; i++) {
        world.last = k->ids[i] = fake_token(world.last, world.n_log++, t->rec.seed);
        k->logprobs[i] = -(float)k->ids[i] / 256;
    }
    t->rec.n_output = (int64_t)n;
}

static void add(int turn, enum turn_input_kind kind, const char *text, const char *sampling,
                size_t n, const char *finish) {
    struct stored_turn *t = &world.s->turns[turn];
    t->rec.turn = turn;
    t->rec.parent = turn - 1;
    t->rec.kind = kind;
    t->rec.seed = (uint64_t)turn * 77 + 1;
    t->rec.sampling = strdup(sampling);
    t->rec.log_first = world.n_log;
    if (kind != INPUT_IDS) {
        t->rec.input_text = strdup(text);
        t->rec.input_text_len = strlen(text);
    }
    strcpy(t->rec.finish_reason, finish);
    t->rec.input_ids = new_ids(&t->rec, text, turn == HELLO);
    world.n_log += t->rec.n_input;
    world.last = t->rec.input_ids[t->rec.n_input - 1];
    answer(t, n);
    world.s->n_turns = (size_t)turn + 1;
    world.s->rec.head = turn;
}

static int setup(void **state) {
    fake_reset();
    fake.eos_after = 6;
    memset(&world, 0, sizeof world);
    world.s = calloc(1, sizeof *world.s);
    world.s->turns = calloc(N_TURNS, sizeof *world.s->turns);
    world.s->rec.system = strdup("S");
    world.s->rec.session_len = 1000;
    world.s->rec.memory_len = 64;
    world.s->rec.sink_len = 4;
    add(HELLO, INPUT_CONTENT, "hello", "{}", 6, "eos");
    add(LIMITED, INPUT_CONTENT, "more", "{\"max_tokens\":4,\"seed\":\"78\"}", 4, "length");
    add(CANCELLED, INPUT_CONTENT, "stop", "{\"max_tokens\":40}", 3, "cancelled");
    add(IDS, INPUT_IDS, "raw", "{}", 6, "eos");
    add(BUSY, INPUT_CONTENT, "too much", "{}", 0, "error");
    add(QUEUED, INPUT_CONTENT, "never", "{}", 0, "cancelled");
    world.s->turns[QUEUED].rec.log_first = -1;
    return 0;
}

static int teardown(void **state) {
    replay_free(world.r);
    stored_session_free(world.s);
    fake_reset();
    return 0;
}

static void begin(bool what_if) {
    struct err err = {0};
    struct replay_window w;
    replay_window(world.s, what_if, &w);
    if (replay_new(&world.r, fake_engine(0), world.s, &w, &err) < 0) fail_msg("%s", err.text);
}

static struct replay_turn run(size_t turn) {
    struct replay_turn found;
    struct err err = {0};
    if (replay_one(world.r, turn, true, &found, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(found.turn, turn);
    return found;
}

static void expect(size_t turn, enum replay_verdict v) {
    struct replay_turn found = run(turn);
    assert_string_equal(replay_verdict_name(found.verdict), replay_verdict_name(v));
}

static void equal_turns(void **state) {
    begin(false);
    for (size_t i = HELLO; i <= IDS; i++) {
        struct replay_turn t = run(i);
        assert_int_equal(t.verdict, REPLAY_EQUAL);
        assert_int_equal(t.n_compared, world.s->turns[i].rec.n_output);
        assert_int_equal(t.first.index, -1);
        assert_int_equal(t.token.index, -1);
        assert_int_equal(t.cut_short, i == CANCELLED);
    }
    expect(BUSY, REPLAY_EMPTY);
    expect(QUEUED, REPLAY_EMPTY);
    assert_int_equal(fake.n_submitted, 4); // those two turns were not submitted
    assert_int_equal(fake_n_running(), 0);
}

static void another_token(void **state) {
    int32_t *id = &world.s->turns[LIMITED].tokens.ids[2], was = *id;
    *id = was == 20 ? 21 : 20;
    begin(false);
    expect(HELLO, REPLAY_EQUAL);
    struct replay_turn t = run(LIMITED);
    assert_int_equal(t.verdict, REPLAY_DIVERGED);
    assert_int_equal(t.first.kind, REPLAY_TOKEN);
    assert_int_equal(t.first.index, 2);
    assert_int_equal(t.n_compared, 2);
    assert_int_equal(t.n_logprobs_differ, 0);
    const struct turn_record *r = &world.s->turns[LIMITED].rec;
    assert_int_equal(t.first.position, r->log_first + r->n_input + 2);
    assert_int_equal(t.first.recorded.id, *id);
    assert_int_equal(t.first.now.id, was);
    assert_int_equal(t.token.index, 2);
    assert_int_equal(t.first.n_top, REPLAY_TOP);
    // The alternatives at that position follow from the log before it and the probe's own seed.
    int32_t before = world.s->turns[LIMITED].tokens.ids[1];
    assert_int_equal(t.first.top[0].id, fake_token(before, t.first.position, 0));
    expect(CANCELLED, REPLAY_EQUAL); // on its own recorded log
    expect(IDS, REPLAY_EQUAL);
}

static void one_bit_of_a_logprob(void **state) {
    uint32_t bits;
    float *p = &world.s->turns[CANCELLED].tokens.logprobs[1];
    memcpy(&bits, p, sizeof bits);
    bits ^= 1;
    memcpy(p, &bits, sizeof bits);
    begin(false);
    struct replay_turn t = run(CANCELLED);
    assert_int_equal(t.verdict, REPLAY_DIVERGED);
    assert_int_equal(t.first.kind, REPLAY_LOGPROB);
    assert_int_equal(t.first.index, 1);
    assert_int_equal(t.first.recorded.id, t.first.now.id);
    assert_int_equal(t.n_compared, 3);
    assert_int_equal(t.n_logprobs_differ, 1);
    assert_int_equal(t.token.index, -1);
    assert_int_equal(run(CANCELLED).first.index, 1); // as often as it is asked
}

static void bits_before_a_token(void **state) {
    world.s->turns[IDS].tokens.logprobs[0] = -0.0f;
    world.s->turns[IDS].tokens.logprobs[1] = NAN;
    world.s->turns[IDS].tokens.ids[3] = 2;
    begin(false);
    struct replay_turn t = run(IDS);
    assert_int_equal(t.first.kind, REPLAY_LOGPROB);
    assert_int_equal(t.first.index, 0);
    assert_int_equal(t.n_logprobs_differ, 2);
    assert_int_equal(t.token.kind, REPLAY_TOKEN);
    assert_int_equal(t.token.index, 3);
    assert_int_equal(t.token.n_top, REPLAY_TOP);
}

// The model's end tokens, a stop string or the tokenizer have changed.
static void another_end(void **state) {
    fake.eos_after = 20;
    begin(false);
    struct replay_turn t = run(HELLO);
    assert_int_equal(t.verdict, REPLAY_DIVERGED);
    assert_int_equal(t.first.kind, REPLAY_END);
    assert_int_equal(t.first.index, 6);
    assert_int_equal(t.first.recorded.id, -1);
    assert_true(t.first.now.id >= 0);
    assert_string_equal(t.recorded_finish, "eos");
    assert_string_equal(t.finish, "length"); // one token more than recorded and no further
    fake.eos_after = 5;
    t = run(HELLO);
    assert_int_equal(t.first.kind, REPLAY_END);
    assert_int_equal(t.first.index, 5);
    assert_int_equal(t.first.now.id, -1);
    assert_int_equal(t.first.recorded.id, world.s->turns[HELLO].tokens.ids[5]);
    fake.eos_after = 6;
    strcpy(world.s->turns[HELLO].rec.finish_reason, "stop");
    t = run(HELLO);
    assert_int_equal(t.first.kind, REPLAY_END);
    assert_int_equal(t.first.index, 6);
    assert_string_equal(t.finish, "eos");
}

// A search that a crash cut short has on record the tokens in which its beams agreed; run again, it goes on to its end.
static void a_search_that_was_cut_short(void **state) {
    struct stored_turn *cut = &world.s->turns[CANCELLED];
    free(cut->rec.sampling);
    cut->rec.sampling = strdup("{\"beam_width\":4,\"max_tokens\":30}");
    fake.eos_after = 20;
    begin(false);
    struct replay_turn t = run(CANCELLED);
    assert_int_equal(t.verdict, REPLAY_EQUAL);
    assert_int_equal(t.n_compared, (int64_t)cut->tokens.n);
    cut->tokens.ids[1] ^= 1;
    t = run(CANCELLED);
    assert_int_equal(t.verdict, REPLAY_DIVERGED);
    assert_int_equal(t.first.kind, REPLAY_TOKEN);
}

static void what_cannot_be_run(void **state) {
    struct replay_turn t;
    begin(false);
    fake.submit_rc = E_INVAL;
    t = run(HELLO);
    assert_int_equal(t.verdict, REPLAY_FAILED);
    assert_non_null(strstr(t.why, "says no"));
    fake.submit_rc = 0;
    fake.fail_after = 2;
    t = run(HELLO);
    assert_int_equal(t.verdict, REPLAY_FAILED);
    assert_non_null(strstr(t.why, "after 2 tokens"));
    fake.fail_after = 0;
    free(world.s->turns[HELLO].rec.sampling);
    world.s->turns[HELLO].rec.sampling = strdup("{\"temperature\":\"hot\"}");
    t = run(HELLO);
    assert_int_equal(t.verdict, REPLAY_FAILED);
    assert_non_null(strstr(t.why, "temperature"));
    expect(LIMITED, REPLAY_EQUAL);
}

static void refuse(const char *words) {
    struct err err = {0};
    struct replay_window w;
    replay_window(world.s, false, &w);
    assert_int_equal(replay_new(&world.r, fake_engine(0), world.s, &w, &err), E_CORRUPT);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void records_that_contradict_themselves(void **state) {
    world.s->turns[LIMITED].rec.log_first++;
    refuse("turn 1: it does not begin where the log ends");
    world.s->turns[LIMITED].rec.log_first--;
    world.s->turns[IDS].rec.n_input++;
    refuse("turn 3: its input");
    world.s->turns[IDS].rec.n_input--;
    world.s->turns[IDS].rec.n_output--;
    refuse("turn 3: its answer");
    world.s->turns[IDS].rec.n_output++;
    world.s->turns[IDS].rec.log_first = -1;
    refuse("turn 3: it has an answer but never began");
}

static void window_no_larger_than_needed(void **state) {
    struct replay_window w;
    struct session_record *r = &world.s->rec;
    r->session_len = 1 << 20;
    r->memory_len = 1 << 19;
    r->sink_len = 1 << 18;
    replay_window(world.s, false, &w);
    int64_t n = 0;
    for (int i = 0; i < N_TURNS; i++) // a turn that never began has no tokens in the log
        if (world.s->turns[i].rec.log_first >= 0)
            n += (int64_t)(world.s->turns[i].rec.n_input_ids + world.s->turns[i].tokens.n);
    assert_int_equal(w.session_len, n + 2);
    assert_int_equal(w.memory_len, n + 2);
    assert_true(w.sink_len < w.memory_len);
    replay_window(world.s, true, &w);
    assert_int_equal(w.session_len, 1 << 20);
    assert_int_equal(w.memory_len, 1 << 19);
    r->memory_len = 16; // a window that was in use is kept
    r->sink_len = 3;
    replay_window(world.s, false, &w);
    assert_int_equal(w.memory_len, 16);
    assert_int_equal(w.sink_len, 3);
}

static void instances(void **state) {
    const char *now = "cpu: AVX2, 2 threads; bf16 weights, f32 cache, template chatml";
    assert_true(replay_instance_equal(now, now));
    assert_true(replay_instance_equal("cpu: AVX2, 2 threads", now)); // an older record
    assert_true(replay_instance_equal("cpu: AVX2, 1 thread", now));
    assert_true(replay_instance_equal(
        "cpu: AVX2, 16 threads; bf16 weights, f32 cache, template chatml", now));
    assert_false(replay_instance_equal("cpu: AVX2", now + 1));
    assert_false(replay_instance_equal("", now));
    assert_false(replay_instance_equal("cpu: AVX-512, 2 threads", now));
    assert_false(replay_instance_equal("cpu: AVX2, 2 threads, slow", now));
    assert_false(replay_instance_equal("cpu: AVX2, 2 threads; int8 weights, f32 cache", now));
    assert_int_equal(replay_instance_differs("cpu: AVX2, 9 threads", now), 0);
    assert_int_equal(replay_instance_differs("cpu: AVX-512, 2 threads", now), REPLAY_DEVICE);
    assert_int_equal(
        replay_instance_differs("cpu: AVX2; int8 weights, f32 cache, template chatml", now),
        REPLAY_SETTINGS);
    assert_int_equal(replay_instance_differs("gpu; int8 weights", now),
                     REPLAY_DEVICE | REPLAY_SETTINGS);
    char out[RECORD_INSTANCE_MAX];
    struct engine_info info = fake.info;
    info.chat_template = "/home/zora/secret/chat.jinja";
    info.weight_dtype = "bf16";
    record_instance(out, &info);
    assert_string_equal(out, "fake: 1 thread; bf16 weights, f32 cache, template chat.jinja");
}

static void compute_dtypes(void **state) {
    static const char *const none[] = {NULL,
                                       "",
                                       "unknown",
                                       "fake: 1 thread",
                                       "cuda: NVIDIA H200, bf160",
                                       "cuda: NVIDIA, f32x, my bf16"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(record_compute_dtype(none[i]));
    assert_string_equal(record_compute_dtype("cpu: AVX2, 2 threads"), "f32"); // an older record
    assert_string_equal(record_compute_dtype("cpu: AVX-512, 2 threads; bf16 weights, f32 cache"),
                        "f32");
    assert_string_equal(
        record_compute_dtype("cpu: AVX-512, products of bf16, 1 thread; bf16 weights, f32 cache"),
        "bf16");
    assert_string_equal(record_compute_dtype("cpu: AVX2, 1 thread; template , products of bf16, "),
                        "f32");
    assert_string_equal(record_compute_dtype("cuda: NVIDIA H200, f32, deterministic; bf16 weights"),
                        "f32");
    assert_string_equal(record_compute_dtype("cuda: NVIDIA H200, bf16; bf16 weights, f32, x"),
                        "bf16");
    assert_string_equal(
        record_compute_dtype("cuda: NVIDIA H200, f16, without cuBLASLt; f16 weights"), "f16");
}

// --- what if ---

static void check_changes(void **state) {
    struct err err = {0};
    assert_int_equal(replay_check_changes("{\"temperature\":0.2}", FAKE_VOCAB, &err), 0);
    assert_int_equal(replay_check_changes("{\"temprature\":0.2}", FAKE_VOCAB, &err), E_INVAL);
    assert_non_null(strstr(err.text, "temprature"));
    assert_int_equal(replay_check_changes("{\"top_p\":3}", FAKE_VOCAB, &err), E_INVAL);
    assert_int_equal(replay_check_changes("{}", FAKE_VOCAB, &err), E_INVAL);
    assert_int_equal(replay_check_changes("[1]", FAKE_VOCAB, &err), E_INVAL);
    assert_int_equal(replay_check_changes("{\"a", FAKE_VOCAB, &err), E_INVAL);
}

static struct replay_pair next(void) {
    struct replay_pair p;
    struct err err = {0};
    int rc = replay_next(world.r, &p, &err);
    if (rc != 1) fail_msg("%d: %s", rc, err.text);
    return p;
}

static void nothing_changed(void **state) {
    struct replay_pair p;
    begin(true);
    assert_int_equal(replay_what_if(world.r, 0, "{\"logprobs\":true}", NULL), 0);
    for (int i = HELLO; i <= BUSY; i++) {
        p = next();
        assert_int_equal(p.turn, i);
        assert_null(p.failed);
        assert_true(p.same); // so every input was rendered as in the record
        assert_string_equal(p.now.finish_reason, p.recorded.finish_reason);
    }
    assert_int_equal(replay_next(world.r, &p, NULL), 0); // the turn that never began is left out
}

static void another_seed(void **state) {
    fake.eos_after = 0;
    begin(true);
    assert_int_equal(replay_what_if(world.r, LIMITED, "{\"seed\":\"5\",\"max_tokens\":9}", NULL),
                     0);
    struct replay_pair p = next();
    const struct turn_record *t = &world.s->turns[LIMITED].rec;
    int64_t n_log = t->log_first + t->n_input;
    int32_t last = t->input_ids[t->n_input - 1];
    assert_int_equal(p.turn, LIMITED);
    assert_int_equal(p.now.n, 9);
    assert_false(p.same);
    for (size_t i = 0; i < p.now.n; i++)
        assert_int_equal(p.now.ids[i], last = fake_token(last, n_log++, 5));
    assert_memory_equal(p.recorded.text, "as it was", p.recorded.text_len);
    // The next turn continues from the new answer and ends where its record was cut.
    p = next();
    assert_int_equal(p.turn, CANCELLED);
    assert_int_equal(p.now.n, 3);
    last = 5; // the rendered input's last id, behind the end of the turn before
    n_log += 1 + 1 + 4 + 1 + 1;
    for (size_t i = 0; i < p.now.n; i++)
        assert_int_equal(p.now.ids[i], last = fake_token(last, n_log++, 5));
    assert_string_equal(p.now.finish_reason, "cancelled");
    assert_int_equal(next().turn, IDS);
}

static void a_log_that_becomes_full(void **state) {
    struct replay_pair p;
    fake.eos_after = 0;
    world.s->rec.session_len = world.n_log + 10;
    begin(true);
    assert_int_equal(replay_what_if(world.r, HELLO, "{\"max_tokens\":500}", NULL), 0);
    p = next();
    assert_null(p.failed);
    assert_string_equal(p.now.finish_reason, "length");
    p = next();
    assert_non_null(p.failed);
    assert_int_equal(replay_next(world.r, &p, NULL), 0);
}

static void inputs_that_are_missing(void **state) {
    struct replay_pair p;
    free(world.s->turns[LIMITED].rec.input_text);
    world.s->turns[LIMITED].rec.input_text = NULL;
    begin(true);
    assert_int_equal(replay_what_if(world.r, HELLO, "{\"top_k\":2}", NULL), 0);
    next();
    p = next();
    assert_non_null(strstr(p.failed, "no text"));
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(equal_turns),
        T(another_token),
        T(one_bit_of_a_logprob),
        T(bits_before_a_token),
        T(another_end),
        T(a_search_that_was_cut_short),
        T(what_cannot_be_run),
        T(records_that_contradict_themselves),
        T(window_no_larger_than_needed),
        T(instances),
        T(compute_dtypes),
        T(check_changes),
        T(nothing_changed),
        T(another_seed),
        T(a_log_that_becomes_full),
        T(inputs_that_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

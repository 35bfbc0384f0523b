// A hundred thousand turns on two dozen sequence numbers and a cache that is too small for them:
// numbers, slots and blocks are reused as soon as they are free. Every token and every bit of its
// log-probability must equal those of the same log alone: a key or value of another session would
// change both.
#include "engine/engine.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define N_TURNS 4000
#else
#define N_TURNS 100000
#endif
#define PERSONAS 60
#define SLOTS 24
#define GROUPS 3
#define BLOCK 8
#define LOG_MAX 40
#define ANSWER 2
#define TURNS_OF_ONE 3

// A user with a conversation: the turns, and their answers when no other sequence runs.
static struct persona {
    int32_t log[LOG_MAX];
    int64_t begin[TURNS_OF_ONE + 1]; // where each turn's input begins
    int64_t asked[TURNS_OF_ONE];     // and its length
    float logprobs[TURNS_OF_ONE][ANSWER];
    uint64_t group;
    float temperature;
} personas[PERSONAS];

static struct slot {
    struct persona *who; // whose log the sequence last had; NULL: none
    int turn;            // that runs, or would come next
    uint64_t number;     // of the turn; 0: none
    int64_t n;           // tokens that came
    bool cancelled;
} slots[SLOTS];

static struct engine *e;
static uint64_t n_turns;
static int64_t n_done, n_kept, n_shared, n_released, n_pressed, n_cancelled, n_taken_over, n_parked;

static void open_engine(void) {
    struct engine_options o;
    struct err err = {0};
    engine_options_init(&o);
    o.model_dir = "tests/fixtures/models/llama";
    o.device = "cpu";
    o.n_threads = 1;
    o.block_tokens = BLOCK;
    o.prefill_chunk_tokens = 64;
    o.max_sequences = SLOTS;
    o.max_queued_turns = SLOTS;
    o.max_session_len = 128;
    o.kv_cache_bytes = 200 << 10; // a part of what all of them would take
    o.host_cache_bytes = 100 << 10;
    if (engine_open(&e, &o, &err) < 0) fail_msg("%s", err.text);
}

static struct engine_turn turn_of(const struct persona *p, int turn, uint64_t sequence) {
    struct engine_turn t = {.sequence = sequence,
                            .turn = ++n_turns,
                            .n_ids = p->begin[turn] + p->asked[turn],
                            .n_input = p->asked[turn],
                            .memory_len = 32,
                            .sink_len = 2,
                            .session_len = 128,
                            .share_group = p->group};
    sampling_params_init(&t.sampling);
    t.sampling.temperature = p->temperature;
    t.sampling.has_seed = true;
    t.sampling.seed = (uint64_t)(p - personas);
    t.sampling.ignore_eos = true;
    t.sampling.max_tokens = ANSWER;
    t.ids = malloc((size_t)t.n_ids * sizeof *t.ids);
    assert_non_null(t.ids);
    memcpy(t.ids, p->log, (size_t)t.n_ids * sizeof *t.ids);
    return t;
}

static void submit(struct engine_turn *t) {
    struct err err = {0};
    if (engine_turn_submit(e, t, &err) < 0) fail_msg("%s", err.text);
}

// Alone, on an unused sequence, without sharing.
static void ask_alone(struct persona *p, int turn, uint64_t sequence) {
    struct engine_turn t = turn_of(p, turn, sequence);
    struct engine_event ev;
    int64_t at = t.n_ids, n = 0;
    t.share_group = 0;
    submit(&t);
    do {
        assert_int_equal(engine_wait(e, &ev, 20000000), 1);
        if (ev.kind != ENGINE_TOKEN || ev.id < 0) continue;
        p->log[at + n] = ev.id;
        p->logprobs[turn][n++] = ev.logprob;
    } while (ev.kind != ENGINE_DONE);
    assert_int_equal(n, ANSWER);
    engine_sequence_release(e, sequence);
    do assert_int_equal(engine_wait(e, &ev, 20000000), 1);
    while (ev.kind != ENGINE_RELEASED);
}

// Groups of them begin alike, over a whole block and a part of one: what may be shared is, and the
// rest is not.
static void make_persona(struct persona *p) {
    int i = (int)(p - personas);
    int64_t at = 0;
    p->group = (uint64_t)(1 + i % GROUPS);
    p->temperature = i % 2 ? 1 : 0;
    for (int turn = 0; turn < TURNS_OF_ONE; turn++) {
        p->begin[turn] = at;
        p->asked[turn] = turn ? 1 + below(4) : 9 + below(6);
        for (int64_t k = 0; k < p->asked[turn]; k++, at++)
            p->log[at] = (int32_t)(turn == 0 && k < 10 ? 5 + k * 3 + i / 20 * 50 : 5 + below(300));
        ask_alone(p, turn, 1000 + (uint64_t)(i * TURNS_OF_ONE + turn));
        at += ANSWER;
    }
    assert_true(at <= LOG_MAX);
}

static uint64_t sequence_of(const struct slot *s) {
    return (uint64_t)(s - slots) + 1;
}

// The slot gets a new user: with the last user's cache, after a release, or by a fork from another
// user of the same owner.
static void begin(struct slot *s) {
    struct persona *before = s->who;
    bool goes_on = before && s->turn < TURNS_OF_ONE && below(3) > 0;
    if (!goes_on) {
        s->who = &personas[below(PERSONAS)];
        s->turn = (int)below(TURNS_OF_ONE);
        if (before && below(2) == 0)
            engine_sequence_release(e, sequence_of(s));
        else
            n_taken_over += before && before != s->who;
    }
    const struct slot *other = &slots[below(SLOTS)];
    if (!before && other->who && other->who->group == s->who->group)
        engine_sequence_fork(e, sequence_of(other), sequence_of(s), 1 + below(20));
    struct engine_turn t = turn_of(s->who, s->turn, sequence_of(s));
    s->number = t.turn;
    s->n = 0;
    s->cancelled = false;
    submit(&t);
    if (below(40) == 0) {
        s->cancelled = true;
        engine_turn_cancel(e, t.sequence, t.turn);
    }
}

static void take(const struct engine_event *ev) {
    struct slot *s = &slots[ev->sequence - 1];
    if (ev->kind == ENGINE_RELEASED) {
        n_released++;
        n_pressed += ev->why == RELEASE_PRESSURE;
        return;
    }
    if (ev->kind == ENGINE_PARKED || ev->kind == ENGINE_FORKED) {
        n_parked += ev->kind == ENGINE_PARKED;
        return;
    }
    assert_int_equal(ev->turn, s->number);
    const struct persona *p = s->who;
    if (ev->kind == ENGINE_STARTED) {
        n_kept += ev->n_cached > 0 && ev->source == CACHE_KEPT;
        n_shared += ev->n_cached > 0 && ev->source != CACHE_KEPT;
    }
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        int64_t at = p->begin[s->turn] + p->asked[s->turn] + s->n;
        assert_int_equal(ev->id, p->log[at]);
        assert_memory_equal(&ev->logprob, &p->logprobs[s->turn][s->n], sizeof(float));
        s->n++;
    }
    if (ev->kind != ENGINE_DONE) return;
    if (ev->finish == FINISH_CANCELLED) {
        assert_true(s->cancelled);
        n_cancelled++;
    } else {
        assert_int_equal(ev->finish, FINISH_LENGTH);
        assert_int_equal(s->n, ANSWER);
    }
    s->number = 0;
    s->turn++;
    n_done++;
}

static void numbers_slots_and_blocks_are_used_again(void **state) {
    struct engine_event ev;
    seed = 20261122;
    open_engine();
    for (int i = 0; i < PERSONAS; i++) make_persona(&personas[i]);
    uint64_t first = n_turns;
    int64_t n_under_way = 0;
    while (n_done < N_TURNS) {
        for (struct slot *s = slots; s < slots + SLOTS; s++) {
            if (s->number || n_turns - first >= N_TURNS) continue;
            begin(s);
            n_under_way++;
        }
        int64_t before = n_done;
        assert_int_equal(engine_wait(e, &ev, 60000000), 1);
        do take(&ev);
        while (engine_poll(e, &ev) == 1);
        n_under_way -= n_done - before;
    }
    assert_int_equal(n_under_way, 0);
    print_message("%lld turns: %lld kept, %lld shared, %lld released (%lld by pressure), "
                  "%lld cancelled, %lld taken over as they were, %lld parked\n",
                  (long long)n_done, (long long)n_kept, (long long)n_shared, (long long)n_released,
                  (long long)n_pressed, (long long)n_cancelled, (long long)n_taken_over,
                  (long long)n_parked);
    // All of these cases occurred, and often.
    assert_true(n_kept > N_TURNS / 10 && n_released > N_TURNS / 20 && n_pressed > N_TURNS / 1000);
    assert_true(n_shared > N_TURNS / 10 && n_parked > N_TURNS / 1000);
    assert_true(n_taken_over > N_TURNS / 20 && n_cancelled > N_TURNS / 200);
    engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_slots_and_blocks_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

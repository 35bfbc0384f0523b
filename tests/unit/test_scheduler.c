// The policy, on tables of numbers: which turns are admitted, their shares of a step, which caches
// are evicted; and in any order of events, every admitted turn ends.
#include "engine/run/scheduler.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include <string.h>

static struct scheduler s;
static struct sched_share share[64];

static void setup(int32_t max_running, int32_t prefill_tokens, int32_t n_blocks) {
    assert_int_equal(sched_init(&s, max_running, prefill_tokens, n_blocks, 1000, NULL), 0);
}

static void enqueue_as(struct sched_turn *t, int32_t reserve, uint64_t owner,
                       enum engine_priority priority) {
    *t = (struct sched_turn){.reserve = reserve, .priority = priority};
    sched_enqueue(&s, t, owner);
}
static void enqueue(struct sched_turn *t, int32_t reserve) {
    enqueue_as(t, reserve, 1, ENGINE_INTERACTIVE);
}

static void start_as(struct sched_turn *t, int64_t n_todo, uint64_t owner,
                     enum engine_priority priority) {
    enqueue_as(t, 1, owner, priority);
    assert_ptr_equal(sched_admit(&s), t);
    t->n_todo = n_todo;
}
static void start(struct sched_turn *t, int64_t n_todo) {
    start_as(t, n_todo, 1, ENGINE_INTERACTIVE);
}
static void start_decoding(struct sched_turn *t, uint64_t owner, enum engine_priority priority) {
    start_as(t, 1, owner, priority);
    sched_computed(t, 1);
    assert_int_equal(t->state, SCHED_DECODE);
}

static int32_t tokens_of(const struct sched_turn *t, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (share[i].turn == t) return share[i].n_tokens;
    }
    return 0;
}

static void test_admission_is_fifo_and_within_the_blocks(void **state) {
    struct sched_turn a, b, c;
    setup(4, 64, 10);
    enqueue(&a, 6);
    enqueue(&b, 5);
    enqueue(&c, 1);
    assert_ptr_equal(sched_admit(&s), &a);
    assert_null(sched_admit(&s)); // b does not fit beside a, and c does not overtake b
    sched_leave(&s, &a);
    assert_ptr_equal(sched_admit(&s), &b);
    assert_ptr_equal(sched_admit(&s), &c);
    assert_int_equal(s.n_reserved, 6);
    sched_leave(&s, &b);
    sched_leave(&s, &c);
    assert_int_equal(s.n_reserved, 0);
    assert_int_equal(s.n_running, 0);
    sched_release(&s);
}

static void test_admission_stops_at_max_running(void **state) {
    struct sched_turn t[3];
    setup(2, 64, 10);
    for (int i = 0; i < 3; i++) enqueue(&t[i], 1);
    assert_non_null(sched_admit(&s));
    assert_non_null(sched_admit(&s));
    assert_null(sched_admit(&s));
    sched_leave(&s, &t[2]); // cancelled while queued
    assert_int_equal(sched_n_waiting(&s), 0);
    sched_leave(&s, &t[0]);
    assert_null(sched_admit(&s));
    sched_leave(&s, &t[1]);
    sched_leave(&s, &t[1]); // leaving twice does no harm
    sched_release(&s);
}

static void test_decodes_go_first_and_do_not_use_the_budget(void **state) {
    struct sched_turn d[3], p;
    setup(8, 64, 100);
    for (int i = 0; i < 3; i++) {
        start(&d[i], 1);
        sched_computed(&d[i], 1);
        assert_int_equal(d[i].state, SCHED_DECODE);
    }
    start(&p, 1000);
    int32_t n = sched_plan(&s, share);
    assert_int_equal(n, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(share[i].turn->state, SCHED_DECODE);
        assert_int_equal(share[i].n_tokens, 1);
    }
    assert_ptr_equal(share[3].turn, &p);
    assert_int_equal(share[3].n_tokens, 64);
    sched_release(&s);
}

static int32_t prompt_tokens(int32_t n) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (share[i].turn->state == SCHED_PREFILL) sum += share[i].n_tokens;
    return sum;
}

static void test_a_step_with_decodes_has_fewer_prompt_tokens(void **state) {
    struct sched_turn d, p[8];
    setup(16, 2048, 100);
    start(&p[0], 100000);
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 2048); // alone
    start(&d, 1);
    sched_computed(&d, 1);
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 384);
    start(&p[1], 100000);
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 384);
    start(&p[2], 100000); // a queue of prompts: larger steps empty it
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 768);
    for (int i = 3; i < 8; i++) start(&p[i], 100000);
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 2048);
    sched_leave(&s, &d);
    for (int i = 1; i < 8; i++) sched_leave(&s, &p[i]);
    assert_int_equal(prompt_tokens(sched_plan(&s, share)), 2048);
    sched_release(&s);
}

static void test_prompts_share_the_budget(void **state) {
    struct sched_turn a, b, c;
    setup(8, 60, 100);
    start(&a, 1000);
    start(&b, 10); // needs less than its share: the others get the rest
    start(&c, 1000);
    int32_t n = sched_plan(&s, share);
    assert_int_equal(tokens_of(&b, n), 10);
    assert_true(tokens_of(&a, n) >= 20 && tokens_of(&c, n) >= 20);
    assert_int_equal(tokens_of(&a, n) + tokens_of(&c, n), 50);
    sched_release(&s);
}

static void test_many_prompts_take_turns(void **state) {
    enum { N = 20 };
    struct sched_turn t[N];
    int64_t got[N] = {0};
    setup(N, 64, 100); // room for 4 of 20 prompts in a step
    for (int i = 0; i < N; i++) start(&t[i], 100000);
    for (int step = 0; step < 5 * 7; step++) {
        int32_t n = sched_plan(&s, share), sum = 0;
        for (int32_t i = 0; i < n; i++) {
            got[(size_t)(share[i].turn - t)] += share[i].n_tokens;
            sum += share[i].n_tokens;
            sched_computed(share[i].turn, share[i].n_tokens);
        }
        assert_int_equal(sum, 64);
    }
    for (int i = 1; i < N; i++) assert_int_equal(got[i], got[0]);
    sched_release(&s);
}

static void test_two_prompts_get_equal_parts_whatever_is_left_over(void **state) {
    struct sched_turn a, b;
    setup(4, 33, 100); // odd: one token is left over in each step
    start(&a, 100000);
    start(&b, 100000);
    int64_t got_a = 0, got_b = 0;
    for (int step = 0; step < 100; step++) {
        int32_t n = sched_plan(&s, share);
        got_a += tokens_of(&a, n);
        got_b += tokens_of(&b, n);
    }
    assert_int_equal(got_a, got_b);
    sched_release(&s);
}

static void test_owners_share_the_prompts_of_a_step(void **state) {
    enum { N = 10, STEPS = 50 };
    struct sched_turn a[N], b;
    int64_t got_b = 0;
    setup(N + 1, 256, 100);
    for (int i = 0; i < N; i++) start_as(&a[i], 1000000, 1, ENGINE_INTERACTIVE);
    start_as(&b, 1000000, 2, ENGINE_INTERACTIVE);
    for (int step = 0; step < STEPS; step++) {
        int32_t n = sched_plan(&s, share);
        assert_int_equal(prompt_tokens(n), 256);
        got_b += tokens_of(&b, n);
    }
    assert_int_equal(got_b, STEPS * 256 / 2);
    sched_release(&s);
}

// --- turns that are paused for others ------------------------------------------------------------

static void test_a_newcomer_gets_a_place_of_the_greedy_owner(void **state) {
    struct sched_turn a[6], b[4];
    setup(4, 64, 100);
    for (int i = 0; i < 6; i++) enqueue(&a[i], 1);
    for (int i = 0; i < 4; i++) assert_ptr_equal(sched_admit(&s), &a[i]);
    assert_null(sched_victim(&s)); // its own turns wait
    enqueue_as(&b[0], 1, 2, ENGINE_INTERACTIVE);
    assert_null(sched_admit(&s));
    struct sched_turn *victim = sched_victim(&s);
    assert_ptr_equal(victim, &a[3]); // the one that began last
    sched_pause(&s, victim);
    assert_ptr_equal(sched_admit(&s), &b[0]);
    assert_null(sched_victim(&s));
    assert_int_equal(s.n_paused[ENGINE_INTERACTIVE], 1);
    sched_leave(&s, &b[0]);
    assert_ptr_equal(sched_admit(&s), &a[3]); // a paused turn goes before those that never ran
    assert_int_equal(s.n_paused[ENGINE_INTERACTIVE], 0);
    a[3].n_todo = 9;
    enqueue_as(&b[0], 1, 2, ENGINE_INTERACTIVE);
    assert_ptr_equal(sched_victim(&s), &a[2]); // a[3] has not run since its pause
    sched_computed(&a[3], 1);
    assert_ptr_equal(sched_victim(&s), &a[3]);
    sched_leave(&s, &b[0]);
    // Each owner has half of the places, so no more turns are paused.
    for (int i = 0; i < 4; i++) enqueue_as(&b[i], 1, 3, ENGINE_INTERACTIVE);
    for (int i = 0; i < 2; i++) {
        sched_pause(&s, sched_victim(&s));
        assert_ptr_equal(sched_admit(&s), &b[i]);
    }
    assert_null(sched_victim(&s));
    assert_null(sched_admit(&s));
    sched_leave(&s, &a[3]); // while it is paused
    assert_int_equal(s.n_paused[ENGINE_INTERACTIVE], 1);
    assert_int_equal(s.n_running, 4);
    sched_release(&s);
}

static void test_places_that_blocks_bound(void **state) {
    struct sched_turn a[3], b;
    setup(8, 64, 10);
    for (int i = 0; i < 3; i++) {
        enqueue(&a[i], 3);
        assert_ptr_equal(sched_admit(&s), &a[i]);
    }
    enqueue_as(&b, 6, 2, ENGINE_INTERACTIVE); // fits beside one of them
    for (int paused = 0; !sched_admit(&s); paused++) {
        assert_true(paused < 2);
        sched_pause(&s, sched_victim(&s));
    }
    assert_int_equal(b.state, SCHED_PREFILL);
    assert_int_equal(s.n_reserved, 9);
    sched_release(&s);
}

static void test_who_is_not_paused(void **state) {
    struct sched_turn a[3], b;
    setup(3, 64, 100);
    for (int i = 0; i < 3; i++) start(&a[i], 5);
    a[2].never_paused = true;
    a[1].n_again = 4; // what it had before its last pause
    a[0].state = SCHED_WAIT;
    enqueue_as(&b, 1, 2, ENGINE_INTERACTIVE);
    assert_ptr_equal(sched_victim(&s), &a[0]); // only if there is no other
    sched_computed(&a[1], 4);
    assert_int_equal(a[1].fair.owner->used, 0); // these tokens were charged already
    assert_ptr_equal(sched_victim(&s), &a[1]);
    sched_release(&s);
}

static void test_idle_turns_are_preempted(void **state) {
    struct sched_turn idle[4], a[2];
    setup(2, 64, 100);
    for (int i = 0; i < 3; i++) enqueue_as(&idle[i], 1, 1, ENGINE_IDLE);
    enqueue(&a[0], 1); // of the same owner
    assert_ptr_equal(sched_admit(&s), &a[0]);
    // An idle turn is admitted while no interactive turn waits
    assert_ptr_equal(sched_admit(&s), &idle[0]);
    enqueue(&a[1], 1);
    assert_null(sched_admit(&s));
    assert_ptr_equal(sched_victim(&s), &idle[0]);
    sched_pause(&s, &idle[0]);
    assert_ptr_equal(sched_admit(&s), &a[1]);
    assert_null(sched_victim(&s)); // interactive turns are never paused for idle ones
    enqueue_as(&idle[3], 1, 9, ENGINE_IDLE);
    assert_null(sched_victim(&s));
    sched_leave(&s, &a[0]);
    assert_ptr_equal(sched_admit(&s), &idle[3]); // idle places are shared too: 9 was away
    sched_release(&s);
}

static void test_idle_turns_get_a_small_part_of_a_step(void **state) {
    enum { N = 6, STEPS = 800 };
    struct sched_turn d, idle[N];
    int64_t got[N] = {0}, n_wide = 0;
    setup(16, 256, 100);
    for (int i = 0; i < N - 1; i++) start_decoding(&idle[i], 1, ENGINE_IDLE);
    start_as(&idle[N - 1], 100000, 1, ENGINE_IDLE);
    int32_t n = sched_plan(&s, share); // alone
    assert_int_equal(n, N);
    assert_int_equal(tokens_of(&idle[N - 1], n), 64);
    start_decoding(&d, 2, ENGINE_INTERACTIVE);
    for (int step = 0; step < STEPS; step++) {
        n = sched_plan(&s, share);
        assert_ptr_equal(share[0].turn, &d);
        n_wide += n > 1 && prompt_tokens(n) > 0;
        for (int32_t i = 1; i < n; i++) got[share[i].turn - idle] += share[i].n_tokens;
    }
    int64_t sum = 0;
    for (int i = 0; i < N; i++) {
        assert_true(got[i] > 0); // each has its turn
        sum += got[i];
    }
    assert_in_range(sum, STEPS - 16, STEPS);
    assert_true(n_wide <= STEPS / 16); // most steps are of drawn tokens alone
    struct sched_turn p; // a prompt that fills the step: no row is left for another prompt
    start_as(&p, 100000, 2, ENGINE_INTERACTIVE);
    for (int step = 0; step < STEPS; step++) {
        int32_t width = 0;
        n = sched_plan(&s, share);
        for (int32_t i = 0; i < n; i++) width += share[i].n_tokens;
        assert_in_range(width, 256, 16 + 256);
    }
    sched_leave(&s, &p);
    d.state = SCHED_WAIT; // its cache comes back: still one token
    assert_true(sched_plan(&s, share) <= 1);
    sched_release(&s);
}

// Drafts have rows in steps without prompts, at most a chunk's in all, and none beside another priority's turns.
static void test_drafts(void **state) {
    struct sched_turn a, b, c, idle;
    setup(8, 20, 100);
    start_decoding(&a, 1, ENGINE_INTERACTIVE);
    start_decoding(&b, 2, ENGINE_INTERACTIVE);
    a.n_drafts = 12;
    b.n_drafts = 12;
    int32_t n = sched_plan(&s, share);
    assert_int_equal(n, 2);
    assert_int_equal(tokens_of(&a, n), 13);
    assert_int_equal(tokens_of(&b, n), 9);
    int64_t used = a.fair.owner->used;
    sched_computed(&a, 1);
    int64_t drawn = a.fair.owner->used - used;
    sched_checked(&a, 12);
    assert_int_equal(a.fair.owner->used - used, drawn + 12);
    start(&c, 100);
    n = sched_plan(&s, share);
    assert_int_equal(tokens_of(&a, n), 1);
    sched_leave(&s, &c);
    start_decoding(&idle, 3, ENGINE_IDLE);
    idle.n_drafts = 4;
    for (int i = 0; i < 20; i++) {
        n = sched_plan(&s, share);
        assert_int_equal(tokens_of(&a, n), 13);
        if (n == 3) assert_int_equal(tokens_of(&idle, n), 1);
    }
    sched_release(&s);
}

// A turn with n branches takes n places and has n rows in a step. Beside interactive turns it runs
// only in steps for which it has saved up n rows.
static void test_turns_with_branches(void **state) {
    struct sched_turn wide = {.reserve = 1, .places = 3, .n_rows = 3}, a, b;
    setup(4, 256, 100);
    sched_enqueue(&s, &wide, 1);
    assert_ptr_equal(sched_admit(&s), &wide);
    wide.n_todo = 1;
    start(&a, 1);
    enqueue(&b, 1);
    assert_null(sched_admit(&s)); // four places are taken
    sched_computed(&wide, 1);
    sched_computed(&a, 1);
    assert_int_equal(sched_plan(&s, share), 2);
    assert_int_equal(tokens_of(&wide, 2), 3);
    sched_leave(&s, &wide);
    assert_ptr_equal(sched_admit(&s), &b);
    sched_leave(&s, &a);
    sched_leave(&s, &b);
    assert_int_equal(s.n_places, 0);
    wide = (struct sched_turn){.reserve = 1, .places = 3, .n_rows = 40, .priority = ENGINE_IDLE};
    sched_enqueue(&s, &wide, 1);
    assert_ptr_equal(sched_admit(&s), &wide);
    wide.state = SCHED_DECODE;
    start_decoding(&a, 2, ENGINE_INTERACTIVE);
    int rows = 0;
    for (int step = 0; step < 400; step++) rows += tokens_of(&wide, sched_plan(&s, share));
    assert_in_range(rows, 360, 400); // an idle turn's part is one row a step here
    sched_release(&s);
}

// Random turns come and go. Each step serves every decode, serves prompts to the budget, and the
// queue always moves.
static void test_everything_ends(void **state) {
    enum { N = 400, BLOCKS = 50, RUNNING = 7, BUDGET = 40 };
    static struct sched_turn t[N];
    static int decode_left[N];
    int finished = 0, submitted = 0, steps = 0, pauses = 0;
    setup(RUNNING, BUDGET, BLOCKS);
    while (finished < N) {
        assert_true(++steps < 200 * N);
        while (submitted < N && below(3) == 0) {
            decode_left[submitted] = 1 + (int)below(20);
            enqueue_as(&t[submitted++], 1 + (int32_t)below(BLOCKS), below(5), ENGINE_INTERACTIVE);
        }
        struct sched_turn *next;
        do
            while ((next = sched_admit(&s))) next->n_todo = 1 + below(200);
        while ((next = sched_victim(&s)) && (sched_pause(&s, next), ++pauses));
        assert_true(s.n_reserved <= BLOCKS && s.n_running <= RUNNING);
        assert_true(s.n_running > 0 || sched_n_waiting(&s) == 0); // no deadlock
        int32_t n = sched_plan(&s, share), prefill = 0, decode = 0, decoding = 0;
        int64_t n_waiting = 0;
        for (int32_t i = 0; i < s.n_running; i++) {
            decoding += s.running[i]->state == SCHED_DECODE;
            if (s.running[i]->state == SCHED_PREFILL) n_waiting += s.running[i]->n_todo;
        }
        for (int32_t i = 0; i < n; i++) {
            struct sched_turn *turn = share[i].turn;
            if (turn->state == SCHED_DECODE) {
                decode++;
                if (--decode_left[turn - t] > 0) continue;
                sched_leave(&s, turn);
                finished++;
            } else {
                prefill += share[i].n_tokens;
                assert_true(share[i].n_tokens >= 1 && share[i].n_tokens <= turn->n_todo);
                sched_computed(turn, share[i].n_tokens);
            }
        }
        assert_int_equal(decode, decoding);
        assert_int_equal(prefill, n_waiting < BUDGET ? n_waiting : BUDGET);
        if (below(10) == 0 && submitted > 0) { // cancel anything, wherever it is
            struct sched_turn *turn = &t[below((uint32_t)submitted)];
            if (turn->state != SCHED_OUT) {
                sched_leave(&s, turn);
                finished++;
            }
        }
    }
    assert_true(pauses > 0);
    assert_int_equal(s.n_reserved, 0);
    assert_int_equal(sched_n_waiting(&s) + s.n_paused[ENGINE_INTERACTIVE], 0);
    sched_release(&s);
}

// It computes its prompt but the last token, and then sits out; others do not notice.
static void test_a_turn_that_needs_a_mask_draws_nothing(void **state) {
    struct sched_turn prompt, decoding, idle, other;
    setup(8, 64, 10);
    start_as(&prompt, 3, 1, ENGINE_INTERACTIVE);
    start_decoding(&decoding, 2, ENGINE_INTERACTIVE);
    start_decoding(&other, 3, ENGINE_INTERACTIVE);
    start_decoding(&idle, 4, ENGINE_IDLE);
    prompt.needs_mask = decoding.needs_mask = idle.needs_mask = true;
    int32_t n = sched_plan(&s, share);
    assert_int_equal(n, 2);
    assert_int_equal(tokens_of(&prompt, n), 2);
    assert_int_equal(tokens_of(&other, n), 1);
    sched_computed(&prompt, 2);
    assert_int_equal(prompt.state, SCHED_PREFILL);
    assert_int_equal(sched_plan(&s, share), 1);
    other.needs_mask = true;
    assert_int_equal(sched_plan(&s, share), 0);
    prompt.needs_mask = decoding.needs_mask = idle.needs_mask = other.needs_mask = false;
    n = sched_plan(&s, share);
    assert_int_equal(n, 4);
    assert_int_equal(tokens_of(&prompt, n), 1);
    sched_release(&s);
}

// Each decoding turn is in one group, and the groups differ by one turn at most. A step of a group has one row of
// each of its turns, those excepted that wait for a mask; a prompt belongs to none.
static void test_groups(void **state) {
    struct sched_turn t[8];
    setup(8, 64, 10);
    for (int i = 0; i < 7; i++) start_decoding(&t[i], 1, ENGINE_INTERACTIVE);
    start(&t[7], 30);
    sched_group(&s, 3);
    int32_t n = 0, seen = 0;
    for (int32_t g = 0; g < 3; g++) {
        int32_t of = sched_plan_group(&s, g, share);
        assert_in_range(of, 2, 3);
        for (int32_t i = 0; i < of; i++) {
            assert_int_equal(share[i].n_tokens, 1);
            seen |= 1 << (share[i].turn - t);
        }
        n += of;
    }
    assert_int_equal(n, 7);
    assert_int_equal(seen, 0x7f);
    t[1].needs_mask = true;
    sched_leave(&s, &t[0]);
    sched_group(&s, 1);
    assert_int_equal(sched_plan_group(&s, 0, share), 5);
    for (int i = 1; i < 8; i++) sched_leave(&s, &t[i]);
    sched_release(&s);
}

int main(void) {
    seed = 3;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_that_needs_a_mask_draws_nothing),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_turns_with_branches),
        cmocka_unit_test(test_admission_is_fifo_and_within_the_blocks),
        cmocka_unit_test(test_admission_stops_at_max_running),
        cmocka_unit_test(test_decodes_go_first_and_do_not_use_the_budget),
        cmocka_unit_test(test_a_step_with_decodes_has_fewer_prompt_tokens),
        cmocka_unit_test(test_prompts_share_the_budget),
        cmocka_unit_test(test_many_prompts_take_turns),
        cmocka_unit_test(test_two_prompts_get_equal_parts_whatever_is_left_over),
        cmocka_unit_test(test_owners_share_the_prompts_of_a_step),
        cmocka_unit_test(test_a_newcomer_gets_a_place_of_the_greedy_owner),
        cmocka_unit_test(test_places_that_blocks_bound),
        cmocka_unit_test(test_who_is_not_paused),
        cmocka_unit_test(test_idle_turns_are_preempted),
        cmocka_unit_test(test_idle_turns_get_a_small_part_of_a_step),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_everything_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

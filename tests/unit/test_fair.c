// Which owner gets the next place and which one gives one up, on tables of numbers.
#include "engine/run/fair.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include <string.h>

enum { TURNS = 600 };
static struct fair f;
static struct fair_turn turns[TURNS];

static int set_up(void **state) {
    memset(turns, 0, sizeof turns);
    return fair_init(&f, TURNS, NULL);
}
static int tear_down(void **state) {
    fair_release(&f);
    return 0;
}

static struct fair_turn *enqueue(int i, uint64_t owner) {
    fair_enqueue(&f, &turns[i], owner);
    return &turns[i];
}
// Admits the next turn and returns its owner.
static uint64_t admit(void) {
    struct fair_turn *t = fair_next(&f);
    assert_non_null(t);
    fair_take_place(&f, t);
    return t->owner->owner;
}
static uint64_t giver_for(const struct fair_turn *t) {
    const struct fair_owner *o = fair_giver(&f, t->owner);
    return o ? o->owner : 0;
}
static void check(void) {
    int32_t held = 0, waiting = 0;
    for (int32_t i = 0; i < f.n; i++) held += f.owners[i].n_held, waiting += f.owners[i].n_waiting;
    assert_int_equal(held, f.n_held);
    assert_int_equal(waiting, f.n_waiting);
}

static void one_owner_is_first_in_first_out(void **state) {
    for (int i = 0; i < 5; i++) enqueue(i, 7);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(fair_next(&f), &turns[i]);
        admit();
    }
    assert_int_equal(giver_for(&turns[3]), 0); // no other owner has a place
    fair_give_place(&f, &turns[1]);
    assert_ptr_equal(fair_next(&f), &turns[1]); // a paused one comes first
    fair_leave(&f, &turns[1], false);
    assert_ptr_equal(fair_next(&f), &turns[3]);
    fair_leave(&f, &turns[0], true);
    check();
}

static void places_become_equal_and_stay_so(void **state) {
    enum { PLACES = 16 };
    for (int i = 0; i < 100; i++) enqueue(i, 1);
    for (int i = 0; i < PLACES; i++) assert_int_equal(admit(), 1);
    for (int i = 100; i < 200; i++) enqueue(i, 2);
    for (int moves = 0;; moves++) {
        struct fair_turn *next = fair_next(&f);
        const struct fair_owner *giver = fair_giver(&f, next->owner);
        if (!giver) {
            assert_int_equal(moves, PLACES / 2);
            break;
        }
        assert_int_equal(next->owner->owner, 2);
        for (int i = 0; i < 100; i++) // one of the turns of the owner that gives up a place
            if (turns[i].owner == giver && !turns[i].prev) {
                fair_give_place(&f, &turns[i]);
                break;
            }
        admit();
        check();
    }
    for (int32_t i = 0; i < f.n; i++) assert_int_equal(f.owners[i].n_held, PLACES / 2);
}

static struct fair_turn *enqueue_wide(int i, uint64_t owner, int32_t places) {
    turns[i].places = places;
    return enqueue(i, owner);
}
// Pauses a turn of the owner that gives places up to the next one. Returns how many that are; 0: none.
static int32_t pause_one(void) {
    const struct fair_owner *giver = fair_giver(&f, fair_next(&f)->owner);
    for (int i = 0; giver && i < TURNS; i++) {
        if (turns[i].owner != giver || turns[i].prev) continue;
        fair_give_place(&f, &turns[i]);
        return turns[i].places > 1 ? turns[i].places : 1;
    }
    return 0;
}
static int32_t width_of_next(void) {
    const struct fair_turn *t = fair_next(&f);
    return t->places > 1 ? t->places : 1;
}

// Four turns of four branches beside turns without: each owner has half of the places, not the first
// one sixteen rows of every step.
static void a_turn_with_branches_counts_its_places(void **state) {
    int32_t unused = 0, pauses = 0;
    for (int i = 0; i < 4; i++) enqueue_wide(i, 1, 4);
    for (int i = 0; i < 4; i++) admit();
    for (int i = 4; i < 40; i++) enqueue(i, 2);
    for (int32_t got; (got = pause_one()) > 0; pauses++)
        for (unused += got; unused >= width_of_next(); check()) {
            unused -= width_of_next();
            admit();
        }
    assert_int_equal(unused, 0);
    assert_int_equal(pauses, 2);
    for (int32_t i = 0; i < f.n; i++) assert_int_equal(f.owners[i].n_held, 8);
}

// A turn that needs all places gets them, and the others get them back: no owner starves.
static void a_turn_that_needs_all_places_takes_turns(void **state) {
    enum { PLACES = 8, STEPS = 40 * FAIR_QUANTUM };
    int64_t got[3] = {0};
    int32_t unused = PLACES, pauses = 0;
    for (int i = 0; i < 2; i++) enqueue_wide(i, 1, PLACES / 2);
    enqueue_wide(2, 2, PLACES);
    for (int step = 0; step < STEPS; step++) {
        for (;;) {
            int32_t more;
            if (f.n_waiting > 0 && unused >= width_of_next()) {
                unused -= width_of_next();
                admit();
            } else if (f.n_waiting > 0 && (more = pause_one()) > 0) {
                unused += more;
                pauses++;
            } else {
                break;
            }
        }
        check();
        for (int i = 0; i < 3; i++) {
            if (turns[i].prev) continue;
            turns[i].owner->used += turns[i].places;
            got[turns[i].owner->owner] += turns[i].places;
        }
    }
    assert_in_range(got[1], got[2] - 4 * FAIR_QUANTUM, got[2] + 4 * FAIR_QUANTUM);
    assert_true(got[1] + got[2] >= PLACES * STEPS / 2);
    assert_in_range(pauses, 2, 2 * PLACES * STEPS / FAIR_QUANTUM); // a quantum at least
}

// More owners than places: a newcomer gets one at once, then they take turns, and none starves.
static void owners_take_turns(void **state) {
    enum { OWNERS = 5, PLACES = 2, STEPS = 40 * FAIR_QUANTUM };
    int64_t got[OWNERS + 1] = {0};
    int pauses = 0, longest = 0, waited[OWNERS + 1] = {0};
    bool runs[OWNERS + 1] = {false};
    for (int owner = 1; owner <= OWNERS; owner++) {
        enqueue(owner, (uint64_t)owner);
        if (owner <= PLACES) runs[admit()] = true;
    }
    assert_true(giver_for(&turns[OWNERS]) != 0); // a newcomer does not wait
    for (int step = 0; step < STEPS; step++) {
        const struct fair_owner *giver;
        while ((giver = fair_giver(&f, fair_next(&f)->owner))) {
            runs[giver->owner] = false;
            fair_give_place(&f, &turns[giver->owner]);
            runs[admit()] = true;
            pauses++;
        }
        for (int owner = 1; owner <= OWNERS; owner++) {
            waited[owner] = runs[owner] ? 0 : waited[owner] + 1;
            if (waited[owner] > longest) longest = waited[owner];
            if (!runs[owner]) continue;
            turns[owner].owner->used += 1;
            got[owner]++;
        }
        check();
    }
    for (int owner = 1; owner <= OWNERS; owner++)
        assert_in_range(got[owner], PLACES * STEPS / OWNERS - 2 * FAIR_QUANTUM,
                        PLACES * STEPS / OWNERS + 2 * FAIR_QUANTUM);
    assert_in_range(pauses, 1, PLACES * STEPS / FAIR_QUANTUM + OWNERS); // at least a quantum
    assert_in_range(longest, 1, 2 * OWNERS * FAIR_QUANTUM);
}

static void what_was_used_alone_is_soon_forgiven(void **state) {
    for (int i = 0; i < 4; i++) enqueue(i, 1 + (uint64_t)i % 2);
    assert_int_equal(admit() + admit(), 3);
    const struct fair_owner *a = turns[0].owner, *b = turns[1].owner;
    turns[0].owner->used += 1000000; // b's turn was in a queue for a disk
    fair_next(&f);
    assert_true(a->used - b->used <= FAIR_DEBT + FAIR_QUANTUM);
}

// What an owner computes alone does not count against it.
static void a_newcomer_is_a_quantum_ahead(void **state) {
    enqueue(0, 1);
    admit();
    turns[0].owner->used += 1000000;
    enqueue(1, 2);
    assert_int_equal(turns[0].owner->used - turns[1].owner->used, FAIR_QUANTUM);
}

// An owner that ends its turns and returns has saved at most one quantum, and only if others ran
// meanwhile.
static void coming_again_gains_nothing(void **state) {
    enqueue(0, 1);
    admit();
    enqueue(1, 2);
    fair_take_place(&f, &turns[1]);
    int64_t began = turns[1].owner->used;
    turns[1].owner->used += 300;
    fair_leave(&f, &turns[1], true);
    enqueue(1, 2);
    assert_int_equal(turns[1].owner->used, began + 300);
    fair_leave(&f, &turns[1], false);
    turns[0].owner->used += 100000;
    enqueue(1, 2);
    assert_int_equal(turns[1].owner->used, turns[0].owner->used - FAIR_QUANTUM);
    fair_leave(&f, &turns[1], false);
    fair_leave(&f, &turns[0], true);
    int64_t clock = f.clock;
    enqueue(2, 3); // after all have left
    assert_int_equal(turns[2].owner->used, clock);
}

// The table has room for as many owners as turns, whichever owners were in it before.
static void owners_come_and_go(void **state) {
    for (int round = 0; round < 20000; round++) {
        int i = (int)below(TURNS);
        struct fair_turn *t = &turns[i];
        if (!t->owner)
            enqueue(i, below(100000));
        else if (!t->prev && below(3) == 0)
            fair_give_place(&f, t);
        else if (t->prev && t->owner->queue == t && below(2) == 0)
            fair_take_place(&f, t);
        else
            fair_leave(&f, t, !t->prev);
        if (t->owner && !t->prev) t->owner->used += below(1000);
        check();
    }
    assert_true(f.n <= TURNS);
}

int main(void) {
    seed = 5;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_owner_is_first_in_first_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places_become_equal_and_stay_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_turn_with_branches_counts_its_places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_turn_that_needs_all_places_takes_turns, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(owners_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_used_alone_is_soon_forgiven, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newcomer_is_a_quantum_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(coming_again_gains_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_come_and_go, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

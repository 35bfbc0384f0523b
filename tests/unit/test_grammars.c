// The table of compiled grammars: for whom they are kept, which are dropped for room, what two owners share.
#include "engine/grammar/grammars.c" // for most_bytes, and to look inside
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>

enum { BYTES = 256, TEXTS = 16, ALICE = 1, BOB, CAROL };

static struct grammars *all;
static const struct grammar_text *texts[TEXTS]; // about equal in memory
static int64_t size;                            // of one

// Each byte is a token.
static const char *byte_of(void *ctx, int32_t id, size_t *len) {
    static char bytes[BYTES];
    for (int i = 0; i < BYTES; i++) bytes[i] = (char)i;
    *len = 1;
    return bytes + id;
}

static struct grammar *get(uint64_t owner, int i) {
    struct grammar *g;
    struct err err = {0};
    if (grammars_get(all, owner, texts[i], &g, &err) < 0) fail_msg("%s", err.text);
    return g;
}

static void use(uint64_t owner, int i) {
    grammar_free(get(owner, i));
}

static bool has(uint64_t owner, int i) {
    struct keeper *o = keeper_of(all, owner); // grammars_has would be a use of it
    return o && find_of(o, texts[i]);
}

static int kept_of(uint64_t owner) {
    struct keeper *o = keeper_of(all, owner);
    return o ? (int)HASH_CNT(hh, o->by_hash) : 0;
}

// Every grammar counts its owners, and lists and hashes agree.
static void check(void) {
    for (struct keeper *o = all->keepers; o; o = o->hh.next) {
        struct kept *k;
        int n;
        DL_COUNT(o->kept, k, n);
        assert_int_equal(n, HASH_CNT(hh, o->by_hash));
        assert_true(n > 0);
        DL_FOREACH(o->kept, k) {
            int32_t n_keepers = 0;
            for (struct keeper *p = all->keepers; p; p = p->hh.next) {
                const struct kept *same = find_of(p, k->grammar->text);
                if (same) assert_ptr_equal(same->grammar, k->grammar);
                n_keepers += same != NULL;
            }
            assert_int_equal(k->grammar->n_keepers, n_keepers);
            assert_true(atomic_load(&k->grammar->n_holders) >= n_keepers);
        }
    }
}

static int setup(void **state) {
    struct err err = {0};
    assert_int_equal(grammars_new(&all, BYTES, byte_of, NULL, &err), 0);
    for (int i = 0; i < TEXTS; i++) {
        char regex[16];
        int n = snprintf(regex, sizeof regex, "x[0-9]{%d}", 10 + i);
        assert_int_equal(grammar_text_new(&texts[i], GRAMMAR_REGEX, regex, (size_t)n, &err), 0);
    }
    use(ALICE, TEXTS - 1); // the largest
    size = count(all);
    grammars_free(all);
    return grammars_new(&all, BYTES, byte_of, NULL, &err);
}

static int teardown(void **state) {
    check();
    grammars_free(all);
    for (int i = 0; i < TEXTS; i++) grammar_text_free(texts[i]);
    return 0;
}

static void a_text_counts(void **state) {
    static char choice[100000];
    const struct grammar_text *t;
    struct grammar *g;
    struct err err = {0};
    memset(choice, ' ', sizeof choice);
    memcpy(choice, "[\"a\"", 4);
    choice[sizeof choice - 1] = ']';
    assert_int_equal(grammar_text_new(&t, GRAMMAR_CHOICE, choice, sizeof choice, &err), 0);
    assert_int_equal(grammars_get(all, ALICE, t, &g, &err), 0);
    assert_true(count(all) > (int64_t)sizeof choice);
    grammar_free(g);
    grammar_text_free(t);
}

static void the_least_recently_used_one_is_dropped(void **state) {
    all->most_bytes = 4 * size;
    for (int i = 0; i < 4; i++) use(ALICE, i);
    assert_int_equal(kept_of(ALICE), 4);
    use(ALICE, 0);
    assert_true(grammars_has(all, ALICE, texts[1])); // a use too
    use(ALICE, 4);
    assert_false(has(ALICE, 2));
    for (int i = 0; i < 5; i++) assert_true(i == 2 || has(ALICE, i));
}

static void one_that_a_turn_uses_stays(void **state) {
    struct grammar *used = get(ALICE, 0);
    all->most_bytes = 2 * size;
    for (int i = 1; i < 6; i++) use(ALICE, i);
    assert_true(has(ALICE, 0));
    assert_false(has(ALICE, 4)); // there is room for one beside it
    assert_true(has(ALICE, 5));
    grammar_free(used);
}

static void one_owner_does_not_push_out_the_grammars_of_others(void **state) {
    all->most_bytes = 6 * size; // a share is two
    use(BOB, 0);
    use(CAROL, 1);
    use(CAROL, 2);
    for (int i = 3; i < TEXTS; i++) {
        use(ALICE, i);
        check();
        assert_true(has(BOB, 0) && has(CAROL, 1) && has(CAROL, 2));
        assert_true(has(ALICE, i)); // the new one
    }
    assert_int_equal(kept_of(ALICE), 3);
    use(BOB, 3); // Alice has most, so the room is hers
    assert_true(has(BOB, 0) && has(BOB, 3));
    assert_int_equal(kept_of(ALICE), 2);
    use(BOB, 4); // now each has its share, and Bob has more
    assert_true(!has(BOB, 0) && has(BOB, 3) && has(BOB, 4));
    assert_int_equal(kept_of(ALICE), 2);
    assert_int_equal(kept_of(CAROL), 2);
}

static void one_owner_whose_turns_use_all_does_not_push_out_either(void **state) {
    struct grammar *used[8];
    all->most_bytes = 4 * size;
    use(BOB, 0);
    use(BOB, 1);
    for (int i = 0; i < 8; i++) used[i] = get(ALICE, 2 + i);
    assert_int_equal(kept_of(ALICE), 8);
    assert_int_equal(kept_of(BOB), 2);
    for (int i = 0; i < 8; i++) grammar_free(used[i]);
    use(BOB, 0); // found: only a new grammar makes room
    assert_int_equal(kept_of(ALICE), 8);
    use(CAROL, 10);
    assert_int_equal(kept_of(CAROL), 1);
    assert_true(kept_of(ALICE) <= 1);
    assert_int_equal(kept_of(BOB), 2);
}

static void equal_grammars_are_shared_and_neither_owner_learns_it(void **state) {
    struct grammar *mine = get(ALICE, 0);
    assert_false(grammars_has(all, BOB, texts[0])); // so Bob's request compiles it too
    int64_t alone = count(all), counted = keeper_of(all, ALICE)->bytes;
    struct grammar *yours = get(BOB, 0);
    assert_ptr_equal(mine, yours);
    assert_true(grammars_has(all, BOB, texts[0]));
    assert_true(llabs(count(all) - alone) <= 1); // one grammar's memory
    assert_int_equal(keeper_of(all, ALICE)->bytes, counted);
    assert_int_equal(keeper_of(all, BOB)->bytes, counted);
    grammar_free(mine);
    grammar_free(yours);
}

static void one_that_is_dropped_for_an_owner_stays_for_another(void **state) {
    struct grammar *mine = get(BOB, 0);
    grammar_free(mine);
    all->most_bytes = 4 * size;
    for (int i = 0; i < 6; i++) use(ALICE, i);
    assert_false(has(ALICE, 0));
    assert_true(has(BOB, 0));
    check();
    use(ALICE, 0); // compiled again, and shared again
    assert_ptr_equal(keeper_of(all, ALICE)->kept->prev->grammar, mine);
}

static void a_refused_text_is_refused_for_everybody(void **state) {
    const struct grammar_text *t;
    struct grammar *g;
    for (uint64_t owner = ALICE; owner <= BOB; owner++) {
        struct err err = {0};
        assert_int_equal(grammar_text_new(&t, GRAMMAR_REGEX, "(a", 2, &err), 0);
        assert_int_equal(grammars_get(all, owner, t, &g, &err), E_INVAL);
        assert_non_null(strstr(err.text, "')' is missing"));
        grammar_text_free(t);
        assert_int_equal(kept_of(owner), 0);
    }
    assert_null(all->keepers);
}

int main(void) {
#define TABLE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TABLE_TEST(a_text_counts),
        TABLE_TEST(the_least_recently_used_one_is_dropped),
        TABLE_TEST(one_that_a_turn_uses_stays),
        TABLE_TEST(one_owner_does_not_push_out_the_grammars_of_others),
        TABLE_TEST(one_owner_whose_turns_use_all_does_not_push_out_either),
        TABLE_TEST(equal_grammars_are_shared_and_neither_owner_learns_it),
        TABLE_TEST(one_that_is_dropped_for_an_owner_stays_for_another),
        TABLE_TEST(a_refused_text_is_refused_for_everybody),
    };
    return cmocka_run_group_tests_name("grammars", tests, NULL, NULL);
}

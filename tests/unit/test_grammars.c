// The table of compiled grammars: for whom they are kept, which are dropped for room, what two owners share, and how
// long it lives.
#include "engine/grammar/grammars.c" // for most_bytes, and to look inside
#include "engine/grammar/matcher.h"
#include "tests/cmocka.h"
#include <stdio.h>

enum { BYTES = 256, TEXTS = 16, ALICE = 1, BOB, CAROL };

static char bytes[BYTES];
static struct grammars *all;
static const struct grammar_text *texts[TEXTS]; // about equal in memory
static int64_t size;                            // of one

// Each byte is a token, except the one that ctx points to.
static const char *byte_of(void *ctx, int32_t id, size_t *len) {
    *len = 1;
    return ctx && *(int *)ctx == id ? NULL : bytes + id;
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

static bool finds(const struct grammars *in, uint64_t owner, int i) {
    struct grammar *g = grammars_find(in, owner, texts[i]);
    grammar_free(g);
    return g;
}

static bool has(uint64_t owner, int i) {
    struct keeper *o = keeper_of(all->table, owner); // grammars_find would be a use of it
    return o && find_of(o, texts[i]);
}

static int kept_of(uint64_t owner) {
    struct keeper *o = keeper_of(all->table, owner);
    return o ? (int)HASH_CNT(hh, o->by_hash) : 0;
}

// Every grammar counts its owners, and lists and hashes agree.
static void check(void) {
    for (struct keeper *o = all->table->keepers; o; o = o->hh.next) {
        struct kept *k;
        int n;
        DL_COUNT(o->kept, k, n);
        assert_int_equal(n, HASH_CNT(hh, o->by_hash));
        assert_true(n > 0);
        DL_FOREACH(o->kept, k) {
            int32_t n_keepers = 0;
            for (struct keeper *p = all->table->keepers; p; p = p->hh.next) {
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
    for (int i = 0; i < BYTES; i++) bytes[i] = (char)i;
    assert_int_equal(grammars_new(&all, BYTES, byte_of, NULL, &err), 0);
    for (int i = 0; i < TEXTS; i++) {
        char regex[16];
        int n = snprintf(regex, sizeof regex, "x[0-9]{%d}", 10 + i);
        assert_int_equal(grammar_text_new(&texts[i], GRAMMAR_REGEX, regex, (size_t)n, &err), 0);
    }
    use(ALICE, TEXTS - 1); // the largest
    size = count(all->table);
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
    assert_true(count(all->table) > (int64_t)sizeof choice);
    grammar_free(g);
    grammar_text_free(t);
}

static void the_least_recently_used_one_is_dropped(void **state) {
    all->table->most_bytes = 4 * size;
    for (int i = 0; i < 4; i++) use(ALICE, i);
    assert_int_equal(kept_of(ALICE), 4);
    use(ALICE, 0);
    assert_true(finds(all, ALICE, 1)); // a use too
    use(ALICE, 4);
    assert_false(has(ALICE, 2));
    for (int i = 0; i < 5; i++) assert_true(i == 2 || has(ALICE, i));
}

static void one_that_a_turn_uses_stays(void **state) {
    struct grammar *used = get(ALICE, 0);
    all->table->most_bytes = 2 * size;
    for (int i = 1; i < 6; i++) use(ALICE, i);
    assert_true(has(ALICE, 0));
    assert_false(has(ALICE, 4)); // there is room for one beside it
    assert_true(has(ALICE, 5));
    grammar_free(used);
}

static void one_owner_does_not_push_out_the_grammars_of_others(void **state) {
    all->table->most_bytes = 6 * size; // a share is two
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
    all->table->most_bytes = 4 * size;
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
    assert_false(finds(all, BOB, 0)); // so Bob's request compiles it too
    int64_t alone = count(all->table), counted = keeper_of(all->table, ALICE)->bytes;
    struct grammar *yours = get(BOB, 0);
    assert_ptr_equal(mine, yours);
    assert_true(finds(all, BOB, 0));
    assert_true(llabs(count(all->table) - alone) <= 1); // one grammar's memory
    assert_int_equal(keeper_of(all->table, ALICE)->bytes, counted);
    assert_int_equal(keeper_of(all->table, BOB)->bytes, counted);
    grammar_free(mine);
    grammar_free(yours);
}

static void one_that_is_dropped_for_an_owner_stays_for_another(void **state) {
    struct grammar *mine = get(BOB, 0);
    grammar_free(mine);
    all->table->most_bytes = 4 * size;
    for (int i = 0; i < 6; i++) use(ALICE, i);
    assert_false(has(ALICE, 0));
    assert_true(has(BOB, 0));
    check();
    use(ALICE, 0); // compiled again, and shared again
    assert_ptr_equal(keeper_of(all->table, ALICE)->kept->prev->grammar, mine);
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
    assert_null(all->table->keepers);
}

// --- several engines -----------------------------------------------------------------------------

static struct grammars *open_for(int *missing) {
    struct grammars *g;
    struct err err = {0};
    assert_int_equal(grammars_new(&g, BYTES, byte_of, missing, &err), 0);
    return g;
}

static void engines_with_equal_vocabularies_share_a_table(void **state) {
    int none = -1, one = 'z';
    struct grammars *second = open_for(&none), *other = open_for(&one);
    struct grammar *mine = get(ALICE, 0), *yours = grammars_find(second, ALICE, texts[0]);
    assert_ptr_equal(mine, yours);
    assert_true(grammars_fit(second, mine, texts[0]));
    assert_false(grammars_fit(second, mine, texts[1]));
    assert_int_equal(grammars_vocabulary(all), grammars_vocabulary(second));
    assert_int_not_equal(grammars_vocabulary(all), grammars_vocabulary(other));
    assert_false(finds(other, ALICE, 0));
    assert_false(grammars_fit(other, mine, texts[0]));
    grammar_free(mine);
    grammar_free(yours);
    grammars_free(second);
    grammars_free(other);
    assert_true(has(ALICE, 0));
}

// The engine whose tokens made the trie is unloaded, with everything that it borrowed.
static void a_table_lives_as_long_as_its_last_engine(void **state) {
    static const struct grammar_text *t;
    struct grammar *g, *held;
    struct err err = {0};
    int *missing = malloc(sizeof *missing);
    *missing = -1;
    struct grammars *first = open_for(missing), *second;
    use(ALICE, 0);
    grammars_free(all); // one engine is left
    assert_int_equal(grammars_get(first, ALICE, texts[1], &held, &err), 0);
    second = open_for(NULL);
    grammars_free(first);
    free(missing);
    assert_true(finds(second, ALICE, 0) && finds(second, ALICE, 1));
    assert_int_equal(grammar_text_new(&t, GRAMMAR_REGEX, "(ab|a)*c", 8, &err), 0);
    assert_int_equal(grammars_get(second, BOB, t, &g, &err), 0);
    grammar_free(g);
    grammars_free(second); // no engine is left
    assert_null(tables.list);
    all = open_for(NULL); // as if a lost instance were opened again
    assert_true(grammars_fit(all, held, texts[1]));
    struct grammar_matcher *m;
    assert_int_equal(grammar_matcher_new(&m, held, &err), 0);
    grammar_matcher_accept(m, 'x');
    assert_true(grammar_matcher_lives(m));
    grammar_matcher_free(m);
    grammar_free(held);
    grammar_text_free(t);
}

// Engines come and go while workers compile; run it under TSan.
static void *compile_in_an_engine_of_its_own(void *arg) {
    uint64_t owner = (uint64_t)(size_t)arg;
    for (int round = 0; round < 10; round++) {
        struct grammars *mine = open_for(NULL);
        for (int i = 0; i < 4; i++) {
            struct grammar *g;
            struct err err = {0};
            if (grammars_get(mine, owner, texts[(i + round) % TEXTS], &g, &err) < 0) abort();
            grammar_free(g);
            (void)finds(mine, owner, i);
        }
        grammars_free(mine);
    }
    return NULL;
}

static void engines_are_opened_and_closed_on_several_threads(void **state) {
    pthread_t threads[3];
    grammars_free(all); // so that the last one of the threads frees the table
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, compile_in_an_engine_of_its_own, (void *)(ALICE + i)),
            0);
    for (size_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_null(tables.list);
    all = open_for(NULL);
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
        TABLE_TEST(engines_with_equal_vocabularies_share_a_table),
        TABLE_TEST(a_table_lives_as_long_as_its_last_engine),
        TABLE_TEST(engines_are_opened_and_closed_on_several_threads),
    };
    return cmocka_run_group_tests_name("grammars", tests, NULL, NULL);
}

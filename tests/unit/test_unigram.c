// unigram and trie: random pieces over random words against all ways to cut them.
#include "engine/text/unigram.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_PIECES 40
#define MAX_WORD 14

struct model {
    struct vocab vocab;
    struct unigram unigram;
    double scores[N_PIECES];
};

static void make(struct model *m) {
    struct err err;
    double *scores = malloc(N_PIECES * sizeof *scores);
    int32_t n = 0;
    assert_int_equal(vocab_init(&m->vocab, N_PIECES, N_PIECES, &err), 0);
    assert_int_equal(vocab_add(&m->vocab, "<unk>", n++, TOKEN_MODEL, &err), 0);
    while (n < N_PIECES) {
        char piece[8];
        int len = 1 + rand() % 4;
        for (int i = 0; i < len; i++) piece[i] = (char)('a' + rand() % 3);
        piece[len] = '\0';
        if (vocab_find(&m->vocab, piece, (size_t)len) < 0)
            assert_int_equal(vocab_add(&m->vocab, piece, n++, TOKEN_MODEL, &err), 0);
    }
    m->scores[0] = 0;
    for (int i = 1; i < N_PIECES; i++) m->scores[i] = -1 - (rand() % 1000000) / 1e5;
    memcpy(scores, m->scores, sizeof m->scores);
    assert_int_equal(unigram_init(&m->unigram, &m->vocab, scores, 0, false, &err), 0);
}

// The best score of word[at, len), by trying every first piece.
static double best(const struct model *m, const char *word, size_t at, size_t len) {
    if (at == len) return 0;
    double most = -INFINITY, least = INFINITY;
    bool single = false;
    for (int i = 1; i < N_PIECES; i++) least = fmin(least, m->scores[i]);
    for (size_t end = at + 1; end <= len && end <= at + 4; end++) {
        int32_t id = vocab_find(&m->vocab, word + at, end - at);
        if (id < 0) continue;
        single = single || end == at + 1;
        most = fmax(most, m->scores[id] + best(m, word, end, len));
    }
    return single ? most : fmax(most, least - 10 + best(m, word, at + 1, len));
}

// What the ids are worth; *chars: how many letters they stand for, where unknown ones stand for one
// each.
static double worth(const struct model *m, const struct token_list *ids) {
    double sum = 0, least = INFINITY;
    for (int i = 1; i < N_PIECES; i++) least = fmin(least, m->scores[i]);
    for (size_t i = 0; i < ids->len; i++) sum += ids->ids[i] ? m->scores[ids->ids[i]] : least - 10;
    return sum;
}

static void test_against_all_ways(void **state) {
    srand(21);
    for (int round = 0; round < 60; round++) {
        struct model m = {0};
        struct unigram_scratch scratch = {0};
        make(&m);
        for (int i = 0; i < 60; i++) {
            char word[MAX_WORD];
            struct token_list ids;
            struct piece_word w = {word, 1 + (size_t)rand() % MAX_WORD, 0, NULL, 0};
            // An unknown letter, 'd', at most once in a row: runs of them are one token.
            for (size_t k = 0; k < w.len; k++)
                word[k] = rand() % 12 || (k && word[k - 1] == 'd') ? (char)('a' + rand() % 3) : 'd';
            token_list_init(&ids);
            assert_int_equal(unigram_encode(&m.unigram, &m.vocab, &w, &scratch, &ids), 0);
            if (fabs(worth(&m, &ids) - best(&m, word, 0, w.len)) > 1e-9) {
                // Unknown letters side by side ('d' and a letter without piece) are counted once
                // here.
                bool fused = false;
                for (int c = 0; c < 3; c++)
                    fused = fused || vocab_find(&m.vocab, (char[]){(char)('a' + c)}, 1) < 0;
                if (!fused)
                    fail_msg("%.*s: %g, not %g", (int)w.len, word, worth(&m, &ids),
                             best(&m, word, 0, w.len));
            }
            token_list_release(&ids);
        }
        unigram_scratch_release(&scratch);
        unigram_release(&m.unigram);
        vocab_release(&m.vocab);
    }
}

static void test_no_unknown(void **state) {
    struct vocab v;
    struct unigram u;
    struct unigram_scratch s = {0};
    struct token_list ids;
    struct err err;
    double *scores = calloc(1, sizeof *scores);
    assert_int_equal(vocab_init(&v, 1, 1, &err), 0);
    assert_int_equal(vocab_add(&v, "a", 0, TOKEN_MODEL, &err), 0);
    assert_int_equal(unigram_init(&u, &v, scores, -1, false, &err), 0);
    token_list_init(&ids);
    assert_int_equal(unigram_encode(&u, &v, &(struct piece_word){"aa", 2, 0, NULL, 0}, &s, &ids),
                     0);
    assert_int_equal(ids.len, 2);
    assert_int_equal(unigram_encode(&u, &v, &(struct piece_word){"ab", 2, 0, NULL, 0}, &s, &ids),
                     E_INVAL);
    token_list_release(&ids);
    unigram_scratch_release(&s);
    unigram_release(&u);
    vocab_release(&v);
}

static void test_trie(void **state) {
    struct trie t;
    struct err err;
    struct trie_key keys[] = {{"b", 1, 1}, {"abc", 3, 2},  {"", 0, 3},
                              {"a", 1, 4}, {"\xff", 1, 5}, {"a", 1, 6}};
    assert_int_equal(trie_build(&t, keys, 6, &err), 0);
    assert_int_equal(t.longest, 3);
    uint32_t a = trie_step(&t, 0, 'a'), ab = trie_step(&t, a, 'b');
    assert_int_equal(t.nodes[a].value, 6); // the last of equal keys
    assert_int_equal(t.nodes[ab].value, -1);
    assert_int_equal(t.nodes[trie_step(&t, ab, 'c')].value, 2);
    assert_int_equal(t.nodes[trie_step(&t, 0, 0xff)].value, 5);
    assert_int_equal(trie_step(&t, a, 'c'), 0);
    assert_int_equal(trie_step(&t, 0, 'c'), 0);
    trie_release(&t);
    assert_int_equal(trie_build(&t, keys, 0, &err), 0);
    assert_int_equal(trie_step(&t, 0, 'a'), 0);
    trie_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_ways),
        cmocka_unit_test(test_no_unknown),
        cmocka_unit_test(test_trie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

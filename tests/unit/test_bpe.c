// bpe: random merges over random words, short and long, against the definition: look at all pairs,
// join the leftmost of the lowest rank, start again.
#include "engine/text/bpe.h"
#include "engine/text/byte_alphabet.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_LETTERS 4
#define MAX_MERGES 60
#define MAX_WORD 200

struct rule {
    int32_t left, right, merged;
};
struct model {
    struct vocab vocab;
    struct bpe bpe;
    struct rule rules[MAX_MERGES];
    int n_rules;
};

static void make_vocab(struct model *m) {
    struct err err;
    assert_int_equal(vocab_init(&m->vocab, 256 + MAX_MERGES, 256, &err), 0);
    for (int byte = 0; byte < 256; byte++) {
        char c[3] = {0};
        byte_alphabet_encode((unsigned char)byte, c);
        assert_int_equal(vocab_add(&m->vocab, c, byte, TOKEN_MODEL, &err), 0);
    }
}

// Joins two tokens that exist: what training does, and, as ranks are shuffled, what it would never
// do.
static void make_merges(struct model *m, bool shuffled) {
    struct err err;
    int32_t known[N_LETTERS + MAX_MERGES];
    int n_known = N_LETTERS;
    for (int i = 0; i < N_LETTERS; i++) known[i] = 'a' + i;
    for (int i = 0; i < MAX_MERGES; i++) {
        int32_t left = known[rand() % n_known], right = known[rand() % n_known];
        char joined[256];
        const struct token *l = vocab_token(&m->vocab, left), *r = vocab_token(&m->vocab, right);
        if (l->bytes_len + r->bytes_len > 40) continue;
        snprintf(joined, sizeof joined, "%s%s", vocab_content(&m->vocab, l),
                 vocab_content(&m->vocab, r));
        int32_t merged = vocab_find(&m->vocab, joined, strlen(joined));
        if (merged < 0) {
            merged = 256 + n_known - N_LETTERS;
            assert_int_equal(vocab_add(&m->vocab, joined, merged, TOKEN_MODEL, &err), 0);
            known[n_known++] = merged;
        }
        m->rules[m->n_rules++] = (struct rule){left, right, merged};
    }
    for (int i = m->n_rules - 1; shuffled && i > 0; i--) {
        int j = rand() % (i + 1);
        struct rule swap = m->rules[i];
        m->rules[i] = m->rules[j];
        m->rules[j] = swap;
    }
    assert_int_equal(bpe_init(&m->bpe, (uint32_t)m->n_rules, &err), 0);
    for (int i = 0; i < m->n_rules; i++)
        bpe_add_merge(&m->bpe, m->rules[i].left, m->rules[i].right, m->rules[i].merged);
    assert_int_equal(bpe_finish(&m->bpe, &m->vocab, false, &err), 0);
}

// The rank of a pair: its last rule.
static int rank(const struct model *m, int32_t left, int32_t right) {
    for (int i = m->n_rules - 1; i >= 0; i--)
        if (m->rules[i].left == left && m->rules[i].right == right) return i;
    return -1;
}

static size_t by_definition(const struct model *m, int32_t *ids, size_t n) {
    for (;;) {
        int best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            int r = rank(m, ids[i], ids[i + 1]);
            if (r >= 0 && (best < 0 || r < best)) {
                best = r;
                at = i;
            }
        }
        if (best < 0) return n;
        ids[at] = m->rules[best].merged;
        memmove(ids + at + 1, ids + at + 2, (--n - at - 1) * sizeof *ids);
    }
}

static void check_word(const struct model *m, struct bpe_scratch *s, size_t len) {
    char word[MAX_WORD];
    int32_t want[MAX_WORD];
    for (size_t i = 0; i < len; i++)
        want[i] = (unsigned char)(word[i] = (char)('a' + rand() % N_LETTERS));
    size_t n = by_definition(m, want, len);
    struct token_list got;
    token_list_init(&got);
    assert_int_equal(bpe_encode(&m->bpe, &m->vocab, word, len, s, &got), 0);
    assert_int_equal(got.len, n);
    assert_memory_equal(got.ids, want, n * sizeof *want);
    token_list_release(&got);
}

static void test_against_definition(void **state) {
    srand(5);
    for (int round = 0; round < 120; round++) {
        struct model m = {0};
        struct bpe_scratch scratch = {0};
        make_vocab(&m);
        make_merges(&m, round % 2);
        for (int i = 0; i < 60; i++) check_word(&m, &scratch, 1 + (size_t)rand() % 32);
        for (int i = 0; i < 20; i++)
            check_word(&m, &scratch, 33 + (size_t)rand() % (MAX_WORD - 33));
        bpe_scratch_release(&scratch);
        bpe_release(&m.bpe);
        vocab_release(&m.vocab);
    }
}

// With and without the memory of words: equal results, over words that return and words that
// displace each other.
static void test_kept_words(void **state) {
    srand(12);
    for (int round = 0; round < 20; round++) {
        struct model m = {0};
        struct bpe_scratch kept = {0};
        make_vocab(&m);
        make_merges(&m, round % 2);
        bpe_scratch_keep_words(&kept, 1 << 20);
        assert_non_null(kept.cache);
        for (int i = 0; i < 3000; i++) check_word(&m, &kept, 1 + (size_t)rand() % 20);
        bpe_scratch_release(&kept);
        bpe_release(&m.bpe);
        vocab_release(&m.vocab);
    }
}

static void test_byte_alphabet(void **state) {
    struct err err;
    struct model m = {0};
    make_vocab(&m); // fails if two bytes have one character
    for (int byte = 0; byte < 256; byte++) {
        const struct token *t = vocab_token(&m.vocab, byte);
        assert_int_equal(t->bytes_len, 1);
        assert_int_equal((unsigned char)*vocab_bytes(&m.vocab, t), byte);
    }
    char out[8];
    assert_int_equal(byte_alphabet_decode("\u0120a\u010a", 5, out), 3);
    assert_memory_equal(out, " a\n", 3);
    assert_int_equal(byte_alphabet_byte(0x100), 0);
    assert_int_equal(byte_alphabet_byte(0x143), 0xad);
    assert_int_equal(byte_alphabet_byte(0x144), -1);
    assert_int_equal(byte_alphabet_decode(" ", 1, out), -1); // a space is written U+0120
    assert_int_equal(byte_alphabet_decode("中", 3, out), -1);
    assert_int_equal(vocab_add(&m.vocab, "a", 256, TOKEN_MODEL, &err), E_FORMAT);
    assert_int_equal(vocab_add(&m.vocab, "zz", 'a', TOKEN_MODEL, &err), E_FORMAT);
    assert_int_equal(vocab_add(&m.vocab, "a", 'a', TOKEN_ADDED, &err), 0);
    vocab_release(&m.vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_kept_words),
        cmocka_unit_test(test_byte_alphabet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// See tails.h.
#include "engine/grammar/tails.h"
#include "base/xxh64.h"
#include "engine/grammar/token_trie.h"
#include <stdlib.h>
#include <string.h>

void tails_free(struct tails *t) {
    if (!t) return;
    free(t->tokens);
    free(t->runs);
    free(t);
}

struct source {
    const struct token_trie *v;
    leading_fn leading;
    const void *set;
    int32_t most_chars;
};

// False: the token has no tail.
static bool cut(const struct source *s, struct tail_token *t) {
    int32_t len = s->v->len[t->id], chars = 0;
    if (!s->v->bytes[t->id]) return false;
    int32_t bytes = s->leading(s->set, s->v->bytes[t->id], len, &chars);
    if (chars > s->most_chars) chars = bytes = 0;
    t->chars = (uint16_t)chars;
    t->bytes = (uint16_t)bytes;
    return bytes < len;
}

static const uint8_t *tail_of(const struct token_trie *v, const struct tail_token *t,
                              int32_t *len) {
    *len = v->len[t->id] - t->bytes;
    return v->bytes[t->id] + t->bytes;
}

static bool same_tail(const struct token_trie *v, const struct tail_token *a,
                      const struct tail_token *b) {
    int32_t n, m;
    const uint8_t *s = tail_of(v, a, &n), *t = tail_of(v, b, &m);
    return n == m && memcmp(s, t, (size_t)n) == 0;
}

// Sorting by hashes takes a third of the time of sorting by bytes. Tails of equal hashes become several runs each, which
// is as right.
struct hashed {
    uint64_t hash;
    struct tail_token token;
};

static int compare(const void *a, const void *b) {
    const struct hashed *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->token.chars != y->token.chars) return x->token.chars - y->token.chars;
    return x->token.id - y->token.id;
}

static void sort(const struct token_trie *v, struct tail_token *t, int32_t n, struct hashed *work) {
    for (int32_t i = 0; i < n; i++) {
        int32_t len;
        const uint8_t *tail = tail_of(v, &t[i], &len);
        work[i] = (struct hashed){xxh64(tail, (size_t)len, 0), t[i]};
    }
    qsort(work, (size_t)n, sizeof *work, compare);
    for (int32_t i = 0; i < n; i++) t[i] = work[i].token;
}

// Puts the tokens of each first byte together. Two passes: the first counts. begin (257) receives where each byte's
// begin, and led (256) where those with leading characters do: only these share tails.
static void group(const struct source *s, struct tails *t, int32_t *begin, int32_t *led) {
    int32_t n[2][256] = {{0}}, at[2][256];
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t id = 0; id < s->v->n; id++) {
            struct tail_token one = {.id = id};
            if (!cut(s, &one)) continue;
            int byte = s->v->bytes[id][one.bytes], has = one.chars > 0;
            if (pass == 0)
                n[has][byte]++;
            else
                t->tokens[at[has][byte]++] = one;
        }
        for (int b = 0; b < 256 && pass == 0; b++) {
            at[0][b] = begin[b];
            at[1][b] = led[b] = begin[b] + n[0][b];
            begin[b + 1] = led[b] + n[1][b];
        }
    }
}

struct tails *tails_new(const struct token_trie *v, leading_fn leading, const void *set,
                        int32_t most_chars) {
    const struct source s = {v, leading, set, most_chars};
    struct tails *t = calloc(1, sizeof *t);
    int32_t begin[257] = {0}, led[256], n = 0;
    if (!t) return NULL;
    t->tokens = malloc(((size_t)v->n + 1) * sizeof *t->tokens);
    t->runs = malloc(((size_t)v->n + 1) * sizeof *t->runs);
    struct hashed *work = malloc(((size_t)v->n + 1) * sizeof *work);
    if (!t->tokens || !t->runs || !work) {
        free(work);
        tails_free(t);
        return NULL;
    }
    group(&s, t, begin, led);
    for (int b = 0; b < 256; b++) {
        t->first[b] = n;
        sort(v, t->tokens + led[b], begin[b + 1] - led[b], work);
        for (int32_t i = begin[b]; i < begin[b + 1]; i++)
            if (i <= led[b] || !same_tail(v, &t->tokens[i - 1], &t->tokens[i])) t->runs[n++] = i;
    }
    free(work);
    t->first[256] = n;
    t->runs[n] = begin[256];
    t->size =
        (int64_t)sizeof *t + (int64_t)(v->n + 1) * (int64_t)(sizeof *t->tokens + sizeof *t->runs);
    return t;
}

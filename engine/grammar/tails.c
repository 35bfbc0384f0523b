// See tails.h.
#include "engine/grammar/tails.h"
#include "engine/grammar/token_trie.h"
#include <stdlib.h>
#include <string.h>

void tails_free(struct tails *t) {
    if (!t) return;
    free(t->tokens);
    free(t->runs);
    free(t->text);
    free(t);
}

static const uint8_t *tail_of(const struct token_trie *v, const struct tail_token *t,
                              int32_t *len) {
    *len = v->len[t->id] - t->bytes;
    return v->bytes[t->id] + t->bytes;
}

// Bytes that two tails begin with.
static int32_t shared(const struct token_trie *v, const struct tail_token *a,
                      const struct tail_token *b) {
    int32_t n, m, i = 0;
    const uint8_t *s = tail_of(v, a, &n), *t = tail_of(v, b, &m);
    while (i < n && i < m && s[i] == t[i]) i++;
    return i;
}

// Nearly all tails differ in their first eight bytes or end there, which are compared as one number.
struct keyed {
    uint64_t key;
    const uint8_t *tail;
    int32_t len;
    struct tail_token token;
};

static int compare(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    int c = memcmp(x->tail, y->tail, (size_t)(x->len < y->len ? x->len : y->len));
    if (c) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    if (x->token.chars != y->token.chars) return x->token.chars - y->token.chars;
    return x->token.id - y->token.id;
}

static void sort(const struct token_trie *v, struct tail_token *t, int32_t n, struct keyed *work) {
    for (int32_t i = 0; i < n; i++) {
        struct keyed *k = &work[i];
        *k = (struct keyed){.token = t[i]};
        k->tail = tail_of(v, &t[i], &k->len);
        for (int b = 0; b < 8; b++) k->key = k->key << 8 | (b < k->len ? k->tail[b] : 0);
    }
    qsort(work, (size_t)n, sizeof *work, compare);
    for (int32_t i = 0; i < n; i++) t[i] = work[i].token;
}

// Tokens by the first byte of their tail. begin (257): where the tokens of each byte begin. Those with leading characters
// come last among them, from led (256) on.
struct groups {
    int32_t begin[257], led[256];
};

// Where a token goes: 2 x the first byte of its tail, + 1 with leading characters; -1: nowhere. One look at the bytes
// of all tokens in the order in which they lie in memory.
static void place(const struct token_trie *v, const struct tail_lead *leads, int32_t most_chars,
                  const bool *whole, int16_t *places, int32_t *n_of) {
    for (int32_t id = 0; id < v->n; id++) {
        places[id] = -1;
        if (!v->bytes[id] || whole[v->bytes[id][0]]) continue;
        bool led = leads[id].chars > 0 && leads[id].chars <= most_chars;
        int32_t bytes = led ? leads[id].bytes : 0;
        if (bytes == v->len[id]) continue;
        places[id] = (int16_t)(2 * v->bytes[id][bytes] + led);
        n_of[places[id]]++;
    }
}

static void find_whole(const struct token_trie *v, const struct tail_lead *leads, bool *whole) {
    memset(whole, true, 256);
    for (int32_t id = 0; id < v->n; id++)
        if (v->bytes[id] && leads[id].chars > 0) whole[v->bytes[id][0]] = false;
}

// Puts the tokens of each place together, in the order of the trie, so that whole tokens are sorted.
static void group(const struct token_trie *v, const struct tail_lead *leads, const int16_t *places,
                  const int32_t *n_of, struct tails *t, struct groups *g) {
    int32_t at[2 * 256], n = 0;
    for (int b = 0; b < 256; b++) {
        g->begin[b] = at[2 * b] = n;
        g->led[b] = at[2 * b + 1] = n + n_of[2 * b];
        n = g->led[b] + n_of[2 * b + 1];
    }
    g->begin[256] = n;
    for (int32_t i = 0; i < v->all.n; i++) {
        for (int32_t id = v->all.nodes[i].token; id >= 0; id = v->same[id]) {
            int16_t to = places[id];
            if (to < 0) continue;
            struct tail_token one = {.id = id};
            if (to & 1) one = (struct tail_token){id, leads[id].chars, leads[id].bytes};
            t->tokens[at[to]++] = one;
        }
    }
}

// Adds the runs of tokens that are sorted by their tails.
static void add_runs(const struct token_trie *v, struct tails *t, int32_t from, int32_t to,
                     int32_t *n_runs, int32_t *n_text) {
    for (int32_t i = from; i < to; i++) {
        int32_t len, common = i > from ? shared(v, &t->tokens[i - 1], &t->tokens[i]) : 0;
        const uint8_t *tail = tail_of(v, &t->tokens[i], &len);
        if (i > from && common == len && t->runs[*n_runs - 1].len == len) continue; // the same
        t->runs[(*n_runs)++] = (struct tail_run){i, (uint16_t)common, (uint16_t)len};
        memcpy(t->text + *n_text, tail + common, (size_t)(len - common));
        *n_text += len - common;
    }
}

static int32_t bytes_of_all(const struct token_trie *v) {
    int32_t n = 0;
    for (int32_t id = 0; id < v->n; id++) n += v->bytes[id] ? v->len[id] : 0;
    return n;
}

static void *trim(void *p, size_t bytes) {
    void *less = realloc(p, bytes);
    return less ? less : p;
}

static void fill(const struct token_trie *v, struct tails *t, const struct groups *g,
                 struct keyed *work) {
    int32_t n = 0, n_text = 0;
    for (int b = 0; b < 256; b++) {
        t->first[b] = n;
        t->begin[b] = n_text;
        sort(v, t->tokens + g->led[b], g->begin[b + 1] - g->led[b], work);
        add_runs(v, t, g->begin[b], g->led[b], &n, &n_text);
        add_runs(v, t, g->led[b], g->begin[b + 1], &n, &n_text);
    }
    t->first[256] = n;
    t->runs[n] = (struct tail_run){.first = g->begin[256]};
    size_t tokens = ((size_t)g->begin[256] + 1) * sizeof *t->tokens,
           runs = ((size_t)n + 1) * sizeof *t->runs;
    t->tokens = trim(t->tokens, tokens);
    t->runs = trim(t->runs, runs);
    t->text = trim(t->text, (size_t)n_text + 1);
    t->size = (int64_t)(sizeof *t + tokens + runs) + n_text + 1;
}

struct tails *tails_new(const struct token_trie *v, const struct tail_lead *leads,
                        int32_t most_chars) {
    size_t most = (size_t)v->n + 1;
    int32_t n_of[2 * 256] = {0};
    struct groups g;
    struct tails *t = calloc(1, sizeof *t);
    int16_t *places = malloc(most * sizeof *places);
    struct keyed *work = malloc(most * sizeof *work);
    if (t) {
        t->tokens = malloc(most * sizeof *t->tokens);
        t->runs = malloc(most * sizeof *t->runs);
        t->text = malloc((size_t)bytes_of_all(v) + 1);
    }
    if (t && t->tokens && t->runs && t->text && places && work) {
        find_whole(v, leads, t->whole);
        place(v, leads, most_chars, t->whole, places, n_of);
        group(v, leads, places, n_of, t, &g);
        fill(v, t, &g, work);
    } else {
        tails_free(t);
        t = NULL;
    }
    free(places);
    free(work);
    return t;
}

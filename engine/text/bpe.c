// Byte-pair encoding. Short words are scanned for the lowest rank again after each merge: at up to
// 32 symbols a scan beats any queue. Long words keep their pairs in a heap, so that a word of n bytes
// costs n log n and not n * n.
#include "engine/text/bpe.h"
#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 32
#define NO_RANK UINT32_MAX

struct bpe_symbol {
    int32_t id;
    uint32_t rank;  // of the pair that this symbol and the next one form
    int32_t merged; // the symbol that the pair becomes
    uint32_t prev, next;
};

int bpe_init(struct bpe *b, uint32_t n_merges, struct err *err) {
    *b = (struct bpe){0};
    size_t cap = 16;
    while (cap / 2 <= n_merges) cap *= 2;
    b->mask = cap - 1;
    b->merges = malloc(cap * sizeof *b->merges);
    int rc = hash_seed(&b->seed);
    if (!b->merges) rc = E_NOMEM;
    if (rc < 0) return err_set(err, rc, "no table for %u merges", n_merges);
    for (size_t i = 0; i < cap; i++) b->merges[i].rank = NO_RANK;
    return 0;
}

void bpe_release(struct bpe *b) {
    free(b->merges);
    string_table_release(&b->words);
    *b = (struct bpe){0};
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct merge_slot *find_merge(const struct bpe *b, int32_t left, int32_t right) {
    uint64_t pair = pair_of(left, right);
    size_t i = hash_mix(pair ^ b->seed, 0x9e3779b97f4a7c15u) & b->mask;
    while (b->merges[i].rank != NO_RANK && b->merges[i].pair != pair) i = (i + 1) & b->mask;
    return &b->merges[i];
}

void bpe_add_ranked_merge(struct bpe *b, uint32_t rank, int32_t left, int32_t right,
                          int32_t merged) {
    *find_merge(b, left, right) = (struct merge_slot){pair_of(left, right), rank, merged};
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged) {
    bpe_add_ranked_merge(b, b->n_merges++, left, right, merged);
}

// --- short words ---------------------------------------------------------------------------------

struct short_pairs {
    uint32_t ranks[SHORT_WORD]; // of the pair that begins at each symbol
    int32_t merged[SHORT_WORD];
};

static void look_up(const struct bpe *b, const int32_t *ids, size_t i, struct short_pairs *p) {
    const struct merge_slot *slot = find_merge(b, ids[i], ids[i + 1]);
    p->ranks[i] = slot->rank;
    p->merged[i] = slot->merged;
}

// Joins within ids[n] and returns how many are left.
static size_t merge_short(const struct bpe *b, int32_t *ids, size_t n) {
    struct short_pairs p;
    for (size_t i = 0; i + 1 < n; i++) look_up(b, ids, i, &p);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (p.ranks[i] < p.ranks[best]) best = i;
        if (p.ranks[best] == NO_RANK) break;
        ids[best] = p.merged[best];
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (best + 1 < n) {
            memmove(p.ranks + best + 1, p.ranks + best + 2, (n - best - 2) * sizeof *p.ranks);
            memmove(p.merged + best + 1, p.merged + best + 2, (n - best - 2) * sizeof *p.merged);
            look_up(b, ids, best, &p);
        }
        if (best > 0) look_up(b, ids, best - 1, &p);
    }
    return n;
}

// --- long words ----------------------------------------------------------------------------------

// A heap of four children to a node: half the levels, and so half the cache misses, of a binary
// one. Keys are rank << 32 | position: the order of merging. Pairs that have changed since leave
// their old key behind; it is recognised when it comes up, because the symbol no longer has that
// rank.
static void heap_sink(uint64_t *heap, size_t n, size_t i) {
    uint64_t key = heap[i];
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t c = child + 1; c < end; c++)
            if (heap[c] < heap[child]) child = c;
        if (heap[child] >= key) break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static int heap_push(struct bpe_scratch *s, uint64_t key) {
    if (s->n_heap == s->cap_heap) {
        uint64_t *heap = realloc(s->heap, 2 * s->cap_heap * sizeof *heap);
        if (!heap) return E_NOMEM;
        s->heap = heap;
        s->cap_heap *= 2;
    }
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 4] > key; i = (i - 1) / 4) s->heap[i] = s->heap[(i - 1) / 4];
    s->heap[i] = key;
    return 0;
}

static uint64_t heap_pop(struct bpe_scratch *s) {
    uint64_t least = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap > 1) heap_sink(s->heap, s->n_heap, 0);
    return least;
}

static int scratch_reserve(struct bpe_scratch *s, size_t n) {
    if (n <= s->cap_symbols) return 0;
    free(s->symbols); // nothing in it is worth copying
    free(s->heap);
    s->cap_symbols = 0;
    s->symbols = malloc(n * sizeof *s->symbols);
    s->heap = malloc(n * sizeof *s->heap);
    if (!s->symbols || !s->heap) return E_NOMEM;
    s->cap_symbols = s->cap_heap = n;
    return 0;
}

static void rank_pair(const struct bpe *b, struct bpe_symbol *symbol, int32_t next_id,
                      struct merge_halves *halves) {
    const struct merge_slot *slot = find_merge(b, symbol->id, next_id);
    symbol->rank = slot->rank;
    symbol->merged = slot->merged;
    if (halves && slot->rank != NO_RANK)
        halves[slot->merged] = (struct merge_halves){symbol->id, next_id};
}

// Symbols and the heap of all pairs; the last symbol is its own sentinel: rank NO_RANK.
static void fill(const struct bpe *b, const int32_t *ids, size_t len, struct bpe_scratch *s) {
    s->n_heap = 0;
    for (size_t i = 0; i < len; i++) {
        struct bpe_symbol *symbol = &s->symbols[i];
        *symbol = (struct bpe_symbol){
            .id = ids[i], .rank = NO_RANK, .prev = (uint32_t)i - 1, .next = (uint32_t)i + 1};
        if (i + 1 < len) rank_pair(b, symbol, ids[i + 1], s->halves);
        if (symbol->rank != NO_RANK) s->heap[s->n_heap++] = (uint64_t)symbol->rank << 32 | i;
    }
    for (size_t i = s->n_heap / 4 + 1; i-- > 0;)
        if (i < s->n_heap) heap_sink(s->heap, s->n_heap, i);
}

// The pair that begins at position i has changed.
static int pair_changed(const struct bpe *b, struct bpe_scratch *s, uint32_t i, size_t len) {
    struct bpe_symbol *symbol = &s->symbols[i];
    symbol->rank = NO_RANK;
    if (symbol->next < len) rank_pair(b, symbol, s->symbols[symbol->next].id, s->halves);
    return symbol->rank == NO_RANK ? 0 : heap_push(s, (uint64_t)symbol->rank << 32 | i);
}

static int merge_long(const struct bpe *b, const int32_t *ids, size_t len, struct bpe_scratch *s,
                      struct token_list *out) {
    TRY(scratch_reserve(s, len));
    fill(b, ids, len, s);
    while (s->n_heap > 0) {
        uint64_t key = heap_pop(s);
        uint32_t i = (uint32_t)key, rank = (uint32_t)(key >> 32);
        struct bpe_symbol *left = &s->symbols[i];
        if (left->rank != rank) continue; // superseded
        struct bpe_symbol *right = &s->symbols[left->next];
        left->id = left->merged;
        left->next = right->next;
        right->rank = NO_RANK; // it is gone: its keys in the heap count no more
        if (left->next < len) s->symbols[left->next].prev = i;
        if (left->prev < len)
            TRY(pair_changed(b, s, left->prev, len)); // the first one's prev is UINT32_MAX
        TRY(pair_changed(b, s, i, len));
    }
    for (uint32_t i = 0; i < len; i = s->symbols[i].next)
        TRY(token_list_push(out, s->symbols[i].id));
    return 0;
}

// --- words ---------------------------------------------------------------------------------------

int32_t *bpe_first_symbols(struct bpe_scratch *s, size_t n) {
    if (n <= s->cap_first) return s->first;
    free(s->first);
    s->first = malloc(n * sizeof *s->first);
    s->cap_first = s->first ? n : 0;
    return s->first;
}

int bpe_merge(const struct bpe *b, int32_t *symbols, size_t n, struct bpe_scratch *s,
              struct token_list *out) {
    if (n > SHORT_WORD || s->halves) return merge_long(b, symbols, n, s, out);
    return token_list_append(out, symbols, merge_short(b, symbols, n));
}

// Removes bytes that have no token. They merge with nothing.
static void drop_missing(struct token_list *out, size_t from) {
    size_t to = from;
    for (size_t i = from; i < out->len; i++)
        if (out->ids[i] >= 0) out->ids[to++] = out->ids[i];
    out->len = to;
}

static int encode_by_merges(const struct bpe *b, const char *word, size_t len,
                            struct bpe_scratch *s, struct token_list *out) {
    int32_t few[SHORT_WORD], *ids = len > SHORT_WORD ? bpe_first_symbols(s, len) : few;
    if (!ids) return E_NOMEM;
    for (size_t i = 0; i < len; i++) ids[i] = b->byte_ids[(unsigned char)word[i]];
    const size_t before = out->len;
    TRY(bpe_merge(b, ids, len, s, out));
    if (b->has_gaps) drop_missing(out, before);
    return 0;
}

static int encode_word(const struct bpe *b, const struct vocab *v, const char *word, size_t len,
                       struct bpe_scratch *s, struct token_list *out) {
    int32_t id = string_table_find(&b->words, v->arena.data, word, len);
    return id >= 0 ? token_list_push(out, id) : encode_by_merges(b, word, len, s, out);
}

int bpe_encode(const struct bpe *b, const struct vocab *v, const char *word, size_t len,
               struct bpe_scratch *s, struct token_list *out) {
    struct cached_word *c;
    if (!s->cache || len > CACHED_WORD_MAX_BYTES) return encode_word(b, v, word, len, s, out);
    if (word_cache_find(s->cache, word, len, &c)) return token_list_append(out, c->ids, c->n);
    size_t before = out->len;
    TRY(encode_word(b, v, word, len, s, out));
    word_cache_fill(c, len, out, before);
    return 0;
}

void bpe_scratch_keep_words(struct bpe_scratch *s, size_t text_len) {
    if (text_len >= WORD_CACHE_MIN_TEXT) s->cache = calloc(WORD_CACHE_SIZE, sizeof *s->cache);
}

int bpe_scratch_keep_halves(struct bpe_scratch *s, int32_t n_ids) {
    if (!s->halves) s->halves = malloc((size_t)n_ids * sizeof *s->halves);
    if (!s->halves) return E_NOMEM;
    for (int32_t i = 0; i < n_ids; i++) s->halves[i].left = NO_HALF;
    return 0;
}

void bpe_scratch_release(struct bpe_scratch *s) {
    free(s->symbols);
    free(s->heap);
    free(s->first);
    free(s->halves);
    free(s->cache);
    token_list_release(&s->joined);
    *s = (struct bpe_scratch){0};
}

static int find_bytes(struct bpe *b, const struct vocab *v, struct err *err) {
    for (int byte = 0; byte < 256; byte++) b->byte_ids[byte] = -1;
    for (int32_t id = 0; id < v->n_ids; id++) {
        const struct token *t = &v->tokens[id];
        if (!(t->flags & TOKEN_MODEL) || !(t->flags & TOKEN_ALPHABET) || t->bytes_len != 1)
            continue;
        b->byte_ids[(unsigned char)vocab_bytes(v, t)[0]] = id;
    }
    for (int byte = 0; byte < 256; byte++) {
        const bool in_utf8 = byte < 0xc0 || (byte > 0xc1 && byte < 0xf5);
        if (!in_utf8 || b->byte_ids[byte] >= 0) continue;
        if (byte >= 0x20 && byte < 0x7f)
            return err_set(err, E_UNSUPPORTED, "the vocabulary has no token for the byte 0x%02x",
                           byte);
        b->has_gaps = true;
    }
    return 0;
}

int bpe_finish(struct bpe *b, const struct vocab *v, bool ignore_merges, struct err *err) {
    TRY(find_bytes(b, v, err));
    struct bpe_scratch scratch = {0};
    struct token_list ids;
    token_list_init(&ids);
    int rc = string_table_init(&b->words, (size_t)v->n_tokens);
    for (int32_t id = 0; rc == 0 && id < v->n_ids; id++) {
        const struct token *t = &v->tokens[id];
        if (!(t->flags & TOKEN_MODEL) || !(t->flags & TOKEN_ALPHABET) || t->bytes_len == 0)
            continue;
        ids.len = 0;
        if (!ignore_merges)
            rc = encode_by_merges(b, vocab_bytes(v, t), t->bytes_len, &scratch, &ids);
        bool whole = ignore_merges || (ids.len == 1 && ids.ids[0] == id);
        int32_t existing;
        if (rc == 0 && whole)
            rc = string_table_add(&b->words, v->arena.data, t->bytes, t->bytes_len, id, &existing);
    }
    token_list_release(&ids);
    bpe_scratch_release(&scratch);
    return rc < 0 ? err_set(err, rc, "no memory for the vocabulary's words") : 0;
}

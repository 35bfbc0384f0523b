// See bpe_pieces.h. A word's first symbols are its characters and whole user-defined symbols. A
// symbol is a number:
//   id of a piece          the character is a piece
//   n_ids and above        the character is not a piece, but part of one
//   STRANGE + code point   any other character; negative, so it never merges
//   -2 - id                a user-defined symbol; negative, so it never merges
#include "engine/text/bpe_pieces.h"
#include "engine/text/bpe_chars.h"
#include "engine/text/char_class.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define STRANGE INT32_MIN
#define PIECES_MAX_BYTES (1u << 24)
#define STRANGE_END (INT32_MIN + 0x110000)

void bpe_pieces_release(struct bpe_pieces *b) {
    bpe_release(&b->bpe);
    string_table_release(&b->strange);
    free(b->strange_chars);
    buf_release(&b->arena);
    *b = (struct bpe_pieces){0};
}

static int32_t symbol_of(const struct bpe_pieces *b, const struct vocab *v, const char *c,
                         size_t len) {
    int32_t id = vocab_find_model(v, c, len);
    if (id >= 0) return id;
    id = string_table_find(&b->strange, buf_z(&b->arena), c, len);
    return id >= 0 ? id : STRANGE + (int32_t)char_decode(c);
}

// --- building

// Merging makes normal pieces and unused ones. Never a user-defined one: it would be markup made of
// letters.
static bool is_made(const struct pieces *p, int32_t id) {
    return p->kinds[id] == PIECE_NORMAL || p->kinds[id] == PIECE_UNUSED;
}

static bool is_part(const struct pieces *p, int32_t id) {
    return is_made(p, id) || p->kinds[id] == PIECE_USER_DEFINED;
}

// The symbol that a half of a piece is before the halves join; false where it never is one. A
// character that is no piece is entered among the strange ones.
static int half(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p, const char *s,
                size_t len, int32_t *symbol, bool *exists) {
    int32_t id = vocab_find_model(v, s, len), existing;
    bool single = char_utf8_len(s) == len;
    *symbol = id;
    *exists = id >= 0 && (single || is_part(p, id));
    if (id >= 0 || !single) return 0;
    *exists = true;
    uint32_t offset = (uint32_t)b->arena.len;
    TRY(buf_add(&b->arena, s, len));
    *symbol = v->n_ids + b->n_strange;
    TRY(string_table_add(&b->strange, b->arena.data, offset, (uint32_t)len, *symbol, &existing));
    if (existing >= 0) {
        *symbol = existing;
        b->arena.len = offset;
        return 0;
    }
    if ((b->n_strange & (b->n_strange - 1)) == 0) {
        size_t cap = b->n_strange ? 2 * (size_t)b->n_strange : 1;
        uint32_t *chars = realloc(b->strange_chars, cap * sizeof *chars);
        if (!chars) return E_NOMEM;
        b->strange_chars = chars;
    }
    b->strange_chars[b->n_strange++] = char_decode(s);
    return 0;
}

// Every way to cut the piece in two symbols is a merge. They are counted first, so that the table
// is as large as it must be: *n grows by their number; add: they are entered.
static int add_cuts(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p, int32_t id,
                    uint32_t rank, bool add, uint32_t *n) {
    const struct token *t = vocab_token(v, id);
    const char *s = vocab_content(v, t);
    for (size_t at = char_utf8_len(s); at < t->content_len; at += char_utf8_len(s + at)) {
        int32_t left, right;
        bool left_exists, right_exists = false;
        TRY(half(b, v, p, s, at, &left, &left_exists));
        if (left_exists) TRY(half(b, v, p, s + at, t->content_len - at, &right, &right_exists));
        if (right_exists) ++*n;
        if (right_exists && add) bpe_add_ranked_merge(&b->bpe, rank, left, right, id);
    }
    return 0;
}

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    int order = (x->score < y->score) - (x->score > y->score);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static int each_cut(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                    const struct scored *all, size_t n, bool add, uint32_t *n_merges) {
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && all[i].score != all[i - 1].score) rank++;
        TRY(add_cuts(b, v, p, all[i].id, rank, add, n_merges));
    }
    return 0;
}

static int add_merges(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                      struct scored *all, struct err *err) {
    size_t n = 0, n_bytes = 0;
    uint32_t n_merges = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        if (!p->kinds[id] || !is_made(p, id)) continue;
        all[n++] = (struct scored){p->scores[id], id};
        n_bytes += vocab_token(v, id)->content_len;
    }
    if (n_bytes > PIECES_MAX_BYTES) // time and memory to find the merges grow with it
        return err_set(err, E_LIMIT, "pieces of %zu bytes together are too many", n_bytes);
    qsort(all, n, sizeof *all, by_score);
    int rc = each_cut(b, v, p, all, n, false, &n_merges);
    if (rc == 0) TRY(bpe_init(&b->bpe, n_merges, err));
    if (rc == 0) rc = each_cut(b, v, p, all, n, true, &n_merges);
    return rc < 0 ? err_set(err, rc, "no memory for the merges of %zu pieces", n) : 0;
}

static bool may_cut(const struct vocab *v, const struct pieces *p) {
    for (int32_t id = 0; id < v->n_ids; id++) {
        if (!p->kinds[id]) continue;
        const struct token *t = vocab_token(v, id);
        if (is_part(p, id) && !content_starts_words(vocab_content(v, t), t->content_len))
            return false;
    }
    return !p->has_unused; // how unused pieces are split again depends on the whole text
}

static int find_words(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p) {
    struct bpe_scratch scratch = {0};
    struct token_list ids;
    int rc = 0;
    token_list_init(&ids);
    for (int32_t id = 0; id < v->n_ids && rc == 0; id++) {
        const struct token *t = vocab_token(v, id);
        int32_t existing;
        if (p->kinds[id] != PIECE_NORMAL) continue;
        struct piece_word word = {vocab_content(v, t), t->content_len, 0, NULL, 0};
        ids.len = 0;
        rc = bpe_pieces_encode(b, v, p, &word, &scratch, &ids);
        if (rc == 0 && ids.len == 1 && ids.ids[0] == id)
            rc = string_table_add(&b->bpe.words, v->arena.data, t->content, t->content_len, id,
                                  &existing);
    }
    token_list_release(&ids);
    bpe_scratch_release(&scratch);
    return rc;
}

int bpe_pieces_init(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                    struct err *err) {
    *b = (struct bpe_pieces){0};
    buf_init(&b->arena, UINT32_MAX);
    struct scored *all = malloc((size_t)v->n_ids * sizeof *all);
    int rc = all ? string_table_init(&b->strange, 16) : E_NOMEM;
    if (rc == 0) rc = buf_reserve(&b->arena, 1);
    rc = rc < 0 ? err_set(err, rc, "no memory for %d pieces", v->n_ids)
                : add_merges(b, v, p, all, err);
    free(all);
    TRY(rc);
    for (int c = 0; c < 128; c++) b->ascii[c] = symbol_of(b, v, (const char[]){(char)c}, 1);
    b->cuts = may_cut(v, p);
    rc = string_table_init(&b->bpe.words, 16);
    if (rc == 0 && !p->has_unused) rc = find_words(b, v, p);
    return rc < 0 ? err_set(err, rc, "no memory for the vocabulary's words") : 0;
}

// --- encoding

struct encoding {
    const struct bpe_pieces *b;
    const struct vocab *v;
    const struct pieces *p;
    const struct piece_word *word;
    struct plain_cursor plain;
    struct bpe_scratch *scratch;
    bool in_run; // of unknown characters
    struct token_list *out;
};

static int push_symbol(struct encoding *e, int32_t symbol) {
    const struct bpe_pieces *b = e->b;
    const struct vocab *v = e->v;
    const struct pieces *p = e->p;
    if (symbol >= v->n_ids) symbol = STRANGE + (int32_t)b->strange_chars[symbol - v->n_ids];
    if (symbol < STRANGE_END) {
        char c[4];
        size_t len = (size_t)utf8proc_encode_char(symbol - STRANGE, (utf8proc_uint8_t *)c);
        return pieces_push_unknown(p, c, len, &e->in_run, e->out);
    }
    if (symbol < 0) symbol = -2 - symbol;
    if (symbol == p->unk_id) {
        const struct token *t = vocab_token(v, symbol);
        return pieces_push_unknown(p, vocab_content(v, t), t->content_len, &e->in_run, e->out);
    }
    e->in_run = false;
    return token_list_push(e->out, symbol);
}

// An unused piece may be made on the way to another one; where it is left, it comes apart as it was
// put together.
static int push_apart(struct encoding *e, int32_t symbol) {
    const struct merge_halves *halves = e->scratch->halves;
    bool unused = symbol >= 0 && symbol < e->v->n_ids && e->p->kinds[symbol] == PIECE_UNUSED;
    // not merged from two halves: a single character
    if (!unused || halves[symbol].left == NO_HALF) return push_symbol(e, symbol);
    // As deep as a piece is long, at most
    TRY(push_apart(e, halves[symbol].left));
    return push_apart(e, halves[symbol].right);
}

static int encode_part(struct encoding *e, size_t from, size_t to) {
    const struct user_symbols *user = &e->p->symbols;
    const struct piece_word *w = e->word;
    struct bpe_scratch *s = e->scratch;
    int32_t *symbols = bpe_first_symbols(s, to - from), id;
    size_t n = 0;
    if (!symbols) return E_NOMEM;
    for (size_t i = from, len; i < to; i += len) {
        const char *c = w->text + i;
        len = user->trie.roots[(unsigned char)*c]
                  ? user_symbols_find(user, c, to - i, plain_room(&e->plain, w->offset + i, to - i),
                                      &id)
                  : 0;
        if (len > 0) {
            symbols[n++] = -2 - id;
            continue;
        }
        len = char_utf8_len(c);
        symbols[n++] = len == 1 ? e->b->ascii[(unsigned char)*c] : symbol_of(e->b, e->v, c, len);
    }
    s->joined.len = 0;
    TRY(bpe_merge(&e->b->bpe, symbols, n, s, &s->joined));
    for (size_t i = 0; i < s->joined.len; i++)
        TRY(e->p->has_unused ? push_apart(e, s->joined.ids[i]) : push_symbol(e, s->joined.ids[i]));
    return 0;
}

int bpe_pieces_encode(const struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                      const struct piece_word *word, struct bpe_scratch *s,
                      struct token_list *out) {
    struct encoding e = {.b = b,
                         .v = v,
                         .p = p,
                         .word = word,
                         .plain = {word->plain, word->n_plain},
                         .scratch = s,
                         .out = out};
    if (p->has_unused) TRY(bpe_scratch_keep_halves(s, v->n_ids));
    // A word's result can be cached only if it depends neither on plain spans nor on a run of unknown
    // characters.
    bool alone = p->byte_fallback && b->cuts && p->symbols.trie.n_nodes <= 1;
    struct cached_word *c = NULL;
    for (size_t from = 0, to; from < word->len; from = to) {
        to = b->cuts ? next_word_start(word->text, word->len, from) : word->len;
        bool cached = alone && s->cache && to - from <= CACHED_WORD_MAX_BYTES;
        if (cached && word_cache_find(s->cache, word->text + from, to - from, &c)) {
            TRY(token_list_append(out, c->ids, c->n));
            continue;
        }
        size_t before = out->len;
        int32_t id = string_table_find(&b->bpe.words, v->arena.data, word->text + from, to - from);
        TRY(id >= 0 ? token_list_push(out, id) : encode_part(&e, from, to));
        if (id >= 0) e.in_run = false;
        if (cached) word_cache_fill(c, to - from, out, before);
    }
    return 0;
}

// See unigram.h. The search keeps one node for each byte since the last position that every path
// passes through. At such a position the best path is final: its pieces are emitted and the nodes
// reused. Most texts have such a position at each word. A text without one costs 16 bytes of memory
// for each of its bytes. The longest piece bounds the time for a byte.
#include "engine/text/unigram.h"
#include "engine/text/bpe_chars.h"
#include "engine/text/char_class.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define NOT_REACHED UINT32_MAX
#define UNK_PENALTY 10.0 // below the least likely piece

void unigram_release(struct unigram *u) {
    trie_release(&u->trie);
    free(u->scores);
    *u = (struct unigram){0};
}

void unigram_scratch_release(struct unigram_scratch *s) {
    free(s->nodes);
    token_list_release(&s->path);
    *s = (struct unigram_scratch){0};
}

// --- building

static bool is_text(const struct unigram *u, const struct vocab *v, int32_t id) {
    if (!u->pieces) return v->tokens[id].flags & TOKEN_MODEL;
    unsigned char kind = u->pieces->kinds[id];
    return kind == PIECE_NORMAL || kind == PIECE_USER_DEFINED || kind == PIECE_UNUSED;
}

static int build_trie(struct unigram *u, const struct vocab *v, struct err *err) {
    struct trie_key *keys = malloc(((size_t)v->n_ids + 1) * sizeof *keys);
    if (!keys) return err_set(err, E_NOMEM, "no memory for %d pieces", v->n_ids);
    size_t n = 0;
    int rc = 0;
    for (int32_t id = 0; id < v->n_ids && rc == 0; id++) {
        const struct token *t = &v->tokens[id];
        if (!is_text(u, v, id)) continue;
        if (t->content_len > PIECE_MAX_BYTES)
            rc = err_set(err, E_LIMIT, "piece '%.40s...' is longer than %d bytes",
                         vocab_content(v, t), PIECE_MAX_BYTES);
        keys[n++] = (struct trie_key){vocab_content(v, t), t->content_len, id};
    }
    if (rc == 0) rc = trie_build(&u->trie, keys, n, err);
    free(keys);
    return rc;
}

int unigram_init(struct unigram *u, const struct vocab *v, double *scores, int32_t unk_id,
                 bool byte_fallback, struct err *err) {
    *u = (struct unigram){.scores = scores, .unk_id = unk_id, .byte_fallback = byte_fallback};
    double least = INFINITY;
    for (int32_t id = 0; id < v->n_ids; id++)
        if (v->tokens[id].flags & TOKEN_MODEL && scores[id] < least) least = scores[id];
    u->unk_score = least - UNK_PENALTY;
    vocab_byte_tokens(v, u->byte_ids);
    return build_trie(u, v, err);
}

int unigram_init_pieces(struct unigram *u, const struct vocab *v, const struct pieces *p,
                        struct err *err) {
    *u = (struct unigram){.pieces = p, .unk_id = p->unk_id, .max_score = FLT_MIN};
    float least = HUGE_VALF;
    if (!(u->scores = malloc((size_t)v->n_ids * sizeof *u->scores)))
        return err_set(err, E_NOMEM, "no memory for %d pieces", v->n_ids);
    for (int32_t id = 0; id < v->n_ids; id++) {
        u->scores[id] = (double)p->scores[id];
        if (p->kinds[id] != PIECE_NORMAL) continue;
        if (p->scores[id] < least) least = p->scores[id];
        if (p->scores[id] > u->max_score) u->max_score = p->scores[id];
    }
    u->unk_score = (double)(least - (float)UNK_PENALTY);
    return build_trie(u, v, err);
}

// --- emit pieces

struct search {
    const struct unigram *u;
    const struct vocab *v;
    const struct piece_word *word;
    struct unigram_scratch *s;
    struct token_list *out;
    struct plain_cursor plain;
    size_t begin;            // where the nodes begin: every path passes through here
    size_t ready;            // nodes that are set up, counted from begin
    size_t unk_from, unk_to; // a run of unknown characters that waits to be written (from < to)
    bool in_run;             // SentencePiece: the last piece was the unknown one
};

// tokenizer.json: a run of unknown pieces is one; where the run as a whole is a token ("<unk>" as
// text), that one.
static int flush_unknown(struct search *e) {
    const char *text = e->word->text + e->unk_from;
    size_t len = e->unk_to - e->unk_from;
    if (len == 0) return 0;
    e->unk_from = e->unk_to = 0;
    int32_t id = vocab_find_model(e->v, text, len);
    if (id >= 0) return token_list_push(e->out, id);
    bool all = e->u->byte_fallback;
    for (size_t i = 0; i < len && all; i++) all = e->u->byte_ids[(unsigned char)text[i]] >= 0;
    if (!all) return token_list_push(e->out, e->u->unk_id);
    for (size_t i = 0; i < len; i++)
        TRY(token_list_push(e->out, e->u->byte_ids[(unsigned char)text[i]]));
    return 0;
}

static int give_piece(struct search *e, size_t from, size_t to, int32_t id) {
    if (e->u->pieces) {
        if (id == e->u->unk_id)
            return pieces_push_unknown(e->u->pieces, e->word->text + from, to - from, &e->in_run,
                                       e->out);
        e->in_run = false;
        return token_list_push(e->out, id);
    }
    if (id != e->u->unk_id) {
        TRY(flush_unknown(e));
        return token_list_push(e->out, id);
    }
    if (e->unk_from == e->unk_to) e->unk_from = from;
    e->unk_to = to;
    return 0;
}

// The best path from begin to `at`, found backwards.
static int give_path(struct search *e, size_t at) {
    struct unigram_scratch *s = e->s;
    s->path.len = 0;
    for (size_t to = at - e->begin; to > 0; to = s->nodes[to].from) {
        // Lengths fit: pieces are short
        TRY(token_list_push(&s->path, (int32_t)(to - s->nodes[to].from)));
        TRY(token_list_push(&s->path, s->nodes[to].id));
    }
    size_t from = e->begin;
    for (size_t i = s->path.len; i > 0; i -= 2) {
        size_t len = (size_t)s->path.ids[i - 2];
        TRY(give_piece(e, from, from + len, s->path.ids[i - 1]));
        from += len;
    }
    return 0;
}

// --- the search

static int ready_to(struct search *e, size_t n) {
    struct unigram_scratch *s = e->s;
    if (n > s->cap) {
        size_t cap = 2 * n;
        struct unigram_node *nodes = realloc(s->nodes, cap * sizeof *nodes);
        if (!nodes) return E_NOMEM;
        s->nodes = nodes;
        s->cap = cap;
    }
    for (; e->ready < n; e->ready++) s->nodes[e->ready].from = NOT_REACHED;
    return 0;
}

static void offer(struct search *e, struct unigram_node *to, size_t from, int32_t id,
                  double score) {
    if (to->from != NOT_REACHED && !(score > to->score)) return;
    *to = (struct unigram_node){e->u->pieces ? (double)(float)score : score, (uint32_t)from, id};
}

// SentencePiece prefers user-defined pieces to all others and never takes an unused piece. *score:
// the piece's score; returns false if the piece must not be taken.
static bool score_of(struct search *e, size_t at, size_t len, int32_t id, double *score) {
    const struct unigram *u = e->u;
    *score = u->scores[id];
    if (!u->pieces || u->pieces->kinds[id] == PIECE_NORMAL) return true;
    if (u->pieces->kinds[id] == PIECE_UNUSED) return false;
    *score = (double)((float)len * u->max_score) - 0.1;
    return plain_room(&e->plain, e->word->offset + at, len) == len ||
           user_symbol_is_blank(e->word->text + at, len);
}

// Offers every piece that begins at `at`; *reach: the furthest end.
static int extend(struct search *e, size_t at, size_t *reach) {
    const char *text = e->word->text + at;
    size_t left = e->word->len - at, first = char_utf8_len(text), here = at - e->begin;
    size_t most = left < e->u->trie.longest ? left : e->u->trie.longest;
    TRY(ready_to(e, here + (most > first ? most : first) + 1));
    struct unigram_node *nodes = e->s->nodes;
    double so_far = nodes[here].score, score;
    bool covered = false;
    uint32_t node = 0;
    for (size_t i = 0; i < most; i++) {
        node = trie_step(&e->u->trie, node, (unsigned char)text[i]);
        if (node == 0) break;
        int32_t id = e->u->trie.nodes[node].value;
        if (id < 0 || !score_of(e, at, i + 1, id, &score)) continue;
        offer(e, &nodes[here + i + 1], here, id, score + so_far);
        if (i + 1 == first) covered = true;
        if (at + i + 1 > *reach) *reach = at + i + 1;
    }
    if (covered) return 0;
    if (e->u->unk_id < 0) return E_INVAL;
    score = e->u->unk_score + so_far;
    if (e->u->pieces)
        score = (double)(float)score; // a sum of floats there, where pieces' is one of doubles
    offer(e, &nodes[here + first], here, e->u->unk_id, score);
    if (at + first > *reach) *reach = at + first;
    return 0;
}

static int search(struct search *e) {
    size_t reach = 0;
    TRY(ready_to(e, 1));
    e->s->nodes[0] = (struct unigram_node){0};
    for (size_t at = 0; at < e->word->len; at += char_utf8_len(e->word->text + at)) {
        if (at == reach && at > e->begin) {
            double score = e->s->nodes[at - e->begin].score;
            TRY(give_path(e, at));
            e->begin = at;
            e->ready = 0;
            TRY(ready_to(e, 1));
            e->s->nodes[0] = (struct unigram_node){.score = score};
        }
        TRY(extend(e, at, &reach));
    }
    TRY(give_path(e, e->word->len));
    return flush_unknown(e);
}

int unigram_encode(const struct unigram *u, const struct vocab *v, const struct piece_word *word,
                   struct unigram_scratch *s, struct token_list *out) {
    struct search e = {
        .u = u, .v = v, .word = word, .s = s, .out = out, .plain = {word->plain, word->n_plain}};
    return word->len ? search(&e) : 0;
}

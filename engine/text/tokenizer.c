// Text to ids and back. The order is Hugging Face's: find added tokens in the raw text; normalise the
// text between them; find there the added tokens that match after normalising; cut the rest into
// words; encode each word. See README.md.
#include "engine/text/tokenizer.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/text/tokenizer_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Positions inside a word are 32-bit numbers, and normalising may make a text eleven times as long.
#define ENCODE_MAX_BYTES (128u << 20)

// --- opening and closing

// Fills in the bytes of each token from the vocabulary and the decoder.
static int set_bytes(struct tokenizer *t, struct err *err) {
    struct buf bytes;
    int rc = 0;
    buf_init(&bytes, SIZE_MAX);
    for (int32_t id = 0; id < t->vocab.n_ids && rc == 0; id++) {
        const struct token *token = vocab_token(&t->vocab, id);
        if (!token) continue;
        buf_reset(&bytes);
        rc = decoder_token_bytes(&t->decoder, vocab_content(&t->vocab, token), token->content_len,
                                 &bytes, err);
        if (rc == 0) rc = vocab_set_bytes(&t->vocab, id, buf_z(&bytes), bytes.len, err);
    }
    buf_release(&bytes);
    return rc;
}

static const char *kind_name(enum tokenizer_kind kind) {
    switch (kind) {
    case TOKENIZER_BYTE_BPE:
        return "byte-level BPE";
    case TOKENIZER_CHAR_BPE:
        return "BPE";
    case TOKENIZER_UNIGRAM:
        return "Unigram";
    case TOKENIZER_PIECE_BPE:
        return "SentencePiece BPE";
    case TOKENIZER_PIECE_UNIGRAM:
        return "SentencePiece Unigram";
    }
    return "";
}

static int finish(struct tokenizer *t, struct err *err) {
    int n = t->vocab.n_tokens;
    char count[32];
    if (n < 1000)
        snprintf(count, sizeof count, "%d", n);
    else if (n < 1000000)
        snprintf(count, sizeof count, "%d,%03d", n / 1000, n % 1000);
    else
        snprintf(count, sizeof count, "%d,%03d,%03d", n / 1000000, n / 1000 % 1000, n % 1000);
    snprintf(t->description, sizeof t->description, "%s, %s tokens", kind_name(t->kind), count);
    bool has_bytes = decoder_is_byte_level(&t->decoder) || t->pieces.kinds;
    return has_bytes ? 0 : set_bytes(t, err);
}

static int new_tokenizer(struct tokenizer **out, struct err *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_set(err, E_NOMEM, "no memory for a tokenizer");
    added_tokens_init(&(*out)->added);
    added_tokens_init(&(*out)->added_normalized);
    return 0;
}

// rc: the reader's result. Frees an unusable tokenizer.
static int finish_opening(struct tokenizer **out, int rc, struct err *err) {
    if (rc >= 0) rc = finish(*out, err);
    if (rc >= 0) return 0;
    tokenizer_close(*out);
    *out = NULL;
    return rc;
}

int tokenizer_open(struct tokenizer **out, const char *model_dir, struct err *err) {
    TRY(new_tokenizer(out, err));
    return finish_opening(out, tokenizer_read_folder(*out, model_dir, err), err);
}

int tokenizer_open_json(struct tokenizer **out, const char *json, size_t len, struct err *err) {
    struct err local = {0};
    if (!err) err = &local; // it carries the code of a failed parse
    *out = NULL;
    cJSON *root = json_parse(json, len, &json_limits_file, err);
    if (!root) return err->code;
    int rc = new_tokenizer(out, err);
    if (rc == 0) rc = finish_opening(out, tokenizer_read_json(*out, root, err), err);
    cJSON_Delete(root);
    return rc;
}

int tokenizer_open_model(struct tokenizer **out, const char *bytes, size_t len, struct err *err) {
    struct model_options options = {0};
    TRY(new_tokenizer(out, err));
    return finish_opening(out, tokenizer_read_model(*out, bytes, len, &options, err), err);
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    vocab_release(&t->vocab);
    bpe_release(&t->bpe);
    bpe_chars_release(&t->chars);
    unigram_release(&t->unigram);
    pieces_release(&t->pieces);
    bpe_pieces_release(&t->piece_bpe);
    pre_tokenizer_release(&t->pre);
    normalizer_release(&t->normalizer);
    decoder_release(&t->decoder);
    added_tokens_release(&t->added);
    added_tokens_release(&t->added_normalized);
    free(t->bos);
    free(t->eos);
    free(t->start);
    free(t->end);
    free(t);
}

// --- encoding ------------------------------------------------------------------------------------

// One call's state.
struct encoding {
    const struct tokenizer *t;
    struct encode_options opt;
    struct token_list *out;
    struct err *err;
    struct pre_run pre;
    struct bpe_scratch scratch;
    struct unigram_scratch unigram;
    struct buf normal;         // the current piece, normalised
    struct text_span *moved;   // the plain spans in it
    const char *piece;         // normalised
    struct plain_cursor plain; // its spans; words come in order
};

static int encode_pieces(struct encoding *e, const char *word, size_t len) {
    const struct tokenizer *t = e->t;
    // Only SentencePiece's own models ask for plain spans, and there a word is (a part of) the
    // piece as it stands.
    struct piece_word w = {word, len, 0, NULL, 0};
    if (t->pieces.kinds)
        w = (struct piece_word){word, len, (size_t)(word - e->piece), e->plain.spans, e->plain.n};
    return t->kind == TOKENIZER_PIECE_BPE
               ? bpe_pieces_encode(&t->piece_bpe, &t->vocab, &t->pieces, &w, &e->scratch, e->out)
               : unigram_encode(&t->unigram, &t->vocab, &w, &e->unigram, e->out);
}

static int encode_word(void *ctx, const char *word, size_t len) {
    struct encoding *e = ctx;
    const struct tokenizer *t = e->t;
    int rc = t->kind == TOKENIZER_BYTE_BPE
                 ? bpe_encode(&t->bpe, &t->vocab, word, len, &e->scratch, e->out)
             : t->kind == TOKENIZER_CHAR_BPE
                 ? bpe_chars_encode(&t->chars, &t->vocab, word, len, &e->scratch, e->out)
                 : encode_pieces(e, word, len);
    if (rc == E_INVAL)
        return err_set(e->err, E_INVAL,
                       "the vocabulary lacks a character of '%.*s' and has no unknown token",
                       len < 40 ? (int)len : 40, word);
    return rc < 0 ? err_set(e->err, rc, "no memory to encode a word of %zu bytes", len) : 0;
}

static int push_added(struct encoding *e, const struct added_token *token) {
    int rc = token_list_push(e->out, token->id);
    return rc < 0 ? err_set(e->err, rc, "no memory for the ids") : 0;
}

// A piece between raw added tokens; plain spans relative to it.
static int encode_piece(struct encoding *e, const char *text, size_t len,
                        const struct text_span *plain, size_t n_plain, bool at_start) {
    struct added_scan scan;
    struct added_match m;
    e->piece = text;
    e->plain = (struct plain_cursor){plain, n_plain};
    added_scan_init(&scan, &e->t->added_normalized, text, len, plain, n_plain, e->opt.no_special);
    while (added_scan_next(&scan, &m)) {
        if (m.from > 0) e->pre.bare = false;
        TRY(m.token ? push_added(e, m.token)
                    : pre_run(&e->pre, text + m.from, m.to - m.from, at_start && m.from == 0));
    }
    return 0;
}

// The plain spans that reach into [from, to), cut to it and counted from its start. *first moves on
// with the text.
static size_t spans_within(struct encoding *e, size_t from, size_t to, size_t *first) {
    const struct text_span *plain = e->opt.plain;
    size_t n = 0;
    while (*first < e->opt.n_plain && plain[*first].to <= from) ++*first;
    for (size_t i = *first; i < e->opt.n_plain && plain[i].from < to; i++, n++) {
        e->moved[n].from = plain[i].from > from ? plain[i].from - from : 0;
        e->moved[n].to = (plain[i].to < to ? plain[i].to : to) - from;
    }
    return n;
}

static int encode_text(struct encoding *e, const char *text, size_t len) {
    struct added_scan scan;
    struct added_match m;
    size_t first = 0;
    added_scan_init(&scan, &e->t->added, text, len, e->opt.plain, e->opt.n_plain,
                    e->opt.no_special);
    while (added_scan_next(&scan, &m)) {
        if (m.token) {
            TRY(push_added(e, m.token));
            continue;
        }
        const char *piece = text + m.from;
        size_t piece_len = m.to - m.from, n_plain = spans_within(e, m.from, m.to, &first);
        bool at_start = m.from == 0 && !e->opt.continues;
        bool bare = m.from == 0 && e->opt.in_midst;
        e->pre.bare = bare;
        if (e->t->normalizer.n_steps) {
            TRY(normalizer_apply(&e->t->normalizer, piece, piece_len, &e->normal, e->moved, n_plain,
                                 bare, &at_start, e->err));
            piece = buf_z(&e->normal);
            piece_len = e->normal.len;
        }
        TRY(encode_piece(e, piece, piece_len, e->moved, n_plain, at_start));
    }
    return 0;
}

static int check_input(const char *text, size_t len, const struct encode_options *opt,
                       struct err *err) {
    if (len > ENCODE_MAX_BYTES)
        return err_set(err, E_LIMIT, "a text of %zu bytes is too long to encode", len);
    if (!utf8_valid(text, len)) return err_set(err, E_INVAL, "the text is not valid UTF-8");
    if (opt->in_midst && opt->n_plain)
        return err_set(err, E_INVAL, "plain spans in the midst of a text");
    size_t done = 0;
    for (size_t i = 0; i < opt->n_plain; i++) {
        if (opt->plain[i].from < done || opt->plain[i].to < opt->plain[i].from ||
            opt->plain[i].to > len)
            return err_set(err, E_INVAL, "plain span %zu is out of order or outside the text", i);
        done = opt->plain[i].to;
    }
    return 0;
}

// A tokenizer that puts a space in front of a text's first word means the space between words by
// it: in the midst of a text that is the space which is there.
static bool space_is_put(const struct tokenizer *t) {
    return normalizer_puts_space(&t->normalizer) || pre_tokenizer_puts_space(&t->pre);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     const struct encode_options *opt, struct token_list *out, struct err *err) {
    struct encoding e = {.t = t, .out = out, .err = err};
    size_t before = out->len;
    if (opt) e.opt = *opt;
    TRY(check_input(text, len, &e.opt, err));
    if (e.opt.in_midst && len > 1 && *text == ' ' && space_is_put(t)) {
        text++;
        len--;
        e.opt.in_midst = e.opt.continues = false;
    }
    buf_init(&e.normal, SIZE_MAX);
    e.moved = e.opt.n_plain ? malloc(e.opt.n_plain * sizeof *e.moved) : NULL;
    int rc = e.opt.n_plain && !e.moved
                 ? err_set(err, E_NOMEM, "no memory for %zu spans", e.opt.n_plain)
                 : 0;
    bpe_scratch_keep_words(&e.scratch, len);
    if (rc == 0) rc = pre_run_init(&e.pre, &t->pre, len, encode_word, &e, err);
    if (rc == 0) rc = encode_text(&e, text, len);
    if (rc < 0) out->len = before;
    pre_run_release(&e.pre);
    bpe_scratch_release(&e.scratch);
    unigram_scratch_release(&e.unigram);
    buf_release(&e.normal);
    free(e.moved);
    return rc;
}

// --- decoding ------------------------------------------------------------------------------------

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     struct buf *out, struct err *err) {
    struct decoding d = {0};
    size_t before = out->len;
    int rc = 0;
    decoding_start(&d, &t->decoder);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct token *token = vocab_token(&t->vocab, ids[i]);
        if (!token)
            rc = err_set(err, E_INVAL, "token id %d is outside the vocabulary", ids[i]);
        else if ((!skip_special || !(token->flags & TOKEN_SPECIAL)) &&
                 (rc = decoding_token(&d, &t->vocab, token, out)) < 0)
            err_set(err, rc, "no room for the text of %zu tokens", n);
    }
    if (rc == 0 && (rc = decoding_end(&d, out)) < 0)
        err_set(err, rc, "no room for the text of %zu tokens", n);
    if (rc < 0 && out->len > before) {
        out->len = before;
        out->data[before] = '\0';
    }
    decoding_release(&d);
    return rc;
}

// --- questions -----------------------------------------------------------------------------------

int32_t tokenizer_n_tokens(const struct tokenizer *t) {
    return t->vocab.n_ids;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len) {
    const struct token *token = vocab_token(&t->vocab, id);
    *len = token ? token->bytes_len : 0;
    return token ? vocab_bytes(&t->vocab, token) : NULL;
}

void tokenizer_show(struct tokenizer *t, const char *content) {
    const int32_t id = tokenizer_find(t, content);
    if (id >= 0) t->vocab.tokens[id].flags &= (uint8_t)~TOKEN_SPECIAL;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    const struct token *token = vocab_token(&t->vocab, id);
    return token && (token->flags & TOKEN_SPECIAL);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *content) {
    return vocab_find(&t->vocab, content, strlen(content));
}

const char *tokenizer_bos(const struct tokenizer *t) {
    return t->bos ? t->bos : "";
}

const char *tokenizer_eos(const struct tokenizer *t) {
    return t->eos ? t->eos : "";
}

int32_t tokenizer_start(const struct tokenizer *t) {
    return t->start ? tokenizer_find(t, t->start) : -1;
}

int32_t tokenizer_end(const struct tokenizer *t) {
    return t->end ? tokenizer_find(t, t->end) : -1;
}

const char *tokenizer_description(const struct tokenizer *t) {
    return t->description;
}

static bool strips(const struct added_tokens *a) {
    for (size_t i = 0; i < a->n_tokens; i++)
        if (a->tokens[i].lstrip || a->tokens[i].rstrip) return true;
    return false;
}

static bool loses_bytes(const struct tokenizer *t) {
    if (t->kind != TOKENIZER_BYTE_BPE || t->bpe.has_gaps || t->normalizer.n_steps) return true;
    for (int i = 0; i < t->pre.n_steps; i++)
        if (t->pre.steps[i].kind == PRE_WORDS || t->pre.steps[i].behavior == PRE_REMOVED)
            return true;
    return strips(&t->added) || strips(&t->added_normalized);
}

size_t tokenizer_longest_token(const struct tokenizer *t) {
    size_t longest = 0, len;
    if (loses_bytes(t)) return 0;
    for (int32_t id = 0; id < tokenizer_n_tokens(t); id++)
        if (tokenizer_bytes(t, id, &len) && len > longest) longest = len;
    return longest;
}

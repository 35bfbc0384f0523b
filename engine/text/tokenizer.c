// Text to ids and back. The order of things is Hugging Face's: added tokens are found in the raw
// text; what lies between them is normalised, searched for the added tokens that are to be found
// after normalising, cut into words, and each word is encoded by itself. See README.md.
#include "engine/text/tokenizer.h"
#include "base/utf8.h"
#include "engine/text/tokenizer_file.h"
#include <stdlib.h>
#include <string.h>

// Positions inside a word are 32-bit numbers, and normalising may make a text eleven times as long.
#define ENCODE_MAX_BYTES (128u << 20)

int tokenizer_open(struct tokenizer **out, const char *model_dir, struct err *err) {
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, E_NOMEM, "no memory for a tokenizer");
    added_tokens_init(&t->added);
    added_tokens_init(&t->added_normalized);
    int rc = tokenizer_read(t, model_dir, err);
    if (rc < 0)
        tokenizer_close(t);
    else
        *out = t;
    return rc;
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    vocab_release(&t->vocab);
    bpe_release(&t->bpe);
    pre_tokenizer_release(&t->pre);
    added_tokens_release(&t->added);
    added_tokens_release(&t->added_normalized);
    free(t->bos);
    free(t->eos);
    free(t);
}

// --- encoding
// ---------------------------------------------------------------------------------------------

// One call's state.
struct encoding {
    const struct tokenizer *t;
    struct encode_options opt;
    struct token_list *out;
    struct err *err;
    struct pre_run pre;
    struct bpe_scratch scratch;
    struct buf normal;       // the piece at hand, normalised
    struct text_span *moved; // the plain spans in it
};

static int encode_word(void *ctx, const char *word, size_t len) {
    struct encoding *e = ctx;
    int rc = bpe_encode(&e->t->bpe, &e->t->vocab, word, len, &e->scratch, e->out);
    return rc < 0 ? err_set(e->err, rc, "no memory to encode a word of %zu bytes", len) : 0;
}

static int push_added(struct encoding *e, const struct added_token *token) {
    int rc = token_list_push(e->out, token->id);
    return rc < 0 ? err_set(e->err, rc, "no memory for the ids") : 0;
}

// A piece between raw added tokens; plain spans relative to it.
static int encode_piece(struct encoding *e, const char *text, size_t len,
                        const struct text_span *plain, size_t n_plain) {
    struct added_scan scan;
    struct added_match m;
    added_scan_init(&scan, &e->t->added_normalized, text, len, plain, n_plain, e->opt.no_special);
    while (added_scan_next(&scan, &m))
        TRY(m.token ? push_added(e, m.token) : pre_run(&e->pre, text + m.from, m.to - m.from));
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
        if (e->t->normalizer.n_forms) {
            TRY(normalizer_apply(&e->t->normalizer, piece, piece_len, &e->normal, e->moved, n_plain,
                                 e->err));
            piece = buf_z(&e->normal);
            piece_len = e->normal.len;
        }
        TRY(encode_piece(e, piece, piece_len, e->moved, n_plain));
    }
    return 0;
}

static int check_input(const char *text, size_t len, const struct encode_options *opt,
                       struct err *err) {
    if (len > ENCODE_MAX_BYTES)
        return err_set(err, E_LIMIT, "a text of %zu bytes is too long to encode", len);
    if (!utf8_valid(text, len)) return err_set(err, E_INVAL, "the text is not valid UTF-8");
    size_t done = 0;
    for (size_t i = 0; i < opt->n_plain; i++) {
        if (opt->plain[i].from < done || opt->plain[i].to < opt->plain[i].from ||
            opt->plain[i].to > len)
            return err_set(err, E_INVAL, "plain span %zu is out of order or outside the text", i);
        done = opt->plain[i].to;
    }
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     const struct encode_options *opt, struct token_list *out, struct err *err) {
    struct encoding e = {.t = t, .out = out, .err = err};
    size_t before = out->len;
    if (opt) e.opt = *opt;
    TRY(check_input(text, len, &e.opt, err));
    buf_init(&e.normal, SIZE_MAX);
    e.moved = e.opt.n_plain ? malloc(e.opt.n_plain * sizeof *e.moved) : NULL;
    int rc = e.opt.n_plain && !e.moved
                 ? err_set(err, E_NOMEM, "no memory for %zu spans", e.opt.n_plain)
                 : 0;
    if (rc == 0) rc = pre_run_init(&e.pre, &t->pre, len, encode_word, &e, err);
    if (rc == 0) rc = encode_text(&e, text, len);
    if (rc < 0) out->len = before;
    pre_run_release(&e.pre);
    bpe_scratch_release(&e.scratch);
    buf_release(&e.normal);
    free(e.moved);
    return rc;
}

// --- decoding
// ---------------------------------------------------------------------------------------------

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     struct buf *out, struct err *err) {
    struct buf bytes; // of all tokens together: a character may be spread over several
    buf_init(&bytes, SIZE_MAX);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct token *token = vocab_token(&t->vocab, ids[i]);
        if (!token)
            rc = err_set(err, E_INVAL, "token id %d is outside the vocabulary", ids[i]);
        else if (!skip_special || !(token->flags & TOKEN_SPECIAL))
            if ((rc = buf_add(&bytes, vocab_bytes(&t->vocab, token), token->bytes_len)) < 0)
                err_set(err, rc, "no memory for the text of %zu tokens", n);
    }
    if (rc == 0 && (rc = utf8_sanitize(out, buf_z(&bytes), bytes.len)) < 0)
        err_set(err, rc, "no room for the text of %zu tokens", n);
    buf_release(&bytes);
    return rc;
}

// --- questions
// --------------------------------------------------------------------------------------------

int32_t tokenizer_n_tokens(const struct tokenizer *t) {
    return t->vocab.n_ids;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len) {
    const struct token *token = vocab_token(&t->vocab, id);
    *len = token ? token->bytes_len : 0;
    return token ? vocab_bytes(&t->vocab, token) : NULL;
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

const char *tokenizer_description(const struct tokenizer *t) {
    return t->description;
}

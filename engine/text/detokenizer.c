// See detokenizer.h. The decoder (decoder.h) does the work, as it does for whole texts.
#include "engine/text/detokenizer.h"
#include "base/utf8.h"
#include "engine/text/tokenizer_file.h"
#include <string.h>

void detokenizer_start(struct detokenizer *d, const struct tokenizer *t) {
    d->tokenizer = t;
    d->before.max = SIZE_MAX;
    buf_reset(&d->before);
    d->given = 0;
    decoding_start(&d->decoding, &t->decoder);
}

// --- in the midst of a text

// Runs the decoder over the last earlier tokens and drops the text that it returns, which is theirs.
// The text that it still holds belongs to them too, unless the new tokens change it (they may complete
// a character). decoding_end returns that text as `before`; characters at the start of the new text
// that equal it are skipped.

// More than a character's bytes, and past the tokens that the rules for a text's start affect.
#define TOKENS_BEFORE 8
#define IDS_BEFORE 64 // special tokens between them are not worth a longer way

// The last tokens of ids that have a text.
static int last_tokens(const struct tokenizer *t, const int32_t *ids, size_t n,
                       const struct token *out[TOKENS_BEFORE]) {
    int found = 0;
    size_t stop = n > IDS_BEFORE ? n - IDS_BEFORE : 0;
    for (size_t i = n; i > stop && found < TOKENS_BEFORE; i--) {
        const struct token *token = vocab_token(&t->vocab, ids[i - 1]);
        if (token && !(token->flags & TOKEN_SPECIAL)) out[found++] = token;
    }
    for (int i = 0; i < found / 2; i++) {
        const struct token *swap = out[i];
        out[i] = out[found - 1 - i];
        out[found - 1 - i] = swap;
    }
    return found;
}

static int pass_over(struct detokenizer *d, const struct token *const *tokens, int n) {
    for (int i = 0; i < n; i++)
        TRY(decoding_token(&d->decoding, &d->tokenizer->vocab, tokens[i], &d->before));
    buf_reset(&d->before);
    return 0;
}

int detokenizer_start_after(struct detokenizer *d, const struct tokenizer *t, const int32_t *ids,
                            size_t n) {
    const struct token *tokens[TOKENS_BEFORE];
    int n_tokens = last_tokens(t, ids, n, tokens);
    detokenizer_start(d, t);
    TRY(pass_over(d, tokens, n_tokens));
    TRY(decoding_end(&d->decoding, &d->before)); // which starts again
    struct buf held = d->before;
    d->before = (struct buf){.max = SIZE_MAX};
    int rc = pass_over(d, tokens, n_tokens);
    buf_release(&d->before);
    d->before = held;
    return rc;
}

// Removes from out, from `from` on, the text that the earlier text still holds.
static void take_before(struct detokenizer *d, struct buf *out, size_t from) {
    const char *new = buf_z(out) + from, *held = buf_z(&d->before) + d->given;
    size_t n = out->len - from, left = d->before.len - d->given, same = 0;
    if (left == 0 || n == 0) return;
    while (same < n && same < left && new[same] == held[same]) same++;
    same = utf8_complete_len(new, same); // whole characters
    memmove(out->data + from, out->data + from + same, n - same);
    out->len -= same;
    out->data[out->len] = '\0';
    d->given += same;
    if (out->len > from) d->given = d->before.len; // other text has come
}

// --- tokens

int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out) {
    const struct token *token = vocab_token(&d->tokenizer->vocab, id);
    size_t from = out->len;
    if (!token) return E_INVAL;
    if (token->flags & TOKEN_SPECIAL) return 0;
    TRY(decoding_token(&d->decoding, &d->tokenizer->vocab, token, out));
    take_before(d, out, from);
    return 0;
}

int detokenizer_flush(struct detokenizer *d, struct buf *out) {
    size_t from = out->len;
    TRY(decoding_end(&d->decoding, out));
    take_before(d, out, from);
    return 0;
}

void detokenizer_release(struct detokenizer *d) {
    decoding_release(&d->decoding);
    buf_release(&d->before);
    d->tokenizer = NULL;
}

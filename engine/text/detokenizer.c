// See detokenizer.h: decoder.h does the work, for whole texts too.
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer_file.h"

void detokenizer_start(struct detokenizer *d, const struct tokenizer *t) {
    d->tokenizer = t;
    decoding_start(&d->decoding, &t->decoder);
}

int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out) {
    const struct token *token = vocab_token(&d->tokenizer->vocab, id);
    if (!token) return E_INVAL;
    if (token->flags & TOKEN_SPECIAL) return 0;
    return decoding_token(&d->decoding, &d->tokenizer->vocab, token, out);
}

int detokenizer_flush(struct detokenizer *d, struct buf *out) {
    return decoding_end(&d->decoding, out);
}

void detokenizer_release(struct detokenizer *d) {
    decoding_release(&d->decoding);
    d->tokenizer = NULL;
}

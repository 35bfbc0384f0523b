// See decoder.h. Hugging Face tokenizers' decoders are the reference, and SentencePiece's for its
// own files.
#include "engine/text/decoder.h"
#include "base/utf8.h"
#include "engine/text/decoder_steps.h"
#include <stdlib.h>
#include <string.h>

#define SPACE_SYMBOL "\u2581"
#define REPLACEMENT "\xef\xbf\xbd"

void decoder_release(struct decoder *d) {
    for (int i = 0; i < DECODER_MAX_STEPS; i++) {
        free(d->steps[i].content);
        free(d->steps[i].delimiter);
        pattern_release(&d->steps[i].pattern);
    }
    *d = (struct decoder){0};
}

bool decoder_is_byte_level(const struct decoder *d) {
    return d->n_steps == 1 && d->steps[0].kind == DECODE_BYTE_LEVEL;
}

// --- bytes that may be parts of characters

// Joins the pending bytes with the first few new ones and adds what that completes. *used: new
// bytes consumed.
static int finish_pending(struct decode_state *s, const char *bytes, size_t len, size_t *used,
                          struct buf *to) {
    char joined[sizeof s->pending];
    size_t n = s->n_pending, more = sizeof joined - n;
    if (more > len) more = len;
    memcpy(joined, s->pending, n);
    memcpy(joined + n, bytes, more);
    size_t whole = utf8_complete_len(joined, n + more);
    if (whole < n) whole = 0; // all of it still waits
    TRY(utf8_sanitize(to, joined, whole));
    *used = whole ? whole - n : more;
    s->n_pending = whole ? 0 : (unsigned)(n + more);
    memcpy(s->pending, joined, s->n_pending);
    return 0;
}

// Parts of one string that need not be whole characters: passes on those that are.
int decoding_pass_bytes(struct decoding *d, int i, const char *bytes, size_t len) {
    struct decode_state *s = &d->states[i];
    struct buf *to = i + 1 == d->decoder->n_steps ? d->out : &s->made;
    size_t used = 0;
    buf_reset(&s->made);
    if (s->n_pending) TRY(finish_pending(s, bytes, len, &used, to));
    if (s->n_pending == 0) {
        bytes += used;
        len -= used;
        size_t whole = utf8_complete_len(bytes, len);
        TRY(utf8_sanitize(to, bytes, whole));
        s->n_pending = (unsigned)(len - whole);
        memcpy(s->pending, bytes + whole, s->n_pending);
    }
    return to == d->out ? 0 : decoding_pass(d, i, buf_z(to), to->len, false);
}

static int end_bytes(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    buf_reset(&s->made);
    TRY(utf8_sanitize(&s->made, s->pending, s->n_pending));
    s->n_pending = 0;
    return decoding_pass(d, i, buf_z(&s->made), s->made.len, true);
}

// --- SentencePiece's own

// Characters that byte pieces have completed; each byte of what is none becomes U+FFFD. last: no
// byte follows.
static int pass_byte_pieces(struct decoding *d, int i, bool last) {
    struct decode_state *s = &d->states[i];
    while (s->n_pending > 0 && (last || utf8_complete_len(s->pending, s->n_pending) > 0)) {
        bool valid;
        size_t n = utf8_next(s->pending, s->n_pending, &valid);
        if (!valid) n = 1;
        s->n += n;
        TRY(decoding_pass(d, i, valid ? s->pending : REPLACEMENT, valid ? n : 3, true));
        s->n_pending -= (unsigned)n;
        memmove(s->pending, s->pending + n, s->n_pending);
    }
    return 0;
}

// The space that encoding puts in front of a text goes again: once, or, where it takes extra spaces
// away, as long as nothing else has come.
static int sentencepiece(struct decoding *d, int i, const struct vocab *v,
                         const struct token *token) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    const char *bytes = vocab_bytes(v, token), *content = vocab_content(v, token);
    size_t len = token->bytes_len;
    if (token->flags & TOKEN_BYTE) {
        s->pending[s->n_pending++] = *bytes; // there were at most three
        return pass_byte_pieces(d, i, false);
    }
    TRY(pass_byte_pieces(d, i, true));
    bool at_start = !s->flag && s->n == 0, starts = strncmp(content, SPACE_SYMBOL, 3) == 0;
    if (step->flag && at_start && starts && token->flags & TOKEN_MODEL) {
        bytes++; // what the symbol has become is one space
        len--;
        if (!step->all) s->flag = true;
    }
    s->n += len;
    return decoding_pass(d, i, bytes, len, true);
}

// --- the chain

// Steps that need not see a string as a whole take its parts; true where this is one.
static bool takes_parts(const struct decode_step *s) {
    switch (s->kind) {
    case DECODE_FUSE:
    case DECODE_METASPACE:
        return true;
    case DECODE_STRIP:
        return s->stop == 0;
    case DECODE_REPLACE: // one character never lies across a border of parts
        return s->flag;
    default:
        return false;
    }
}

static int strip_part(struct decoding *d, int i, const char *part, size_t len, bool end) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    size_t size = strlen(step->content);
    while (s->n < step->start && len >= size && memcmp(part, step->content, size) == 0) {
        part += size;
        len -= size;
        s->n++;
    }
    if (len > 0) s->n = step->start; // something else has come
    if (end) s->n = 0;
    return decoding_pass(d, i, part, len, end);
}

static int take_part(struct decoding *d, int i, const char *part, size_t len, bool end) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    if (step->kind == DECODE_FUSE) return decoding_pass(d, i, part, len, false);
    if (step->kind == DECODE_STRIP) return strip_part(d, i, part, len, end);
    const char *with = step->kind == DECODE_REPLACE ? step->content
                       : step->flag && s->n == 0    ? ""
                                                    : " ";
    buf_reset(&s->made);
    TRY(decode_replace(&s->made, part, len,
                       step->kind == DECODE_REPLACE ? step->pattern.literal : step->content, with));
    if (end) s->n++;
    return decoding_pass(d, i, buf_z(&s->made), s->made.len, end);
}

static int take(struct decoding *d, int i, const char *part, size_t len, bool end) {
    struct decode_state *s = &d->states[i];
    if (i == d->decoder->n_steps) return buf_add(d->out, part, len);
    if (takes_parts(&d->decoder->steps[i])) return take_part(d, i, part, len, end);
    if (!end || s->held.len) TRY(buf_add(&s->held, part, len));
    if (!end) return 0;
    if (s->held.len == 0) return decode_string(d, i, part, len);
    int rc = decode_string(d, i, buf_z(&s->held), s->held.len);
    buf_reset(&s->held);
    return rc;
}

int decoding_pass(struct decoding *d, int i, const char *s, size_t len, bool end) {
    return take(d, i + 1, s, len, end);
}

void decoding_start(struct decoding *d, const struct decoder *decoder) {
    d->decoder = decoder;
    for (int i = 0; i < DECODER_MAX_STEPS; i++) {
        struct decode_state *s = &d->states[i];
        s->held.max = s->last.max = s->made.max = SIZE_MAX;
        buf_reset(&s->held);
        buf_reset(&s->last);
        buf_reset(&s->made);
        s->n = s->n_pending = 0;
        s->flag = false;
    }
}

void decoding_release(struct decoding *d) {
    for (int i = 0; i < DECODER_MAX_STEPS; i++) {
        buf_release(&d->states[i].held);
        buf_release(&d->states[i].last);
        buf_release(&d->states[i].made);
    }
    *d = (struct decoding){0};
}

int decoding_token(struct decoding *d, const struct vocab *v, const struct token *token,
                   struct buf *out) {
    d->out = out;
    if (d->decoder->n_steps == 1 && d->decoder->steps[0].kind == DECODE_SENTENCEPIECE)
        return sentencepiece(d, 0, v, token);
    if (decoder_is_byte_level(d->decoder)) // the vocabulary has the bytes at hand
        return decoding_pass_bytes(d, 0, vocab_bytes(v, token), token->bytes_len);
    return take(d, 0, vocab_content(v, token), token->content_len, true);
}

int decoding_end(struct decoding *d, struct buf *out) {
    d->out = out;
    for (int i = 0; i < d->decoder->n_steps; i++) {
        switch (d->decoder->steps[i].kind) {
        case DECODE_SENTENCEPIECE:
            TRY(pass_byte_pieces(d, i, true));
            break;
        case DECODE_BYTE_LEVEL:
            TRY(end_bytes(d, i));
            break;
        default:
            TRY(decode_end(d, i));
        }
    }
    decoding_start(d, d->decoder);
    return 0;
}

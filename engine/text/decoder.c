// See decoder.h. The references are Hugging Face tokenizers' decoders, and SentencePiece's decoder
// for its own files.
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

// --- from step to step

// Hands what step i made to the next one, or out. end: the string ends here.
static int pass(struct decoding *d, int i, const char *s, size_t len, bool end);

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
    TRY(buf_add_utf8(to, joined, whole));
    *used = whole ? whole - n : more;
    s->n_pending = whole ? 0 : (unsigned)(n + more);
    memcpy(s->pending, joined, s->n_pending);
    return 0;
}

// Parts of one string that need not be whole characters: passes on those that are.
static int pass_bytes(struct decoding *d, int i, const char *bytes, size_t len) {
    struct decode_state *s = &d->states[i];
    struct buf *to = i + 1 == d->decoder->n_steps ? d->out : &s->made;
    size_t used = 0;
    buf_reset(&s->made);
    if (s->n_pending) TRY(finish_pending(s, bytes, len, &used, to));
    if (s->n_pending == 0) {
        bytes += used;
        len -= used;
        size_t whole = utf8_complete_len(bytes, len);
        TRY(buf_add_utf8(to, bytes, whole));
        s->n_pending = (unsigned)(len - whole);
        memcpy(s->pending, bytes + whole, s->n_pending);
    }
    return to == d->out ? 0 : pass(d, i, buf_z(to), to->len, false);
}

static int end_bytes(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    buf_reset(&s->made);
    TRY(buf_add_utf8(&s->made, s->pending, s->n_pending));
    s->n_pending = 0;
    return pass(d, i, buf_z(&s->made), s->made.len, true);
}

// --- SentencePiece's own

// Passes on the characters that byte pieces have completed; each byte of an invalid one becomes
// U+FFFD. last: no byte follows.
static int pass_byte_pieces(struct decoding *d, int i, bool last) {
    struct decode_state *s = &d->states[i];
    while (s->n_pending > 0 && (last || utf8_complete_len(s->pending, s->n_pending) > 0)) {
        bool valid;
        size_t n = utf8_next(s->pending, s->n_pending, &valid);
        if (!valid) n = 1;
        s->n += n;
        TRY(pass(d, i, valid ? s->pending : REPLACEMENT, valid ? n : 3, true));
        s->n_pending -= (unsigned)n;
        memmove(s->pending, s->pending + n, s->n_pending);
    }
    return 0;
}

// Removes the space that encoding adds at the start of a text: once, or, if encoding removes extra
// spaces, all spaces at the start.
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
        bytes++; // the symbol has become one space
        len--;
        if (!step->all) s->flag = true;
    }
    s->n += len;
    return pass(d, i, bytes, len, true);
}

// --- steps over whole strings

static int pass_made(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    TRY(s->made.error);
    return pass(d, i, buf_z(&s->made), s->made.len, true);
}

// A run of byte tokens is over.
static int end_byte_run(struct decoding *d, int i) {
    struct buf *run = &d->states[i].last;
    size_t n = run->len;
    if (n == 0) return 0;
    run->len = 0; // the bytes stay in the buffer
    if (utf8_valid(run->data, n)) return pass(d, i, run->data, n, true);
    while (n-- > 0) TRY(pass(d, i, REPLACEMENT, 3, true));
    return 0;
}

static int byte_fallback(struct decoding *d, int i, const char *s, size_t len) {
    int byte = decode_byte_token(s, len);
    if (byte >= 0) return buf_addc(&d->states[i].last, (char)byte);
    TRY(end_byte_run(d, i));
    return pass(d, i, s, len, true);
}

// The last token's suffix is removed, so each token waits for the next one.
static int bpe(struct decoding *d, int i, const char *text, size_t len) {
    struct decode_state *s = &d->states[i];
    if (s->n++ > 0)
        TRY(decode_replace(&s->made, buf_z(&s->last), s->last.len, d->decoder->steps[i].content,
                           " "));
    buf_reset(&s->last);
    TRY(buf_add(&s->last, text, len));
    return s->n > 1 ? pass_made(d, i) : 0;
}

static int ctc(struct decoding *d, int i, const char *text, size_t len) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    if (s->n++ > 0 && s->last.len == len && memcmp(buf_z(&s->last), text, len) == 0) return 0;
    buf_reset(&s->last);
    TRY(buf_add(&s->last, text, len));
    TRY(decode_replace(&s->made, text, len, step->content, ""));
    if (step->flag) {
        struct buf spaced;
        TRY(decode_clean_up(&s->made));
        buf_init(&spaced, SIZE_MAX);
        int rc = decode_replace(&spaced, buf_z(&s->made), s->made.len, step->delimiter, " ");
        buf_release(&s->made);
        s->made = spaced;
        TRY(rc);
    }
    return s->made.len ? pass_made(d, i) : 0;
}

static int decode_string(struct decoding *d, int i, const char *text, size_t len) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    buf_reset(&s->made);
    switch (step->kind) {
    case DECODE_REPLACE:
        TRY(decode_replace_pattern(step, text, len, &s->made));
        return pass_made(d, i);
    case DECODE_BYTE_LEVEL:
        buf_reset(&s->last);
        TRY(decode_byte_level(&s->last, text, len));
        return pass_bytes(d, i, buf_z(&s->last), s->last.len);
    case DECODE_BYTE_FALLBACK:
        return byte_fallback(d, i, text, len);
    case DECODE_STRIP:
        decode_strip(step, &text, &len);
        return pass(d, i, text, len, true);
    case DECODE_WORD_PIECE:
        TRY(decode_word_piece(step, s, text, len));
        return pass_made(d, i);
    case DECODE_BPE:
        return bpe(d, i, text, len);
    case DECODE_CTC:
        return ctc(d, i, text, len);
    case DECODE_SPACES:
        if (s->n++ > 0) buf_addc(&s->made, ' ');
        TRY(buf_add(&s->made, text, len));
        return pass_made(d, i);
    default:
        return E_INTERNAL; // the others take their strings in parts
    }
}

static int decode_end(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    switch (d->decoder->steps[i].kind) {
    case DECODE_FUSE:
        return pass(d, i, "", 0, true);
    case DECODE_BYTE_FALLBACK:
        return end_byte_run(d, i);
    case DECODE_BPE:
        if (s->n == 0) return 0;
        buf_reset(&s->made);
        TRY(decode_replace(&s->made, buf_z(&s->last), s->last.len, d->decoder->steps[i].content,
                           ""));
        return pass_made(d, i);
    default:
        return 0;
    }
}

// --- the chain

// Whether the step can process a string in parts.
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
    if (len > 0) s->n = step->start; // another character has come
    if (end) s->n = 0;
    return pass(d, i, part, len, end);
}

static int take_part(struct decoding *d, int i, const char *part, size_t len, bool end) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    if (step->kind == DECODE_FUSE) return pass(d, i, part, len, false);
    if (step->kind == DECODE_STRIP) return strip_part(d, i, part, len, end);
    const char *with = step->kind == DECODE_REPLACE ? step->content
                       : step->flag && s->n == 0    ? ""
                                                    : " ";
    buf_reset(&s->made);
    TRY(decode_replace(&s->made, part, len,
                       step->kind == DECODE_REPLACE ? step->pattern.literal : step->content, with));
    if (end) s->n++;
    return pass(d, i, buf_z(&s->made), s->made.len, end);
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

static int pass(struct decoding *d, int i, const char *s, size_t len, bool end) {
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
    if (decoder_is_byte_level(d->decoder)) // the vocabulary has the bytes
        return pass_bytes(d, 0, vocab_bytes(v, token), token->bytes_len);
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

// The decoder's steps over whole strings. See decoder.h for what they do, decoder.c for how they
// are run.
#include "engine/text/decoder_steps.h"
#include "base/utf8.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/char_class.h"
#include <ctype.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

int decode_byte_token(const char *s, size_t len) {
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        if (!isxdigit((unsigned char)s[i])) return -1;
        int digit = tolower((unsigned char)s[i]);
        value = value * 16 + (isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    return value;
}

int decode_replace(struct buf *out, const char *s, size_t len, const char *what, const char *with) {
    size_t what_len = strlen(what), with_len = strlen(with);
    const char *end = s + len, *found;
    while (what_len && (found = memmem(s, (size_t)(end - s), what, what_len))) {
        buf_add(out, s, (size_t)(found - s));
        TRY(buf_add(out, with, with_len));
        s = found + what_len;
    }
    return buf_add(out, s, (size_t)(end - s));
}

// What a tokenizer of English words put spaces around. In place, one rule over the whole text after
// another.
static int clean_up(struct buf *text) {
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct buf next;
        buf_init(&next, SIZE_MAX);
        int rc = decode_replace(&next, buf_z(text), text->len, rules[i][0], rules[i][1]);
        buf_release(text);
        *text = next;
        TRY(rc);
    }
    return 0;
}

static int pass_made(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    TRY(s->made.error);
    return decoding_pass(d, i, buf_z(&s->made), s->made.len, true);
}

static int replace_pattern(const struct decode_step *step, const char *s, size_t len,
                           struct buf *out) {
    struct matcher m;
    size_t from, to, done = 0;
    int rc;
    TRY(matcher_init(&m, &step->pattern, len, NULL));
    struct match_walk walk = {.matcher = &m, .text = s, .len = len};
    while ((rc = match_walk_next(&walk, &from, &to, NULL)) > 0) {
        buf_add(out, s + done, from - done);
        buf_addz(out, step->content);
        done = to;
    }
    matcher_release(&m);
    return rc < 0 ? rc : buf_add(out, s + done, len - done);
}

// A run of byte tokens is over.
static int end_byte_run(struct decoding *d, int i) {
    struct buf *run = &d->states[i].last;
    size_t n = run->len;
    if (n == 0) return 0;
    run->len = 0; // the bytes stay where they are
    if (utf8_valid(run->data, n)) return decoding_pass(d, i, run->data, n, true);
    while (n-- > 0) TRY(decoding_pass(d, i, REPLACEMENT, 3, true));
    return 0;
}

static int byte_fallback(struct decoding *d, int i, const char *s, size_t len) {
    int byte = decode_byte_token(s, len);
    if (byte >= 0) return buf_addc(&d->states[i].last, (char)byte);
    TRY(end_byte_run(d, i));
    return decoding_pass(d, i, s, len, true);
}

static void strip(const struct decode_step *step, const char **s, size_t *len) {
    size_t size = strlen(step->content);
    for (size_t n = 0; n < step->start && *len >= size && memcmp(*s, step->content, size) == 0;
         n++) {
        *s += size;
        *len -= size;
    }
    for (size_t n = 0;
         n < step->stop && *len >= size && memcmp(*s + *len - size, step->content, size) == 0; n++)
        *len -= size;
}

static int word_piece(const struct decode_step *step, struct decode_state *s, const char *text,
                      size_t len) {
    size_t prefix = strlen(step->content);
    bool joins = len >= prefix && memcmp(text, step->content, prefix) == 0;
    if (s->n++ > 0 && joins) {
        text += prefix;
        len -= prefix;
    } else if (s->n > 1) {
        buf_addc(&s->made, ' ');
    }
    TRY(buf_add(&s->made, text, len));
    return step->flag ? clean_up(&s->made) : 0;
}

// The last token's suffix becomes nothing, so each waits for the one behind it.
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
        TRY(clean_up(&s->made));
        buf_init(&spaced, SIZE_MAX);
        int rc = decode_replace(&spaced, buf_z(&s->made), s->made.len, step->delimiter, " ");
        buf_release(&s->made);
        s->made = spaced;
        TRY(rc);
    }
    return s->made.len ? pass_made(d, i) : 0;
}

static int byte_level(struct buf *out, const char *text, size_t len) {
    TRY(buf_reserve(out, len));
    ptrdiff_t n = byte_alphabet_decode(text, len, out->data);
    if (n < 0) return buf_add(out, text, len);
    out->len = (size_t)n;
    return 0;
}

int decode_string(struct decoding *d, int i, const char *text, size_t len) {
    const struct decode_step *step = &d->decoder->steps[i];
    struct decode_state *s = &d->states[i];
    buf_reset(&s->made);
    switch (step->kind) {
    case DECODE_REPLACE:
        TRY(replace_pattern(step, text, len, &s->made));
        return pass_made(d, i);
    case DECODE_BYTE_LEVEL:
        buf_reset(&s->last);
        TRY(byte_level(&s->last, text, len));
        return decoding_pass_bytes(d, i, buf_z(&s->last), s->last.len);
    case DECODE_BYTE_FALLBACK:
        return byte_fallback(d, i, text, len);
    case DECODE_STRIP:
        strip(step, &text, &len);
        return decoding_pass(d, i, text, len, true);
    case DECODE_WORD_PIECE:
        TRY(word_piece(step, s, text, len));
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

int decode_end(struct decoding *d, int i) {
    struct decode_state *s = &d->states[i];
    switch (d->decoder->steps[i].kind) {
    case DECODE_FUSE:
        return decoding_pass(d, i, "", 0, true);
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

// --- one token by itself

static int in_midst(const struct decode_step *step, struct decode_state *s, bool joined,
                    const char *text, size_t len) {
    switch (step->kind) {
    case DECODE_METASPACE:
        return decode_replace(&s->made, text, len, step->content, " ");
    case DECODE_BPE:
        return decode_replace(&s->made, text, len, step->content, " ");
    case DECODE_REPLACE:
        return replace_pattern(step, text, len, &s->made);
    case DECODE_BYTE_LEVEL:
        return byte_level(&s->made, text, len);
    case DECODE_WORD_PIECE:
        s->n = 1;
        return word_piece(step, s, text, len);
    case DECODE_STRIP:
        if (!joined) strip(step, &text, &len);
        return buf_add(&s->made, text, len);
    default:
        return buf_add(&s->made, text, len);
    }
}

int decoder_token_bytes(const struct decoder *d, const char *text, size_t len, struct buf *out,
                        struct err *err) {
    struct decode_state s = {.made.max = SIZE_MAX};
    bool joined = false;
    int rc = buf_add(out, text, len);
    for (int i = 0; i < d->n_steps && rc == 0; i++) {
        int byte =
            d->steps[i].kind == DECODE_BYTE_FALLBACK ? decode_byte_token(buf_z(out), out->len) : -1;
        if (byte >= 0) {
            buf_reset(out);
            rc = buf_addc(out, (char)byte);
            break;
        }
        buf_reset(&s.made);
        rc = in_midst(&d->steps[i], &s, joined, buf_z(out), out->len);
        buf_reset(out);
        if (rc == 0) rc = buf_add(out, buf_z(&s.made), s.made.len);
        if (d->steps[i].kind == DECODE_FUSE) joined = true;
    }
    buf_release(&s.made);
    return rc < 0 ? err_set(err, rc, "no memory for the bytes of a token") : 0;
}

// The rules of the decoder's steps. See decoder_steps.h; decoder.c runs the steps.
#include "engine/text/decoder_steps.h"
#include "engine/text/byte_alphabet.h"
#include <ctype.h>
#include <string.h>

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

// Works in place, one rule over the whole text after another.
int decode_clean_up(struct buf *text) {
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

int decode_replace_pattern(const struct decode_step *step, const char *s, size_t len,
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

void decode_strip(const struct decode_step *step, const char **s, size_t *len) {
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

int decode_word_piece(const struct decode_step *step, struct decode_state *s, const char *text,
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
    return step->flag ? decode_clean_up(&s->made) : 0;
}

int decode_byte_level(struct buf *out, const char *text, size_t len) {
    TRY(buf_reserve(out, len));
    ptrdiff_t n = byte_alphabet_decode(text, len, out->data);
    if (n < 0) return buf_add(out, text, len);
    out->len = (size_t)n;
    return 0;
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
        return decode_replace_pattern(step, text, len, &s->made);
    case DECODE_BYTE_LEVEL:
        return decode_byte_level(&s->made, text, len);
    case DECODE_WORD_PIECE:
        s->n = 1;
        return decode_word_piece(step, s, text, len);
    case DECODE_STRIP:
        if (!joined) decode_strip(step, &text, &len);
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

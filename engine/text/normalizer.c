// See normalizer.h.
#include "engine/text/normalizer.h"
#include <stdlib.h>
#include <string.h>

void normalizer_release(struct normalizer *n) {
    for (int i = 0; i < NORMALIZER_MAX_STEPS; i++) { // a step that failed half-way is not counted
        struct normalize_step *s = &n->steps[i];
        pattern_release(&s->pattern);
        free(s->content);
        charsmap_release(&s->charsmap);
    }
    *n = (struct normalizer){0};
}

static int replace(const struct normalize_step *s, struct rewrite *r, struct err *err) {
    struct matcher m;
    TRY(matcher_init(&m, &s->pattern, r->len, err));
    struct match_walk walk = {.matcher = &m, .text = r->text, .len = r->len};
    size_t from, to, content_len = strlen(s->content);
    int rc;
    while ((rc = match_walk_next(&walk, &from, &to, err)) > 0) {
        TRY_GOTO(out, rewrite_copy(r, from - r->done));
        TRY_GOTO(out, rewrite_put(r, to - from, s->content, content_len));
    }
out:
    matcher_release(&m);
    return rc;
}

static int apply_step(const struct normalize_step *s, struct rewrite *r, struct err *err) {
    switch (s->kind) {
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD:
        return normal_form_apply((enum normal_form)(s->kind - NORMALIZE_NFC), r);
    case NORMALIZE_STRIP:
        return normalize_strip(s, r);
    case NORMALIZE_PREPEND:
        return r->len && !r->bare ? rewrite_put(r, 0, s->content, strlen(s->content)) : 0;
    case NORMALIZE_REPLACE:
        return replace(s, r, err);
    case NORMALIZE_CHARSMAP:
        return normalize_charsmap(s, r);
    case NORMALIZE_SENTENCEPIECE:
        return normalize_sentencepiece(s, r);
    default:
        return normalize_chars(s->kind, r);
    }
}

bool normalizer_puts_space(const struct normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) {
        const struct normalize_step *s = &n->steps[i];
        if (s->kind == NORMALIZE_SENTENCEPIECE && s->add_dummy_prefix) return true;
        if (s->kind == NORMALIZE_PREPEND &&
            (strcmp(s->content, " ") == 0 || strcmp(s->content, "\u2581") == 0))
            return true;
    }
    return false;
}

int normalizer_apply(const struct normalizer *n, const char *text, size_t len, struct buf *out,
                     struct text_span *spans, size_t n_spans, bool bare, bool *at_start,
                     struct err *err) {
    struct err why = {0};
    struct buf input;
    size_t given = len, most = NORMALIZED_MAX_BYTES(len);
    int rc = 0;
    buf_init(&input, SIZE_MAX);
    bool start = at_start ? *at_start : true;
    for (int i = 0; i < n->n_steps && rc == 0; i++) {
        if (i > 0) { // the last step's result is the next one's input
            struct buf swap = input;
            input = *out;
            *out = swap;
            text = buf_z(&input);
            len = input.len;
        }
        struct rewrite r;
        out->max = most;
        buf_reset(out);
        rewrite_init(&r, text, len, out, spans, n_spans);
        r.at_start = start;
        r.bare = bare;
        rc = apply_step(&n->steps[i], &r, &why);
        if (rc == 0) rc = rewrite_end(&r);
        start = r.at_start;
    }
    if (at_start) *at_start = start;
    buf_release(&input);
    if (rc == 0) return 0;
    if (why.code) return err_set(err, rc, "%s", why.text);
    if (rc == E_LIMIT)
        return err_set(err, rc, "the tokenizer's normalizer makes more than %zu bytes of %zu", most,
                       given);
    return err_set(err, rc, "the text of %zu bytes cannot be normalised: no memory", given);
}

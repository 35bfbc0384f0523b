// See pre_tokenizer.h. Nothing is collected between the steps: each piece goes on to the next step
// as soon as its end is known, so memory does not grow with the text.
#include "engine/text/pre_tokenizer.h"
#include "engine/text/char_class.h"
#include "engine/text/onig_pattern.h"
#include <stdlib.h>
#include <string.h>

// --- building
// ---------------------------------------------------------------------------------------------

static int compile(struct pre_step *step, const char *pattern, struct err *err) {
    struct buf translated;
    buf_init(&translated, 64 * ONIG_PATTERN_MAX);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int rc = onig_pattern_translate(pattern, &translated, err), code;
    if (rc == 0 && !context)
        rc = err_set(err, E_NOMEM, "no memory for the pattern '%.60s'", pattern);
    if (rc < 0) goto out;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    PCRE2_SIZE at;
    step->code = pcre2_compile((PCRE2_SPTR)buf_z(&translated), translated.len,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at, context);
    if (!step->code) {
        char why[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        rc = err_set(err, E_UNSUPPORTED, "pattern '%.60s' is not understood: %s", pattern, why);
        goto out;
    }
    step->jit =
        pcre2_jit_compile(step->code, PCRE2_JIT_COMPLETE) == 0; // without it: the same, slower
out:
    pcre2_compile_context_free(context);
    buf_release(&translated);
    return rc;
}

int pre_tokenizer_add(struct pre_tokenizer *p, enum pre_kind kind, const char *pattern,
                      enum pre_behavior behavior, bool invert, struct err *err) {
    if (p->n_steps == PRE_MAX_STEPS)
        return err_set(err, E_LIMIT, "pre_tokenizer: more than %d steps", PRE_MAX_STEPS);
    struct pre_step *step = &p->steps[p->n_steps];
    *step = (struct pre_step){.kind = kind, .behavior = behavior, .invert = invert};
    if (kind == PRE_PATTERN) TRY(compile(step, pattern, err));
    if (kind == PRE_LITERAL) {
        step->literal_len = strlen(pattern);
        if (step->literal_len == 0)
            return err_set(err, E_FORMAT, "pre_tokenizer: Split by an empty string");
        step->literal = strdup(pattern);
        if (!step->literal) return err_set(err, E_NOMEM, "no memory for a pre-tokeniser");
    }
    p->n_steps++;
    return 0;
}

void pre_tokenizer_release(struct pre_tokenizer *p) {
    for (int i = 0; i < p->n_steps; i++) {
        pcre2_code_free(p->steps[i].code);
        free(p->steps[i].literal);
    }
    *p = (struct pre_tokenizer){0};
}

// --- one step's cutting
// -----------------------------------------------------------------------------------

static int run_step(struct pre_run *r, int i, const char *text, size_t len);

// Receives a text's matches and gaps in order, and passes on pieces as the behaviour shapes them.
struct cutter {
    struct pre_run *run;
    int step;
    const char *text;
    size_t from, to; // a piece that may still grow
    bool holding, held_match, last_match;
};

static int pass_on(struct cutter *c, size_t from, size_t to) {
    return from == to ? 0 : run_step(c->run, c->step + 1, c->text + from, to - from);
}

static int release_held(struct cutter *c) {
    if (!c->holding) return 0;
    c->holding = false;
    return pass_on(c, c->from, c->to);
}

static int hold(struct cutter *c, size_t from, size_t to, bool match) {
    TRY(release_held(c));
    c->from = from;
    c->to = to;
    c->held_match = match;
    c->holding = true;
    return 0;
}

static int cut(struct cutter *c, size_t from, size_t to, bool match) {
    const struct pre_step *step = &c->run->pre->steps[c->step];
    bool last_match = c->last_match;
    if (step->invert) match = !match;
    c->last_match = match;
    switch (step->behavior) {
    case PRE_ISOLATED:
        return pass_on(c, from, to);
    case PRE_REMOVED:
        return match ? 0 : pass_on(c, from, to);
    case PRE_WITH_PREVIOUS: // a match joins the gap before it; one after another match stands alone
        if (!match || last_match || !c->holding) return hold(c, from, to, match);
        c->to = to;
        return 0;
    case PRE_WITH_NEXT: // a match waits for the gap behind it
        if (match) return hold(c, from, to, match);
        if (c->holding) from = c->from;
        c->holding = false;
        return pass_on(c, from, to);
    case PRE_CONTIGUOUS:
        if (!c->holding || match != c->held_match) return hold(c, from, to, match);
        c->to = to;
        return 0;
    }
    return 0;
}

// 1 with the match in *from, *to; 0: none.
static int match_pattern(struct pre_run *r, int i, const char *text, size_t len, size_t start,
                         size_t *from, size_t *to) {
    const struct pre_step *step = &r->pre->steps[i];
    pcre2_match_data *data = r->matches[i];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (step->jit) rc = pcre2_jit_match(step->code, subject, len, start, 0, data, r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its state on the heap
        rc = pcre2_match(step->code, subject, len, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                         r->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_set(r->err, E_NOMEM, "no memory for a pre-tokeniser's match");
    if (rc < 0)
        return err_set(r->err, E_LIMIT,
                       "the tokenizer's pattern backtracks too far in this text (PCRE2 code %d)",
                       rc);
    *from = pcre2_get_ovector_pointer(data)[0];
    *to = pcre2_get_ovector_pointer(data)[1];
    return 1;
}

static int cut_by_pattern(struct cutter *c, size_t len) {
    size_t start = 0, done = 0, from = 0, to = 0;
    bool matched = false;
    int rc = 0;
    while (start <= len &&
           (rc = match_pattern(c->run, c->step, c->text, len, start, &from, &to)) > 0) {
        // An empty match right behind the last one is none: look on from the next character.
        if (from == to && matched && to == done) {
            start = to < len ? to + char_utf8_len(c->text + to) : len + 1;
            continue;
        }
        if (done < from) TRY(cut(c, done, from, false));
        TRY(cut(c, from, to, true));
        matched = true;
        start = done = to;
    }
    TRY(rc);
    return done < len ? cut(c, done, len, false) : 0;
}

static int cut_by_literal(struct cutter *c, size_t len) {
    const struct pre_step *step = &c->run->pre->steps[c->step];
    const char *end = c->text + len, *p = c->text, *found;
    while ((found = memmem(p, (size_t)(end - p), step->literal, step->literal_len))) {
        if (p < found) TRY(cut(c, (size_t)(p - c->text), (size_t)(found - c->text), false));
        p = found + step->literal_len;
        TRY(cut(c, (size_t)(found - c->text), (size_t)(p - c->text), true));
    }
    return p < end ? cut(c, (size_t)(p - c->text), len, false) : 0;
}

static int cut_by_numeric(struct cutter *c, size_t len) {
    size_t done = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = char_utf8_len(c->text + i);
        if (!char_is_numeric(char_decode(c->text + i))) continue;
        if (done < i) TRY(cut(c, done, i, false));
        TRY(cut(c, i, i + n, true));
        done = i + n;
    }
    return done < len ? cut(c, done, len, false) : 0;
}

static int prefix_space(struct pre_run *r, int i, const char *text, size_t len) {
    if (*text == ' ') return run_step(r, i + 1, text, len);
    struct buf *b = &r->prefixed[i];
    buf_reset(b);
    buf_addc(b, ' ');
    if (buf_add(b, text, len) < 0)
        return err_set(r->err, b->error, "no memory for a piece of %zu bytes", len);
    return run_step(r, i + 1, b->data, b->len);
}

static int run_step(struct pre_run *r, int i, const char *text, size_t len) {
    if (i == r->pre->n_steps) return r->word(r->ctx, text, len);
    struct cutter c = {.run = r, .step = i, .text = text};
    switch (r->pre->steps[i].kind) {
    case PRE_PATTERN:
        TRY(cut_by_pattern(&c, len));
        break;
    case PRE_LITERAL:
        TRY(cut_by_literal(&c, len));
        break;
    case PRE_NUMERIC:
        TRY(cut_by_numeric(&c, len));
        break;
    case PRE_PREFIX_SPACE:
        return prefix_space(r, i, text, len);
    }
    return release_held(&c);
}

// --- a run
// ------------------------------------------------------------------------------------------------

int pre_run_init(struct pre_run *r, const struct pre_tokenizer *p, size_t text_len,
                 pre_word_fn word, void *ctx, struct err *err) {
    *r = (struct pre_run){.pre = p, .word = word, .ctx = ctx, .err = err};
    bool ok = (r->limits = pcre2_match_context_create(NULL)) != NULL;
    for (int i = 0; i < p->n_steps; i++) {
        buf_init(&r->prefixed[i], text_len + PRE_MAX_STEPS); // each step may add one space
        if (p->steps[i].kind != PRE_PATTERN) continue;
        r->matches[i] = pcre2_match_data_create(1, NULL);
        ok = ok && r->matches[i];
    }
    if (!ok) {
        pre_run_release(r);
        return err_set(err, E_NOMEM, "no memory for the pre-tokeniser");
    }
    // A sane pattern steps back over a run of spaces once; one that takes the text apart again and
    // again meets this bound instead of the end of time.
    size_t steps = 1000000 + 64 * (text_len < UINT32_MAX / 128 ? text_len : UINT32_MAX / 128);
    pcre2_set_match_limit(r->limits, (uint32_t)steps);
    pcre2_set_heap_limit(r->limits, 262144); // KiB, of the interpreter
    return 0;
}

void pre_run_release(struct pre_run *r) {
    for (int i = 0; i < PRE_MAX_STEPS; i++) {
        pcre2_match_data_free(r->matches[i]);
        buf_release(&r->prefixed[i]);
    }
    pcre2_match_context_free(r->limits);
    *r = (struct pre_run){0};
}

int pre_run(struct pre_run *r, const char *text, size_t len) {
    return len ? run_step(r, 0, text, len) : 0;
}

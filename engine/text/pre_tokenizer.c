// See pre_tokenizer.h. Each piece passes to the next step as soon as its end is known, so memory does
// not grow with the text.
#include "engine/text/pre_tokenizer.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/char_class.h"
#include <string.h>

// --- building ------------------------------------------------------------------------------------

struct pre_step *pre_tokenizer_add_step(struct pre_tokenizer *p, enum pre_kind kind,
                                        struct err *err) {
    if (p->n_steps == PRE_MAX_STEPS) {
        err_set(err, E_LIMIT, "pre_tokenizer: more than %d steps", PRE_MAX_STEPS);
        return NULL;
    }
    struct pre_step *step = &p->steps[p->n_steps++];
    *step = (struct pre_step){.kind = kind};
    return step;
}

int pre_tokenizer_add(struct pre_tokenizer *p, enum pre_kind kind, const char *pattern,
                      enum pre_behavior behavior, bool invert, struct err *err) {
    struct pre_step *step = pre_tokenizer_add_step(p, kind, err);
    if (!step) return E_LIMIT;
    step->behavior = behavior;
    step->invert = invert;
    if (!pattern) return 0;
    int rc = kind == PRE_PATTERN ? pattern_regex(&step->pattern, pattern, err)
                                 : pattern_literal(&step->pattern, pattern, err);
    if (rc < 0) p->n_steps--; // there is nothing to release in it
    return rc;
}

void pre_tokenizer_release(struct pre_tokenizer *p) {
    for (int i = 0; i < p->n_steps; i++) pattern_release(&p->steps[i].pattern);
    *p = (struct pre_tokenizer){0};
}

bool pre_tokenizer_puts_space(const struct pre_tokenizer *p) {
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].kind == PRE_PREFIX_SPACE ||
            (p->steps[i].kind == PRE_METASPACE && p->steps[i].prepend != PREPEND_NEVER))
            return true;
    return false;
}

// --- one step's cutting --------------------------------------------------------------------------

static int run_step(struct pre_run *r, int i, const char *text, size_t len, bool at_start);

// Receives a text's matches and gaps in order, and passes on pieces as the behaviour shapes them.
struct cutter {
    struct pre_run *run;
    int step;
    const char *text;
    bool at_start;
    size_t from, to; // a piece that may still grow
    bool holding, held_match, last_match;
};

static int pass_on(struct cutter *c, size_t from, size_t to) {
    return from == to
               ? 0
               : run_step(c->run, c->step + 1, c->text + from, to - from, c->at_start && from == 0);
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

static int cut_by_pattern(struct cutter *c, size_t len) {
    struct match_walk walk = {.matcher = &c->run->matchers[c->step], .text = c->text, .len = len};
    size_t done = 0, from, to;
    int rc;
    while ((rc = match_walk_next(&walk, &from, &to, c->run->err)) > 0) {
        if (done < from) TRY(cut(c, done, from, false));
        TRY(cut(c, from, to, true));
        done = to;
    }
    TRY(rc);
    return done < len ? cut(c, done, len, false) : 0;
}

static bool is_match(enum pre_kind kind, uint32_t c) {
    return kind == PRE_NUMERIC       ? char_is_numeric(c)
           : kind == PRE_WHITE_SPACE ? char_is_space(c)
                                     : char_is_punctuation(c);
}

static int cut_by_character(struct cutter *c, enum pre_kind kind, size_t len) {
    size_t done = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = char_utf8_len(c->text + i);
        if (!is_match(kind, char_decode(c->text + i))) continue;
        if (done < i) TRY(cut(c, done, i, false));
        TRY(cut(c, i, i + n, true));
        done = i + n;
    }
    return done < len ? cut(c, done, len, false) : 0;
}

static int cut_words(struct cutter *c, size_t len) {
    enum { SPACE, WORD, OTHER } run = SPACE, kind;
    size_t done = 0;
    for (size_t i = 0; i < len; i += char_utf8_len(c->text + i)) {
        uint32_t at = char_decode(c->text + i);
        kind = char_is_space(at) ? SPACE : char_is_word(at) ? WORD : OTHER;
        if (kind == run) continue;
        if (run != SPACE) TRY(pass_on(c, done, i));
        done = i;
        run = kind;
    }
    return run == SPACE ? 0 : pass_on(c, done, len);
}

static int cut_by_length(struct cutter *c, size_t length, size_t len) {
    size_t done = 0, n = 0;
    for (size_t i = 0; i < len; i += char_utf8_len(c->text + i), n++) {
        if (n < length) continue;
        TRY(pass_on(c, done, i));
        done = i;
        n = 0;
    }
    return pass_on(c, done, len);
}

// --- steps that rewrite a piece

static int no_memory(struct pre_run *r, int i, size_t len) {
    return err_set(r->err, r->changed[i].error, "no memory for a piece of %zu bytes", len);
}

static int prefix_space(struct pre_run *r, int i, const char *text, size_t len, bool at_start) {
    bool bare = r->bare;
    r->bare = false;
    if (*text == ' ' || bare) return run_step(r, i + 1, text, len, at_start);
    struct buf *b = &r->changed[i];
    buf_reset(b);
    buf_addc(b, ' ');
    if (buf_add(b, text, len) < 0) return no_memory(r, i, len);
    return run_step(r, i + 1, b->data, b->len, at_start);
}

static int byte_alphabet(struct pre_run *r, int i, const char *text, size_t len, bool at_start) {
    struct buf *b = &r->changed[i];
    buf_reset(b);
    for (size_t k = 0; k < len; k++) {
        char c[2];
        size_t n = byte_alphabet_encode((unsigned char)text[k], c);
        if (buf_add(b, c, n) < 0) return no_memory(r, i, len);
    }
    return run_step(r, i + 1, b->data, b->len, at_start);
}

static int metaspace(struct pre_run *r, int i, const char *text, size_t len, bool at_start) {
    const struct pre_step *step = &r->pre->steps[i];
    const char *symbol = step->pattern.literal, *end = text + len, *space;
    size_t size = step->pattern.literal_len;
    struct buf *b = &r->changed[i];
    bool starts = *text == ' ' || (len >= size && memcmp(text, symbol, size) == 0);
    buf_reset(b);
    bool bare = r->bare;
    r->bare = false;
    if (!starts && !bare &&
        (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && at_start)))
        buf_add(b, symbol, size);
    for (; (space = memchr(text, ' ', (size_t)(end - text))); text = space + 1) {
        buf_add(b, text, (size_t)(space - text));
        buf_add(b, symbol, size);
    }
    if (buf_add(b, text, (size_t)(end - text)) < 0) return no_memory(r, i, len);
    if (!step->split) return run_step(r, i + 1, b->data, b->len, at_start);
    for (const char *from = b->data, *to; from < b->data + b->len; from = to) {
        size_t left = (size_t)(b->data + b->len - from);
        to = left > 1 ? char_find(from + 1, left - 1, symbol, size) : NULL;
        if (!to) to = from + left;
        TRY(run_step(r, i + 1, from, (size_t)(to - from), at_start && from == b->data));
    }
    return 0;
}

static int run_step(struct pre_run *r, int i, const char *text, size_t len, bool at_start) {
    if (i == r->pre->n_steps) return r->word(r->ctx, text, len);
    const struct pre_step *step = &r->pre->steps[i];
    struct cutter c = {.run = r, .step = i, .text = text, .at_start = at_start};
    switch (step->kind) {
    case PRE_PATTERN:
    case PRE_LITERAL:
        TRY(cut_by_pattern(&c, len));
        break;
    case PRE_NUMERIC:
    case PRE_WHITE_SPACE:
    case PRE_PUNCTUATION:
        TRY(cut_by_character(&c, step->kind, len));
        break;
    case PRE_WORDS:
        return cut_words(&c, len);
    case PRE_FIXED_LENGTH:
        return cut_by_length(&c, step->length, len);
    case PRE_PREFIX_SPACE:
        return prefix_space(r, i, text, len, at_start);
    case PRE_METASPACE:
        return metaspace(r, i, text, len, at_start);
    case PRE_BYTE_ALPHABET:
        return byte_alphabet(r, i, text, len, at_start);
    }
    return release_held(&c);
}

// --- a run ---------------------------------------------------------------------------------------

int pre_run_init(struct pre_run *r, const struct pre_tokenizer *p, size_t text_len,
                 pre_word_fn word, void *ctx, struct err *err) {
    *r = (struct pre_run){.pre = p, .word = word, .ctx = ctx, .err = err};
    int rc = 0;
    for (int i = 0; i < p->n_steps && rc == 0; i++) {
        // Sane chains make a text three times as long
        buf_init(&r->changed[i], 16 * text_len + 1024);
        rc = matcher_init(&r->matchers[i], &p->steps[i].pattern, text_len, err);
    }
    if (rc < 0) pre_run_release(r);
    return rc;
}

void pre_run_release(struct pre_run *r) {
    for (int i = 0; i < PRE_MAX_STEPS; i++) {
        matcher_release(&r->matchers[i]);
        buf_release(&r->changed[i]);
    }
    *r = (struct pre_run){0};
}

int pre_run(struct pre_run *r, const char *text, size_t len, bool at_start) {
    return len ? run_step(r, 0, text, len, at_start) : 0;
}

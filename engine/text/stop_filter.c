// See stop_filter.h.
#include "engine/text/stop_filter.h"

int stop_filter_begin(struct stop_filter *f, const char *const *strings, int n_strings,
                      const struct stop_place *place) {
    bool calls = place->in == STOP_IN_TEXT && place->syntax.tools != TOOL_SYNTAX_NONE &&
                 place->syntax.tools != TOOL_SYNTAX_OTHER;
    bool parts = calls || (place->in >= STOP_IN_ANSWER && place->syntax.think_close);
    if (f->parses) answer_parser_release(&f->parser);
    f->parses = n_strings > 0 && parts;
    f->n_fed = f->armed_at = 0;
    if (f->parses) {
        answer_parser_init(&f->parser, place->syntax, NULL, place->thinks);
        f->parser.looks = calls; // the engine does not know the tools: any name is one
        if (place->goes_on && !place->thinks) f->parser.state = ANSWER_SPEAKS;
    }
    return stop_matcher_init(&f->matcher, strings, n_strings);
}

void stop_filter_release(struct stop_filter *f) {
    if (f->parses) answer_parser_release(&f->parser);
    f->parses = false;
}

// Text where stop strings apply, from byte number `at` of the answer on.
static int match(struct stop_filter *f, const char *text, size_t len, uint64_t at,
                 struct buf *out) {
    if (at < f->armed_at) {
        uint64_t early = f->armed_at - at;
        size_t n = early < len ? (size_t)early : len;
        TRY(stop_matcher_pass(&f->matcher, text, n, out));
        text += n;
        len -= n;
    }
    return stop_matcher_feed(&f->matcher, text, len, out);
}

// Text where they do not apply. What the matcher holds ends there.
static int skip(struct stop_filter *f, const char *text, size_t len, struct buf *out) {
    if (len == 0) return 0;
    TRY(stop_matcher_flush(&f->matcher, out));
    return buf_add(out, text, len);
}

// Passes on what the parser has decided about.
static int take_parts(struct stop_filter *f, struct buf *out) {
    struct answer_parser *p = &f->parser;
    const char *in = buf_z(&p->in);
    uint64_t begin = f->n_fed - p->in.len; // of `in` within the answer
    struct answer_piece piece;
    size_t given = p->from;
    int rc;
    while ((rc = answer_parser_next(p, &piece)) == 1) {
        if (piece.kind != PIECE_TEXT) continue;
        size_t at = (size_t)(piece.text - in);
        TRY(skip(f, in + given, at - given, out));
        rc = match(f, piece.text, piece.len, begin + at, out);
        if (rc != 0) return rc;
        given = at + piece.len;
    }
    return rc < 0 ? rc : skip(f, in + given, p->from - given, out);
}

int stop_filter_feed(struct stop_filter *f, const char *text, size_t len, bool early,
                     struct buf *out) {
    uint64_t at = f->n_fed;
    if (f->matcher.matched >= 0) return 1; // text behind it is dropped
    f->n_fed += len;
    if (early) f->armed_at = f->n_fed;
    if (!f->parses) return match(f, text, len, at, out);
    answer_parser_feed(&f->parser, text, len);
    return take_parts(f, out);
}

int stop_filter_flush(struct stop_filter *f, struct buf *out) {
    struct answer_parser *p = &f->parser;
    if (f->parses && f->matcher.matched < 0) {
        answer_parser_end(p);
        int rc = take_parts(f, out);
        if (rc != 0) return rc < 0 ? rc : 0;
        TRY(skip(f, buf_z(&p->in) + p->from, p->in.len - p->from, out));
        p->from = p->in.len;
    }
    return stop_matcher_flush(&f->matcher, out);
}

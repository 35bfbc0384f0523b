// See jinja_form.h. The normal form is never stored: its tokens are hashed (FNV-1a, 64 bits) as
// they are read, each with its kind before and a separator behind, so that no two sequences run
// together.
#include "engine/text/jinja_form.h"
#include "base/err.h"
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define MAX_TOKENS 512 // in one tag; the longest published ones have under 100

enum kind { NAME, NUMBER, STRING, OPERATOR };

struct token {
    enum kind kind;
    const char *s; // of the text; a string's without its quotes
    size_t len;
};
struct reader {
    struct jinja_form *form;
    const char *p, *end;
    struct buf fixed; // text that the template prints as it is, up to the next tag that is not such
                      // text too
    bool captured;
    struct token tokens[MAX_TOKENS];
    int n;
};

static void hash_byte(struct jinja_form *f, unsigned char byte) {
    f->fingerprint = (f->fingerprint ^ byte) * 0x100000001b3u;
}

static void hash(struct jinja_form *f, char kind, const char *s, size_t len) {
    hash_byte(f, (unsigned char)kind);
    for (size_t i = 0; i < len; i++) hash_byte(f, (unsigned char)s[i]);
    hash_byte(f, 0);
}

// --- fixed text
// -------------------------------------------------------------------------------------------

static int flush_fixed(struct reader *r) {
    static const char before[] = "<|im_start|>system\n", after[] = "<|im_end|>\n";
    size_t n_before = sizeof before - 1, n_after = sizeof after - 1, len = r->fixed.len;
    if (len == 0) return r->fixed.error;
    const char *s = r->fixed.data;
    if (!r->captured && len > n_before + n_after && memcmp(s, before, n_before) == 0 &&
        memcmp(s + len - n_after, after, n_after) == 0 &&
        !memmem(s + n_before, len - n_before - n_after, "<|", 2)) {
        r->captured = true;
        TRY(buf_add(&r->form->default_system, s + n_before, len - n_before - n_after));
        hash(r->form, 'S', "", 0);
    } else {
        hash(r->form, 'D', s, len);
    }
    buf_reset(&r->fixed);
    return 0;
}

// A string's characters: Python's escapes, of which templates use these.
static void add_string(struct buf *out, const struct token *t) {
    static const char letters[] = "ntr\\'\"", meant[] = "\n\t\r\\'\"";
    for (size_t i = 0; i < t->len; i++) {
        const char *letter = NULL;
        if (t->s[i] == '\\' && i + 1 < t->len) letter = strchr(letters, t->s[i + 1]);
        if (letter) i++;
        buf_addc(out, letter ? meant[letter - letters] : t->s[i]);
    }
}

// --- tags
// -------------------------------------------------------------------------------------------------

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static int lex_one(struct reader *r) {
    struct token *t = &r->tokens[r->n];
    *t = (struct token){.kind = OPERATOR, .s = r->p, .len = 1};
    if (*r->p == '\'' || *r->p == '"') {
        const char quote = *r->p++;
        t->kind = STRING;
        t->s = r->p;
        for (; r->p < r->end && *r->p != quote; r->p++)
            if (*r->p == '\\') r->p++;
        if (r->p >= r->end) return E_FORMAT;
        t->len = (size_t)(r->p++ - t->s);
    } else if (is_name(*r->p)) {
        t->kind = isdigit((unsigned char)*r->p) ? NUMBER : NAME;
        while (r->p < r->end && is_name(*r->p)) r->p++;
        t->len = (size_t)(r->p - t->s);
    } else {
        static const char pairs[][3] = {"==", "!=", "<=", ">=", "//", "**"};
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            if (r->end - r->p > 1 && memcmp(r->p, pairs[i], 2) == 0) t->len = 2;
        r->p += t->len;
    }
    r->n++;
    return 0;
}

// The tokens of a tag up to its end (`%}` or `}}`, perhaps with a sign); *sign is that sign or 0.
static int lex_tag(struct reader *r, const char *close, char *sign) {
    int depth = 0; // of brackets: a dictionary may end in }}
    for (r->n = 0;;) {
        while (r->p < r->end && isspace((unsigned char)*r->p)) r->p++;
        if (r->end - r->p < 2) return E_FORMAT;
        *sign = *r->p == '-' || *r->p == '+' ? *r->p : 0;
        if (depth == 0 && r->end - r->p >= 2 + (*sign != 0) &&
            memcmp(r->p + (*sign != 0), close, 2) == 0) {
            r->p += 2 + (*sign != 0);
            return 0;
        }
        if (strchr("([{", *r->p)) depth++;
        if (strchr(")]}", *r->p)) depth--;
        if (r->n == MAX_TOKENS) return E_FORMAT;
        TRY(lex_one(r));
    }
}

static bool is_op(const struct token *t, const char *op) {
    return t->kind == OPERATOR && t->len == strlen(op) && memcmp(t->s, op, t->len) == 0;
}

// Tokens [from, to), with message.role written as message['role'].
static void hash_tokens(struct reader *r, char kind, int from, int to) {
    hash(r->form, kind, "", 0);
    for (int i = from; i < to; i++) {
        const struct token *t = &r->tokens[i];
        bool attribute = is_op(t, ".") && i > from && i + 1 < to && t[1].kind == NAME &&
                         t[-1].kind != NUMBER && !(i + 2 < to && is_op(t + 2, "("));
        if (attribute) {
            hash(r->form, OPERATOR, "[", 1);
            hash(r->form, STRING, t[1].s, t[1].len);
            hash(r->form, OPERATOR, "]", 1);
            i++;
        } else if (t->kind == STRING) {
            struct buf s;
            buf_init(&s, SIZE_MAX);
            add_string(&s, t);
            hash(r->form, STRING, buf_z(&s), s.len);
            if (s.error) r->fixed.error = s.error; // sticky: the flush at the end reports it
            buf_release(&s);
        } else {
            hash(r->form, (char)t->kind, t->s, t->len);
        }
    }
}

// Whether a + at the top of the expression joins what is printed: no operator there that binds more
// loosely.
static bool is_sum(const struct reader *r) {
    static const char *const looser[] = {"if", "else", "and", "or", "not", "in", "is"};
    int depth = 0;
    for (int i = 0; i < r->n; i++) {
        const struct token *t = &r->tokens[i];
        if (t->kind == OPERATOR && strchr("([{", *t->s)) depth++;
        if (t->kind == OPERATOR && strchr(")]}", *t->s)) depth--;
        if (depth > 0) continue;
        if (t->kind == OPERATOR && strchr("=!<>~-,", *t->s)) return false;
        for (size_t k = 0; t->kind == NAME && k < sizeof looser / sizeof *looser; k++)
            if (t->len == strlen(looser[k]) && memcmp(t->s, looser[k], t->len) == 0) return false;
    }
    return true;
}

static int print_part(struct reader *r, int from, int to) {
    if (to - from == 1 && r->tokens[from].kind == STRING) {
        add_string(&r->fixed, &r->tokens[from]);
        return r->fixed.error;
    }
    TRY(flush_fixed(r));
    hash_tokens(r, 'E', from, to);
    return 0;
}

// {{ a + 'b' }} prints the same as {{ a }}b.
static int print_tag(struct reader *r) {
    int from = 0, depth = 0;
    bool sum = is_sum(r);
    for (int i = 0; i < r->n; i++) {
        const struct token *t = &r->tokens[i];
        if (t->kind == OPERATOR && strchr("([{", *t->s)) depth++;
        if (t->kind == OPERATOR && strchr(")]}", *t->s)) depth--;
        if (!sum || depth > 0 || !is_op(t, "+")) continue;
        TRY(print_part(r, from, i));
        from = i + 1;
    }
    return print_part(r, from, r->n);
}

// --- the template
// -----------------------------------------------------------------------------------------

// Text between tags: cut at its end as the tag behind it asks. kind: the tag's second character, 0
// at the end.
static void add_text(struct reader *r, const char *from, const char *to, char kind, char sign,
                     bool at_line_start) {
    if (sign == '-') {
        while (to > from && isspace((unsigned char)to[-1])) to--;
    } else if (sign != '+' && (kind == '%' || kind == '#')) { // lstrip_blocks
        const char *line = to;
        while (line > from && (line[-1] == ' ' || line[-1] == '\t')) line--;
        if (line > from ? line[-1] == '\n' : at_line_start) to = line;
    }
    buf_add(&r->fixed, from, (size_t)(to - from));
}

// Behind a tag: - takes all white space, a block or comment one newline (trim_blocks).
static void skip_behind(struct reader *r, char kind, char sign) {
    if (sign == '-') {
        while (r->p < r->end && isspace((unsigned char)*r->p)) r->p++;
    } else if (sign != '+' && kind != '{' && r->p < r->end && *r->p == '\n') {
        r->p++;
    }
}

static int read_tag(struct reader *r, char kind) {
    char sign = 0;
    if (kind == '#') {
        const char *close = memmem(r->p, (size_t)(r->end - r->p), "#}", 2);
        if (!close) return E_FORMAT;
        sign = close > r->p ? close[-1] : 0;
        r->p = close + 2;
    } else {
        TRY(lex_tag(r, kind == '%' ? "%}" : "}}", &sign));
        if (kind == '{') {
            TRY(print_tag(r));
        } else {
            TRY(flush_fixed(r));
            hash_tokens(r, 'B', 0, r->n);
        }
    }
    skip_behind(r, kind, sign);
    return 0;
}

static int read_template(struct reader *r) {
    const char *text = r->p, *start = r->p;
    while (r->p < r->end) {
        const char *open = memchr(r->p, '{', (size_t)(r->end - r->p));
        char kind = open && r->end - open > 2 ? open[1] : 0;
        if (open && (kind == 0 || !strchr("{%#", kind))) {
            r->p = open + 1;
            continue;
        }
        if (!open) break;
        char sign = open[2];
        bool at_line_start = text == start || text[-1] == '\n';
        add_text(r, text, open, kind, sign, at_line_start);
        r->p = open + 2 + (sign == '-' || sign == '+');
        TRY(read_tag(r, kind));
        text = r->p;
    }
    add_text(r, text, r->end, 0, 0, false);
    return flush_fixed(r);
}

int jinja_form_read(struct jinja_form *f, const char *text, size_t len) {
    f->fingerprint = 0xcbf29ce484222325u;
    buf_init(&f->default_system, len);
    if (len > 0 && text[len - 1] == '\n') len--; // Jinja drops a last newline
    struct reader r = {.form = f, .p = text, .end = text + len};
    buf_init(&r.fixed, SIZE_MAX);
    int rc = read_template(&r);
    buf_release(&r.fixed);
    return rc;
}

void jinja_form_release(struct jinja_form *f) {
    buf_release(&f->default_system);
}

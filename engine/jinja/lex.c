// See lex.h. The rules of white space are those of Jinja's own lexer: a `-` in a tag removes all of
// it on that side; a `+` keeps it where trim_blocks or lstrip_blocks would remove it.
#include "engine/jinja/lex.h"
#include "engine/text/char_class.h"
#include <stdlib.h>
#include <string.h>

#define MAX_BRACKETS 128
#define MAX_NAME 255 // names are compared one by one, and counted as one step

struct lexer {
    struct jinja_string text;
    size_t at, counted; // lines are counted up to there
    int line;
    bool line_starts; // the last tag removed the newline after it
    char brackets[MAX_BRACKETS];
    int n_brackets;
    struct jinja_tokens *out;
    struct jinja_arena *arena;
    struct err *err;
};

void jinja_tokens_release(struct jinja_tokens *t) {
    free(t->items);
    *t = (struct jinja_tokens){0};
}

static int line_of(struct lexer *l, size_t at) {
    for (; l->counted < at; l->counted++) l->line += l->text.s[l->counted] == '\n';
    return l->line;
}

static int push(struct lexer *l, enum jinja_token_kind kind, int op, struct jinja_string s,
                size_t at) {
    struct jinja_tokens *t = l->out;
    if (t->len == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct jinja_token *items = realloc(t->items, cap * sizeof *items);
        if (!items) return err_set(l->err, E_NOMEM, "no memory for a chat template");
        t->items = items;
        t->cap = cap;
    }
    t->items[t->len++] = (struct jinja_token){kind, line_of(l, at), op, s};
    return 0;
}

static int peek(const struct lexer *l, size_t ahead) {
    return l->at + ahead < l->text.len ? (unsigned char)l->text.s[l->at + ahead] : -1;
}

static bool starts(const struct lexer *l, size_t at, const char *with) {
    size_t len = strlen(with);
    return l->text.len - at >= len && memcmp(l->text.s + at, with, len) == 0;
}

static void skip_space(struct lexer *l) {
    while (l->at < l->text.len && jinja_is_space(char_decode(l->text.s + l->at)))
        l->at += char_utf8_len(l->text.s + l->at);
}

// Skips a closing tag at l->at (`close`, or a sign and `close`) and the white space that it removes.
// false: no such tag.
static bool take_end(struct lexer *l, const char *close, bool trims) {
    int sign = peek(l, 0);
    size_t skip = sign == '-' || (sign == '+' && trims);
    if (!starts(l, l->at + skip, close)) return false;
    l->at += skip + strlen(close);
    if (skip && sign == '-')
        skip_space(l);
    else if (!skip && trims && peek(l, 0) == '\n')
        l->at++;
    l->line_starts = l->text.s[l->at - 1] == '\n';
    return true;
}

// The text in front of a tag whose sign is known, without the white space that the tag removes.
static struct jinja_string text_before(const struct lexer *l, size_t from, size_t to, int sign,
                                       bool is_print) {
    struct jinja_string s = jinja_string_sub(l->text, from, to), tail;
    if (sign == '-') return jinja_string_strip(s, NULL, false, true);
    if (sign == '+' || is_print) return s;
    size_t line = jinja_string_find_last(s, JINJA_LITERAL("\n"));
    line = line == SIZE_MAX ? 0 : line + 1;
    tail = jinja_string_sub(s, line, s.len);
    if ((line > 0 || l->line_starts) && jinja_string_strip(tail, NULL, true, false).len == 0)
        s.len = line;
    return s;
}

static int push_text(struct lexer *l, size_t from, size_t to, int sign, bool is_print) {
    struct jinja_string s = text_before(l, from, to, sign, is_print);
    return s.len == 0 ? 0 : push(l, JINJA_T_TEXT, 0, s, from);
}

// --- inside a tag

static const char *hex_digits(struct lexer *l, size_t at, size_t n, uint32_t *c) {
    *c = 0;
    for (size_t i = 0; i < n; i++) {
        char digit = at + i < l->text.len ? l->text.s[at + i] : 0;
        if (!digit || !strchr("0123456789abcdefABCDEF", digit)) return "a \\x or \\u is cut short";
        *c = *c * 16 + (uint32_t)(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    return *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? "a \\u that is not a character" : NULL;
}

// One escape, l->at behind the backslash. A sentence if it is wrong.
static const char *unescape(struct lexer *l, struct jinja_text *t) {
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    char c = l->text.s[l->at++];
    const char *simple = c ? strchr(from, c) : NULL, *wrong;
    uint32_t code = 0;
    if (simple) {
        jinja_text_add_char(t, (unsigned char)to[simple - from], 0);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if ((wrong = hex_digits(l, l->at, n, &code))) return wrong;
        jinja_text_add_char(t, code, 0);
        l->at += n;
    } else if (c >= '0' && c <= '7') {
        l->at--;
        for (int i = 0; i < 3 && peek(l, 0) >= '0' && peek(l, 0) <= '7'; i++)
            code = code * 8 + (uint32_t)(l->text.s[l->at++] - '0');
        jinja_text_add_char(t, code, 0);
    } else if (c == 'N' || (unsigned char)c >= 0x80) { // Python reads \N{name}
        return "a backslash before N or a character beyond ASCII is not supported";
    } else if (c != '\n') { // Python keeps the backslash of an unknown escape
        jinja_text_addz(t, "\\");
        l->at--;
    }
    return NULL;
}

static int read_string(struct lexer *l) {
    size_t start = l->at;
    char quote = l->text.s[l->at++];
    struct jinja_text t;
    struct jinja_string s;
    jinja_text_init(&t, l->arena);
    while (peek(l, 0) != quote) {
        size_t from = l->at;
        while (l->at < l->text.len && peek(l, 0) != quote && peek(l, 0) != '\\') l->at++;
        jinja_text_add(&t, jinja_string_sub(l->text, from, l->at));
        if (l->at + 1 >= l->text.len)
            return err_set(l->err, E_FORMAT, "line %d: a string does not end", line_of(l, start));
        if (peek(l, 0) != '\\') continue;
        l->at++;
        const char *wrong = unescape(l, &t);
        if (wrong) return err_set(l->err, E_FORMAT, "line %d: %s", line_of(l, start), wrong);
    }
    l->at++;
    int rc = jinja_text_take(&t, &s);
    if (rc < 0) return err_set(l->err, rc, "no memory for a chat template");
    return push(l, JINJA_T_STRING, 0, s, start);
}

static bool is_digit(int c) {
    return c >= '0' && c <= '9';
}

static bool is_name(int c) {
    return is_digit(c) || c == '_' || c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Behind a dot it is an index: a.0.1 has two of them.
static int read_number(struct lexer *l, bool after_dot) {
    size_t start = l->at;
    enum jinja_token_kind kind = JINJA_T_INT;
    bool whole = after_dot || (peek(l, 0) == '0' && (peek(l, 1) | 32) == 'x');
    while (is_name(peek(l, 0)) && (whole || (peek(l, 0) | 32) != 'e')) l->at++;
    if (whole) return push(l, kind, 0, jinja_string_sub(l->text, start, l->at), start);
    if (peek(l, 0) == '.' && is_digit(peek(l, 1))) {
        kind = JINJA_T_FLOAT;
        for (l->at++; is_digit(peek(l, 0)) || peek(l, 0) == '_';) l->at++;
    }
    if ((peek(l, 0) | 32) == 'e') {
        size_t sign = peek(l, 1) == '-' || peek(l, 1) == '+';
        if (is_digit(peek(l, 1 + sign))) {
            kind = JINJA_T_FLOAT;
            for (l->at += 1 + sign; is_digit(peek(l, 0)) || peek(l, 0) == '_';) l->at++;
        }
    }
    return push(l, kind, 0, jinja_string_sub(l->text, start, l->at), start);
}

// A character beyond ASCII is part of a name if it is part of a word.
static int read_name(struct lexer *l) {
    size_t start = l->at;
    while (is_name(peek(l, 0))) {
        const char *c = l->text.s + l->at;
        if (peek(l, 0) >= 0x80 && !char_is_word(char_decode(c))) break;
        l->at += char_utf8_len(c);
    }
    if (l->at == start)
        return err_set(l->err, E_FORMAT, "line %d: a character that is part of no name",
                       line_of(l, start));
    if (l->at - start > MAX_NAME)
        return err_set(l->err, E_LIMIT, "line %d: a name of more than %d bytes", line_of(l, start),
                       MAX_NAME);
    return push(l, JINJA_T_NAME, 0, jinja_string_sub(l->text, start, l->at), start);
}

static int read_operator(struct lexer *l) {
    static const char twos[][3] = {"//", "**", "==", "!=", ">=", "<="};
    int c = peek(l, 0);
    size_t start = l->at;
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == MAX_BRACKETS)
            return err_set(l->err, E_LIMIT, "line %d: brackets deeper than %d", line_of(l, start),
                           MAX_BRACKETS);
        l->brackets[l->n_brackets++] = (char)(c == '(' ? ')' : c + 2);
    }
    if (c == ')' || c == ']' || c == '}') {
        if (l->n_brackets == 0 || l->brackets[--l->n_brackets] != c)
            return err_set(l->err, E_FORMAT, "line %d: unexpected '%c'", line_of(l, start), c);
    }
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (starts(l, l->at, twos[i])) {
            l->at += 2;
            return push(l, JINJA_T_OP, JINJA_OP(twos[i][0], twos[i][1]),
                        jinja_string_sub(l->text, start, l->at), start);
        }
    if (c <= ' ' || !strchr("+-*/%~<>=.:|,;()[]{}", c))
        return err_set(l->err, E_FORMAT, "line %d: unexpected '%c'", line_of(l, start),
                       c > ' ' && c < 0x7f ? c : '?');
    l->at++;
    return push(l, JINJA_T_OP, c, jinja_string_sub(l->text, start, l->at), start);
}

static int read_inside(struct lexer *l, const char *close, bool trims, size_t open) {
    l->n_brackets = 0;
    for (;;) {
        skip_space(l);
        size_t start = l->at;
        int c = peek(l, 0);
        if (l->n_brackets == 0 && take_end(l, close, trims))
            return push(l, trims ? JINJA_T_TAG_END : JINJA_T_PRINT_END, 0, (struct jinja_string){0},
                        start);
        if (c < 0)
            return err_set(l->err, E_FORMAT, "line %d: a tag is not closed by '%s'",
                           line_of(l, open), close);
        if (is_digit(c)) {
            TRY(read_number(l, start > 0 && l->text.s[start - 1] == '.'));
        } else if (is_name(c)) {
            TRY(read_name(l));
        } else if (c == '\'' || c == '"') {
            TRY(read_string(l));
        } else {
            TRY(read_operator(l));
        }
    }
}

// --- between tags

static int skip_comment(struct lexer *l, size_t open) {
    for (; l->at < l->text.len; l->at++)
        if (take_end(l, "#}", true)) return 0;
    return err_set(l->err, E_FORMAT, "line %d: a comment does not end", line_of(l, open));
}

// {% raw %}: l->at behind the tag's sign. Takes the tag's end too.
static bool is_raw(struct lexer *l) {
    size_t back = l->at;
    skip_space(l);
    if (starts(l, l->at, "raw") && !is_name(peek(l, 3))) {
        l->at += 3;
        skip_space(l);
        size_t sign = peek(l, 0) == '-';
        if (starts(l, l->at + sign, "%}")) {
            l->at += sign + 2;
            if (sign) skip_space(l);
            return true;
        }
    }
    l->at = back;
    return false;
}

static int read_raw(struct lexer *l, size_t open) {
    size_t from = l->at;
    l->line_starts = from > 0 && l->text.s[from - 1] == '\n';
    for (size_t to = from; (to = jinja_string_find(l->text, JINJA_LITERAL("{%"), to)) != SIZE_MAX;
         to++) {
        l->at = to + 2;
        int sign = peek(l, 0);
        if (sign == '-' || sign == '+') l->at++;
        skip_space(l);
        if (!starts(l, l->at, "endraw")) continue;
        l->at += 6;
        skip_space(l);
        bool line_starts = l->line_starts;
        if (!take_end(l, "%}", true)) continue;
        bool after = l->line_starts;
        l->line_starts = line_starts;
        int rc = push_text(l, from, to, sign, false);
        l->line_starts = after;
        return rc;
    }
    return err_set(l->err, E_FORMAT, "line %d: raw without endraw", line_of(l, open));
}

static size_t next_tag(const struct lexer *l, size_t at) {
    for (; at + 1 < l->text.len; at++)
        if (l->text.s[at] == '{' && strchr("{%#", l->text.s[at + 1]) && l->text.s[at + 1])
            return at;
    return l->text.len;
}

static int read_all(struct lexer *l) {
    for (;;) {
        size_t from = l->at, open = next_tag(l, from);
        if (open == l->text.len) break;
        char kind = l->text.s[open + 1];
        l->at = open + 2;
        int sign = peek(l, 0);
        if (sign == '-' || sign == '+') l->at++;
        TRY(push_text(l, from, open, sign, kind == '{'));
        if (kind == '#') {
            TRY(skip_comment(l, open));
        } else if (kind == '%' && is_raw(l)) {
            TRY(read_raw(l, open));
        } else {
            TRY(push(l, kind == '{' ? JINJA_T_PRINT : JINJA_T_TAG, 0, (struct jinja_string){0},
                     open));
            TRY(read_inside(l, kind == '{' ? "}}" : "%}", kind == '%', open));
        }
    }
    if (l->at < l->text.len)
        TRY(push(l, JINJA_T_TEXT, 0, jinja_string_sub(l->text, l->at, l->text.len), l->at));
    return push(l, JINJA_T_END, 0, (struct jinja_string){0}, l->text.len);
}

// "\r\n" and "\r" are newlines; one at the end is not part of the template.
static int normalise(struct jinja_arena *a, struct jinja_string *text) {
    char *s = jinja_arena_get(a, text->len + 1);
    size_t n = 0;
    if (!s) return a->error;
    for (size_t i = 0; i < text->len; i++) {
        if (text->s[i] == '\n' && i > 0 && text->s[i - 1] == '\r') continue;
        s[n++] = text->s[i] == '\r' ? '\n' : text->s[i];
    }
    if (n > 0 && s[n - 1] == '\n') n--;
    *text = (struct jinja_string){.s = s, .len = n};
    return 0;
}

int jinja_tokens_read(struct jinja_tokens *out, struct jinja_arena *a, struct jinja_string text,
                      struct err *err) {
    struct lexer l = {.line = 1, .line_starts = true, .out = out, .arena = a, .err = err};
    *out = (struct jinja_tokens){0};
    int rc = normalise(a, &text);
    if (rc < 0) return err_set(err, rc, "no memory for a chat template");
    l.text = text;
    return read_all(&l);
}

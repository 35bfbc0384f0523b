// llama.cpp's GBNF: rules `name ::= alternatives`, texts, classes, groups, repetitions, comments. The
// language is described in grammars/README.md of that project.
//
// One recursive-descent pass emits the network directly. A rule's first mention creates it; the end of the pass
// checks that every rule is defined.
#include "engine/grammar/chars.h"
#include "engine/grammar/notations.h"
#include <stdlib.h>
#include <string.h>

enum { GBNF_MAX_DEPTH = 200, GBNF_MAX_COUNT = 100000 };

struct rule_name {
    const char *name;
    size_t len;
    int32_t rule;
    int line; // of the first mention
    bool defined;
};

struct gbnf {
    struct net *net;
    const char *text;
    size_t at, len;
    int line, depth;
    struct rule_name *names;
    size_t n_names, cap_names;
    struct err *err;
};

static int refuse(struct gbnf *g, const char *what) {
    return err_set(g->err, E_INVAL, "line %d of the grammar: %s", g->line, what);
}

static int no_memory(struct gbnf *g) {
    return err_set(g->err, E_NOMEM, "no memory for a grammar");
}

// --- characters ----------------------------------------------------------------------------------

static char peek(const struct gbnf *g) {
    return g->at < g->len ? g->text[g->at] : 0;
}

static bool take(struct gbnf *g, char c) {
    if (g->at >= g->len || g->text[g->at] != c) return false;
    g->at++;
    return true;
}

// Blanks and comments; line ends too where the rule cannot end (within brackets, behind ::= and |).
static void skip(struct gbnf *g, bool lines) {
    for (;; g->at++) {
        char c = peek(g);
        if (c == '#')
            while (g->at < g->len && peek(g) != '\n') g->at++;
        c = peek(g);
        if (c == '\n' && lines)
            g->line++;
        else if (c != ' ' && c != '\t' && c != '\r')
            return;
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_len(const struct gbnf *g) {
    size_t n = 0;
    while (g->at + n < g->len && is_name(g->text[g->at + n])) n++;
    return n;
}

static int hex(struct gbnf *g, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++, g->at++) {
        char c = peek(g), l = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (uint32_t)(c - '0');
        else if (l >= 'a' && l <= 'f')
            *out = *out * 16 + (uint32_t)(l - 'a') + 10;
        else
            return refuse(g, "a hexadecimal digit is missing");
    }
    return *out > CHAR_MAX_CODE || (*out >= 0xd800 && *out <= 0xdfff)
               ? refuse(g, "an escape that is no character")
               : 0;
}

// One character of a text or a class, escapes resolved.
static int character(struct gbnf *g, uint32_t *out) {
    static const char shorts[] = "t\tn\nr\r\"\"[[]]\\\\--^^";
    if (g->at >= g->len || peek(g) == '\n') return refuse(g, "a text or class has no end");
    if (!take(g, '\\')) {
        size_t n;
        *out = chars_next(g->text + g->at, g->len - g->at, &n);
        g->at += n;
        return *out == UINT32_MAX ? refuse(g, "it is not UTF-8") : 0;
    }
    char c = peek(g);
    g->at++;
    if (c == 'x') return hex(g, 2, out);
    if (c == 'u') return hex(g, 4, out);
    if (c == 'U') return hex(g, 8, out);
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if (c && c == shorts[i]) {
            *out = (uint8_t)shorts[i + 1];
            return 0;
        }
    return refuse(g, "an unknown escape");
}

// --- rules ---------------------------------------------------------------------------------------

static struct rule_name *mention(struct gbnf *g, size_t len) {
    const char *name = g->text + g->at;
    for (size_t i = 0; i < g->n_names; i++)
        if (g->names[i].len == len && memcmp(g->names[i].name, name, len) == 0) return &g->names[i];
    if (g->n_names == g->cap_names) {
        size_t cap = g->cap_names ? g->cap_names * 2 : 64;
        struct rule_name *moved = realloc(g->names, cap * sizeof *moved);
        if (!moved) return NULL;
        g->names = moved;
        g->cap_names = cap;
    }
    g->names[g->n_names] = (struct rule_name){
        .name = name, .len = len, .rule = net_rule_new(g->net, name, len), .line = g->line};
    return &g->names[g->n_names++];
}

static int text_literal(struct gbnf *g, int32_t from, int32_t to) {
    uint32_t c;
    if (take(g, '"')) {
        net_empty(g->net, from, to);
        return 0;
    }
    do {
        TRY(character(g, &c));
        bool last = take(g, '"');
        int32_t next = last ? to : net_state_new(g->net);
        chars_emit_one(g->net, from, c, CHARS_UTF8, next);
        if (last) return 0;
        from = next;
    } while (!net_failed(g->net));
    return 0;
}

static int class_ranges(struct gbnf *g, struct char_set *set) {
    bool negated = take(g, '^');
    while (!take(g, ']')) {
        uint32_t lo, hi;
        TRY(character(g, &lo));
        hi = lo;
        if (peek(g) == '-' && g->at + 1 < g->len && g->text[g->at + 1] != ']') {
            g->at++;
            TRY(character(g, &hi));
        }
        if (hi < lo) return refuse(g, "a range whose end is before its begin");
        if (char_set_add(set, lo, hi) < 0) return no_memory(g);
    }
    char_set_order(set);
    return negated && char_set_complement(set) < 0 ? no_memory(g) : 0;
}

static int class(struct gbnf *g, int32_t from, int32_t to) {
    struct char_set set = {0};
    int rc = class_ranges(g, &set);
    if (rc == 0) chars_emit(g->net, from, &set, CHARS_UTF8, to);
    char_set_release(&set);
    return rc;
}

static int alternatives(struct gbnf *g, int32_t from, int32_t to, bool nested);

static int group(struct gbnf *g, int32_t from, int32_t to) {
    if (++g->depth > GBNF_MAX_DEPTH) return refuse(g, "groups are nested too deeply");
    skip(g, true);
    TRY(alternatives(g, from, to, true));
    g->depth--;
    return take(g, ')') ? 0 : refuse(g, "')' is missing");
}

// A text, class, group, '.' or the name of a rule, from `from` to `to`.
static int item(struct gbnf *g, int32_t from, int32_t to) {
    static struct char_range everything = {0, CHAR_MAX_CODE};
    const struct char_set any = {.ranges = &everything, .n = 1};
    if (take(g, '"')) return text_literal(g, from, to);
    if (take(g, '[')) return class(g, from, to);
    if (take(g, '(')) return group(g, from, to);
    if (take(g, '.')) {
        chars_emit(g->net, from, &any, CHARS_UTF8, to);
        return 0;
    }
    if (peek(g) == '<' || peek(g) == '!')
        return err_set(g->err, E_UNSUPPORTED,
                       "line %d of the grammar: tokens (<...>) are not supported, only texts",
                       g->line);
    size_t len = name_len(g);
    if (len == 0) return refuse(g, "a text, class, group or name is missing");
    const struct rule_name *r = mention(g, len);
    if (!r) return no_memory(g);
    g->at += len;
    net_call(g->net, from, r->rule, to);
    return 0;
}

static int number(struct gbnf *g, int64_t *out) {
    size_t from = g->at;
    *out = 0;
    while (peek(g) >= '0' && peek(g) <= '9') {
        *out = *out * 10 + (g->text[g->at++] - '0');
        if (*out > GBNF_MAX_COUNT) return refuse(g, "a repetition of more than 100000");
    }
    return g->at > from;
}

// 1: a repetition follows; 0: none does.
static int counts(struct gbnf *g, int64_t *min, int64_t *max) {
    *min = 0;
    *max = -1;
    if (take(g, '*')) return 1;
    if (take(g, '+')) return (int)(*min = 1);
    if (take(g, '?')) return (int)(*max = 1);
    if (!take(g, '{')) return 0;
    skip(g, false);
    int has = number(g, min);
    if (has < 0) return has;
    skip(g, false);
    if (take(g, ',')) {
        skip(g, false);
        int bounded = number(g, max);
        if (bounded < 0) return bounded;
        if (bounded == 0) *max = -1;
        skip(g, false);
    } else if (has == 0) {
        return refuse(g, "'{' without a count");
    } else {
        *max = *min;
    }
    if (!take(g, '}')) return refuse(g, "'}' is missing");
    return *max >= 0 && *max < *min ? refuse(g, "{m,n} with n below m") : 1;
}

// An item becomes a rule of its own as soon as it is repeated, so that its states exist once.
static int repeated(struct gbnf *g, int32_t from, int32_t to) {
    struct net *n = g->net;
    int32_t rule = net_rule_new(n, NULL, 0);
    if (net_failed(n)) return 0;
    int32_t start = n->rules[rule].start, end = n->rules[rule].end;
    TRY(item(g, start, end));
    for (;;) {
        int64_t min, max;
        int has = counts(g, &min, &max);
        if (has < 0) return has;
        if (has == 0) break;
        int32_t outer = net_rule_new(n, NULL, 0);
        if (net_failed(n)) return 0;
        net_repeat(n, n->rules[outer].start, rule, min, max, n->rules[outer].end);
        rule = outer;
    }
    net_call(n, from, rule, to);
    return 0;
}

static bool ends_here(const struct gbnf *g, bool nested) {
    char c = peek(g);
    return g->at >= g->len || c == '|' || c == '\n' || (nested && c == ')');
}

static int sequence(struct gbnf *g, int32_t from, int32_t to, bool nested) {
    for (skip(g, nested); !ends_here(g, nested); skip(g, nested)) {
        int32_t next = net_state_new(g->net);
        TRY(repeated(g, from, next));
        from = next;
    }
    net_empty(g->net, from, to);
    return 0;
}

static int alternatives(struct gbnf *g, int32_t from, int32_t to, bool nested) {
    for (;;) {
        TRY(sequence(g, from, to, nested));
        if (take(g, '|')) {
            skip(g, true);
            continue;
        }
        // A bar may also begin the next line.
        size_t at = g->at;
        int line = g->line;
        skip(g, true);
        if (take(g, '|')) {
            skip(g, true);
            continue;
        }
        g->at = at;
        g->line = line;
        return 0;
    }
}

static int rule(struct gbnf *g) {
    size_t len = name_len(g);
    if (len == 0) return refuse(g, "the name of a rule is missing");
    struct rule_name *r = mention(g, len);
    if (!r) return no_memory(g);
    if (r->defined) return refuse(g, "the rule is defined twice");
    r->defined = true;
    int32_t start = 0, end = 0;
    if (!net_failed(g->net)) {
        start = g->net->rules[r->rule].start;
        end = g->net->rules[r->rule].end;
    }
    g->at += len;
    skip(g, false);
    if (!take(g, ':') || !take(g, ':') || !take(g, '=')) return refuse(g, "'::=' is missing");
    skip(g, true);
    TRY(alternatives(g, start, end, false));
    if (g->at < g->len && peek(g) != '\n') return refuse(g, "a ')' too many");
    return 0;
}

static int rules(struct gbnf *g) {
    const struct rule_name *root = NULL;
    for (skip(g, true); g->at < g->len && !net_failed(g->net); skip(g, true)) TRY(rule(g));
    if (net_failed(g->net)) return 0; // net_finish tells
    for (size_t i = 0; i < g->n_names; i++) {
        const struct rule_name *r = &g->names[i];
        if (!r->defined)
            return err_set(g->err, E_INVAL, "line %d of the grammar: the rule %.*s is not defined",
                           r->line, (int)(r->len < 80 ? r->len : 80), r->name);
        if (r->len == 4 && memcmp(r->name, "root", 4) == 0) root = r;
    }
    if (!root) return err_set(g->err, E_INVAL, "it has no rule named root");
    g->net->root = root->rule;
    return 0;
}

int gbnf_compile(struct net *net, const char *text, size_t len, struct err *err) {
    struct gbnf g = {.net = net, .text = text, .len = len, .line = 1, .err = err};
    int rc = rules(&g);
    free(g.names);
    return rc;
}

// The parser of regular expressions: recursive descent, to a tree of nodes in an array. See regex.h.
#include "engine/grammar/regex_tree.h"
#include "engine/grammar/unicode_class.h"
#include <stdlib.h>
#include <string.h>

enum { REGEX_MAX_DEPTH = 200, REGEX_MAX_COUNT = 100000, REGEX_MAX_PROPERTIES = 100 };

struct parser {
    struct regex *r;
    const char *text;
    size_t at, len;
    int depth, n_properties, n_negative; // negative look-aheads around this place
    bool property;                       // the set in the making has a Unicode property
    bool negated;                        // the set in the making is a complement
    struct err *err;
};

// --- nodes ---------------------------------------------------------------------------------------

static int no_memory(struct parser *p) {
    return err_set(p->err, E_NOMEM, "no memory for a regular expression");
}

static int add_node(struct parser *p, enum regex_kind kind) {
    struct regex *r = p->r;
    if (r->n_nodes == r->cap_nodes) {
        int32_t cap = r->cap_nodes ? r->cap_nodes * 2 : 64;
        struct regex_node *moved = realloc(r->nodes, (size_t)cap * sizeof *moved);
        if (!moved) return no_memory(p);
        r->nodes = moved;
        r->cap_nodes = cap;
    }
    r->nodes[r->n_nodes] = (struct regex_node){.kind = kind, .child = -1, .next = -1, .set = -1};
    return r->n_nodes++;
}

static int add_set_node(struct parser *p, struct char_set **set) {
    struct regex *r = p->r;
    if (r->n_sets == r->cap_sets) {
        int32_t cap = r->cap_sets ? r->cap_sets * 2 : 64;
        struct char_set *moved = realloc(r->sets, (size_t)cap * sizeof *moved);
        if (!moved) return no_memory(p);
        r->sets = moved;
        r->cap_sets = cap;
    }
    int node = add_node(p, NODE_SET);
    if (node < 0) return node;
    *set = &r->sets[r->n_sets];
    **set = (struct char_set){0};
    r->nodes[node].set = r->n_sets++;
    return node;
}

// --- escapes and classes -------------------------------------------------------------------------

static int refuse(struct parser *p, const char *what) {
    return err_set(p->err, E_INVAL, "at character %zu of the regular expression: %s", p->at + 1,
                   what);
}

static int refuse_kind(struct parser *p, const char *what) {
    return err_set(p->err, E_UNSUPPORTED,
                   "at character %zu of the regular expression: %s is not supported", p->at + 1,
                   what);
}

static bool more(const struct parser *p) {
    return p->at < p->len;
}
static char peek(const struct parser *p) {
    return more(p) ? p->text[p->at] : 0;
}
static bool take(struct parser *p, char c) {
    if (!more(p) || p->text[p->at] != c) return false;
    p->at++;
    return true;
}

static int add_class(struct parser *p, struct char_set *s, char name) {
    static const struct char_range digits[] = {{'0', '9'}},
                                   words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                   spaces[] = {{9, 13},          {32, 32},         {0xa0, 0xa0},
                                               {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                               {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                               {0xfeff, 0xfeff}};
    char lower = (char)(name | 0x20);
    const struct char_range *r = lower == 'd' ? digits : lower == 'w' ? words : spaces;
    int n = lower == 'd' ? 1 : lower == 'w' ? 4 : 10;
    return char_set_add_ranges(s, r, n, name != lower) < 0 ? no_memory(p) : 0;
}

// The next character as it is.
static int literal(struct parser *p, uint32_t *c) {
    size_t n;
    *c = chars_next(p->text + p->at, p->len - p->at, &n);
    if (*c == UINT32_MAX) return refuse(p, "it is not UTF-8");
    p->at += n;
    return 0;
}

static int hex_digits(struct parser *p, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        char c = peek(p), l = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (uint32_t)(c - '0');
        else if (l >= 'a' && l <= 'f')
            *out = *out * 16 + (uint32_t)(l - 'a') + 10;
        else
            return refuse(p, "a hexadecimal digit is missing");
        p->at++;
    }
    return 0;
}

static int unicode_escape(struct parser *p, uint32_t *out) {
    uint32_t low;
    if (take(p, '{')) {
        int n = 0;
        while (p->at + (size_t)n < p->len && p->text[p->at + (size_t)n] != '}' && n < 7) n++;
        TRY(hex_digits(p, n, out));
        if (n == 0 || *out > CHAR_MAX_CODE || !take(p, '}'))
            return refuse(p, "\\u{...} is no character");
        return 0;
    }
    TRY(hex_digits(p, 4, out));
    if (*out < 0xd800 || *out > 0xdfff) return 0;
    if (*out > 0xdbff || !take(p, '\\') || !take(p, 'u')) return refuse(p, "half a surrogate pair");
    TRY(hex_digits(p, 4, &low));
    if (low < 0xdc00 || low > 0xdfff) return refuse(p, "half a surrogate pair");
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

// Behind \p or \P.
static int property(struct parser *p, struct char_set *s, bool negated) {
    size_t from = p->at + 1, to = from;
    while (to < p->len && p->text[to] != '}') to++;
    if (peek(p) != '{' || to >= p->len) return refuse(p, "\\p without a property in braces");
    if (++p->n_properties > REGEX_MAX_PROPERTIES) return refuse(p, "too many Unicode properties");
    // In a later version of Unicode, a class may have more characters than are forbidden here.
    if (p->n_negative > 0) return refuse_kind(p, "\\p in a negative look-ahead");
    int rc = unicode_class_add(s, p->text + from, to - from, negated);
    if (rc == 0 && p->negated && !negated) {
        struct char_set unused = {0}; // is the complement known?
        rc = unicode_class_add(&unused, p->text + from, to - from, true);
        char_set_release(&unused);
    }
    if (rc == E_NOMEM) return no_memory(p);
    if (rc < 0) return refuse_kind(p, "this Unicode property (\\p)");
    p->property = p->r->property = true;
    p->at = to + 1;
    return 0;
}

// Behind a backslash: 1: one character; 0: a class, which was added to *s.
static int escape(struct parser *p, struct char_set *s, uint32_t *c, bool in_class) {
    static const char shorts[] = "t\tn\nr\rf\fv\v0\0";
    char e = peek(p);
    if (!more(p)) return refuse(p, "it ends with a backslash");
    if (strchr("dDwWsS", e)) {
        p->at++;
        TRY(add_class(p, s, e));
        return 0;
    }
    if (e == 'p' || e == 'P') {
        p->at++;
        return property(p, s, e == 'P');
    }
    if (!in_class && (e == 'b' || e == 'B')) return refuse_kind(p, "\\b (word boundaries)");
    if ((e >= '1' && e <= '9') || e == 'k') return refuse_kind(p, "a back-reference");
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2) {
        if (e != shorts[i]) continue;
        *c = (uint8_t)shorts[i + 1];
        p->at++;
        return 1;
    }
    if (e == 'x' || e == 'u') {
        p->at++;
        TRY(e == 'x' ? hex_digits(p, 2, c) : unicode_escape(p, c));
        return 1;
    }
    if (e == 'c' && p->at + 1 < p->len) {
        *c = (uint32_t)(p->text[p->at + 1] & 31);
        p->at += 2;
        return 1;
    }
    if (in_class && e == 'b') {
        *c = 8;
        p->at++;
        return 1;
    }
    if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z')) return refuse(p, "an unknown escape");
    TRY(literal(p, c));
    return 1;
}

// One end of a range, or a class within brackets: as escape().
static int class_item(struct parser *p, struct char_set *s, uint32_t *c) {
    if (take(p, '\\')) return escape(p, s, c, true);
    TRY(literal(p, c));
    return 1;
}

static int brackets(struct parser *p) {
    struct char_set *s;
    int node = add_set_node(p, &s);
    if (node < 0) return node;
    bool negated = p->negated = take(p, '^');
    p->property = false;
    while (!take(p, ']')) {
        uint32_t lo, hi;
        if (!more(p)) return refuse(p, "']' is missing");
        int one = class_item(p, s, &lo);
        if (one < 0) return one;
        if (one == 0) continue;
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
            p->at++;
            int other = class_item(p, s, &hi);
            if (other < 0) return other;
            if (other == 0) { // [a-\d]: a, - and digits
                if (char_set_add(s, '-', '-') < 0) return no_memory(p);
                hi = lo;
            }
        }
        if (hi < lo) return refuse(p, "a range whose end is before its begin");
        if (char_set_add(s, lo, hi) < 0) return no_memory(p);
    }
    char_set_order(s);
    if (negated && char_set_complement(s) < 0) return no_memory(p);
    if (negated && p->property && unicode_class_assigned(s) < 0) return no_memory(p);
    return node;
}

// --- the tree ------------------------------------------------------------------------------------

static int alternatives(struct parser *p);

static int lookahead(struct parser *p) {
    int node = add_node(p, NODE_LOOKAHEAD);
    if (node < 0) return node;
    bool negated = p->r->nodes[node].negated = peek(p) == '!';
    p->at++;
    p->n_negative += negated;
    int child = alternatives(p);
    p->n_negative -= negated;
    if (child < 0) return child;
    p->r->nodes[node].child = child;
    return node;
}

static int group(struct parser *p) {
    bool ahead = p->at + 1 < p->len && peek(p) == '?' && strchr("=!", p->text[p->at + 1]);
    if (++p->depth > REGEX_MAX_DEPTH) return refuse(p, "groups are nested too deeply");
    if (!ahead && take(p, '?')) {
        if (take(p, '<')) {
            if (peek(p) == '=' || peek(p) == '!') return refuse_kind(p, "look-behind");
            while (more(p) && peek(p) != '>') p->at++;
            if (!take(p, '>')) return refuse(p, "the name of a group has no end");
        } else if (!take(p, ':')) {
            return refuse_kind(p, "this kind of group");
        }
    }
    p->at += ahead;
    int node = ahead ? lookahead(p) : alternatives(p);
    p->depth--;
    if (node >= 0 && !take(p, ')')) return refuse(p, "')' is missing");
    return node;
}

static int dot(struct parser *p) {
    struct char_set *s;
    int node = add_set_node(p, &s);
    if (node < 0) return node;
    if (char_set_add(s, '\n', '\n') < 0 || char_set_add(s, '\r', '\r') < 0 ||
        char_set_add(s, 0x2028, 0x2029) < 0)
        return no_memory(p);
    char_set_order(s);
    return char_set_complement(s) < 0 ? no_memory(p) : node;
}

static int one_char(struct parser *p) {
    struct char_set *s;
    uint32_t c;
    int node = add_set_node(p, &s);
    if (node < 0) return node;
    p->negated = false;
    if (take(p, '\\')) {
        int one = escape(p, s, &c, false);
        if (one < 0) return one;
        if (one == 0) {
            char_set_order(s);
            return node;
        }
    } else {
        TRY(literal(p, &c));
    }
    return char_set_add(s, c, c) < 0 ? no_memory(p) : node;
}

static int atom(struct parser *p) {
    if (take(p, '(')) return group(p);
    if (take(p, '[')) return brackets(p);
    if (take(p, '.')) return dot(p);
    if (take(p, '^')) return add_node(p, NODE_START);
    if (take(p, '$')) return add_node(p, NODE_END);
    if (strchr("*+?", peek(p))) return refuse(p, "nothing stands before the repetition");
    return one_char(p);
}

static int number(struct parser *p, int32_t *out) {
    int64_t v = 0;
    size_t from = p->at;
    while (peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (p->text[p->at++] - '0');
        if (v > REGEX_MAX_COUNT) return refuse(p, "a repetition of more than 100000");
    }
    *out = (int32_t)v;
    return p->at > from;
}

// 1: there was a repetition; 0: none.
static int counts(struct parser *p, int32_t *min, int32_t *max) {
    size_t from = p->at;
    *min = 0;
    *max = -1;
    if (take(p, '*')) return 1;
    if (take(p, '?')) return *max = 1;
    if (take(p, '+')) return *min = 1;
    if (!take(p, '{')) return 0;
    int has = number(p, min);
    if (has < 0) return has;
    if (has > 0 && take(p, '}')) {
        *max = *min;
        return 1;
    }
    if (has > 0 && take(p, ',')) {
        int bounded = number(p, max);
        if (bounded < 0) return bounded;
        if (bounded == 0) *max = -1;
        if (take(p, '}')) return *max >= 0 && *max < *min ? refuse(p, "{m,n} with n below m") : 1;
    }
    p->at = from; // a brace that is a character
    return 0;
}

static int repeated(struct parser *p) {
    int node = atom(p);
    while (node >= 0) {
        int32_t min, max;
        int has = counts(p, &min, &max);
        if (has < 0) return has;
        if (has == 0) {
            if (peek(p) != '{') return node;
            return refuse(p, "'{' must be written \\{ where it counts nothing");
        }
        take(p, '?'); // lazy: the same texts match
        if (p->r->nodes[node].kind == NODE_LOOKAHEAD)
            return refuse_kind(p, "a look-ahead repeated");
        int outer = add_node(p, NODE_REPEAT);
        if (outer < 0) return outer;
        p->r->nodes[outer].child = node;
        p->r->nodes[outer].min = min;
        p->r->nodes[outer].max = max;
        node = outer;
    }
    return node;
}

// Makes `part` the parent's last one; *last: the last one so far, -1: none.
static void append(struct regex *r, int32_t parent, int32_t *last, int32_t part) {
    *(*last < 0 ? &r->nodes[parent].child : &r->nodes[*last].next) = part;
    *last = part;
}

// Parts up to a bar or a closing bracket.
static int sequence(struct parser *p) {
    int seq = add_node(p, NODE_SEQUENCE);
    int32_t last = -1;
    if (seq < 0) return seq;
    while (more(p) && peek(p) != '|' && peek(p) != ')') {
        int part = repeated(p);
        if (part < 0) return part;
        append(p->r, seq, &last, part);
    }
    return seq;
}

static int alternatives(struct parser *p) {
    int choice = add_node(p, NODE_CHOICE);
    int32_t last = -1;
    if (choice < 0) return choice;
    do {
        int part = sequence(p);
        if (part < 0) return part;
        append(p->r, choice, &last, part);
    } while (take(p, '|'));
    return choice;
}

// --- anchors -------------------------------------------------------------------------------------

static bool has_anchor(const struct regex *r, int32_t node) {
    enum regex_kind kind = r->nodes[node].kind;
    if (kind == NODE_START || kind == NODE_END) return true;
    if (kind == NODE_LOOKAHEAD) return false; // its own are settled apart
    for (int32_t i = r->nodes[node].child; i >= 0; i = r->nodes[i].next)
        if (has_anchor(r, i)) return true;
    return false;
}

enum side { SIDE_START, SIDE_END };

static int settle(struct parser *p, int32_t choice, enum side side, bool search);

// The link to the first or last part of a sequence.
static int32_t *edge_of(struct regex *r, int32_t seq, enum side side) {
    int32_t *at = &r->nodes[seq].child;
    while (side == SIDE_END && *at >= 0 && r->nodes[*at].next >= 0) at = &r->nodes[*at].next;
    return at;
}

// Puts "any text" before or behind a sequence.
static int add_any_text(struct parser *p, int32_t seq, enum side side) {
    struct regex *r = p->r;
    struct char_set *any;
    int set = add_set_node(p, &any);
    int loop = set < 0 ? set : add_node(p, NODE_REPEAT);
    if (loop < 0) return loop;
    if (char_set_add(any, 0, CHAR_MAX_CODE) < 0) return no_memory(p);
    r->nodes[loop].child = set;
    r->nodes[loop].max = -1;
    int32_t *at = edge_of(r, seq, side);
    if (side == SIDE_START) r->nodes[loop].next = *at;
    if (side == SIDE_END && *at >= 0) at = &r->nodes[*at].next;
    *at = loop;
    return 0;
}

// Takes the anchor at one side of a sequence out, or puts "any text" there. An anchor may stand within groups.
static int settle_sequence(struct parser *p, int32_t seq, enum side side, bool search) {
    struct regex *r = p->r;
    int32_t *edge = edge_of(r, seq, side);
    enum regex_kind kind = *edge >= 0 ? r->nodes[*edge].kind : NODE_EMPTY;
    if (kind == (side == SIDE_START ? NODE_START : NODE_END)) {
        *edge = r->nodes[*edge].next;
        return 0;
    }
    if (kind == NODE_CHOICE && has_anchor(r, *edge)) return settle(p, *edge, side, search);
    return search ? add_any_text(p, seq, side) : 0;
}

static int settle(struct parser *p, int32_t choice, enum side side, bool search) {
    for (int32_t i = p->r->nodes[choice].child; i >= 0; i = p->r->nodes[i].next)
        TRY(settle_sequence(p, i, side, search));
    return 0;
}

// Look-aheads stand where the expression's last part is: what follows one in its sequence ends with the whole.
static int settle_lookaheads(struct parser *p, int32_t node, bool last) {
    const struct regex *r = p->r;
    enum regex_kind kind = r->nodes[node].kind;
    int32_t i = r->nodes[node].child;
    if (kind == NODE_LOOKAHEAD) {
        if (!last) return refuse_kind(p, "a look-ahead before the expression's last part");
        TRY(settle(p, i, SIDE_END, true));
        if (has_anchor(r, i)) return refuse_kind(p, "^ or $ within it");
        return settle_lookaheads(p, i, true);
    }
    if (kind == NODE_REPEAT) last = last && r->nodes[node].max == 1;
    for (; i >= 0; i = p->r->nodes[i].next) {
        bool ends =
            kind != NODE_SEQUENCE || r->nodes[i].next < 0 || r->nodes[i].kind == NODE_LOOKAHEAD;
        TRY(settle_lookaheads(p, i, last && ends));
    }
    return 0;
}

void regex_free(struct regex *r) {
    if (!r) return;
    for (int32_t i = 0; i < r->n_sets; i++) char_set_release(&r->sets[i]);
    free(r->sets);
    free(r->nodes);
    free(r);
}

int regex_parse(struct regex **out, const char *text, size_t len, bool search, struct err *err) {
    struct regex *r = calloc(1, sizeof *r);
    struct parser p = {.r = r, .text = text, .len = len, .err = err};
    *out = NULL;
    if (!r) return no_memory(&p);
    r->search = search;
    int rc = alternatives(&p);
    r->root = rc;
    if (rc >= 0 && more(&p)) rc = refuse(&p, "a ')' too many");
    if (rc >= 0) rc = settle(&p, r->root, SIDE_START, search);
    if (rc >= 0) rc = settle(&p, r->root, SIDE_END, search);
    if (rc >= 0 && has_anchor(r, r->root)) rc = refuse_kind(&p, "^ or $ within it");
    if (rc >= 0) rc = settle_lookaheads(&p, r->root, true);
    if (rc < 0) {
        regex_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

// Translates Oniguruma (Ruby syntax) to PCRE2, character by character. The two read these
// differently:
//   \s        PCRE2 counts U+180E as a space, Oniguruma (Unicode's White_Space) does not: spelled out
//   \w        Oniguruma: Alphabetic, Mark, Nd, Pc; PCRE2: letters, numbers, underscore: spelled out
//   [a[bc]]   a union in Oniguruma, a literal [ in PCRE2: flattened (BLOOM's pattern has one)
//   \h \v \x  hex digit, U+000B, bytes in Oniguruma; not in PCRE2: refused or rewritten
//   \p{Han}   a script in Oniguruma, script extensions in PCRE2: \p{sc:Han}
//   {,n}      a quantifier in Ruby, literal text in PCRE2: {0,n}
//   ^ $       always match at line borders in Ruby: hence MULTILINE
// Back references and similar constructs can backtrack without bound; they are refused, as is any
// unknown construct.
#include "engine/text/onig_pattern.h"
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

// Unicode's White_Space, and all else.
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"   \
    "10ffff}"
// Alphabetic is letters, letter numbers, marks (most) and the circled and squared letters of
// category So.
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{"     \
    "1f169}"                                                                                       \
    "\\x{1f170}-\\x{1f189}"

struct translation {
    const char *start, *p; // the rest of the pattern
    struct buf *out;
    struct err *err;
};

static int refuse(struct translation *t, const char *at, int len, const char *why) {
    return err_set(t->err, E_UNSUPPORTED, "pattern '%.60s' has '%.*s' at byte %td, %s", t->start,
                   len, at, at - t->start, why);
}

static int put(struct translation *t, const char *s, size_t len) {
    int rc = buf_add(t->out, s, len);
    return rc < 0 ? err_set(t->err, rc, "pattern '%.60s' grows too long", t->start) : 0;
}

static int putz(struct translation *t, const char *s) {
    return put(t, s, strlen(s));
}

static bool is_category(const char *name, size_t len) {
    static const char *const all =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So "
        "Z Zs Zl Zp C Cc Cf Cn Co Cs ";
    char word[5] = " ";
    if (len == 0 || len > 2) return false;
    memcpy(word + 1, name, len);
    word[1 + len] = ' ';
    return strstr(all, word) != NULL;
}

// \p{Name}, \P{Name}, \p{^Name}; p is at the brace.
static int property(struct translation *t, bool negated) {
    const char *end = *t->p == '{' ? strchr(t->p, '}') : NULL;
    if (!end) return refuse(t, t->p - 2, 3, "a property without braces");
    const char *name = t->p + 1;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t len = (size_t)(end - name);
    for (size_t i = 0; i < len; i++)
        if (!isalpha((unsigned char)name[i]) && name[i] != '_')
            return refuse(t, t->p - 2, (int)(end - t->p) + 3, "an unknown property");
    TRY(putz(t, negated ? "\\P{" : "\\p{"));
    if (!is_category(name, len)) TRY(putz(t, "sc:")); // a script; PCRE2 refuses other names
    TRY(put(t, name, len));
    t->p = end + 1;
    return putz(t, "}");
}

// \xHH, \x{H...}, \uHHHH; p is behind the letter.
static int code_point(struct translation *t, char kind) {
    const char *from = t->p - 2;
    bool braces = kind == 'x' && *t->p == '{';
    int most = braces ? 6 : kind == 'x' ? 2 : 4, n = 0;
    unsigned value = 0;
    if (braces) t->p++;
    for (; n < most && isxdigit((unsigned char)*t->p); n++, t->p++) {
        int digit = tolower((unsigned char)*t->p);
        value = value * 16 + (unsigned)(isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    bool whole = braces ? n > 0 && *t->p == '}' : n == most;
    if (braces && whole) t->p++;
    // \x80 and above are single bytes in Oniguruma, not characters.
    if (!whole || value > 0x10ffff || (kind == 'x' && !braces && value > 0x7f))
        return refuse(t, from, (int)(t->p - from), "not a code point");
    int rc = buf_addf(t->out, "\\x{%x}", value);
    return rc < 0 ? err_set(t->err, rc, "pattern '%.60s' grows too long", t->start) : 0;
}

static bool is_set_escape(char c) {
    return c != '\0' && strchr("sSwWdDpP", c) != NULL;
}

// An escape sequence. *is_set: it stands for several characters, so it cannot begin a range.
static int escape(struct translation *t, bool in_class, bool *is_set) {
    const char *from = t->p;
    char c = from[1];
    t->p += 2;
    *is_set = is_set_escape(c);
    switch (c) {
    case 's':
        return putz(t, in_class ? SPACE : "[" SPACE "]");
    case 'S':
        return putz(t, in_class ? NOT_SPACE : "[^" SPACE "]");
    case 'w':
        return putz(t, in_class ? WORD : "[" WORD "]");
    case 'W':
        return in_class ? refuse(t, from, 2, "which a class cannot hold here")
                        : putz(t, "[^" WORD "]");
    case 'd':
        return putz(t, "\\p{Nd}");
    case 'D':
        return putz(t, "\\P{Nd}");
    case 'p':
        return property(t, false);
    case 'P':
        return property(t, true);
    case 'x':
    case 'u':
        return code_point(t, c);
    case 'v':
        return putz(t, "\\x{b}");
    case 'r':
    case 'n':
    case 't':
    case 'f':
    case 'a':
    case 'e':
        return put(t, from, 2);
    case 'A':
    case 'z':
        if (!in_class) return put(t, from, 2);
        break;
    default:
        if (ispunct((unsigned char)c) || c == ' ') return put(t, from, 2);
    }
    return refuse(t, from, c ? 2 : 1, "an escape that is not supported");
}

// A class from its [ to its ]. Nested ones are unions: their members join the outer one's.
static int class(struct translation *t) {
    const char *from = t->p++;
    bool after_set = false, is_set;
    TRY(putz(t, "["));
    if (*t->p == '^') TRY(put(t, t->p++, 1));
    if (*t->p == ']') return refuse(t, from, 3, "an empty class");
    for (int depth = 1; depth > 0; after_set = is_set) {
        char c = *t->p;
        is_set = false;
        if (c == '\0') return refuse(t, from, 1, "a class without an end");
        if (c == '\\') {
            TRY(escape(t, true, &is_set));
            continue;
        }
        if (c == '[' && (t->p[1] == '^' || t->p[1] == ':' || t->p[1] == ']'))
            return refuse(t, t->p, 2, "which is not supported inside a class");
        if (c == '&' && t->p[1] == '&') return refuse(t, t->p, 2, "an intersection of classes");
        if (c == '-' && t->p[1] == '\\' && is_set_escape(t->p[2]))
            return refuse(t, t->p, 3, "a range that ends in a set");
        t->p++;
        is_set = c == '[' || c == ']'; // a hyphen beside a border of a class or a set is itself
        if (c == '[')
            depth++;
        else if (c == ']')
            depth--;
        else if (c == '-' && (after_set || *t->p == '[' || *t->p == ']'))
            TRY(putz(t, "\\-"));
        else if (c != '-' && ispunct((unsigned char)c))
            TRY(put(t, (char[]){'\\', c}, 2));
        else
            TRY(put(t, t->p - 1, 1));
    }
    return putz(t, "]");
}

// At a brace: a quantifier, or in Ruby a literal brace where it does not look like one.
static int interval(struct translation *t) {
    const char *from = t->p, *p = from + 1;
    bool comma = false, digits = false;
    for (; isdigit((unsigned char)*p) || (*p == ',' && !comma); p++) {
        if (*p == ',')
            comma = true;
        else
            digits = true;
    }
    if (*p != '}' || !digits) {
        t->p++;
        return putz(t, "\\{");
    }
    p++;
    // Ruby reads {n}? as optional and {n,m}+ as a repeated repeat; PCRE2 as lazy and possessive.
    if (*p == '+' || (*p == '?' && !comma))
        return refuse(t, from, (int)(p - from) + 1, "which the two dialects read differently");
    TRY(putz(t, "{"));
    if (from[1] == ',') TRY(putz(t, "0"));
    t->p = p;
    return put(t, from + 1, (size_t)(p - from) - 1);
}

static int group(struct translation *t) {
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (t->p[1] != '?') return put(t, t->p++, 1);
    // (?i) holds to the end of its group in PCRE2, of its alternative in Ruby: the same only at the
    // start, and there it is one group around everything.
    size_t len = t->p == t->start && strncmp(t->p, "(?i)", 4) == 0 ? 4 : 0;
    for (size_t i = 0; len == 0 && i < sizeof known / sizeof *known; i++)
        if (strncmp(t->p, known[i], strlen(known[i])) == 0) len = strlen(known[i]);
    if (len == 0) return refuse(t, t->p, 4, "a group that is not supported");
    t->p += len;
    return put(t, t->p - len, len);
}

int onig_pattern_translate(const char *pattern, struct buf *out, struct err *err) {
    struct translation t = {.start = pattern, .p = pattern, .out = out, .err = err};
    size_t len = strlen(pattern);
    if (len > ONIG_PATTERN_MAX)
        return err_set(err, E_LIMIT, "pattern of %zu bytes, at most %d are read", len,
                       ONIG_PATTERN_MAX);
    while (*t.p) {
        bool is_set;
        switch (*t.p) {
        case '\\':
            TRY(escape(&t, false, &is_set));
            break;
        case '[':
            TRY(class(&t));
            break;
        case '(':
            TRY(group(&t));
            break;
        case '{':
            TRY(interval(&t));
            break;
        default:
            TRY(put(&t, t.p++, 1));
        }
    }
    return 0;
}

// Numbers of a JSON schema. A text has at most 15 digits before the point, so that a reader's double is exact, and
// no exponent where the schema gives a range.
#include "engine/grammar/product.h"
#include "engine/grammar/schema.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS 15
#define MOST_VALUE 999999999999999.0

// --- digits --------------------------------------------------------------------------------------

// As the ranges of UTF-8 in chars.c: numbers of the same length from lo to hi.
static void same_length(struct net *n, int32_t from, const char *lo, const char *hi, int len,
                        int32_t to) {
    static const char zeros[] = "000000000000000", nines[] = "999999999999999";
    if (len == 1) {
        net_byte_range(n, from, (uint8_t)lo[0], (uint8_t)hi[0], to);
        return;
    }
    if (lo[0] == hi[0]) {
        int32_t next = net_state_new(n);
        net_byte_range(n, from, (uint8_t)lo[0], (uint8_t)lo[0], next);
        same_length(n, next, lo + 1, hi + 1, len - 1, to);
        return;
    }
    char first = lo[0], last = hi[0];
    if (memcmp(lo + 1, zeros, (size_t)len - 1) != 0) {
        int32_t next = net_state_new(n);
        net_byte_range(n, from, (uint8_t)first, (uint8_t)first, next);
        same_length(n, next, lo + 1, nines, len - 1, to);
        first++;
    }
    if (memcmp(hi + 1, nines, (size_t)len - 1) != 0) {
        int32_t next = net_state_new(n);
        net_byte_range(n, from, (uint8_t)last, (uint8_t)last, next);
        same_length(n, next, zeros, hi + 1, len - 1, to);
        last--;
    }
    if (first > last) return;
    int32_t next = net_state_new(n);
    net_byte_range(n, from, (uint8_t)first, (uint8_t)last, next);
    same_length(n, next, zeros, nines, len - 1, to);
}

static void whole_range(struct net *n, int32_t from, int64_t lo, int64_t hi, int32_t to) {
    int64_t low = 0, high = 9;
    for (int len = 1; len <= MOST_DIGITS; len++) {
        int64_t a = lo > low ? lo : low, b = hi < high ? hi : high;
        char from_text[32], to_text[32];
        snprintf(from_text, sizeof from_text, "%lld", (long long)a);
        snprintf(to_text, sizeof to_text, "%lld", (long long)b);
        if (a <= b) same_length(n, from, from_text, to_text, len, to);
        low = high + 1;
        high = high * 10 + 9;
    }
}

static void integers(struct net *n, int32_t from, int64_t lo, int64_t hi, int32_t to) {
    if (lo < 0) {
        int32_t minus = net_state_new(n);
        net_byte_range(n, from, '-', '-', minus);
        whole_range(n, minus, hi < 0 ? -hi : 1, -lo, to);
    }
    if (hi >= 0) whole_range(n, from, lo > 0 ? lo : 0, hi, to);
}

// Between min and max digits.
static void digits(struct net *n, int32_t from, int min, int max, int32_t to) {
    for (int i = 0; i < max; i++) {
        if (i >= min) net_empty(n, from, to);
        int32_t next = i + 1 < max ? net_state_new(n) : to;
        net_byte_range(n, from, '0', '9', next);
        from = next;
    }
    if (max == 0) net_empty(n, from, to);
}

// --- ranges of numbers ---------------------------------------------------------------------------

struct bound {
    int64_t whole;
    char digits[24]; // of the fraction, without zeros at the end
    int n;
    bool excluded;
};

// Writes |v| with as few digits as give it back. False: it takes too many.
static bool bound_of(double v, bool excluded, struct bound *b) {
    char text[64];
    v = fabs(v);
    *b = (struct bound){.excluded = excluded};
    for (int places = 0; places <= 20; places++) {
        snprintf(text, sizeof text, "%.*f", places, v);
        if (strtod(text, NULL) != v) continue;
        const char *point = strchr(text, '.');
        b->whole = strtoll(text, NULL, 10);
        if (point) b->n = snprintf(b->digits, sizeof b->digits, "%s", point + 1);
        while (b->n > 0 && b->digits[b->n - 1] == '0') b->n--;
        return true;
    }
    return false;
}

// The fraction behind a whole part that equals that of lo, of hi, or of both (NULL: it does not), digit by
// digit: a state knows how many digits were taken and whether they still equal the bound's.
struct fraction {
    struct net *n;
    const struct bound *lo, *hi;
    int places;               // digits at most
    int32_t to, rest;         // rest: free digits
    int32_t states[26][2][2]; // [digits taken][equals lo][equals hi]
};

static bool may_end(const struct fraction *f, int at, bool low, bool high) {
    if (low && (at < f->lo->n || f->lo->excluded)) return false;
    return !high || at < f->hi->n || !f->hi->excluded;
}

static void fraction_digits(struct fraction *f, int32_t from, int at, bool low, bool high) {
    int min = low ? (at < f->lo->n ? f->lo->digits[at] : '0') : '0';
    int max = high ? (at < f->hi->n ? f->hi->digits[at] : '0') : '9';
    for (int x = min; x <= max && at < f->places; x++) {
        bool low_next = low && x == min, high_next = high && x == max;
        if (!low_next && !high_next) {
            net_byte_range(f->n, from, (uint8_t)x, (uint8_t)x, f->rest);
        } else { // no zeros behind the bound's digits
            net_byte_range(f->n, from, (uint8_t)x, (uint8_t)x,
                           f->states[at + 1][low_next][high_next]);
        }
    }
}

static void emit_fraction(struct net *n, int32_t from, const struct bound *lo,
                          const struct bound *hi, int places, int32_t to) {
    struct fraction f = {.n = n, .lo = lo, .hi = hi, .places = places, .to = to};
    f.rest = net_state_new(n);
    digits(n, f.rest, 0, places, to);
    for (int at = 1; at <= places; at++)
        for (int k = 1; k < 4; k++) f.states[at][k & 1][k >> 1] = net_state_new(n);
    if (may_end(&f, 0, lo, hi)) net_empty(n, from, to);
    int32_t point = net_state_new(n);
    net_byte_range(n, from, '.', '.', point);
    fraction_digits(&f, point, 0, lo, hi);
    for (int at = 1; at <= places; at++) {
        for (int k = 1; k < 4; k++) {
            bool low = k & 1, high = k >> 1;
            if ((low && !lo) || (high && !hi)) continue;
            int32_t state = f.states[at][low][high];
            if (may_end(&f, at, low, high)) net_empty(n, state, to);
            fraction_digits(&f, state, at, low, high);
        }
    }
}

static void whole_text(struct net *n, int32_t from, int64_t v, int32_t to) {
    char text[32];
    int len = snprintf(text, sizeof text, "%lld", (long long)v);
    net_text(n, from, text, (size_t)len, to);
}

static int places_for(int64_t whole, const struct bound *lo, const struct bound *hi) {
    int places = MOST_DIGITS - snprintf(NULL, 0, "%lld", (long long)whole);
    if (lo && places < lo->n) places = lo->n;
    if (hi && places < hi->n) places = hi->n;
    return places < 1 ? 1 : places > 22 ? 22 : places;
}

// Whole parts that equal no bound's: 15 digits in all.
static void between(struct net *n, int32_t from, int64_t lo, int64_t hi, int32_t to) {
    for (int64_t low = 0, high = 9; low <= hi && high <= (int64_t)MOST_VALUE;
         low = high + 1, high = high * 10 + 9) {
        int64_t a = lo > low ? lo : low, b = hi < high ? hi : high;
        if (a > b) continue;
        int32_t at = net_state_new(n);
        whole_range(n, from, a, b, at);
        emit_fraction(n, at, NULL, NULL, places_for(b, NULL, NULL), to);
    }
}

// From lo to hi, neither negative.
static void positive_range(struct net *n, int32_t from, const struct bound *lo,
                           const struct bound *hi, int32_t to) {
    int32_t low = net_state_new(n), high = net_state_new(n);
    whole_text(n, from, lo->whole, low);
    if (lo->whole == hi->whole) {
        emit_fraction(n, low, lo, hi, places_for(lo->whole, lo, hi), to);
        return;
    }
    emit_fraction(n, low, lo, NULL, places_for(lo->whole, lo, NULL), to);
    between(n, from, lo->whole + 1, hi->whole - 1, to);
    whole_text(n, from, hi->whole, high);
    emit_fraction(n, high, NULL, hi, places_for(hi->whole, NULL, hi), to);
}

// --- a schema's numbers --------------------------------------------------------------------------

struct limits {
    double lo, hi;
    bool has_lo, has_hi, lo_excluded, hi_excluded;
};

// flagged: before draft 6 an exclusive bound was a flag beside this other one; NULL: it is none.
static int read_limit(struct schema_compiler *c, const cJSON *s, const char *key,
                      const char *flagged, double *out, bool *has) {
    const cJSON *v = schema_get(s, key);
    if (flagged && cJSON_IsBool(v)) v = cJSON_IsTrue(v) ? schema_get(s, flagged) : NULL;
    *has = v;
    if (!v) return 0;
    if (!cJSON_IsNumber(v)) return schema_refuse(c, E_INVAL, key, "it must be a number");
    *out = v->valuedouble;
    return 0;
}

static int read_limits(struct schema_compiler *c, const cJSON *s, struct limits *l) {
    double v = 0;
    bool has;
    *l = (struct limits){.lo = -MOST_VALUE, .hi = MOST_VALUE};
    TRY(read_limit(c, s, "minimum", NULL, &v, &has));
    if (has) l->lo = v, l->has_lo = true;
    TRY(read_limit(c, s, "exclusiveMinimum", "minimum", &v, &has));
    if (has && (!l->has_lo || v >= l->lo)) l->lo = v, l->has_lo = l->lo_excluded = true;
    TRY(read_limit(c, s, "maximum", NULL, &v, &has));
    if (has) l->hi = v, l->has_hi = true;
    TRY(read_limit(c, s, "exclusiveMaximum", "maximum", &v, &has));
    if (has && (!l->has_hi || v <= l->hi)) l->hi = v, l->has_hi = l->hi_excluded = true;
    const cJSON *format = schema_get(s, "format"); // OpenAPI's
    if (cJSON_IsString(format) && strcmp(format->valuestring, "int32") == 0) {
        if (l->lo < INT32_MIN) l->lo = INT32_MIN, l->lo_excluded = false;
        if (l->hi > INT32_MAX) l->hi = INT32_MAX, l->hi_excluded = false;
    }
    if (l->lo < -MOST_VALUE) l->lo = -MOST_VALUE, l->lo_excluded = false;
    if (l->hi > MOST_VALUE) l->hi = MOST_VALUE, l->hi_excluded = false;
    return 0;
}

static void emit_integers(struct net *n, const struct limits *l, int32_t from, int32_t to) {
    double lo = ceil(l->lo), hi = floor(l->hi);
    if (l->lo_excluded && lo == l->lo) lo++;
    if (l->hi_excluded && hi == l->hi) hi--;
    if (lo <= hi) integers(n, from, (int64_t)lo, (int64_t)hi, to);
}

// A part without its sign; hi and lo change places for negative ones.
static int emit_part(struct schema_compiler *c, int32_t from, double lo, bool lo_excluded,
                     double hi, bool hi_excluded, int32_t to) {
    struct bound a, b;
    if (!bound_of(lo, lo_excluded, &a) || !bound_of(hi, hi_excluded, &b))
        return schema_refuse(c, E_UNSUPPORTED, "minimum",
                             "a bound with so many digits is not supported");
    positive_range(c->net, from, &a, &b, to);
    return 0;
}

static int emit_range(struct schema_compiler *c, const struct limits *l, int32_t from, int32_t to) {
    if (l->lo > l->hi || (l->lo == l->hi && (l->lo_excluded || l->hi_excluded))) return 0;
    if (l->lo < 0) {
        int32_t minus = net_state_new(c->net);
        net_byte_range(c->net, from, '-', '-', minus);
        double hi = l->hi < 0 ? -l->hi : 0;
        TRY(emit_part(c, minus, hi, l->hi < 0 ? l->hi_excluded : true, -l->lo, l->lo_excluded, to));
    }
    if (l->hi < 0 || (l->hi == 0 && l->hi_excluded)) return 0;
    double lo = l->lo > 0 ? l->lo : 0;
    return emit_part(c, from, lo, l->lo >= 0 && l->lo_excluded, l->hi, l->hi_excluded, to);
}

// Any number: an exponent too.
static int32_t number_rule(struct schema_compiler *c) {
    struct net *n = c->net;
    if (c->number >= 0) return c->number;
    c->number = net_rule_new(n, "number", 6);
    if (net_failed(n)) return 0;
    int32_t from = n->rules[c->number].start, to = n->rules[c->number].end;
    int32_t sign = net_state_new(n), whole = net_state_new(n), fraction = net_state_new(n);
    int32_t point = net_state_new(n), e = net_state_new(n), power = net_state_new(n);
    net_empty(n, from, sign);
    net_byte_range(n, from, '-', '-', sign);
    whole_range(n, sign, 0, (int64_t)MOST_VALUE, whole);
    net_empty(n, whole, fraction);
    net_byte_range(n, whole, '.', '.', point);
    digits(n, point, 1, MOST_DIGITS, fraction);
    net_empty(n, fraction, to);
    net_byte_range(n, fraction, 'e', 'e', e);
    net_byte_range(n, fraction, 'E', 'E', e);
    net_empty(n, e, power);
    net_byte_range(n, e, '+', '+', power);
    net_byte_range(n, e, '-', '-', power);
    digits(n, power, 1, 2, to);
    return c->number;
}

static int emit_number(struct schema_compiler *c, const cJSON *s, bool integer, int32_t from,
                       int32_t to) {
    struct limits l;
    TRY(read_limits(c, s, &l));
    if (integer)
        emit_integers(c->net, &l, from, to);
    else if (l.has_lo || l.has_hi)
        return emit_range(c, &l, from, to);
    else
        net_call(c->net, from, number_rule(c), to);
    return 0;
}

// --- multiples -----------------------------------------------------------------------------------

// Decimals whose value, as a whole number of 1/10^places, is a multiple of `step`: an automaton over the digits
// that knows the remainder so far, followed together with the range.
struct multiple {
    int64_t step;
    int places;
};

enum { MOST_STEP = 20000, MOST_PLACES = 6 };

static bool multiple_of(double v, struct multiple *m) {
    for (m->places = 0; m->places <= MOST_PLACES; m->places++) {
        double scaled = v * pow(10, m->places);
        if (scaled * (m->places + 1) > MOST_STEP) return false;
        m->step = llround(scaled);
        if (m->step > 0 && fabs(scaled - (double)m->step) < 1e-9 * scaled) return true;
    }
    return false;
}

static int64_t scaled_remainder(const struct multiple *m, int64_t remainder, int places) {
    for (; places < m->places; places++) remainder = remainder * 10 % m->step;
    return remainder;
}

static void add_digits(struct net *n, const struct multiple *m, int32_t from, int64_t remainder,
                       const int32_t *to) {
    for (int digit = 0; digit < 10; digit++)
        net_byte_range(n, from, (uint8_t)('0' + digit), (uint8_t)('0' + digit),
                       to[(remainder * 10 + digit) % m->step]);
}

// states (places + 1, step): behind so many digits after the point.
static void emit_remainders(struct net *n, const struct multiple *m, int32_t *states) {
    int32_t start = n->rules[n->root].start, end = n->rules[n->root].end;
    int32_t sign = net_state_new(n);
    for (int64_t i = 0; i < (m->places + 1) * m->step; i++) states[i] = net_state_new(n);
    net_empty(n, start, sign);
    net_byte_range(n, start, '-', '-', sign);
    add_digits(n, m, sign, 0, states);
    for (int places = 0; places <= m->places && !net_failed(n); places++)
        for (int64_t r = 0; r < m->step; r++) {
            const int32_t *row = states + places * m->step;
            int32_t at = row[r];
            if (scaled_remainder(m, r, places) == 0) net_empty(n, at, end);
            if (places == 0) add_digits(n, m, at, r, row);
            if (places == m->places) continue;
            int32_t next = places == 0 ? net_state_new(n) : at;
            if (places == 0) net_byte_range(n, at, '.', '.', next);
            add_digits(n, m, next, r, row + m->step);
        }
}

static int32_t both_match(void *ctx, uint32_t matched) {
    return matched == 3 ? *(int32_t *)ctx : -1;
}

static int emit_product(struct schema_compiler *c, struct net parts[2], int32_t from, int32_t to) {
    struct err why = {0};
    for (int i = 0; i < 2; i++) {
        int rc = net_finish(&parts[i], NULL, &why);
        if (parts[i].matches_nothing) return 0; // the range is empty
        if (rc < 0) return schema_refuse(c, rc, "multipleOf", why.text);
    }
    int rc = product_emit(c->net, from, parts, 2, 2, both_match, &to, &why);
    return rc < 0 ? schema_refuse(c, rc, "multipleOf", why.text) : 0;
}

static int emit_multiples(struct schema_compiler *c, const cJSON *s, bool integer,
                          const struct multiple *m, int32_t from, int32_t to) {
    struct net parts[2];
    size_t n_states = (size_t)((m->places + 1) * m->step);
    int32_t *states = malloc(n_states * sizeof *states);
    struct schema_compiler range = schema_aside(c, &parts[0]);
    schema_aside(c, &parts[1]);
    int rc = states ? 0 : schema_no_memory(c, "multipleOf");
    if (rc == 0 && !net_failed(&parts[0]) && !net_failed(&parts[1])) {
        const struct net_rule *root = &parts[0].rules[parts[0].root];
        rc = emit_number(&range, s, integer, root->start, root->end);
        emit_remainders(&parts[1], m, states);
    }
    if (rc == 0) rc = emit_product(c, parts, from, to);
    net_release(&parts[0]);
    net_release(&parts[1]);
    free(states);
    return rc;
}

int schema_emit_number(struct schema_compiler *c, const cJSON *s, bool integer, int32_t from,
                       int32_t to) {
    struct multiple m;
    const cJSON *multiple = schema_get(s, "multipleOf");
    if (!multiple) return emit_number(c, s, integer, from, to);
    if (!cJSON_IsNumber(multiple) || !(multiple->valuedouble > 0))
        return schema_refuse(c, E_INVAL, "multipleOf", "it must be a number above 0");
    if (multiple->valuedouble == 1) return emit_number(c, s, true, from, to);
    if (!multiple_of(multiple->valuedouble, &m))
        return schema_refuse(c, E_UNSUPPORTED, "multipleOf",
                             "more than 6 digits behind the point, or 20000, is not supported");
    return emit_multiples(c, s, integer, &m, from, to);
}

// Python's binary operators on the values of a chat template.
#include "engine/jinja/eval.h"
#include <math.h>
#include <string.h>

static const char *op_name(int op) {
    switch (op) {
    case JINJA_OP('*', '*'):
        return "** or pow()";
    case JINJA_OP('/', '/'):
        return "//";
    default:
        return op == '+' ? "+" : op == '-' ? "-" : op == '*' ? "*" : op == '/' ? "/" : "%";
    }
}

static int unsupported(struct jinja_run *r, int op, const struct jinja_value *a,
                       const struct jinja_value *b) {
    const struct jinja_value *u = a->kind == JINJA_UNDEFINED ? a : b;
    if (u->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(u->s));
    if (op == '+' && (a->kind == JINJA_STRING || jinja_is_plain(a)))
        return jinja_fail(r, E_INVAL, "can only concatenate %s (not \"%s\") to %s",
                          jinja_type_name(a), jinja_type_name(b), jinja_type_name(a));
    return jinja_fail(r, E_INVAL, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op),
                      jinja_type_name(a), jinja_type_name(b));
}

static int too_large(struct jinja_run *r) {
    return jinja_fail(r, E_LIMIT, "a whole number past 64 bits");
}

static int power(struct jinja_run *r, int64_t a, int64_t b, struct jinja_value *out) {
    int64_t v = 1;
    if (b < 0) {
        if (a == 0) return jinja_fail(r, E_INVAL, "zero to a negative power");
        *out = jinja_float(pow((double)a, (double)b));
        return 0;
    }
    for (int64_t i = 0; i < b && a != 1 && v != 0; i++) {
        if (a == -1 && i > 1) i = b - 1 - (b - i - 1) % 2; // only the parity counts
        if (__builtin_mul_overflow(v, a, &v)) return too_large(r);
    }
    *out = jinja_int(v);
    return 0;
}

// Division rounds down, and a remainder has the divisor's sign.
static int divide(struct jinja_run *r, int op, int64_t a, int64_t b, struct jinja_value *out) {
    if (b == 0)
        return jinja_fail(r, E_INVAL, "%s",
                          op == '%' ? "integer modulo by zero"
                                    : "integer division or modulo by zero");
    if (b == -1) { // INT64_MIN / -1 traps
        int64_t v = 0;
        if (op != '%' && __builtin_sub_overflow((int64_t)0, a, &v)) return too_large(r);
        *out = jinja_int(v);
        return 0;
    }
    int64_t rest = a % b;
    bool down = rest != 0 && (rest < 0) != (b < 0);
    *out = jinja_int(op == '%' ? rest + (down ? b : 0) : a / b - down);
    return 0;
}

static int of_ints(struct jinja_run *r, int op, int64_t a, int64_t b, struct jinja_value *out) {
    int64_t v = 0;
    bool overflow = false;
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &v);
        break;
    case '/':
        if (b == 0) return jinja_fail(r, E_INVAL, "division by zero");
        *out = jinja_float((double)a / (double)b);
        return 0;
    case JINJA_OP('*', '*'):
        return power(r, a, b, out);
    default:
        return divide(r, op, a, b, out);
    }
    if (overflow) return too_large(r);
    *out = jinja_int(v);
    return 0;
}

// % and //, rounded as Python rounds them: zeros keep their sign.
static double divide_floats(int op, double a, double b) {
    double rest = fmod(a, b), whole = (a - rest) / b, down;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        whole -= 1;
    }
    if (op == '%') return rest != 0 ? rest : copysign(0, b);
    if (whole == 0) return copysign(0, a / b);
    down = floor(whole);
    return whole - down > 0.5 ? down + 1 : down;
}

static int of_floats(struct jinja_run *r, int op, double a, double b, struct jinja_value *out) {
    if (b == 0 && op != '+' && op != '-' && op != '*' && op != JINJA_OP('*', '*'))
        return jinja_fail(r, E_INVAL, "%s",
                          op == '/' ? "float division by zero"
                                    : "float floor division or modulo by zero");
    switch (op) {
    case '+':
        *out = jinja_float(a + b);
        return 0;
    case '-':
        *out = jinja_float(a - b);
        return 0;
    case '*':
        *out = jinja_float(a * b);
        return 0;
    case '/':
        *out = jinja_float(a / b);
        return 0;
    case JINJA_OP('*', '*'):
        if (a == 0 && b < 0)
            return jinja_fail(r, E_INVAL, "0.0 cannot be raised to a negative power");
        *out = jinja_float(pow(a, b));
        if (isfinite(a) && isfinite(b) && !isfinite(out->f)) // or complex
            return jinja_fail(r, E_UNSUPPORTED, "a power that is not a finite number");
        return 0;
    default:
        *out = jinja_float(divide_floats(op, a, b));
        return 0;
    }
}

static int repeat(struct jinja_run *r, const struct jinja_value *v, int64_t n,
                  struct jinja_value *out) {
    struct jinja_text t;
    if (v->kind == JINJA_STRING) {
        jinja_text_init(&t, &r->arena);
        for (; n > 0 && v->s.len > 0 && !r->arena.error; n--) {
            TRY(jinja_spend(r, 1 + v->s.len / 64));
            jinja_text_add(&t, v->s);
        }
        return jinja_text_take_value(&t, out);
    }
    const struct jinja_list *l = v->list; // *out may be where v is
    TRY(jinja_list_new(r, v->kind, out));
    for (; n > 0 && l->len > 0; n--)
        for (size_t i = 0; i < l->len; i++) TRY(jinja_list_push(r, out->list, l->items[i]));
    return 0;
}

static int join(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                struct jinja_value *out) {
    struct jinja_text t;
    if (a->kind == JINJA_STRING) {
        TRY(jinja_spend(r, (a->s.len + b->s.len) / 64));
        jinja_text_init(&t, &r->arena);
        jinja_text_reserve(&t, a->s.len + b->s.len, a->s.origin || b->s.origin);
        jinja_text_add(&t, a->s);
        jinja_text_add(&t, b->s);
        return jinja_text_take_value(&t, out);
    }
    const struct jinja_list *first = a->list, *second = b->list; // *out may be where a is
    TRY(jinja_list_new(r, a->kind, out));
    for (size_t i = 0; i < first->len; i++) TRY(jinja_list_push(r, out->list, first->items[i]));
    for (size_t i = 0; i < second->len; i++) TRY(jinja_list_push(r, out->list, second->items[i]));
    return 0;
}

// "..." % value: %s, %d and %% only.
static int format(struct jinja_run *r, struct jinja_string s, const struct jinja_value *v,
                  struct jinja_value *out) {
    const struct jinja_value *args = v->kind == JINJA_TUPLE ? v->list->items : v;
    size_t n = v->kind == JINJA_TUPLE ? v->list->len : 1, used = 0;
    struct jinja_text t;
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < s.len; i++) {
        char kind = s.s[i] == '%' && i + 1 < s.len ? s.s[i + 1] : 0;
        if (s.s[i] != '%') {
            jinja_text_add(&t, jinja_string_sub(s, i, i + 1));
            continue;
        }
        i++;
        if (kind == '%') {
            jinja_text_addz(&t, "%");
            continue;
        }
        if (kind != 's' && kind != 'd')
            return jinja_fail(r, E_UNSUPPORTED, "only %%s and %%d are supported in a format");
        if (used == n) return jinja_fail(r, E_INVAL, "not enough arguments for format string");
        if (kind == 'd' && args[used].kind != JINJA_INT)
            return jinja_fail(r, E_INVAL, "%%d format: a real number is required, not %s",
                              jinja_type_name(&args[used]));
        TRY(jinja_print(r, &args[used++], false, &t));
    }
    if (used < n)
        return jinja_fail(r, E_INVAL, "not all arguments converted during string formatting");
    return jinja_text_take_value(&t, out);
}

// The sum of a string marked as safe and one that is not: the latter is escaped, and the sum is safe.
static int join_safe(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                     struct jinja_value *out) {
    struct jinja_value first = *a, second = *b;
    if (!first.markup) TRY(jinja_escape(r, a->s, &first));
    if (!second.markup) TRY(jinja_escape(r, b->s, &second));
    TRY(join(r, &first, &second, out));
    out->markup = true;
    return 0;
}

int jinja_binary(struct jinja_run *r, int op, const struct jinja_value *a,
                 const struct jinja_value *b, struct jinja_value *out) {
    bool whole_a = a->kind == JINJA_INT || a->kind == JINJA_BOOL,
         whole_b = b->kind == JINJA_INT || b->kind == JINJA_BOOL;
    int64_t x = whole_a ? a->kind == JINJA_INT ? a->i : a->b : 0,
            y = whole_b ? b->kind == JINJA_INT ? b->i : b->b : 0;
    if (whole_a && whole_b) return of_ints(r, op, x, y, out);
    if (jinja_is_number(a) && jinja_is_number(b))
        return of_floats(r, op, jinja_as_double(a), jinja_as_double(b), out);
    bool many_a = a->kind == JINJA_STRING || jinja_is_plain(a),
         many_b = b->kind == JINJA_STRING || jinja_is_plain(b);
    const bool safe = jinja_is_markup(a) || jinja_is_markup(b);
    if (safe && op == '+' && a->kind == b->kind) return join_safe(r, a, b, out);
    if (safe && (op == '*' || (op == '%' && jinja_is_markup(a))))
        return jinja_fail(r, E_UNSUPPORTED, "'%s' with a string marked as safe is not supported",
                          op_name(op));
    if (op == '+' && many_a && a->kind == b->kind) return join(r, a, b, out);
    if (op == '*' && many_a && whole_b) return repeat(r, a, y, out);
    if (op == '*' && whole_a && many_b) return repeat(r, b, x, out);
    if (op == '%' && a->kind == JINJA_STRING) return format(r, a->s, b, out);
    return unsupported(r, op, a, b);
}

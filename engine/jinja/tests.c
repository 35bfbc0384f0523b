// Tests of chat templates: the names that may follow `is`, and the arguments of select and reject.
#include "engine/jinja/eval.h"
#include "engine/text/char_class.h"
#include <utf8proc.h>

static int answer(struct jinja_value *out, bool b) {
    *out = jinja_bool(b);
    return 0;
}

// --- kinds

JINJA_FN(t_defined) {
    return answer(out, a[0].kind != JINJA_UNDEFINED);
}
JINJA_FN(t_undefined) {
    return answer(out, a[0].kind == JINJA_UNDEFINED);
}
JINJA_FN(t_none) {
    return answer(out, a[0].kind == JINJA_NONE);
}
JINJA_FN(t_boolean) {
    return answer(out, a[0].kind == JINJA_BOOL);
}
JINJA_FN(t_true) {
    return answer(out, a[0].kind == JINJA_BOOL && a[0].b);
}
JINJA_FN(t_false) {
    return answer(out, a[0].kind == JINJA_BOOL && !a[0].b);
}
JINJA_FN(t_integer) {
    return answer(out, a[0].kind == JINJA_INT);
}
JINJA_FN(t_float) {
    return answer(out, a[0].kind == JINJA_FLOAT);
}
JINJA_FN(t_number) {
    return answer(out, jinja_is_number(&a[0]));
}
JINJA_FN(t_string) {
    return answer(out, a[0].kind == JINJA_STRING);
}
JINJA_FN(t_mapping) {
    return answer(out, a[0].kind == JINJA_DICT);
}
// An undefined value counts as an empty one.
JINJA_FN(t_iterable) {
    return answer(out, a[0].kind == JINJA_STRING || a[0].kind == JINJA_DICT ||
                           a[0].kind == JINJA_UNDEFINED || a[0].kind == JINJA_LOOP ||
                           jinja_is_sequence(&a[0]));
}
JINJA_FN(t_sequence) { // has a length and elements
    if (jinja_is_sequence(&a[0])) return answer(out, a[0].list->is < JINJA_VIEW);
    if (a[0].kind == JINJA_LOOP) return answer(out, false);
    return t_iterable(r, a, c, out);
}
JINJA_FN(t_callable) {
    return answer(out, a[0].kind == JINJA_MACRO || a[0].kind == JINJA_METHOD ||
                           a[0].kind == JINJA_FUNCTION || a[0].kind == JINJA_UNDEFINED);
}

// --- comparisons

JINJA_FN(t_equal) {
    bool same;
    TRY(jinja_equal(r, &a[0], &a[1], &same));
    return answer(out, same);
}
JINJA_FN(t_unequal) {
    bool same;
    TRY(jinja_equal(r, &a[0], &a[1], &same));
    return answer(out, !same);
}
JINJA_FN(t_less) {
    int order;
    TRY(jinja_order(r, &a[0], &a[1], "<", &order));
    return answer(out, order < 0);
}
JINJA_FN(t_less_equal) {
    int order;
    TRY(jinja_order(r, &a[0], &a[1], "<=", &order));
    return answer(out, order <= 0);
}
JINJA_FN(t_greater) {
    int order;
    TRY(jinja_order(r, &a[0], &a[1], ">", &order));
    return answer(out, order > 0);
}
JINJA_FN(t_greater_equal) {
    int order;
    TRY(jinja_order(r, &a[0], &a[1], ">=", &order));
    return answer(out, order >= 0);
}
JINJA_FN(t_in) {
    bool found;
    TRY(jinja_contains(r, &a[1], &a[0], &found));
    return answer(out, found);
}
// Python's `is`: equal and of the same kind; for lists and dicts, the same object.
JINJA_FN(t_sameas) {
    bool same = false;
    if (a[0].kind != a[1].kind || a[0].kind == JINJA_UNDEFINED) return answer(out, false);
    if (jinja_is_sequence(&a[0])) return answer(out, a[0].list == a[1].list);
    if (a[0].kind == JINJA_DICT) return answer(out, a[0].dict == a[1].dict);
    TRY(jinja_equal(r, &a[0], &a[1], &same));
    return answer(out, same);
}

static int remainder_is(struct jinja_run *r, const struct jinja_value *v, int64_t by, int64_t want,
                        struct jinja_value *out) {
    struct jinja_value divisor = jinja_int(by), rest;
    TRY(jinja_binary(r, '%', v, &divisor, &rest));
    return answer(out, jinja_is_number(&rest) && jinja_as_double(&rest) == (double)want);
}
JINJA_FN(t_odd) {
    return remainder_is(r, &a[0], 2, 1, out);
}
JINJA_FN(t_even) {
    return remainder_is(r, &a[0], 2, 0, out);
}
JINJA_FN(t_divisibleby) {
    int64_t by;
    TRY(jinja_want_int(r, &a[1], 0, &by));
    return remainder_is(r, &a[0], by, 0, out);
}

// --- strings and names

static int is_case(struct jinja_run *r, const struct jinja_value *v, bool upper,
                   struct jinja_value *out) {
    struct jinja_string s;
    bool any = false, other = false;
    TRY(jinja_to_string(r, v, &s));
    TRY(jinja_spend(r, s.len / 16));
    for (size_t i = 0; i < s.len; i += char_utf8_len(s.s + i)) {
        utf8proc_int32_t code = (utf8proc_int32_t)char_decode(s.s + i);
        bool is_upper = utf8proc_isupper(code), is_lower = utf8proc_islower(code);
        any = any || (upper ? is_upper : is_lower);
        other = other || (upper ? is_lower : is_upper);
    }
    return answer(out, any && !other);
}
JINJA_FN(t_upper) {
    return is_case(r, &a[0], true, out);
}
JINJA_FN(t_lower) {
    return is_case(r, &a[0], false, out);
}
JINJA_FN(t_filter) {
    return answer(out, a[0].kind == JINJA_STRING && jinja_filter_find(a[0].s));
}
JINJA_FN(t_test) {
    return answer(out, a[0].kind == JINJA_STRING && jinja_builtin_find(jinja_tests, a[0].s));
}

const struct jinja_builtin jinja_tests[] = {
    {"!=", t_unequal, "value other", 2},
    {"<", t_less, "value other", 2},
    {"<=", t_less_equal, "value other", 2},
    {"==", t_equal, "value other", 2},
    {">", t_greater, "value other", 2},
    {">=", t_greater_equal, "value other", 2},
    {"boolean", t_boolean, "value", 1},
    {"callable", t_callable, "value", 1},
    {"defined", t_defined, "value", 1},
    {"divisibleby", t_divisibleby, "value num", 2},
    {"eq", t_equal, "value other", 2},
    {"equalto", t_equal, "value other", 2},
    {"even", t_even, "value", 1},
    {"false", t_false, "value", 1},
    {"filter", t_filter, "value", 1},
    {"float", t_float, "value", 1},
    {"ge", t_greater_equal, "value other", 2},
    {"greaterthan", t_greater, "value other", 2},
    {"gt", t_greater, "value other", 2},
    {"in", t_in, "value seq", 2},
    {"integer", t_integer, "value", 1},
    {"iterable", t_iterable, "value", 1},
    {"le", t_less_equal, "value other", 2},
    {"lessthan", t_less, "value other", 2},
    {"lower", t_lower, "value", 1},
    {"lt", t_less, "value other", 2},
    {"mapping", t_mapping, "value", 1},
    {"ne", t_unequal, "value other", 2},
    {"none", t_none, "value", 1},
    {"number", t_number, "value", 1},
    {"odd", t_odd, "value", 1},
    {"sameas", t_sameas, "value other", 2},
    {"sequence", t_sequence, "value", 1},
    {"string", t_string, "value", 1},
    {"test", t_test, "value", 1},
    {"true", t_true, "value", 1},
    {"undefined", t_undefined, "value", 1},
    {"upper", t_upper, "value", 1},
    {0},
};

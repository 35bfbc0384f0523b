// The global functions of chat templates: Jinja's range, dict and namespace, and the two that Hugging
// Face transformers adds, raise_exception and strftime_now.
#include "engine/jinja/run.h"
#include <string.h>

#define MAX_RANGE 100000 // as Jinja's sandbox has it

JINJA_FN(g_range) {
    int64_t from, to, step;
    bool one = a[1].kind == JINJA_ABSENT;
    TRY(jinja_want_int(r, &a[0], 0, &from));
    TRY(jinja_want_int(r, &a[1], 0, &to));
    TRY(jinja_want_int(r, &a[2], 1, &step));
    if (one) {
        to = from;
        from = 0;
    }
    if (step == 0) return jinja_fail(r, E_INVAL, "range() arg 3 must not be zero");
    TRY(jinja_lazy_new(r, JINJA_RANGE, out));
    while (step > 0 ? from < to : from > to) {
        if (out->list->len == MAX_RANGE)
            return jinja_fail(
                r, E_LIMIT, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                MAX_RANGE);
        TRY(jinja_list_push(r, out->list, jinja_int(from)));
        if (__builtin_add_overflow(from, step, &from)) break;
    }
    return 0;
}

JINJA_FN(g_dict) {
    TRY(jinja_dict_new(r, out));
    for (size_t i = 0; i < c->n; i++) {
        if (c->names[i].s) {
            TRY(jinja_dict_set(r, out->dict, jinja_str(c->names[i]), c->args[i]));
            continue;
        }
        if (c->args[i].kind != JINJA_DICT)
            return jinja_fail(r, E_INVAL, "a dict is expected, not '%s'",
                              jinja_type_name(&c->args[i]));
        for (size_t k = 0; k < c->args[i].dict->len; k++)
            TRY(jinja_dict_set(r, out->dict, c->args[i].dict->pairs[k].key,
                               c->args[i].dict->pairs[k].value));
    }
    return 0;
}

JINJA_FN(g_namespace) {
    TRY(g_dict(r, a, c, out));
    out->kind = JINJA_NAMESPACE;
    return 0;
}

// The error is the template's own sentence, which a model's client may search for.
JINJA_FN(g_raise) {
    struct jinja_string s;
    TRY(jinja_to_string(r, &a[0], &s));
    if (s.len == 0 || s.s[0] == '\0')
        return jinja_fail(r, E_INVAL, "the template raises an exception and does not say why");
    return err_set(r->err, E_INVAL, "%.*s", (int)(s.len < 4096 ? s.len : 4096), s.s);
}

// --- time

static const char months[12][10] = {"January",   "February", "March",    "April",
                                    "May",       "June",     "July",     "August",
                                    "September", "October",  "November", "December"};
static const char days[7][10] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};

// One of strftime's letters, in English in every locale; bare: without a leading zero.
// false: unknown.
static bool put_time(struct jinja_text *t, const struct tm *now, char letter, bool bare) {
    int hour = now->tm_hour % 12 ? now->tm_hour % 12 : 12;
    struct {
        char letter;
        int value;
    } numbers[] = {
        {'d', now->tm_mday}, {'m', now->tm_mon + 1}, {'H', now->tm_hour},      {'I', hour},
        {'M', now->tm_min},  {'S', now->tm_sec},     {'y', now->tm_year % 100}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].letter != letter) continue;
        if (bare)
            jinja_text_addf(t, "%d", numbers[i].value);
        else
            jinja_text_addf(t, "%02d", numbers[i].value);
        return true;
    }
    switch (letter) {
    case 'Y':
        jinja_text_addf(t, "%d", now->tm_year + 1900);
        return true;
    case 'B':
        jinja_text_addz(t, months[now->tm_mon]);
        return true;
    case 'b':
        jinja_text_addf(t, "%.3s", months[now->tm_mon]);
        return true;
    case 'A':
        jinja_text_addz(t, days[now->tm_wday]);
        return true;
    case 'a':
        jinja_text_addf(t, "%.3s", days[now->tm_wday]);
        return true;
    case 'p':
        jinja_text_addz(t, now->tm_hour < 12 ? "AM" : "PM");
        return true;
    case 'j':
        jinja_text_addf(t, bare ? "%d" : "%03d", now->tm_yday + 1);
        return true;
    case '%':
        jinja_text_addz(t, "%");
        return true;
    default:
        return false;
    }
}

static bool put_times(struct jinja_text *t, const struct tm *now, char letter) {
    const char *parts = letter == 'F'   ? "Y-m-d"
                        : letter == 'T' ? "H:M:S"
                        : letter == 'D' ? "m/d/y"
                                        : "";
    for (const char *p = parts; *p; p++)
        if (!put_time(t, now, *p, false)) jinja_text_addf(t, "%c", *p);
    return *parts;
}

JINJA_FN(g_strftime) {
    struct jinja_string s;
    struct jinja_text t;
    TRY(jinja_want_string(r, &a[0], &s));
    TRY(jinja_spend(r, s.len));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < s.len; i++) {
        if (s.s[i] != '%') {
            jinja_text_add(&t, jinja_string_sub(s, i, i + 1));
            continue;
        }
        bool bare = i + 1 < s.len && s.s[i + 1] == '-';
        i += 1 + bare;
        char letter = i < s.len ? s.s[i] : 0;
        if (!put_time(&t, &r->now, letter, bare) && !put_times(&t, &r->now, letter))
            return jinja_fail(r, E_UNSUPPORTED, "strftime_now has no %%%c", letter ? letter : ' ');
    }
    return jinja_text_take_value(&t, out);
}

const struct jinja_builtin jinja_functions[] = {
    {"dict", g_dict, "*", 0},
    {"namespace", g_namespace, "*", 0},
    {"raise_exception", g_raise, "message", 1},
    {"range", g_range, "start stop step", 1},
    {"strftime_now", g_strftime, "format", 1},
    {0},
};

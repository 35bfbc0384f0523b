// Finds a setting's row and converts its value from and to text. See config.h. config_ini.c reads
// the ini file, config_args.c the environment and the command line; config_print.c writes --help
// and the ini file.
#include "base/config.h"
#include "base/json.h"
#include "base/near_name.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT_MAX_BYTES (1 << 20)

static void *field(const struct config_key *key, void *settings) {
    return (char *)settings + key->offset;
}

static bool is_text(const struct config_key *key) {
    return key->type == CONFIG_STRING || key->type == CONFIG_SWITCH;
}

static const void *const_field(const struct config_key *key, const void *settings) {
    return (const char *)settings + key->offset;
}

// --- rows ---

static char fold(char c) {
    return c == '-' ? '_' : c;
}

static bool same_name(const char *a, const char *b) {
    while (*a && fold(*a) == fold(*b)) {
        a++;
        b++;
    }
    return fold(*a) == fold(*b);
}

const struct config_key *config_find(const struct config_table *t, const char *name) {
    for (int i = 0; i < t->n_keys; i++)
        if (same_name(t->keys[i].name, name)) return &t->keys[i];
    return NULL;
}

bool config_is_flag(const struct config_key *key) {
    return key->type == CONFIG_BOOL || key->type == CONFIG_SWITCH;
}

bool config_starts_section(const struct config_table *t, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(t->keys[k].section, t->keys[i].section) == 0) return false;
    return true;
}

const char *config_nearest(const struct config_table *t, const char *name) {
    struct near_name n = {.name = name};
    for (int i = 0; i < t->n_keys; i++) near_name_look(&n, t->keys[i].name);
    return n.best;
}

static int unknown_key(const struct config_table *t, const char *name, struct err *err) {
    const char *near = config_nearest(t, name);
    if (near)
        return err_set(err, E_NOTFOUND, "unknown setting '%s'; did you mean '%s'?", name, near);
    return err_set(err, E_NOTFOUND, "unknown setting '%s'", name);
}

// --- text to value: 0 or E_INVAL, E_NOMEM; *out untouched on failure ---

static int parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *out = i % 2;
        return 0;
    }
    return E_INVAL;
}

static int parse_int(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    if (text[strspn(text, "+-0123456789")] != '\0') return E_INVAL; // strtoll skips white space
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno == ERANGE) return E_INVAL;
    *out = v;
    return 0;
}

static int parse_float(const char *text, double *out) {
    char *end;
    if (text[strspn(text, "+-.eE0123456789")] != '\0') return E_INVAL; // "nan", "inf", "0x10"
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v)) return E_INVAL;
    *out = v;
    return 0;
}

static const char unit_letters[] = "KMGT";

static int parse_bytes(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text)) return E_INVAL;
    long long v = strtoll(text, &end, 10);
    if (errno == ERANGE) return E_INVAL;
    while (*end == ' ') end++;
    if (*end) {
        const char *unit = strchr(unit_letters, toupper((unsigned char)*end));
        if (!unit || (end[1] && strcasecmp(end + 1, "iB") != 0)) return E_INVAL;
        int64_t factor = (int64_t)1024 << 10 * (unit - unit_letters);
        if (__builtin_mul_overflow(v, factor, &v)) return E_INVAL;
    }
    *out = v;
    return 0;
}

static int parse_choice(const char *choices, const char *text, int *out) {
    size_t n = strlen(text), len;
    int index = 0;
    for (const char *p = choices; *p; p += len + (p[len] == '|'), index++) {
        len = strcspn(p, "|");
        if (len != n || memcmp(p, text, n) != 0) continue;
        *out = index;
        return 0;
    }
    return E_INVAL;
}

static int parse_string(const char *text, char **out) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f) return E_INVAL;
    char *copy = strdup(text);
    if (!copy) return E_NOMEM;
    free(*out);
    *out = copy;
    return 0;
}

static int parse_switch(const char *text, char **out) {
    bool on;
    if (!*text) return parse_string("", out);
    TRY(parse_bool(text, &on));
    return parse_string(on ? "on" : "off", out);
}

static bool in_range(const struct config_key *key, double v) {
    return key->min == key->max || (v >= key->min && v <= key->max);
}

static int parse_value(const struct config_key *key, void *settings, const char *text) {
    void *out = field(key, settings);
    int64_t integer = 0;
    double number = 0;
    switch (key->type) {
    case CONFIG_BOOL:
        return parse_bool(text, out);
    case CONFIG_INT:
    case CONFIG_BYTES:
        TRY(key->type == CONFIG_INT ? parse_int(text, &integer) : parse_bytes(text, &integer));
        if (!in_range(key, (double)integer)) return E_INVAL;
        *(int64_t *)out = integer;
        return 0;
    case CONFIG_FLOAT:
        TRY(parse_float(text, &number));
        if (!in_range(key, number)) return E_INVAL;
        *(double *)out = number;
        return 0;
    case CONFIG_STRING:
        return parse_string(text, out);
    case CONFIG_CHOICE:
        return parse_choice(key->choices, text, out);
    case CONFIG_SWITCH:
        return parse_switch(text, out);
    }
    return E_INTERNAL;
}

static int bad_value(const struct config_key *key, const char *value, struct err *err) {
    static const char *const kinds[] = {
        [CONFIG_BOOL] = "on or off", [CONFIG_INT] = "a whole number",
        [CONFIG_FLOAT] = "a number", [CONFIG_BYTES] = "a size such as 64MiB or 1048576,",
        [CONFIG_CHOICE] = "one of",  [CONFIG_SWITCH] = "on or off",
    };
    if (key->type == CONFIG_STRING)
        return err_set(err, E_INVAL, "%s: control characters are not allowed", key->name);
    struct buf range;
    buf_init(&range, sizeof err->text);
    config_range(key, &range);
    err_set(err, E_INVAL, "%s = %s: must be %s%s%s", key->name, value, kinds[key->type],
            range.len ? " " : "", buf_z(&range));
    buf_release(&range);
    return E_INVAL;
}

int config_set(const struct config_table *t, void *settings, const char *name, const char *value,
               struct err *err) {
    const struct config_key *key = config_find(t, name);
    if (!key) return unknown_key(t, name, err);
    int rc = parse_value(key, settings, value);
    if (rc == E_INVAL) return bad_value(key, value, err);
    if (rc < 0) return err_set(err, rc, "out of memory for %s", key->name);
    return 0;
}

int config_init(const struct config_table *t, void *settings, struct err *err) {
    for (int i = 0; i < t->n_keys; i++)
        if (is_text(&t->keys[i])) *(char **)field(&t->keys[i], settings) = NULL;
    for (int i = 0; i < t->n_keys; i++) {
        int rc = config_set(t, settings, t->keys[i].name, t->keys[i].fallback, err);
        if (rc < 0) {
            config_release(t, settings);
            return rc;
        }
    }
    return 0;
}

size_t config_size(const struct config_table *t) {
    size_t size = 0;
    for (int i = 0; i < t->n_keys; i++) // no value is larger
        if (t->keys[i].offset + sizeof(int64_t) > size) size = t->keys[i].offset + sizeof(int64_t);
    return size;
}

void config_release(const struct config_table *t, void *settings) {
    for (int i = 0; i < t->n_keys; i++) {
        if (!is_text(&t->keys[i])) continue;
        char **text = field(&t->keys[i], settings);
        free(*text);
        *text = NULL;
    }
}

// --- value to text ---

static int add_bytes(struct buf *out, int64_t v) {
    int unit = -1;
    while (v && v % 1024 == 0 && unit < 3) {
        v /= 1024;
        unit++;
    }
    buf_addf(out, "%lld", (long long)v);
    return unit < 0 ? out->error : buf_addf(out, "%ciB", unit_letters[unit]);
}

static int add_choice(struct buf *out, const char *choices, int index) {
    const char *p = choices;
    while (index-- > 0) p += strcspn(p, "|") + 1;
    return buf_add(out, p, strcspn(p, "|"));
}

int config_text(const struct config_key *key, const void *settings, struct buf *out) {
    const void *v = const_field(key, settings);
    switch (key->type) {
    case CONFIG_BOOL:
        return buf_addz(out, *(const bool *)v ? "on" : "off");
    case CONFIG_INT:
        return buf_addf(out, "%lld", (long long)*(const int64_t *)v);
    case CONFIG_FLOAT:
        return buf_add_double(out, *(const double *)v);
    case CONFIG_BYTES:
        return add_bytes(out, *(const int64_t *)v);
    case CONFIG_STRING:
    case CONFIG_SWITCH:
        return buf_addz(out, *(char *const *)v);
    case CONFIG_CHOICE:
        return add_choice(out, key->choices, *(const int *)v);
    }
    return E_INTERNAL;
}

static void add_bound(const struct config_key *key, double v, struct buf *out) {
    if (key->type == CONFIG_BYTES)
        add_bytes(out, (int64_t)v);
    else
        buf_add_double(out, v);
}

int config_range(const struct config_key *key, struct buf *out) {
    if (key->type == CONFIG_CHOICE) {
        for (const char *p = key->choices; *p;) {
            size_t len = strcspn(p, "|");
            buf_add(out, p, len);
            p += len + (p[len] == '|');
            if (*p) buf_addz(out, strchr(p, '|') ? ", " : " or ");
        }
        return out->error;
    }
    if (key->type == CONFIG_BOOL || key->min == key->max) return out->error;
    bool both = isfinite(key->min) && isfinite(key->max);
    if (isfinite(key->min)) {
        buf_addz(out, both ? "from " : "at least ");
        add_bound(key, key->min, out);
    }
    if (isfinite(key->max)) {
        buf_addz(out, both ? " to " : "at most ");
        add_bound(key, key->max, out);
    }
    return out->error;
}

// --- GET /config ---

static void write_json_value(const struct config_key *key, const void *settings,
                             struct json_writer *w) {
    const void *v = const_field(key, settings);
    if (key->secret) {
        json_open(w, key->name, '{');
        json_put_bool(w, "set", !is_text(key) || **(char *const *)v);
        json_close(w, '}');
        return;
    }
    struct buf text;
    switch (key->type) {
    case CONFIG_BOOL:
        json_put_bool(w, key->name, *(const bool *)v);
        break;
    case CONFIG_INT:
    case CONFIG_BYTES:
        json_put_int(w, key->name, *(const int64_t *)v);
        break;
    case CONFIG_FLOAT:
        json_put_double(w, key->name, *(const double *)v);
        break;
    case CONFIG_STRING:
    case CONFIG_SWITCH:
    case CONFIG_CHOICE:
        buf_init(&text, TEXT_MAX_BYTES);
        config_text(key, settings, &text);
        json_put_string(w, key->name, buf_z(&text));
        buf_release(&text);
        break;
    }
}

void config_put_sections(const struct config_table *t, const void *settings,
                         struct json_writer *w) {
    for (int i = 0; i < t->n_keys; i++) {
        if (!config_starts_section(t, i)) continue;
        json_open(w, t->keys[i].section, '{');
        for (int k = i; k < t->n_keys; k++)
            if (strcmp(t->keys[k].section, t->keys[i].section) == 0)
                write_json_value(&t->keys[k], settings, w);
        json_close(w, '}');
    }
}

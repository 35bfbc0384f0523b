// See json_form.h.
#include "base/json_form.h"
#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#define KEY_MAX 64

enum kind { STRING, TEXT, INT, LONG, SIZE, LONG_OR_NULL, U64, BOOL, DOUBLE, FLOAT, N_KINDS };
static const char *const spellings[N_KINDS] = {"%s",   "%.*s", "%d",   "%ld", "%zu",
                                               "%+ld", "%lu",  "%hhd", "%g",  "%f"};

// The kind of the argument at *at, which moves behind it.
static enum kind kind_of(const char **at) {
    int kind = 0;
    while (kind < N_KINDS && ((*at)[1] != spellings[kind][1] ||
                              strncmp(*at, spellings[kind], strlen(spellings[kind])) != 0))
        kind++;
    assert(kind < N_KINDS);
    *at += strlen(spellings[kind]);
    return (enum kind)kind;
}

static void put_argument(struct json_writer *w, const char *key, enum kind kind, va_list *args) {
    int len;
    switch (kind) {
    case STRING:
        json_put_string(w, key, va_arg(*args, const char *));
        break;
    case TEXT:
        len = va_arg(*args, int);
        json_put_text(w, key, va_arg(*args, const char *), (size_t)len);
        break;
    case INT:
        json_put_int(w, key, va_arg(*args, int));
        break;
    case LONG:
        json_put_int(w, key, va_arg(*args, long));
        break;
    case SIZE:
        json_put_int(w, key, (int64_t)va_arg(*args, size_t));
        break;
    case LONG_OR_NULL:
        json_put_int_or_null(w, key, va_arg(*args, long));
        break;
    case U64:
        json_put_u64_string(w, key, va_arg(*args, unsigned long));
        break;
    case BOOL:
        json_put_bool(w, key, va_arg(*args, int));
        break;
    case DOUBLE:
        json_put_double(w, key, va_arg(*args, double));
        break;
    case FLOAT:
        json_put_float(w, key, (float)va_arg(*args, double));
        break;
    case N_KINDS:
        break;
    }
}

// A loop, since strspn and strcspn make a table of their set at each call: a form is read for each chunk of an answer.
static size_t key_len(const char *at) {
    size_t len = 0;
    while (isalnum((unsigned char)at[len]) || at[len] == '_') len++;
    return len;
}

static size_t constant_len(const char *at) {
    size_t len = 0;
    while (at[len] && at[len] != ',' && at[len] != ']' && at[len] != '}') len++;
    return len;
}

// The value at `at`: an opening bracket, a constant or an argument. Returns what follows it.
static const char *put_value(struct json_writer *w, const char *key, const char *at,
                             va_list *args) {
    if (*at == '{' || *at == '[') {
        json_open(w, key, *at);
        return at + 1;
    }
    if (*at == '%') {
        enum kind kind = kind_of(&at);
        put_argument(w, key, kind, args);
        return at;
    }
    bool quoted = *at == '\'';
    size_t len = quoted ? strcspn(++at, "'") : constant_len(at);
    assert(len > 0 || quoted);
    if (quoted)
        json_put_text(w, key, at, len);
    else
        json_put_raw(w, key, at, len);
    return at + len + quoted;
}

static void put_form(struct json_writer *w, const char *at, va_list *args) {
    char key[KEY_MAX];
    while (*at) {
        if (*at == ',' || *at == ' ') {
            at++;
        } else if (*at == '}' || *at == ']') {
            json_close(w, *at++);
        } else if (strncmp(at, "%s:", 3) == 0) {
            const char *given = va_arg(*args, const char *);
            at = put_value(w, given, at + 3, args);
        } else {
            size_t len = key_len(at);
            bool has_key = at[len] == ':';
            assert(len < sizeof key);
            memcpy(key, at, len);
            key[len] = '\0';
            at = put_value(w, has_key ? key : NULL, has_key ? at + len + 1 : at, args);
        }
    }
}

void json_form(struct json_writer *w, const char *form, ...) {
    va_list args;
    va_start(args, form);
    put_form(w, form, &args);
    va_end(args);
}

void json_form_to(struct buf *out, const char *form, ...) {
    struct json_writer w;
    va_list args;
    json_writer_init(&w, out);
    va_start(args, form);
    put_form(&w, form, &args);
    va_end(args);
}

cJSON *json_tree(const char *form, ...) {
    struct json_writer w;
    struct buf text;
    va_list args;
    buf_init(&text, SIZE_MAX / 2);
    json_writer_init(&w, &text);
    va_start(args, form);
    put_form(&w, form, &args);
    va_end(args);
    cJSON *tree = text.error ? NULL : json_parse(buf_z(&text), text.len, &json_limits_file, NULL);
    buf_release(&text);
    return tree;
}

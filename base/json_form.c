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

// optional: the member is left out where its argument says nothing.
static void put_argument(struct json_writer *w, const char *key, bool optional, enum kind kind,
                         va_list *args) {
    const char *text;
    int64_t number;
    double real;
    int len;
    switch (kind) {
    case STRING:
        text = va_arg(*args, const char *);
        if (!optional || (text && *text)) json_put_string(w, key, text);
        break;
    case TEXT:
        len = va_arg(*args, int);
        text = va_arg(*args, const char *);
        if (!optional || len > 0) json_put_text(w, key, text, (size_t)len);
        break;
    case INT:
        number = va_arg(*args, int);
        if (!optional || number) json_put_int(w, key, number);
        break;
    case LONG:
        number = va_arg(*args, long);
        if (!optional || number) json_put_int(w, key, number);
        break;
    case SIZE:
        number = (int64_t)va_arg(*args, size_t);
        if (!optional || number) json_put_int(w, key, number);
        break;
    case LONG_OR_NULL:
        number = va_arg(*args, long);
        if (!optional || number >= 0) json_put_int_or_null(w, key, number);
        break;
    case U64:
        json_put_u64_string(w, key, va_arg(*args, unsigned long));
        break;
    case BOOL:
        number = va_arg(*args, int);
        if (!optional || number) json_put_bool(w, key, number);
        break;
    case DOUBLE:
        real = va_arg(*args, double);
        if (!optional || real != 0) json_put_double(w, key, real);
        break;
    case FLOAT:
        real = va_arg(*args, double);
        if (!optional || real != 0) json_put_float(w, key, (float)real);
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
static const char *put_value(struct json_writer *w, const char *key, bool optional, const char *at,
                             va_list *args) {
    if (*at == '{' || *at == '[') {
        json_open(w, key, *at);
        return at + 1;
    }
    assert(!optional || *at == '%');
    if (*at == '%') {
        enum kind kind = kind_of(&at);
        put_argument(w, key, optional, kind, args);
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
            at = put_value(w, given, false, at + 3, args);
        } else {
            size_t len = key_len(at);
            bool optional = at[len] == '?', has_key = at[len + optional] == ':';
            assert(len < sizeof key);
            memcpy(key, at, len);
            key[len] = '\0';
            if (has_key) at += len + optional + 1;
            at = put_value(w, has_key ? key : NULL, optional, at, args);
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

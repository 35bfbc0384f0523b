// See text.h.
#include "engine/grammar/text.h"
#include "base/xxh64.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grammar_text {
    atomic_int n_holders;
    enum grammar_kind kind;
    char hash[33];
    size_t len;
    char text[];
};

const char *grammar_kind_name(enum grammar_kind kind) {
    static const char *const names[] = {"json_schema", "grammar", "regex", "choice"};
    return names[kind];
}

int grammar_text_new(const struct grammar_text **out, enum grammar_kind kind, const char *text,
                     size_t len, struct err *err) {
    const char *name = grammar_kind_name(kind);
    *out = NULL;
    if (len == 0) return err_set(err, E_INVAL, "%s is empty", name);
    if (len > GRAMMAR_TEXT_MAX)
        return err_set(err, E_INVAL, "%s has %zu bytes: at most %d are possible", name, len,
                       GRAMMAR_TEXT_MAX);
    if (memchr(text, 0, len)) return err_set(err, E_INVAL, "%s has a NUL byte", name);
    struct grammar_text *t = malloc(sizeof *t + len + 1);
    if (!t) return err_set(err, E_NOMEM, "no memory for %s", name);
    atomic_init(&t->n_holders, 1);
    t->kind = kind;
    t->len = len;
    memcpy(t->text, text, len);
    t->text[len] = 0;
    for (int half = 0; half < 2; half++)
        snprintf(t->hash + 16 * half, 17, "%016llx",
                 (unsigned long long)xxh64(text, len, (uint64_t)kind * 2 + (uint64_t)half));
    *out = t;
    return 0;
}

const struct grammar_text *grammar_text_hold(const struct grammar_text *t) {
    if (t) atomic_fetch_add(&((struct grammar_text *)(uintptr_t)t)->n_holders, 1);
    return t;
}

void grammar_text_free(const struct grammar_text *t) {
    struct grammar_text *mine = (struct grammar_text *)(uintptr_t)t;
    if (mine && atomic_fetch_sub(&mine->n_holders, 1) == 1) free(mine);
}

enum grammar_kind grammar_text_kind(const struct grammar_text *t) {
    return t->kind;
}

const char *grammar_text_string(const struct grammar_text *t, size_t *len) {
    if (len) *len = t->len;
    return t->text;
}

const char *grammar_text_hash(const struct grammar_text *t) {
    return t->hash;
}

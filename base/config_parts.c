// Named sections of an ini file. See config_parts.h.
#include "base/config_parts.h"
#include "base/array.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX_BYTES (1 << 20)

static void free_part(struct config_part *p) {
    for (size_t i = 0; i < p->n_given; i++) free(p->given[i].value);
    free(p->given);
    free(p->name);
    free(p);
}

void config_parts_release(struct config_parts *parts) {
    while (parts->first) {
        struct config_part *p = parts->first;
        parts->first = p->next;
        free_part(p);
    }
}

struct config_part *config_part_add(struct config_parts *parts, const char *name, struct err *err) {
    struct config_part **at = &parts->first;
    for (; *at; at = &(*at)->next) {
        if (strcmp((*at)->name, name) != 0) continue;
        err_set(err, E_FORMAT, "there are two sections [%s %s]", parts->kind, name);
        return NULL;
    }
    if (parts->check_name(name, err) < 0) return NULL;
    struct config_part *p = calloc(1, sizeof *p);
    if (p) p->name = strdup(name);
    if (!p || !p->name) {
        free(p);
        err_set(err, E_NOMEM, "out of memory");
        return NULL;
    }
    return *at = p;
}

int config_part_give(struct config_part *p, const struct config_key *key, const char *value) {
    for (size_t i = 0; i < p->n_given; i++)
        if (p->given[i].key == key) return E_EXISTS;
    char *copy = strdup(value);
    if (!copy || ARRAY_RESIZE(p->given, p->n_given + 1) < 0) {
        free(copy);
        return E_NOMEM;
    }
    p->given[p->n_given++] = (struct config_given){key, copy};
    return 0;
}

static int copy_all(const struct config_table *t, const void *settings, void *out,
                    struct err *err) {
    struct buf text;
    int rc = 0;
    buf_init(&text, TEXT_MAX_BYTES);
    for (int i = 0; i < t->n_keys && rc >= 0; i++) {
        buf_reset(&text);
        rc = config_text(&t->keys[i], settings, &text);
        if (rc >= 0) rc = config_set(t, out, t->keys[i].name, buf_z(&text), err);
    }
    buf_release(&text);
    return rc < 0 ? rc : 0;
}

int config_part_settings(const struct config_table *t, const void *settings,
                         const struct config_part *p, void *out, struct err *err) {
    TRY(config_init(t, out, err));
    int rc = copy_all(t, settings, out, err);
    for (size_t i = 0; p && i < p->n_given && rc >= 0; i++)
        rc = config_set(t, out, p->given[i].key->name, p->given[i].value, err);
    if (rc < 0) config_release(t, out);
    return rc < 0 ? rc : 0;
}

void config_write_parts(const struct config_parts *parts, FILE *out) {
    for (const struct config_part *p = parts->first; p; p = p->next) {
        fprintf(out, "\n[%s %s]\n", parts->kind, p->name);
        for (size_t i = 0; i < p->n_given; i++)
            fprintf(out, "%s =%s%s\n", p->given[i].key->name, *p->given[i].value ? " " : "",
                    p->given[i].value);
    }
}

void config_put_parts(struct json_writer *w, const char *key, const struct config_parts *parts) {
    json_open(w, key, '{');
    for (const struct config_part *p = parts->first; p; p = p->next) {
        json_open(w, p->name, '{');
        for (size_t i = 0; i < p->n_given; i++)
            json_put_string(w, p->given[i].key->name, p->given[i].value);
        json_close(w, '}');
    }
    json_close(w, '}');
}

// The parser of text protobufs. See pbtxt.h.
#include "ws/kserve/pbtxt.h"
#include "base/buf.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32
#define STRING_MAX_BYTES 65536

struct parser {
    const char *p, *path;
    int line;
    struct err *err;
};

static int bad(const struct parser *g, const char *what) {
    return err_set(g->err, E_FORMAT, "%s:%d: %s", g->path, g->line, what);
}

static void skip_space(struct parser *g) {
    for (;; g->p++) {
        if (*g->p == '#') g->p += strcspn(g->p, "\n");
        if (*g->p == '\n') g->line++;
        if (!*g->p || !strchr(" \t\r\n", *g->p)) return;
    }
}

static bool take(struct parser *g, char c) {
    skip_space(g);
    if (*g->p != c) return false;
    g->p++;
    return true;
}

static bool is_word_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("_.+-/", c));
}

static int add_escape(struct parser *g, struct buf *out) {
    static const char names[] = "nrt\\'\"", bytes[] = "\n\r\t\\'\"";
    const char *found = *g->p ? strchr(names, *g->p) : NULL;
    if (!found) return bad(g, "unknown escape in a string");
    g->p++;
    return buf_addc(out, bytes[found - names]);
}

// Joins adjacent strings.
static int take_string(struct parser *g, struct buf *out) {
    while (take(g, '"') || take(g, '\'')) {
        char quote = g->p[-1];
        while (*g->p != quote) {
            if (!*g->p || *g->p == '\n') return bad(g, "a string does not end");
            if (*g->p == '\\') {
                g->p++;
                TRY(add_escape(g, out));
            } else {
                buf_addc(out, *g->p++);
            }
        }
        g->p++;
    }
    return out->error ? bad(g, "a string is too long") : 0;
}

static int take_scalar(struct parser *g, char **out) {
    struct buf text;
    int rc = 0;
    skip_space(g);
    buf_init(&text, STRING_MAX_BYTES);
    buf_addz(&text, "");
    if (*g->p == '"' || *g->p == '\'')
        rc = take_string(g, &text);
    else if (!is_word_char(*g->p))
        rc = bad(g, "a value is missing");
    else
        while (is_word_char(*g->p)) buf_addc(&text, *g->p++);
    *out = rc == 0 ? buf_take(&text, NULL) : NULL;
    buf_release(&text);
    if (rc == 0 && !*out) rc = err_set(g->err, E_NOMEM, "no memory to read %s", g->path);
    return rc;
}

static struct pbtxt *node_new(const struct parser *g, const char *name, size_t len) {
    struct pbtxt *n = calloc(1, sizeof *n);
    if (n) n->name = strndup(name, len);
    if (n && n->name) {
        n->line = g->line;
        return n;
    }
    free(n);
    err_set(g->err, E_NOMEM, "no memory to read %s", g->path);
    return NULL;
}

static int take_fields(struct parser *g, struct pbtxt *into, char end, int depth);

// A field's value: a message, or a scalar.
static int take_value(struct parser *g, struct pbtxt *n, int depth) {
    char close = take(g, '{') ? '}' : take(g, '<') ? '>' : '\0';
    if (!close) return take_scalar(g, &n->value);
    if (depth == MAX_DEPTH) return bad(g, "messages are nested too deeply");
    return take_fields(g, n, close, depth + 1);
}

static int take_field(struct parser *g, struct pbtxt ***last, int depth) {
    const char *name = g->p;
    while (is_word_char(*g->p)) g->p++;
    size_t len = (size_t)(g->p - name);
    if (len == 0) return bad(g, "a field's name is missing");
    bool colon = take(g, ':'), list = take(g, '[');
    skip_space(g);
    if (!colon && !list && *g->p != '{' && *g->p != '<')
        return bad(g, "a field needs ':' or '{' after its name");
    if (list && take(g, ']')) return 0;
    do {
        skip_space(g);
        struct pbtxt *n = node_new(g, name, len);
        if (!n) return E_NOMEM;
        **last = n;
        *last = &n->next;
        TRY(take_value(g, n, depth));
    } while (list && take(g, ','));
    return list && !take(g, ']') ? bad(g, "a list does not end") : 0;
}

static int take_fields(struct parser *g, struct pbtxt *into, char end, int depth) {
    struct pbtxt **last = &into->children;
    for (;;) {
        skip_space(g);
        if (*g->p == end) break;
        if (!*g->p) return bad(g, "the file ends inside a message");
        TRY(take_field(g, &last, depth));
        if (!take(g, ',')) take(g, ';');
    }
    if (end) g->p++;
    return 0;
}

int pbtxt_parse(struct pbtxt **out, const char *text, const char *path, struct err *err) {
    struct parser g = {text, path, 1, err};
    struct pbtxt *root = node_new(&g, "", 0);
    *out = NULL;
    if (!root) return E_NOMEM;
    int rc = take_fields(&g, root, '\0', 0);
    if (rc < 0) {
        pbtxt_free(root);
        return rc;
    }
    *out = root;
    return 0;
}

void pbtxt_free(struct pbtxt *p) {
    for (struct pbtxt *next; p; p = next) {
        next = p->next;
        pbtxt_free(p->children);
        free(p->name);
        free(p->value);
        free(p);
    }
}

const struct pbtxt *pbtxt_find(const struct pbtxt *message, const char *name) {
    const struct pbtxt *p = message ? message->children : NULL;
    while (p && strcmp(p->name, name) != 0) p = p->next;
    return p;
}

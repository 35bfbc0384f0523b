// See arena.h.
#include "engine/jinja/arena.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)32 << 10)
#define ALIGNMENT _Alignof(max_align_t)

struct jinja_chunk {
    struct jinja_chunk *next;
    _Alignas(max_align_t) char bytes[];
};

void jinja_arena_init(struct jinja_arena *a, size_t max) {
    *a = (struct jinja_arena){.max = max};
}

void jinja_arena_release(struct jinja_arena *a) {
    for (struct jinja_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct jinja_arena){0};
}

static struct jinja_chunk *add_chunk(struct jinja_arena *a, size_t size) {
    struct jinja_chunk *c = NULL;
    if (a->error) return NULL;
    if (size > a->max - a->used)
        a->error = E_LIMIT;
    else if (!(c = malloc(sizeof *c + size)))
        a->error = E_NOMEM;
    if (!c) return NULL;
    a->used += size;
    c->next = a->chunks;
    a->chunks = c;
    return c;
}

void *jinja_arena_bytes(struct jinja_arena *a, size_t size) {
    if (size > a->max) {
        a->error = E_LIMIT;
        return NULL;
    }
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > CHUNK_BYTES / 4 && size > a->left) { // of its own; the newest stays in use
        struct jinja_chunk *big = add_chunk(a, size);
        return big ? big->bytes : NULL;
    }
    if (size > a->left) {
        struct jinja_chunk *c = add_chunk(a, CHUNK_BYTES);
        if (!c) return NULL;
        a->at = c->bytes;
        a->left = CHUNK_BYTES;
    }
    void *p = a->at;
    a->at += size;
    a->left -= size;
    return p;
}

void *jinja_arena_get(struct jinja_arena *a, size_t size) {
    void *p = jinja_arena_bytes(a, size);
    return p ? memset(p, 0, size) : NULL;
}

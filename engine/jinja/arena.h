// The memory of one chat template or of one rendering: allocated in pieces, freed together, and
// capped, so that a hostile template cannot exhaust the machine.
#pragma once
#include <stddef.h>

struct jinja_chunk;
struct jinja_arena {
    struct jinja_chunk *chunks; // the newest first
    char *at;                   // free bytes of the newest
    size_t left, used, max;
    int error; // sticky: E_NOMEM or E_LIMIT
};

// max: bytes of all chunks together; beyond it jinja_arena_get fails with E_LIMIT. Release frees every value made in
// the arena at once, and leaves one that gives nothing more.
void jinja_arena_init(struct jinja_arena *a, size_t max);
void jinja_arena_release(struct jinja_arena *a);
// Zeroed, aligned for anything. NULL: a->error says why.
void *jinja_arena_get(struct jinja_arena *a, size_t size);
void *jinja_arena_bytes(struct jinja_arena *a, size_t size); // the same, not zeroed

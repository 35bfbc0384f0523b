// See owner_numbers.h. The configuration names all owners, so the table needs no bound.
#include "sessions/store/owner_numbers.h"

#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

struct owner_number {
    uint64_t number;
    UT_hash_handle hh;
    char name[];
};

uint64_t owner_number(struct owner_numbers *n, const char *owner) {
    struct owner_number *o;
    HASH_FIND_STR(n->by_name, owner, o);
    if (o) return o->number;
    size_t len = strlen(owner);
    o = malloc(sizeof *o + len + 1);
    if (!o) return 0;
    memcpy(o->name, owner, len + 1);
    HASH_ADD_STR(n->by_name, name, o);
    if (!hash_added(&o->hh)) {
        free(o);
        return 0;
    }
    return o->number = ++n->last;
}

void owner_numbers_release(struct owner_numbers *n) {
    struct owner_number *o, *next;
    HASH_ITER(hh, n->by_name, o, next) {
        HASH_DEL(n->by_name, o);
        free(o);
    }
    *n = (struct owner_numbers){0};
}

// Changed sessions that wait to be sent to a watcher. A session waits once, however often it changed. The list stores
// session numbers, which take little memory, and sends the sessions in rotation, so that a session that changes all the
// time does not delay the other sessions.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct change {
    int64_t key;
    char *removed; // the id of a deleted session; NULL: it changed
};
struct changes {         // all zero: none
    struct change *list; // (n) by key
    size_t n, cap, bytes;
    int64_t last; // the one taken last
};

#define CHANGES_MAX_BYTES ((size_t)192 << 10)

// E_NOMEM, or E_LIMIT beyond CHANGES_MAX_BYTES.
int changes_add(struct changes *c, int64_t key, const char *removed /* or NULL */);
bool changes_take(struct changes *c, struct change *out); // free out->removed. False: none
void changes_release(struct changes *c);

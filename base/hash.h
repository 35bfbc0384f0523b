// uthash, told that memory may run out: a table that cannot take an entry is an error to handle,
// not a reason to end the process (which is what uthash does by itself). Everyone includes it from
// here.
//
// After HASH_ADD the entry's handle has a table, or the entry was not added:
//     HASH_ADD(hh, table, key, sizeof e->key, e);
//     if (!hash_added(&e->hh)) { free(e); return E_NOMEM; }
#pragma once
#include <stdbool.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

static inline bool hash_added(const UT_hash_handle *hh) {
    return hh->tbl != NULL;
}

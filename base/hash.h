// uthash, configured so that running out of memory is an error that the caller handles; by default
// uthash ends the process. Include it only through this header.
//
// If HASH_ADD could not add the entry, the entry's handle has no table:
//     HASH_ADD(hh, table, key, sizeof e->key, e);
//     if (!hash_added(&e->hh)) { free(e); return E_NOMEM; }
#pragma once
#include <stdbool.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

// hh: the handle of the entry that HASH_ADD was given.
static inline bool hash_added(const UT_hash_handle *hh) {
    return hh->tbl != NULL;
}

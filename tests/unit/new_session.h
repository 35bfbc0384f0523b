// Shared by the tests of a store without sessions around it: the record of a new session.
#pragma once
#include "sessions/store/store.h"

#include <inttypes.h>
#include <stdio.h>

// Saves session "s<key>" for the first time, changed `key` ms after 1970. Its strings are the caller's, and so is `id`,
// where its name is written.
static inline struct session_save new_session(char id[32], int64_t key, const char *owner,
                                              const char *title) {
    snprintf(id, 32, "s%" PRId64, key);
    return (struct session_save){.insert = true,
                                 .title_changed = true,
                                 .rec = {.key = key,
                                         .id = id,
                                         .owner = (char *)owner,
                                         .model = (char *)"m",
                                         .fingerprint = (char *)"f",
                                         .title = (char *)title,
                                         .sampling = (char *)"{}",
                                         .updated_ms = key}};
}

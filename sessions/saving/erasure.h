// A turn and all below it leave the record. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Marks a turn and all below it: the next save erases them. E_NOMEM.
int erasure_mark(struct session *s, int64_t turn);
void erasure_unmark(struct session *s);
int64_t erasure_bytes(const struct session *s); // bytes that erasing the marked turns frees
int erasure_fill(const struct session *s, struct session_save *save); // E_NOMEM
void erasure_commit(struct session *s); // the save is on disk: erases them in memory

// An archive that a client sends in pieces, because it does not fit into one message.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

#define UPLOAD_BYTES ((size_t)15 << 20)       // of one archive: what an export may have
#define UPLOAD_TOTAL_BYTES ((size_t)64 << 20) // of all connections' together
#define UPLOAD_PAUSE_US 30000000              // after that long without a piece it is dropped

struct upload { // zeroed: empty
    struct buf text;
    size_t *total; // of all uploads
    int64_t since_us;
};

// Adds a piece that begins at byte `at`; 0 begins again. E_INVAL: another piece is missing. E_LIMIT:
// the archive is too long. E_BUSY: other uploads fill the memory. A failure drops all of it.
int upload_add(struct upload *u, size_t *total, int64_t at, const char *piece, size_t len,
               int64_t now_us, struct err *err);
void upload_tick(struct upload *u, int64_t now_us); // drops one that has stopped
void upload_release(struct upload *u);

// The turns of a record that a client reads in pieces (a store_cursor's text), also turns longer than a piece.
#pragma once
#include "base/json.h"
#include "sessions/store/record.h"

#define PIECE_BYTES ((size_t)64 << 10)   // a piece ends with the turn or event that passes this
#define TURN_BYTES_MAX ((size_t)1 << 31) // of one turn's text

struct turn_pieces {
    size_t skip; // bytes of the next turn that went before
    bool comma;  // a turn precedes it
};
typedef int (*turn_write_fn)(struct json_writer *w, const struct stored_turn *t);

// Appends the next piece of turn t, as `write` writes it, to out. 1: the turn's last piece; 0: more follow; E_*. A long
// turn is written again for each of its pieces: only p stays in memory.
int turn_pieces_next(struct turn_pieces *p, turn_write_fn write, const struct stored_turn *t,
                     struct buf *out);

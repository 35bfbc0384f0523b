// See turn_pieces.h.
#include "sessions/archive/turn_pieces.h"
#include "base/utf8.h"

#define LONG_PIECE_BYTES ((size_t)256 << 10)

int turn_pieces_next(struct turn_pieces *p, turn_write_fn write, const struct stored_turn *t,
                     struct buf *out) {
    struct buf text;
    buf_init(&text, TURN_BYTES_MAX);
    struct json_writer w = {.buf = &text, .comma = p->comma};
    int rc = write(&w, t);
    if (rc == 0) rc = text.error;
    size_t left = rc == 0 ? text.len - p->skip : 0, n = left;
    if (n > LONG_PIECE_BYTES) n = utf8_complete_len(buf_z(&text) + p->skip, LONG_PIECE_BYTES);
    if (rc == 0) rc = buf_add(out, buf_z(&text) + p->skip, n);
    buf_release(&text);
    p->skip = n < left ? p->skip + n : 0;
    if (n == left) p->comma = true;
    return rc < 0 ? rc : n == left;
}

// Growable byte buffer with a cap, after curl's dynbuf: the owner of a buffer that a network or a
// file fills sets its maximum size in buf_init.
//
// The error is sticky: after the first failed add the buffer no longer changes and buf.error keeps
// E_NOMEM or E_LIMIT. A writer may therefore make many adds and check once. data is always
// NUL-terminated when non-NULL.
#pragma once
#include <stddef.h>

struct buf {
    char *data;
    size_t len; // bytes in use, without the terminating NUL
    size_t cap; // bytes allocated
    size_t max; // len never exceeds this
    int error;  // 0, E_NOMEM or E_LIMIT
};

void buf_init(struct buf *b, size_t max);    // empty; it will have at most max bytes
void buf_release(struct buf *b);             // frees; the buffer may be used again after buf_init
void buf_reset(struct buf *b);               // len = 0, error = 0, keeps the allocation
int buf_reserve(struct buf *b, size_t more); // room for `more` further bytes
// Append. 0, E_NOMEM or E_LIMIT, which b->error keeps: later adds return it and change nothing.
int buf_add(struct buf *b, const void *bytes, size_t len);
int buf_addz(struct buf *b, const char *zstring);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Writes the fewest digits that read back as the same double (0.1, not 0.10000000000000001), with a
// point in every locale; "NaN", "+Inf", "-Inf".
int buf_add_double(struct buf *b, double v);
// Replaces each maximal invalid subpart of s by U+FFFD (Unicode chapter 3, table 3-8), as Python's
// errors="replace" and browsers do.
int buf_add_utf8(struct buf *b, const char *s, size_t len);
void buf_remove_front(struct buf *b, size_t n); // drops the first n bytes
const char *buf_z(const struct buf *b);         // never NULL: "" while empty
// Gives the bytes (NUL-terminated, free() them) to the caller; the buffer is empty afterwards.
// NULL when the buffer is in error or memory is out.
char *buf_take(struct buf *b, size_t *len);

// Reads a whole regular file of at most max bytes: a pipe or a device in its place could keep the
// caller waiting for ever, and is E_INVAL. Initialises *out, also on failure.
struct err;
int buf_read_file(struct buf *out, const char *path, size_t max, struct err *err);
// As buf_read_file, for a path that a person names, such as a shell's <(command): a pipe is read to
// its end. E_TIMEOUT: it has not ended after wait_ms milliseconds (above 0).
int buf_read_file_or_pipe(struct buf *out, const char *path, size_t max, int wait_ms,
                          struct err *err);

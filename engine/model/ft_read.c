// Reads bytes of a merged tensor from the files of its FasterTransformer ranks. See ft_checkpoint.h.
//
// A merged tensor is a number of lines, and a rank's file has the same columns of every line. A piece
// (a rank's part of a line) is short, often some kilobytes, and each read call has a cost. So a few
// bytes are read piece by piece, but many lines are read rank by rank through a block of memory.
#include "base/io.h"
#include "engine/model/ft_files.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20)

struct source { // the tensor being read
    const struct ft_checkpoint *c;
    const struct ft_entry *e;
    size_t line, piece; // bytes of a line; of them, in one file
    struct err *err;
};

static struct source source_of(const struct ft_checkpoint *c, const struct ft_entry *e,
                               struct err *err) {
    size_t size = dtype_size(e->tensor.dtype);
    return (struct source){.c = c,
                           .e = e,
                           .line = (size_t)e->array.width * size,
                           .piece = (size_t)ft_files_piece(&c->files, &e->array) * size,
                           .err = err};
}

// --- one file ---

static int open_rank(const struct source *s, int32_t rank, char path[PATH_MAX]) {
    const struct ft_files *f = &s->c->files;
    TRY(ft_files_path(f, path, &s->e->array, rank, s->err));
    return ft_files_open(f, s->e->first_file + (size_t)rank, path, s->err);
}

static int read_file(const struct source *s, int32_t rank, size_t offset, void *out, size_t n) {
    char path[PATH_MAX];
    int fd = open_rank(s, rank, path);
    if (fd < 0) return fd;
    int rc = io_read_at(fd, out, n, offset, path, s->err);
    close(fd);
    return rc;
}

// --- some bytes ---

static int read_pieces(const struct source *s, size_t offset, char *out, size_t n) {
    while (n > 0) {
        size_t line = offset / s->line, at = offset % s->line;
        int32_t rank = (int32_t)(at / s->piece);
        size_t in_piece = at % s->piece, take = s->piece - in_piece;
        if (take > n) take = n;
        TRY(read_file(s, rank, line * s->piece + in_piece, out, take));
        out += take;
        offset += take;
        n -= take;
    }
    return 0;
}

// --- whole lines ---

static int read_rank_lines(const struct source *s, int32_t rank, size_t first, size_t n, char *out,
                           char *block) {
    char path[PATH_MAX];
    size_t most = BLOCK_BYTES / s->piece;
    int fd = open_rank(s, rank, path), rc = 0;
    if (fd < 0) return fd;
    for (size_t done = 0; done < n && rc == 0;) {
        size_t take = n - done < most ? n - done : most;
        rc = io_read_at(fd, block, take * s->piece, (first + done) * s->piece, path, s->err);
        char *to = out + done * s->line + (size_t)rank * s->piece;
        for (size_t i = 0; i < take && rc == 0; i++)
            memcpy(to + i * s->line, block + i * s->piece, s->piece);
        done += take;
    }
    close(fd);
    return rc;
}

static int read_lines(const struct source *s, size_t first, size_t n, char *out) {
    char *block = malloc(BLOCK_BYTES);
    if (!block) return err_set(s->err, E_NOMEM, "no memory to read %s", s->e->tensor.name);
    int rc = 0;
    for (int32_t rank = 0; rank < s->c->files.n_ranks && rc == 0; rank++)
        rc = read_rank_lines(s, rank, first, n, out, block);
    free(block);
    return rc;
}

static int read_merged(const struct source *s, size_t offset, char *out, size_t n) {
    size_t first = (offset + s->line - 1) / s->line, end = (offset + n) / s->line;
    if (s->piece > BLOCK_BYTES / 2 || end < first + 2) return read_pieces(s, offset, out, n);
    size_t head = first * s->line - offset, body = (end - first) * s->line;
    TRY(read_pieces(s, offset, out, head));
    TRY(read_lines(s, first, end - first, out + head));
    return read_pieces(s, end * s->line, out + head + body, n - head - body);
}

// --- a head stored the other way round ---

// Rows [first, first + n) of the (vocab, width) tensor that the file has as (width, vocab).
static int turn_rows(const struct source *s, size_t first, size_t n, char *out, char *column) {
    char path[PATH_MAX];
    size_t size = dtype_size(s->e->tensor.dtype);
    size_t vocab = (size_t)s->e->tensor.shape[0], width = (size_t)s->e->tensor.shape[1];
    int fd = open_rank(s, 0, path), rc = 0;
    if (fd < 0) return fd;
    for (size_t col = 0; col < width && rc == 0; col++) {
        rc = io_read_at(fd, column, n * size, (col * vocab + first) * size, path, s->err);
        for (size_t row = 0; row < n && rc == 0; row++)
            memcpy(out + (row * width + col) * size, column + row * size, size);
    }
    close(fd);
    return rc;
}

// Row by row of a block, because the requested bytes may begin and end within a row.
static int read_turned(const struct source *s, size_t offset, char *out, size_t n) {
    size_t row = (size_t)s->e->tensor.shape[1] * dtype_size(s->e->tensor.dtype);
    size_t most = BLOCK_BYTES / row ? BLOCK_BYTES / row : 1, vocab = (size_t)s->e->tensor.shape[0];
    char *block = malloc(most * row), *column = malloc(most * sizeof(float));
    int rc =
        block && column ? 0 : err_set(s->err, E_NOMEM, "no memory to read %s", s->e->tensor.name);
    while (n > 0 && rc == 0) {
        size_t first = offset / row, skip = offset % row;
        size_t rows = vocab - first < most ? vocab - first : most;
        if (rows > (skip + n + row - 1) / row) rows = (skip + n + row - 1) / row;
        size_t take = rows * row - skip < n ? rows * row - skip : n;
        rc = turn_rows(s, first, rows, block, column);
        if (rc == 0) memcpy(out, block + skip, take);
        out += take;
        offset += take;
        n -= take;
    }
    free(block);
    free(column);
    return rc;
}

// --- public ---

static bool is_turned(const struct ft_checkpoint *c, const struct ft_entry *e) {
    return e->array.role == FT_HEAD && !e->array.bias && c->config.head_transposed;
}

int ft_checkpoint_read(const struct ft_checkpoint *c, const struct tensor *t, size_t offset,
                       void *out, size_t n, struct err *err) {
    const struct ft_entry *e =
        (const struct ft_entry *)((const char *)t - offsetof(struct ft_entry, tensor));
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "tensor '%s': %zu bytes at %zu are not all in it", t->name,
                       n, offset);
    struct source s = source_of(c, e, err);
    if (is_turned(c, e)) return read_turned(&s, offset, out, n);
    return read_merged(&s, offset, out, n);
}

// --- head and embedding ---

static const struct ft_entry *find(const struct ft_checkpoint *c, enum ft_role role) {
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].array.role == role && !c->entries[i].array.bias) return &c->entries[i];
    return NULL;
}

// Compares the embedding with the head's file, transposed or not, a block of rows at a time.
static int compare(const struct source *embed, const struct source *head, bool turned, char *one,
                   char *other, bool *same) {
    size_t row = (size_t)embed->e->tensor.shape[1] * dtype_size(embed->e->tensor.dtype);
    size_t most = BLOCK_BYTES / row ? BLOCK_BYTES / row : 1;
    size_t vocab = (size_t)embed->e->tensor.shape[0];
    *same = true;
    for (size_t first = 0; first < vocab && *same; first += most) {
        size_t rows = vocab - first < most ? vocab - first : most;
        TRY(read_file(embed, 0, first * row, one, rows * row));
        TRY(turned ? read_turned(head, first * row, other, rows * row)
                   : read_file(head, 0, first * row, other, rows * row));
        *same = memcmp(one, other, rows * row) == 0;
    }
    return 0;
}

int ft_checkpoint_head_is_embed(const struct ft_checkpoint *c, bool *out, struct err *err) {
    *out = true;
    if (!c->has_head) return 0;
    struct source embed = source_of(c, find(c, FT_EMBED), err);
    struct source head = source_of(c, find(c, FT_HEAD), err);
    size_t row = (size_t)c->config.model.width * dtype_size(c->config.model.dtype);
    size_t room = row > BLOCK_BYTES ? row : BLOCK_BYTES;
    char *one = malloc(room), *other = malloc(room);
    int rc = one && other ? 0 : err_set(err, E_NOMEM, "no memory to compare the embedding");
    if (rc == 0) rc = compare(&embed, &head, false, one, other, out);
    if (rc == 0 && !*out) rc = compare(&embed, &head, true, one, other, out);
    free(one);
    free(other);
    return rc;
}

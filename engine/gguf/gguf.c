// Reads the header of GGUF files: see gguf.h.
//
// The header has no length of its own, so it is read in pieces as far as it goes. Lengths and counts in it are
// believed only as far as the bytes behind them are there. Metadata becomes a tree of cJSON, which takes some 64
// bytes a value: their number is bounded. The ranges of tensors must not overlap and must end within their file.
#include "engine/gguf/gguf.h"
#include "base/io.h"
#include "base/json.h"
#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX_BYTES ((size_t)256 << 20)
#define PIECE_BYTES ((size_t)256 << 10)
#define MAX_KEYS 4096
#define MAX_KEY_BYTES 1024
// Of the metadata, elements of arrays included. The largest vocabulary known, Gemma 4's, has 262,144 tokens, scores and
// types and 514,906 merges. A text costs some 120 bytes and a microsecond.
#define MAX_VALUES (2 << 20)
#define MAX_ARRAY (1 << 20)
#define MAX_ARRAY_DEPTH 4
#define MAX_TENSORS 1000000 // of all parts
#define MAX_NAME_BYTES 256
#define MAX_PARTS 1024
#define DEFAULT_ALIGNMENT 32

struct part {
    char *path;
    int fd;
    struct stat at_open;
    uint64_t data; // where the tensors begin
};

struct gguf {
    struct part *parts; // (n_parts)
    int n_parts;
    cJSON *metadata;             // of the first part
    struct gguf_tensor *tensors; // (n), sorted by name
    size_t n, cap;
};

bool gguf_is_name(const char *path) {
    size_t len = strlen(path);
    return len > 5 && strcasecmp(path + len - 5, ".gguf") == 0;
}

bool gguf_is(const char *path) {
    struct stat st;
    return gguf_is_name(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// --- the bytes of a header ---

struct header {
    const struct part *part;
    char *bytes; // (len), from the file's start on
    size_t len, cap, at;
    size_t n_values;
    bool long_arrays, kept; // kept: of a key that has to do with the tokenizer
    struct err *err;
};

static int damaged(struct header *h, const char *what) {
    return err_set(h->err, E_FORMAT, "%s: %s", h->part->path, what);
}

// Has n more bytes ready at h->at.
static int need(struct header *h, uint64_t n) {
    uint64_t end = h->at + n;
    if (n > (uint64_t)h->part->at_open.st_size || end > (uint64_t)h->part->at_open.st_size)
        return damaged(h, "the file ends within its header");
    if (end > HEADER_MAX_BYTES)
        return err_set(h->err, E_LIMIT, "%s: a header of more than %zu MiB", h->part->path,
                       HEADER_MAX_BYTES >> 20);
    while (h->len < end) {
        size_t want = h->len + PIECE_BYTES > end ? h->len + PIECE_BYTES : (size_t)end;
        if (want > h->cap) {
            size_t cap = want > 2 * h->cap ? want : 2 * h->cap;
            char *bytes = realloc(h->bytes, cap);
            if (!bytes)
                return err_set(h->err, E_NOMEM, "%s: no memory for its header", h->part->path);
            h->bytes = bytes;
            h->cap = cap;
        }
        ssize_t got = pread(h->part->fd, h->bytes + h->len, want - h->len, (off_t)h->len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(h->err, "cannot read %s", h->part->path);
        if (got == 0) return damaged(h, "the file ends within its header");
        h->len += (size_t)got;
    }
    return 0;
}

static int take_uint(struct header *h, int bytes, uint64_t *out) {
    TRY(need(h, (uint64_t)bytes));
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)(uint8_t)h->bytes[h->at++] << (8 * i);
    return 0;
}

// *out is borrowed until the next read.
static int take_text(struct header *h, uint64_t max, const char **out, size_t *len) {
    uint64_t n;
    TRY(take_uint(h, 8, &n));
    if (n > max)
        return err_set(h->err, E_LIMIT, "%s: a text of %llu bytes where %llu are allowed",
                       h->part->path, (unsigned long long)n, (unsigned long long)max);
    TRY(need(h, n));
    *out = h->bytes + h->at;
    *len = (size_t)n;
    h->at += (size_t)n;
    if (memchr(*out, '\0', *len) || !utf8_valid(*out, *len))
        return damaged(h, "a text that is not UTF-8 without NUL");
    return 0;
}

// --- metadata ---

enum value_type {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64
};

static const struct {
    int bytes; // 0: no number
    bool is_signed;
} value_types[] = {{1, false}, {1, true},  {2, false}, {2, true},  {4, false},
                   {4, true},  {4, false}, {1, false}, {0, false}, {0, false},
                   {8, false}, {8, true},  {8, false}};
#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

static cJSON *integer(uint64_t bits, int bytes, bool is_signed) {
    static const uint64_t exact = (uint64_t)1 << 53; // doubles hold every integer below
    char text[24];
    if (is_signed) {
        int64_t v = (int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes);
        snprintf(text, sizeof text, "%lld", (long long)v);
        if (v < (int64_t)exact && v > -(int64_t)exact) return cJSON_CreateNumber((double)v);
    } else {
        snprintf(text, sizeof text, "%llu", (unsigned long long)bits);
        if (bits < exact) return cJSON_CreateNumber((double)bits);
    }
    return cJSON_CreateString(text);
}

static cJSON *real(uint64_t bits, int bytes) {
    double v;
    if (bytes == 4) {
        uint32_t u = (uint32_t)bits;
        float f;
        memcpy(&f, &u, sizeof f);
        v = (double)f;
    } else {
        memcpy(&v, &bits, sizeof v);
    }
    return cJSON_CreateNumber(v);
}

static int take_value(struct header *h, uint64_t type, int depth, cJSON **out);

static int pass_over(struct header *h, uint64_t type, uint64_t n) {
    for (uint64_t i = 0; i < n && type == VALUE_STRING; i++) {
        uint64_t len;
        TRY(take_uint(h, 8, &len));
        TRY(need(h, len));
        h->at += (size_t)len;
    }
    if (type == VALUE_STRING) return 0;
    uint64_t bytes = n * (uint64_t)value_types[type].bytes; // n is bounded
    TRY(need(h, bytes));
    h->at += (size_t)bytes;
    return 0;
}

static int take_array(struct header *h, int depth, cJSON **out) {
    uint64_t type, n;
    TRY(take_uint(h, 4, &type));
    TRY(take_uint(h, 8, &n));
    if (depth == MAX_ARRAY_DEPTH) return damaged(h, "arrays in arrays in arrays");
    const bool kept = h->long_arrays && h->kept;
    if (n > (kept ? MAX_ARRAY : MAX_VALUES))
        return err_set(h->err, E_LIMIT, "%s: an array of %llu values", h->part->path,
                       (unsigned long long)n);
    if (n > GGUF_LONG_ARRAY && !kept && type < N_VALUE_TYPES && type != VALUE_ARRAY) {
        TRY(pass_over(h, type, n));
        *out = cJSON_CreateNull();
        return *out ? 0 : err_set(h->err, E_NOMEM, "%s: no memory for an array", h->part->path);
    }
    cJSON *list = cJSON_CreateArray();
    if (!list) return err_set(h->err, E_NOMEM, "%s: no memory for an array", h->part->path);
    for (uint64_t i = 0; i < n; i++) {
        cJSON *item = NULL;
        int rc = take_value(h, type, depth + 1, &item);
        if (rc < 0) {
            cJSON_Delete(list);
            return rc;
        }
        cJSON_AddItemToArray(list, item); // cannot fail: both are there
    }
    *out = list;
    return 0;
}

static cJSON *text_value(const char *text, size_t len) {
    char *copy = strndup(text, len);
    cJSON *item = copy ? cJSON_CreateStringReference(copy) : NULL;
    if (item) item->type &= ~cJSON_IsReference; // the copy is the item's
    if (!item) free(copy);
    return item;
}

static int take_value(struct header *h, uint64_t type, int depth, cJSON **out) {
    uint64_t bits;
    if (++h->n_values > MAX_VALUES)
        return err_set(h->err, E_LIMIT, "%s: more than %d values of metadata", h->part->path,
                       MAX_VALUES);
    if (type >= N_VALUE_TYPES)
        return err_set(h->err, E_FORMAT, "%s: metadata of the unknown type %llu", h->part->path,
                       (unsigned long long)type);
    if (type == VALUE_ARRAY) return take_array(h, depth, out);
    if (type == VALUE_STRING) {
        const char *text;
        size_t len;
        TRY(take_text(h, HEADER_MAX_BYTES, &text, &len));
        *out = text_value(text, len);
    } else {
        int bytes = value_types[type].bytes;
        TRY(take_uint(h, bytes, &bits));
        *out = type == VALUE_BOOL ? cJSON_CreateBool(bits != 0)
               : type == VALUE_F32 || type == VALUE_F64
                   ? real(bits, bytes)
                   : integer(bits, bytes, value_types[type].is_signed);
    }
    return *out ? 0 : err_set(h->err, E_NOMEM, "%s: no memory for its metadata", h->part->path);
}

static int take_metadata(struct header *h, uint64_t n, cJSON *into) {
    if (n > MAX_KEYS)
        return err_set(h->err, E_LIMIT, "%s: %llu keys of metadata where %d are allowed",
                       h->part->path, (unsigned long long)n, MAX_KEYS);
    for (uint64_t i = 0; i < n; i++) {
        const char *text;
        char key[MAX_KEY_BYTES + 1];
        size_t len;
        uint64_t type;
        cJSON *item = NULL;
        TRY(take_text(h, MAX_KEY_BYTES, &text, &len));
        memcpy(key, text, len);
        key[len] = '\0';
        h->kept = strncmp(key, "tokenizer.", 10) == 0;
        TRY(take_uint(h, 4, &type));
        TRY(take_value(h, type, 0, &item));
        bool twice = cJSON_HasObjectItem(into, key);
        if (twice || !cJSON_AddItemToObject(into, key, item)) {
            cJSON_Delete(item);
            return twice
                       ? err_set(h->err, E_FORMAT, "%s: the key '%.100s' is there twice",
                                 h->part->path, key)
                       : err_set(h->err, E_NOMEM, "%s: no memory for its metadata", h->part->path);
        }
    }
    return 0;
}

// --- tensors ---

static int take_shape(struct header *h, struct gguf_tensor *t) {
    uint64_t n, type, count = 1;
    int64_t dims[GGUF_MAX_DIMS];
    TRY(take_uint(h, 4, &n));
    if (n < 1 || n > GGUF_MAX_DIMS)
        return err_set(h->err, E_FORMAT, "%s: the tensor '%s' has %llu dimensions", h->part->path,
                       t->name, (unsigned long long)n);
    t->n_dims = (int)n;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t dim;
        TRY(take_uint(h, 8, &dim));
        if (dim < 1 || dim > INT64_MAX || __builtin_mul_overflow(count, dim, &count) ||
            count > INT64_MAX / 8)
            return err_set(h->err, E_FORMAT, "%s: the tensor '%s' has an impossible shape",
                           h->part->path, t->name);
        dims[i] = (int64_t)dim;
    }
    for (int i = 0; i < t->n_dims; i++) t->shape[i] = dims[t->n_dims - 1 - i];
    TRY(take_uint(h, 4, &type));
    t->type = block_type_find((uint32_t)type);
    if (!t->type) {
        const char *name = block_type_foreign_name((uint32_t)type);
        return err_set(h->err, E_UNSUPPORTED,
                       "%s: the tensor '%s' is stored as %s (type %llu); known are %s",
                       h->part->path, t->name, name ? name : "something unknown",
                       (unsigned long long)type, block_type_names());
    }
    if (dims[0] % t->type->values)
        return err_set(h->err, E_FORMAT,
                       "%s: the tensor '%s' has rows of %lld values in blocks of %d", h->part->path,
                       t->name, (long long)dims[0], t->type->values);
    t->bytes = count / (uint64_t)t->type->values * (uint64_t)t->type->bytes;
    return 0;
}

static int take_tensor(struct header *h, struct gguf *g) {
    const char *text;
    size_t len;
    TRY(take_text(h, MAX_NAME_BYTES, &text, &len));
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 256;
        struct gguf_tensor *more = realloc(g->tensors, cap * sizeof *more);
        if (!more) return err_set(h->err, E_NOMEM, "%s: no memory for its tensors", h->part->path);
        g->tensors = more;
        g->cap = cap;
    }
    struct gguf_tensor *t = &g->tensors[g->n];
    *t = (struct gguf_tensor){.name = strndup(text, len), .file = g->n_parts};
    if (!t->name) return err_set(h->err, E_NOMEM, "%s: no memory for its tensors", h->part->path);
    g->n++;
    TRY(take_shape(h, t));
    return take_uint(h, 8, &t->offset);
}

// The tensors from `first` on, whose offsets count from the data's start, become places in the file.
static int place_tensors(struct header *h, struct gguf *g, size_t first, uint64_t data,
                         uint64_t alignment) {
    uint64_t size = (uint64_t)h->part->at_open.st_size;
    for (size_t i = first; i < g->n; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->offset % alignment)
            return err_set(h->err, E_FORMAT,
                           "%s: the tensor '%s' does not begin at a multiple of %llu",
                           h->part->path, t->name, (unsigned long long)alignment);
        if (data > size || t->offset > size - data || t->bytes > size - data - t->offset)
            return err_set(h->err, E_CORRUPT,
                           "%s: the tensor '%s' ends behind the file's end: the file is incomplete",
                           h->part->path, t->name);
        t->offset += data;
    }
    return 0;
}

static int by_place(const void *a, const void *b) {
    const struct gguf_tensor *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int check_tensors(struct gguf *g, struct err *err) {
    if (g->n == 0) return 0;
    qsort(g->tensors, g->n, sizeof *g->tensors, by_place);
    for (size_t i = 1; i < g->n; i++) {
        const struct gguf_tensor *a = &g->tensors[i - 1], *b = &g->tensors[i];
        if (a->file == b->file && a->offset + a->bytes > b->offset)
            return err_set(err, E_FORMAT, "%s: the tensors '%s' and '%s' overlap",
                           g->parts[a->file].path, a->name, b->name);
    }
    qsort(g->tensors, g->n, sizeof *g->tensors, by_name);
    for (size_t i = 1; i < g->n; i++)
        if (by_name(&g->tensors[i - 1], &g->tensors[i]) == 0)
            return err_set(err, E_FORMAT, "%s: the tensor '%s' is there twice",
                           g->parts[g->tensors[i].file].path, g->tensors[i].name);
    return 0;
}

// --- a part ---

static int read_header(struct header *h, struct gguf *g, cJSON *metadata, uint64_t *data) {
    uint64_t magic, version, n_tensors, n_keys;
    int64_t alignment = DEFAULT_ALIGNMENT;
    size_t first = g->n;
    TRY(take_uint(h, 4, &magic));
    if (magic != 0x46554747) return damaged(h, "does not begin with GGUF");
    TRY(take_uint(h, 4, &version));
    if (version != 2 && version != 3)
        return err_set(h->err, E_UNSUPPORTED, "%s: GGUF of version %llu; known are 2 and 3%s",
                       h->part->path, (unsigned long long)version,
                       (version & 0xffff) == 0 ? " (this file is big-endian)" : "");
    TRY(take_uint(h, 8, &n_tensors));
    TRY(take_uint(h, 8, &n_keys));
    if (n_tensors > MAX_TENSORS - first)
        return err_set(h->err, E_LIMIT, "%s: %llu tensors where %zu are allowed", h->part->path,
                       (unsigned long long)n_tensors, MAX_TENSORS - first);
    TRY(take_metadata(h, n_keys, metadata));
    for (uint64_t i = 0; i < n_tensors; i++) TRY(take_tensor(h, g));
    TRY(json_get_int(metadata, "general.alignment", 1, 1 << 20, &alignment, h->err));
    if (alignment & (alignment - 1)) return damaged(h, "general.alignment is no power of two");
    *data = (h->at + (uint64_t)alignment - 1) / (uint64_t)alignment * (uint64_t)alignment;
    return place_tensors(h, g, first, *data, (uint64_t)alignment);
}

// Opens the file as the next part; *metadata is the caller's.
static int open_part(struct gguf *g, const char *path, bool long_arrays, cJSON **metadata,
                     struct err *err) {
    struct part *parts = realloc(g->parts, ((size_t)g->n_parts + 1) * sizeof *parts);
    if (!parts) return err_set(err, E_NOMEM, "no memory to open %s", path);
    g->parts = parts;
    struct part *p = &g->parts[g->n_parts];
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    *p = (struct part){.path = strdup(path),
                       .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    struct header h = {.part = p, .long_arrays = long_arrays, .err = err};
    int rc = 0;
    *metadata = cJSON_CreateObject();
    if (!p->path || !*metadata) rc = err_set(err, E_NOMEM, "no memory to open %s", path);
    if (rc == 0 && p->fd < 0) rc = err_errno(err, "cannot open %s", path);
    if (rc == 0 && fstat(p->fd, &p->at_open) < 0) rc = err_errno(err, "cannot examine %s", path);
    if (rc == 0 && !S_ISREG(p->at_open.st_mode)) rc = damaged(&h, "is no plain file");
    if (rc == 0) rc = read_header(&h, g, *metadata, &p->data);
    free(h.bytes);
    g->n_parts++; // gguf_close releases it
    return rc;
}

// --- split files: NAME-00001-of-00003.gguf ---

#define SPLIT_TAIL 20 // "-00001-of-00003.gguf"

static int open_parts(struct gguf *g, const char *path, struct err *err) {
    int64_t n = 1, no = 0, n_tensors = -1;
    size_t len = strlen(path);
    TRY(json_get_int(g->metadata, "split.count", 0, MAX_PARTS, &n, err));
    TRY(json_get_int(g->metadata, "split.no", 0, MAX_PARTS, &no, err));
    TRY(json_get_int(g->metadata, "split.tensors.count", 0, MAX_TENSORS, &n_tensors, err));
    if (n <= 1) return 0;
    if (no != 0)
        return err_set(err, E_INVAL, "%s is part %lld of a split file: name the first part", path,
                       (long long)no + 1);
    char tail[SPLIT_TAIL + 1];
    snprintf(tail, sizeof tail, "-00001-of-%05d.gguf", (int)n);
    if (len <= SPLIT_TAIL || strcmp(path + len - SPLIT_TAIL, tail) != 0)
        return err_set(err, E_FORMAT,
                       "%s is the first of %lld parts, but its name does not end in %s", path,
                       (long long)n, tail);
    char *next = strdup(path);
    if (!next) return err_set(err, E_NOMEM, "no memory to open %s", path);
    int rc = 0;
    for (int64_t i = 1; i < n && rc == 0; i++) {
        cJSON *metadata = NULL;
        int64_t its_no = -1, its_n = -1;
        snprintf(next + len - SPLIT_TAIL, SPLIT_TAIL + 1, "-%05u-of-%05u.gguf",
                 (unsigned)(i + 1) % 100000, (unsigned)n % 100000);
        rc = open_part(g, next, false, &metadata, err);
        if (rc == 0) rc = json_get_int(metadata, "split.no", 0, MAX_PARTS, &its_no, err);
        if (rc >= 0) rc = json_get_int(metadata, "split.count", 0, MAX_PARTS, &its_n, err);
        if (rc >= 0)
            rc = its_no == i && its_n == n
                     ? 0
                     : err_set(err, E_FORMAT, "%s says that it is part %lld of %lld", next,
                               (long long)its_no + 1, (long long)its_n);
        cJSON_Delete(metadata);
    }
    free(next);
    if (rc == 0 && n_tensors >= 0 && (size_t)n_tensors != g->n)
        return err_set(err, E_CORRUPT, "%s: its %lld parts hold %zu tensors instead of %lld", path,
                       (long long)n, g->n, (long long)n_tensors);
    return rc;
}

int gguf_open(struct gguf **out, const char *path, bool long_arrays, struct err *err) {
    *out = NULL;
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory to open %s", path);
    int rc = open_part(g, path, long_arrays, &g->metadata, err);
    if (rc == 0) rc = open_parts(g, path, err);
    if (rc == 0) rc = check_tensors(g, err);
    if (rc < 0) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void gguf_close(struct gguf *g) {
    if (!g) return;
    for (int i = 0; i < g->n_parts; i++) {
        if (g->parts[i].fd >= 0) close(g->parts[i].fd);
        free(g->parts[i].path);
    }
    for (size_t i = 0; i < g->n; i++) free((char *)(uintptr_t)g->tensors[i].name);
    free(g->parts);
    free(g->tensors);
    cJSON_Delete(g->metadata);
    free(g);
}

const cJSON *gguf_metadata(const struct gguf *g) {
    return g->metadata;
}

size_t gguf_count(const struct gguf *g) {
    return g->n;
}

const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i) {
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name) {
    struct gguf_tensor key = {.name = name};
    if (g->n == 0) return NULL;
    return bsearch(&key, g->tensors, g->n, sizeof key, by_name);
}

int gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset, void *out,
              size_t n, struct err *err) {
    const struct part *p = &g->parts[t->file];
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "%s: a read past the tensor '%s'", p->path, t->name);
    return io_read_at(p->fd, out, n, t->offset + offset, p->path, err);
}

int gguf_check_unchanged(const struct gguf *g, struct err *err) {
    for (int i = 0; i < g->n_parts; i++) {
        const struct part *p = &g->parts[i];
        struct stat now;
        if (fstat(p->fd, &now) < 0) return err_errno(err, "cannot examine %s", p->path);
        if (now.st_size != p->at_open.st_size || now.st_mtim.tv_sec != p->at_open.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != p->at_open.st_mtim.tv_nsec)
            return err_set(err, E_CORRUPT, "%s has changed while it is read", p->path);
    }
    return 0;
}

// Reading .safetensors: u64 header length, JSON header, data. See safetensors.h.
//
// The header is untrusted. Its size is capped, because cJSON needs some 40 times the text in the worst
// case. It is read whole and parsed, and each tensor's dtype, shape and range are checked against each
// other. The ranges, sorted by their start, must tile the data exactly. Only then is the file mapped.
#include "engine/model/safetensors.h"
#include "base/json.h"
#include "base/parallel.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX_BYTES ((size_t)32 << 20)
#define NAME_MAX_BYTES 256
#define PREFIX_BYTES 8 // of the header's length
// A tensor is about nine values; the largest public shard holds some thousands of tensors.
static const struct json_limits header_limits = {HEADER_MAX_BYTES, 4, 1000000};

struct safetensors {
    char *path;
    int fd;
    struct stat at_open;
    size_t data_start;             // in the file
    void *map;                     // the whole file, or NULL
    struct tensor *tensors;        // (n), in file order
    const struct tensor **by_name; // (n), sorted
    size_t n;
    char *names; // what tensors[].name point into
};

// --- one tensor of the header ---

static const struct {
    const char *name;
    enum dtype dtype;
} dtype_names[] = {
    {"F32", DTYPE_F32}, {"F16", DTYPE_F16},   {"BF16", DTYPE_BF16},
    {"I8", DTYPE_I8},   {"I32", DTYPE_I32},   {"I64", DTYPE_I64},
    {"U8", DTYPE_U8},   {"BOOL", DTYPE_BOOL}, {"F8_E4M3", DTYPE_F8_E4M3},
};
// Of the format, but of no use to us yet.
static const char *const other_dtypes[] = {
    "F64",     "I16", "U16",     "U32",     "U64",         "C64",         "F8_E5M2",
    "F8_E8M0", "F4",  "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
};
#define N_OF(array) (sizeof(array) / sizeof *(array))

static int read_dtype(const struct safetensors *f, struct tensor *t, const cJSON *item,
                      struct err *err) {
    if (!cJSON_IsString(item))
        return err_set(err, E_FORMAT, "%s: tensor '%s' has no dtype", f->path, t->name);
    for (size_t i = 0; i < N_OF(dtype_names); i++) {
        if (strcmp(item->valuestring, dtype_names[i].name) != 0) continue;
        t->dtype = dtype_names[i].dtype;
        return 0;
    }
    for (size_t i = 0; i < N_OF(other_dtypes); i++)
        if (strcmp(item->valuestring, other_dtypes[i]) == 0)
            return err_set(err, E_UNSUPPORTED, "%s: tensor '%s' is stored as %s, which is not read",
                           f->path, t->name, other_dtypes[i]);
    return err_set(err, E_FORMAT, "%s: tensor '%s' has the unknown dtype '%.40s'", f->path, t->name,
                   item->valuestring);
}

// A whole number from 0 to 2^53 - 1: what a JSON number can carry exactly.
static bool read_size(const cJSON *item, int64_t *out) {
    if (!cJSON_IsNumber(item)) return false;
    double v = item->valuedouble;
    if (!(v >= 0 && v <= 9007199254740991.0)) return false;
    *out = (int64_t)v;
    return (double)*out == v;
}

static int read_shape(const struct safetensors *f, struct tensor *t, const cJSON *list,
                      struct err *err) {
    if (!cJSON_IsArray(list))
        return err_set(err, E_FORMAT, "%s: tensor '%s' has no shape", f->path, t->name);
    // A size of 0 counts as 1 here, so that the product of any of the sizes fits, in whatever order.
    int64_t bytes = (int64_t)dtype_size(t->dtype);
    bool is_empty = false;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (t->n_dims == TENSOR_MAX_DIMS)
            return err_set(err, E_LIMIT, "%s: tensor '%s' has more than %d dimensions", f->path,
                           t->name, TENSOR_MAX_DIMS);
        int64_t dim;
        if (!read_size(item, &dim))
            return err_set(err, E_FORMAT,
                           "%s: tensor '%s': dimension %d is not a whole number from 0 to 2^53 - 1",
                           f->path, t->name, t->n_dims);
        is_empty |= dim == 0;
        if (__builtin_mul_overflow(bytes, dim ? dim : 1, &bytes))
            return err_set(err, E_FORMAT, "%s: tensor '%s': the shape's size overflows", f->path,
                           t->name);
        t->shape[t->n_dims++] = dim;
    }
    t->bytes = is_empty ? 0 : (size_t)bytes;
    return 0;
}

// data is not mapped yet: until open is done, t->data holds the range's start as an offset.
static int read_range(const struct safetensors *f, struct tensor *t, const cJSON *list,
                      struct err *err) {
    int64_t begin, end;
    const cJSON *first = cJSON_IsArray(list) ? list->child : NULL;
    if (!first || !first->next || first->next->next || !read_size(first, &begin) ||
        !read_size(first->next, &end))
        return err_set(err, E_FORMAT, "%s: tensor '%s': data_offsets must be two whole numbers",
                       f->path, t->name);
    if (begin > end)
        return err_set(err, E_FORMAT, "%s: tensor '%s': data_offsets run backwards (%lld to %lld)",
                       f->path, t->name, (long long)begin, (long long)end);
    if ((uint64_t)(end - begin) != t->bytes)
        return err_set(err, E_FORMAT,
                       "%s: tensor '%s': dtype and shape take %zu bytes, data_offsets span %lld",
                       f->path, t->name, t->bytes, (long long)(end - begin));
    t->data = (const void *)(uintptr_t)begin;
    return 0;
}

static size_t range_begin(const struct tensor *t) {
    return (size_t)(uintptr_t)t->data;
}

// Takes the item's name and the three fields; anything else in there is refused, as the format
// says.
static int read_tensor(const struct safetensors *f, struct tensor *t, const cJSON *item,
                       struct err *err) {
    if (!cJSON_IsObject(item))
        return err_set(err, E_FORMAT, "%s: tensor '%s' is not described by an object", f->path,
                       t->name);
    const cJSON *dtype = NULL, *shape = NULL, *range = NULL, *field;
    cJSON_ArrayForEach(field, item) {
        const cJSON **slot = strcmp(field->string, "dtype") == 0          ? &dtype
                             : strcmp(field->string, "shape") == 0        ? &shape
                             : strcmp(field->string, "data_offsets") == 0 ? &range
                                                                          : NULL;
        if (!slot || *slot)
            return err_set(err, E_FORMAT, "%s: tensor '%s': the field '%.40s' is %s", f->path,
                           t->name, field->string, slot ? "there twice" : "not of the format");
        *slot = field;
    }
    TRY(read_dtype(f, t, dtype, err));
    TRY(read_shape(f, t, shape, err));
    return read_range(f, t, range, err);
}

// --- the header ---

static int check_metadata(const struct safetensors *f, const cJSON *item, struct err *err) {
    const cJSON *entry;
    if (!cJSON_IsObject(item))
        return err_set(err, E_FORMAT, "%s: __metadata__ is not an object", f->path);
    cJSON_ArrayForEach(entry, item) {
        if (!cJSON_IsString(entry))
            return err_set(err, E_FORMAT, "%s: __metadata__: '%.100s' is not a string", f->path,
                           entry->string);
    }
    return 0;
}

// Names are copied into one block, so that the parsed tree can go.
static int copy_names(struct safetensors *f, const cJSON *root, struct err *err) {
    size_t bytes = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, root) {
        size_t len = strlen(item->string);
        if (len > NAME_MAX_BYTES)
            return err_set(err, E_LIMIT, "%s: the tensor name '%.40s...' has more than %d bytes",
                           f->path, item->string, NAME_MAX_BYTES);
        bytes += len + 1;
        f->n++;
    }
    f->names = malloc(bytes);
    f->tensors = calloc(f->n + 1, sizeof *f->tensors);
    f->by_name = calloc(f->n + 1, sizeof *f->by_name);
    if (!f->names || !f->tensors || !f->by_name)
        return err_set(err, E_NOMEM, "%s: no memory for a header of %zu tensors", f->path, f->n);
    char *at = f->names;
    size_t i = 0;
    cJSON_ArrayForEach(item, root) {
        f->tensors[i++].name = strcpy(at, item->string);
        at += strlen(at) + 1;
    }
    return 0;
}

static int compare_ranges(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    size_t xb = range_begin(x), yb = range_begin(y);
    if (xb != yb) return xb < yb ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; // the empty ones first
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name,
                  (*(const struct tensor *const *)b)->name);
}

// Sorted by their start, ranges must follow each other from 0 to the file's end.
static int check_tiling(const struct safetensors *f, struct err *err) {
    size_t end = 0, size = (size_t)f->at_open.st_size - f->data_start;
    for (size_t i = 0; i < f->n; i++) {
        const struct tensor *t = &f->tensors[i];
        if (range_begin(t) != end)
            return err_set(err, E_FORMAT, "%s: tensor '%s' %s (it begins at %zu, %zu is due)",
                           f->path, t->name,
                           range_begin(t) < end ? "overlaps the one before it" : "leaves a hole",
                           range_begin(t), end);
        if (__builtin_add_overflow(end, t->bytes, &end) || end > size)
            return err_set(err, E_FORMAT,
                           "%s: truncated: tensor '%s' ends at %zu of %zu data bytes", f->path,
                           t->name, end, size);
    }
    if (end != size)
        return err_set(err, E_FORMAT, "%s: %zu bytes follow the last tensor", f->path, size - end);
    return 0;
}

static int read_header(struct safetensors *f, cJSON *root, struct err *err) {
    if (!cJSON_IsObject(root))
        return err_set(err, E_FORMAT, "%s: the header is not a JSON object", f->path);
    cJSON *metadata = cJSON_DetachItemFromObjectCaseSensitive(root, "__metadata__");
    int rc = metadata ? check_metadata(f, metadata, err) : 0;
    cJSON_Delete(metadata);
    TRY(rc);
    TRY(copy_names(f, root, err));
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, root) {
        TRY(read_tensor(f, &f->tensors[i++], item, err));
    }
    qsort(f->tensors, f->n, sizeof *f->tensors, compare_ranges);
    TRY(check_tiling(f, err));
    for (i = 0; i < f->n; i++) f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, f->n, sizeof *f->by_name, compare_names);
    return 0;
}

// --- the file ---

// Each core reads a few GB/s from the page cache, so several read in parallel.
enum { READ_LEAST = 256 << 10 };
struct reading {
    int fd;
    size_t offset;
    char *to;
    _Atomic int failed; // errno, or -1 where the file ended
};

static void read_piece(void *ctx, int64_t first, int64_t n) {
    struct reading *r = ctx;
    while (n > 0) {
        ssize_t got = pread(r->fd, r->to + first, (size_t)n, (off_t)(r->offset + (size_t)first));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            r->failed = got < 0 ? errno : -1;
            return;
        }
        first += got;
        n -= got;
    }
}

static int read_at(const struct safetensors *f, size_t offset, void *out, size_t n,
                   struct err *err) {
    struct reading r = {.fd = f->fd, .offset = offset, .to = out};
    parallel_ranges((int64_t)n, READ_LEAST, read_piece, &r);
    if (r.failed == 0) return 0;
    if (r.failed < 0)
        return err_set(err, E_CORRUPT, "%s: the file became shorter while it was being read",
                       f->path);
    errno = r.failed;
    return err_errno(err, "cannot read %s", f->path);
}

static int open_file(struct safetensors *f, struct err *err) {
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0) return err_errno(err, "cannot open %s", f->path);
    if (fstat(f->fd, &f->at_open) < 0) return err_errno(err, "cannot examine %s", f->path);
    if (!S_ISREG(f->at_open.st_mode))
        return err_set(err, E_FORMAT, "%s is not a regular file", f->path);
    return 0;
}

static int read_header_size(struct safetensors *f, size_t *n, struct err *err) {
    unsigned char le[PREFIX_BYTES];
    size_t size = (size_t)f->at_open.st_size;
    if (size < PREFIX_BYTES)
        return err_set(err, E_FORMAT, "%s: truncated: %zu bytes are not a safetensors file",
                       f->path, size);
    TRY(read_at(f, 0, le, sizeof le, err));
    uint64_t v = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0; i--) v = v << 8 | le[i];
    if (v > HEADER_MAX_BYTES)
        return err_set(err, E_LIMIT, "%s: a header of %llu bytes; the limit is %zu", f->path,
                       (unsigned long long)v, HEADER_MAX_BYTES);
    if (v > size - PREFIX_BYTES)
        return err_set(err, E_FORMAT, "%s: truncated: a header of %llu bytes in a file of %zu",
                       f->path, (unsigned long long)v, size);
    *n = (size_t)v;
    f->data_start = PREFIX_BYTES + *n;
    return 0;
}

static int parse_file(struct safetensors *f, struct err *err) {
    int rc;
    size_t n = 0;
    struct err why = {0};
    char *text = NULL;
    cJSON *root = NULL;
    TRY(open_file(f, err));
    TRY(read_header_size(f, &n, err));
    text = malloc(n + 1);
    if (!text) return err_set(err, E_NOMEM, "%s: no memory for a header of %zu bytes", f->path, n);
    TRY_GOTO(done, read_at(f, PREFIX_BYTES, text, n, err));
    if (n == 0 || text[0] != '{') {
        rc = err_set(err, E_FORMAT, "%s: the header does not begin with '{'", f->path);
        goto done;
    }
    root = json_parse(text, n, &header_limits, &why);
    if (!root) {
        rc = err_set(err, why.code, "%s: header: %s", f->path, why.text);
        goto done;
    }
    rc = read_header(f, root, err);
done:
    cJSON_Delete(root);
    free(text);
    return rc;
}

static int map_file(struct safetensors *f, struct err *err) {
    size_t size = (size_t)f->at_open.st_size;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (map == MAP_FAILED) return err_errno(err, "cannot map %s", f->path);
    f->map = map;
    madvise(map, size, MADV_HUGEPAGE); // for matrices that are used in place
    for (size_t i = 0; i < f->n; i++)
        f->tensors[i].data = (const char *)map + f->data_start + range_begin(&f->tensors[i]);
    return 0;
}

int safetensors_open(struct safetensors **out, const char *path, struct err *err) {
    int rc;
    struct safetensors *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, E_NOMEM, "no memory to open %s", path);
    f->fd = -1;
    f->path = strdup(path);
    if (!f->path) {
        rc = err_set(err, E_NOMEM, "no memory to open %s", path);
        goto fail;
    }
    TRY_GOTO(fail, parse_file(f, err));
    TRY_GOTO(fail, map_file(f, err));
    *out = f;
    return 0;
fail:
    safetensors_close(f);
    return rc;
}

void safetensors_close(struct safetensors *f) {
    if (!f) return;
    if (f->map) munmap(f->map, (size_t)f->at_open.st_size);
    if (f->fd >= 0) close(f->fd);
    free(f->by_name);
    free(f->tensors);
    free(f->names);
    free(f->path);
    free(f);
}

size_t safetensors_count(const struct safetensors *f) {
    return f->n;
}

const struct tensor *safetensors_at(const struct safetensors *f, size_t i) {
    return &f->tensors[i];
}

const struct tensor *safetensors_find(const struct safetensors *f, const char *name) {
    struct tensor key = {.name = name};
    const struct tensor *p = &key;
    const struct tensor **hit = bsearch(&p, f->by_name, f->n, sizeof *f->by_name, compare_names);
    return hit ? *hit : NULL;
}

void safetensors_forget(const struct safetensors *f, const struct tensor *t) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    // Inwards: a page that the tensor shares with its neighbour stays.
    uintptr_t begin = ((uintptr_t)t->data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)t->data + t->bytes) / page * page;
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

int safetensors_read(const struct safetensors *f, const struct tensor *t, size_t offset, void *out,
                     size_t n, struct err *err) {
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "%s: tensor '%s': %zu bytes at %zu are not all in it",
                       f->path, t->name, n, offset);
    size_t begin = (size_t)((const char *)t->data - (const char *)f->map);
    return read_at(f, begin + offset, out, n, err);
}

// The page cache alone, where the kernel cannot put pages into a mapping without touching them.
static int read_through(const struct safetensors *f, size_t offset, size_t n, struct err *err) {
    char block[1 << 16];
    for (size_t at = 0, part; at < n; at += part) {
        part = n - at < sizeof block ? n - at : sizeof block;
        TRY(read_at(f, offset + at, block, part, err));
    }
    return 0;
}

int safetensors_populate(const struct safetensors *f, const struct tensor *t, size_t offset,
                         size_t n, struct err *err) {
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "%s: tensor '%s': %zu bytes at %zu are not all in it",
                       f->path, t->name, n, offset);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (size_t)((const char *)t->data - (const char *)f->map) + offset;
    size_t first = begin / page * page, end = begin + n;
    char *from = (char *)f->map + first;
    if (madvise(from, end - first, MADV_POPULATE_READ) == 0) return 0;
    if (errno == EINVAL) return read_through(f, begin, n, err);
    if (errno == EFAULT)
        return err_set(err, E_CORRUPT, "%s: the file became shorter while it was being read",
                       f->path);
    return err_errno(err, "cannot read %s", f->path);
}

int safetensors_check_unchanged(const struct safetensors *f, struct err *err) {
    struct stat now;
    if (fstat(f->fd, &now) < 0) return err_errno(err, "cannot examine %s", f->path);
    if (now.st_size != f->at_open.st_size || now.st_mtim.tv_sec != f->at_open.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != f->at_open.st_mtim.tv_nsec)
        return err_set(err, E_CORRUPT, "%s: the file changed while it was being read", f->path);
    return 0;
}

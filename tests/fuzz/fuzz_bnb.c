// bitsandbytes' 4 bits: the JSON of a quant_state, then after a NUL a byte of switches, the numbers of codes, scales and
// scales of scales, a byte each, and bytes that these are filled with. What opens can be read from its first byte to its
// last, whole and in pieces.
#include "engine/model/packed_bnb.h"
#include "tests/fuzz/fuzz.h"

enum {
    NESTED = 1,        // absmax are bytes
    NO_NESTED_MAP = 2, // and so on: parts that are not there
    NO_NESTED_ABSMAX = 4,
    NO_ABSMAX = 8,
    MAPS_FROM_INPUT = 16,
    READ_MAX = 1 << 20
};

static int read_data(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                     struct err *err) {
    (void)ctx, (void)err;
    FUZZ_CHECK(offset <= t->bytes && n <= t->bytes - offset);
    memcpy(out, (const char *)t->data + offset, n);
    return 0;
}
static const struct packed_reader reader = {read_data, NULL};

// The bytes behind the numbers, over and over.
struct filling {
    const uint8_t *data;
    size_t n, at;
};
static void *fill(struct filling *f, size_t bytes) {
    uint8_t *out = malloc(bytes + 1); // so that a read past the end is found
    FUZZ_CHECK(out);
    for (size_t i = 0; i < bytes; i++) out[i] = f->n ? f->data[f->at++ % f->n] : 0;
    return out;
}
static float *ramp(size_t n) {
    float *out = malloc(n * sizeof *out);
    FUZZ_CHECK(out);
    for (size_t i = 0; i < n; i++) out[i] = (float)i / (float)n - 0.5f;
    return out;
}

static struct tensor list(const char *name, void *data, enum dtype dtype, size_t n) {
    return (struct tensor){.name = name,
                           .data = data,
                           .bytes = n * dtype_size(dtype),
                           .dtype = dtype,
                           .n_dims = 1,
                           .shape = {(int64_t)n}};
}

static void check_read(const struct bnb_matrix *m, const struct tensor *t) {
    struct err err = {0};
    const size_t n = t->bytes < READ_MAX ? t->bytes : READ_MAX, last = t->bytes - n;
    char *whole = malloc(n), *piece = malloc(n);
    FUZZ_CHECK(whole && piece);
    const int rc = bnb_matrix_read(m, last, whole, n, &err);
    fuzz_check_err(rc, &err);
    FUZZ_CHECK(rc == 0 || rc == E_FORMAT);
    const size_t half = n / 2 + 1 < n ? n / 2 + 1 : n; // within a value
    if (rc == 0) {
        FUZZ_CHECK(bnb_matrix_read(m, last, piece, half, &err) == 0);
        FUZZ_CHECK(bnb_matrix_read(m, last + half, piece + half, n - half, &err) == 0);
        FUZZ_CHECK(memcmp(whole, piece, n) == 0);
    }
    free(whole);
    free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *rest;
    size_t n_rest;
    const size_t n_state = fuzz_split(data, size, &rest, &n_rest);
    if (n_rest < 4) return 0;
    const int how = rest[0];
    struct filling f = {rest + 4, n_rest - 4, 0};
    const size_t n_codes = rest[1], n_absmax = rest[2], n_nested = rest[3];
    const size_t each = how & NESTED ? 1 : sizeof(float);
    void *parts[6] = {fill(&(struct filling){data, n_state, 0}, n_state),
                      fill(&f, n_codes),
                      fill(&f, n_absmax * each),
                      fill(&f, n_nested * sizeof(float)),
                      how & MAPS_FROM_INPUT ? fill(&f, 16 * sizeof(float)) : ramp(16),
                      how & MAPS_FROM_INPUT ? fill(&f, 256 * sizeof(float)) : ramp(256)};
    const struct tensor state = list("a.weight." BNB_STATE "nf4", parts[0], DTYPE_U8, n_state),
                        codes = list("a.weight", parts[1], DTYPE_U8, n_codes),
                        absmax = list("a.weight.absmax", parts[2],
                                      how & NESTED ? DTYPE_U8 : DTYPE_F32, n_absmax),
                        nested = list("a.weight.nested_absmax", parts[3], DTYPE_F32, n_nested),
                        map = list("a.weight.quant_map", parts[4], DTYPE_F32, 16),
                        nested_map = list("a.weight.nested_quant_map", parts[5], DTYPE_F32, 256);
    const struct bnb_parts b = {.codes = &codes,
                                .state = &state,
                                .map = &map,
                                .absmax = how & NO_ABSMAX ? NULL : &absmax,
                                .nested_absmax = how & NO_NESTED_ABSMAX ? NULL : &nested,
                                .nested_map = how & NO_NESTED_MAP ? NULL : &nested_map};
    struct tensor shown = {.name = "a.weight"};
    struct bnb_matrix *m = NULL;
    struct err err = {0};
    const int rc = bnb_matrix_open(&m, &b, &shown, reader, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) FUZZ_CHECK(strstr(err.text, "a.weight"));
    if (rc == 0) {
        FUZZ_CHECK(shown.n_dims == 2);
        FUZZ_CHECK(shown.bytes ==
                   (size_t)(shown.shape[0] * shown.shape[1]) * dtype_size(shown.dtype));
        check_read(m, &shown);
    }
    bnb_matrix_close(m);
    for (int i = 0; i < 6; i++) free(parts[i]);
    return 0;
}

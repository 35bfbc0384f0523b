// GGUF's NVFP4: random blocks as llama.cpp reads them (libggml of node-llama-cpp 3.21.1), the same numbers as codes and
// scales, and the ".scale" that such a matrix has beside it.
#include "engine/convert/gguf_writer.h"
#include "engine/gguf/block_groups.h"
#include "engine/model/gguf_tensors.h"
#include "tests/cmocka.h"
#include "tests/unit/tmp_dir.h"
#include <math.h>
#include <stdlib.h>

enum { NVFP4 = 40, VALUES = 64, BYTES = 36, GROUP = 16, N_BLOCKS = 400 };
static const uint64_t hash_of_llama_cpp = 0x4a22bf5bcf18d43eu; // FNV-1a of the values' bits

static uint32_t random_state;
static uint8_t random_byte(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint8_t)(random_state >> 24);
}

// Any codes, and any scales without a sign: the code of no number among them.
static void random_block(uint8_t *b) {
    for (int i = 0; i < BYTES; i++) b[i] = random_byte() & (i < VALUES / GROUP ? 0x7f : 0xff);
}

static void blocks_are_read_as_llama_cpp_reads_them(void **state) {
    const struct block_type *t = block_type_find(NVFP4);
    uint64_t h = 0xcbf29ce484222325u;
    (void)state;
    assert_non_null(t);
    assert_string_equal(t->name, "NVFP4");
    assert_int_equal(t->values, VALUES);
    assert_int_equal(t->bytes, BYTES);
    random_state = NVFP4;
    for (int n = 0; n < N_BLOCKS; n++) {
        uint8_t block[BYTES];
        float values[VALUES];
        random_block(block);
        t->decode(values, block);
        for (int i = 0; i < VALUES; i++) {
            const float value = values[i] + 0.0f; // of -0, 0
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            for (int k = 0; k < 4; k++) h = (h ^ (bits >> (8 * k) & 255)) * 0x100000001b3u;
        }
    }
    if (h != hash_of_llama_cpp) fail_msg("other values: 0x%016llx", (unsigned long long)h);
}

static void codes_and_scales_give_the_same_numbers(void **state) {
    const struct block_type *t = block_type_find(NVFP4);
    struct group_format f;
    struct group_row row;
    uint8_t blocks[2 * BYTES];
    float values[2 * VALUES];
    (void)state;
    assert_true(block_groups_format(t, &f));
    assert_true(f.bits == 4 && f.group == GROUP && f.book == group_book_e2m1);
    void *memory = group_row_alloc(&row, 2 * VALUES);
    assert_non_null(memory);
    random_state = 7;
    for (int k = 0; k < 2; k++) {
        random_block(blocks + k * BYTES);
        t->decode(values + k * VALUES, blocks + k * BYTES);
    }
    assert_int_equal(block_groups_read(t, blocks, 2, &row), 0);
    for (int k = 0; k < 2 * VALUES; k++)
        assert_true(((float *)row.scales)[k / GROUP] * (float)(f.book[row.codes[k]] - f.zero) ==
                    values[k]);
    free(memory);
}

// --- scales beside a matrix ---

// A file of these tensors: random blocks, or the numbers given.
struct given {
    const char *name;
    uint32_t type;
    int n_dims;
    int64_t shape[3];
    const float *values; // of F32; NULL: random bytes
};
static const char *file_of(struct tmp_dir *dir, const char *arch, const struct given *given,
                           size_t n) {
    struct gguf_out_tensor list[8] = {0};
    struct gguf_writer *w;
    struct err err = {0};
    const char *path = tmp_path(dir, "m.gguf");
    assert_true(n <= 8);
    remove(path);
    if (gguf_writer_new(&w, path, &err) < 0) fail_msg("%s", err.text);
    gguf_put_string(w, "general.architecture", arch);
    for (size_t i = 0; i < n; i++) {
        int64_t values = 1;
        snprintf(list[i].name, sizeof list[i].name, "%s", given[i].name);
        list[i].type = block_type_find(given[i].type);
        list[i].n_dims = given[i].n_dims;
        for (int k = 0; k < given[i].n_dims; k++) values *= list[i].shape[k] = given[i].shape[k];
        list[i].bytes = (uint64_t)(values / list[i].type->values * list[i].type->bytes);
    }
    if (gguf_writer_begin(w, list, n, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        uint8_t block[BYTES];
        const int step = list[i].type->values > 1 ? BYTES : (int)list[i].bytes;
        for (uint64_t at = 0; at < list[i].bytes; at += (uint64_t)step) {
            if (!given[i].values) random_block(block);
            const void *bytes = given[i].values ? (const void *)given[i].values : block;
            assert_int_equal(gguf_writer_write(w, bytes, (size_t)step, &err), 0);
        }
        assert_int_equal(gguf_writer_end_tensor(w, &err), 0);
    }
    assert_int_equal(gguf_writer_finish(w, &err), 0);
    gguf_writer_free(w);
    return path;
}

static const struct tensor *named(const struct gguf_tensors *c, const char *name) {
    for (size_t i = 0; i < gguf_tensors_count(c); i++)
        if (strcmp(gguf_tensors_at(c, i)->name, name) == 0) return gguf_tensors_at(c, i);
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static const float one[] = {1}, third[] = {1 / 3.0f}, by_expert[] = {0.25f, -3, 1e-3f},
                   halves[] = {0.5f, 0.5f}, no_number[] = {NAN};
enum { COLS = 128, ROWS = 2 };

// The matrix's values in a file with and without its scale, as numbers and as codes.
static void is_scaled(struct tmp_dir *dir, const char *arch, const struct given given[3],
                      const char *name, float by) {
    static float plain[ROWS * COLS], got[ROWS * COLS];
    struct gguf_tensors *c;
    struct group_format f;
    struct group_row row;
    struct err err = {0};
    for (int with = 0; with < 2; with++) {
        random_state = 3;
        if (gguf_tensors_open(&c, file_of(dir, arch, given, with ? 3 : 1), &err) < 0)
            fail_msg("%s", err.text);
        const struct tensor *t = named(c, name);
        assert_int_equal(t->bytes, sizeof got);
        assert_int_equal(t->dtype, DTYPE_F32);
        assert_int_equal(gguf_tensors_read(c, t, 0, with ? got : plain, sizeof got, &err), 0);
        if (!with) gguf_tensors_close(c);
    }
    for (int i = 0; i < ROWS * COLS; i++) assert_true(got[i] == plain[i] * by);
    const struct tensor *t = named(c, name);
    assert_true(gguf_tensors_groups(c, t, &f));
    void *memory = group_row_alloc(&row, COLS);
    for (int first = 0; first < COLS; first += GROUP) { // a rank's columns may begin in a block
        const int n = COLS - first;
        assert_int_equal(gguf_tensors_groups_row(c, t, 1, first, n, &row, &err), 0);
        for (int i = 0; i < n; i++) {
            const float value =
                ((float *)row.scales)[i / GROUP] * (float)(f.book[row.codes[i]] - f.zero);
            assert_true(fabsf(value - got[COLS + first + i]) <= 1e-6f * fabsf(value));
        }
    }
    free(memory);
    gguf_tensors_close(c);
}

static void a_scale_multiplies_its_matrix(void **state) {
    const struct given matrix[] = {
        {"blk.0.attn_v.weight", NVFP4, 2, {ROWS, COLS}, NULL},
        {"blk.0.attn_v.scale", 0, 1, {1}, third},
        {"blk.0.attn_v.input_scale", 0, 1, {1}, third},
    };
    const struct given experts[] = {
        {"blk.0.ffn_down_exps.weight", NVFP4, 3, {3, ROWS, COLS}, NULL},
        {"blk.0.ffn_down_exps.scale", 0, 1, {3}, by_expert},
        {"blk.0.ffn_down_exps.input_scale", 0, 1, {3}, by_expert},
    };
    const struct given head[] = {
        {"output.weight", NVFP4, 2, {ROWS, COLS}, NULL},
        {"output.scale", 0, 1, {1}, one},
        {"output.input_scale", 0, 1, {1}, third},
    };
    struct tmp_dir dir;
    (void)state;
    tmp_dir_open(&dir);
    is_scaled(&dir, "llama", matrix, "model.layers.0.self_attn.v_proj.weight", third[0]);
    is_scaled(&dir, "llama", head, "lm_head.weight", 1);
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.down_proj.weight", i);
        is_scaled(&dir, "qwen3moe", experts, name, by_expert[i]);
    }
    tmp_dir_close(&dir);
}

static void scales_that_do_not_fit_are_refused(void **state) {
    const struct {
        struct given scale;
        int rc;
        const char *says;
    } cases[] = {
        {{"blk.0.attn_v.scale", 0, 1, {2}, halves}, E_FORMAT, "'blk.0.attn_v.scale' is not of 1"},
        {{"blk.0.attn_v.scale", 0, 1, {1}, no_number}, E_FORMAT, "'blk.0.attn_v.scale' holds"},
        {{"blk.0.attn_k.scale", 0, 1, {1}, third},
         E_UNSUPPORTED,
         "'blk.0.attn_k.scale' is unknown"},
        {{"blk.0.attn_v.other_scale", 0, 1, {1}, third}, E_UNSUPPORTED, "_scale' is unknown"},
    };
    struct tmp_dir dir;
    (void)state;
    tmp_dir_open(&dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct given given[] = {{"blk.0.attn_v.weight", NVFP4, 2, {ROWS, COLS}, NULL},
                                      cases[i].scale};
        struct gguf_tensors *c = NULL;
        struct err err = {0};
        assert_int_equal(gguf_tensors_open(&c, file_of(&dir, "llama", given, 2), &err),
                         cases[i].rc);
        if (!strstr(err.text, cases[i].says)) fail_msg("%zu: %s", i, err.text);
    }
    tmp_dir_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_read_as_llama_cpp_reads_them),
        cmocka_unit_test(codes_and_scales_give_the_same_numbers),
        cmocka_unit_test(a_scale_multiplies_its_matrix),
        cmocka_unit_test(scales_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

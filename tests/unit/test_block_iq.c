// GGUF's types of 1 to 3 bits: random blocks as llama.cpp reads them (libggml of node-llama-cpp 3.21.1), and the same
// numbers as codes and scales.
#include "engine/gguf/block_groups.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum { N_BLOCKS = 400, VALUES = 256 };

static const struct {
    uint32_t id;
    const char *name;
    uint64_t hash; // FNV-1a of the values' bits
} types[] = {
    {16, "IQ2_XXS", 0x31a813a081b704f4u}, {17, "IQ2_XS", 0x685a0ea79e57ff48u},
    {18, "IQ3_XXS", 0xa229a3e082c67185u}, {19, "IQ1_S", 0x95afe249402e51fdu},
    {21, "IQ3_S", 0x0a0628c3743313a1u},   {22, "IQ2_S", 0x7bec46019121eb7bu},
    {29, "IQ1_M", 0xd68369d7963a50a5u},
};
enum { N_TYPES = sizeof types / sizeof *types };

static uint32_t state;

// Any bytes, but a scale of all that is a number.
static void random_block(const struct block_type *t, uint8_t *b) {
    for (int i = 0; i < t->bytes; i++) {
        state = state * 1664525u + 1013904223u;
        b[i] = (uint8_t)(state >> 24);
    }
    if (strcmp(t->name, "IQ1_M") == 0)
        b[55] = (uint8_t)((b[55] & 0x8f) | 0x20);
    else
        b[1] = (uint8_t)((b[1] & 0x80) | (0x04 + b[1] % 0x30));
}

static uint64_t hash_values(uint64_t h, const float *values) {
    for (int i = 0; i < VALUES; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int k = 0; k < 4; k++) h = (h ^ (bits >> (8 * k) & 255)) * 0x100000001b3u;
    }
    return h;
}

static void blocks_are_read_as_llama_cpp_reads_them(void **unused) {
    for (int i = 0; i < N_TYPES; i++) {
        const struct block_type *t = block_type_find(types[i].id);
        assert_non_null(t);
        assert_string_equal(t->name, types[i].name);
        assert_int_equal(t->values, VALUES);
        uint64_t h = 0xcbf29ce484222325u;
        state = types[i].id;
        for (int n = 0; n < N_BLOCKS; n++) {
            uint8_t block[VALUES];
            float values[VALUES];
            random_block(t, block);
            t->decode(values, block);
            h = hash_values(h, values);
        }
        if (h != types[i].hash) fail_msg("%s: other values", t->name);
    }
}

static void codes_and_scales_give_the_same_numbers(void **unused) {
    for (int i = 0; i < N_TYPES; i++) {
        const struct block_type *t = block_type_find(types[i].id);
        struct group_format f;
        struct group_row row;
        uint8_t blocks[2][VALUES];
        float values[2 * VALUES];
        assert_true(block_groups_format(t, &f));
        assert_true(f.bits == 4 && f.book && f.scale == GROUP_SCALE_F32);
        void *memory = group_row_alloc(&row, 2 * VALUES);
        assert_non_null(memory);
        state = 7;
        for (int k = 0; k < 2; k++) {
            random_block(t, blocks[k]);
            t->decode(values + k * VALUES, blocks[k]);
        }
        memmove(blocks[0] + t->bytes, blocks[1], (size_t)t->bytes);
        assert_int_equal(block_groups_read(t, blocks[0], 2, &row), 0);
        for (int k = 0; k < 2 * VALUES; k++) {
            assert_true(row.codes[k] < 16);
            const float scale = ((const float *)row.scales)[k / f.group];
            assert_true(scale * (float)(f.book[row.codes[k]] - f.zero) == values[k]);
        }
        free(memory);
    }
}

static void scales_that_are_no_numbers_are_refused(void **unused) {
    for (int i = 0; i < N_TYPES; i++) {
        const struct block_type *t = block_type_find(types[i].id);
        struct group_row row;
        uint8_t block[VALUES];
        void *memory = group_row_alloc(&row, VALUES);
        assert_non_null(memory);
        memset(block, 0xff, sizeof block); // an F16 that is no number
        assert_int_equal(block_groups_read(t, block, 1, &row), E_FORMAT);
        free(memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_read_as_llama_cpp_reads_them),
        cmocka_unit_test(codes_and_scales_give_the_same_numbers),
        cmocka_unit_test(scales_that_are_no_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

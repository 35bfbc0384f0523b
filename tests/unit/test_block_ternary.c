// GGUF's types of -1, 0, 1 (and 2) times one scale: random blocks as llama.cpp reads them (its commit d32676d), and the
// same numbers as codes and scales.
#include "engine/gguf/block_groups.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum { N_BLOCKS = 400 };

static const struct {
    uint32_t id;
    const char *name;
    int values, scale_at; // of a block
    uint64_t hash;        // FNV-1a of the values' bits
} types[] = {
    {34, "TQ1_0", 256, 52, 0x208ad73039962b9du},
    {35, "TQ2_0", 256, 64, 0x36c8d4ba8da0672eu},
    {41, "Q1_0", 128, 0, 0x61ab6942b07fc4a5u},
    {42, "Q2_0", 64, 0, 0xbd928a0746132dcdu},
};
enum { N_TYPES = sizeof types / sizeof *types };

static uint32_t state;

// Any bytes, but a scale that is a number.
static void random_block(int type, uint8_t *b, int bytes) {
    for (int i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        b[i] = (uint8_t)(state >> 24);
    }
    uint8_t *high = b + types[type].scale_at + 1;
    *high = (uint8_t)((*high & 0x80) | (0x04 + *high % 0x30));
}

static uint64_t hash_values(uint64_t h, const float *values, int n) {
    for (int i = 0; i < n; i++) {
        const float value = values[i] + 0.0f; // of -0, 0
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        for (int k = 0; k < 4; k++) h = (h ^ (bits >> (8 * k) & 255)) * 0x100000001b3u;
    }
    return h;
}

static void blocks_are_read_as_llama_cpp_reads_them(void **unused) {
    (void)unused;
    for (int i = 0; i < N_TYPES; i++) {
        const struct block_type *t = block_type_find(types[i].id);
        assert_non_null(t);
        assert_string_equal(t->name, types[i].name);
        assert_int_equal(t->values, types[i].values);
        uint64_t h = 0xcbf29ce484222325u;
        state = types[i].id;
        for (int n = 0; n < N_BLOCKS; n++) {
            uint8_t block[BLOCK_MAX_VALUES];
            float values[BLOCK_MAX_VALUES];
            random_block(i, block, t->bytes);
            t->decode(values, block);
            h = hash_values(h, values, t->values);
        }
        if (h != types[i].hash) fail_msg("%s: other values", t->name);
    }
}

static void codes_and_scales_give_the_same_numbers(void **unused) {
    (void)unused;
    for (int i = 0; i < N_TYPES; i++) {
        const struct block_type *t = block_type_find(types[i].id);
        struct group_format f;
        struct group_row row;
        uint8_t blocks[2 * BLOCK_MAX_VALUES];
        float values[2 * BLOCK_MAX_VALUES];
        assert_true(block_groups_format(t, &f));
        assert_int_equal(f.group, t->values);
        void *memory = group_row_alloc(&row, 2 * BLOCK_MAX_VALUES);
        assert_non_null(memory);
        state = 7;
        for (int k = 0; k < 2; k++) {
            random_block(i, blocks + k * t->bytes, t->bytes);
            t->decode(values + k * t->values, blocks + k * t->bytes);
        }
        assert_int_equal(block_groups_read(t, blocks, 2, &row), 0);
        for (int k = 0; k < 2 * t->values; k++) {
            assert_true(row.codes[k] < 4);
            const float scale = f16_to_f32(((const uint16_t *)row.scales)[k / f.group]);
            assert_true(scale * (float)(row.codes[k] - f.zero) == values[k]);
        }
        memset(blocks, 0xff, sizeof blocks); // a scale that is no number
        assert_int_equal(block_groups_read(t, blocks, 1, &row), E_FORMAT);
        free(memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_read_as_llama_cpp_reads_them),
        cmocka_unit_test(codes_and_scales_give_the_same_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The snapshot's bytes: what is written is read, what is damaged, cut off or impossible is not.
#include "kvcache/ring.h"
#include "kvcache/snapshot.h"

#include "base/xxh64.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

static struct kv_snapshot_head some(void) {
    struct kv_snapshot_head h = {.id = "8c6f-session",
                                 .owner = {1, UINT64_C(0xfedcba9876543210)},
                                 .maker = {.model = "0123456789abcdef bf16",
                                           .backend = "cpu: AVX-512",
                                           .build = "fedcba98",
                                           .dtype = "f32",
                                           .tokenizer = UINT64_C(0xfedcba9876543210),
                                           .n_layers = 4,
                                           .n_groups = 1,
                                           .n_kv_heads = 2,
                                           .head_dim = 64,
                                           .block_tokens = 16,
                                           .block_bytes = 65536},
                                 .memory_len = 64,
                                 .sink_len = 4,
                                 .n_tokens = 1000,
                                 .n_blocks = 6};
    return h;
}

enum { HEAD = KV_SNAPSHOT_HEAD_BYTES };

static void test_written_and_read(void **state) {
    struct kv_snapshot_head h = some(), got;
    int32_t ids[1000], got_ids[1000];
    struct kv_snapshot_block blocks[6], got_blocks[6];
    unsigned char head[HEAD], *table = malloc(kv_snapshot_table_bytes(&h));
    struct err err = {0};
    for (int i = 0; i < 1000; i++) ids[i] = i * 7919;
    for (int i = 0; i < 6; i++)
        blocks[i] = (struct kv_snapshot_block){i == 0 ? 0 : 57 + (uint64_t)i, ~(uint64_t)i};
    kv_snapshot_write_table(&h, ids, blocks, table);
    kv_snapshot_write_head(&h, head);
    // As a program without cache groups wrote it.
    assert_true(xxh64(head, sizeof head, 0) == UINT64_C(0x3991be1d54da546d));
    assert_int_equal(kv_snapshot_data_at(&h), 8192);
    assert_int_equal(kv_snapshot_file_bytes(&h), 8192 + 6 * 65536);
    assert_int_equal(kv_snapshot_read_head(&got, head, 8192 + 6 * 65536, &err), 0);
    assert_memory_equal(&got, &h, sizeof h);
    assert_null(kv_snapshot_difference(&got.maker, &h.maker));
    assert_int_equal(kv_snapshot_read_table(&got, table, got_ids, got_blocks, &err), 0);
    assert_memory_equal(got_ids, ids, sizeof ids);
    assert_memory_equal(got_blocks, blocks, sizeof blocks);
    // The file is little endian on every machine.
    assert_memory_equal(head,
                        "PRLYKV\r\n\3\0\0\0\0\0\0\0"
                        "8c6f-session",
                        28);
    free(table);
}

static void test_every_flipped_bit_is_seen(void **state) {
    struct kv_snapshot_head h = some(), got;
    int32_t ids[1000] = {0}, got_ids[1000];
    struct kv_snapshot_block blocks[6], got_blocks[6];
    size_t n = kv_snapshot_table_bytes(&h);
    unsigned char head[HEAD], *table = malloc(n);
    for (int i = 0; i < 6; i++) blocks[i] = (struct kv_snapshot_block){57 + (uint64_t)i, 1};
    kv_snapshot_write_table(&h, ids, blocks, table);
    kv_snapshot_write_head(&h, head);
    for (size_t bit = 0; bit < HEAD * 8; bit++) {
        struct err err = {0};
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
        int rc = kv_snapshot_read_head(&got, head, kv_snapshot_file_bytes(&h), &err);
        assert_true(rc == E_CORRUPT || rc == E_FORMAT);
        assert_true(err.code == rc && err.text[0]);
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < n * 8; bit++) {
        table[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(kv_snapshot_read_table(&h, table, got_ids, got_blocks, NULL), E_CORRUPT);
        table[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(table);
}

static int reads(const struct kv_snapshot_head *h) {
    unsigned char head[HEAD];
    struct kv_snapshot_head got;
    kv_snapshot_write_head(h, head);
    return kv_snapshot_read_head(&got, head, kv_snapshot_file_bytes(h), NULL);
}

// Correct checksums but impossible sizes, or sizes that would overflow.
static void test_hostile_lengths(void **state) {
    struct kv_snapshot_head h;
    assert_int_equal((h = some(), reads(&h)), 0);
    assert_int_equal((h = some(), h.n_tokens = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.n_tokens = -1, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.n_tokens = KV_SNAPSHOT_MAX_TOKENS + 1, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.n_blocks = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.n_blocks = -1, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.n_blocks = 63, reads(&h)), 0);
    assert_int_equal((h = some(), h.n_blocks = 64, reads(&h)), E_CORRUPT); // more than tokens
    assert_int_equal((h = some(), h.n_blocks = INT32_MAX, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.block_bytes = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.block_bytes = UINT64_MAX, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.block_bytes = UINT64_MAX / 6 + 2, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.block_tokens = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.block_tokens = INT32_MIN, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.n_layers = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.n_kv_heads = -5, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.maker.head_dim = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.sink_len = 64, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.memory_len = 0, h.sink_len = 0, reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.id[0] = '\0', reads(&h)), E_CORRUPT);
    assert_int_equal((h = some(), h.id[3] = '\n', reads(&h)), E_CORRUPT);
}

static void seal(unsigned char head[HEAD]) {
    uint64_t sum = xxh64(head, HEAD - 8, 0);
    for (int i = 0; i < 8; i++) head[HEAD - 8 + i] = (unsigned char)(sum >> 8 * i);
}

static void test_other_files(void **state) {
    struct kv_snapshot_head h = some(), got;
    unsigned char head[HEAD];
    uint64_t n = kv_snapshot_file_bytes(&h);
    kv_snapshot_write_head(&h, head);
    assert_int_equal(kv_snapshot_read_head(&got, head, n - 1, NULL), E_CORRUPT);
    assert_int_equal(kv_snapshot_read_head(&got, head, n + 1, NULL), E_CORRUPT);
    assert_int_equal(kv_snapshot_read_head(&got, head, HEAD, NULL), E_CORRUPT);
    assert_int_equal(kv_snapshot_read_head(&got, head, 0, NULL), E_CORRUPT);
    head[8] = 1; // of another version
    seal(head);
    assert_int_equal(kv_snapshot_read_head(&got, head, n, NULL), E_UNSUPPORTED);
    memset(head, 0, sizeof head);
    assert_int_equal(kv_snapshot_read_head(&got, head, n, NULL), E_FORMAT);
    // A text without its end.
    kv_snapshot_write_head(&h, head);
    memset(head + 16, 'x', KV_SNAPSHOT_ID_MAX + 1);
    seal(head);
    assert_int_equal(kv_snapshot_read_head(&got, head, n, NULL), E_CORRUPT);
}

static void test_tables_that_contradict_themselves(void **state) {
    struct kv_snapshot_head h = some();
    int32_t ids[1000] = {0};
    unsigned char *table = malloc(kv_snapshot_table_bytes(&h));
    static const uint64_t numbers[][6] = {{0, 58, 59, 60, 61, 62},
                                          {58, 58, 59, 60, 61, 62},
                                          {59, 58, 60, 61, 62, 57},
                                          {0, 1, 2, 3, 4, 63},
                                          {0, 1, 2, 3, 4, UINT64_MAX}};
    for (size_t i = 0; i < 5; i++) {
        struct kv_snapshot_block blocks[6], got[6];
        for (int k = 0; k < 6; k++) blocks[k] = (struct kv_snapshot_block){numbers[i][k], 0};
        kv_snapshot_write_table(&h, ids, blocks, table);
        assert_int_equal(kv_snapshot_read_table(&h, table, ids, got, NULL), i ? E_CORRUPT : 0);
    }
    free(table);
}

// A cache of several groups: a version that programs without groups refuse.
static void test_groups(void **state) {
    struct kv_snapshot_head h = some(), got;
    int32_t ids[1000] = {0};
    unsigned char head[HEAD], *table = malloc(kv_snapshot_table_bytes(&h));
    const uint64_t group = UINT64_C(1) << KV_NUMBER_BITS;
    h.maker.n_groups = 2;
    const uint64_t numbers[][6] = {{0, 58, 62, group + 60, group + 61, group + 62},
                                   {0, 58, 62, group + 60, group + 62, group + 61},
                                   {0, 58, 62, group + 60, group + 61, group + 63},
                                   {0, 58, 62, group + 60, group + 61, 2 * group}};
    for (size_t i = 0; i < 4; i++) {
        struct kv_snapshot_block blocks[6], read[6];
        for (int k = 0; k < 6; k++) blocks[k] = (struct kv_snapshot_block){numbers[i][k], 0};
        kv_snapshot_write_table(&h, ids, blocks, table);
        kv_snapshot_write_head(&h, head);
        assert_int_equal(head[8], 4);
        assert_int_equal(kv_snapshot_read_head(&got, head, kv_snapshot_file_bytes(&h), NULL), 0);
        assert_memory_equal(&got, &h, sizeof h);
        assert_int_equal(kv_snapshot_read_table(&got, table, ids, read, NULL), i ? E_CORRUPT : 0);
    }
    static const int32_t bad[] = {0, -1, KV_GROUPS_MAX + 1, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        h.maker.n_groups = bad[i];
        kv_snapshot_write_head(&h, head);
        assert_int_equal(kv_snapshot_read_head(&got, head, kv_snapshot_file_bytes(&h), NULL),
                         E_CORRUPT);
    }
    free(table);
}

static void test_what_differs(void **state) {
    struct kv_snapshot_maker a = some().maker, b;
    assert_string_equal((b = a, b.model[0] = 'x', kv_snapshot_difference(&a, &b)), "model");
    assert_string_equal((b = a, b.tokenizer++, kv_snapshot_difference(&a, &b)), "tokenizer");
    assert_string_equal((b = a, b.dtype[1] = '1', kv_snapshot_difference(&a, &b)), "dtype");
    assert_string_equal((b = a, b.block_tokens *= 2, kv_snapshot_difference(&a, &b)), "layout");
    assert_string_equal((b = a, b.block_bytes++, kv_snapshot_difference(&a, &b)), "layout");
    assert_string_equal((b = a, b.n_groups++, kv_snapshot_difference(&a, &b)), "layout");
    assert_string_equal((b = a, b.head_dim++, kv_snapshot_difference(&a, &b)), "layout");
    assert_string_equal((b = a, b.backend[9] = '!', kv_snapshot_difference(&a, &b)), "backend");
    assert_string_equal((b = a, b.build[0] = '!', kv_snapshot_difference(&a, &b)), "build");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_every_flipped_bit_is_seen),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_tables_that_contradict_themselves),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

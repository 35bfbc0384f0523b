// The file of a cache: its head and its table. Random input rarely passes the checksums, so it is read
// a second time with corrected ones, as in a file that an attacker wrote.
#include "base/xxh64.h"
#include "kvcache/ring.h"
#include "kvcache/snapshot.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = KV_SNAPSHOT_HEAD_BYTES, MOST = 1 << 20 };

static void seal(unsigned char *head) {
    static const unsigned char magic[8] = "PRLYKV\r\n";
    memcpy(head, magic, sizeof magic);
    uint64_t sum = xxh64(head, HEAD - 8, 0);
    for (int i = 0; i < 8; i++) head[HEAD - 8 + i] = (unsigned char)(sum >> 8 * i);
}

static void check_table(struct kv_snapshot_head *h, const uint8_t *data, size_t size, bool right) {
    struct err err = {0};
    size_t n = kv_snapshot_table_bytes(h);
    if (n > MOST) return; // its file would have to be as large
    unsigned char *table = calloc(1, n), *again = malloc(n);
    int32_t *ids = malloc((size_t)h->n_tokens * sizeof *ids);
    struct kv_snapshot_block *blocks = malloc((size_t)h->n_blocks * sizeof *blocks);
    FUZZ_CHECK(table && again && ids && blocks);
    memcpy(table, data, size < n ? size : n);
    if (right) h->table_sum = xxh64(table, n, 1);
    int rc = kv_snapshot_read_table(h, table, ids, blocks, &err);
    fuzz_check_err(rc, &err);
    for (int32_t i = 0; rc == 0 && i < h->n_blocks; i++)
        FUZZ_CHECK((uint64_t)kv_number_logical((int64_t)blocks[i].number) *
                       (uint64_t)h->maker.block_tokens <
                   (uint64_t)h->n_tokens);
    if (rc == 0) {
        kv_snapshot_write_table(h, ids, blocks, again);
        size_t used = (size_t)h->n_tokens * sizeof *ids; // what fills up to the blocks may be any
        FUZZ_CHECK(memcmp(again, table, used) == 0);
    }
    free(table), free(again), free(ids), free(blocks);
}

static void check(const uint8_t *data, size_t size, bool right) {
    struct kv_snapshot_head h;
    struct err err = {0};
    unsigned char head[HEAD] = {0}, again[HEAD];
    memcpy(head, data, size < HEAD ? size : HEAD);
    if (right) seal(head);
    uint64_t said = size;
    if (right) { // as long as it says: what it says lies behind all other numbers
        struct kv_snapshot_head probe;
        (void)kv_snapshot_read_head(&probe, head, UINT64_MAX, NULL);
        if (probe.n_tokens > 0 && probe.n_tokens <= KV_SNAPSHOT_MAX_TOKENS && probe.n_blocks > 0)
            said = kv_snapshot_file_bytes(&probe);
    }
    int rc = kv_snapshot_read_head(&h, head, said, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) return;
    FUZZ_CHECK(kv_snapshot_file_bytes(&h) == said);
    FUZZ_CHECK(kv_snapshot_data_at(&h) >= HEAD + kv_snapshot_table_bytes(&h));
    FUZZ_CHECK(strlen(h.id) <= KV_SNAPSHOT_ID_MAX && h.id[0]);
    FUZZ_CHECK(kv_snapshot_difference(&h.maker, &h.maker) == NULL);
    kv_snapshot_write_head(&h, again);
    struct kv_snapshot_head same;
    FUZZ_CHECK(kv_snapshot_read_head(&same, again, said, NULL) == 0);
    FUZZ_CHECK(memcmp(&same, &h, sizeof h) == 0);
    if (size > HEAD) check_table(&h, data + HEAD, size - HEAD, right);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check(data, size, false);
    check(data, size, true);
    return 0;
}

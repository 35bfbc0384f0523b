// The batch builder: rows packed in order, absolute positions, and exactly the logits that were
// asked for.
#include "engine/run/batch.h"
#include "tests/cmocka.h"

static void test_packs_sequences(void **state) {
    struct batch_builder b;
    int32_t blocks_a[] = {4, 5}, blocks_c[] = {9};
    struct kv_map a = {.blocks = blocks_a, .n_ring_blocks = 2, .block_tokens = 8};
    struct kv_map c = {.blocks = blocks_c, .n_ring_blocks = 1, .block_tokens = 8};
    int32_t log_a[] = {10, 11, 12}, log_b[] = {20}, log_c[] = {30, 31};
    assert_int_equal(batch_init(&b, 6, 3, NULL), 0);
    for (int again = 0; again < 2; again++) { // a builder is used step after step
        batch_reset(&b);
        batch_add(&b, log_b, 7, 1, BATCH_LOGITS_LAST, 16, 0, &c, NULL, false);
        batch_add(&b, log_a, 100, 3, BATCH_LOGITS_ALL, 32, 4, &a, NULL, true);
        batch_add(&b, log_c, 0, 2, BATCH_LOGITS_NONE, 16, 0, &c, NULL, false);
        const struct batch *out = &b.batch;
        const int32_t ids[] = {20, 10, 11, 12, 30, 31}, positions[] = {7, 100, 101, 102, 0, 1};
        assert_int_equal(out->n_rows, 6);
        assert_int_equal(out->n_seqs, 3);
        assert_memory_equal(out->ids, ids, sizeof ids);
        assert_memory_equal(out->positions, positions, sizeof positions);
        assert_int_equal(out->seqs[1].first_row, 1);
        assert_int_equal(out->seqs[1].n_rows, 3);
        assert_int_equal(out->seqs[1].memory_len, 32);
        assert_int_equal(out->seqs[1].sink_len, 4);
        assert_ptr_equal(out->seqs[1].maps->blocks, blocks_a);
        assert_true(!out->seqs[0].short_rope && out->seqs[1].short_rope);
        const int32_t rows[] = {0, 1, 2, 3}, seqs[] = {0, 1, 1, 1};
        assert_int_equal(out->n_logits, 4);
        assert_memory_equal(out->logit_rows, rows, sizeof rows);
        assert_memory_equal(b.logit_seqs, seqs, sizeof seqs);
    }
    batch_release(&b);
}

static void test_last_row_of_a_chunk(void **state) {
    struct batch_builder b;
    int32_t block = 0, log[] = {1, 2, 3, 4};
    struct kv_map m = {.blocks = &block, .n_ring_blocks = 1, .block_tokens = 8};
    assert_int_equal(batch_init(&b, 8, 2, NULL), 0);
    batch_add(&b, log, 0, 4, BATCH_LOGITS_LAST, 8, 0, &m, NULL, false);
    assert_int_equal(b.batch.n_logits, 1);
    assert_int_equal(b.batch.logit_rows[0], 3);
    batch_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packs_sequences),
        cmocka_unit_test(test_last_row_of_a_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// A step's parts: every row, sequence and wanted row once, in order, balanced; and how many parts there are.
#include "engine/run/parts.h"
#include "tests/cmocka.h"
#include <stdlib.h>

enum { ROWS = 400, SEQS = 40 };

static int32_t ids[ROWS], positions[ROWS], logit_rows[ROWS];
static struct batch_seq seqs[SEQS];
static struct kv_map maps[SEQS];
static struct batch batch;

static int set_up(void **state) {
    batch =
        (struct batch){.ids = ids, .positions = positions, .logit_rows = logit_rows, .seqs = seqs};
    return 0;
}

// A sequence of n rows, the last `wanted` of which are wanted.
static void add(int32_t n, int32_t wanted) {
    const int32_t seq = batch.n_seqs++, row = batch.n_rows;
    maps[seq].n_ring_blocks = seq;
    seqs[seq] = (struct batch_seq){
        .first_row = row, .n_rows = n, .memory_len = 1000 + seq, .maps = &maps[seq]};
    for (int32_t i = 0; i < n; i++) {
        ids[row + i] = 7 * (row + i);
        positions[row + i] = 100 * seq + i;
        if (i >= n - wanted) logit_rows[batch.n_logits++] = row + i;
    }
    batch.n_rows += n;
}

// Every row, sequence and wanted row of the batch is in one part, in order.
static void check_whole(const struct parts *p) {
    int32_t row = 0, logit = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct step_part *part = &p->of[i];
        const struct batch *b = &part->batch;
        assert_true(b->is_part);
        assert_null(b->draws);
        assert_true(b->n_rows > 0);
        assert_int_equal(part->first_row, row);
        assert_int_equal(part->first_logit, logit);
        int32_t in_seqs = 0;
        for (int32_t s = 0; s < b->n_seqs; s++) {
            assert_int_equal(b->seqs[s].first_row, in_seqs);
            for (int32_t r = in_seqs; r < in_seqs + b->seqs[s].n_rows; r++) {
                assert_int_equal(b->ids[r], 7 * (row + r));
                assert_int_equal(b->positions[r], positions[row + r]);
                // The row's sequence is the one that it has in the whole.
                assert_int_equal(b->seqs[s].memory_len, 1000 + positions[row + r] / 100);
                assert_int_equal(b->seqs[s].maps->n_ring_blocks, positions[row + r] / 100);
            }
            in_seqs += b->seqs[s].n_rows;
        }
        assert_int_equal(in_seqs, b->n_rows);
        for (int32_t l = 0; l < b->n_logits; l++)
            assert_int_equal(b->logit_rows[l] + row, logit_rows[logit + l]);
        row += b->n_rows;
        logit += b->n_logits;
    }
    assert_int_equal(row, batch.n_rows);
    assert_int_equal(logit, batch.n_logits);
}

static void decoding_sessions_are_dealt_out_evenly(void **state) {
    struct parts p;
    assert_int_equal(parts_init(&p, ROWS, NULL), 0);
    for (int i = 0; i < 9; i++) add(1, 1);
    for (int again = 0; again < 2; again++) { // step after step
        parts_split(&p, &batch, 2);
        assert_int_equal(p.n, 2);
        check_whole(&p);
        assert_int_equal(p.of[0].batch.n_rows, 4);
        assert_int_equal(p.of[1].batch.n_rows, 5);
        assert_int_equal(p.of[1].batch.n_logits, 5);
    }
    parts_release(&p);
}

static void a_prompt_is_cut_within(void **state) {
    struct parts p;
    assert_int_equal(parts_init(&p, ROWS, NULL), 0);
    add(1, 1);
    add(90, 1);
    parts_split(&p, &batch, 3);
    check_whole(&p);
    assert_int_equal(p.of[0].batch.n_rows, 30);
    assert_int_equal(p.of[0].batch.n_seqs, 2);
    assert_int_equal(p.of[0].batch.n_logits, 1);
    assert_int_equal(p.of[1].batch.n_logits, 0);
    assert_int_equal(p.of[2].batch.n_seqs, 1);
    assert_int_equal(p.of[2].batch.logit_rows[0], 30);
    parts_release(&p);
}

// A sequence whose end is near is not cut for the sake of a few rows.
static void a_part_ends_with_a_sequence_that_ends_nearby(void **state) {
    struct parts p;
    assert_int_equal(parts_init(&p, ROWS, NULL), 0);
    add(52, 1);
    add(48, 0);
    parts_split(&p, &batch, 2);
    check_whole(&p);
    assert_int_equal(p.of[0].batch.n_rows, 52);
    set_up(NULL);
    add(47, 1);
    add(53, 1);
    parts_split(&p, &batch, 2);
    check_whole(&p);
    assert_int_equal(p.of[0].batch.n_rows, 47);
    set_up(NULL);
    add(40, 1);
    add(60, 1);
    parts_split(&p, &batch, 2);
    check_whole(&p);
    assert_int_equal(p.of[0].batch.n_rows, 50);
    parts_release(&p);
}

static void any_batch_stays_whole(void **state) {
    struct parts p;
    uint32_t seed = 1;
    assert_int_equal(parts_init(&p, ROWS, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        set_up(NULL);
        const int32_t n_seqs = 1 + (int32_t)((seed = seed * 1664525 + 1013904223) >> 16) % SEQS;
        for (int32_t s = 0; s < n_seqs; s++) {
            seed = seed * 1664525 + 1013904223;
            int32_t n = seed >> 30 ? 1 : 1 + (int32_t)(seed >> 8) % 60;
            if (batch.n_rows + n > ROWS) break;
            add(n, (int32_t)(seed >> 16) % (n + 1));
        }
        int32_t most = batch.n_rows < PARTS_MAX ? batch.n_rows : PARTS_MAX;
        const int32_t k = 1 + i % most;
        parts_split(&p, &batch, k);
        assert_int_equal(p.n, k);
        check_whole(&p);
        const int32_t share = batch.n_rows / k;
        for (int32_t j = 0; j < k; j++) {
            assert_in_range(p.of[j].batch.n_rows, share - share / 4, share + share / 4 + 1);
        }
    }
    parts_release(&p);
}

// The time of a step in units of a row's, by the formula of parts.h.
static double time_of(int32_t k, int32_t n_rows, int32_t n_stages, double w) {
    return (k + n_stages - 1) * (w + (double)n_rows / k);
}

static int info(struct backend *be, size_t *free_bytes, size_t *total_bytes) {
    return 0;
}

static void the_number_is_the_fastest(void **state) {
    struct backend_ops host = {0}, gpu = {.mem_info = info};
    struct backend on_host = {.ops = &host}, on_gpu = {.ops = &gpu};
    for (int32_t stages = 1; stages <= 9; stages += 2) {
        for (int32_t n = 1; n < 5000; n += n < 40 ? 1 : 97) {
            for (int gpus = 0; gpus < 2; gpus++) {
                const double w = gpus ? PARTS_ROWS_GPU : PARTS_ROWS_HOST;
                const int32_t k = parts_count(gpus ? &on_gpu : &on_host, n, stages);
                assert_in_range(k, 1, n < PARTS_MAX ? n : PARTS_MAX);
                for (int32_t other = 1; other <= PARTS_MAX && other <= n; other++)
                    assert_true(time_of(k, n, stages, w) <=
                                time_of(other, n, stages, w) * (1 + 1e-12));
            }
        }
    }
    assert_int_equal(parts_count(&on_host, 5000, 1), 1);
    assert_int_equal(parts_count(&on_host, 1, 2), 1);
    assert_int_equal(parts_count(&on_host, 2 * PARTS_ROWS_HOST, 2), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(decoding_sessions_are_dealt_out_evenly, set_up),
        cmocka_unit_test_setup(a_prompt_is_cut_within, set_up),
        cmocka_unit_test_setup(a_part_ends_with_a_sequence_that_ends_nearby, set_up),
        cmocka_unit_test_setup(any_batch_stays_whole, set_up),
        cmocka_unit_test(the_number_is_the_fastest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

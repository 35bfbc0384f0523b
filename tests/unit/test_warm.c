// The first steps of a device (engine/run/warm.c): which batches run, within which limits.
#include "engine/run/warm.h"
#include "tests/cmocka.h"
#include <string.h>

static int fake_run(struct forward *f, const struct batch *b);
static int fake_done(struct forward *f);
#define forward_run fake_run
#define forward_done fake_done
#include "engine/run/warm.c"

enum { MOST = 64 };

static struct {
    int n, n_waits, n_done;
    int32_t rows[MOST], seqs[MOST];
    bool one_layer[MOST];
    int fails_at; // the step that fails; -1: none
} seen;

static int fake_run(struct forward *f, const struct batch *b) {
    assert_in_range(seen.n, 0, MOST - 1);
    assert_int_equal(b->n_seqs == 1 ? 1 : b->n_rows, b->n_logits);
    assert_in_range(b->n_rows, 1, f->max_rows);
    assert_in_range(b->n_logits, 1, f->max_logits);
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int32_t r = 0; r < b->seqs[s].n_rows; r++) {
            const int32_t position = b->positions[b->seqs[s].first_row + r];
            const struct kv_map *m = b->seqs[s].maps;
            assert_int_equal(position, r);
            assert_in_range(position, 0, f->model->config.max_positions - 1);
            assert_in_range(m->blocks[kv_map_slot(m, position)], 0, f->kv->arena.n_blocks - 1);
            assert_int_equal(b->ids[b->seqs[s].first_row + r], 0);
        }
    assert_in_range(b->logit_rows[b->n_logits - 1], 0, b->n_rows - 1);
    seen.rows[seen.n] = b->n_rows;
    seen.seqs[seen.n] = b->n_seqs;
    seen.one_layer[seen.n] = f->one_layer;
    return seen.n++ == seen.fails_at ? E_DEVICE : 0;
}

static int fake_done(struct forward *f) {
    (void)f;
    seen.n_done++;
    return 0;
}

static int fake_read(struct backend *be, float *host, const void *logits, int32_t n,
                     int32_t vocab) {
    (void)be, (void)host, (void)logits, (void)vocab;
    assert_int_equal(n, 0);
    seen.n_waits++;
    return 0;
}

static int fake_info(struct backend *be, size_t *left, size_t *total) {
    (void)be;
    *left = *total = 0;
    return 0;
}

// rc of a device of these limits.
static int warm(bool gpu, int32_t max_rows, int32_t max_logits, int32_t n_blocks,
                int32_t max_positions) {
    static struct model model;
    const struct backend_ops ops = {.mem_info = gpu ? fake_info : NULL, .logits_read = fake_read};
    struct backend be = {.ops = &ops};
    const struct kv_groups groups = {.n = 1};
    const struct cache_stores kv = {.groups = &groups,
                                    .arena = {.n_blocks = n_blocks, .block_tokens = 16}};
    struct forward f = {
        .model = &model, .backend = &be, .kv = &kv, .max_rows = max_rows, .max_logits = max_logits};
    struct err err = {0};
    model.config.max_positions = max_positions;
    memset(&seen, 0, sizeof seen);
    seen.fails_at = gpu ? -1 : 0;
    int rc = forward_warm(&f, &err);
    assert_false(f.one_layer);
    return rc;
}

static int32_t largest(void) {
    int32_t most = 0;
    for (int i = 0; i < seen.n; i++)
        if (seen.rows[i] > most) most = seen.rows[i];
    return most;
}

static void test_every_width_runs(void **state) {
    (void)state;
    assert_int_equal(warm(true, 2112, 64, 10000, 131072), 0);
    int alone = 0;
    int32_t prompt = 1;
    for (int i = 0; i < seen.n; i++) {
        // A step that may be recorded has all layers.
        assert_int_equal(seen.one_layer[i], seen.seqs[i] == 1 && seen.rows[i] > 1);
        if (seen.one_layer[i]) {
            assert_in_range(seen.rows[i], prompt + 1, prompt < 4 ? prompt + 1 : prompt * 4 / 3);
            prompt = seen.rows[i];
        }
        alone += seen.rows[i] == 1;
    }
    assert_in_range(prompt, 2112 * 3 / 4, 2112);
    assert_int_equal(alone, 3); // loaded, recorded, launched from the recording
    assert_int_equal(seen.rows[seen.n - 1], 64);
    assert_int_equal(seen.n_waits, seen.n);
    assert_int_equal(seen.n_done, seen.n);
}

static void test_limits_hold(void **state) {
    (void)state;
    assert_int_equal(warm(true, 2112, 64, 10000, 1024), 0); // a table of 1,024 positions
    assert_in_range(largest(), 768, 1024);
    assert_int_equal(warm(true, 2112, 64, 3, 131072), 0); // a cache of 48 tokens
    assert_in_range(largest(), 36, 48);
    assert_int_equal(warm(true, 3, 1, 1, 2), 0);
    assert_int_equal(largest(), 2);
}

static void test_a_host_runs_none(void **state) {
    (void)state;
    assert_int_equal(warm(false, 2112, 64, 10000, 131072), 0);
    assert_int_equal(seen.n, 0);
}

static void test_a_failure_ends_it(void **state) {
    (void)state;
    static struct model model = {.config.max_positions = 100};
    const struct backend_ops ops = {.mem_info = fake_info, .logits_read = fake_read};
    struct backend be = {.ops = &ops};
    const struct kv_groups groups = {.n = 1};
    const struct cache_stores kv = {.groups = &groups,
                                    .arena = {.n_blocks = 8, .block_tokens = 16}};
    struct forward f = {
        .model = &model, .backend = &be, .kv = &kv, .max_rows = 100, .max_logits = 8};
    struct err err = {0};
    memset(&seen, 0, sizeof seen);
    seen.fails_at = 4;
    assert_int_equal(forward_warm(&f, &err), E_DEVICE);
    assert_int_equal(err.code, E_DEVICE);
    assert_int_equal(seen.n, 5);
    assert_int_equal(seen.n_done, 5); // the failed step is closed, too
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_width_runs),
        cmocka_unit_test(test_limits_hold),
        cmocka_unit_test(test_a_host_runs_none),
        cmocka_unit_test(test_a_failure_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

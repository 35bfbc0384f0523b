// A device whose copies run beside its steps, on the CPU: a layer's part of a load is copied when
// the step waits for it, and not earlier; before that it is NaNs. It checks that forward reads and
// writes no layer before its part has arrived, waits for no layer that it does not need yet, and
// that host memory is not touched before the copies are complete. On a GPU the real device is used
// and its loads are counted.
#pragma once
#include "kernels/cpu/kv_store.h"
#include "tests/golden/tiers_world.h"

static struct {
    const struct kv_load *load; // of the step that is being launched; NULL: none
    int32_t n_there;            // layers of it
    int64_t n_loads;
    bool under_way;
    int looks; // how many polls do not see it done yet
    int64_t took_us, held_us;
    int fails_at, code; // layer_wait of this layer fails with this code; -1: none
    uint32_t one_in;    // one in so many calls, at random, fails with E_NOMEM; 0: none
    int64_t n_failed;
    uint64_t host_sum; // of what is read from
    void *host[TIER_STEP_BLOCKS];
    int32_t n_host;
    size_t block_bytes;
} beside;

static bool on_gpu(void) {
    return strncmp(test_device(), "cuda", 4) == 0;
}

static uint64_t host_sum(void) {
    uint64_t sum = 1;
    for (int32_t i = 0; i < beside.n_host; i++) {
        const unsigned char *p = beside.host[i];
        for (size_t k = 0; k < beside.block_bytes; k++) sum = sum * 1000003 + p[k];
    }
    return sum;
}

static bool fails(void) {
    bool now = beside.one_in && below(beside.one_in) == 0;
    beside.n_failed += now;
    return now;
}

static int beside_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    if (fails()) return E_NOMEM;
    int rc = prompt_ops->step_begin(be, b, run);
    const struct kv_load *l = b->load;
    beside.n_loads += l != NULL;
    if (rc < 0 || !l || on_gpu()) return rc;
    assert_false(beside.under_way || copying.save || copying.load);
    beside.load = l;
    beside.under_way = true;
    beside.n_there = 0;
    beside.n_host = l->n;
    beside.block_bytes = l->kv->block_bytes;
    memcpy(beside.host, l->host, (size_t)l->n * sizeof *beside.host);
    beside.host_sum = host_sum();
    for (int32_t i = 0; i < l->n; i++)
        memset((char *)l->kv->data + (size_t)l->blocks[i] * l->kv->block_bytes, 0xff,
               l->kv->block_bytes);
    return rc;
}

static int beside_wait(struct backend *be, int32_t layer) {
    const struct kv_load *l = beside.load;
    assert_non_null(l);
    assert_int_equal(layer, beside.n_there); // each once, in order
    if (layer == beside.fails_at) return beside.code;
    if (fails()) return E_NOMEM;
    size_t part = (size_t)l->kv->n_kv_heads * cpu_kv_head_bytes(l->kv);
    for (int32_t i = 0; i < l->n; i++)
        memcpy((char *)l->kv->data + (size_t)l->blocks[i] * l->kv->block_bytes +
                   (size_t)layer * part,
               (char *)l->host[i] + (size_t)layer * part, part);
    beside.n_there++;
    return 0;
}

// The layer's own part has arrived, and the next one is not waited for.
static void layer_is_there(int32_t layer) {
    if (beside.load) assert_int_equal(beside.n_there, layer + 1);
}

static int beside_finish(struct backend *be, void *qkv, const struct kv_store *kv,
                         const struct batch *b, int32_t layer, int32_t n_heads,
                         const struct qkv_args *args) {
    layer_is_there(layer);
    return prompt_ops->qkv_finish(be, qkv, kv, b, layer, n_heads, args);
}

static int beside_attention(struct backend *be, void *out, const void *qkv,
                            const struct kv_store *kv, const struct batch *b,
                            const struct attention_args *args) {
    layer_is_there(args->layer);
    if (fails()) return E_NOMEM;
    return prompt_ops->attention(be, out, qkv, kv, b, args);
}

static int beside_end(struct backend *be) {
    beside.load = NULL;
    return prompt_ops->step_end(be);
}

static int beside_done(struct backend *be, bool wait, struct kv_copied *how) {
    if (!beside.under_way) return slow_done(be, wait, how);
    if (beside.load) // all of the step has been asked for, or it has failed
        assert_int_equal(beside.n_there, beside.load->kv->n_layers);
    if (!wait && beside.looks-- > 0) return 0;
    assert_true(beside.host_sum == host_sum()); // the sources are unchanged
    beside.under_way = false;
    how->took_us = beside.took_us;
    how->held_us = beside.held_us;
    return 1;
}

static inline void beside_down(struct engine *e) {
    memset(&beside, 0, sizeof beside);
    beside.fails_at = -1;
    slow_down(e);
    slow.step_begin = beside_begin;
    if (on_gpu()) {
        slow.kv_blocks_save = prompt_ops->kv_blocks_save;
        slow.kv_blocks_load = prompt_ops->kv_blocks_load;
        slow.kv_copies_done = prompt_ops->kv_copies_done;
        return;
    }
    slow.kv_layer_wait = beside_wait;
    slow.qkv_finish = beside_finish;
    slow.attention = beside_attention;
    slow.step_end = beside_end;
    slow.kv_copies_done = beside_done;
}

// Copies of cache blocks between the arena and host memory: whole, and layer by layer with a step. The
// bytes must not change, and ops enqueued after a layer's wait must find that layer's part.
#include "kernels/cuda/backend_cuda.h"
#include "tests/ops/twin.h"

enum { LAYERS = 11 }; // no multiple of the groups

struct place {
    struct kv_store kv;
    char *host; // (n, block_bytes) pinned
    void **at;  // (n)
    int32_t *blocks, n;
};

static void place_open(const struct twin *w, struct place *p, int32_t n_layers, int32_t n_kv_heads,
                       int32_t head_dim, int32_t n_blocks, int32_t n) {
    struct err err = {0};
    *p = (struct place){.kv = {.dtype = DTYPE_BF16,
                               .n_layers = n_layers,
                               .n_kv_heads = n_kv_heads,
                               .head_dim = head_dim,
                               .block_tokens = 64,
                               .n_blocks = n_blocks},
                        .n = n};
    if (w->gpu->ops->kv_store_init(w->gpu, &p->kv, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(
        w->gpu->ops->host_alloc(w->gpu, (size_t)n * p->kv.block_bytes, (void **)&p->host, &err), 0);
    p->at = malloc((size_t)n * sizeof *p->at);
    p->blocks = malloc((size_t)n * sizeof *p->blocks);
    for (int32_t i = 0; i < n; i++) {
        p->at[i] = p->host + (size_t)i * p->kv.block_bytes;
        p->blocks[i] = (i * 7 + 3) % n_blocks; // n_blocks is no multiple of 7
    }
}

static void place_close(const struct twin *w, struct place *p) {
    w->gpu->ops->kv_store_release(w->gpu, &p->kv);
    w->gpu->ops->host_free(w->gpu, p->host);
    free(p->at), free(p->blocks);
}

static void fill(const struct place *p, uint32_t of) {
    uint32_t *words = (uint32_t *)(void *)p->host;
    size_t n = (size_t)p->n * p->kv.block_bytes / sizeof *words;
    for (size_t i = 0; i < n; i++) words[i] = (uint32_t)(i * 2654435761u) ^ of;
}

static void done(const struct twin *w, struct kv_copied *how) {
    *how = (struct kv_copied){0};
    assert_int_equal(w->gpu->ops->kv_copies_done(w->gpu, true, how), 1);
    assert_true(how->took_us > 0);
}

// A layer's part of the i-th block, read by the steps' stream.
static void layer_is(const struct twin *w, const struct place *p, int32_t layer, int32_t i,
                     char *room) {
    struct cuda_kv k = cuda_kv_of(&p->kv);
    const char *from = (const char *)p->kv.data + (size_t)layer * k.layer_bytes +
                       (size_t)p->blocks[i] * k.block_bytes;
    assert_int_equal(w->gpu->ops->mem_read(w->gpu, room, from, k.block_bytes), 0);
    assert_memory_equal(room, (char *)p->at[i] + (size_t)layer * k.block_bytes, k.block_bytes);
}

static void whole_blocks(const struct twin *w, struct place *p) {
    struct kv_copied how;
    struct cuda_kv k = cuda_kv_of(&p->kv);
    char *room = malloc(k.block_bytes), *were = malloc(p->kv.block_bytes);
    fill(p, 1);
    memcpy(were, p->at[0], p->kv.block_bytes);
    assert_int_equal(w->gpu->ops->kv_blocks_load(w->gpu, &p->kv, p->blocks, p->at, p->n), 0);
    done(w, &how);
    assert_int_equal(how.held_us, 0);
    for (int32_t layer = 0; layer < p->kv.n_layers; layer++) layer_is(w, p, layer, p->n - 1, room);
    memset(p->host, 0, (size_t)p->n * p->kv.block_bytes);
    assert_int_equal(w->gpu->ops->kv_blocks_save(w->gpu, &p->kv, p->at, p->blocks, p->n), 0);
    done(w, &how);
    assert_memory_equal(p->at[0], were, p->kv.block_bytes);
    // Another block, copied on the device.
    int32_t other = 0;
    for (bool taken = true; taken; other += taken) {
        taken = false;
        for (int32_t i = 0; i < p->n; i++) taken = taken || p->blocks[i] == other;
    }
    assert_int_equal(w->gpu->ops->kv_block_copy(w->gpu, &p->kv, other, p->blocks[0]), 0);
    int32_t was = p->blocks[0];
    p->blocks[0] = other;
    for (int32_t layer = 0; layer < p->kv.n_layers; layer++) layer_is(w, p, layer, 0, room);
    p->blocks[0] = was;
    int32_t wrong[] = {p->kv.n_blocks};
    assert_int_equal(w->gpu->ops->kv_blocks_load(w->gpu, &p->kv, wrong, p->at, 1), E_INVAL);
    free(room), free(were);
}

// end: how many layers the step runs; fewer than all: it fails after them.
static void with_a_step(const struct twin *w, struct place *p, int32_t end) {
    static const int32_t ids[2] = {0, 1}, positions[2] = {0, 0};
    const struct kv_load load = {&p->kv, p->blocks, p->at, p->n};
    const struct batch *run;
    struct twin_rows rows;
    struct kv_copied how;
    struct cuda_kv k = cuda_kv_of(&p->kv);
    char *room = malloc(k.block_bytes);
    fill(p, (uint32_t)end);
    twin_rows_fill(&rows, 2, ids, positions, NULL, 0);
    rows.b.load = &load;
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &rows.b, &run), 0);
    assert_ptr_equal(run->load, &load);
    for (int32_t layer = 0; layer < end; layer++) {
        assert_int_equal(w->gpu->ops->kv_layer_wait(w->gpu, layer), 0);
        layer_is(w, p, layer, p->n - 1, room); // the last one asked for of its group
        layer_is(w, p, layer, 0, room);
    }
    if (end == p->kv.n_layers) assert_int_equal(w->gpu->ops->step_launch(w->gpu), 0);
    assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
    how = (struct kv_copied){0};
    assert_int_equal(w->gpu->ops->kv_copies_done(w->gpu, true, &how), 1);
    assert_int_equal(how.took_us > 0, end == p->kv.n_layers); // a part has no rate
    assert_true(how.held_us >= 0);
    free(room);
}

static void copies(const struct twin *w) {
    struct place p;
    place_open(w, &p, LAYERS, 8, 128, 40, 32); // 11 x 256 KB a block
    whole_blocks(w, &p);
    with_a_step(w, &p, LAYERS);
    with_a_step(w, &p, 3);
    whole_blocks(w, &p); // what failed has left nothing behind
    with_a_step(w, &p, LAYERS);
    place_close(w, &p);
    place_open(w, &p, 2, 1, 8, 5, 3); // fewer layers than groups
    whole_blocks(w, &p);
    with_a_step(w, &p, 2);
    place_close(w, &p);
}

static void test_copies(void **state) {
    twin_each(copies);
}

// A layer of more than 2 GiB, so that the distance between layers exceeds the largest pitch of a 2D copy.
static void large(const struct twin *w) {
    enum { BLOCKS = 9001 };
    size_t left = 0, total = 0;
    struct place p;
    assert_int_equal(w->gpu->ops->mem_info(w->gpu, &left, &total), 0);
    if (left < (size_t)8 << 30 || test_scale() < 1) return; // a sanitizer keeps a shadow of it
    place_open(w, &p, 3, 8, 128, BLOCKS, 4);
    assert_true(cuda_kv_of(&p.kv).layer_bytes > (size_t)INT32_MAX);
    whole_blocks(w, &p);
    with_a_step(w, &p, 3);
    place_close(w, &p);
}

static void test_large(void **state) {
    twin_each(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

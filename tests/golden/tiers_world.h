// Shared by the tests of caches that leave the device and come back: engines with host memory and
// files, and devices with slow copies.
#pragma once
#include "tests/golden/random_log.h"

enum { DRAWN_PROMPT_MAX = 128, DRAWN_SINKS = 4 };
// A first turn of owner 1 that draws from a fixed seed, with penalties, after a prompt that is always the same.
static inline struct engine_turn drawn_turn(const struct engine *e, uint64_t sequence,
                                            int64_t n_prompt, int32_t memory_len, int32_t n_drawn) {
    int32_t log[DRAWN_PROMPT_MAX];
    assert_true(n_prompt <= DRAWN_PROMPT_MAX);
    seed = 41;
    random_log(e, log, n_prompt);
    struct engine_turn t = turn_for(e, sequence, log, n_prompt, memory_len, DRAWN_SINKS);
    t.owner = 1;
    t.sampling.max_tokens = n_drawn;
    t.sampling.temperature = 1;
    t.sampling.repetition_penalty = 1.2f;
    t.sampling.frequency_penalty = 0.1f;
    t.sampling.seed = 7;
    t.sampling.has_seed = true;
    return t;
}

// A device whose copies take their time: each is seen to be done at the fourth look, or when it is
// waited for, and until then neither side of it holds anything.
static struct backend_ops slow;
static const struct backend_ops *prompt_ops; // those underneath; NULL: copies as they are
static struct {
    bool save, load;
    bool waited_for; // complete only when the host waits for it
    struct kv_store *kv;
    void *host[TIER_BATCH];
    int32_t blocks[TIER_BATCH], n;
} copying;

static void slow_begin(const struct kv_store *kv, void *const *host, const int32_t *blocks,
                       int32_t n) {
    assert_false(copying.save || copying.load);
    copying.kv = (struct kv_store *)kv;
    copying.n = n;
    memcpy(copying.host, host, (size_t)n * sizeof *host);
    memcpy(copying.blocks, blocks, (size_t)n * sizeof *blocks);
}
static int slow_save(struct backend *be, const struct kv_store *kv, void *const *host,
                     const int32_t *blocks, int32_t n) {
    slow_begin(kv, host, blocks, n);
    copying.save = true;
    return 0;
}
static int slow_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                     void *const *host, int32_t n) {
    slow_begin(kv, host, blocks, n);
    copying.load = true;
    return 0;
}
static int slow_done(struct backend *be, bool wait, struct kv_copied *how) {
    static int looks;
    if (!copying.save && !copying.load) return 1;
    if (!wait && (copying.waited_for || ++looks % 4)) return 0;
    if (copying.save)
        prompt_ops->kv_blocks_save(be, copying.kv, copying.host, copying.blocks, copying.n);
    else
        prompt_ops->kv_blocks_load(be, copying.kv, copying.blocks, copying.host, copying.n);
    copying.save = copying.load = false;
    return 1;
}
static inline void slow_down(struct engine *e) {
    prompt_ops = e->backend->ops;
    slow = *prompt_ops;
    slow.kv_blocks_save = slow_save;
    slow.kv_blocks_load = slow_load;
    slow.kv_copies_done = slow_done;
    e->backend->ops = &slow;
}

static const char *snapshots; // their folder, of the engines opened next

static inline struct engine *tiered(const char *dir, int32_t chunk, int64_t blocks,
                                    int64_t host_blocks) {
    const int64_t bytes = block_bytes_for(dir, WEIGHTS_OWN, 8);
    runner_host_bytes = host_blocks * bytes;
    runner_snapshots = snapshots;
    struct engine *e = engine_for(dir, chunk, 8, blocks * bytes);
    runner_host_bytes = 0;
    runner_snapshots = NULL;
    return e;
}

// Runs rounds until the sequence reports its end. A GPU's copies run beside the rounds, so late rounds wait a little.
static inline enum engine_event_kind wait_for(struct engine *e, uint64_t sequence) {
    struct engine_event ev;
    for (int i = 0; i < 10000; i++) {
        if (i > 1000) usleep(1000);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == sequence) return ev.kind;
        }
    }
    fail_msg("sequence %d: nothing happened", (int)sequence);
    return ENGINE_DONE;
}

// What a model leaves for the cache: checks weights against the device's memory, and sizes the cache where
// the options leave it open. See engine_internal.h, budget.h.
#include "base/memory.h"
#include "engine/budget.h"
#include "engine/engine_internal.h"

// Blocks for a memory of this length with any sinks: of each group a whole session's log, or its window,
// the chunk of slack, the sinks' last block and the partly used blocks at both ends.
static int64_t blocks_for(const struct engine_options *o, const struct kv_groups *groups,
                          int64_t memory_len, int64_t max_session_len) {
    int64_t b = o->block_tokens, all = (max_session_len + b - 1) / b, n = 0;
    for (int32_t g = 0; g < groups->n; g++) {
        int64_t most = (memory_len + o->prefill_chunk_tokens + b - 1) / b + 2;
        int64_t run = groups->group[g].window + o->prefill_chunk_tokens - 1; // without sinks
        int64_t windowed = (run + b - 2) / b + 1;
        if (groups->group[g].window > 0 && windowed < most) most = windowed;
        n += most < all ? most : all;
    }
    return n;
}

// The longest memory that fits the pool; below 1: none does.
static int64_t longest_memory(const struct engine_options *o, const struct kv_groups *groups,
                              int64_t n_blocks, int64_t max_session_len) {
    int64_t fits = 0, beyond = max_session_len + 1;
    while (beyond - fits > 1) {
        int64_t middle = fits + (beyond - fits) / 2;
        if (blocks_for(o, groups, middle, max_session_len) <= n_blocks)
            fits = middle;
        else
            beyond = middle;
    }
    return fits;
}

// The device's memory; *b is zero where the device uses the host's.
static int device_budget(const struct engine *e, const struct engine_options *o, struct budget *b,
                         struct err *err) {
    size_t left, total;
    *b = (struct budget){0};
    if (!e->backend->ops->mem_info) return 0;
    int rc = e->backend->ops->mem_info(e->backend, &left, &total);
    if (rc < 0) return err_set(err, rc, "the GPU does not say how much memory it has");
    *b = (struct budget){.device = e->backend_name,
                         .total = (int64_t)total,
                         .left = (int64_t)left,
                         .fraction = o->gpu_memory_fraction,
                         .eight_bits = o->weight_format != WEIGHTS_OWN,
                         .max_sequences = o->max_sequences,
                         .prefill_chunk_tokens = o->prefill_chunk_tokens,
                         .block_tokens = o->block_tokens};
    return 0;
}

int engine_check_weights(const struct engine *e, const struct engine_options *o,
                         const struct model_config *mc, struct err *err) {
    struct budget b;
    TRY(device_budget(e, o, &b, err));
    if (!b.device) return 0;
    b.eight_bits = b.eight_bits || mc->int8 || mc->fp8;
    b.weights = model_config_n_params(mc) *
                (int64_t)(b.eight_bits ? 1 : dtype_size(e->backend->act_dtype)) /
                e->lead.comm->n_ranks;
    return b.weights > b.left ? budget_no_weights(&b, err) : 0;
}

// The cache's size where none is set: max_sequences full windows, at most half of the free memory; on
// a GPU at most what gpu_memory_fraction leaves, and all of that where the fraction is set.
static int64_t default_cache_bytes(const struct engine_options *o, const struct budget *b,
                                   int64_t memory_len, int64_t max_session_len, int64_t block_bytes,
                                   int32_t n_sharing, const struct kv_groups *groups) {
    const struct kv_ring_shape window = {.memory_len = (int32_t)memory_len,
                                         .sink_len = 1,
                                         .chunk_tokens = o->prefill_chunk_tokens,
                                         .block_tokens = o->block_tokens,
                                         .session_len = max_session_len,
                                         .groups = groups};
    int64_t full = kv_ring_max_blocks(&window) * block_bytes * o->max_sequences;
    bool device = b->device;
    int32_t n_beside = o->n_beside > 0 ? o->n_beside : 1;
    int64_t most = device ? budget_cache(b) : memory_left() / 2 / n_sharing / n_beside;
    bool all = device && o->gpu_memory_fraction > 0;
    return all || (most < full && (most > 0 || device)) ? most : full;
}

static int size_log(const struct engine_options *o, const struct model_config *mc,
                    struct core_options *io, struct err *err) {
    bool table = mc->positions == POSITION_LEARNED || mc->positions == POSITION_SINUSOIDAL;
    io->max_session_len = o->max_session_len > 0 ? o->max_session_len : mc->max_positions;
    if (!table || io->max_session_len <= mc->max_positions) return 0;
    return err_set(err, E_INVAL, "max_session_len: %lld is past the model's table of %d positions",
                   (long long)io->max_session_len, mc->max_positions);
}

// Adds to the device's budget what is known once the weights are loaded.
static void add_loaded(struct budget *b, const struct engine *e, const struct engine_options *o,
                       const struct core_options *io, int64_t block_bytes) {
    const struct model_config *mc = &e->model->config;
    int32_t rows = o->max_sequences + o->prefill_chunk_tokens;
    int32_t n_logits = core_max_logits(io);
    b->loaded = true;
    b->weights = (int64_t)e->model->weight_bytes;
    b->eight_bits = mc->int8 || mc->fp8;
    b->work = (int64_t)forward_bytes(e->model, rows, n_logits);
    b->work_per_token = (b->work - (int64_t)forward_bytes(e->model, o->max_sequences, n_logits)) /
                        o->prefill_chunk_tokens;
    b->block_bytes = block_bytes;
    b->memory_len = o->default_memory_len > 0 ? o->default_memory_len : o->block_tokens;
    b->session_len = io->max_session_len;
}

static enum dtype kv_dtype_of(const struct engine *e, const struct engine_options *o) {
    return o->kv_dtype_auto ? e->backend->act_dtype : o->kv_dtype;
}

static int64_t block_bytes_of(const struct engine *e, const struct engine_options *o) {
    struct cache_stores shape;
    cache_stores_shape(&shape, e->model, kv_dtype_of(e, o), o->block_tokens, 1);
    return (int64_t)shape.arena.block_bytes;
}

// --- places --------------------------------------------------------------------------------------

// A GPU computes steps of this many rows in little more time than narrower ones, and records none of more rows.
enum { CPU_PLACES = 16, GPU_PLACES = 256, PLACE_TOKENS = 1024 };

int engine_size_places(const struct engine *e, struct engine_options *o, struct err *err) {
    struct core_options io = {0};
    struct budget b;
    if (o->max_sequences > 0) return 0;
    o->max_sequences = CPU_PLACES;
    TRY(size_log(o, &e->model->config, &io, err));
    TRY(device_budget(e, o, &b, err));
    if (!b.device) return 0;
    for (int32_t n = GPU_PLACES; n > CPU_PLACES; n /= 2) {
        o->max_sequences = io.max_running = n;
        add_loaded(&b, e, o, &io, block_bytes_of(e, o));
        if (budget_places(&b, o->kv_cache_bytes, PLACE_TOKENS) >= n) return 0;
    }
    o->max_sequences = CPU_PLACES;
    return 0;
}

// --- the cache -----------------------------------------------------------------------------------

int engine_size_cache(struct engine *e, const struct engine_options *o, struct core_options *io,
                      struct err *err) {
    const struct model_config *mc = &e->model->config;
    TRY(size_log(o, mc, io, err));
    io->kv_dtype = kv_dtype_of(e, o);
    int64_t block_bytes = block_bytes_of(e, o);
    int64_t memory = o->default_memory_len > 0 ? o->default_memory_len : mc->max_positions;
    int64_t bytes = o->kv_cache_bytes;
    struct budget budget;
    TRY(device_budget(e, o, &budget, err));
    if (budget.device) {
        add_loaded(&budget, e, o, io, block_bytes);
        if (bytes > budget_largest_cache(&budget))
            return budget_cache_too_large(&budget, bytes, err);
    }
    if (bytes == 0)
        bytes = default_cache_bytes(o, &budget, memory, io->max_session_len, block_bytes,
                                    e->lead.comm->n_sharing, &e->model->cache_groups);
    int64_t n_blocks = bytes / block_bytes < INT32_MAX / 2 ? bytes / block_bytes : INT32_MAX / 2;
    int64_t longest = longest_memory(o, &e->model->cache_groups, n_blocks, io->max_session_len);
    if (longest < 1 || (o->default_memory_len > longest && longest < io->max_session_len)) {
        int64_t want = o->default_memory_len > 0 ? o->default_memory_len : o->block_tokens;
        if (budget.device && o->kv_cache_bytes == 0) return budget_no_cache(&budget, err);
        return err_set(
            err, E_NOMEM,
            "a cache of %lld bytes holds %lld blocks of %d tokens: too few for memory_len %lld and "
            "chunks of %d; raise kv_cache_bytes or lower prefill_chunk_tokens",
            (long long)bytes, (long long)n_blocks, o->block_tokens, (long long)want,
            o->prefill_chunk_tokens);
    }
    io->n_blocks = (int32_t)n_blocks;
    e->info.max_memory_len = (int32_t)longest;
    e->info.default_memory_len = (int32_t)(memory < longest ? memory : longest);
    e->info.block_bytes = block_bytes;
    return 0;
}

// Each group has a block for the same tokens, and all blocks have one size.
void engine_note_windows(struct engine *e) {
    struct engine_info *info = &e->info;
    int64_t bytes = (int64_t)e->maker.block_bytes / info->block_tokens;
    info->n_kv_windows = 0;
    for (int32_t g = 0; g < e->groups->n; g++) {
        int32_t window = e->groups->group[g].window, i = 0;
        while (i < info->n_kv_windows && info->kv_windows[i].window != window) i++;
        if (i == info->n_kv_windows)
            info->kv_windows[info->n_kv_windows++] = (struct engine_kv_window){.window = window};
        info->kv_windows[i].bytes_per_token += bytes;
    }
}

int64_t engine_cache_bytes(const struct engine_info *info, int64_t n_tokens) {
    int64_t sum = 0;
    for (int32_t i = 0; i < info->n_kv_windows; i++) {
        const struct engine_kv_window *w = &info->kv_windows[i];
        sum += w->bytes_per_token * (w->window > 0 && w->window < n_tokens ? w->window : n_tokens);
    }
    return sum;
}

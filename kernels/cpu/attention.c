// out = softmax(scale q.k + alibi) v over the block ring: cuts the work into tiles of query rows,
// and, where tiles are too few for the workers (long contexts, few heads), each tile into splits of
// the key positions.
//
// Both ways run the same loops (attention.inc) over the same splits and merge in the same order, so
// they give the same bits. Bytes moved: the visible keys and values once for each tile; a decode
// step's tile is a group of heads of one sequence, so the cache is read once.
#include "kernels/cpu/cpu.h"
#include <math.h>
#include <string.h>

enum { SUM_LANES = 16 };

static size_t state_floats(int32_t head_dim) {
    return (size_t)ATTENTION_ROWS * (1 + SUM_LANES + (size_t)((head_dim + 15) & ~15));
}

static int split_slots(const struct cpu_backend *cpu) {
    return 4 * threads_count(cpu->threads);
}

int cpu_attention_reserve(struct cpu_backend *cpu, int32_t head_dim, struct err *err) {
    size_t padded = (size_t)((head_dim + 15) & ~15);
    size_t floats = (size_t)ATTENTION_ROWS * ((size_t)head_dim + ATTENTION_RUN) +
                    ATTENTION_RUN * ((size_t)head_dim + padded) + 2 * state_floats(head_dim);
    size_t slots = ((size_t)split_slots(cpu) + 1) * state_floats(head_dim);
    return cpu_reserve(cpu, floats * sizeof(float), slots * sizeof(float), err);
}

struct attention_job {
    struct attention_task task;
    struct cpu_backend *cpu;
    int32_t group, n_chunks,
        tile_tokens; // heads that share a kv head, cut in chunks; tokens of a tile
    // split mode: one tile, splits [first, first + n) of it
    struct attention_tile tile;
    int64_t first_split;
    int32_t n_items;
};

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

static int32_t seq_items(const struct attention_job *j, const struct batch_seq *seq) {
    return ceil_div(seq->n_rows, j->tile_tokens) * j->task.args->n_kv_heads * j->n_chunks;
}

// Within a sequence the last tokens come first: they see the most, and the short ones fill the
// gaps.
static struct attention_tile item_tile(const struct attention_job *j, int32_t index) {
    const struct batch_seq *seq = j->task.b->seqs;
    for (int32_t n; index >= (n = seq_items(j, seq)); index -= n) seq++;
    int32_t heads = j->task.args->n_kv_heads * j->n_chunks;
    int32_t n_tiles = ceil_div(seq->n_rows, j->tile_tokens), at = n_tiles - 1 - index / heads;
    int32_t kv_head = index % heads / j->n_chunks, chunk = index % j->n_chunks;
    int32_t per_chunk = ceil_div(j->group, j->n_chunks), head = chunk * per_chunk;
    int32_t token = at * j->tile_tokens;
    return (struct attention_tile){
        .seq = seq,
        .token = token,
        .n_tokens = seq->n_rows - token < j->tile_tokens ? seq->n_rows - token : j->tile_tokens,
        .head = kv_head * j->group + head,
        .n_heads = j->group - head < per_chunk ? j->group - head : per_chunk,
        .kv_head = kv_head};
}

static void run_tile(void *ctx, int index, int worker) {
    const struct attention_job *j = ctx;
    struct attention_tile tile = item_tile(j, index), next;
    if (tile.n_heads <= 0) return;
    if (index + 1 < j->n_items && tile.n_tokens == 1) {
        next = item_tile(j, index + 1);
        if (next.n_heads > 0) tile.next = &next;
    }
    j->cpu->kernels->attention_tile(&j->task, &tile, j->cpu->scratch[worker].data);
}

// --- a tile's splits in parallel -----------------------------------------------------------------
static struct attention_state slot(const struct attention_job *j, int index) {
    int32_t head_dim = j->task.kv->head_dim;
    float *at = (float *)j->cpu->shared.data + (size_t)index * state_floats(head_dim);
    return (struct attention_state){at, at + ATTENTION_ROWS, at + ATTENTION_ROWS * (1 + SUM_LANES)};
}

static void run_split(void *ctx, int index, int worker) {
    const struct attention_job *j = ctx;
    struct attention_state s = slot(j, index + 1);
    int64_t begin = (j->first_split + index) * ATTENTION_SPLIT;
    j->cpu->kernels->attention_split(&j->task, &j->tile, begin, begin + ATTENTION_SPLIT, &s,
                                     j->cpu->scratch[worker].data);
}

static int64_t last_position(const struct attention_job *j, const struct attention_tile *tile) {
    return j->task.b->positions[tile->seq->first_row + tile->token + tile->n_tokens - 1];
}

// The first position past the sinks that some row of the tile sees.
static int64_t first_position(const struct attention_job *j, const struct attention_tile *tile) {
    const struct batch_seq *seq = tile->seq;
    return kv_visible(j->task.b->positions[seq->first_row + tile->token], seq->memory_len,
                      seq->sink_len, j->task.args->window)
        .first;
}

static void split_wave(struct attention_job *j, struct attention_state *total, int64_t first,
                       int n) {
    j->first_split = first;
    threads_for(j->cpu->threads, n, run_split, j);
    for (int i = 0; i < n; i++) {
        struct attention_state s = slot(j, i + 1);
        j->cpu->kernels->attention_merge(total, &s, j->tile.n_tokens * j->tile.n_heads,
                                         j->task.kv->head_dim);
    }
}

// Waves of as many splits as there are slots, merged in ascending order. Splits between the sinks
// and the window are skipped, as in a tile's own loop.
static void run_tile_by_splits(struct attention_job *j, struct attention_tile tile) {
    j->tile = tile;
    struct attention_state total = slot(j, 0);
    int32_t rows = tile.n_tokens * tile.n_heads;
    for (int32_t r = 0; r < rows; r++) total.m[r] = -INFINITY;
    memset(total.l, 0, (size_t)rows * SUM_LANES * sizeof(float));
    memset(total.o, 0,
           (state_floats(j->task.kv->head_dim) - ATTENTION_ROWS * (1 + SUM_LANES)) * sizeof(float));
    int64_t sink_splits = (tile.seq->sink_len + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
    int64_t window_split = first_position(j, &tile) / ATTENTION_SPLIT;
    int64_t end = last_position(j, &tile) / ATTENTION_SPLIT + 1;
    for (int64_t at = 0; at < end;) {
        if (at >= sink_splits && at < window_split) at = window_split;
        int64_t stop = at < sink_splits && sink_splits < window_split ? sink_splits : end;
        int n = (int)(stop - at < split_slots(j->cpu) ? stop - at : split_slots(j->cpu));
        split_wave(j, &total, at, n);
        at += n;
    }
    j->cpu->kernels->attention_finish(&j->task, &j->tile, &total);
}

// Splits pay if there are too few tiles to keep the workers busy and the context is long.
static bool wants_splits(const struct attention_job *j) {
    if (j->n_items >= 2 * threads_count(j->cpu->threads) || threads_count(j->cpu->threads) == 1)
        return false;
    for (int32_t i = 0; i < j->n_items; i++) {
        struct attention_tile tile = item_tile(j, i);
        if (last_position(j, &tile) - first_position(j, &tile) >= 2 * ATTENTION_SPLIT) return true;
    }
    return false;
}

static int check(const struct kv_store *kv, const struct batch *b, const struct attention_args *a) {
    if (a->n_kv_heads < 1 || a->n_heads % a->n_kv_heads || a->n_kv_heads != kv->n_kv_heads ||
        a->head_dim != kv->head_dim || a->layer < 0 || a->layer >= kv->n_layers)
        return E_INVAL;
    for (int32_t i = 0; i < b->n_seqs; i++)
        if (b->seqs[i].maps[kv->group].block_tokens != kv->block_tokens) return E_INVAL;
    return 0;
}

int cpu_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                  const struct batch *b, const struct attention_args *args) {
    TRY(check(kv, b, args));
    struct attention_job j = {
        .task = {.args = args,
                 .qkv = qkv,
                 .qkv_stride = (int64_t)(args->n_heads + (args->q_only ? 0
                                                          : kv->latent ? 1
                                                                       : 2) *
                                                             args->n_kv_heads) *
                               args->head_dim,
                 .out = out,
                 .kv = kv,
                 .b = b},
        .cpu = cpu_of(be),
        .group = args->n_heads / args->n_kv_heads};
    j.n_chunks = ceil_div(j.group, ATTENTION_ROWS);
    j.tile_tokens = ATTENTION_ROWS / ceil_div(j.group, j.n_chunks);
    for (int32_t i = 0; i < b->n_seqs; i++) j.n_items += seq_items(&j, &b->seqs[i]);
    if (wants_splits(&j)) {
        for (int32_t i = 0; i < j.n_items; i++) {
            struct attention_tile tile = item_tile(&j, i);
            if (tile.n_heads > 0) run_tile_by_splits(&j, tile);
        }
    } else {
        threads_for(j.cpu->threads, j.n_items, run_tile, &j);
    }
    return 0;
}

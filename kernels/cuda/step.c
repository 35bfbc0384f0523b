// See step.h.
#include "kernels/cuda/step.h"

#include "base/log.h"
#include "kernels/cuda/backend_cuda.h"
#include <stdlib.h>
#include <string.h>

// Attention's grid grows with the power of two, so short contexts share the smallest.
enum { LEAST_MAX_POSITION = 256 };

// --- the description's layout --------------------------------------------------------------------

struct layout { // offsets of the arrays, in bytes
    size_t slot, ids, positions, row_seq, short_rope, logit_rows, decode_rows, tiles, seqs, draws,
        maps, end;
};

static size_t take(size_t *at, size_t bytes) {
    size_t here = *at;
    *at = (here + bytes + 15) & ~(size_t)15;
    return here;
}

static struct layout layout_of(const struct cuda_step *s) {
    struct layout l;
    size_t at = 0, rows = (size_t)s->max_rows * sizeof(int32_t);
    size_t tiles = (size_t)s->max_seqs + (size_t)s->max_rows / CUDA_TILE_ROWS;
    l.slot = take(&at, sizeof(int32_t));
    l.ids = take(&at, rows);
    l.positions = take(&at, rows);
    l.row_seq = take(&at, rows);
    l.short_rope = take(&at, rows);
    l.logit_rows = take(&at, rows);
    l.decode_rows = take(&at, rows);
    l.tiles = take(&at, tiles * sizeof(struct cuda_tile));
    l.seqs = take(&at, (size_t)s->n_groups * (size_t)s->max_seqs * sizeof(struct cuda_seq));
    l.draws = take(&at, (size_t)s->max_seqs * sizeof(struct batch_draw));
    l.maps = take(&at, (size_t)s->max_map * sizeof(int32_t));
    l.end = at;
    return l;
}

static void point(struct cuda_step *s) {
    struct layout l = layout_of(s);
    s->draws = (const struct batch_draw *)(s->device + l.draws);
    s->b = (struct cuda_batch){
        .ids = (const int32_t *)(s->device + l.ids),
        .positions = (const int32_t *)(s->device + l.positions),
        .row_seq = (const int32_t *)(s->device + l.row_seq),
        .short_rope = (const int32_t *)(s->device + l.short_rope),
        .logit_rows = (const int32_t *)(s->device + l.logit_rows),
        .seqs = (const struct cuda_seq *)(s->device + l.seqs),
        .maps = (const int32_t *)(s->device + l.maps),
        .decode_rows = (const int32_t *)(s->device + l.decode_rows),
        .tiles = (const struct cuda_tile *)(s->device + l.tiles),
    };
}

// --- room ----------------------------------------------------------------------------------------

void cuda_step_forget_graphs(struct cuda_step *s) {
    for (int32_t i = 0; i < s->n_graphs; i++)
        if (s->table[i].exec) cudaGraphExecDestroy(s->table[i].exec);
    s->n_graphs = 0;
}

static void free_room(struct cuda_step *s) {
    cuda_step_forget_graphs(s);
    free(s->table);
    cudaFree(s->device);
    for (int i = 0; i < CUDA_STEP_SLOTS; i++) {
        if (s->pinned[i]) cudaFreeHost(s->pinned[i]);
        if (s->copied[i]) cudaEventDestroy(s->copied[i]);
    }
}

void cuda_step_release(struct cuda_backend *cuda) {
    bool graphs = cuda->step.graphs;
    free_room(&cuda->step);
    cuda->step = (struct cuda_step){.graphs = graphs};
}

static int take_room(struct cuda_step *s, struct err *err) {
    s->bytes = layout_of(s).end;
    s->table = calloc(CUDA_MAX_GRAPHS, sizeof *s->table);
    if (!s->table) return err_set(err, E_NOMEM, "no memory for the table of recorded steps");
    TRY(cuda_alloc((void **)&s->device, s->bytes, err));
    for (int i = 0; i < CUDA_STEP_SLOTS; i++) {
        if (cudaHostAlloc((void **)&s->pinned[i], s->bytes, cudaHostAllocDefault) != cudaSuccess) {
            (void)cudaGetLastError(); // clears the error: the device still works
            return err_set(err, E_NOMEM, "no pinned memory for %zu bytes", s->bytes);
        }
        CUDA_TRY(cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming));
    }
    point(s);
    return 0;
}

int cuda_step_reserve(struct cuda_backend *cuda, int32_t max_rows, int32_t max_seqs,
                      int64_t max_map, int32_t n_groups, struct err *err) {
    struct cuda_step s = {.max_rows = max_rows,
                          .max_seqs = max_seqs,
                          .max_map = max_map,
                          .n_groups = n_groups > 0 ? n_groups : 1,
                          .slot = cuda->step.slot, // its step's draws may not have been read
                          .graphs = cuda->step.graphs};
    TRY(cuda_wait(cuda, "the last step"));
    int rc = take_room(&s, err);
    if (rc < 0) {
        free_room(&s);
        return rc;
    }
    cuda_step_release(cuda);
    cuda->step = s;
    cuda->drawn.slot = (const int32_t *)(s.device + layout_of(&s).slot);
    return 0;
}

// --- writing a description -----------------------------------------------------------------------

// Entries of a sequence's map that its rows can look up. Until the ring wraps, slots are used in
// order, so the slots after the last row's are unused.
static int64_t used_map(const struct batch_seq *q, const struct kv_map *map,
                        const int32_t *positions) {
    int64_t all = (int64_t)map->n_sink_blocks + map->n_ring_blocks;
    int64_t reach = positions[q->first_row + q->n_rows - 1] / map->block_tokens + 1;
    return reach < all ? reach : all;
}

static int64_t map_entries(const struct batch *b, int32_t n_groups) {
    int64_t n = 0;
    for (int32_t i = 0; i < b->n_seqs; i++)
        for (int32_t g = 0; g < n_groups; g++)
            n += used_map(&b->seqs[i], &b->seqs[i].maps[g], b->positions);
    return n;
}

static int32_t add_tiles(struct cuda_tile *tiles, int32_t n, const struct batch_seq *q,
                         int32_t seq) {
    for (int32_t r = 0; r < q->n_rows; r += CUDA_TILE_ROWS) {
        int32_t rest = q->n_rows - r;
        tiles[n++] = (struct cuda_tile){seq, q->first_row + r,
                                        rest < CUDA_TILE_ROWS ? rest : CUDA_TILE_ROWS, 0};
    }
    return n;
}

// Writes the description to `to` and returns its length in bytes. Rows [b->n_rows, width) are
// padding.
static size_t describe(struct cuda_step *s, char *to, const struct batch *b, int32_t width) {
    struct layout l = layout_of(s);
    size_t rows = (size_t)b->n_rows * sizeof(int32_t);
    int32_t *ids = (int32_t *)(to + l.ids), *positions = (int32_t *)(to + l.positions);
    int32_t *row_seq = (int32_t *)(to + l.row_seq), *short_rope = (int32_t *)(to + l.short_rope);
    int32_t *decode = (int32_t *)(to + l.decode_rows);
    int32_t *logit_rows = (int32_t *)(to + l.logit_rows), *maps = (int32_t *)(to + l.maps);
    struct cuda_seq *seqs = (struct cuda_seq *)(to + l.seqs);
    struct cuda_tile *tiles = (struct cuda_tile *)(to + l.tiles);
    *(int32_t *)(to + l.slot) = s->slot;
    if (b->ids) memcpy(ids, b->ids, rows);
    memcpy(positions, b->positions, rows);
    if (b->n_logits) memcpy(logit_rows, b->logit_rows, (size_t)b->n_logits * sizeof(int32_t));
    memset(to + l.draws, 0, (size_t)s->max_seqs * sizeof(struct batch_draw)); // DRAW_NONE
    if (b->draws) memcpy(to + l.draws, b->draws, (size_t)b->n_logits * sizeof *b->draws);
    int32_t at = 0;
    s->n_decode = s->n_tiles = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct batch_seq *q = &b->seqs[i];
        for (int32_t g = 0; g < s->n_groups; g++) {
            const struct kv_map *map = &q->maps[g];
            int32_t n = (int32_t)used_map(q, map, b->positions);
            seqs[g * s->max_seqs + i] = (struct cuda_seq){
                q->first_row,       q->n_rows,          q->memory_len,     q->sink_len,
                map->n_sink_blocks, map->n_ring_blocks, map->block_tokens, at};
            memcpy(maps + at, map->blocks, (size_t)n * sizeof *maps);
            at += n;
        }
        for (int32_t r = q->first_row; r < q->first_row + q->n_rows; r++) {
            row_seq[r] = i;
            short_rope[r] = q->short_rope;
        }
        if (q->n_rows == 1)
            decode[s->n_decode++] = q->first_row;
        else
            s->n_tiles = add_tiles(tiles, s->n_tiles, q, i);
    }
    for (int32_t r = b->n_rows; r < width; r++) {
        ids[r] = positions[r] = short_rope[r] = 0;
        row_seq[r] = decode[s->n_decode++] = -1;
        logit_rows[r] = r;
    }
    return l.maps + (size_t)at * sizeof(int32_t);
}

static int upload(struct cuda_backend *cuda, const struct batch *b, int32_t width) {
    struct cuda_step *s = &cuda->step;
    s->slot = (s->slot + 1) % CUDA_STEP_SLOTS;
    TRY(cuda_wait_event(cuda, s->copied[s->slot],
                        "a step's copy")); // this slot's last copy, two steps ago
    size_t bytes = describe(s, s->pinned[s->slot], b, width);
    CUDA_TRY(cudaMemcpyAsync(s->device, s->pinned[s->slot], bytes, cudaMemcpyHostToDevice,
                             cuda->stream));
    return cuda_check(cudaEventRecord(s->copied[s->slot], cuda->stream), "cudaEventRecord");
}

// --- recorded widths -----------------------------------------------------------------------------

// A step of few rows is bound by reads, so padding rows cost little; a graph for each width would
// cost much.
static int32_t width_for(const struct cuda_step *s, const struct batch *b) {
    static const int32_t widths[] = {1,  2,  3,  4,  6,  8,  10,  12,  14,  16,  20,  24, 32,
                                     40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256};
    if (!s->graphs || b->n_rows != b->n_seqs || b->n_logits != b->n_rows) return 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int32_t w = widths[i] < s->max_seqs ? widths[i] : s->max_seqs;
        if (w >= b->n_rows) return w;
        if (w == s->max_seqs) return 0;
    }
    return 0;
}

static struct cuda_graph *find_graph(struct cuda_step *s, int32_t width) {
    for (int32_t i = 0; i < s->n_graphs; i++)
        if (s->table[i].width == width && s->table[i].max_position == s->max_position)
            return &s->table[i];
    if (s->n_graphs == CUDA_MAX_GRAPHS) return NULL;
    struct cuda_graph *g = &s->table[s->n_graphs++];
    *g = (struct cuda_graph){.width = width, .max_position = s->max_position};
    return g;
}

static int32_t position_bound(const struct batch *b) {
    int64_t bound = LEAST_MAX_POSITION;
    for (int32_t i = 0; i < b->n_rows; i++)
        while (bound <= b->positions[i]) bound *= 2;
    return bound < INT32_MAX ? (int32_t)bound : INT32_MAX;
}

static int check_batch(const struct cuda_step *s, const struct batch *b) {
    if (b->draws && b->n_logits > s->max_seqs && b->n_logits > b->n_seqs) return E_INVAL; // no room
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct batch_seq *q = &b->seqs[i];
        for (int32_t r = q->first_row; r < q->first_row + q->n_rows; r++)
            for (int32_t g = 0; g < s->n_groups; g++)
                if (b->positions[r] < 0 ||
                    q->maps[g].blocks[kv_map_slot(&q->maps[g], b->positions[r])] < 0)
                    return E_INVAL;
    }
    return 0;
}

static int make_room(struct cuda_backend *cuda, const struct batch *b) {
    struct cuda_step *s = &cuda->step;
    int64_t map = map_entries(b, s->n_groups);
    if (b->n_rows <= s->max_rows && b->n_seqs <= s->max_seqs && map <= s->max_map) return 0;
    struct err err = {0};
    int rc = cuda_step_reserve(cuda, b->n_rows > s->max_rows ? b->n_rows : s->max_rows,
                               b->n_seqs > s->max_seqs ? b->n_seqs : s->max_seqs,
                               map > s->max_map ? 2 * map : s->max_map, s->n_groups, &err);
    char why[300];
    if (rc < 0) log_error("cuda.step_room", "why=%s", log_quote(why, sizeof why, err.text));
    return rc;
}

int cuda_step_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_step *s = &cuda->step;
    CUDA_TRY(cudaSetDevice(cuda->device)); // per thread, and this may be the thread's first call
    if (s->n_groups == 0) s->n_groups = 1; // no step was reserved
    TRY(check_batch(s, b));
    if (b->follows) {
        CUDA_TRY(cudaEventRecord(cuda->drawn_before, cuda->stream));
        cuda_idle_step_ends(cuda);
    }
    TRY(make_room(cuda, b));
    // A recorded step is whole, and has no loads and no rows from the host.
    int32_t width = b->load || b->n_virtual || b->is_part ? 0 : width_for(s, b);
    s->recording = NULL;
    s->max_position = position_bound(b);
    cuda_idle_step_begins(cuda);
    TRY(upload(cuda, b, width ? width : b->n_rows));
    s->padded = *b;
    if (width) s->padded.n_rows = s->padded.n_logits = width;
    *run = &s->padded;
    if (b->load) return cuda_kv_load_begin(cuda, b->load);
    struct cuda_graph *g = width ? find_graph(s, width) : NULL;
    if (!g) return 0;
    if (g->exec) {
        CUDA_TRY(cudaGraphLaunch(g->exec, cuda->stream));
        return STEP_REPLAYED;
    }
    if (++g->n_seen < 2) return 0;
    CUDA_TRY(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeRelaxed));
    s->recording = g;
    return 0;
}

int cuda_step_launch(struct backend *be) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_step *s = &cuda->step;
    const int waited = cuda->chain.rc;
    cuda->chain.rc = 0;
    if (waited < 0) return waited;
    if (!s->recording) return 0;
    cudaGraph_t graph;
    struct cuda_graph *g = s->recording;
    s->recording = NULL;
    CUDA_TRY(cudaStreamEndCapture(cuda->stream, &graph));
    cudaError_t rc = cudaGraphInstantiate(&g->exec, graph, 0);
    cudaGraphDestroy(graph);
    if (rc != cudaSuccess) g->exec = NULL;
    CUDA_TRY(rc);
    return cuda_check(cudaGraphLaunch(g->exec, cuda->stream), "cudaGraphLaunch");
}

// Ends the recording that a step leaves open if it fails between begin and launch.
int cuda_step_end(struct backend *be) {
    struct cuda_backend *cuda = cuda_of(be);
    cuda_kv_load_end(cuda);
    if (!cuda->step.recording) return 0;
    cudaGraph_t graph = NULL;
    cuda->step.recording = NULL;
    cudaStreamEndCapture(cuda->stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    return 0;
}

void cuda_graphs_set(struct backend *be, bool on) {
    cuda_of(be)->step.graphs = on;
}

// Draws tokens where the logits are, as engine/run/sampler.c does for a turn without penalties,
// bias, bans and alternatives, for every row of a step, in one kernel. A row is drawn by up to
// eight blocks, a cluster, each of which looks at its share of the ids:
//
//   the greatest logit and its lowest id, the least finite logit
//   sums of e^(logit - max) over runs of 1,024 ids, in the host's order
//   greedy: done. Otherwise the nucleus (draw_nucleus.cuh)
//   by the first block: the token, the log of the sum
//
// A draw that changes the logits (cuda_draw_adjusted) begins with another kernel:
//
//   adjust     grid (PARTS, rows)   each part's extremes; the changed logits into memory, their extremes
//
// and the token is then drawn from the changed logits.
//
// The float operations and their order are the sampler's, so the log-probability has the same bits,
// for any number of blocks.
//
// Bound by latency: a row of 128k logits is half a megabyte in L2, which is read two to five times.
// So a thread has 16 loads under way at a time. A row that this kernel does not cover (a NaN, a
// bucket with more tokens than fit) gets id -1, and the host draws.
#include "kernels/cuda/draw_nucleus.cuh"
#include "kernels/cuda/hopper.cuh"

namespace {

constexpr int PARTS = 32, RUN = 1024;

struct extreme {
    float max, min; // -inf, +inf where there is none
    int32_t id;     // the lowest with max
    int32_t broken; // a NaN or +inf
};

struct rows {
    const float *logits; // (.., vocab)
    int32_t vocab, n_runs;
    struct extreme *parts; // (n, PARTS)
    float *run_sums;       // (n, n_runs)
    const struct batch_draw *draws;
    struct cuda_drawn to;
    // Of draws that change the logits first, else NULL; draws is NULL then.
    const struct cuda_adjusted *adjusted; // (n)
    struct extreme *changed_parts;        // (n, PARTS)
    float *changed;                       // (n, vocab)
    int32_t slice;                        // ids of a part
};

// Row i of the launch: its row of the step, and its draw.
__device__ int32_t step_row(const struct rows &a, int i) {
    return a.adjusted ? a.adjusted[i].row : i;
}
__device__ const struct batch_draw &draw_of(const struct rows &a, int i) {
    return a.adjusted ? a.adjusted[i].draw : a.draws[i];
}

__device__ void put(const struct rows &a, int i, const struct batch_drawn &drawn) {
    const int32_t row = step_row(a, i);
    a.to.ids[row] = drawn.id;
    a.to.host[*a.to.slot * a.to.max + row] = drawn;
}

__device__ void merge(struct extreme &a, const struct extreme &b) {
    if (b.max > a.max || (b.max == a.max && b.id < a.id)) {
        a.max = b.max;
        a.id = b.id;
    }
    a.min = fminf(a.min, b.min);
    a.broken |= b.broken;
}

__device__ struct extreme nothing() {
    return {-INFINITY, INFINITY, INT32_MAX, 0};
}

__device__ struct extreme warp_merge(struct extreme e) {
    for (int step = 16; step > 0; step >>= 1) {
        struct extreme o = {__shfl_xor_sync(~0u, e.max, step), __shfl_xor_sync(~0u, e.min, step),
                            __shfl_xor_sync(~0u, e.id, step), __shfl_xor_sync(~0u, e.broken, step)};
        merge(e, o);
    }
    return e;
}

// The whole row's, in every thread of a warp.
__device__ struct extreme row_extreme(const struct extreme *parts, int row) {
    int lane = threadIdx.x % 32;
    return warp_merge(lane < PARTS ? parts[row * PARTS + lane] : nothing());
}

// Ids ascend from call to call of a thread: of equals the first stays.
__device__ void look_at(struct extreme &e, float v, int32_t id) {
    if (!(v < INFINITY)) e.broken = 1;
    if (v > e.max) e.max = v, e.id = id;
    if (v < e.min && v > -INFINITY) e.min = v;
}

// The block's, in thread 0. warps (blockDim.x / 32) is free before and afterwards.
__device__ struct extreme block_merge(struct extreme e, struct extreme *warps) {
    e = warp_merge(e);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = e;
    __syncthreads();
    if (threadIdx.x < 32)
        e = warp_merge(threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : nothing());
    __syncthreads();
    return e;
}

// --- changed logits ------------------------------------------------------------------------------

__device__ float penalized(const struct cuda_adjusted &c, float l, uint32_t count) {
    l = l < 0 ? __fmul_rn(l, c.repetition) : __fdiv_rn(l, c.repetition);
    if (count == 0) return l;
    return __fsub_rn(__fsub_rn(l, c.presence), __fmul_rn(c.frequency, (float)count));
}

// A block changes a slice of a row in shared memory. Every block looks at all of a row's penalties and
// biases; they are few, and L2 has them.
// A token's biases in their order: the thread of the first one adds them all.
__device__ void add_biases(const struct cuda_adjusted &c, int32_t i, float *logit) {
    int32_t id = c.biases[i].id;
    for (int32_t k = 0; k < i; k++)
        if (c.biases[k].id == id) return;
    for (int32_t k = i; k < c.n_biases; k++)
        if (c.biases[k].id == id) *logit = __fadd_rn(*logit, c.biases[k].bias);
}

__global__ void adjust_kernel(const __grid_constant__ struct rows a) {
    extern __shared__ float x[]; // (slice)
    __shared__ struct extreme warps[8];
    pdl_trigger();
    pdl_wait();
    const struct cuda_adjusted &c = a.adjusted[blockIdx.y];
    int32_t first = blockIdx.x * a.slice, n = min(a.slice, a.vocab - first);
    const float *logits = a.logits + (int64_t)c.row * a.vocab + first;
    struct extreme own = nothing(), changed = nothing();
#pragma unroll 8
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] = logits[i];
        look_at(own, x[i], first + i);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < c.n_penalties; i += blockDim.x) { // their ids are distinct
        struct batch_penalty p = c.penalties[i];
        if (p.id >= first && p.id < first + n)
            x[p.id - first] = penalized(c, x[p.id - first], p.count);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < c.n_biases; i += blockDim.x) {
        struct batch_bias b = c.biases[i];
        if (b.id < first || b.id >= first + n) continue;
        if (c.biases_distinct)
            x[b.id - first] = __fadd_rn(x[b.id - first], b.bias);
        else
            add_biases(c, i, &x[b.id - first]);
    }
    __syncthreads();
    float *out = a.changed + (int64_t)blockIdx.y * a.vocab + first;
#pragma unroll 8
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x) {
        int32_t id = first + i;
        bool allowed = !c.allowed || c.allowed[id / 64] >> id % 64 & 1;
        float v = allowed ? x[i] : -INFINITY;
        look_at(changed, v, id);
        out[i] = v;
    }
    own = block_merge(own, warps);
    changed = block_merge(changed, warps);
    if (threadIdx.x > 0) return;
    a.parts[blockIdx.y * PARTS + blockIdx.x] = own;
    a.changed_parts[blockIdx.y * PARTS + blockIdx.x] = changed;
}

// --- a row ---------------------------------------------------------------------------------------

// The row's extremes, in every thread of its blocks. parts: (SHARES_MOST) in shared memory.
__device__ struct extreme extremes_of(const struct rows &a, int row, const struct shares &of,
                                      struct extreme *warps, struct extreme *parts) {
    const float *x = a.logits + (int64_t)step_row(a, row) * a.vocab;
    struct extreme e = nothing();
    each_id(x, a.vocab, of, [&](float v, int32_t id) { look_at(e, v, id); });
    e = block_merge(e, warps);
    if ((int)threadIdx.x < of.n) *in_block(parts + of.rank, (int)threadIdx.x) = e;
    row_sync(of);
    return warp_merge((int)threadIdx.x % 32 < of.n ? parts[threadIdx.x % 32] : nothing());
}

// Half a warp adds a run: lane i takes ids i, i + 16, ...; then pairs as the host's vectors do.
__device__ void sum_runs(const struct rows &a, int row, const struct shares &of, float max) {
    const float *x = a.logits + (int64_t)step_row(a, row) * a.vocab;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 16;
    // The warp's runs lie beside each other.
    for (int pair = warp * of.n + of.rank; 2 * pair < a.n_runs; pair += THREADS / 32 * of.n) {
        const int run = 2 * pair + (int)threadIdx.x / 16 % 2;
        float sum = 0.0f;
        for (int32_t j = 0; j < RUN; j += 16 * AHEAD) {
            float v[AHEAD];
            int32_t i = run * RUN + j + lane;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) v[k] = i + 16 * k < a.vocab ? x[i + 16 * k] : -INFINITY;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) // past the end there is -inf, whose weight 0 is added
                sum = __fadd_rn(sum, exp_nonpositive(__fsub_rn(v[k], max)));
        }
        // Lane 4 k + e is element e of vector k: (v0 + v1) + (v2 + v3), then (s0 + s1) + (s2 + s3).
        for (int step = 4; step <= 8; step *= 2)
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
        for (int step = 1; step <= 2; step *= 2)
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
        if (lane == 0 && run < a.n_runs) a.run_sums[row * a.n_runs + run] = sum;
    }
}

// The sum of all runs, in thread 0, one after the other. here: (THREADS) in shared memory.
__device__ double sum_of_runs(const float *runs, int n, float *here) {
    double sum = 0;
    for (int first = 0; first < n; first += THREADS) {
        const int n_here = min(THREADS, n - first);
        __syncthreads();
        if ((int)threadIdx.x < n_here) here[threadIdx.x] = runs[first + threadIdx.x];
        __syncthreads();
        if (threadIdx.x > 0) continue;
#pragma unroll 8
        for (int i = 0; i < n_here; i++) sum += (double)here[i];
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS, 1) draw_kernel(const __grid_constant__ struct rows a) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ struct extreme warps[THREADS / 32], parts[SHARES_MOST];
    __shared__ float runs[THREADS];
    struct nucleus &u = *(struct nucleus *)shared;
    const int row = (int)blockIdx.y;
    const struct shares of = {(int)blockIdx.x, (int)gridDim.x};
    pdl_trigger();
    row_sync(of); // a block writes into another only when that has started
    pdl_wait();
    const struct batch_draw d = draw_of(a, row);
    if (d.kind == DRAW_NONE) { // for all blocks of the row
        if (of.rank == 0 && threadIdx.x == 0) put(a, row, {-1, 0.0f});
        return;
    }
    const struct extreme own =
        a.adjusted ? row_extreme(a.parts, row) : extremes_of(a, row, of, warps, parts);
    const struct extreme e = a.adjusted ? row_extreme(a.changed_parts, row) : own;
    const bool drawn = !own.broken && own.max > -INFINITY && !e.broken && e.max > -INFINITY;
    const float *logits = a.logits + (int64_t)step_row(a, row) * a.vocab;
    const struct choice c = {a.adjusted ? a.changed + (int64_t)row * a.vocab : logits, a.vocab,
                             scale_of(e.max, e.min, d), of};
    const bool samples = drawn && d.kind != DRAW_GREEDY;
    sum_runs(a, row, of, own.max);
    if (samples) fill_own(u, c);
    row_sync(of);
    if (samples) gather_buckets(u, of);
    if (of.rank > 0) {
        if (samples) follow(u, c);
        return;
    }
    int32_t id = drawn ? e.id : -1;
    if (samples) id = lead(u, c, d);
    double sum = sum_of_runs(a.run_sums + row * a.n_runs, a.n_runs, runs);
    if (threadIdx.x > 0) return;
    struct batch_drawn out = {id, 0.0f};
    if (id >= 0) out.logprob = (float)((double)logits[id] - (double)own.max - log(sum));
    put(a, row, out);
}

// --- launching -----------------------------------------------------------------------------------

// Blocks for each of n rows: as many as the chip has room for at once.
int shares_for(int32_t n) {
    const struct cuda_device d = cuda_current_device();
    int shares = 1;
    while (d.major >= 9 && shares < SHARES_MOST && 2 * shares * n <= d.multiprocessors) shares *= 2;
    return shares;
}

void launch_draw(const struct rows &a, int32_t n, cudaStream_t stream) {
    const int shares = shares_for(n);
    const dim3 grid((unsigned)shares, (unsigned)n), block(THREADS);
    cuda_allow_shared((const void *)draw_kernel, sizeof(struct nucleus));
    if (shares > 1)
        pdl_launch_cluster(draw_kernel, grid, block, sizeof(struct nucleus), (unsigned)shares,
                           stream, a);
    else
        pdl_launch(draw_kernel, grid, block, sizeof(struct nucleus), stream, a);
}

int32_t runs_of(int32_t vocab) {
    return (vocab + RUN - 1) / RUN;
}

// A whole number of words of `allowed` and of warps' loads.
int32_t slice_of(int32_t vocab) {
    int32_t n = (vocab + PARTS - 1) / PARTS;
    return (n + 255) / 256 * 256;
}

} // namespace

size_t cuda_draw_work_bytes(int32_t max_rows, int32_t vocab) {
    return (size_t)max_rows * (size_t)runs_of(vocab) * sizeof(float);
}

size_t cuda_draw_adjusted_work_bytes(int32_t vocab) {
    return CUDA_ADJUSTED_ROWS *
           (2 * PARTS * sizeof(struct extreme) + (size_t)(runs_of(vocab) + vocab) * sizeof(float));
}

int cuda_draw(const struct cuda_drawn *to, const float *logits, const struct batch_draw *draws,
              int32_t n, int32_t vocab, void *work, cudaStream_t stream) {
    struct rows a = {};
    if (n == 0) return 0;
    a.logits = logits;
    a.vocab = vocab;
    a.n_runs = runs_of(vocab);
    a.draws = draws;
    a.to = *to;
    a.run_sums = (float *)work;
    launch_draw(a, n, stream);
    return cuda_launched("draw");
}

// The changed rows need memory, so a few rows at a time.
int cuda_draw_adjusted(const struct cuda_drawn *to, const float *logits,
                       const struct cuda_adjusted *rows, int32_t n, int32_t vocab, void *work,
                       cudaStream_t stream) {
    struct rows a = {};
    a.logits = logits;
    a.vocab = vocab;
    a.n_runs = runs_of(vocab);
    a.slice = slice_of(vocab);
    a.to = *to;
    a.parts = (struct extreme *)work;
    a.changed_parts = a.parts + CUDA_ADJUSTED_ROWS * PARTS;
    a.run_sums = (float *)(a.changed_parts + CUDA_ADJUSTED_ROWS * PARTS);
    a.changed = a.run_sums + (size_t)CUDA_ADJUSTED_ROWS * (size_t)a.n_runs;
    for (int32_t first = 0; first < n; first += CUDA_ADJUSTED_ROWS) {
        int32_t n_rows = n - first < CUDA_ADJUSTED_ROWS ? n - first : CUDA_ADJUSTED_ROWS;
        a.adjusted = rows + first;
        // Not pdl_launch: before it are a recorded step and the wait for the copy of `rows`.
        adjust_kernel<<<dim3(PARTS, (unsigned)n_rows), 256, (size_t)a.slice * sizeof(float),
                        stream>>>(a);
        launch_draw(a, n_rows, stream);
    }
    return cuda_launched("draw_adjusted");
}

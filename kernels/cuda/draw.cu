// Draws tokens where the logits are, as engine/run/sampler.c does for a turn without penalties,
// bias, bans and alternatives, for every row of a step. Three kernels:
//
//   extremes   grid (PARTS, rows)   each part's greatest logit and its lowest id, its least finite
//                                   logit
//   run_sums   grid (.., rows)      sums of e^(logit - max) over runs of 1,024 ids, in the host's
//                                   order
//   pick       a block for a row    log of the sum; greedy: done. Otherwise the nucleus: see below
//
// A draw that changes the logits (cuda_draw_adjusted) begins with another kernel instead of the first:
//
//   adjust     grid (PARTS, rows)   each part's extremes; the changed logits into memory, their extremes
//
// and `pick` draws from the changed logits.
//
// The float operations and their order are the sampler's, so the log-probability has the same bits.
// The nucleus (engine/run/nucleus.h has the idea: buckets of equal depth below the best logit, only
// the bucket where a prefix ends is sorted) adds up weights as integers of 2^-45, which no order
// can change; the host adds doubles. Both agree to some 1e-13 of the mass, and a draw has 24 bits.
//
// Bytes: the row's logits twice, four to six times when sampled, from L2. A row that this kernel
// does not cover (a NaN, a bucket with more tokens than fit) gets id -1, and the host draws.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"
#include <float.h>

namespace {

constexpr int PARTS = 32, AHEAD = 16, RUN = 1024, THREADS = 1024, BUCKETS = 2048, MEMBERS = 2048;
constexpr float DEPTH = 40.0f;             // NUCLEUS_DEPTH
constexpr double FIXED = 35184372088832.0; // 2^45: 2^18 tokens of weight 1 stay below 2^64

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
    struct batch_drawn *out;
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

// engine/run/lanes.h's exponential: the same operations, none contracted.
__device__ float exp_nonpositive(float x) {
    const float to_integer = 12582912.0f;
    float shifted = __fadd_rn(__fmul_rn(x, 1.44269504f), to_integer);
    float n = __fsub_rn(shifted, to_integer);
    float r = __fsub_rn(x, __fmul_rn(n, 0.693359375f));
    r = __fsub_rn(r, __fmul_rn(n, -2.12194440e-4f));
    float y = 1.0f / 5040;
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 720);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 120);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 24);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 6);
    y = __fadd_rn(__fmul_rn(y, r), 0.5f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    uint32_t exponent = (__float_as_uint(shifted) - __float_as_uint(to_integer) + 127u) << 23;
    return x < -87.0f ? 0.0f : __fmul_rn(y, __uint_as_float(exponent));
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

__global__ void extremes_kernel(const __grid_constant__ struct rows a) {
    __shared__ struct extreme warps[8];
    pdl_trigger();
    pdl_wait();
    int row = blockIdx.y;
    if (a.draws[row].kind == DRAW_NONE) return;
    const float *x = a.logits + (int64_t)row * a.vocab;
    struct extreme e = nothing();
    int32_t step = PARTS * blockDim.x;
    for (int32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.vocab; i += AHEAD * step) {
        float v[AHEAD]; // latency is all that this costs: many loads at once
#pragma unroll
        for (int j = 0; j < AHEAD; j++) v[j] = i + j * step < a.vocab ? x[i + j * step] : -INFINITY;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) look_at(e, v[j], i + j * step);
    }
    e = block_merge(e, warps);
    if (threadIdx.x == 0) a.parts[row * PARTS + blockIdx.x] = e;
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

// Half a warp adds a run: lane i takes ids i, i + 16, ...; then pairs as the host's vectors do.
__global__ void run_sums_kernel(const __grid_constant__ struct rows a) {
    pdl_trigger();
    pdl_wait();
    int row = blockIdx.y, run = (blockIdx.x * blockDim.x + threadIdx.x) / 16,
        lane = threadIdx.x % 16;
    if (draw_of(a, row).kind == DRAW_NONE) return;
    float max = row_extreme(a.parts, row).max, sum = 0.0f;
    const float *x = a.logits + (int64_t)step_row(a, row) * a.vocab;
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
    for (int step = 4; step <= 8; step *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
    for (int step = 1; step <= 2; step *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
    if (lane == 0 && run < a.n_runs) a.run_sums[row * a.n_runs + run] = sum;
}

// --- the nucleus ---------------------------------------------------------------------------------

typedef unsigned long long mass_t; // in units of 2^-45

struct prefix { // the first tokens: all of the buckets before, and n_inside of its own
    int32_t bucket, n_inside, count;
    mass_t mass;
};

struct nucleus {                        // a block's, in shared memory
    mass_t mass[BUCKETS];               // up to and with each bucket
    int32_t count[BUCKETS];             // likewise
    mass_t member_mass[MEMBERS];        // up to and with each member
    unsigned long long member[MEMBERS]; // of one bucket in order: logit descending, id ascending
    mass_t warp_mass[32];
    int32_t warp_count[32];
    int32_t sorted, n_members, found;
    struct prefix kept;
};

struct scale {
    float max, inverse_temperature, range, slices_per_logit;
};

__device__ float weight_of(const struct scale &s, float logit) {
    return exp_nonpositive(__fmul_rn(__fsub_rn(logit, s.max), s.inverse_temperature));
}
__device__ mass_t fixed(float weight) {
    return (mass_t)((double)weight * FIXED);
}
__device__ int32_t bucket_of(const struct scale &s, float depth) {
    return (int32_t)fminf(__fmul_rn(depth, s.slices_per_logit), (float)(BUCKETS - 1));
}
__device__ mass_t mass_before(const struct nucleus &u, int32_t bucket) {
    return bucket > 0 ? u.mass[bucket - 1] : 0;
}
__device__ int32_t count_before(const struct nucleus &u, int32_t bucket) {
    return bucket > 0 ? u.count[bucket - 1] : 0;
}
__device__ int32_t kept_inside(const struct nucleus &u, int32_t bucket) {
    return bucket < u.kept.bucket ? u.count[bucket] - count_before(u, bucket) : u.kept.n_inside;
}

// values[i] becomes the sum of values[0 .. i], i < 2 THREADS; a thread owns two neighbours.
template <typename V> __device__ void scan(V *values, V *warps) {
    int t = threadIdx.x, lane = t % 32;
    V first = values[2 * t], pair = first + values[2 * t + 1], sum = pair;
    for (int step = 1; step < 32; step *= 2) {
        V up = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += up;
    }
    if (lane == 31) warps[t / 32] = sum;
    __syncthreads();
    V before = sum - pair;
    for (int w = 0; w < t / 32; w++) before += warps[w];
    values[2 * t] = before + first;
    values[2 * t + 1] = before + pair;
    __syncthreads();
}

__device__ void fill_buckets(struct nucleus &u, const struct scale &s, const float *x, int32_t n) {
    for (int i = threadIdx.x; i < BUCKETS; i += THREADS) u.mass[i] = u.count[i] = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        float depth = __fsub_rn(s.max, x[i]);
        if (depth > s.range) continue;
        int32_t b = bucket_of(s, depth);
        atomicAdd(&u.mass[b], fixed(weight_of(s, x[i])));
        atomicAdd(&u.count[b], 1);
    }
    __syncthreads();
    scan(u.mass, u.warp_mass);
    scan(u.count, u.warp_count);
    if (threadIdx.x == 0) u.sorted = -1;
    for (int i = threadIdx.x; i < BUCKETS; i += THREADS) { // the last bucket that holds a token
        int32_t all = u.count[BUCKETS - 1];
        if (u.count[i] == all && count_before(u, i) < all)
            u.kept = {i, all - count_before(u, i), all, u.mass[BUCKETS - 1]};
    }
    __syncthreads();
}

// Descending logit, then ascending id, as one number in descending order.
__device__ unsigned long long order_key(float logit, int32_t id) {
    uint32_t bits = __float_as_uint(logit);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (uint32_t)~id;
}
__device__ int32_t key_id(unsigned long long key) {
    return (int32_t) ~(uint32_t)key;
}

// Bitonic sort of `room` keys (a power of two), descending.
__device__ void sort_members(struct nucleus &u, int32_t room) {
    for (int32_t size = 2; size <= room; size *= 2)
        for (int32_t step = size / 2; step > 0; step /= 2) {
            for (int32_t i = threadIdx.x; i < room; i += THREADS) {
                int32_t j = i ^ step;
                if (j < i) continue; // the pair is i's, who may be writing it
                unsigned long long a = u.member[i], b = u.member[j];
                bool descending = (i & size) == 0;
                if ((a < b) == descending) u.member[i] = b, u.member[j] = a;
            }
            __syncthreads();
        }
}

// Puts a bucket's members in order, with their masses added up. False: there are too many.
__device__ bool collect(struct nucleus &u, const struct scale &s, const float *x, int32_t n,
                        int32_t bucket) {
    int32_t count = u.count[bucket] - count_before(u, bucket);
    if (count > MEMBERS) return false;
    if (u.sorted == bucket) return true;
    int32_t room = 2;
    while (room < count) room *= 2;
    __syncthreads(); // everybody has read u.sorted
    if (threadIdx.x == 0) u.n_members = 0, u.sorted = bucket;
    for (int i = threadIdx.x; i < MEMBERS; i += THREADS) u.member[i] = 0; // sorts after every token
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        float depth = __fsub_rn(s.max, x[i]);
        if (depth > s.range || bucket_of(s, depth) != bucket) continue;
        u.member[atomicAdd(&u.n_members, 1)] = order_key(x[i], i);
    }
    __syncthreads();
    sort_members(u, room);
    for (int i = threadIdx.x; i < MEMBERS; i += THREADS)
        u.member_mass[i] = i < count ? fixed(weight_of(s, x[key_id(u.member[i])])) : 0;
    __syncthreads();
    scan(u.member_mass, u.warp_mass);
    return true;
}

// The first index below n for which past(index), or n: past is false up to some index, then true.
template <typename F> __device__ int32_t first_past(struct nucleus &u, int32_t n, F past) {
    __syncthreads();
    if (threadIdx.x == 0) u.found = n;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += THREADS)
        if (past(i) && (i == 0 || !past(i - 1))) u.found = i;
    __syncthreads();
    return u.found;
}

__device__ bool keep_count(struct nucleus &u, const struct scale &s, const float *x, int32_t n,
                           int32_t k) {
    if (u.kept.count <= k) return true;
    int32_t b = first_past(u, BUCKETS, [&](int32_t i) { return u.count[i] >= k; });
    if (!collect(u, s, x, n, b)) return false;
    int32_t inside = k - count_before(u, b);
    __syncthreads();
    if (threadIdx.x == 0) u.kept = {b, inside, k, mass_before(u, b) + u.member_mass[inside - 1]};
    __syncthreads();
    return true;
}

// The shortest prefix of the kept tokens whose mass reaches the target, or exceeds it if `beyond`.
__device__ bool reach_mass(struct nucleus &u, const struct scale &s, const float *x, int32_t n,
                           double target, bool beyond, struct prefix *out) {
    auto enough = [&](mass_t m) { return beyond ? (double)m > target : (double)m >= target; };
    int32_t b = first_past(u, u.kept.bucket, [&](int32_t i) { return enough(u.mass[i]); });
    if (!collect(u, s, x, n, b)) return false;
    int32_t inside = kept_inside(u, b);
    mass_t before = mass_before(u, b);
    int32_t i = first_past(u, inside, [&](int32_t j) { return enough(before + u.member_mass[j]); });
    if (i == inside) i--;
    *out = {b, i + 1, count_before(u, b) + i + 1, before + u.member_mass[i]};
    return true;
}

__device__ bool keep_ratio(struct nucleus &u, const struct scale &s, const float *x, int32_t n,
                           float p) {
    if (!(p > 0)) return true;
    float least = (float)((double)s.max + log((double)p) / (double)s.inverse_temperature);
    int32_t b = bucket_of(s, __fsub_rn(s.max, least));
    if (b > u.kept.bucket) return true;
    if (!collect(u, s, x, n, b)) return false;
    int32_t inside = kept_inside(u, b);
    int32_t i = first_past(u, inside, [&](int32_t j) { return x[key_id(u.member[j])] < least; });
    struct prefix cut = {b, i, count_before(u, b) + i,
                         mass_before(u, b) + (i > 0 ? u.member_mass[i - 1] : 0)};
    while (cut.n_inside == 0) { // the last kept token lies in a better bucket
        cut.bucket--;
        cut.n_inside = u.count[cut.bucket] - count_before(u, cut.bucket);
    }
    __syncthreads();
    if (threadIdx.x == 0) u.kept = cut;
    __syncthreads();
    return true;
}

// The token, or -1.
__device__ int32_t sample(struct nucleus &u, const float *x, int32_t n, const struct extreme &e,
                          const struct batch_draw &d) {
    struct scale s;
    struct prefix p;
    s.max = e.max;
    s.range = fminf(__fsub_rn(e.max, e.min), __fmul_rn(DEPTH, d.temperature));
    s.inverse_temperature = fminf(__fdiv_rn(1.0f, d.temperature), FLT_MAX);
    s.slices_per_logit = fminf(__fdiv_rn((float)BUCKETS, s.range), FLT_MAX);
    fill_buckets(u, s, x, n);
    if (d.top_k > 0 && !keep_count(u, s, x, n, d.top_k)) return -1;
    if (d.top_p < 1) {
        if (!reach_mass(u, s, x, n, (double)d.top_p * (double)u.kept.mass, false, &p)) return -1;
        __syncthreads();
        if (threadIdx.x == 0) u.kept = p;
        __syncthreads();
    }
    if (!keep_ratio(u, s, x, n, d.min_p)) return -1;
    if (!reach_mass(u, s, x, n, (double)d.u * (double)u.kept.mass, true, &p)) return -1;
    return key_id(u.member[p.n_inside - 1]);
}

__global__ void __launch_bounds__(THREADS, 1) pick_kernel(const __grid_constant__ struct rows a) {
    extern __shared__ unsigned char shared[];
    struct nucleus &u = *(struct nucleus *)shared;
    pdl_trigger();
    pdl_wait();
    int row = blockIdx.x;
    const struct batch_draw d = draw_of(a, row);
    struct extreme own =
        d.kind == DRAW_NONE ? nothing() : row_extreme(a.parts, row); // has none then
    struct extreme e = a.adjusted ? row_extreme(a.changed_parts, row) : own;
    const float *logits = a.logits + (int64_t)step_row(a, row) * a.vocab;
    int32_t id = -1;
    if (d.kind != DRAW_NONE && !own.broken && own.max > -INFINITY && !e.broken &&
        e.max > -INFINITY) {
        const float *x = a.adjusted ? a.changed + (int64_t)row * a.vocab : logits;
        id = d.kind == DRAW_GREEDY ? e.id : sample(u, x, a.vocab, e, d);
    }
    if (threadIdx.x > 0) return;
    struct batch_drawn out = {id, 0.0f};
    if (id >= 0) {
        double sum = 0;
        for (int i = 0; i < a.n_runs; i++) sum += (double)a.run_sums[row * a.n_runs + i];
        out.logprob = (float)((double)logits[id] - (double)own.max - log(sum));
    }
    a.out[step_row(a, row)] = out;
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
    return (size_t)max_rows *
           (PARTS * sizeof(struct extreme) + (size_t)runs_of(vocab) * sizeof(float));
}

size_t cuda_draw_adjusted_work_bytes(int32_t vocab) {
    return CUDA_ADJUSTED_ROWS *
           (2 * PARTS * sizeof(struct extreme) + (size_t)(runs_of(vocab) + vocab) * sizeof(float));
}

int cuda_draw(struct batch_drawn *out, const float *logits, const struct batch_draw *draws,
              int32_t n, int32_t vocab, void *work, cudaStream_t stream) {
    struct rows a = {};
    if (n == 0) return 0;
    a.logits = logits;
    a.vocab = vocab;
    a.n_runs = runs_of(vocab);
    a.parts = (struct extreme *)work;
    a.draws = draws;
    a.out = out;
    a.run_sums = (float *)((struct extreme *)work + (size_t)n * PARTS);
    cuda_allow_shared((const void *)pick_kernel, sizeof(struct nucleus));
    unsigned rows = (unsigned)n, sums = (unsigned)((a.n_runs + 3) / 4);
    pdl_launch(extremes_kernel, dim3(PARTS, rows), dim3(256), 0, stream, a);
    pdl_launch(run_sums_kernel, dim3(sums, rows), dim3(64), 0, stream, a);
    pdl_launch(pick_kernel, dim3(rows), dim3(THREADS), sizeof(struct nucleus), stream, a);
    return cuda_launched("draw");
}

// The changed rows need memory, so a few rows at a time.
int cuda_draw_adjusted(struct batch_drawn *out, const float *logits,
                       const struct cuda_adjusted *rows, int32_t n, int32_t vocab, void *work,
                       cudaStream_t stream) {
    struct rows a = {};
    a.logits = logits;
    a.vocab = vocab;
    a.n_runs = runs_of(vocab);
    a.slice = slice_of(vocab);
    a.out = out;
    a.parts = (struct extreme *)work;
    a.changed_parts = a.parts + CUDA_ADJUSTED_ROWS * PARTS;
    a.run_sums = (float *)(a.changed_parts + CUDA_ADJUSTED_ROWS * PARTS);
    a.changed = a.run_sums + (size_t)CUDA_ADJUSTED_ROWS * (size_t)a.n_runs;
    cuda_allow_shared((const void *)pick_kernel, sizeof(struct nucleus));
    for (int32_t first = 0; first < n; first += CUDA_ADJUSTED_ROWS) {
        unsigned n_rows =
            (unsigned)(n - first < CUDA_ADJUSTED_ROWS ? n - first : CUDA_ADJUSTED_ROWS);
        unsigned sums = (unsigned)((a.n_runs + 3) / 4);
        a.adjusted = rows + first;
        pdl_launch(adjust_kernel, dim3(PARTS, n_rows), dim3(256), (size_t)a.slice * sizeof(float),
                   stream, a);
        pdl_launch(run_sums_kernel, dim3(sums, n_rows), dim3(64), 0, stream, a);
        pdl_launch(pick_kernel, dim3(n_rows), dim3(THREADS), sizeof(struct nucleus), stream, a);
    }
    return cuda_launched("draw_adjusted");
}

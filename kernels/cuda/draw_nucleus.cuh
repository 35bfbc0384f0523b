// The nucleus of a draw (draw.cu), as engine/run/nucleus.h finds it: buckets of equal depth below
// the best logit, of which only the bucket where a prefix ends is sorted. Weights are added up as
// integers of 2^-45, which no order can change; the host adds doubles. Both agree to some 1e-13 of
// the mass, and a draw has 24 bits.
//
// The blocks of a row fill buckets of their own, each from its share of the ids, and add them up in
// the first block's. That one goes through the buckets; when it needs a bucket's members it says
// which, and all blocks look for them.
#pragma once
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"
#include <float.h>

namespace {

constexpr int AHEAD = 16, THREADS = 1024, SHARES_MOST = 8, BUCKETS = 2048, MEMBERS = 2048;
constexpr float DEPTH = 40.0f;             // NUCLEUS_DEPTH
constexpr double FIXED = 35184372088832.0; // 2^45: 2^18 tokens of weight 1 stay below 2^64

// --- blocks of a row -----------------------------------------------------------------------------

struct shares { // this block's number, and how many there are
    int rank, n;
};

// Waits for all blocks of the row.
__device__ __forceinline__ void row_sync(const struct shares &of) {
#if __CUDA_ARCH__ >= 900
    if (of.n > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\n"
                     "barrier.cluster.wait.acquire.aligned;" ::
                         : "memory");
        return;
    }
#endif
    __syncthreads();
}

// The same place in the shared memory of another block of the row.
template <typename P> __device__ __forceinline__ P *in_block(P *here, int rank) {
#if __CUDA_ARCH__ >= 900
    P *there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
    return there;
#else
    return here;
#endif
}

// f(x[i], i) for each id of this block's share, in ascending order for a thread. f also gets ids past the
// end, with -inf.
template <typename F>
__device__ __forceinline__ void each_id(const float *x, int32_t n, const struct shares &of, F f) {
    const int32_t step = of.n * THREADS;
    for (int32_t i = of.rank * THREADS + (int)threadIdx.x; i < n; i += AHEAD * step) {
        float v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) v[k] = i + k * step < n ? x[i + k * step] : -INFINITY;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) f(v[k], i + k * step);
    }
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

// --- the nucleus ---------------------------------------------------------------------------------

typedef unsigned long long mass_t; // in units of 2^-45

struct prefix { // the first tokens: all of the buckets before, and n_inside of its own
    int32_t bucket, n_inside, count;
    mass_t mass;
};

struct nucleus { // in shared memory
    union {
        struct { // of this block's ids
            mass_t own_mass[BUCKETS];
            int32_t own_count[BUCKETS];
        };
        // In the first block, afterwards: of one bucket in order, logit descending, id ascending.
        unsigned long long member[MEMBERS];
    };
    int32_t wanted; // the bucket whose members are looked for; -1: no more
    // In the first block only.
    mass_t mass[BUCKETS];        // up to and with each bucket
    int32_t count[BUCKETS];      // likewise
    mass_t member_mass[MEMBERS]; // up to and with each member
    mass_t warp_mass[32];
    int32_t warp_count[32];
    int32_t sorted, n_members, found;
    struct prefix kept;
};

struct scale {
    float max, inverse_temperature, range, slices_per_logit;
};

struct choice {     // what is drawn from
    const float *x; // (n)
    int32_t n;
    struct scale scale;
    struct shares of;
};

__device__ struct scale scale_of(float max, float min, const struct batch_draw &d) {
    struct scale s;
    s.max = max;
    s.range = fminf(__fsub_rn(max, min), __fmul_rn(DEPTH, d.temperature));
    s.inverse_temperature = fminf(__fdiv_rn(1.0f, d.temperature), FLT_MAX);
    s.slices_per_logit = fminf(__fdiv_rn((float)BUCKETS, s.range), FLT_MAX);
    return s;
}

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

// The buckets of this block's ids.
__device__ void fill_own(struct nucleus &u, const struct choice &c) {
    const struct scale s = c.scale;
    for (int i = threadIdx.x; i < BUCKETS; i += THREADS) u.own_mass[i] = u.own_count[i] = 0;
    __syncthreads();
    each_id(c.x, c.n, c.of, [&](float v, int32_t) {
        float depth = __fsub_rn(s.max, v);
        if (depth > s.range) return;
        int32_t b = bucket_of(s, depth);
        atomicAdd(&u.own_mass[b], fixed(weight_of(s, v)));
        atomicAdd(&u.own_count[b], 1);
    });
}

// Adds up the blocks' buckets in the first block, each block a part of them. The blocks have met since
// they filled theirs, and meet again afterwards.
__device__ void gather_buckets(struct nucleus &u, const struct shares &of) {
    const int each = BUCKETS / of.n;
    for (int i = threadIdx.x; i < each; i += THREADS) {
        const int b = of.rank * each + i;
        mass_t mass = 0;
        int32_t count = 0;
#pragma unroll
        for (int r = 0; r < SHARES_MOST; r++) {
            if (r >= of.n) break;
            mass += *in_block(u.own_mass + b, r);
            count += *in_block(u.own_count + b, r);
        }
        *in_block(u.mass + b, 0) = mass;
        *in_block(u.count + b, 0) = count;
    }
    row_sync(of);
}

// The first block: from each bucket's to all up to it.
__device__ void add_up_buckets(struct nucleus &u) {
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

// Sends the members of a bucket that are among this block's ids to the first block.
__device__ void send_members(struct nucleus &u, const struct choice &c, int32_t bucket) {
    const struct scale s = c.scale;
    each_id(c.x, c.n, c.of, [&](float v, int32_t id) {
        float depth = __fsub_rn(s.max, v);
        if (depth > s.range || bucket_of(s, depth) != bucket) return;
        *in_block(u.member + atomicAdd(in_block(&u.n_members, 0), 1), 0) = order_key(v, id);
    });
}

// The other blocks, until the first one has drawn.
__device__ void follow(struct nucleus &u, const struct choice &c) {
    for (;;) {
        row_sync(c.of);
        const int32_t bucket = u.wanted;
        if (bucket < 0) return;
        send_members(u, c, bucket);
        row_sync(c.of);
    }
}

// Tells the other blocks which bucket is wanted.
__device__ void want(struct nucleus &u, const struct shares &of, int32_t bucket) {
    if ((int)threadIdx.x < of.n) *in_block(&u.wanted, (int)threadIdx.x) = bucket;
    row_sync(of);
}

// Puts a bucket's members in order, with their masses added up. False: there are too many.
__device__ bool collect(struct nucleus &u, const struct choice &c, int32_t bucket) {
    int32_t count = u.count[bucket] - count_before(u, bucket);
    if (count > MEMBERS) return false;
    if (u.sorted == bucket) return true;
    int32_t room = 2;
    while (room < count) room *= 2;
    __syncthreads(); // all threads have read u.sorted
    if (threadIdx.x == 0) u.n_members = 0, u.sorted = bucket;
    for (int i = threadIdx.x; i < room; i += THREADS) u.member[i] = 0; // sorts after every token
    want(u, c.of, bucket);
    send_members(u, c, bucket);
    row_sync(c.of);
    sort_members(u, room);
    for (int i = threadIdx.x; i < MEMBERS; i += THREADS)
        u.member_mass[i] = i < count ? fixed(weight_of(c.scale, c.x[key_id(u.member[i])])) : 0;
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

__device__ bool keep_count(struct nucleus &u, const struct choice &c, int32_t k) {
    if (u.kept.count <= k) return true;
    int32_t b = first_past(u, BUCKETS, [&](int32_t i) { return u.count[i] >= k; });
    if (!collect(u, c, b)) return false;
    int32_t inside = k - count_before(u, b);
    __syncthreads();
    if (threadIdx.x == 0) u.kept = {b, inside, k, mass_before(u, b) + u.member_mass[inside - 1]};
    __syncthreads();
    return true;
}

// The shortest prefix of the kept tokens whose mass reaches the target, or exceeds it if `beyond`.
__device__ bool reach_mass(struct nucleus &u, const struct choice &c, double target, bool beyond,
                           struct prefix *out) {
    auto enough = [&](mass_t m) { return beyond ? (double)m > target : (double)m >= target; };
    int32_t b = first_past(u, u.kept.bucket, [&](int32_t i) { return enough(u.mass[i]); });
    if (!collect(u, c, b)) return false;
    int32_t inside = kept_inside(u, b);
    mass_t before = mass_before(u, b);
    int32_t i = first_past(u, inside, [&](int32_t j) { return enough(before + u.member_mass[j]); });
    if (i == inside) i--;
    *out = {b, i + 1, count_before(u, b) + i + 1, before + u.member_mass[i]};
    return true;
}

__device__ bool keep_ratio(struct nucleus &u, const struct choice &c, float p) {
    const struct scale &s = c.scale;
    if (!(p > 0)) return true;
    float least = (float)((double)s.max + log((double)p) / (double)s.inverse_temperature);
    int32_t b = bucket_of(s, __fsub_rn(s.max, least));
    if (b > u.kept.bucket) return true;
    if (!collect(u, c, b)) return false;
    int32_t inside = kept_inside(u, b);
    int32_t i = first_past(u, inside, [&](int32_t j) { return c.x[key_id(u.member[j])] < least; });
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
__device__ int32_t sample(struct nucleus &u, const struct choice &c, const struct batch_draw &d) {
    struct prefix p;
    add_up_buckets(u);
    if (d.top_k > 0 && !keep_count(u, c, d.top_k)) return -1;
    if (d.top_p < 1) {
        if (!reach_mass(u, c, (double)d.top_p * (double)u.kept.mass, false, &p)) return -1;
        __syncthreads();
        if (threadIdx.x == 0) u.kept = p;
        __syncthreads();
    }
    if (!keep_ratio(u, c, d.min_p)) return -1;
    if (!reach_mass(u, c, (double)d.u * (double)u.kept.mass, true, &p)) return -1;
    return key_id(u.member[p.n_inside - 1]);
}

// The first block's part of a draw.
__device__ int32_t lead(struct nucleus &u, const struct choice &c, const struct batch_draw &d) {
    const int32_t id = sample(u, c, d);
    want(u, c.of, -1);
    return id;
}

} // namespace

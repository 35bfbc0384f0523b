// linear for one row and weights of few bits (groups.h): y (rows) = round(norm(x)) W^T + bias, with activation or gate.
//
// Should be bound by reading the codes; reaches 37 % of the read rate (README.md, "Weights of few bits"). As gemv_stay.cu: up to two blocks stay on each multiprocessor and take items of 16 rows of
// W (gated: 16 gates and the 16 rows that go with them). Eight warps take a chunk of 128 columns each in turn; one lane
// of each asks for whole chunks, into a queue in shared memory that goes from one item to the next; a ninth warp
// finishes items and draws further ones (gemv_items.cuh). sm_90a.
//
// Products are the tensor cores': W is A, x the first of B's eight columns. So a code costs one or two operations.
// A group's sum is multiplied by its scale in F32.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemv_items.cuh"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, BLOCKS = 2;
constexpr int NORM_VECTORS = 2;           // of a thread: x is normed up to 4,096 columns
constexpr int STAGES = 12;                // of a warp's queue, at most
constexpr int X_CHUNK = GROUPS_CHUNK * 2; // bytes

struct groups_stay {
    struct cuda_linear a;
    struct groups_matrix w;
    struct items items;
    int32_t stages, stage_bytes; // of a warp's queue
    int32_t bars;                // a barrier for each of the queues' stages
    int32_t x, sums, x_sums;     // where they lie behind the queues
};

// Eight columns of x from 8 v on, to the place where lanes find them: for each chunk and t, j after j, columns
// 16 j + 2t, + 1, + 8, + 9.
__device__ __forceinline__ void put_eight(char *x, int v, uint4 raw) {
    char *to = x + v / 16 * X_CHUNK + v % 16 / 2 * 8 + v % 2 * 4;
#pragma unroll
    for (int t = 0; t < 4; t++) *(uint32_t *)(to + t * (X_CHUNK / 4)) = word_at(raw, t);
}

// The sums of x over units of columns, for offsets. u: unit.
template <typename T> __device__ __forceinline__ float sum_of_unit(const char *x, int u, int unit) {
    float sum = 0.0f;
    for (int at = u * unit; at < (u + 1) * unit; at += 16) {
        const char *from = x + at / GROUPS_CHUNK * X_CHUNK + at % GROUPS_CHUNK / 16 * 8;
        for (int t = 0; t < 4; t++) {
            const uint2 two = *(const uint2 *)(from + t * (X_CHUNK / 4));
            const float2 a = unpack2(two.x, T()), b = unpack2(two.y, T());
            sum += a.x + a.y + b.x + b.y;
        }
    }
    return sum;
}

template <typename T, int KIND, bool GATED, bool NORMED>
__global__ void __launch_bounds__(STAY_THREADS, BLOCKS)
    groups_stay_kernel(const __grid_constant__ struct groups_stay j) {
#ifdef PARLEY_SM90A
    constexpr int TILES = GATED ? 2 : 1;
    constexpr bool OFFSET = KIND == GROUPS_OFFSETS;
    extern __shared__ __align__(16) char shared[];
    __shared__ volatile uint64_t known[KNOWN];
    const struct cuda_linear &a = j.a;
    const struct groups_matrix &w = j.w;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    float *sums = (float *)(shared + j.sums), *x_sums = (float *)(shared + j.x_sums);
    char *x_here = shared + j.x;
    constexpr int sum_floats = WARPS * TILES * 16;
    pdl_trigger();
    if (warp == WARPS) know_first(known, lane);
    __syncthreads();
    if (warp == WARPS) {
        const int width = GATED ? a.rows / 2 : a.rows;
        finish_items(
            j.items, known, lane,
            [&](int item) {
                const int row = item * 16 + lane;
                const bool mine = lane < 16 && row < width;
                return make_float2(a.bias && mine ? a.bias[row] : 0.0f,
                                   GATED && a.bias && mine ? a.bias[row + width] : 0.0f);
            },
            [&](int item, int buffer, float2 bias) {
                const int row = item * 16 + lane;
                if (lane >= 16 || row >= width) return;
                const float *from = sums + buffer * sum_floats + lane;
                float v = 0.0f, up = 0.0f;
#pragma unroll
                for (int i = 0; i < WARPS; i++) {
                    v += from[i * TILES * 16];
                    if (GATED) up += from[(i * TILES + 1) * 16];
                }
                v += bias.x;
                if (GATED)
                    v = activated(a.act, rounded<T>(v)) * rounded<T>(up + bias.y);
                else if (a.activate)
                    v = activated(a.act, rounded<T>(v));
                if (a.y_f32)
                    ((float *)a.y)[row] = a.add ? ((float *)a.y)[row] + v : v;
                else
                    ((T *)a.y)[row] = from_float<T>(a.add ? to_float(((T *)a.y)[row]) + v : v);
            });
        return;
    }

    const int n_steps = (w.chunks - warp + WARPS - 1) / WARPS; // this warp's, for an item
    const uint32_t queue = shared_address(shared) + (uint32_t)(warp * j.stages * j.stage_bytes);
    const uint32_t bars = shared_address(shared + j.bars) + (uint32_t)(warp * j.stages * 8);
    const int half_tiles = a.rows / 32;              // gated
    constexpr int scale_row = 16 * (OFFSET ? 8 : 4); // bytes of a tile's and group's scales
    if (lane < j.stages) mbarrier_init(bars + (uint32_t)(lane * 8), 1);
    mbarrier_init_done();
    __syncwarp();
    // What is requested next: step `step_asked` of item `asked`.
    int step_asked = 0, asked = (int)blockIdx.x;
    uint32_t n_asked = 0; // items before it
    bool inside = true;   // it exists
    auto request = [&](int stage) {
        if (step_asked == n_steps) {
            const int next = inside ? item_of(known, ++n_asked) : asked;
            inside = inside && next < j.items.n;
            if (inside) asked = next;
            step_asked = 0;
        }
        const int chunk = warp + step_asked * WARPS;
        step_asked++;
        if (!inside || lane != 0) return;
        const uint32_t to = queue + (uint32_t)(stage * j.stage_bytes),
                       bar = bars + (uint32_t)(stage * 8);
        mbarrier_expect(bar, j.stage_bytes);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int64_t tile = asked + i * half_tiles;
            tma_load_bytes(to + (uint32_t)(i * GROUPS_CHUNK_BYTES),
                           (const char *)w.codes + (tile * w.chunks + chunk) * GROUPS_CHUNK_BYTES,
                           GROUPS_CHUNK_BYTES, bar, READ_ONCE);
            tma_load_bytes(to + (uint32_t)(TILES * GROUPS_CHUNK_BYTES + i * w.chunk_scale),
                           (const char *)w.scales +
                               (tile * w.n_groups + (chunk * GROUPS_CHUNK >> w.group_shift)) *
                                   scale_row,
                           w.chunk_scale, bar, READ_ONCE);
        }
    };
    for (int stage = 0; stage < j.stages; stage++) request(stage);

    const int vectors = a.cols / 8, all = w.chunks * (GROUPS_CHUNK / 8);
    if (NORMED) {
        struct norm_constants<NORM_VECTORS> constants;
        norm_constants_load<NORM_VECTORS, THREADS>(constants, a);
        pdl_wait();
        norm_row<T, NORM_VECTORS, THREADS>((T *)sums, (const T *)a.x, a, constants,
                                           barrier_of_eight);
        // Each thread moves what it has normed itself.
        for (int v = (int)threadIdx.x; v < vectors; v += THREADS)
            put_eight(x_here, v, *(const uint4 *)((const char *)sums + v * 16));
    } else {
        pdl_wait();
        for (int v = (int)threadIdx.x; v < vectors; v += THREADS)
            put_eight(x_here, v, *(const uint4 *)((const T *)a.x + v * 8));
    }
    for (int v = vectors + (int)threadIdx.x; v < all; v += THREADS)
        put_eight(x_here, v, make_uint4(0, 0, 0, 0));
    barrier_of_eight();
    if (OFFSET) {
        for (int u = (int)threadIdx.x; u < w.chunks * GROUPS_CHUNK / w.unit; u += THREADS)
            x_sums[u] = sum_of_unit<T>(x_here, u, w.unit);
        barrier_of_eight();
    }

    const uint32_t constant = code_constant<T, KIND>(w.zero);
    const int in_unit = 1 << w.unit_shift,
              units = 8 >> w.unit_shift; // steps of 16 columns; in a chunk
    int stage = 0, phase = 0;
    for (uint32_t c = 0; item_of(known, c) < j.items.n; c++) {
        float sum[TILES][2] = {};
        for (int step = 0; step < n_steps; step++) {
            const int chunk = warp + step * WARPS;
            uint4 x[4] = {};
            if (g == 0) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    x[i] = *(const uint4 *)(x_here + chunk * X_CHUNK + t * (X_CHUNK / 4) + i * 16);
            }
            ::mbarrier_wait(bars + (uint32_t)(stage * 8), phase);
            const uint32_t from = queue + (uint32_t)(stage * j.stage_bytes);
            uint4 top[TILES], bottom[TILES];
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const uint32_t codes = from + (uint32_t)(i * GROUPS_CHUNK_BYTES + lane * 16);
                top[i] = load_shared(codes), bottom[i] = load_shared(codes + 512);
            }
            // Two sums of a tile's group, so that a product need not wait for the one before.
            float of_group[TILES][2][4] = {};
#pragma unroll
            for (int word = 0; word < 4; word++) {
                uint32_t first[TILES][4], second[TILES][4];
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    code_pairs<T, KIND>(first[i], word_at(top[i], word), constant, nullptr);
                    code_pairs<T, KIND>(second[i], word_at(bottom[i], word), constant, nullptr);
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int step16 = 2 * word + h;
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        const uint32_t operand[4] = {first[i][2 * h], second[i][2 * h],
                                                     first[i][2 * h + 1], second[i][2 * h + 1]};
                        mma(of_group[i][h], operand, h ? x[word].z : x[word].x,
                            h ? x[word].w : x[word].y, T());
                    }
                    if ((step16 + 1) & (in_unit - 1)) continue;
                    const int u = step16 >> w.unit_shift;
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        const uint32_t scales =
                            from + (uint32_t)(TILES * GROUPS_CHUNK_BYTES + i * w.chunk_scale +
                                              u * scale_row + g * (scale_row / 16));
                        const float one = of_group[i][0][0] + of_group[i][1][0],
                                    other = of_group[i][0][2] + of_group[i][1][2];
                        if (OFFSET) {
                            const float by = x_sums[chunk * units + u];
                            const float2 r = load_shared_pair(scales),
                                         s = load_shared_pair(scales + 64);
                            sum[i][0] = fmaf(r.y, by, fmaf(r.x, one, sum[i][0]));
                            sum[i][1] = fmaf(s.y, by, fmaf(s.x, other, sum[i][1]));
                        } else {
                            sum[i][0] = fmaf(load_shared_float(scales), one, sum[i][0]);
                            sum[i][1] = fmaf(load_shared_float(scales + 32), other, sum[i][1]);
                        }
#pragma unroll
                        for (int e = 0; e < 8; e++) of_group[i][e / 4][e % 4] = 0.0f;
                    }
                }
            }
            __syncwarp(); // all lanes have read
            request(stage);
            if (++stage == j.stages) stage = 0, phase ^= 1;
        }
        if (c >= BUFFERS) mbarrier_wait(EMPTY + (int)(c % BUFFERS));
        float *here = sums + (int)(c % BUFFERS) * sum_floats + warp * TILES * 16;
#pragma unroll
        for (int i = 0; i < TILES; i++)
            if (t == 0) here[i * 16 + g] = sum[i][0], here[i * 16 + 8 + g] = sum[i][1];
        mbarrier_arrive(FULL + (int)(c % BUFFERS));
    }
#endif
}

template <typename T, int KIND, bool GATED, bool NORMED>
int launch_stay(struct groups_stay j, cudaStream_t stream) {
    constexpr int TILES = GATED ? 2 : 1;
    const struct cuda_linear &a = j.a;
    const struct cuda_device device = cuda_current_device();
    const int n_steps = j.w.chunks / WARPS; // of a warp, at least
    const int x_bytes = j.w.chunks * X_CHUNK;
    const int sum_bytes = BUFFERS * WARPS * TILES * 16 * (int)sizeof(float);
    const int own =
        NORMED && a.cols * (int)sizeof(T) > sum_bytes ? a.cols * (int)sizeof(T) : sum_bytes;
    const int rest =
        x_bytes + own +
        (KIND == GROUPS_OFFSETS ? j.w.chunks * GROUPS_CHUNK / j.w.unit * (int)sizeof(float) : 0);
    const int room = min(device.shared_per_multiprocessor / BLOCKS - 2048, device.shared_per_block);
    j.stage_bytes = TILES * (GROUPS_CHUNK_BYTES + j.w.chunk_scale);
    // A queue reaches at most two items ahead (gemv_items.cuh).
    j.stages = min(min(STAGES, 2 * n_steps), (room - rest) / (WARPS * (j.stage_bytes + 8)));
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    j.bars = j.stages * WARPS * j.stage_bytes;
    j.x = j.bars + j.stages * WARPS * 8;
    j.sums = j.x + x_bytes;
    j.x_sums = j.sums + own;
    const int grid = min(device.multiprocessors * BLOCKS, j.items.n);
    const size_t bytes = (size_t)(j.x + rest);
    auto kernel = groups_stay_kernel<T, KIND, GATED, NORMED>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)grid), dim3(STAY_THREADS), bytes, stream, j);
    return cuda_launched("groups_stay");
}

template <typename T, int KIND> int launch_kind(const struct groups_stay &j, cudaStream_t stream) {
    if (j.a.activate && j.a.gated)
        return j.a.norm_weight ? launch_stay<T, KIND, true, true>(j, stream)
                               : launch_stay<T, KIND, true, false>(j, stream);
    return j.a.norm_weight ? launch_stay<T, KIND, false, true>(j, stream)
                           : launch_stay<T, KIND, false, false>(j, stream);
}

} // namespace

int cuda_groups_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream) {
    const bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    const bool gated = a->activate && a->gated;
    if (!half || a->n != 1 || a->cols % 8 != 0 || (uintptr_t)a->x % 16 != 0 ||
        (a->norm_weight && a->cols > NORM_VECTORS * THREADS * 8) || (gated && a->rows % 32 != 0))
        return CUDA_UNSUPPORTED;
    struct groups_stay j = {};
    j.a = *a;
    j.w = groups_matrix_of(a);
    j.items = {(a->rows / (gated ? 2 : 1) + 15) / 16, ticket};
    if (!hopper_here() || j.w.kind == GROUPS_BOOKS || j.w.chunks < WARPS) return CUDA_UNSUPPORTED;
    if (a->dtype == DTYPE_BF16)
        GROUPS_KINDS(j.w.kind, return (launch_kind<__nv_bfloat16, KIND>(j, stream)));
    GROUPS_KINDS(j.w.kind, return (launch_kind<__half, KIND>(j, stream)));
    return CUDA_UNSUPPORTED;
}

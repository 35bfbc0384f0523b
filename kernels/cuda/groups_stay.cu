// linear for one row and weights of few bits (groups.h): y (rows) = round(norm(x)) W^T + bias, with activation or gate.
//
// As gemv_stay.cu: up to two blocks stay on each multiprocessor and take items of 16 rows of W (gated: 16 gates and the
// 16 rows that go with them). Eight warps take a step of 256 columns each in turn; one lane of each asks for whole steps,
// into a queue in shared memory that goes from one item to the next; a ninth warp finishes items and draws further ones
// (gemv_items.cuh). sm_90a.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/gemv_items.cuh"
#include "kernels/cuda/groups_one_row.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, BLOCKS = 2;
constexpr int STAGES = 12; // of a warp's queue, at most

struct groups_stay {
    struct cuda_linear a;
    struct groups_matrix w;
    struct groups_steps m;
    struct items items;
    int32_t stages, stage_bytes; // of a warp's queue
    int32_t bars;                // a barrier for each of the queues' stages
    int32_t x, sums, units;      // where they lie behind the queues
};

template <typename T, int KIND, bool GATED, bool NORMED>
__global__ void __launch_bounds__(STAY_THREADS, BLOCKS)
    groups_stay_kernel(const __grid_constant__ struct groups_stay j) {
#ifdef PARLEY_SM90A
    constexpr int TILES = GATED ? 2 : 1;
    extern __shared__ __align__(16) char shared[];
    __shared__ volatile uint64_t known[KNOWN];
    const struct cuda_linear &a = j.a;
    const struct groups_matrix &w = j.w;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    float *sums = (float *)(shared + j.sums);
    struct digits_unit *units = (struct digits_unit *)(shared + j.units);
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

    const struct groups_steps &m = j.m;
    constexpr int PIECES = groups_pieces<KIND>();
    // This warp's pieces of an item: of steps `warp`, warp + WARPS ...
    const int n_pieces = (m.steps - warp + WARPS - 1) / WARPS * PIECES -
                         (PIECES * m.steps > m.pieces && (m.steps - 1) % WARPS == warp);
    const uint32_t queue = shared_address(shared) + (uint32_t)(warp * j.stages * j.stage_bytes);
    const uint32_t bars = shared_address(shared + j.bars) + (uint32_t)(warp * j.stages * 8);
    if (lane < j.stages) mbarrier_init(bars + (uint32_t)(lane * 8), 1);
    mbarrier_init_done();
    __syncwarp();
    // What is requested next: piece `piece_asked` of item `asked`, at these addresses.
    int piece_asked = 0, asked = (int)blockIdx.x;
    uint32_t n_asked = 0; // items before it
    bool inside = true;   // it exists
    const char *codes[TILES], *scales[TILES];
    auto find = [&]() {
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int64_t tile =
                asked + i * (a.rows / 32); // gated: of 16 gates, and of the rows that go with them
            codes[i] = (const char *)w.codes + tile * w.chunks * GROUPS_CHUNK_BYTES +
                       warp * PIECES * PIECE_CODES;
            scales[i] = (const char *)w.scales + tile * w.n_groups * groups_scale_row<KIND>() +
                        warp * PIECES * m.scale_bytes;
        }
    };
    find();
    auto request = [&](int stage) {
        if (n_pieces == 0) return; // few columns: others have the item's steps
        if (piece_asked == n_pieces) {
            const int next = inside ? item_of(known, ++n_asked) : asked;
            inside = inside && next < j.items.n;
            if (inside) asked = next;
            piece_asked = 0;
            find();
        }
        const int piece = (warp + piece_asked / PIECES * WARPS) * PIECES + piece_asked % PIECES;
        const int left = w.chunks - piece * PIECE;
        piece_asked++;
        if (!inside || lane != 0) return;
        request_piece<KIND, TILES>(queue + (uint32_t)(stage * j.stage_bytes),
                                   bars + (uint32_t)(stage * 8), codes, scales, left, m);
        const int on = piece_asked % PIECES ? 1 : (WARPS - 1) * PIECES + 1; // pieces
#pragma unroll
        for (int i = 0; i < TILES; i++)
            codes[i] += on * PIECE_CODES, scales[i] += on * m.scale_bytes;
    };
    // The norm's weights are asked for first: behind a queue's requests they would come last.
    constexpr bool DIGITS = KIND != GROUPS_NUMBERS, BYTES = groups_of_bytes(KIND);
    const struct step_norm<WARPS, BYTES> norm(a, DIGITS && NORMED);
    for (int stage = 0; stage < j.stages; stage++) request(stage);

    // Each warp writes to shared memory only those steps of x that it multiplies itself: integer codes' digits two steps at
    // a time, while it multiplies the first item, so that its queue moves on meanwhile. There is one copy of this code for
    // all, because it is fetched anew in each launch.
    uint4 raw[NORM_VECTORS];
    const int half = lane / 16 * WARPS; // of such two steps, half a warp's
    auto load_two = [&](int step) {
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) {
            const int v = (step + half) * 32 + digits_vector<BYTES>() + digits_next(BYTES) * i;
            raw[i] =
                v < a.cols / 8 ? *(const uint4 *)((const T *)a.x + v * 8) : make_uint4(0, 0, 0, 0);
        }
    };
    if constexpr (DIGITS && NORMED) {
        __shared__ float parts[2][2 * WARPS];
        pdl_wait();
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++)
            raw[i] = norm.vector[i] < a.cols / 8
                         ? *(const uint4 *)((const T *)a.x + norm.vector[i] * 8)
                         : make_uint4(0, 0, 0, 0);
        norm.template run<T>(raw, a, parts, barrier_of_eight);
    } else if constexpr (DIGITS) {
        pdl_wait();
        load_two(warp);
    } else {
        const T *x_from = (const T *)a.x;
        if constexpr (NORMED) {
            struct norm_constants<NORM_VECTORS> constants;
            norm_constants_load<NORM_VECTORS, THREADS>(constants, a);
            pdl_wait();
            norm_row<T, NORM_VECTORS, THREADS>((T *)sums, (const T *)a.x, a, constants,
                                               barrier_of_eight);
            barrier_of_eight();
            x_from = (const T *)sums;
        } else {
            pdl_wait();
        }
        put_steps<T, KIND>(x_here, units, warp, WARPS, m, [&](int v) {
            return v < a.cols / 8 ? *(const uint4 *)(x_from + v * 8) : make_uint4(0, 0, 0, 0);
        });
        if constexpr (NORMED)
            barrier_of_eight(); // sums of items go where x has been
        else
            __syncwarp();
    }

    int stage = 0, phase = 0;
    for (uint32_t c = 0; item_of(known, c) < j.items.n; c++) {
        float sum[TILES][2] = {};
        bool two = c == 0;
#pragma unroll 1
        for (int step = warp; step < m.steps; step += WARPS) {
            if (DIGITS && two) {
                const int mine = step + half;
                put_digits<T, groups_with_offsets(KIND), BYTES>(
                    x_here + mine * groups_x_step<KIND>(), units + mine * (16 >> m.unit_shift),
                    raw[0], raw[1], m.unit_shift, m.zero, mine < m.steps);
                __syncwarp();
                if (!NORMED && step + 2 * WARPS < m.steps) load_two(step + 2 * WARPS);
            }
            two = c == 0 && !two;
#pragma unroll 1
            for (int piece = step * PIECES; piece < min((step + 1) * PIECES, m.pieces); piece++) {
                ::mbarrier_wait(bars + (uint32_t)(stage * 8), phase);
                const uint32_t from = queue + (uint32_t)(stage * j.stage_bytes);
                groups_piece<T, KIND, TILES>(sum, from, from + TILES * PIECE_CODES, x_here, units,
                                             piece, m);
                __syncwarp(); // all lanes have read
                request(stage);
                if (++stage == j.stages) stage = 0, phase ^= 1;
            }
        }
        if (c >= BUFFERS) mbarrier_wait(EMPTY + (int)(c % BUFFERS));
        float *here = sums + (int)(c % BUFFERS) * sum_floats + warp * TILES * 16;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float of_row = groups_sum<T, KIND>(sum[i][r], m);
                if (t == 0) here[i * 16 + r * 8 + g] = of_row;
            }
        mbarrier_arrive(FULL + (int)(c % BUFFERS));
    }
#endif
}

template <typename T, int KIND, bool GATED, bool NORMED>
int launch_stay(struct groups_stay j, cudaStream_t stream) {
    constexpr int TILES = GATED ? 2 : 1;
    const struct cuda_linear &a = j.a;
    const struct cuda_device device = cuda_current_device();
    j.m = groups_steps_of<KIND>(j.w);
    const int x_bytes = groups_x_bytes<KIND>(j.m);
    const int sum_bytes = BUFFERS * WARPS * TILES * 16 * (int)sizeof(float);
    const int x_row = NORMED && KIND == GROUPS_NUMBERS ? a.cols * (int)sizeof(T) : 0;
    const int own = max(x_row, sum_bytes);
    const int rest = x_bytes + own + groups_units_bytes<KIND>(j.m);
    const int room = min(device.shared_per_multiprocessor / BLOCKS - 2048, device.shared_per_block);
    j.stage_bytes = TILES * (PIECE_CODES + j.m.scale_bytes);
    // A queue reaches at most two items ahead (gemv_items.cuh).
    const int fewest =
        max(j.m.steps / WARPS * groups_pieces<KIND>(), 1); // pieces of a warp that has any
    j.stages = min(min(STAGES, 2 * fewest), (room - rest) / (WARPS * (j.stage_bytes + 8)));
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    j.bars = j.stages * WARPS * j.stage_bytes;
    j.x = j.bars + j.stages * WARPS * 8;
    j.sums = j.x + x_bytes;
    j.units = j.sums + own;
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
    if (!hopper_here() || j.w.kind == GROUPS_BOOKS ||
        ((j.w.kind == GROUPS_INTEGERS || j.w.kind == GROUPS_OFFSETS) && j.w.group < 32) ||
        j.w.chunks < WARPS)
        return CUDA_UNSUPPORTED;
    if (a->dtype == DTYPE_BF16)
        GROUPS_KINDS(j.w.kind, return (launch_kind<__nv_bfloat16, KIND>(j, stream)));
    GROUPS_KINDS(j.w.kind, return (launch_kind<__half, KIND>(j, stream)));
    return CUDA_UNSUPPORTED;
}

// A mixture's experts: y =|+= the weighted sum over each row's experts of down(act(up(x))).
//
// One row: one launch whose blocks stay (experts_stay.cu), which takes a shared expert along. More: pairs (row, expert)
// are sorted by expert first, and blocks take tiles of them (experts_hopper.cu). On devices before sm_90 and with
// `deterministic` few rows are not sorted: each block takes rows of one expert's matrix and finds that expert's pairs by
// itself (experts_few.cu); many are (experts_many.cu). Weights of few bits and of 8 have kernels of their own for both
// (experts_groups.cu, experts_8bit.cu), few bits on sm_90 also for sorted rows (experts_hopper_groups.cu). The kernel here
// takes any other shape and dtype.
//
//   sort      order of the pairs by expert                 (not of few rows)
//   up        hidden values of each pair, activated
//   down      F32 results of each pair
//   combine   rows of y: results of the row's pairs, experts ascending, in F32
//
// A pair's result depends on its row alone. Without `deterministic` the order of its sum depends on
// the number of rows in the call.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/groups.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int FEW_ROWS = 128; // up to so many rows the matrices' bytes are the bound
// The same of few bits, where sm_90's tiles take more, by kind: integers, integers with offsets, e2m1, books (which tiles do not
// take), 8 bits, 8 bits with offsets. e2m1's numbers take the fewest instructions there.
constexpr int GROUPS_FEW_ROWS[] = {12, 12, 1, 128, 12, 12};

// A block for each expert. Pairs of an expert come in any order.
__global__ void __launch_bounds__(THREADS)
    sort_kernel(int32_t *first, int32_t *order, const int32_t *ids, int32_t pairs,
                int32_t n_experts) {
    __shared__ int n;
    const int e = (int)blockIdx.x;
    pdl_trigger();
    if (threadIdx.x == 0) n = 0;
    pdl_wait();
    int before = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < pairs; i += THREADS) before += ids[i] < e;
    before = (int)block_sum((float)before); // exact: fewer than 2^24
    if (threadIdx.x == 0) first[e] = before;
    if (threadIdx.x == 0 && e == n_experts - 1) first[n_experts] = pairs;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < pairs; i += THREADS)
        if (ids[i] == e) order[before + atomicAdd(&n, 1)] = i;
}

// A thread takes EACH neighbours; width is a multiple of that.
template <typename T, int EACH>
__global__ void combine_kernel(T *y, const float *result, const float *weights, int32_t n_chosen,
                               int32_t width, int64_t n, bool add, bool shared) {
    struct alignas(EACH * sizeof(float)) floats {
        float of[EACH];
    };
    struct alignas(EACH * sizeof(T)) values {
        T of[EACH];
    };
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    pdl_trigger();
    pdl_wait();
    if (i >= n) return;
    const int64_t row = i / width;
    const int32_t routed = n_chosen - shared; // behind them an expert of every row
    const float *from = result + row * n_chosen * width + i % width;
    auto read = [&](int32_t j) { return *(const floats *)(from + (int64_t)j * width); };
    values out = {};
    if (add) out = *(const values *)(y + i);
    floats sum;
#pragma unroll
    for (int v = 0; v < EACH; v++) sum.of[v] = add ? to_float(out.of[v]) : 0.0f;
#pragma unroll 4
    for (int32_t j = 0; j < routed; j++) {
        const floats of = read(j);
        const float weight = weights[row * routed + j];
#pragma unroll
        for (int v = 0; v < EACH; v++) sum.of[v] = fmaf(weight, of.of[v], sum.of[v]);
    }
    if (shared) {
        const floats of = read(routed);
#pragma unroll
        for (int v = 0; v < EACH; v++) sum.of[v] += of.of[v];
    }
#pragma unroll
    for (int v = 0; v < EACH; v++) out.of[v] = from_float<T>(sum.of[v]);
    *(values *)(y + i) = out;
}

template <typename T, int EACH>
void launch_combine(const struct cuda_experts *a, const struct experts_product *down,
                    cudaStream_t stream) {
    const int64_t all = (int64_t)a->n * down->rows, each = (int64_t)THREADS * EACH;
    pdl_launch(combine_kernel<T, EACH>, dim3((unsigned)((all + each - 1) / each)), dim3(THREADS), 0,
               stream, (T *)a->y, (const float *)down->result, a->weights, down->n_chosen,
               down->rows, all, a->mode == LINEAR_ADD, down->shared);
}

enum { TILE = 64, STEP = 16, EACH = 4 };

// As linear_simple.cu: 64 pairs by 64 results, and each result's sum is one chain over ascending K.
template <typename T, int MOST>
__global__ void __launch_bounds__(THREADS)
    any_kernel(const __grid_constant__ struct experts_table<MOST> t,
               const __grid_constant__ struct experts_product p) {
    __shared__ float xs[STEP][TILE + 4], ws[2][STEP][TILE + 4];
    __shared__ int64_t from[TILE];
    pdl_trigger();
    pdl_wait();
    const struct expert_tile tile = find_tile(p.first, p.n_experts, (int)blockIdx.y, TILE);
    if (tile.n == 0) return;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, out0 = (int)blockIdx.x * TILE;
    const int halves = p.gated ? 2 : 1, outputs = p.gated ? p.width : p.rows;
    const T *x = (const T *)p.x;
    for (int i = (int)threadIdx.x; i < tile.n; i += THREADS) {
        const int pair = p.order[tile.first + i];
        from[i] = row_of_pair(p, pair) * p.cols;
    }
    __syncthreads();
    const void *w = t.w[tile.expert];
    const float *scale = t.scale[tile.expert];
    float sum[2][EACH][EACH] = {}, blocks[2][EACH][EACH] = {};
    for (int k0 = 0; k0 < p.cols; k0 += STEP) {
        for (int i = (int)threadIdx.x; i < TILE * STEP; i += THREADS) {
            const int r = i / STEP, k = i % STEP, at = k0 + k;
            const bool in_k = at < p.cols;
            xs[k][r] = in_k && r < tile.n ? to_float(x[from[r] + at]) : 0.0f;
            for (int h = 0; h < halves; h++)
                ws[h][k][r] =
                    in_k && out0 + r < outputs
                        ? load_as_float(w, p.w_dtype, (int64_t)(out0 + r + h * p.width) * p.ld + at)
                        : 0.0f;
        }
        __syncthreads();
        for (int h = 0; h < halves; h++)
            for (int k = 0; k < STEP; k++)
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        sum[h][i][j] =
                            fmaf(xs[k][ty * EACH + i], ws[h][k][tx + 16 * j], sum[h][i][j]);
        __syncthreads();
        if (!p.block_k || ((k0 + STEP) % p.block_k != 0 && k0 + STEP < p.cols)) continue;
        for (int h = 0; h < halves; h++)
            for (int j = 0; j < EACH; j++) {
                const int row = min(out0 + tx + 16 * j, outputs - 1) + h * p.width;
                const float s = scale[(int64_t)(k0 / p.block_k) * p.rows + row];
                for (int i = 0; i < EACH; i++) {
                    blocks[h][i][j] = fmaf(sum[h][i][j], s, blocks[h][i][j]);
                    sum[h][i][j] = 0.0f;
                }
            }
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int r = ty * EACH + i, o = out0 + tx + 16 * j;
            if (r >= tile.n || o >= outputs) continue;
            const int pair = p.order[tile.first + r];
            float v[2] = {};
            for (int h = 0; h < halves; h++) {
                v[h] = p.block_k ? blocks[h][i][j] : sum[h][i][j];
                const int row = o + h * p.width;
                if (scale && !p.block_k) v[h] *= scale[row];
                if (p.bias) v[h] += p.bias[(int64_t)tile.expert * p.rows + row];
            }
            if (p.down)
                p.result[(int64_t)pair * p.rows + o] = v[0];
            else
                ((T *)p.hidden)[(int64_t)pair * p.width + o] =
                    from_float<T>(p.gated ? gated_value(p, v[0], v[1]) : activated(p.act, v[0]));
        }
}

template <typename T, int MOST>
void launch_any(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    const int outputs = p->gated ? p->width : p->rows;
    const int tiles = (p->pairs < p->n_experts ? p->pairs : p->n_experts) + p->pairs / TILE;
    const dim3 grid((unsigned)((outputs + TILE - 1) / TILE), (unsigned)tiles);
    pdl_launch(any_kernel<T, MOST>, grid, dim3(THREADS), 0, stream, t, *p);
}

struct layout { // of the work space, in bytes
    size_t first, order, permuted, hidden, result, hopper, end;
};

// Elements from a row of x to the next, also where a product of few bits wants it in the order of the codes.
int32_t pitch_of(const struct weight *w) {
    return w->dtype == DTYPE_U8 ? groups_pitch(w->cols) : w->cols;
}

int32_t rows_at_once(int32_t n, const struct experts_args *a) {
    const int32_t room = CUDA_EXPERT_PAIRS / a->n_chosen;
    const int32_t most = room < 1 ? 1 : room < CUDA_EXPERT_ROWS ? room : CUDA_EXPERT_ROWS;
    return n < most ? n : most;
}

struct layout layout_of(int32_t n, const struct experts_args *a, enum dtype dtype) {
    const size_t pairs = (size_t)rows_at_once(n, a) * (size_t)(a->n_chosen + 1); // a shared one too
    struct layout l = {};
    auto take = [&](size_t bytes) {
        const size_t at = l.end;
        l.end += (bytes + 255) & ~(size_t)255;
        return at;
    };
    l.first = take(((size_t)a->n_experts + 1) * sizeof(int32_t));
    l.order = take(pairs * sizeof(int32_t));
    l.permuted = take(a->up->dtype == DTYPE_U8
                          ? (size_t)rows_at_once(n, a) * (size_t)pitch_of(a->up) * dtype_size(dtype)
                          : 0);
    l.hidden = take(pairs * (size_t)pitch_of(a->down) * dtype_size(dtype));
    l.result = take(pairs * (size_t)a->down->rows * sizeof(float));
    l.hopper = take(experts_hopper_bytes((int32_t)pairs, a, dtype));
    return l;
}

struct experts_product product_of(const struct cuda_experts *a, const struct layout *l,
                                  const struct weight *w, bool down) {
    struct experts_product p = {};
    char *work = (char *)a->work;
    p.down = down;
    p.gated = !down && a->args.activate.gated;
    p.act = a->args.activate.act;
    p.limit = a->args.limit;
    p.dtype = a->dtype, p.w_dtype = w->dtype;
    p.rows = w->rows, p.cols = w->cols, p.ld = w->layout, p.block_k = w->block_k;
    p.width = a->args.down->cols;
    p.bias = down ? a->args.down_bias : a->args.up_bias;
    p.hidden = work + l->hidden;
    p.result = (float *)(work + l->result);
    p.x = down ? p.hidden : a->x;
    p.ids = a->ids;
    p.shared = a->args.shared;
    p.n_chosen = a->args.n_chosen + p.shared, p.n_experts = a->args.n_experts + p.shared;
    p.pairs = a->n * p.n_chosen;
    p.first = (const int32_t *)(work + l->first);
    p.order = (const int32_t *)(work + l->order);
    return p;
}

bool has_fast(const struct experts_product *p) {
    return p->w_dtype == DTYPE_U8 || experts_covered_8bit(p) || experts_covered(p);
}

int multiply(const struct experts_product *p, const struct weight *w, bool few,
             cudaStream_t stream) {
    if (p->w_dtype == DTYPE_U8) return experts_groups(p, w, few, stream);
    if (experts_covered_8bit(p)) return experts_8bit(p, w, few, stream);
    if (!experts_covered(p)) return experts_any(p, w, stream);
    return few ? experts_few(p, w, stream) : experts_many(p, w, stream);
}

// Whether n rows of few bits take sm_90's tiles.
bool take_tiles(const struct experts_product *up, const struct experts_product *down, int32_t n) {
    auto few = [](const struct experts_product *p) {
        return GROUPS_FEW_ROWS[groups_matrix_by(p->ld, p->cols).kind];
    };
    return experts_hopper_groups_covers(up, down) && n > few(up) && n > few(down);
}

// Results of all pairs, by one launch for both products or by one for each.
int results(const struct cuda_experts *a, const struct layout *l, struct experts_product *up,
            struct experts_product *down, cudaStream_t stream) {
    if (up->w_dtype == DTYPE_U8 && down->w_dtype == DTYPE_U8 && !a->deterministic) {
        const int rc = experts_groups_stay(up, down, a, stream);
        if (rc != CUDA_UNSUPPORTED) return rc;
    }
    if (up->shared) return CUDA_UNSUPPORTED;
    const bool wide = a->n > 1 && !a->deterministic && experts_hopper_covers(up, down);
    const bool codes = !a->deterministic && !wide && take_tiles(up, down, a->n);
    const bool few =
        !wide && !codes && has_fast(up) && has_fast(down) && (a->deterministic || a->n <= FEW_ROWS);
    if (!few) {
        pdl_launch(sort_kernel, dim3((unsigned)up->n_experts), dim3(THREADS), 0, stream,
                   (int32_t *)up->first, (int32_t *)up->order, a->ids, up->pairs, up->n_experts);
        TRY(cuda_launched("experts_sort"));
    }
    if (wide)
        return experts_hopper(up, down, a->args.up, a->args.down, (char *)a->work + l->hopper,
                              stream);
    if (codes)
        return experts_hopper_groups(up, down, a->args.up, a->args.down,
                                     (char *)a->work + l->hopper, stream);
    const bool permute_x = few && up->w_dtype == DTYPE_U8;
    up->hidden_in_codes = few && down->w_dtype == DTYPE_U8;
    if (permute_x || up->hidden_in_codes) {
        void *permuted = permute_x ? (char *)a->work + l->permuted : NULL;
        TRY(experts_permute(permuted, up, a->n, stream));
        if (permute_x) up->x = permuted;
    }
    TRY(multiply(up, a->args.up, few, stream));
    return multiply(down, a->args.down, few, stream);
}

int run(const struct cuda_experts *a, cudaStream_t stream) {
    const struct layout l = layout_of(a->n, &a->args, a->dtype);
    struct experts_product up = product_of(a, &l, a->args.up, false);
    struct experts_product down = product_of(a, &l, a->args.down, true);
    if (experts_covered(&up) && experts_covered(&down) && !a->deterministic) {
        const int rc = experts_stay(&up, &down, a, stream);
        if (rc != CUDA_UNSUPPORTED) return rc;
    }
    const int rc = results(a, &l, &up, &down, stream);
    if (rc != 0) return rc;
    const bool fours = a->n > 16 && down.rows % 4 == 0 && (uintptr_t)a->y % 16 == 0;
    DISPATCH(a->dtype, fours ? launch_combine<T, 4>(a, &down, stream)
                             : launch_combine<T, 1>(a, &down, stream));
    return cuda_launched("experts_combine");
}

} // namespace

int experts_any(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    EXPERTS_SIZED(p->n_experts, DISPATCH(p->dtype, launch_any<T, MOST>(p, w, stream)));
    return cuda_launched("experts");
}

size_t cuda_experts_bytes(int32_t n, const struct experts_args *args, enum dtype dtype) {
    return n > 0 ? layout_of(n, args, dtype).end : 0;
}

int cuda_experts(const struct cuda_experts *a, cudaStream_t stream) {
    const int32_t step = a->n > 0 ? rows_at_once(a->n, &a->args) : 1;
    for (int32_t row = 0; row < a->n; row += step) {
        struct cuda_experts part = *a;
        const size_t size = dtype_size(a->dtype);
        part.n = a->n - row < step ? a->n - row : step;
        part.y = (char *)a->y + (size_t)row * (size_t)a->args.down->rows * size;
        part.x = (const char *)a->x + (size_t)row * (size_t)a->args.up->cols * size;
        part.ids = a->ids + (int64_t)row * a->args.n_chosen;
        part.weights = a->weights + (int64_t)row * a->args.n_chosen;
        const int rc = run(&part, stream);
        if (rc != 0) return rc;
    }
    return 0;
}

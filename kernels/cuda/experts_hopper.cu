// Experts of two rows and more on sm_90a with weights of 16 bits: experts_hopper.cuh.
#include "kernels/cuda/experts_hopper.cuh"

namespace {

constexpr int HALF = ROWS * SWIZZLED_ROW; // bytes of a warpgroup's rows in a stage

// Rows of W are the products' A, in shared memory as they lie in the matrix, and the tensor map puts eights of gates and of
// others in turn.
template <typename T> struct plain {
    using type = T;
    static constexpr int WARPGROUPS = 2, PAIRS = 256, LEAST = 32, STEP = 64, MAPS = 1;
    static constexpr float FACTOR = 1.0f;
    struct matrix {};
    __host__ __device__ static int bytes(const matrix &) { return 2 * HALF; }

#ifdef PARLEY_SM90A
    __device__ __forceinline__ static void request(const struct wide<plain> &j, uint32_t to,
                                                   const CUtensorMap *maps, int k, int row_tile,
                                                   uint32_t bar) {
        const int each = j.p.gated ? 4 : 8,
                  eight = row_tile * 2 * each; // of a warpgroup; the first
        tma_load_eights(to, maps, k, eight, bar, READ_PLAIN);
        tma_load_eights(to + HALF, maps, k, eight + each, bar, READ_PLAIN);
    }
    struct lane {
        __device__ __forceinline__ lane(const matrix &, bool) {}
        __device__ __forceinline__ void finish(void) const {}
        template <int N>
        __device__ __forceinline__ void multiply(float (&sum)[PAIRS / 2], uint32_t w, uint32_t x,
                                                 uint32_t, bool keep) const {
            const uint64_t a = tile_descriptor(w + threadIdx.x / 128 * HALF),
                           b = tile_descriptor(x);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++)
                wgmma<N>::ss(*(float(*)[N / 2]) sum, a + 2 * i, b + 2 * i, keep || i > 0, T());
            wgmma_commit();
            wgmma_wait<1>();
        }
    };
#endif
};

template <typename T>
int launch_both(const struct experts_product *up, const struct experts_product *down,
                const void *sorted, const CUtensorMap *maps, cudaStream_t stream) {
    const int rc = launch_up<plain<T>>(up, {}, sorted, maps, stream);
    return rc != 0
               ? rc
               : launch_wide<plain<T>, RESULTS>(down, {}, down->x, maps + up->n_experts, stream);
}

template <int MOST>
int prepare(const struct experts_product *up, const struct experts_product *down,
            const struct weight *up_w, const struct weight *down_w, CUtensorMap *maps, void *sorted,
            cudaStream_t stream) {
    struct expert_maps<2, MOST> w;
    for (int32_t e = 0; e < up->n_experts; e++)
        w.at[0][e] = up_w[e].data, w.at[1][e] = down_w[e].data;
    if (!tensor_map_eights(&w.map[0], w.at[0][0], up->dtype, up->rows, up->cols, up->ld,
                           up->gated ? 2 : 1) ||
        !tensor_map_eights(&w.map[1], w.at[1][0], down->dtype, down->rows, down->cols, down->ld, 1))
        return CUDA_UNSUPPORTED;
    return launch_prepare(w, maps, sorted, up, stream);
}

} // namespace

size_t experts_hopper_bytes(int32_t pairs, const struct experts_args *args, enum dtype dtype) {
    const bool sixteen = args->up->dtype == dtype && args->down->dtype == dtype;
    const bool few = args->up->dtype == DTYPE_U8 && args->down->dtype == DTYPE_U8;
    if (!(sixteen || few) || dtype == DTYPE_F32 || !hopper_here()) return 0;
    return wide_work_of(pairs, args->up->cols, (args->n_experts + 1) * (few ? 4 : 2)).end;
}

bool experts_hopper_covers(const struct experts_product *up, const struct experts_product *down) {
    return experts_covered(up) && experts_covered(down) && down->rows % 8 == 0 &&
           up->n_experts <= 1024 && hopper_here();
}

int experts_hopper(const struct experts_product *up, const struct experts_product *down,
                   const struct weight *up_w, const struct weight *down_w, void *work,
                   cudaStream_t stream) {
    const struct wide_work l = wide_work_of(up->pairs, up->cols, 2 * up->n_experts);
    CUtensorMap *maps = (CUtensorMap *)((char *)work + l.maps);
    int rc = CUDA_UNSUPPORTED;
    EXPERTS_SIZED(up->n_experts, rc = prepare<MOST>(up, down, up_w, down_w, maps, work, stream));
    if (rc != 0) return rc;
    return up->dtype == DTYPE_BF16 ? launch_both<__nv_bfloat16>(up, down, work, maps, stream)
                                   : launch_both<__half>(up, down, work, maps, stream);
}

// Tensor maps, which the driver makes. The runtime looks the function up, so that the program starts
// without a driver.
#include "kernels/cuda/devices.h"
#include "kernels/cuda/hopper.cuh"
#include <cuda_runtime.h>
#include <cudaTypedefs.h>

static PFN_cuTensorMapEncodeTiled_v12000 encoder(void) {
    static void *found; // the driver's, so the same for all devices
    if (!found) {
        enum cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                             cudaEnableDefault, &result) != cudaSuccess ||
            result != cudaDriverEntryPointSuccess)
            found = NULL;
        (void)cudaGetLastError();
    }
    return (PFN_cuTensorMapEncodeTiled_v12000)found;
}

bool hopper_here(void) {
    // The Makefile builds sm_90a wherever sm_90 is asked for; the program runs on 9.0 with no
    // other code.
    const struct cuda_device d = cuda_current_device();
    return d.major == 9 && d.minor == 0 && encoder();
}

static bool map_of(CUtensorMap *map, CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                   const void *data, int64_t rows, int64_t cols, int64_t row_bytes,
                   int32_t box_rows, int32_t box_cols) {
    cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)row_bytes};
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, each[2] = {1, 1};
    return encoder()(map, type, 2, (void *)(uintptr_t)data, dims, strides, box, each,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tensor_map_of(CUtensorMap *map, const void *data, enum dtype dtype, int64_t rows, int64_t cols,
                   int64_t ld, int32_t box_rows) {
    const int size = (int)dtype_size(dtype);
    const CUtensorMapDataType type = size == 1             ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return map_of(map, type, CU_TENSOR_MAP_SWIZZLE_128B, data, rows, cols, ld * size, box_rows,
                  SWIZZLED_ROW / size);
}

bool tensor_map_eights(CUtensorMap *map, const void *data, enum dtype dtype, int64_t rows,
                       int64_t cols, int64_t ld, int32_t parts) {
    const CUtensorMapDataType type =
        dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const cuuint64_t row = (cuuint64_t)ld * 2, n = (cuuint64_t)(rows / parts);
    const cuuint64_t dims[4] = {(cuuint64_t)cols, 8, (cuuint64_t)parts, n / 8},
                     strides[3] = {row, row * n, row * 8};
    const cuuint32_t box[4] = {64, 8, (cuuint32_t)parts, 8 / (cuuint32_t)parts},
                     each[4] = {1, 1, 1, 1};
    return encoder()(map, type, 4, (void *)(uintptr_t)data, dims, strides, box, each,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tensor_map_words(CUtensorMap *map, const void *data, int64_t rows, int64_t words,
                      int32_t box_rows, int32_t box_words) {
    return map_of(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, CU_TENSOR_MAP_SWIZZLE_NONE, data, rows,
                  words, words * 4, box_rows, box_words);
}

int clusters_at_once(const void *kernel, int threads, int shared, int blocks) {
    int n = 0;
    if (cuda_kernel_fact(kernel, blocks, &n)) return n;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)shared;
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess || n < 1) {
        (void)cudaGetLastError();
        n = 1; // slow, and as right
    }
    cuda_keep_kernel_fact(kernel, blocks, n);
    return n;
}

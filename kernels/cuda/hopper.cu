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

bool tensor_map_of(CUtensorMap *map, const void *data, enum dtype dtype, int64_t rows, int64_t cols,
                   int64_t ld, int32_t box_rows) {
    int size = (int)dtype_size(dtype);
    CUtensorMapDataType type = size == 1             ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                               : dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                     : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows},
               strides[1] = {(cuuint64_t)(ld * size)};
    cuuint32_t box[2] = {(cuuint32_t)(SWIZZLED_ROW / size), (cuuint32_t)box_rows}, each[2] = {1, 1};
    return encoder()(map, type, 2, (void *)(uintptr_t)data, dims, strides, box, each,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Programmatic dependent launch: a kernel may start while the one before it in the stream (or
// graph) still runs, do what does not depend on it (fetch weights, keys and values of earlier
// steps, the step's plan), and wait then. This hides a kernel's start, 3 to 4 microseconds of every
// 10 in a decode step.
//
// The rules, for a kernel that is launched with pdl_launch:
// 1. Every thread that reads or writes anything that another kernel of the step writes or reads
//    calls pdl_wait() first, and every block calls it before it ends: then a kernel's end means
//    that all before it have ended, and nobody needs to know who came before whom.
// 2. It calls pdl_trigger() first of all. Its successor's blocks then come as soon as all of its
//    own blocks have begun and there is room; the wait above makes that safe.
// 3. Before the wait it may read: weights and other constants, struct cuda_batch (written before
//    the step), cache positions older than this step.
// A kernel launched the ordinary way starts after all before it, and its successor after it. So
// does every kernel on devices before sm_90, which are not asked to start anything early.
#pragma once
#include "kernels/cuda/devices.h"
#include <cuda_runtime.h>
#include <utility>

__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// kernel<<<grid, block, shared, stream>>>(args...), allowed to start early. The launcher's end asks
// cuda_launched() as ever.
template <typename... Params, typename... Args>
static inline void pdl_launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                              cudaStream_t stream, Args &&...args) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = cuda_device_here().major >= 9 ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

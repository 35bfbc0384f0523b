// Programmatic dependent launch: a kernel may start while its predecessor in the stream or graph
// still runs. It then does the work that is independent of the predecessor (fetches weights, keys
// and values of earlier steps, the step's description) and waits. This hides a kernel's start, 3 to
// 4 of every 10 microseconds in a decode step.
//
// Rules for a kernel that is launched with pdl_launch:
// 1. Every thread calls pdl_wait() before it reads or writes anything that another kernel of the
//    step writes or reads, and every block calls it before it ends. So when a kernel ends, all
//    kernels before it have ended.
// 2. The kernel starts with pdl_trigger(). The successor's blocks then start as soon as all of its
//    own blocks have started and there is room. Rule 1 makes that safe.
// 3. Before the wait it may read weights and other constants, struct cuda_batch (written before the
//    step) and cache positions of earlier steps.
// A kernel launched the ordinary way starts after all kernels before it, and its successor after
// it. On devices before sm_90 all kernels do.
#pragma once
#include "kernels/cuda/devices.h"
#include <cuda_runtime.h>
#include <utility>

// The two calls of the rules above. Without effect before sm_90.
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

// kernel<<<grid, block, shared, stream>>>(args...), allowed to start early. The launcher still ends
// with cuda_launched().
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
    config.numAttrs = cuda_current_device().major >= 9 ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

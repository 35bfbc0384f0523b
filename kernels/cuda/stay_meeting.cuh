// Where all blocks of a launch meet (experts_stay.cu, experts_groups_stay.cu): two words of device memory, zero before and
// after the launch: blocks that arrived, blocks that left.
#pragma once
#include "kernels/cuda/gemv_items.cuh"

namespace {

// By a warp, whose block's results are in memory.
__device__ __forceinline__ void meeting_arrive(uint32_t *meeting, int lane) {
    __threadfence();
    __syncwarp();
    if (lane == 0) atomicAdd(meeting, 1);
}
// All blocks' results are in memory, for load_fresh.
__device__ __forceinline__ void meeting_wait(const uint32_t *meeting, int lane) {
    uint32_t there = 0;
    while (lane == 0 && there < gridDim.x)
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(there) : "l"(meeting) : "memory");
    __syncwarp();
}
// Once for each block, behind its wait or where it has none. The last block that comes here is behind all waits.
__device__ __forceinline__ void meeting_leave(uint32_t *meeting, int lane) {
    if (lane == 0 && atomicAdd(meeting + 1, 1) == gridDim.x - 1)
        ((volatile uint32_t *)meeting)[0] = 0, ((volatile uint32_t *)meeting)[1] = 0;
}

// The ninth warp of a block ends its items, c = 0, 1, ..: up(item, c) those below n_up and down(item - n_up, c) the others,
// between which the blocks meet.
template <typename Up, typename Down>
__device__ __forceinline__ void meeting_finish(uint32_t *meeting, int lane, int n_up, int n_items,
                                               Up up, Down down) {
    bool arrived = false;
    int c = 0;
    for (int item = (int)blockIdx.x; item < n_items; item += (int)gridDim.x, c++) {
        if (item >= n_up && !arrived) meeting_arrive(meeting, lane), arrived = true;
        if (item < n_up)
            up(item, c);
        else
            down(item - n_up, c);
        mbarrier_arrive(EMPTY + c % BUFFERS);
    }
    if (!arrived) meeting_arrive(meeting, lane);
    meeting_leave(meeting, lane);
}

// 16 bytes past L1, for values that this launch has written.
__device__ __forceinline__ uint4 load_fresh(const void *from) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

} // namespace

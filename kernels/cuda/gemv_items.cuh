// Items of a linear whose blocks stay on their multiprocessors (gemv_stay.cu, gemv_8bit_stay.cu):
// eight warps multiply, a ninth finishes their items and draws further ones.
#pragma once
#include "kernels/cuda/pdl.cuh"
#include <stdint.h>

namespace {

constexpr int MULTIPLYING = 8 * 32, STAY_THREADS = MULTIPLYING + 32;
constexpr int BUFFERS = 2; // of sums: one is filled while the other is read
// Items of a block that are known: AHEAD of them beyond the one that is being finished. The queues
// reach at most two items beyond the one that is being multiplied. A block's first OWN items are its index, one grid
// further and so on: where blocks drew these when they began, the first ones took four of 384 items and others one.
constexpr int KNOWN = 8, AHEAD = 3, OWN = AHEAD + 1;

struct items {
    int32_t n;
    uint32_t *ticket; // zero before and after the launch
};

// Named barriers. The eight warps arrive at FULL and the ninth waits there; EMPTY the other way round.
// EIGHT is of the eight alone. A warp comes to a barrier as a whole.
enum { FULL = 1, EMPTY = FULL + BUFFERS, EIGHT = EMPTY + BUFFERS };
__device__ __forceinline__ void mbarrier_wait(int id) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(STAY_THREADS) : "memory");
}
__device__ __forceinline__ void barrier_of_eight() {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"((int)EIGHT), "n"(MULTIPLYING) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(int id) {
    __threadfence_block();
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(STAY_THREADS) : "memory");
}

// The block's item k, as soon as it is known; n or more: there is none. An entry is k and the item, so
// that an entry of an earlier k is not taken for it. A volatile access of 8 bytes is a relaxed one in
// PTX's memory model, so this is no race. compute-sanitizer's racecheck reports it all the same.
__device__ __forceinline__ int item_of(const volatile uint64_t *known, uint32_t k) {
    uint64_t entry;
    do entry = known[k % KNOWN];
    while ((uint32_t)(entry >> 32) != k);
    __syncwarp();
    return (int)(uint32_t)entry;
}
__device__ __forceinline__ uint64_t entry_of(uint32_t k, uint32_t item) {
    return (uint64_t)k << 32 | item;
}

// A block's first item is its index. known (KNOWN), by one warp; a barrier follows.
__device__ __forceinline__ void know_first(volatile uint64_t *known, int lane) {
    if (lane < KNOWN) known[lane] = lane == 0 ? entry_of(0, blockIdx.x) : entry_of(0xffffffffu, 0);
}

// The ninth warp. Each block draws until one draw is beyond the last item, so the draw after which
// none follows is known: it resets the ticket. load(item) returns what an item's end needs from memory;
// end(item, buffer, loaded) is called when the item's sums are in that buffer.
template <typename Load, typename End>
__device__ __forceinline__ void finish_items(const struct items &j, volatile uint64_t *known,
                                             int lane, Load load, End end) {
    const uint32_t n = (uint32_t)j.n, owned = min(n, gridDim.x * OWN), drawn_items = n - owned;
    uint32_t k = 1;
    bool more = lane == 0;
    auto draw = [&]() {
        if (!more) return;
        uint32_t item = blockIdx.x + k * gridDim.x;
        if (k >= OWN && drawn_items) {
            const uint32_t drawn = atomicAdd(j.ticket, 1);
            if (drawn == drawn_items + gridDim.x - 1) *(volatile uint32_t *)j.ticket = 0;
            item = owned + drawn;
        }
        more = item < n;
        known[k % KNOWN] = entry_of(k, more ? item : n);
        k++;
    };
    for (int i = 0; i < AHEAD; i++) draw();
    pdl_wait();
    for (uint32_t c = 0;; c++) {
        int item = item_of(known, c);
        if (item >= j.n) return;
        auto loaded = load(item);
        mbarrier_wait(FULL + (int)(c % BUFFERS));
        end(item, (int)(c % BUFFERS), loaded);
        mbarrier_arrive(EMPTY + (int)(c % BUFFERS));
        draw();
    }
}

} // namespace

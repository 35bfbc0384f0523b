// Facts about devices and about kernels on a device, looked up once and kept in one table. Each GPU has
// rows of its own, because an attribute set for a kernel on one device does not hold on another.
//
// All functions concern the calling thread's current device and may be called by several threads.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_device {
    int major, minor; // compute capability
    int multiprocessors;
    // Bytes of shared memory: a multiprocessor's, and the most that one block may ask for.
    int shared_per_multiprocessor, shared_per_block;
};

// If the query fails: one multiprocessor, and zeros.
struct cuda_device cuda_current_device(void);

// Lets blocks of `kernel` have up to `bytes` of dynamic shared memory. A refusal shows at the
// launch.
void cuda_allow_shared(const void *kernel, size_t bytes);

// A number stored for (current device, kernel, `what`), for the next launch. False: none is stored yet.
// The caller chooses `what`, from 1 on.
bool cuda_kernel_fact(const void *kernel, int what, int *value);
void cuda_keep_kernel_fact(const void *kernel, int what, int value);

// Whether the caller may launch kernels whose blocks wait for each other (experts_stay.cu): on a device one caller at
// a time, because two such launches side by side could each hold the places that the other waits for; and none
// where other processes' kernels run beside this one's (MPS). True: until cuda_disclaim_device.
bool cuda_claim_device(int device);
void cuda_disclaim_device(int device);

#ifdef __cplusplus
}
#endif

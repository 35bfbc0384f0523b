// Facts about devices and about kernels on a device, looked up once and kept in one table. A second
// GPU has rows of its own: an attribute that one device's kernel was given says nothing of
// another's.
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

// Zeros but for one multiprocessor where the device does not answer.
struct cuda_device cuda_device_here(void);

// Lets blocks of `kernel` have up to `bytes` of dynamic shared memory. A refusal shows at the
// launch.
void cuda_allow_shared(const void *kernel, size_t bytes);

// A number stored for (current device, kernel, `what`), for the next launch. False: none is stored yet.
// The caller chooses `what`, from 1 on.
bool cuda_kernel_fact(const void *kernel, int what, int *value);
void cuda_keep_kernel_fact(const void *kernel, int what, int value);

#ifdef __cplusplus
}
#endif

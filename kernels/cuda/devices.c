// See devices.h.
#include "kernels/cuda/devices.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>

enum {
    MAX_DEVICES = 64, // later ones are asked again each time
    MAX_FACTS = 2048, // a power of two; the program has some 400 kernels
    SHARED_BYTES = 0, // the fact's `what`: bytes allowed so far
    MPS_ENABLED = 133 // cudaDevAttrMpsEnabled, which older headers do not have
};

struct fact {
    const void *kernel; // NULL: a free row
    int device, what, value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_device devices[MAX_DEVICES]; // multiprocessors 0: not asked yet
static bool claimed[MAX_DEVICES];
static struct fact facts[MAX_FACTS];
static int n_facts;

static int current(void) {
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

static int attribute(int device, enum cudaDeviceAttr which) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

static struct cuda_device ask(int device) {
    struct cuda_device d = {
        .major = attribute(device, cudaDevAttrComputeCapabilityMajor),
        .minor = attribute(device, cudaDevAttrComputeCapabilityMinor),
        .multiprocessors = attribute(device, cudaDevAttrMultiProcessorCount),
        .shared_per_multiprocessor = attribute(device, cudaDevAttrMaxSharedMemoryPerMultiprocessor),
        .shared_per_block = attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin)};
    if (d.multiprocessors < 1) d.multiprocessors = 1;
    return d;
}

struct cuda_device cuda_current_device(void) {
    const int device = current();
    if (device < 0) return (struct cuda_device){.multiprocessors = 1};
    if (device >= MAX_DEVICES) return ask(device);
    pthread_mutex_lock(&lock);
    if (devices[device].multiprocessors == 0) devices[device] = ask(device);
    struct cuda_device d = devices[device];
    pthread_mutex_unlock(&lock);
    return d;
}

// The row of this key, or the free one where it belongs. Called with the lock held.
static struct fact *find(const void *kernel, int device, int what) {
    uint64_t h = (uint64_t)(uintptr_t)kernel * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(device * 64 + what)) * 0x9e3779b97f4a7c15u;
    for (uint64_t i = h >> 40;; i++) {
        struct fact *f = &facts[i % MAX_FACTS];
        if (!f->kernel || (f->kernel == kernel && f->device == device && f->what == what)) return f;
    }
}

bool cuda_kernel_fact(const void *kernel, int what, int *value) {
    pthread_mutex_lock(&lock);
    const struct fact *f = find(kernel, current(), what);
    const bool known = f->kernel;
    if (known) *value = f->value;
    pthread_mutex_unlock(&lock);
    return known;
}

void cuda_keep_kernel_fact(const void *kernel, int what, int value) {
    const int device = current();
    pthread_mutex_lock(&lock);
    struct fact *f = find(kernel, device, what);
    if (f->kernel || n_facts < MAX_FACTS / 2) { // a full table costs time, nothing else
        n_facts += !f->kernel;
        *f = (struct fact){kernel, device, what, value};
    }
    pthread_mutex_unlock(&lock);
}

void cuda_allow_shared(const void *kernel, size_t bytes) {
    int allowed = 0;
    if (cuda_kernel_fact(kernel, SHARED_BYTES, &allowed) && (size_t)allowed >= bytes) return;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
        cudaSuccess)
        cuda_keep_kernel_fact(kernel, SHARED_BYTES, (int)bytes);
}

bool cuda_claim_device(int device) {
    if (device < 0 || device >= MAX_DEVICES) return false;
    const bool shared = attribute(device, (enum cudaDeviceAttr)MPS_ENABLED) != 0;
    (void)cudaGetLastError(); // of a runtime that does not know it
    pthread_mutex_lock(&lock);
    const bool free = !shared && !claimed[device];
    if (free) claimed[device] = true;
    pthread_mutex_unlock(&lock);
    return free;
}

void cuda_disclaim_device(int device) {
    pthread_mutex_lock(&lock);
    claimed[device] = false;
    pthread_mutex_unlock(&lock);
}

// The room for a step's description on a device whose memory runs out (kernels/cuda/step.c). The CUDA runtime is a
// fake, so this needs no GPU.
#include <cuda_runtime.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int n_left, n_held; // allocations that succeed; those that are held
static cudaError_t last;   // the runtime's last error, which the next launch would report
static int n_copies;

static cudaError_t allocate(void **out, size_t bytes) {
    *out = NULL;
    if (n_left-- <= 0) return last = cudaErrorMemoryAllocation;
    *out = calloc(1, bytes);
    n_held++;
    return cudaSuccess;
}
static cudaError_t release(void *p) {
    n_held -= p != NULL;
    free(p);
    return cudaSuccess;
}
static cudaError_t make_event(cudaEvent_t *out, unsigned flags) {
    (void)flags;
    return allocate((void **)out, 1);
}
static cudaError_t host_alloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return allocate(out, bytes);
}
static cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                        cudaStream_t stream) {
    (void)kind, (void)stream;
    memcpy(to, from, n);
    n_copies++;
    return cudaSuccess;
}
static cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    return event ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
static cudaError_t last_error(void) {
    cudaError_t rc = last;
    last = cudaSuccess;
    return rc;
}
static cudaError_t set_device(int device) {
    (void)device;
    return cudaSuccess;
}

#define cudaHostAlloc host_alloc
#define cudaFreeHost release
#define cudaFree release
#define cudaEventCreateWithFlags make_event
#define cudaEventDestroy(event) release((void *)(event))
#define cudaEventRecord record
#define cudaMemcpyAsync copy
#define cudaGetLastError last_error
#define cudaSetDevice set_device
#define cuda_alloc fake_alloc
#define cuda_check fake_check
#define cuda_wait fake_wait
#define cuda_wait_event fake_wait_event
#include "kernels/cuda/step.c"

#include "base/log.h"

int fake_check(cudaError_t rc, const char *what) {
    return rc == cudaSuccess ? 0 : E_DEVICE;
}
int fake_alloc(void **out, size_t bytes, struct err *err) {
    if (allocate(out, bytes) == cudaSuccess) return 0;
    (void)last_error();
    return err_set(err, E_NOMEM, "no memory");
}
int fake_wait(struct cuda_backend *cuda, const char *what) {
    return 0;
}
int fake_wait_event(struct cuda_backend *cuda, cudaEvent_t event, const char *what) {
    return event ? 0 : E_DEVICE;
}

enum { FEW = 2, MANY = 6 };
static struct batch_seq seqs[MANY];
static int32_t zeros[MANY], blocks[1];

static const struct kv_map map = {.blocks = blocks, .n_ring_blocks = 1, .block_tokens = 8};

static int step_of(struct cuda_backend *cuda, int32_t n, const struct batch **run) {
    for (int32_t i = 0; i < n; i++)
        seqs[i] = (struct batch_seq){.first_row = i, .n_rows = 1, .memory_len = 8, .maps = &map};
    const struct batch b = {.n_rows = n,
                            .n_seqs = n,
                            .n_logits = n,
                            .ids = zeros,
                            .positions = zeros,
                            .logit_rows = zeros,
                            .seqs = seqs};
    return cuda_step_begin(&cuda->base, &b, run);
}

// A step that is too large fails for want of memory. The smaller steps after it run as before.
static void test_no_room_for_a_larger_step(void **state) {
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    const struct batch *run;
    struct err err = {0};
    for (int room = 0;; room++) {
        n_left = 100;
        assert_int_equal(cuda_step_reserve(cuda, 8, 4, 16, 1, &err), 0);
        assert_int_equal(step_of(cuda, FEW, &run), 0);
        n_left = room;
        int slot = cuda->step.slot, rc = step_of(cuda, MANY, &run);
        n_left = 0;
        n_copies = 0;
        assert_int_equal(step_of(cuda, FEW, &run), 0);
        assert_int_equal(run->n_rows, FEW);
        assert_int_equal(n_copies, 1);
        // The slots alternate: the last step's draws are in the other one (draws.c).
        assert_int_equal(cuda->step.slot == slot, rc == 0);
        if (rc == 0) break;
        assert_true(rc == E_NOMEM || rc == E_DEVICE); // E_DEVICE: no event
        assert_int_equal(last == cudaSuccess, rc == E_NOMEM);
        last = cudaSuccess;
        assert_int_equal(cuda->step.max_seqs, 4);
    }
    cuda_step_release(cuda);
    assert_int_equal(n_held, 0);
    free(cuda);
}

int main(void) {
    log_set_level(LOG_OFF);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_room_for_a_larger_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

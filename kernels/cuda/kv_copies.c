// Copies cache blocks to host memory and back, on a stream of their own, so that copies over the
// bus overlap with steps. In host memory a block holds its layers one after the other, in the arena
// (kv_store.c) they are apart. So the unit of a copy is a layer's part of a block, 16 to 256 KB.
// One call copies dozens of parts (cudaMemcpyBatchAsync): a call for each part, or for each block
// with its layers as rows, costs the host 3 us and leaves gaps between copies. Measured with parts
// of 64 KB in eight groups of layers: 52 GB/s in batches, 25 GB/s without.
//
// Whole blocks are copied as one group, and the engine polls until they are complete. A load with a
// step is copied in groups of layers; the steps' stream waits for an event after each group:
//
//   copies   | group 0 | group 1     | group 2    | group 3 ...
//                      v done 0      v done 1
//   steps    | ids, embed, qkv .. | layers of 0 | .. | layers of 1 | ...
//            ^ the step's description, copied first: the bus serves copies in order
//
// The host enqueues two groups ahead of the step's launches, not all groups before them: a long
// context has thousands of parts, each takes half a microsecond to enqueue, and this would delay
// the first layers' launches.
#include "kernels/cuda/backend_cuda.h"

enum { GROUPS_AHEAD = 2 };

static cudaError_t events_init(cudaEvent_t *events) {
    cudaError_t rc = cudaSuccess;
    for (int i = 0; i < CUDA_COPY_GROUPS && rc == cudaSuccess; i++)
        rc = cudaEventCreate(&events[i]);
    return rc;
}

static void events_release(cudaEvent_t *events) {
    for (int i = 0; i < CUDA_COPY_GROUPS; i++)
        if (events[i]) cudaEventDestroy(events[i]);
}

int cuda_kv_copies_init(struct cuda_backend *cuda, struct err *err) {
    struct cuda_copies *c = &cuda->copies;
    if (c->stream) return 0;
    cudaError_t rc = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&c->stepped, cudaEventDisableTiming);
    if (rc == cudaSuccess) rc = events_init(c->begun);
    if (rc == cudaSuccess) rc = events_init(c->done);
    if (rc == cudaSuccess) rc = events_init(c->held);
    if (rc == cudaSuccess) rc = events_init(c->went_on);
    if (rc == cudaSuccess) return 0;
    cuda_kv_copies_release(cuda);
    return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
}

void cuda_kv_copies_finish(struct cuda_backend *cuda) {
    if (!cuda->copies.stream) return;
    (void)cuda_wait(cuda, "the last step"); // which copies wait for
    cudaStreamSynchronize(cuda->copies.stream);
}

void cuda_kv_copies_release(struct cuda_backend *cuda) {
    struct cuda_copies *c = &cuda->copies;
    cuda_kv_copies_finish(cuda);
    events_release(c->begun);
    events_release(c->done);
    events_release(c->held);
    events_release(c->went_on);
    if (c->stepped) cudaEventDestroy(c->stepped);
    if (c->stream) cudaStreamDestroy(c->stream);
    *c = (struct cuda_copies){0};
}

// Copies start after all work that the steps' stream holds now.
static int begin(struct cuda_backend *cuda, const struct kv_store *kv, const int32_t *blocks,
                 int32_t n, int n_groups) {
    struct cuda_copies *c = &cuda->copies;
    for (int32_t i = 0; i < n; i++) {
        if (blocks[i] < 0 || blocks[i] >= kv->n_blocks) return E_INVAL;
    }
    CUDA_TRY(cudaSetDevice(cuda->device)); // as in cuda_step_begin
    CUDA_TRY(cudaEventRecord(c->stepped, cuda->stream));
    CUDA_TRY(cudaStreamWaitEvent(c->stream, c->stepped, 0));
    c->n_groups = n_groups;
    c->n_begun = c->n_waited = 0;
    return 0;
}

// A group's first piece of a block (a layer's part); for the group after the last: their number.
static int32_t first_layer(const struct cuda_copies *c, const struct kv_store *kv, int group) {
    return (int32_t)((int64_t)group * cuda_pieces_of(kv).n / c->n_groups);
}

// Copies in any order. With an older toolkit: one call each.
static int copy_parts(struct cuda_copies *c, enum cudaMemcpyKind kind) {
    size_t n = c->n_parts;
    c->n_parts = 0;
#if CUDART_VERSION >= 13000
    (void)kind;
    struct cudaMemcpyAttributes as = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    size_t first = 0;
    return cuda_check(cudaMemcpyBatchAsync(c->to, c->from, c->bytes, n, &as, &first, 1, c->stream),
                      "cudaMemcpyBatchAsync");
#else
    for (size_t i = 0; i < n; i++)
        CUDA_TRY(cudaMemcpyAsync(c->to[i], c->from[i], c->bytes[i], kind, c->stream));
    return 0;
#endif
}

// Enqueues the next group.
static int begin_group(struct cuda_backend *cuda, const struct kv_store *kv, void *const *host,
                       const int32_t *blocks, int32_t n, enum cudaMemcpyKind kind) {
    struct cuda_copies *c = &cuda->copies;
    const struct cuda_pieces p = cuda_pieces_of(kv);
    CUDA_TRY(cudaEventRecord(c->begun[c->n_begun], c->stream));
    c->n_parts = 0;
    for (int32_t l = first_layer(c, kv, c->n_begun); l < first_layer(c, kv, c->n_begun + 1); l++) {
        for (int32_t i = 0; i < n; i++) {
            char *here = (char *)kv->data + (size_t)l * p.apart + (size_t)blocks[i] * p.block;
            char *there = (char *)host[i] + (size_t)l * p.bytes;
            bool save = kind == cudaMemcpyDeviceToHost;
            c->to[c->n_parts] = save ? there : here;
            c->from[c->n_parts] = save ? here : there;
            c->bytes[c->n_parts] = p.bytes;
            if (++c->n_parts == CUDA_COPY_PARTS) TRY(copy_parts(c, kind));
        }
    }
    if (c->n_parts) TRY(copy_parts(c, kind));
    CUDA_TRY(cudaEventRecord(c->done[c->n_begun], c->stream));
    c->n_begun++;
    c->running = true;
    return 0;
}

int cuda_kv_blocks_save(struct backend *be, const struct kv_store *kv, void *const *host,
                        const int32_t *blocks, int32_t n) {
    TRY(begin(cuda_of(be), kv, blocks, n, 1));
    return begin_group(cuda_of(be), kv, host, blocks, n, cudaMemcpyDeviceToHost);
}

int cuda_kv_blocks_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                        void *const *host, int32_t n) {
    TRY(begin(cuda_of(be), kv, blocks, n, 1));
    return begin_group(cuda_of(be), kv, host, blocks, n, cudaMemcpyHostToDevice);
}

// --- with a step ---------------------------------------------------------------------------------

static int begin_next(struct cuda_backend *cuda) {
    struct cuda_copies *c = &cuda->copies;
    const struct kv_load *l = c->load;
    if (c->n_begun == c->n_groups) return 0;
    return begin_group(cuda, l->kv, l->host, l->blocks, l->n, cudaMemcpyHostToDevice);
}

int cuda_kv_load_begin(struct cuda_backend *cuda, const struct kv_load *load) {
    // With several cache groups, a piece's number says nothing about when its layer's turn comes.
    int32_t layers = cuda->step.n_groups > 1 ? 1 : cuda_pieces_of(load->kv).n;
    TRY(begin(cuda, load->kv, load->blocks, load->n,
              layers < CUDA_COPY_GROUPS ? layers : CUDA_COPY_GROUPS));
    cuda->copies.load = load;
    for (int i = 0; i < GROUPS_AHEAD; i++) TRY(begin_next(cuda));
    return 0;
}

int cuda_kv_layer_wait(struct backend *be, int32_t layer) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_copies *c = &cuda->copies;
    while (c->load && c->n_waited < c->n_groups &&
           first_layer(c, c->load->kv, c->n_waited) <= layer) {
        int g = c->n_waited;
        CUDA_TRY(cudaEventRecord(c->held[g], cuda->stream));
        CUDA_TRY(cudaStreamWaitEvent(cuda->stream, c->done[g], 0));
        CUDA_TRY(cudaEventRecord(c->went_on[g], cuda->stream));
        c->n_waited++;
        TRY(begin_next(cuda));
    }
    return 0;
}

// After a failed step, copies that were enqueued still run; no further ones start.
void cuda_kv_load_end(struct cuda_backend *cuda) {
    cuda->copies.load = NULL;
}

// --- results -------------------------------------------------------------------------------------

// Clears the pending error code: "not ready" is none.
static bool not_ready(cudaError_t rc) {
    if (rc != cudaErrorNotReady) return false;
    (void)cudaGetLastError();
    return true;
}

static int add_elapsed(int64_t *us, cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, from, to));
    *us += (int64_t)((double)ms * 1e3 + 0.5);
    return 0;
}

int cuda_kv_copies_done(struct backend *be, bool wait, struct kv_copied *how) {
    struct cuda_copies *c = &cuda_of(be)->copies;
    if (!c->running) return 1;
    cudaEvent_t last = c->done[c->n_begun - 1];
    if (wait) TRY(cuda_wait_event(cuda_of(be), last, "a copy of blocks"));
    cudaError_t rc = cudaEventQuery(last);
    if (not_ready(rc)) return 0;
    c->running = false;
    CUDA_TRY(rc);
    for (int g = 0; g < c->n_groups && c->n_begun == c->n_groups; g++)
        TRY(add_elapsed(&how->took_us, c->begun[g], c->done[g]));
    // A wait that the steps' stream has not reached yet will not block: the copies are complete.
    for (int g = 0; g < c->n_waited; g++) {
        rc = cudaEventQuery(c->went_on[g]);
        if (not_ready(rc)) break;
        CUDA_TRY(rc);
        TRY(add_elapsed(&how->held_us, c->held[g], c->went_on[g]));
    }
    return 1;
}

// Buffers for a step's draws. draw.cu draws, into the host's memory: a copy behind it would take the
// device some microseconds of each step.
#include "kernels/cuda/backend_cuda.h"
#include <string.h>

enum { ADJUSTED_TOKENS = 256 * 1024 };

int cuda_op_logits_read(struct backend *be, float *host, const void *logits, int32_t n,
                        int32_t vocab) {
    return cuda_mem_read(be, host, logits, (size_t)n * (size_t)vocab * sizeof(float));
}

int cuda_op_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                 int32_t vocab) {
    struct cuda_backend *cuda = cuda_of(be);
    if (n > cuda->drawn.max) return 0; // more rows than sequences: none is drawn
    return cuda_draw(&cuda->drawn, logits, cuda->step.draws, n, vocab, cuda->draw_work,
                     cuda->stream);
}

static int take_drawn(const struct cuda_backend *cuda, struct batch_drawn *out, int32_t n,
                      int slot) {
    if (n > cuda->drawn.max) return E_INVAL;
    memcpy(out, cuda->drawn.host + (size_t)slot * (size_t)cuda->drawn.max, (size_t)n * sizeof *out);
    return 0;
}

int cuda_op_draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    cuda_idle_step_ends(cuda);
    TRY(cuda_wait(cuda, "a step's draws"));
    return take_drawn(cuda, out, n, cuda->step.slot);
}

int cuda_op_draws_read_before(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    TRY(cuda_wait_event(cuda, cuda->drawn_before, "a step's draws"));
    return take_drawn(cuda, out, n, 1 - cuda->step.slot);
}

// --- draws that change the logits ----------------------------------------------------------------

// Where the next bytes of the step's changes go, or NULL: no room.
static void *take(struct cuda_adjustments *s, size_t bytes) {
    if (s->end + bytes > s->bytes) return NULL;
    void *here = s->pinned + s->end;
    s->end += (bytes + 15) & ~(size_t)15;
    return here;
}

// Copies `bytes` and returns where the device will have them, or NULL where there is no room.
static const void *stage(struct cuda_adjustments *s, const void *from, size_t bytes) {
    void *to = take(s, bytes);
    if (!to) return NULL;
    memcpy(to, from, bytes);
    return s->device + ((char *)to - s->pinned);
}

// A mask that several rows have is copied once.
static const void *stage_mask(struct cuda_adjustments *s, const struct batch_adjusted *a,
                              size_t words) {
    bool with_ends = a->n_ends > 0;
    struct cuda_shared_mask *known =
        &s->masks[(2 * a->allowed_serial + with_ends) % CUDA_SHARED_MASKS];
    bool same = known->serial == a->allowed_serial && known->with_ends == with_ends;
    if (a->allowed_serial && same) return known->device;
    uint64_t *bits = take(s, words * sizeof *bits);
    if (!bits) return NULL;
    memcpy(bits, a->allowed, words * sizeof *bits);
    for (int32_t i = 0; i < a->n_ends; i++)
        if (a->ends[i] >= 0 && (size_t)a->ends[i] < words * 64)
            bits[a->ends[i] / 64] |= (uint64_t)1 << a->ends[i] % 64;
    const void *device = s->device + ((char *)bits - s->pinned);
    if (a->allowed_serial) *known = (struct cuda_shared_mask){a->allowed_serial, with_ends, device};
    return device;
}

static size_t table_bytes(const struct cuda_backend *cuda) {
    return (size_t)cuda->step.max_seqs * sizeof(struct cuda_adjusted);
}

// The last step's copy has ended: its draws were read, and draws_read waits.
int cuda_op_draw_adjust(struct backend *be, const struct batch_adjusted *a, int32_t vocab) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_adjustments *s = &cuda->adjustments;
    if (a->row < 0 || a->row >= cuda->step.max_seqs) return E_INVAL;
    if (vocab > CUDA_ADJUSTED_VOCAB || s->n == cuda->step.max_seqs) return OP_DECLINED;
    if (s->n == 0) {
        s->end = table_bytes(cuda);
        memset(s->masks, 0, sizeof s->masks);
    }
    size_t before = s->end, words = (size_t)(vocab + 63) / 64;
    struct cuda_adjusted one = {
        .row = a->row,
        .draw = a->draw,
        .repetition = a->repetition,
        .presence = a->presence,
        .frequency = a->frequency,
        .n_penalties = a->n_penalties,
        .n_biases = a->n_biases,
        .biases_distinct = a->biases_distinct,
    };
    one.penalties = stage(s, a->penalties, (size_t)a->n_penalties * sizeof *a->penalties);
    one.biases = stage(s, a->biases, (size_t)a->n_biases * sizeof *a->biases);
    if (a->allowed) one.allowed = stage_mask(s, a, words);
    if (!one.penalties || !one.biases || (a->allowed && !one.allowed)) {
        s->end = before;
        return OP_DECLINED;
    }
    memcpy(s->pinned + (size_t)s->n++ * sizeof one, &one, sizeof one);
    return 0;
}

int cuda_op_draw_adjusted(struct backend *be, const float *logits, int32_t vocab) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_adjustments *s = &cuda->adjustments;
    int32_t n = s->n;
    s->n = 0;
    if (n == 0) return 0;
    // 64 masks of 128k tokens are 1 MB: some 40 us, if the draws waited for a copy behind the step.
    CUDA_TRY(cudaMemcpyAsync(s->device, s->pinned, s->end, cudaMemcpyHostToDevice, s->stream));
    CUDA_TRY(cudaEventRecord(s->copied, s->stream));
    CUDA_TRY(cudaStreamWaitEvent(cuda->stream, s->copied, 0));
    return cuda_draw_adjusted(&cuda->drawn, logits, (const struct cuda_adjusted *)s->device, n,
                              vocab, s->work, cuda->stream);
}

// Room for a mask of each row, and for ADJUSTED_TOKENS penalties and biases of all rows together.
static int reserve_adjustments(struct cuda_backend *cuda, const struct step_limits *l,
                               struct err *err) {
    struct cuda_adjustments *s = &cuda->adjustments;
    if (l->vocab > CUDA_ADJUSTED_VOCAB) return 0;
    size_t mask = (size_t)(l->vocab + 63) / 64 * sizeof(uint64_t) + 16;
    s->bytes = (size_t)l->max_seqs * (sizeof(struct cuda_adjusted) + mask + 32) +
               ADJUSTED_TOKENS * sizeof(struct batch_penalty);
    cudaError_t rc = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming);
    if (rc != cudaSuccess)
        return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
    TRY(cuda_host_alloc(&cuda->base, s->bytes, (void **)&s->pinned, err));
    TRY(cuda_alloc((void **)&s->device, s->bytes, err));
    return cuda_alloc(&s->work, cuda_draw_adjusted_work_bytes(l->vocab), err);
}

// --- memory --------------------------------------------------------------------------------------

int cuda_draws_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err) {
    struct cuda_drawn *d = &cuda->drawn;
    const size_t n = (size_t)l->max_seqs;
    cuda_draws_release(cuda);
    d->max = l->max_seqs;
    TRY(cuda_host_alloc(&cuda->base, CUDA_STEP_SLOTS * n * sizeof *d->host, (void **)&d->host,
                        err));
    // An even number: cuda_share_draws sends pairs.
    TRY(cuda_alloc((void **)&d->ids, (n + 1) / 2 * 2 * sizeof *d->ids, err));
    CUDA_TRY(cudaEventCreateWithFlags(&cuda->drawn_before, cudaEventDisableTiming));
    TRY(cuda_alloc(&cuda->draw_work, cuda_draw_work_bytes(l->max_seqs, l->vocab), err));
    return reserve_adjustments(cuda, l, err);
}

void cuda_draws_release(struct cuda_backend *cuda) {
    cudaFree(cuda->draw_work);
    cuda_host_free(&cuda->base, cuda->drawn.host);
    cudaFree(cuda->drawn.ids);
    cuda->drawn = (struct cuda_drawn){.slot = cuda->drawn.slot};
    if (cuda->drawn_before) cudaEventDestroy(cuda->drawn_before);
    cuda->drawn_before = NULL;
    cuda->draw_work = NULL;
    struct cuda_adjustments *s = &cuda->adjustments;
    if (s->stream) cudaStreamSynchronize(s->stream);
    if (s->copied) cudaEventDestroy(s->copied);
    if (s->stream) cudaStreamDestroy(s->stream);
    cuda_host_free(&cuda->base, s->pinned);
    cudaFree(s->device);
    cudaFree(s->work);
    *s = (struct cuda_adjustments){0};
}

// Buffers for a step's draws, and their copies to the host. draw.cu draws.
#include "kernels/cuda/backend_cuda.h"
#include <string.h>

int cuda_op_logits_read(struct backend *be, float *host, const void *logits, int32_t n,
                        int32_t vocab) {
    return cuda_mem_read(be, host, logits, (size_t)n * (size_t)vocab * sizeof(float));
}

int cuda_op_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                 int32_t vocab) {
    struct cuda_backend *cuda = cuda_of(be);
    if (n > cuda->step.max_seqs) return 0; // more rows than sequences: none is drawn
    return cuda_draw(cuda->drawn, logits, cuda->step.draws, n, vocab, cuda->draw_work,
                     cuda->stream);
}

int cuda_op_draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    TRY(cuda_mem_read(be, cuda->drawn_host, cuda->drawn, (size_t)n * sizeof *out));
    memcpy(out, cuda->drawn_host, (size_t)n * sizeof *out);
    return 0;
}

int cuda_draws_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err) {
    size_t bytes = (size_t)l->max_seqs * sizeof *cuda->drawn;
    cuda_draws_release(cuda);
    TRY(cuda_alloc((void **)&cuda->drawn, bytes, err));
    TRY(cuda_host_alloc(&cuda->base, bytes, (void **)&cuda->drawn_host, err));
    return cuda_alloc(&cuda->draw_work, cuda_draw_work_bytes(l->max_seqs, l->vocab), err);
}

void cuda_draws_release(struct cuda_backend *cuda) {
    cudaFree(cuda->drawn);
    cudaFree(cuda->draw_work);
    cuda_host_free(&cuda->base, cuda->drawn_host);
    cuda->drawn = cuda->drawn_host = NULL;
    cuda->draw_work = NULL;
}

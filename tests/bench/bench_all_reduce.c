// The sum over the ranks of an instance as a step runs it (kernels/cuda/ranks.h), beside NCCL's: the time for one, inside
// a recorded graph of many, each behind the one before. One process for each GPU, as in an instance.
//
//     make bench-all_reduce ARGS="[RANKS [FIRST GPU]]"       2 ranks from GPU 0 on
//
// Each size is compared first: a sum must be that of the parts, in F32 and rank order, rounded once. Exits with 1 where
// it is not. "late": the same on rank 0 when it starts 2 ms after the others. They wait for its first sum, and no later
// sum may take longer for that.
#include "base/dtype.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/peers.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    RANKS_MAX = 8,
    EXCHANGE_BYTES = 4096,
    SUMS = 100,   // in a graph
    REPLAYS = 31, // of which the median is shown
    LATE_NS = 2000000,
    LEAST = 1 << 12,
    MOST = 1 << 24, // bytes
};

struct world { // shared by the ranks' processes
    pthread_barrier_t met;
    char sent[RANKS_MAX][EXCHANGE_BYTES];
};
struct rank {
    struct world *w;
    int32_t me, n;
    struct backend *be;
    cudaStream_t stream;
    struct nccl_group nccl;
    uint16_t *x, *host;
    bool wrong;
};

static void must(int rc, const char *what, const struct err *err) {
    if (rc >= 0) return;
    fprintf(stderr, "%s: %s\n", what, err && err->code < 0 ? err->text : "failed");
    exit(1); // the others are ended by the parent
}
#define MUST(call) must((call) == cudaSuccess ? 0 : -1, #call, NULL)

static int exchange(void *ctx, const void *mine, void *all, size_t each) {
    struct rank *r = ctx;
    if (each > EXCHANGE_BYTES) return E_UNSUPPORTED;
    memcpy(r->w->sent[r->me], mine, each);
    pthread_barrier_wait(&r->w->met);
    for (int32_t i = 0; i < r->n; i++) memcpy((char *)all + (size_t)i * each, r->w->sent[i], each);
    pthread_barrier_wait(&r->w->met);
    return 0;
}
static int check(void *ctx, int64_t waited_us) {
    return waited_us < 20000000 ? 0 : E_DEVICE;
}

static float part_of(int32_t rank,
                     int64_t i) { // between -1 and 1, and of bf16's values only by rounding
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(rank + 1) * 40503u;
    h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15;
    return (float)(int32_t)h * 4.656613e-10f;
}

static int sum(struct rank *r, bool by_nccl, int64_t n) {
    if (by_nccl) return nccl_sum(&r->nccl, r->x, DTYPE_BF16, n, r->stream);
    return r->be->ops->all_reduce(r->be, r->x, n);
}

static void compare(struct rank *r, int64_t n) {
    for (int64_t i = 0; i < n; i++) r->host[i] = bf16_from_f32(part_of(r->me, i));
    MUST(cudaMemcpy(r->x, r->host, (size_t)n * 2, cudaMemcpyHostToDevice));
    must(sum(r, false, n), "the sum", NULL);
    MUST(cudaStreamSynchronize(r->stream));
    MUST(cudaMemcpy(r->host, r->x, (size_t)n * 2, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n && !r->wrong; i++) {
        float s = 0;
        for (int32_t k = 0; k < r->n; k++) s += bf16_to_f32(bf16_from_f32(part_of(k, i)));
        r->wrong = r->host[i] != bf16_from_f32(s);
        if (r->wrong)
            fprintf(stderr, "rank %d, element %lld of %lld: not the sum of the parts\n", r->me,
                    (long long)i, (long long)n);
    }
}

static int by_size(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static double microseconds(struct rank *r, bool by_nccl, bool late, int64_t n) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begun, done;
    float ms[REPLAYS];
    MUST(cudaMemset(r->x, 0, (size_t)n * 2)); // sums of sums must stay finite
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventCreate(&begun));
    MUST(cudaEventCreate(&done));
    MUST(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeRelaxed));
    for (int32_t i = 0; i < SUMS; i++) must(sum(r, by_nccl, n), "the sum", NULL);
    MUST(cudaStreamEndCapture(r->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int32_t i = -3; i < REPLAYS; i++) {
        pthread_barrier_wait(&r->w->met);
        if (late && r->me == 0) nanosleep(&(struct timespec){0, LATE_NS}, NULL);
        MUST(cudaEventRecord(begun, r->stream));
        MUST(cudaGraphLaunch(exec, r->stream));
        MUST(cudaEventRecord(done, r->stream));
        MUST(cudaStreamSynchronize(r->stream));
        if (i >= 0) MUST(cudaEventElapsedTime(&ms[i], begun, done));
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaEventDestroy(begun));
    MUST(cudaEventDestroy(done));
    qsort(ms, REPLAYS, sizeof ms[0], by_size);
    return ms[REPLAYS / 2] * 1000 / SUMS;
}

static int run(struct world *w, int32_t me, int32_t n, int32_t first_gpu) {
    struct rank r = {.w = w, .me = me, .n = n};
    struct err err = {0};
    // Deterministic: the own kernels at every size.
    const struct backend_cuda_options o = {
        .device = first_gpu + me, .compute = DTYPE_BF16, .deterministic = true};
    const struct rank_links l = {.rank = me,
                                 .n_ranks = n,
                                 .tp_rank = me,
                                 .tp_size = n,
                                 .before = -1,
                                 .after = -1,
                                 .exchange = exchange,
                                 .check = check,
                                 .ctx = &r};
    char id[NCCL_ID_BYTES] = "", ids[RANKS_MAX][NCCL_ID_BYTES];
    must(backend_cuda_open(&r.be, &o, &err), "the GPU", &err);
    must(r.be->ops->ranks_open(r.be, &l, &err), "the ranks", &err);
    r.stream = ((struct cuda_backend *)r.be)->stream;
    if (me == 0) must(nccl_make_id(id, &err), "NCCL", &err);
    (void)exchange(&r, id, ids, sizeof id);
    must(nccl_join(&r.nccl, ids[0], n, me, &l, &err), "NCCL", &err);
    MUST(cudaMalloc((void **)&r.x, MOST));
    r.host = malloc(MOST);
    if (!r.host) return 1;
    if (me == 0)
        printf("%d GPUs, bf16, microseconds for a sum\n%10s %10s %10s %10s\n", n, "bytes", "Parley",
               "late", "NCCL");
    for (int64_t bytes = LEAST; bytes <= MOST; bytes *= 2) {
        compare(&r, bytes / 2);
        const double own = microseconds(&r, false, false, bytes / 2),
                     late = microseconds(&r, false, true, bytes / 2),
                     theirs = microseconds(&r, true, false, bytes / 2);
        if (me == 0)
            printf("%10lld %10.2f %10.2f %10.2f\n", (long long)bytes, own, late, theirs),
                fflush(stdout);
    }
    pthread_barrier_wait(&w->met);
    _exit(r.wrong);
}

int main(int argc, char **argv) {
    const int32_t n = argc > 1 ? atoi(argv[1]) : 2, first_gpu = argc > 2 ? atoi(argv[2]) : 0;
    if (n < 2 || n > RANKS_MAX || first_gpu < 0) {
        fprintf(stderr, "usage: bench_all_reduce [RANKS [FIRST GPU]], with 2 to %d ranks\n",
                RANKS_MAX);
        return 2;
    }
    struct world *w =
        mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    if (w == MAP_FAILED) return 1;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&w->met, &shared, (unsigned)n);
    pid_t ranks[RANKS_MAX];
    for (int32_t i = 0; i < n; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) return run(w, i, n, first_gpu);
    }
    bool failed = false;
    for (int32_t i = 0, status; i < n; i++) {
        if (wait(&status) < 0 || status == 0) continue;
        for (int32_t k = 0; k < n && !failed; k++)
            kill(ranks[k], SIGKILL); // they would wait for the one that failed
        failed = true;
    }
    return failed;
}

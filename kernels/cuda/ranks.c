// See ranks.h.
#include "kernels/cuda/ranks.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/peers.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 2000,             // polls before the clock is read
    LOOK_US = 50000,          // between looks at the other ranks; from then on polls nap
    DRAIN_US = 10000000,      // at most, for kernels whose ranks were abandoned
    SCRATCH_BYTES = 32 << 20, // of gathers over NCCL
    EPOCHS = 3 * PEERS_BLOCKS + PEERS_WIDE_BLOCKS,
};

struct cuda_ranks {
    struct rank_links links;
    bool has_peers, has_nccl, lost;
    // Where other ranks write: of `stage` (the small way, then the wide), of `before`, of `after`.
    char *memory;
    uint32_t *epochs;    // (3, PEERS_BLOCKS), then (PEERS_WIDE_BLOCKS), then the channels' `lost`
    uint32_t *abandoned; // pinned
    struct peer_channel stage, before, after;
    struct nccl_group stage_group, world_group;
    char *scratch; // (SCRATCH_BYTES)
    void **from;   // (tp_size) of a gather
    size_t *bytes; // (tp_size)
};

// --- waiting -------------------------------------------------------------------------------------

static void abandon(struct cuda_ranks *r) {
    r->lost = true;
    *(volatile uint32_t *)r->abandoned = 1;
    nccl_abort(&r->stage_group);
    nccl_abort(&r->world_group);
}

static cudaError_t query(struct cuda_backend *cuda, cudaEvent_t event) {
    cudaError_t rc = event ? cudaEventQuery(event) : cudaStreamQuery(cuda->stream);
    if (rc == cudaErrorNotReady) (void)cudaGetLastError();
    return rc;
}

static int drain(struct cuda_backend *cuda) {
    const int64_t began = clock_mono_us(&clock_system);
    while (query(cuda, NULL) == cudaErrorNotReady) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (clock_mono_us(&clock_system) - began < DRAIN_US) continue;
        log_error("cuda.ranks_stuck", "why=\"kernels that wait for other ranks do not end\"");
        break;
    }
    return E_DEVICE;
}

static int poll(struct cuda_backend *cuda, cudaEvent_t event, const char *what) {
    struct cuda_ranks *r = cuda->ranks;
    int64_t began = 0, looked = 0;
    for (int64_t i = 0; !r->lost; i++) {
        cudaError_t rc = query(cuda, event);
        if (rc != cudaErrorNotReady) return cuda_check(rc, what);
        if (i < SPINS) continue;
        int64_t now = clock_mono_us(&clock_system);
        if (began == 0) began = looked = now;
        sched_yield();
        if (now - looked < LOOK_US) continue;
        looked = now;
        if (r->links.check(r->links.ctx, now - began) < 0 || nccl_failed(&r->stage_group) ||
            nccl_failed(&r->world_group))
            abandon(r);
    }
    return drain(cuda);
}

int cuda_wait(struct cuda_backend *cuda, const char *what) {
    if (cuda->ranks) return poll(cuda, NULL, what);
    return cuda_check(cudaStreamSynchronize(cuda->stream), what);
}

int cuda_wait_event(struct cuda_backend *cuda, cudaEvent_t event, const char *what) {
    if (cuda->ranks) return poll(cuda, event, what);
    return cuda_check(cudaEventSynchronize(event), what);
}

// --- opening -------------------------------------------------------------------------------------

struct card { // what ranks tell each other; no byte is undefined
    char host[112], gpu[16];
    int32_t nccl, pad_;
    cudaIpcMemHandle_t memory;
    char stage_id[NCCL_ID_BYTES], world_id[NCCL_ID_BYTES];
};

struct verdict {
    int32_t code;
    char text[300];
};

// Whether all ranks succeeded, and the first one's error that did not.
static int agree(struct cuda_ranks *r, int rc, const struct err *mine, struct err *err) {
    const struct rank_links *l = &r->links;
    struct verdict v = {.code = rc}, *all = calloc((size_t)l->n_ranks, sizeof *all);
    if (!all) return err_set(err, E_NOMEM, "no memory for %d ranks", l->n_ranks);
    snprintf(v.text, sizeof v.text, "%.299s", rc < 0 ? mine->text : "");
    int sent = l->exchange(l->ctx, &v, all, sizeof v);
    if (sent < 0) err_set(err, sent, "the ranks were lost while their GPUs were connected");
    for (int32_t i = 0; sent == 0 && i < l->n_ranks; i++)
        if (all[i].code < 0) sent = err_set(err, all[i].code, "rank %d: %s", i, all[i].text);
    free(all);
    return sent;
}

static size_t pair_at(const struct rank_links *l, bool after) {
    return peer_channel_bytes(l->tp_size) + peer_wide_bytes(l->tp_size) +
           (after ? peer_channel_bytes(2) : 0);
}

static int reserve(struct cuda_backend *cuda, struct cuda_ranks *r, struct err *err) {
    const size_t bytes = pair_at(&r->links, true) + peer_channel_bytes(2);
    const size_t epochs = (EPOCHS + 1) * sizeof *r->epochs;
    TRY(cuda_alloc((void **)&r->memory, bytes, err));
    TRY(cuda_alloc((void **)&r->epochs, epochs, err));
    TRY(cuda_alloc((void **)&r->scratch, SCRATCH_BYTES, err));
    TRY(cuda_host_alloc(&cuda->base, sizeof *r->abandoned, (void **)&r->abandoned, err));
    r->from = calloc((size_t)r->links.tp_size, sizeof *r->from);
    r->bytes = calloc((size_t)r->links.tp_size, sizeof *r->bytes);
    if (!r->from || !r->bytes) return err_set(err, E_NOMEM, "no memory for the ranks");
    *r->abandoned = 0;
    // Epochs begin at 1: zeroed memory holds none.
    uint32_t *ones = malloc(epochs);
    if (!ones) return err_set(err, E_NOMEM, "no memory for the ranks");
    for (size_t i = 0; i < EPOCHS; i++) ones[i] = 1;
    ones[EPOCHS] = 0;
    int rc = cuda_check(cudaMemset(r->memory, 0, bytes), "cudaMemset");
    if (rc == 0) rc = cuda_mem_write(&cuda->base, r->epochs, ones, epochs);
    if (rc == 0) rc = cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    free(ones);
    return rc < 0 ? err_set(err, rc, "the GPU's memory for other ranks cannot be written") : 0;
}

// The host as NCCL tells hosts from each other: NCCL_HOSTID makes one of several.
static int describe(struct cuda_backend *cuda, struct cuda_ranks *r, struct card *c,
                    struct err *err) {
    struct stat ns = {0};
    struct cudaDeviceProp p;
    char name[64] = "";
    const char *id = getenv("NCCL_HOSTID");
    const struct rank_links *l = &r->links;
    gethostname(name, sizeof name - 1);
    (void)stat("/proc/self/ns/pid", &ns);
    snprintf(c->host, sizeof c->host, "%s %llu %.20s", name, (unsigned long long)ns.st_ino,
             id ? id : "");
    if (cudaGetDeviceProperties(&p, cuda->device) != cudaSuccess)
        return err_set(err, E_DEVICE, "GPU %d does not say what it is", cuda->device);
    memcpy(c->gpu, p.uuid.bytes, sizeof c->gpu);
    c->nccl = nccl_version();
    if (cudaIpcGetMemHandle(&c->memory, r->memory) != cudaSuccess)
        (void)cudaGetLastError(); // zeros, which the others cannot map
    if (c->nccl && l->tp_rank == 0) TRY(nccl_make_id(c->stage_id, err));
    if (c->nccl && l->rank == 0) TRY(nccl_make_id(c->world_id, err));
    return 0;
}

static bool one_host(const struct card *cards, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        if (strcmp(cards[i].host, cards[0].host) != 0) return false;
    return true;
}

static bool share_gpu(const struct card *cards, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (strcmp(cards[i].host, cards[k].host) == 0 &&
                memcmp(cards[i].gpu, cards[k].gpu, sizeof cards[i].gpu) == 0)
                return true;
    return false;
}

static int map(char **out, const struct card *of, int32_t rank, size_t at, struct err *err) {
    void *p = NULL;
    cudaError_t rc = cudaIpcOpenMemHandle(&p, of->memory, cudaIpcMemLazyEnablePeerAccess);
    if (rc == cudaSuccess) return *out = (char *)p + at, 0;
    (void)cudaGetLastError();
    return err_set(err, E_UNSUPPORTED, "the memory of rank %d's GPU cannot be reached: %s", rank,
                   cudaGetErrorString(rc));
}

static void unmap(char **memory, size_t at) {
    if (*memory) cudaIpcCloseMemHandle(*memory - at);
    *memory = NULL;
}

// A pair's first rank is the one of the earlier stage.
static int map_pair(struct cuda_ranks *r, struct peer_channel *c, const struct card *cards,
                    int32_t other, bool after, struct err *err) {
    const struct rank_links *l = &r->links;
    if (other < 0) return 0;
    *c = (struct peer_channel){.n = 2,
                               .me = !after,
                               .epochs = r->epochs + (after ? 2 : 1) * PEERS_BLOCKS,
                               .abandoned = r->abandoned,
                               .lost = r->epochs + EPOCHS};
    c->memory[c->me] = r->memory + pair_at(l, after);
    return map(&c->memory[!c->me], &cards[other], other, pair_at(l, !after), err);
}

static int map_peers(struct cuda_ranks *r, const struct card *cards, struct err *err) {
    const struct rank_links *l = &r->links;
    r->stage = (struct peer_channel){.n = l->tp_size,
                                     .me = l->tp_rank,
                                     .epochs = r->epochs,
                                     .abandoned = r->abandoned,
                                     .lost = r->epochs + EPOCHS};
    r->stage.wide_epochs = r->epochs + 3 * PEERS_BLOCKS;
    r->stage.memory[l->tp_rank] = r->memory;
    for (int32_t i = 0; i < l->tp_size; i++)
        if (i != l->tp_rank)
            TRY(map(&r->stage.memory[i], &cards[l->first_tp + i], l->first_tp + i, 0, err));
    for (int32_t i = 0; i < l->tp_size; i++)
        r->stage.wide[i] = r->stage.memory[i] + peer_channel_bytes(l->tp_size);
    TRY(map_pair(r, &r->before, cards, l->before, false, err));
    return map_pair(r, &r->after, cards, l->after, true, err);
}

static void unmap_peers(struct cuda_ranks *r) {
    const struct rank_links *l = &r->links;
    for (int32_t i = 0; i < r->stage.n; i++)
        if (i != r->stage.me) unmap(&r->stage.memory[i], 0);
    if (r->before.n) unmap(&r->before.memory[0], pair_at(l, true));
    if (r->after.n) unmap(&r->after.memory[1], pair_at(l, false));
    r->stage.n = r->before.n = r->after.n = 0;
    r->has_peers = false;
}

static int join_nccl(struct cuda_ranks *r, const struct card *cards, struct err *err) {
    const struct rank_links *l = &r->links;
    if (l->tp_size > 1)
        TRY(nccl_join(&r->stage_group, cards[l->first_tp].stage_id, l->tp_size, l->tp_rank, l,
                      err));
    if (l->n_ranks == l->tp_size) return 0;
    return nccl_join(&r->world_group, cards[0].world_id, l->n_ranks, l->rank, l, err);
}

static int lacks_nccl(const struct card *cards, int32_t n, struct err *err) {
    for (int32_t i = 0; i < n; i++)
        if (cards[i].nccl == 0)
            return err_set(err, E_UNSUPPORTED,
                           "rank %d (%.*s) finds no NCCL, which ranks on different GPUs need: "
                           "install libnccl2, and libnccl-dev where Parley is built",
                           i, (int)strcspn(cards[i].host, " "), cards[i].host);
    return 0;
}

// Each step is taken by all ranks, and none goes on before all have succeeded.
static int connect(struct cuda_ranks *r, const struct card *cards, struct err *err) {
    const int32_t n = r->links.n_ranks;
    const bool shared = share_gpu(cards, n);
    struct err mine = {0};
    if (!shared) TRY(lacks_nccl(cards, n, err));
    if (one_host(cards, n) && r->links.tp_size <= PEERS_MAX) {
        struct err why = {0};
        char quoted[300];
        int rc = agree(r, map_peers(r, cards, &mine), &mine, &why);
        r->has_peers = rc == 0;
        if (rc < 0 && (shared || rc != E_UNSUPPORTED)) return err_set(err, rc, "%s", why.text);
        if (rc < 0) log_info("cuda.no_peers", "why=%s", log_quote(quoted, sizeof quoted, why.text));
        mine = (struct err){0};
    } else if (shared) {
        return err_set(err, E_UNSUPPORTED,
                       "ranks share a GPU, which NCCL refuses: give each its own, or at most %d "
                       "ranks of one machine",
                       PEERS_MAX);
    }
    if (!r->has_peers) unmap_peers(r);
    if (!shared) TRY(agree(r, join_nccl(r, cards, &mine), &mine, err));
    r->has_nccl = !shared;
    log_info("cuda.ranks", "small=%s large=%s", r->has_peers ? "peers" : "nccl",
             r->has_nccl ? "nccl" : "peers");
    return 0;
}

int cuda_ranks_open(struct backend *be, const struct rank_links *l, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = calloc(1, sizeof *r);
    struct card *cards = calloc((size_t)l->n_ranks, sizeof *cards), mine = {0};
    struct err why = {0};
    int rc = r && cards ? cuda_check(cudaSetDevice(cuda->device), "cudaSetDevice") : E_NOMEM;
    if (rc < 0) {
        free(r);
        free(cards);
        return err_set(err, rc, "no memory to connect %d GPUs", l->n_ranks);
    }
    r->links = *l;
    rc = reserve(cuda, r, &why);
    if (rc == 0) rc = describe(cuda, r, &mine, &why);
    rc = agree(r, rc, &why, err);
    if (rc == 0) rc = l->exchange(l->ctx, &mine, cards, sizeof mine);
    if (rc == 0) rc = connect(r, cards, err);
    free(cards);
    cuda->ranks = r;
    if (rc == 0) return 0;
    cuda_ranks_close(be);
    cuda_ranks_release(cuda);
    return err->code < 0 ? rc : err_set(err, rc, "the GPUs of the ranks cannot be connected");
}

void cuda_ranks_close(struct backend *be) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    if (!r) return;
    (void)cudaSetDevice(cuda->device);
    (void)cuda_wait(cuda, "the last step");
    nccl_leave(&r->stage_group);
    nccl_leave(&r->world_group);
    unmap_peers(r);
}

void cuda_ranks_release(struct cuda_backend *cuda) {
    struct cuda_ranks *r = cuda->ranks;
    if (!r) return;
    nccl_abort(&r->stage_group);
    nccl_abort(&r->world_group);
    unmap_peers(r);
    cudaFree(r->memory);
    cudaFree(r->epochs);
    cudaFree(r->scratch);
    cuda_host_free(&cuda->base, r->abandoned);
    free(r->from);
    free(r->bytes);
    free(r);
    cuda->ranks = NULL;
}

// --- operations ----------------------------------------------------------------------------------

static int ready(const struct cuda_ranks *r) {
    return r && !r->lost ? 0 : E_DEVICE;
}

// Over NCCL, added here, in rank order.
static int sum_in_order(struct cuda_backend *cuda, char *x, int64_t n) {
    struct cuda_ranks *r = cuda->ranks;
    const enum dtype t = cuda->base.act_dtype;
    const int64_t size = (int64_t)dtype_size(t), most = SCRATCH_BYTES / size / r->links.tp_size;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t count = n - first < most ? n - first : most;
        char *at = x + first * size;
        TRY(nccl_all_gather(&r->stage_group, at, r->scratch, (size_t)(count * size), cuda->stream));
        TRY(cuda_sum_parts(at, r->scratch, t, r->links.tp_size, count, cuda->stream));
    }
    return 0;
}

int cuda_all_reduce(struct backend *be, void *x, int64_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    const int64_t bytes = n * (int64_t)dtype_size(be->act_dtype);
    TRY(ready(r));
    if (r->links.tp_size == 1 || n == 0) return 0;
    if (r->has_peers && bytes % 8 == 0)
        return peers_sum(&r->stage, x, be->act_dtype, n, cuda->stream);
    if (!r->has_nccl) return E_UNSUPPORTED; // rows of a width that no model has
    if (cuda->deterministic) return sum_in_order(cuda, x, n);
    return nccl_sum(&r->stage_group, x, be->act_dtype, n, cuda->stream);
}

// As many rows at a time as the scratch has room for.
static int gather_by_nccl(struct cuda_backend *cuda, float *out, const float *part, int32_t n_rows,
                          const int32_t *first) {
    struct cuda_ranks *r = cuda->ranks;
    const int32_t tp = r->links.tp_size, me = r->links.tp_rank;
    const size_t width = (size_t)first[tp] * sizeof(float);
    const int32_t most = (int32_t)(SCRATCH_BYTES / width);
    for (int32_t row = 0; row < n_rows && most > 0; row += most) {
        const int32_t n = n_rows - row < most ? n_rows - row : most;
        for (int32_t i = 0; i < tp; i++) {
            r->from[i] = r->scratch + (size_t)n * (size_t)first[i] * sizeof(float);
            r->bytes[i] = (size_t)n * (size_t)(first[i + 1] - first[i]) * sizeof(float);
        }
        const float *mine = part + (int64_t)row * (first[me + 1] - first[me]);
        TRY(nccl_gather(&r->stage_group, r->from, mine, r->bytes, cuda->stream));
        for (int32_t i = 0; i < tp && me == 0; i++) {
            const size_t cols = (size_t)(first[i + 1] - first[i]) * sizeof(float);
            CUDA_TRY(cudaMemcpy2DAsync(out + (int64_t)row * first[tp] + first[i], width,
                                       i == 0 ? (const void *)mine : r->from[i], cols, cols,
                                       (size_t)n, cudaMemcpyDeviceToDevice, cuda->stream));
        }
    }
    return most > 0 ? 0 : E_UNSUPPORTED; // a row of eight million logits
}

int cuda_gather_rows(struct backend *be, void *out, const void *part, int32_t n_rows,
                     const int32_t *first) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    TRY(ready(r));
    if (r->links.tp_size == 1 || n_rows == 0) return 0;
    const int64_t bytes = (int64_t)n_rows * (first[1] - first[0]) * (int64_t)sizeof(float);
    if (r->has_peers && (bytes <= PEERS_PIECE_BYTES || !r->has_nccl))
        return peers_gather(&r->stage, out, part, n_rows, first, cuda->stream);
    return gather_by_nccl(cuda, out, part, n_rows, first);
}

// In every step, also where no step follows: a recorded step is launched again for both.
int cuda_share_draws(struct backend *be, int32_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    const int64_t bytes = ((int64_t)n + 1) / 2 * 2 * (int64_t)sizeof *cuda->drawn.ids;
    TRY(ready(r));
    if (r->links.tp_size == 1 || n == 0) return 0;
    if (n > cuda->drawn.max) return 0; // none is drawn (cuda_op_draw)
    if (r->has_peers) return peers_copy(&r->stage, cuda->drawn.ids, bytes, 0, cuda->stream);
    return nccl_broadcast(&r->stage_group, cuda->drawn.ids, (size_t)bytes, cuda->stream);
}

int cuda_send(struct backend *be, const void *x, int64_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    const int64_t bytes = n * (int64_t)dtype_size(be->act_dtype);
    TRY(ready(r));
    if (r->has_nccl)
        return nccl_send(&r->world_group, x, (size_t)bytes, r->links.after, cuda->stream);
    if (bytes % 8 != 0) return E_UNSUPPORTED;
    return peers_copy(&r->after, (void *)x, bytes, 0, cuda->stream);
}

int cuda_recv(struct backend *be, void *x, int64_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_ranks *r = cuda->ranks;
    const int64_t bytes = n * (int64_t)dtype_size(be->act_dtype);
    TRY(ready(r));
    if (r->has_nccl)
        return nccl_recv(&r->world_group, x, (size_t)bytes, r->links.before, cuda->stream);
    if (bytes % 8 != 0) return E_UNSUPPORTED;
    return peers_copy(&r->before, x, bytes, 0, cuda->stream);
}

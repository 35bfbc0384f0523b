// See nccl.h.
#include "kernels/cuda/nccl.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/backend.h"
#include <time.h>

#if PARLEY_NCCL
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

_Static_assert(NCCL_UNIQUE_ID_BYTES == NCCL_ID_BYTES, "an id is as large as NCCL's");

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclBroadcast)                                                                               \
    X(ncclCommAbort)                                                                               \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetVersion)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclGroupStart)                                                                              \
    X(ncclRecv)                                                                                    \
    X(ncclSend)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
    int version;
} api; // filled once, when the first ranks are opened; then read-only

static bool load(void) {
    char name[32];
    bool all = true;
    snprintf(name, sizeof name, "libnccl.so.%d", NCCL_MAJOR);
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib) lib = dlopen("/usr/local/cuda/lib64/libnccl.so", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        char why[300];
        log_warn("cuda.no_nccl", "why=%s", log_quote(why, sizeof why, dlerror()));
        return false;
    }
#define FIND(name) all = (*(void **)&api.name = dlsym(lib, #name)) && all;
    NCCL_FUNCTIONS(FIND)
#undef FIND
    if (!all) log_warn("cuda.no_nccl", "why=\"%s lacks functions of NCCL 2.18\"", name);
    return all && api.ncclGetVersion(&api.version) == ncclSuccess;
}

int nccl_version(void) {
    if (api.version == 0 && !load()) api.version = -1;
    return api.version > 0 ? api.version : 0;
}

// --- waiting -------------------------------------------------------------------------------------

static int failed(struct nccl_group *g, ncclResult_t rc, const char *what) {
    char why[300];
    const char *more = api.ncclGetLastError(g->comm);
    log_error("cuda.nccl_failed", "call=%s error=\"%s\" why=%s", what, api.ncclGetErrorString(rc),
              log_quote(why, sizeof why, more ? more : ""));
    return E_DEVICE;
}

// A call takes tens of microseconds to be enqueued, and a prefill has two for each layer.
enum { NAP_AFTER_US = 5000 };

// Until a call has taken effect.
static int settle(struct nccl_group *g, ncclResult_t rc, const char *what) {
    const struct rank_links *l = g->links;
    const int64_t began = clock_mono_us(&clock_system);
    ncclComm_t comm = g->comm;
    for (int64_t i = 0; rc == ncclInProgress || (rc == ncclSuccess && i == 0); i++) {
        if (api.ncclCommGetAsyncError(comm, &rc) != ncclSuccess) rc = ncclSystemError;
        if (rc != ncclInProgress) continue;
        const int64_t waited = clock_mono_us(&clock_system) - began;
        sched_yield();
        if (waited < NAP_AFTER_US) continue;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (l->check(l->ctx, waited) == 0) continue;
        nccl_abort(g);
        return E_DEVICE;
    }
    return rc == ncclSuccess ? 0 : failed(g, rc, what);
}

// --- groups --------------------------------------------------------------------------------------

int nccl_make_id(char id[NCCL_ID_BYTES], struct err *err) {
    ncclUniqueId u;
    ncclResult_t rc = api.ncclGetUniqueId(&u);
    if (rc != ncclSuccess) return err_set(err, E_DEVICE, "NCCL: %s", api.ncclGetErrorString(rc));
    memcpy(id, u.internal, NCCL_ID_BYTES);
    return 0;
}

int nccl_join(struct nccl_group *g, const char id[NCCL_ID_BYTES], int32_t n, int32_t me,
              const struct rank_links *l, struct err *err) {
    ncclUniqueId u;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    memcpy(u.internal, id, NCCL_ID_BYTES);
    ncclResult_t rc = api.ncclCommInitRankConfig(&comm, n, u, me, &config);
    *g = (struct nccl_group){comm, n, me, l};
    if (comm && settle(g, rc, "ncclCommInitRankConfig") == 0) return 0;
    const char *why = g->comm ? api.ncclGetLastError(g->comm) : NULL;
    err_set(err, E_DEVICE, "NCCL cannot connect %d ranks: %.300s", n,
            why && *why ? why : "NCCL_DEBUG=WARN says more");
    nccl_abort(g);
    return E_DEVICE;
}

void nccl_leave(struct nccl_group *g) {
    if (!g->comm) return;
    ncclComm_t comm = g->comm;
    if (settle(g, api.ncclCommFinalize(comm), "ncclCommFinalize") == 0)
        api.ncclCommDestroy(comm);
    else
        nccl_abort(g);
    g->comm = NULL;
}

static void *abort_comm(void *comm) {
    api.ncclCommAbort(comm);
    return NULL;
}

void nccl_abort(struct nccl_group *g) {
    pthread_t thread;
    if (g->comm && pthread_create(&thread, NULL, abort_comm, g->comm) == 0) pthread_detach(thread);
    g->comm = NULL;
}

bool nccl_failed(const struct nccl_group *g) {
    ncclResult_t rc = ncclSuccess;
    if (!g->comm || api.ncclCommGetAsyncError(g->comm, &rc) != ncclSuccess) return false;
    return rc != ncclSuccess && rc != ncclInProgress;
}

// --- operations ----------------------------------------------------------------------------------

int nccl_sum(struct nccl_group *g, void *x, enum dtype dtype, int64_t n, cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    ncclDataType_t t = dtype == DTYPE_BF16  ? ncclBfloat16
                       : dtype == DTYPE_F16 ? ncclFloat16
                                            : ncclFloat32;
    return settle(g, api.ncclAllReduce(x, x, (size_t)n, t, ncclSum, g->comm, stream),
                  "ncclAllReduce");
}

int nccl_all_gather(struct nccl_group *g, const void *part, void *all, size_t bytes,
                    cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    return settle(g, api.ncclAllGather(part, all, bytes, ncclUint8, g->comm, stream),
                  "ncclAllGather");
}

int nccl_broadcast(struct nccl_group *g, void *x, size_t bytes, cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    return settle(g, api.ncclBroadcast(x, x, bytes, ncclUint8, 0, g->comm, stream),
                  "ncclBroadcast");
}

int nccl_gather(struct nccl_group *g, void *const *from, const void *mine, const size_t *bytes,
                cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    ncclResult_t rc = api.ncclGroupStart();
    if (g->me > 0 && rc == ncclSuccess)
        rc = api.ncclSend(mine, bytes[g->me], ncclUint8, 0, g->comm, stream);
    for (int32_t r = 1; g->me == 0 && r < g->n; r++)
        if (rc == ncclSuccess || rc == ncclInProgress)
            rc = api.ncclRecv(from[r], bytes[r], ncclUint8, r, g->comm, stream);
    ncclResult_t end = api.ncclGroupEnd();
    if (rc == ncclSuccess || rc == ncclInProgress) rc = end;
    return settle(g, rc, "ncclGroupEnd");
}

int nccl_send(struct nccl_group *g, const void *x, size_t bytes, int32_t to, cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    return settle(g, api.ncclSend(x, bytes, ncclUint8, to, g->comm, stream), "ncclSend");
}

int nccl_recv(struct nccl_group *g, void *x, size_t bytes, int32_t from, cudaStream_t stream) {
    if (!g->comm) return E_DEVICE;
    return settle(g, api.ncclRecv(x, bytes, ncclUint8, from, g->comm, stream), "ncclRecv");
}

#else
int nccl_version(void) {
    return 0;
}
int nccl_make_id(char id[NCCL_ID_BYTES], struct err *err) {
    return err_set(err, E_UNSUPPORTED, "this program was built without NCCL");
}
int nccl_join(struct nccl_group *g, const char id[NCCL_ID_BYTES], int32_t n, int32_t me,
              const struct rank_links *l, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "this program was built without NCCL");
}
void nccl_leave(struct nccl_group *g) {}
void nccl_abort(struct nccl_group *g) {}
bool nccl_failed(const struct nccl_group *g) {
    return false;
}
int nccl_sum(struct nccl_group *g, void *x, enum dtype dtype, int64_t n, cudaStream_t stream) {
    return E_UNSUPPORTED;
}
int nccl_all_gather(struct nccl_group *g, const void *part, void *all, size_t bytes,
                    cudaStream_t stream) {
    return E_UNSUPPORTED;
}
int nccl_broadcast(struct nccl_group *g, void *x, size_t bytes, cudaStream_t stream) {
    return E_UNSUPPORTED;
}
int nccl_gather(struct nccl_group *g, void *const *from, const void *mine, const size_t *bytes,
                cudaStream_t stream) {
    return E_UNSUPPORTED;
}
int nccl_send(struct nccl_group *g, const void *x, size_t bytes, int32_t to, cudaStream_t stream) {
    return E_UNSUPPORTED;
}
int nccl_recv(struct nccl_group *g, void *x, size_t bytes, int32_t from, cudaStream_t stream) {
    return E_UNSUPPORTED;
}
#endif

// See rank.h.
#include "engine/dist/rank.h"
#include "base/log.h"
#include "engine/device.h"
#include "engine/dist/comm.h"
#include "engine/dist/lead.h"
#include "engine/model/model.h"
#include "engine/run/forward.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// How long the leader may take to come, if nothing else is said.
#define STARTUP_US INT64_C(120000000)

struct rank {
    struct comm *comm;
    struct plan *plan;
    char *payload; // of the present plan; plan->payload, or `large` of its slot
    char *large[PLAN_SLOTS];
    size_t large_bytes[PLAN_SLOTS];
    // An engine's; zero between two.
    struct backend *backend;
    struct model *model;
    struct cache_stores stores;
    struct forward forward;
    int32_t *ids; // (forward.max_rows) of a step that follows; NULL: there was none
    char *host;   // (n_host_blocks, block_bytes)
    int32_t n_host_blocks;
};

static int receive(struct rank *r) {
    // Behind a ping no step is near.
    const enum comm_wait how = r->plan->kind == PLAN_PING ? COMM_ASLEEP : COMM_IDLE;
    TRY(r->comm->ops->broadcast(r->comm, r->plan, sizeof *r->plan, how));
    const size_t n = (size_t)r->plan->n_payload;
    r->payload = r->plan->payload;
    if (n <= PLAN_INLINE_BYTES) return 0;
    const int32_t slot = plan_slot(r->plan);
    char **large = &r->large[slot];
    if (n > r->large_bytes[slot]) {
        char *more = realloc(*large, n + n / 2);
        if (!more) return E_NOMEM;
        *large = more;
        r->large_bytes[slot] = n + n / 2;
    }
    r->payload = *large;
    if (r->plan->n_changed < 0) return r->comm->ops->broadcast(r->comm, *large, n, COMM_ANSWERS);
    const struct plan_change *c = (const struct plan_change *)(const void *)r->plan->payload;
    for (int64_t i = 0; i < r->plan->n_changed; i++)
        memcpy(*large + (size_t)c[i].at * 4, &c[i].value, 4);
    return 0;
}

// --- opening -------------------------------------------------------------------------------------

static int report(struct rank *r, struct rank_report *mine) {
    struct rank_report *all = calloc((size_t)r->comm->n_ranks, sizeof *all);
    if (!all) return E_NOMEM;
    build_id(mine->build);
    gethostname(mine->host, sizeof mine->host - 1);
    int rc = r->comm->ops->exchange(r->comm, mine, all, sizeof *mine);
    free(all);
    return rc;
}

static int load(struct rank *r, const struct plan_open *o, struct rank_report *mine,
                struct err *err) {
    struct model_config *mc = calloc(1, sizeof *mc);
    char device[DEVICE_WORD_BYTES] = "";
    struct device_options d = {.device = device,
                               .deterministic = o->deterministic,
                               .fp8_activations = o->fp8_activations,
                               .isa = o->isa,
                               .n_threads = lead_threads(r->comm, o->n_threads),
                               .compute_dtype = o->has_compute ? o->compute_dtype : NULL};
    if (!mc) return err_set(err, E_NOMEM, "no memory for a rank");
    int rc = model_config_load(mc, o->model_dir, err);
    if (rc == 0) rc = device_of_rank(device, o->device, r->comm->place, r->comm->n_local, err);
    if (rc == 0) device_fit(&d, mc, o->model_dir, o->weights);
    free(mc);
    TRY(rc);
    TRY(device_open(&r->backend, &d, err));
    const struct model_load_options lo = {.dir = o->model_dir,
                                          .backend = r->backend,
                                          .split = &r->comm->split,
                                          .weights = o->weights};
    TRY(model_load(&r->model, &lo, err));
    lead_describe(mine, r->model);
    return 0;
}

static int open_model(struct rank *r) {
    struct plan_open o;
    struct rank_report mine = {0};
    memcpy(&o, r->payload, sizeof o);
    TRY(report(r, &mine)); // who it is: the leader compares the builds
    char build[BUILD_ID_DIGITS + 1];
    build_id(build);
    if (strcmp(build, o.build) != 0) return 0; // the leader says so, and closes
    struct err err = {0};
    TRY(comm_split(r->comm, o.tp_size, o.pp_size, o.timeout_us, &err));
    mine = (struct rank_report){0};
    (void)load(r, &o, &mine, &mine.err);
    return report(r, &mine);
}

static int size(struct rank *r, struct rank_report *mine) {
    struct err *err = &mine->err;
    struct plan_size s;
    memcpy(&s, r->payload, sizeof s);
    const struct backend_ops *ops = r->backend->ops;
    cache_stores_shape(&r->stores, r->model, s.dtype, s.block_tokens, s.n_blocks);
    TRY(cache_stores_init(&r->stores, r->backend, err));
    mine->block_bytes = r->stores.arena.block_bytes;
    r->n_host_blocks = s.n_host_blocks;
    TRY(comm_link(r->comm, r->backend, err));
    const size_t bytes = (size_t)s.n_host_blocks * r->stores.arena.block_bytes;
    if (bytes > 0 && ops->host_alloc) {
        TRY(ops->host_alloc(r->backend, bytes, (void **)&r->host, err));
    } else if (bytes > 0) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return err_set(err, E_NOMEM, "no host memory for %d parked cache blocks",
                           s.n_host_blocks);
        r->host = p;
    }
    const struct forward_options fo = {.model = r->model,
                                       .comm = r->comm,
                                       .kv = &r->stores,
                                       .max_rows = s.max_rows,
                                       .max_logits = s.max_logits};
    return forward_init(&r->forward, &fo, err);
}

static void close_model(struct rank *r) {
    free(r->ids);
    forward_release(&r->forward);
    if (r->host && r->backend->ops->host_free)
        r->backend->ops->host_free(r->backend, r->host);
    else if (r->host)
        munmap(r->host, (size_t)r->n_host_blocks * r->stores.arena.block_bytes);
    if (r->backend) cache_stores_release(&r->stores, r->backend);
    if (r->model) model_free(r->model);
    if (r->backend) r->backend->ops->close(r->backend);
    const struct rank old = *r;
    *r = (struct rank){.comm = old.comm, .plan = old.plan};
    memcpy(r->large, old.large, sizeof r->large);
    memcpy(r->large_bytes, old.large_bytes, sizeof r->large_bytes);
}

// --- steps ---------------------------------------------------------------------------------------

// The next n values of T in the payload; the order is lead_step's.
#define TAKE(at, T, n) (const T *)(const void *)((at += (n) * sizeof(T)) - (n) * sizeof(T))

static struct batch take_batch(struct rank *r) {
    const struct plan *p = r->plan;
    char *at = r->payload;
    struct batch_seq *seqs = (struct batch_seq *)TAKE(at, struct batch_seq, (size_t)p->n_seqs);
    const size_t n_maps = (size_t)p->n_seqs * (size_t)p->n_groups;
    struct kv_map *maps = (struct kv_map *)TAKE(at, struct kv_map, n_maps);
    struct batch_virtual *virtuals =
        (struct batch_virtual *)TAKE(at, struct batch_virtual, (size_t)p->n_virtual);
    struct batch b = {.n_rows = p->n_rows,
                      .n_seqs = p->n_seqs,
                      .n_logits = p->n_logits,
                      .n_virtual = p->n_virtual,
                      .seqs = seqs,
                      .virtuals = virtuals,
                      .is_followed = p->kind == PLAN_STEP && p->flag & PLAN_FOLLOWED};
    b.ids = TAKE(at, int32_t, (size_t)p->n_rows);
    b.positions = TAKE(at, int32_t, (size_t)p->n_rows);
    b.logit_rows = TAKE(at, int32_t, (size_t)p->n_logits);
    for (int32_t i = 0; i < p->n_seqs; i++) seqs[i].maps = maps + (size_t)i * (size_t)p->n_groups;
    for (size_t i = 0; i < n_maps; i++)
        maps[i].blocks = TAKE(at, int32_t, (size_t)(maps[i].n_sink_blocks + maps[i].n_ring_blocks));
    for (int32_t i = 0; i < p->n_virtual; i++)
        virtuals[i].embedding = TAKE(at, float, (size_t)p->virtual_width);
    return b;
}

// In host memory, the ids of a step that follows; a device reads them itself. An id that was not drawn is of a row
// that does not count.
static int take_drawn(struct rank *r, struct batch *b) {
    int32_t n_drawn = 0;
    for (int32_t i = 0; i < b->n_rows; i++) n_drawn += b->ids[i] < 0;
    if (r->comm->linked || n_drawn == 0) return 0;
    if (!r->ids) r->ids = calloc((size_t)r->forward.max_rows, sizeof *r->ids);
    if (!r->ids) return E_NOMEM;
    for (int32_t i = 0; i < b->n_rows; i++) {
        int32_t id = b->ids[i];
        if (id < 0 && BATCH_DRAWN(id) >= r->forward.max_logits) return E_INVAL;
        if (id < 0) id = r->forward.drawn[BATCH_DRAWN(id)].id;
        r->ids[i] = id < 0 ? 0 : id;
    }
    b->ids = r->ids;
    return 0;
}

static int step(struct rank *r) {
    struct batch b = take_batch(r);
    TRY(take_drawn(r, &b));
    r->forward.one_layer = r->plan->kind == PLAN_STEP && r->plan->flag & PLAN_ONE_LAYER;
    r->forward.n_parts = r->plan->n;
    int rc = r->plan->kind == PLAN_PREFIX ? forward_prefix(&r->forward, &b)
                                          : forward_run(&r->forward, &b);
    int done = forward_done(&r->forward);
    return rc < 0 ? rc : done;
}

static char *host_block(const struct rank *r, int32_t number) {
    return r->host + (size_t)number * r->stores.arena.block_bytes;
}

// Before the next plan a copy has ended: that may use the blocks on either side.
static int move(struct rank *r) {
    const struct backend_ops *ops = r->backend->ops;
    const int32_t *blocks = (const int32_t *)(const void *)r->payload;
    const int32_t n = r->plan->n;
    for (int32_t i = 0; i < n; i++) {
        void *host = host_block(r, blocks[n + i]);
        struct kv_copied how = {0};
        TRY(r->plan->kind == PLAN_LOAD
                ? ops->kv_blocks_load(r->backend, &r->stores.arena, blocks + i, &host, 1)
                : ops->kv_blocks_save(r->backend, &r->stores.arena, &host, blocks + i, 1));
        if (ops->kv_copies_done) TRY(ops->kv_copies_done(r->backend, true, &how));
    }
    return 0;
}

// This rank's parts of parked blocks, to the leader or from it.
static int travel(struct rank *r) {
    const int32_t *blocks = (const int32_t *)(const void *)r->payload;
    struct comm *c = r->comm;
    for (int32_t i = 0; i < r->plan->n; i++) {
        char *host = host_block(r, blocks[i]);
        TRY(r->plan->kind == PLAN_FETCH
                ? c->ops->send_bytes(c, host, r->stores.arena.block_bytes, 0)
                : c->ops->recv_bytes(c, host, r->stores.arena.block_bytes, 0));
    }
    return 0;
}

static int answer(struct rank *r) {
    const char byte = 1;
    return r->comm->ops->send_bytes(r->comm, &byte, sizeof byte, 0);
}

static int run(struct rank *r) {
    const struct plan *p = r->plan;
    const float *none;
    switch ((enum plan_kind)p->kind) {
    case PLAN_OPEN:
        return open_model(r);
    case PLAN_SIZE: {
        struct rank_report mine = {0};
        (void)size(r, &mine);
        return report(r, &mine);
    }
    case PLAN_STEP:
    case PLAN_PREFIX:
        return step(r);
    case PLAN_LOGITS: // the other stages have no head
        if (r->comm->split.pp_rank < r->comm->split.pp_size - 1) return 0;
        return forward_logits(&r->forward, p->first, p->n, &none);
    case PLAN_COPY:
        return r->backend->ops->kv_block_copy(r->backend, &r->stores.arena, p->first, p->n);
    case PLAN_SAVE:
    case PLAN_LOAD:
        return move(r);
    case PLAN_FETCH:
    case PLAN_PUT:
        return travel(r);
    case PLAN_PING:
        return answer(r);
    case PLAN_CLOSE:
        r->comm->ops->close(r->comm); // first: a device may still be in use by the others
        close_model(r);
        return 0;
    case PLAN_END:
        break;
    }
    return 0;
}

// One engine after the other.
static int serve(struct rank *r) {
    for (;;) {
        TRY(receive(r));
        if (r->plan->kind == PLAN_END) return 0;
        TRY(run(r));
    }
}

int rank_run(void) {
    struct rank r = {.plan = calloc(1, sizeof *r.plan)};
    struct err err = {0};
    // The leader ends the ranks. A signal to the whole group, such as Ctrl-C, is for the leader.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    log_set_level(LOG_WARN);
    if (!r.plan) return 1;
    int rc = comm_follow(&r.comm, STARTUP_US, &err);
    if (rc == 0) rc = serve(&r);
    if (rc < 0 && r.comm && r.comm->why.code) err = r.comm->why;
    if (rc < 0)
        fprintf(stderr, "parley: rank %d: %s\n", r.comm ? r.comm->rank : -1,
                err.text[0] ? err.text : err_name(rc));
    close_model(&r);
    for (int i = 0; i < PLAN_SLOTS; i++) free(r.large[i]);
    free(r.plan);
    return rc < 0;
}

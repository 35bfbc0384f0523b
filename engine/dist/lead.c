// See lead.h.
#include "engine/dist/lead.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int broadcast(struct lead *l, void *bytes, size_t n) {
    return l->comm->ops->broadcast(l->comm, bytes, n, l->n_ahead > 0 ? COMM_AHEAD : COMM_ANSWERS);
}

static void begin(struct lead *l, enum plan_kind kind) {
    memset(l->plan, 0, offsetof(struct plan, payload));
    l->plan->kind = (int32_t)kind;
}

// Room for the payload; E_NOMEM breaks nothing, since nothing has been sent.
static char *payload(struct lead *l, size_t n) {
    struct lead_payloads *p = &l->payloads[plan_slot(l->plan)];
    const int k = !p->sent;
    l->plan->n_payload = (int64_t)n;
    if (n <= PLAN_INLINE_BYTES) return l->plan->payload;
    if (n > p->room[k]) {
        char *more = realloc(p->of[k], n + n / 2);
        if (!more) return NULL;
        p->of[k] = more;
        p->room[k] = n + n / 2;
    }
    return p->of[k];
}

// Sets n_changed, and the changes if they fit.
static void compare(struct lead *l) {
    struct plan *p = l->plan;
    struct plan_change *out = (struct plan_change *)(void *)p->payload;
    const struct lead_payloads *of = &l->payloads[plan_slot(p)];
    const char *now = of->of[!of->sent], *then = of->of[of->sent];
    p->n_changed = -1;
    if (p->n_payload != of->sent_bytes || p->n_payload % 4 != 0) return;
    int64_t n = 0;
    for (int64_t at = 0; at < p->n_payload; at += 4) {
        struct plan_change c = {.at = (uint32_t)(at / 4)};
        if (memcmp(now + at, then + at, 4) == 0) continue;
        if (n == (int64_t)(PLAN_INLINE_BYTES / sizeof c)) return;
        memcpy(&c.value, now + at, 4);
        out[n++] = c;
    }
    p->n_changed = n;
}

static int send_plan(struct lead *l) {
    struct plan *p = l->plan;
    struct lead_payloads *of = &l->payloads[plan_slot(p)];
    const bool is_large = p->n_payload > PLAN_INLINE_BYTES;
    if (is_large) compare(l);
    l->quiet_us = 0;
    TRY(broadcast(l, p, sizeof *p));
    if (!is_large) return 0;
    of->sent = !of->sent;
    of->sent_bytes = p->n_payload;
    return p->n_changed >= 0 ? 0 : broadcast(l, of->of[of->sent], (size_t)p->n_payload);
}

// The answers take a millisecond or two, while ranks sleep between looks for a plan.
static int ping(struct lead *l) {
    char answer;
    assert(l->n_ahead == 0);
    begin(l, PLAN_PING);
    TRY(send_plan(l));
    for (int32_t r = 1; r < l->comm->n_ranks; r++)
        TRY(l->comm->ops->recv_bytes(l->comm, &answer, sizeof answer, r));
    return 0;
}

int lead_check(struct lead *l) {
    if (lead_is_alone(l)) return 0;
    const int64_t now = clock_mono_us(&clock_system);
    TRY(l->comm->ops->check(l->comm));
    if (l->quiet_us > 0 && now - l->quiet_us >= LEAD_PING_US) TRY(ping(l));
    if (l->quiet_us == 0 || now - l->quiet_us >= LEAD_PING_US) l->quiet_us = now;
    return 0;
}

int lead_among_ranks(struct lead *l, int rc) {
    if (rc >= 0 || lead_is_alone(l)) return rc;
    struct err *why = &l->comm->why;
    if (why->code == 0)
        err_set(why, E_DEVICE, "the leading rank failed (%s) in a step of all ranks", err_name(rc));
    return E_DEVICE;
}

const char *lead_why(const struct lead *l) {
    return l && l->comm && l->comm->why.code ? l->comm->why.text : NULL;
}

static int failed(const struct lead *l, int rc, struct err *err) {
    const char *why = lead_why(l);
    return err_set(err, rc, "%s", why ? why : "no memory for a plan of the ranks");
}

// --- opening -------------------------------------------------------------------------------------

int lead_threads(const struct comm *c, int asked) {
    if (asked > 0 || c->n_sharing <= 1) return asked;
    int n = cgroup_processors();
    return n > c->n_sharing ? n / c->n_sharing : 1;
}

static void note(struct lead *l, const struct rank_report *a, int32_t rank, bool loaded) {
    if (loaded) {
        l->weight_bytes += a->weight_bytes;
        l->weight_bytes_read += a->weight_bytes_read;
    }
    l->parts[rank] = (size_t)a->block_bytes;
    l->whole_bytes = (rank > 0 ? l->whole_bytes : 0) + l->parts[rank];
}

// Every rank's report; the first failure is the result.
static int collect(struct lead *l, const struct rank_report *mine, bool loaded, struct err *err) {
    const int32_t n = l->comm->n_ranks;
    struct rank_report *all = calloc((size_t)n, sizeof *all);
    if (!all) return err_set(err, E_NOMEM, "no memory for %d ranks", n);
    int rc = l->comm->ops->exchange(l->comm, mine, all, sizeof *all);
    if (rc < 0) failed(l, rc, err);
    for (int32_t r = 0; rc == 0 && r < n; r++) {
        const struct rank_report *a = &all[r];
        if (a->err.code < 0 && r == 0)
            rc = err_set(err, a->err.code, "%s", a->err.text);
        else if (a->err.code < 0)
            rc = err_set(err, a->err.code, "rank %d (%s): %.400s", r, a->host, a->err.text);
        else if (strcmp(a->build, mine->build) != 0)
            rc = err_set(err, E_INVAL,
                         "rank %d (%s) is another build of Parley (%s) than the leading rank (%s)",
                         r, a->host, a->build, mine->build);
        else if (loaded && strcmp(a->fingerprint, mine->fingerprint) != 0)
            rc =
                err_set(err, E_INVAL, "rank %d (%s) has another model under this path", r, a->host);
        else if (loaded && strcmp(a->backend, mine->backend) != 0)
            rc = err_set(err, E_INVAL,
                         "rank %d (%s) computes on \"%s\" and the leading rank on \"%s\": their "
                         "bits differ; choose one with isa and compute_dtype",
                         r, a->host, a->backend, mine->backend);
        note(l, a, r, loaded);
    }
    free(all);
    return rc;
}

// Ranks of another build read the head of this plan as their own build has it, so it comes first and
// only grows at its end.
int lead_open(struct lead *l, const struct lead_options *o, struct err *err) {
    *l = (struct lead){0};
    TRY(comm_open(&l->comm, &o->comm, err));
    if (l->comm->n_ranks == 1) return 0;
    l->plan = calloc(1, sizeof *l->plan);
    l->parts = calloc((size_t)l->comm->n_ranks, sizeof *l->parts);
    if (!l->plan || !l->parts) return err_set(err, E_NOMEM, "no memory for the ranks");
    begin(l, PLAN_OPEN);
    struct plan_open *p = (struct plan_open *)(void *)payload(l, sizeof *p);
    if (!p) return failed(l, E_NOMEM, err);
    *p = o->open;
    build_id(p->build);
    p->tp_size = o->comm.tp_size;
    p->pp_size = o->comm.pp_size;
    p->timeout_us = o->comm.timeout_us;
    int rc = send_plan(l);
    if (rc < 0) return failed(l, rc, err);
    struct rank_report mine = {0};
    build_id(mine.build);
    TRY(collect(l, &mine, false, err));
    return comm_split(l->comm, o->comm.tp_size, o->comm.pp_size, o->comm.timeout_us, err);
}

void lead_describe(struct rank_report *r, const struct model *m) {
    const char *what = m->backend->description;
    const char *threads = m->backend->ops->mem_info ? NULL : strrchr(what, ','); // a GPU has none
    snprintf(r->fingerprint, sizeof r->fingerprint, "%s", m->fingerprint);
    snprintf(r->backend, sizeof r->backend, "%.*s",
             (int)(threads ? (size_t)(threads - what) : strlen(what)),
             what); // threads change no bit
    r->weight_bytes = (int64_t)m->weight_bytes;
    r->weight_bytes_read = (int64_t)model_bytes_read(m);
}

int lead_loaded(struct lead *l, const struct rank_report *mine, struct err *err) {
    if (lead_is_alone(l)) return mine->err.code < 0 ? (*err = mine->err).code : 0;
    struct rank_report report = *mine;
    build_id(report.build);
    return collect(l, &report, true, err);
}

int lead_size(struct lead *l, struct backend *be, const struct plan_size *size, size_t block_bytes,
              struct err *err) {
    if (lead_is_alone(l)) return 0;
    begin(l, PLAN_SIZE);
    l->n_groups = size->n_groups;
    *(struct plan_size *)(void *)payload(l, sizeof *size) = *size;
    int rc = send_plan(l);
    if (rc < 0) return failed(l, rc, err);
    struct rank_report mine = {.block_bytes = block_bytes};
    build_id(mine.build);
    (void)comm_link(l->comm, be, &mine.err);
    return collect(l, &mine, false, err);
}

void lead_host(struct lead *l, void *memory, size_t block_bytes) {
    l->host = memory;
    l->host_block_bytes = block_bytes;
}

void lead_close(struct lead *l) {
    if (l->plan && l->comm->why.code == 0) {
        begin(l, PLAN_CLOSE);
        (void)send_plan(l);
    }
    if (l->comm) l->comm->ops->close(l->comm);
    free(l->plan);
    for (int i = 0; i < PLAN_SLOTS; i++) {
        free(l->payloads[i].of[0]);
        free(l->payloads[i].of[1]);
    }
    free(l->parts);
    *l = (struct lead){0};
}

// --- steps ---------------------------------------------------------------------------------------

static char *put(char *at, const void *from, size_t n) {
    if (n > 0) memcpy(at, from, n); // an array without elements may be NULL
    return at + n;
}

static int32_t map_len(const struct kv_map *m) {
    return m->n_sink_blocks + m->n_ring_blocks;
}

// The i-th map of the batch: those of a sequence's groups are adjacent.
static const struct kv_map *map_of(const struct batch *b, int32_t n_groups, int32_t i) {
    return &b->seqs[i / n_groups].maps[i % n_groups];
}

// The order of the arrays is rank.c's take_batch.
static size_t batch_bytes(const struct plan *p) {
    const size_t row = sizeof(float) * (size_t)p->virtual_width + sizeof(struct batch_virtual);
    const size_t seq = sizeof(struct batch_seq) + sizeof(struct kv_map) * (size_t)p->n_groups;
    return (size_t)p->n_seqs * seq + (size_t)p->n_virtual * row +
           sizeof(int32_t) * (2 * (size_t)p->n_rows + (size_t)p->n_logits + (size_t)p->n_map);
}

static int send_step(struct lead *l, const struct batch *b, int32_t virtual_width) {
    struct plan *p = l->plan;
    const int32_t n_groups = l->n_groups;
    p->n_rows = b->n_rows;
    p->n_seqs = b->n_seqs;
    p->n_logits = b->n_logits;
    p->n_virtual = b->n_virtual;
    p->virtual_width = virtual_width;
    if (b->is_followed) p->flag |= PLAN_FOLLOWED;
    p->n_groups = n_groups;
    for (int32_t i = 0; i < b->n_seqs * n_groups; i++) p->n_map += map_len(map_of(b, n_groups, i));
    char *at = payload(l, batch_bytes(p));
    if (!at) return E_NOMEM;
    at = put(at, b->seqs, (size_t)b->n_seqs * sizeof *b->seqs);
    for (int32_t i = 0; i < b->n_seqs; i++)
        at = put(at, b->seqs[i].maps, (size_t)n_groups * sizeof *b->seqs[i].maps);
    at = put(at, b->virtuals, (size_t)b->n_virtual * sizeof *b->virtuals);
    at = put(at, b->ids, (size_t)b->n_rows * sizeof *b->ids);
    at = put(at, b->positions, (size_t)b->n_rows * sizeof *b->positions);
    at = put(at, b->logit_rows, (size_t)b->n_logits * sizeof *b->logit_rows);
    for (int32_t i = 0; i < b->n_seqs * n_groups; i++) {
        const struct kv_map *m = map_of(b, n_groups, i);
        at = put(at, m->blocks, (size_t)map_len(m) * sizeof *m->blocks);
    }
    for (int32_t i = 0; i < b->n_virtual; i++)
        at = put(at, b->virtuals[i].embedding, (size_t)virtual_width * sizeof(float));
    return send_plan(l);
}

int lead_step(struct lead *l, enum plan_kind kind, const struct batch *b, bool one_layer,
              int32_t n_parts, int32_t virtual_width) {
    if (lead_is_alone(l)) return 0;
    assert(l->n_ahead == 0);
    begin(l, kind);
    l->plan->flag = one_layer ? PLAN_ONE_LAYER : 0;
    l->plan->n = n_parts;
    return send_step(l, b, virtual_width);
}

int lead_step_ahead(struct lead *l, const struct batch *b, int32_t slot) {
    assert(!lead_is_alone(l) && slot < PLAN_SLOTS && b->n_virtual == 0 && !b->load);
    begin(l, PLAN_STEP);
    l->plan->n = 1;
    l->plan->first = slot;
    TRY(send_step(l, b, 0));
    l->n_ahead++;
    return 0;
}

void lead_begins(struct lead *l) {
    assert(l->n_ahead > 0);
    l->n_ahead--;
}

static int send_pair(struct lead *l, enum plan_kind kind, int32_t first, int32_t n) {
    if (lead_is_alone(l)) return 0;
    begin(l, kind);
    l->plan->first = first;
    l->plan->n = n;
    return send_plan(l);
}

int lead_logits(struct lead *l, int32_t first, int32_t n) {
    assert(!l || l->n_ahead == 0);
    return send_pair(l, PLAN_LOGITS, first, n);
}

int lead_copy(struct lead *l, int32_t dst, int32_t src) {
    return send_pair(l, PLAN_COPY, dst, src);
}

int lead_move(struct lead *l, enum plan_kind kind, const int32_t *blocks, void *const *host,
              int32_t n) {
    if (lead_is_alone(l)) return 0;
    begin(l, kind);
    l->plan->n = n;
    int32_t *at = (int32_t *)(void *)payload(l, (size_t)n * 2 * sizeof *at);
    if (!at) return E_NOMEM;
    memcpy(at, blocks, (size_t)n * sizeof *at);
    for (int32_t i = 0; i < n; i++)
        at[n + i] = (int32_t)((size_t)((char *)host[i] - l->host) / l->host_block_bytes);
    return send_plan(l);
}

// --- parts of parked blocks ----------------------------------------------------------------------

static int send_hosts(struct lead *l, enum plan_kind kind, const int32_t *host, int32_t n) {
    assert(l->n_ahead == 0);
    begin(l, kind);
    l->plan->n = n;
    char *at = payload(l, (size_t)n * sizeof *host);
    if (!at) return E_NOMEM;
    memcpy(at, host, (size_t)n * sizeof *host);
    return send_plan(l);
}

// Rank by rank, block by block, straight from and to where the bytes are: no buffer on either side.
int lead_fetch(struct lead *l, const int32_t *host, int32_t n, void *const *whole) {
    if (lead_is_alone(l)) return 0;
    size_t at = l->parts[0];
    TRY(send_hosts(l, PLAN_FETCH, host, n));
    for (int32_t r = 1; r < l->comm->n_ranks; at += l->parts[r++])
        for (int32_t i = 0; i < n; i++)
            TRY(l->comm->ops->recv_bytes(l->comm, (char *)whole[i] + at, l->parts[r], r));
    return 0;
}

int lead_put(struct lead *l, const int32_t *host, int32_t n, const void *const *whole) {
    if (lead_is_alone(l)) return 0;
    size_t at = l->parts[0];
    TRY(send_hosts(l, PLAN_PUT, host, n));
    for (int32_t r = 1; r < l->comm->n_ranks; at += l->parts[r++])
        for (int32_t i = 0; i < n; i++)
            TRY(l->comm->ops->send_bytes(l->comm, (const char *)whole[i] + at, l->parts[r], r));
    return 0;
}

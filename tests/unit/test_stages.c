// Two pipeline stages overlap: a stage begins a part of the step before the next stage has ended the part
// before it. Each stage is a thread with a forward pass whose backend only records events; the last stage
// holds each part until the first has begun the next one. So the test hangs, up to a limit, and fails where
// the stages work one after the other, and no clock decides.
#include "base/err.h"
#include "engine/dist/lead.h"
#include "engine/run/forward.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SESSIONS = 8, N_PARTS = 4, LIMIT_S = 120 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int begun[2], ended[2]; // parts of each stage
    int sent, received;
    int rows[2];       // of all parts of each stage
    int logits, waits; // rows of the head; waits for what was sent
    bool late;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

struct stage {
    struct backend backend;
    struct comm comm;
    struct model model;
    struct forward forward;
    struct layer_weights layer;
    int rc;
};

static struct stage *stage_of(struct backend *be) {
    return (struct stage *)be;
}

// Until *counter is at least n; false: it took too long.
static bool await(const int *counter, int n) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += LIMIT_S;
    while (*counter < n && !world.late)
        world.late = pthread_cond_timedwait(&world.change, &world.lock, &limit) != 0;
    return !world.late;
}

static void count(int *counter, int n) {
    *counter += n;
    pthread_cond_broadcast(&world.change);
}

static int fake_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    *out = calloc(1, bytes);
    return *out ? 0 : E_NOMEM;
}
static void fake_free(struct backend *be, void *p) {
    free(p);
}
static int fake_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    *run = b;
    return 0;
}
static int fake_step(struct backend *be) {
    return 0;
}
static int fake_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                      float scale) {
    pthread_mutex_lock(&world.lock);
    count(&world.begun[0], 1);
    count(&world.rows[0], b->n_rows);
    pthread_mutex_unlock(&world.lock);
    return 0;
}
static int fake_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                     const struct norm_args *args) {
    return 0;
}
static int fake_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer,
                         const void *qkv, const struct batch *b, int32_t n_heads) {
    return 0;
}
static int fake_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                          const struct batch *b, const struct attention_args *args) {
    return 0;
}
static int fake_activate(struct backend *be, enum activation act, bool gated, void *y,
                         const void *x, int32_t n, int32_t width) {
    return 0;
}

// A part ends with its last product. The last stage ends one only when the first has begun the next.
static int fake_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                       const struct weight *w, const float *bias) {
    struct stage *s = stage_of(be);
    const int stage = s->model.split.pp_rank;
    bool in_time = true;
    pthread_mutex_lock(&world.lock);
    if (w == &s->model.head) world.logits += n;
    if (w == &s->layer.down) {
        const int next = world.ended[stage] + 2;
        if (stage == 1 && next <= N_PARTS) in_time = await(&world.begun[0], next);
        count(&world.ended[stage], 1);
    }
    pthread_mutex_unlock(&world.lock);
    return in_time ? 0 : E_DEVICE;
}

static int fake_reduce(struct comm *c, struct backend *be, void *x, int64_t n) {
    return 0;
}
static int fake_gather_rows(struct comm *c, struct backend *be, void *out, const void *part,
                            int32_t n_rows, int32_t part_width, int32_t width) {
    return 0;
}
static int fake_send(struct comm *c, struct backend *be, const void *x, int64_t n,
                     int32_t pp_rank) {
    pthread_mutex_lock(&world.lock);
    count(&world.sent, 1);
    pthread_mutex_unlock(&world.lock);
    return 0;
}
static int fake_recv(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    const struct stage *s = stage_of(be);
    pthread_mutex_lock(&world.lock);
    bool in_time = await(&world.sent, world.received + 1);
    count(&world.received, 1);
    count(&world.begun[1], 1);
    count(&world.rows[1], (int)(n / s->model.config.width));
    pthread_mutex_unlock(&world.lock);
    return in_time ? 0 : E_DEVICE;
}
// What was sent has left when it was received.
static int fake_sent(struct comm *c, bool wait) {
    bool in_time = true;
    if (!wait || c->split.pp_rank > 0) return 0;
    pthread_mutex_lock(&world.lock);
    world.waits++;
    in_time = await(&world.received, world.sent);
    pthread_mutex_unlock(&world.lock);
    return in_time ? 0 : E_DEVICE;
}

static const struct backend_ops ops = {
    .name = "fake",
    .mem_alloc = fake_alloc,
    .mem_free = fake_free,
    .step_begin = fake_begin,
    .step_launch = fake_step,
    .step_end = fake_step,
    .embed = fake_embed,
    .norm = fake_norm,
    .linear = fake_linear,
    .kv_write = fake_kv_write,
    .attention = fake_attention,
    .activate = fake_activate,
};
static const struct comm_ops comm_table = {.all_reduce = fake_reduce,
                                           .gather_rows = fake_gather_rows,
                                           .send = fake_send,
                                           .recv = fake_recv,
                                           .sent = fake_sent};

static struct kv_place places[] = {{0, 0}};
static const struct kv_groups groups = {.n = 1, .places = places};
static const struct cache_stores stores = {.groups = &groups,
                                           .arena = {.block_tokens = 16, .n_blocks = SESSIONS}};
static int32_t ids[SESSIONS], positions[SESSIONS], logit_rows[SESSIONS];
static struct batch_seq seqs[SESSIONS];

static void set_up(struct stage *s, int32_t stage) {
    const struct split split = {.tp_size = 1, .pp_rank = stage, .pp_size = 2};
    *s = (struct stage){
        .backend = {.ops = &ops, .act_dtype = DTYPE_F32},
        .comm = {.ops = &comm_table, .split = split},
        .model = {
            .config = {.n_layers = 2,
                       .width = 4,
                       .kinds[0] = {.attention = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 4},
                                    .feed.width = 4,
                                    .norms = NORM_PRE},
                       .vocab_size = 8,
                       .embed_width = 4,
                       .positions = POSITION_ALIBI},
            .split = split,
            .n_layers = 1,
            .first_layer = stage,
            .of_kind[0] = {1, 1, 4},
            .vocab_rows = 8}};
    s->model.backend = &s->backend;
    s->model.layers = &s->layer;
    assert_int_equal(forward_init(&s->forward,
                                  &(struct forward_options){.model = &s->model,
                                                            .comm = &s->comm,
                                                            .kv = &stores,
                                                            .max_rows = SESSIONS,
                                                            .max_logits = SESSIONS},
                                  NULL),
                     0);
    s->forward.n_parts = N_PARTS; // as the leader's plan says
}

static void *run(void *ctx) {
    struct stage *s = ctx;
    const struct batch b = {.n_rows = SESSIONS,
                            .n_seqs = SESSIONS,
                            .n_logits = SESSIONS,
                            .ids = ids,
                            .positions = positions,
                            .logit_rows = logit_rows,
                            .seqs = seqs};
    s->rc = forward_run(&s->forward, &b);
    return NULL;
}

static void a_stage_begins_a_part_before_the_next_has_ended_the_last(void **state) {
    static struct stage first, last;
    pthread_t thread;
    for (int32_t i = 0; i < SESSIONS; i++) {
        logit_rows[i] = i;
        seqs[i] = (struct batch_seq){.first_row = i, .n_rows = 1};
    }
    set_up(&first, 0);
    set_up(&last, 1);
    assert_int_equal(pthread_create(&thread, NULL, run, &first), 0);
    run(&last);
    pthread_join(thread, NULL);
    assert_false(world.late);
    assert_int_equal(first.rc, 0);
    assert_int_equal(last.rc, 0);
    for (int stage = 0; stage < 2; stage++) {
        assert_int_equal(world.begun[stage], N_PARTS);
        assert_int_equal(world.ended[stage], N_PARTS);
        assert_int_equal(world.rows[stage], SESSIONS);
    }
    assert_int_equal(world.logits, SESSIONS);
    assert_int_equal(world.waits, 1); // once, before the stream is overwritten
    forward_release(&first.forward);
    forward_release(&last.forward);
}

static int full_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                      float scale) {
    return E_NOMEM;
}
static int fake_broadcast(struct comm *c, void *bytes, size_t n, enum comm_wait how) {
    return 0;
}

static void a_leader_that_fails_alone_loses_its_ranks(void **state) {
    static struct stage leader;
    struct backend_ops failing = ops;
    struct comm_ops table = comm_table;
    struct lead lead = {.comm = &leader.comm, .plan = calloc(1, sizeof *lead.plan)};
    assert_non_null(lead.plan);
    failing.embed = full_embed;
    table.broadcast = fake_broadcast;
    set_up(&leader, 0);
    leader.backend.ops = &failing;
    leader.comm.ops = &table;
    leader.comm.n_ranks = 2;
    run(&leader);
    assert_int_equal(leader.rc, E_NOMEM); // without ranks the step fails, and the device stays
    leader.forward.lead = &lead;
    run(&leader);
    assert_int_equal(lead.plan->kind, PLAN_STEP);
    assert_int_equal(leader.rc, E_DEVICE);
    forward_release(&leader.forward);
    free(lead.plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_begins_a_part_before_the_next_has_ended_the_last),
        cmocka_unit_test(a_leader_that_fails_alone_loses_its_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// See product.h.
#include "engine/grammar/product.h"
#include "base/hash.h"
#include "engine/grammar/machine.h"
#include <stdlib.h>
#include <string.h>

struct tuple {
    int32_t at[PRODUCT_MAX_PARTS]; // configurations; MACHINE_DEAD: the part does not match any more
    int32_t state;                 // of the target
    UT_hash_handle hh;
};

struct product {
    struct net *n;
    struct machine machines[PRODUCT_MAX_PARTS];
    int n_parts, n_needed;
    struct tuple *all;    // uthash
    struct tuple **queue; // (PRODUCT_MAX_STATES)
    int32_t n_queue;
    struct err *err;
};

// NULL: no memory, or too many.
static struct tuple *intern(struct product *p, const int32_t *at, int32_t state) {
    struct tuple *t = NULL;
    HASH_FIND(hh, p->all, at, sizeof t->at, t);
    if (t) return t;
    if (p->n_queue == PRODUCT_MAX_STATES || p->n->product_states++ >= PRODUCT_MOST_OF_ALL) {
        err_set(p->err, E_INVAL, "its constraints together take more than %d states",
                PRODUCT_MAX_STATES);
        return NULL;
    }
    t = calloc(1, sizeof *t);
    if (t) {
        memcpy(t->at, at, sizeof t->at);
        HASH_ADD(hh, p->all, at, sizeof t->at, t);
    }
    if (!t || !hash_added(&t->hh)) {
        free(t);
        err_set(p->err, E_NOMEM, "no memory to compile it");
        return NULL;
    }
    t->state = state >= 0 ? state : net_state_new(p->n);
    p->queue[p->n_queue++] = t;
    return t;
}

// Where the byte leads; false: nowhere.
static bool step(struct product *p, const struct tuple *t, uint8_t byte, int32_t *to) {
    memset(to, 0xff, sizeof t->at);
    for (int i = 0; i < p->n_parts; i++) {
        to[i] = t->at[i] >= 0 ? machine_step(&p->machines[i], t->at[i], byte) : MACHINE_DEAD;
        if (to[i] < 0 && i < p->n_needed) return false;
    }
    return true;
}

static int follow(struct product *p, const struct tuple *t) {
    for (int b = 0; b < 256;) {
        int32_t to[PRODUCT_MAX_PARTS], next[PRODUCT_MAX_PARTS];
        bool leads = step(p, t, (uint8_t)b, to);
        int lo = b++;
        if (!leads) continue;
        while (b < 256 && step(p, t, (uint8_t)b, next) && memcmp(to, next, sizeof to) == 0) b++;
        struct tuple *other = intern(p, to, -1);
        if (!other) return p->err->code;
        net_byte_range(p->n, t->state, (uint8_t)lo, (uint8_t)(b - 1), other->state);
    }
    return 0;
}

static uint32_t matched(const struct product *p, const struct tuple *t) {
    uint32_t bits = 0;
    for (int i = 0; i < p->n_parts; i++)
        if (t->at[i] >= 0 && p->machines[i].configs[t->at[i]].accepts) bits |= 1u << i;
    return bits;
}

static int run(struct product *p, int32_t from, product_target_fn target, void *ctx) {
    int32_t at[PRODUCT_MAX_PARTS];
    memset(at, 0xff, sizeof at);
    for (int i = 0; i < p->n_parts; i++) at[i] = machine_start(&p->machines[i]);
    if (!intern(p, at, from)) return p->err->code;
    for (int32_t i = 0; i < p->n_queue && !net_failed(p->n); i++) {
        uint32_t bits = matched(p, p->queue[i]);
        int32_t to = bits ? target(ctx, bits) : -1;
        if (to >= 0) net_empty(p->n, p->queue[i]->state, to);
        TRY(follow(p, p->queue[i]));
        for (int k = 0; k < p->n_parts; k++) {
            p->machines[k].work = 0;
            if (p->machines[k].error)
                return err_set(p->err, p->machines[k].error, "its constraints are too costly");
        }
    }
    return 0;
}

int product_emit(struct net *n, int32_t from, const struct net *parts, int n_parts, int n_needed,
                 product_target_fn target, void *ctx, struct err *err) {
    struct err own = {0};
    struct product *p = calloc(1, sizeof *p);
    int rc = p ? 0 : E_NOMEM;
    if (!p) return err_set(err, rc, "no memory to compile it");
    p->n = n;
    p->n_parts = n_parts;
    p->n_needed = n_needed;
    p->err = &own;
    p->queue = malloc(PRODUCT_MAX_STATES * sizeof *p->queue);
    if (!p->queue) rc = err_set(&own, E_NOMEM, "no memory to compile it");
    for (int i = 0; i < n_parts && rc == 0; i++)
        rc = machine_init(&p->machines[i], &parts[i], &own);
    if (rc == 0) rc = run(p, from, target, ctx);
    struct tuple *t, *next;
    HASH_ITER(hh, p->all, t, next) {
        HASH_DEL(p->all, t);
        free(t);
    }
    for (int i = 0; i < n_parts; i++) machine_release(&p->machines[i]);
    free(p->queue);
    free(p);
    return rc < 0 ? err_set(err, rc, "%s", own.text) : 0;
}

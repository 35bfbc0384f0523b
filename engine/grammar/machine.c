// See machine.h.
#include "engine/grammar/machine.h"
#include "engine/grammar/mask.h"
#include "engine/grammar/plain.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { BUCKETS_FIRST = 256, REACHED_BUCKETS = 1 << 16 };

// --- memory --------------------------------------------------------------------------------------

static bool grow(struct machine *m, void **items, size_t size, int64_t more_than, int64_t *cap) {
    if (more_than < *cap) return true;
    int64_t next = *cap ? *cap * 2 : 256;
    while (next <= more_than) next *= 2;
    void *moved = realloc(*items, (size_t)next * size);
    if (!moved) {
        m->error = E_NOMEM;
        return false;
    }
    m->bytes += (next - *cap) * (int64_t)size;
    *items = moved;
    *cap = next;
    return true;
}

static bool grow32(struct machine *m, void **items, size_t size, int32_t more_than, int32_t *cap) {
    int64_t wide = *cap;
    bool good = grow(m, items, size, more_than, &wide);
    *cap = (int32_t)wide;
    return good;
}

static void free_contents(struct machine *m) {
    for (int32_t i = 0; i < m->n_configs; i++) {
        free(m->configs[i].row);
        mask_free(m->configs[i].mask);
    }
    free(m->configs);
    free(m->pairs);
    free(m->stacks);
    free(m->config_buckets);
    free(m->stack_buckets);
    m->configs = NULL;
    m->pairs = NULL;
    m->stacks = NULL;
    m->config_buckets = m->stack_buckets = NULL;
    m->n_configs = m->cap_configs = m->n_stacks = m->cap_stacks = 0;
    m->n_pairs = m->cap_pairs = 0;
    m->n_config_buckets = m->n_stack_buckets = 0;
    m->bytes = 0;
}

int machine_init(struct machine *m, const struct net *net, struct err *err) {
    *m = (struct machine){.net = net, .effort = MACHINE_FREE};
    m->reached = malloc(MACHINE_MAX_PAIRS * sizeof *m->reached);
    m->kept = malloc(MACHINE_MAX_PAIRS * sizeof *m->kept);
    m->reached_buckets = malloc(REACHED_BUCKETS * sizeof *m->reached_buckets);
    m->reached_stamp = calloc(REACHED_BUCKETS, sizeof *m->reached_stamp);
    if (m->reached && m->kept && m->reached_buckets && m->reached_stamp) return 0;
    machine_release(m);
    return err_set(err, E_NOMEM, "no memory for a grammar");
}

void machine_release(struct machine *m) {
    free_contents(m);
    for (int i = 0; i < m->n_plain; i++) plain_class_free(m->plain[i]);
    free(m->reached);
    free(m->kept);
    free(m->reached_buckets);
    free(m->reached_stamp);
    *m = (struct machine){0};
}

static uint32_t mix(uint64_t v) {
    v *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(v >> 32) ^ (uint32_t)(v >> 15);
}

// --- stacks --------------------------------------------------------------------------------------

static uint32_t stack_hash(int32_t state, int32_t below) {
    return mix((uint64_t)(uint32_t)state << 32 | (uint32_t)below);
}

static bool rehash_stacks(struct machine *m) {
    int32_t n = m->n_stack_buckets ? m->n_stack_buckets * 2 : BUCKETS_FIRST;
    int32_t *buckets = malloc((size_t)n * sizeof *buckets);
    if (!buckets) {
        m->error = E_NOMEM;
        return false;
    }
    memset(buckets, 0xff, (size_t)n * sizeof *buckets);
    for (int32_t i = 0; i < m->n_stacks; i++) {
        int32_t *at =
            &buckets[stack_hash(m->stacks[i].state, m->stacks[i].below) & (uint32_t)(n - 1)];
        m->stacks[i].next = *at;
        *at = i;
    }
    free(m->stack_buckets);
    m->bytes += (n - m->n_stack_buckets) * (int64_t)sizeof *buckets;
    m->stack_buckets = buckets;
    m->n_stack_buckets = n;
    return true;
}

static int32_t add_least(int32_t a, int32_t b) {
    return a >= NET_NEVER - b ? NET_NEVER : a + b;
}

static int32_t stack_least(const struct machine *m, int32_t stack) {
    return stack < 0 ? 0 : m->stacks[stack].least;
}

// -2: no memory.
static int32_t intern_stack(struct machine *m, int32_t state, int32_t below) {
    if (m->n_stacks >= m->n_stack_buckets && !rehash_stacks(m)) return -2;
    int32_t *at = &m->stack_buckets[stack_hash(state, below) & (uint32_t)(m->n_stack_buckets - 1)];
    for (int32_t i = *at; i >= 0; i = m->stacks[i].next)
        if (m->stacks[i].state == state && m->stacks[i].below == below) return i;
    if (!grow32(m, (void **)&m->stacks, sizeof *m->stacks, m->n_stacks, &m->cap_stacks)) return -2;
    int32_t least = add_least(m->net->states[state].least, stack_least(m, below));
    m->stacks[m->n_stacks] =
        (struct machine_stack){.state = state, .below = below, .least = least, .next = *at};
    *at = m->n_stacks;
    return m->n_stacks++;
}

// --- the set under construction ------------------------------------------------------------------

static void begin_set(struct machine *m) {
    if (++m->stamp == 0) {
        memset(m->reached_stamp, 0, REACHED_BUCKETS * sizeof *m->reached_stamp);
        m->stamp = 1;
    }
    m->n_reached = m->n_kept = 0;
    m->accepts = false;
}

// Adds a pair to those that were reached, once.
static bool reach(struct machine *m, int32_t state, int32_t stack) {
    uint32_t at = stack_hash(state, stack) & (REACHED_BUCKETS - 1);
    for (; m->reached_stamp[at] == m->stamp; at = (at + 1) & (REACHED_BUCKETS - 1)) {
        const struct machine_pair *p = &m->reached[m->reached_buckets[at]];
        if (p->state == state && p->stack == stack) return true;
    }
    if (m->n_reached == MACHINE_MAX_PAIRS) {
        m->crowded = true;
        return false;
    }
    m->reached_stamp[at] = m->stamp;
    m->reached_buckets[at] = m->n_reached;
    m->reached[m->n_reached++] = (struct machine_pair){state, stack};
    return true;
}

static bool reach_end(struct machine *m, int32_t stack) {
    if (stack >= 0) return reach(m, m->stacks[stack].state, m->stacks[stack].below);
    m->accepts = true;
    return true;
}

static bool reach_call(struct machine *m, const struct net_edge *e, int32_t stack) {
    int32_t start = m->net->rules[e->rule].start;
    if (m->net->states[e->to].pops) return reach(m, start, stack); // the caller's caller instead
    int32_t pushed = intern_stack(m, e->to, stack);
    return pushed >= 0 && reach(m, start, pushed);
}

// Follows what takes no byte from every pair that was reached; keeps the pairs that take one. False: too
// many pairs, or no memory.
static bool close_set(struct machine *m) {
    const struct net *net = m->net;
    for (int32_t i = 0; i < m->n_reached; i++) {
        struct machine_pair p = m->reached[i];
        const struct net_state *s = &net->states[p.state];
        bool takes = false;
        if (s->end && !reach_end(m, p.stack)) return false;
        for (int32_t at = s->first; at >= 0; at = net->edges[at].next) {
            const struct net_edge *e = &net->edges[at];
            takes = e->kind == NET_BYTES;
            if (takes) break; // all further ones are too
            bool good = e->kind == NET_EMPTY ? reach(m, e->to, p.stack) : reach_call(m, e, p.stack);
            if (!good) return false;
        }
        if (takes) m->kept[m->n_kept++] = p;
    }
    return true;
}

// --- configurations ------------------------------------------------------------------------------

static int compare_pairs(const void *a, const void *b) {
    const struct machine_pair *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return (x->stack > y->stack) - (x->stack < y->stack);
}

static uint32_t hash_pairs(const struct machine_pair *p, int32_t n, bool accepts) {
    uint64_t h = (uint64_t)n * 2 + accepts;
    for (int32_t i = 0; i < n; i++)
        h = (h ^ ((uint64_t)(uint32_t)p[i].state << 32 | (uint32_t)p[i].stack)) *
                0x9e3779b97f4a7c15u +
            (h >> 29);
    return mix(h);
}

static bool rehash_configs(struct machine *m) {
    int32_t n = m->n_config_buckets ? m->n_config_buckets * 2 : BUCKETS_FIRST;
    int32_t *buckets = malloc((size_t)n * sizeof *buckets);
    if (!buckets) {
        m->error = E_NOMEM;
        return false;
    }
    memset(buckets, 0xff, (size_t)n * sizeof *buckets);
    for (int32_t i = 0; i < m->n_configs; i++) {
        struct machine_config *c = &m->configs[i];
        uint32_t hash = hash_pairs(m->pairs + c->first, c->n, c->accepts);
        int32_t *at = &buckets[hash & (uint32_t)(n - 1)];
        c->next = *at;
        *at = i;
    }
    free(m->config_buckets);
    m->bytes += (n - m->n_config_buckets) * (int64_t)sizeof *buckets;
    m->config_buckets = buckets;
    m->n_config_buckets = n;
    return true;
}

static int32_t least_of_set(const struct machine *m) {
    int32_t least = m->accepts ? 0 : NET_NEVER;
    for (int32_t i = 0; i < m->n_kept; i++) {
        const struct machine_pair *p = &m->kept[i];
        int32_t of = add_least(m->net->states[p->state].least, stack_least(m, p->stack));
        if (of < least) least = of;
    }
    return least;
}

// The configuration that is the set of m->kept.
static int32_t intern_config(struct machine *m) {
    if (m->n_kept == 0 && !m->accepts) return MACHINE_DEAD;
    if (m->n_configs >= m->n_config_buckets && !rehash_configs(m)) return MACHINE_DEAD;
    if (m->n_kept > 1) qsort(m->kept, (size_t)m->n_kept, sizeof *m->kept, compare_pairs);
    uint32_t hash = hash_pairs(m->kept, m->n_kept, m->accepts);
    int32_t *at = &m->config_buckets[hash & (uint32_t)(m->n_config_buckets - 1)];
    size_t bytes = (size_t)m->n_kept * sizeof *m->kept;
    for (int32_t i = *at; i >= 0; i = m->configs[i].next) {
        const struct machine_config *c = &m->configs[i];
        if (c->n == m->n_kept && c->accepts == m->accepts &&
            (bytes == 0 || memcmp(m->pairs + c->first, m->kept, bytes) == 0))
            return i;
    }
    if (!grow32(m, (void **)&m->configs, sizeof *m->configs, m->n_configs, &m->cap_configs) ||
        !grow(m, (void **)&m->pairs, sizeof *m->pairs, m->n_pairs + m->n_kept, &m->cap_pairs))
        return MACHINE_DEAD;
    if (bytes) memcpy(m->pairs + m->n_pairs, m->kept, bytes);
    m->configs[m->n_configs] = (struct machine_config){.first = m->n_pairs,
                                                       .n = m->n_kept,
                                                       .accepts = m->accepts,
                                                       .least = least_of_set(m),
                                                       .next = *at,
                                                       .uniform = MACHINE_UNKNOWN,
                                                       .plain_own = PLAIN_UNKNOWN,
                                                       .plain = PLAIN_UNKNOWN,
                                                       .cost = -1};
    m->n_pairs += m->n_kept;
    *at = m->n_configs;
    return m->n_configs++;
}

static int32_t finish_set(struct machine *m) {
    bool good = close_set(m);
    m->work += m->n_reached;
    m->reached_in_all += m->n_reached;
    m->effort -= m->n_reached;
    if (m->error == 0 && (m->work > MACHINE_MOST_WORK || m->bytes > MACHINE_MOST_BYTES))
        m->error = E_LIMIT;
    return good && m->error == 0 ? intern_config(m) : MACHINE_DEAD;
}

int32_t machine_start(struct machine *m) {
    begin_set(m);
    reach(m, m->net->rules[m->net->root].start, -1);
    return finish_set(m);
}

static bool make_row(struct machine *m, struct machine_config *c) {
    size_t bytes = (size_t)m->net->n_classes * sizeof *c->row;
    c->row = malloc(bytes);
    if (!c->row) {
        m->error = E_NOMEM;
        return false;
    }
    for (int32_t i = 0; i < m->net->n_classes; i++) c->row[i] = MACHINE_UNKNOWN;
    m->bytes += (int64_t)bytes;
    return true;
}

bool machine_may_spend(struct machine *m) {
    if (m->effort > 0) return true;
    if (m->error == 0) m->error = MACHINE_SPENT;
    return false;
}

int32_t machine_step(struct machine *m, int32_t config, uint8_t byte) {
    const struct net *net = m->net;
    struct machine_config *c = &m->configs[config];
    int32_t class = net->byte_class[byte];
    if (c->row && c->row[class] != MACHINE_UNKNOWN) return c->row[class];
    if (!machine_may_spend(m)) return MACHINE_DEAD;
    if (!c->row && !make_row(m, c)) return MACHINE_DEAD;
    begin_set(m);
    bool good = true;
    for (int32_t i = 0; i < c->n && good; i++) {
        struct machine_pair p = m->pairs[c->first + i];
        for (int32_t at = net->states[p.state].first; at >= 0; at = net->edges[at].next) {
            const struct net_edge *e = &net->edges[at];
            if (e->kind == NET_BYTES && e->lo <= byte && byte <= e->hi)
                good = good && reach(m, e->to, p.stack);
        }
    }
    int32_t to = good ? finish_set(m) : MACHINE_DEAD;
    if (m->error == 0) m->configs[config].row[class] = to; // configs may have moved
    return to;
}

// --- the shortest end ----------------------------------------------------------------------------

// What a forced end is written with where bytes are equal: 'a', '0', else the lowest.
static int plain_byte(const struct net_edge *e) {
    return e->lo <= 'a' && 'a' <= e->hi ? 'a' : e->lo <= '0' && '0' <= e->hi ? '0' : e->lo;
}

static int rank(int byte) {
    return byte == 'a' ? -2 : byte == '0' ? -1 : byte;
}

// A byte that begins a shortest end of a configuration that is none itself.
static int shortest_byte(const struct machine *m, const struct machine_config *c) {
    const struct net *net = m->net;
    int best = 256;
    for (int32_t i = 0; i < c->n; i++) {
        struct machine_pair p = m->pairs[c->first + i];
        int32_t below = stack_least(m, p.stack);
        for (int32_t at = net->states[p.state].first; at >= 0; at = net->edges[at].next) {
            const struct net_edge *e = &net->edges[at];
            if (e->kind == NET_BYTES && rank(plain_byte(e)) < rank(best) &&
                add_least(net->states[e->to].least + 1, below) == c->least)
                best = plain_byte(e);
        }
    }
    return best;
}

int32_t machine_shorten(struct machine *m, int32_t config, uint8_t *byte) {
    int best = shortest_byte(m, &m->configs[config]);
    if (best > 255) return MACHINE_DEAD;
    *byte = (uint8_t)best;
    return machine_step(m, config, *byte);
}

int32_t machine_shortest(struct machine *m, int32_t config, uint8_t *out, int32_t most) {
    int32_t n = 0;
    int64_t looked_at = 0; // spent at the end: else a long text would never be complete
    while (config >= 0 && m->configs[config].least > 0 && n < most) {
        looked_at += m->configs[config].n;
        config = machine_shorten(m, config, &out[n++]);
    }
    m->effort -= looked_at;
    return config >= 0 && m->configs[config].least == 0 ? n : -1;
}

// --- roots ---------------------------------------------------------------------------------------

void machine_hold(struct machine *m, struct machine_root *r, int32_t config) {
    r->config = config;
    DL_APPEND(m->roots, r);
}

void machine_drop(struct machine *m, struct machine_root *r) {
    DL_DELETE(m->roots, r);
}

enum { STACK_UNUSED = -1, STACK_NEEDED = -3 };

// Marks the stacks that the roots use, then interns them anew. A stack's tail has a lower number than it.
static void copy_stacks(struct machine *m, const struct machine *old, int32_t *moved) {
    const struct machine_root *r;
    DL_FOREACH(m->roots, r) {
        const struct machine_config *c = r->config >= 0 ? &old->configs[r->config] : NULL;
        for (int32_t k = 0; c && k < c->n; k++) {
            int32_t i = old->pairs[c->first + k].stack;
            for (; i >= 0 && moved[i] == STACK_UNUSED; i = old->stacks[i].below)
                moved[i] = STACK_NEEDED;
        }
    }
    for (int32_t i = 0; i < old->n_stacks; i++) {
        int32_t below = old->stacks[i].below;
        if (moved[i] == STACK_NEEDED)
            moved[i] = intern_stack(m, old->stacks[i].state, below < 0 ? -1 : moved[below]);
    }
}

// The roots' configurations alone, in empty contents, with their masks: the next draws need these.
static void copy_roots(struct machine *m, struct machine *old, const int32_t *moved) {
    struct machine_root *r;
    DL_FOREACH(m->roots, r) {
        if (r->config < 0) continue;
        struct machine_config *c = &old->configs[r->config];
        r->config = MACHINE_DEAD;
        begin_set(m);
        m->accepts = c->accepts;
        for (int32_t i = 0; i < c->n; i++) {
            struct machine_pair p = old->pairs[c->first + i];
            if (p.stack >= 0) p.stack = moved[p.stack];
            m->kept[m->n_kept++] = p;
        }
        if (m->error == 0) r->config = intern_config(m);
        if (r->config < 0 || !c->mask) continue;
        m->configs[r->config].mask = c->mask;
        m->bytes += c->mask->bytes;
        c->mask = NULL;
    }
}

int machine_collect(struct machine *m) {
    struct machine old = *m;
    m->n_collected++;
    int32_t *moved = malloc(((size_t)m->n_stacks + 1) * sizeof *moved);
    for (int32_t i = 0; moved && i < m->n_stacks; i++) moved[i] = STACK_UNUSED;
    m->configs = NULL;
    m->pairs = NULL;
    m->stacks = NULL;
    m->config_buckets = m->stack_buckets = NULL;
    m->n_configs = m->n_stacks = 0;
    m->n_pairs = m->cap_pairs = 0;
    m->cap_configs = m->cap_stacks = m->n_config_buckets = m->n_stack_buckets = 0;
    m->bytes = 0;
    m->error = moved ? 0 : E_NOMEM;
    if (moved) {
        copy_stacks(m, &old, moved);
        copy_roots(m, &old, moved);
    }
    free(moved);
    free_contents(&old);
    return m->error;
}

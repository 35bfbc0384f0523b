// See matcher.h.
//
// While enough tokens are left, the cached mask of the configuration is used. When completing the answer after
// one of its tokens might take more tokens than are left, the matcher makes a mask for the tokens left and a
// plan: the tokens of a cheapest completion. The plan's next token is always allowed, because a completion that
// is shorter in bytes may take more tokens, so the mask alone might allow none.
#include "engine/grammar/matcher.h"
#include "engine/grammar/grammar_internal.h"
#include <stdlib.h>
#include <string.h>

struct grammar_matcher {
    struct grammar *grammar; // held
    struct machine_root at;  // MACHINE_DEAD: the answer has left the grammar
    int32_t *plan;           // (n_plan) NULL: none is needed
    int32_t n_plan, at_plan;
};

static void drop_plan(struct grammar_matcher *m) {
    free(m->plan);
    m->plan = NULL;
    m->n_plan = m->at_plan = 0;
}

int grammar_matcher_new(struct grammar_matcher **out, struct grammar *g, struct err *err) {
    struct grammar_matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return err_set(err, E_NOMEM, "no memory for a grammar");
    m->grammar = grammar_hold(g);
    pthread_mutex_lock(&g->lock);
    grammar_tidy(g);
    machine_hold(&g->machine, &m->at, machine_start(&g->machine));
    pthread_mutex_unlock(&g->lock);
    *out = m;
    return 0;
}

void grammar_matcher_free(struct grammar_matcher *m) {
    if (!m) return;
    pthread_mutex_lock(&m->grammar->lock);
    machine_drop(&m->grammar->machine, &m->at);
    pthread_mutex_unlock(&m->grammar->lock);
    grammar_free(m->grammar);
    drop_plan(m);
    free(m);
}

void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from) {
    pthread_mutex_lock(&to->grammar->lock);
    to->at.config = from->at.config;
    pthread_mutex_unlock(&to->grammar->lock);
    drop_plan(to); // made again where it is needed
    size_t bytes = (size_t)from->n_plan * sizeof *from->plan;
    if (from->plan) to->plan = malloc(bytes);
    if (!to->plan) return;
    memcpy(to->plan, from->plan, bytes);
    to->n_plan = from->n_plan;
    to->at_plan = from->at_plan;
}

// Under the lock. `close`: tokens left after the next one and the end.
static int near_the_end(struct grammar_matcher *m, int32_t close, uint64_t *bits) {
    struct grammar *g = m->grammar;
    if (!m->plan) m->plan = mask_plan(&g->machine, g->vocab, m->at.config, &m->n_plan);
    if (!m->plan) return E_NOMEM;
    if (!mask_within(&g->machine, g->vocab, m->at.config, close, bits)) return E_NOMEM;
    if (m->at_plan < m->n_plan) {
        int32_t id = m->plan[m->at_plan];
        bits[id >> 6] |= (uint64_t)1 << (id & 63);
    }
    return 0;
}

static int make_mask(struct grammar_matcher *m, int64_t left, uint64_t *bits, bool *may_end) {
    struct grammar *g = m->grammar;
    int64_t close = left - 2;
    grammar_tidy(g);
    if (m->at.config < 0) return E_INVAL;
    const struct mask *mask = mask_of(&g->machine, g->vocab, m->at.config);
    if (!mask) return E_NOMEM;
    *may_end = g->machine.configs[m->at.config].accepts;
    if (mask->most_least <= close) {
        memcpy(bits, mask->bits, (size_t)g->vocab->n_words * sizeof *bits);
        drop_plan(m);
        return 0;
    }
    if (close < 0) {
        memset(bits, 0, (size_t)g->vocab->n_words * sizeof *bits);
        return 0;
    }
    return near_the_end(m, close > INT32_MAX - 2 ? INT32_MAX - 2 : (int32_t)close, bits);
}

int grammar_matcher_mask(struct grammar_matcher *m, int64_t left, uint64_t *bits, bool *may_end,
                         struct err *err) {
    struct grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    int rc = make_mask(m, left, bits, may_end);
    int why = g->machine.error;
    pthread_mutex_unlock(&g->lock);
    const char *name = grammar_kind_name(grammar_text_kind(g->text));
    if (why == E_LIMIT)
        return err_set(err, E_LIMIT,
                       "%s is too ambiguous: the answer can continue in too many ways", name);
    if (rc == E_INVAL) return err_set(err, rc, "the answer does not match %s any more", name);
    return rc < 0 ? err_set(err, rc, "no memory for the tokens that %s allows", name) : 0;
}

const uint64_t *grammar_matcher_kept(struct grammar_matcher *m, int64_t left, bool *may_end,
                                     uint64_t *serial) {
    struct grammar *g = m->grammar;
    if (m->at.config < 0) return NULL;
    pthread_mutex_lock(&g->lock);
    grammar_tidy(g);
    const struct machine_config *at = m->at.config < 0 ? NULL : &g->machine.configs[m->at.config];
    const struct mask *mask = at ? at->mask : NULL;
    bool usable = mask && mask->most_least <= left - 2;
    if (usable) {
        *may_end = at->accepts;
        *serial = mask->serial;
        drop_plan(m);
    }
    pthread_mutex_unlock(&g->lock);
    return usable ? mask->bits : NULL;
}

bool grammar_matcher_lives(const struct grammar_matcher *m) {
    return m->at.config >= 0;
}

void grammar_matcher_restart(struct grammar_matcher *m) {
    struct grammar *g = m->grammar;
    drop_plan(m);
    pthread_mutex_lock(&g->lock);
    m->at.config = machine_start(&g->machine);
    pthread_mutex_unlock(&g->lock);
}

void grammar_matcher_accept(struct grammar_matcher *m, int32_t id) {
    struct grammar *g = m->grammar;
    if (m->at_plan < m->n_plan && m->plan[m->at_plan] == id)
        m->at_plan++;
    else
        drop_plan(m);
    bool known = id >= 0 && id < g->vocab->n && g->vocab->bytes[id];
    const uint8_t *bytes = known ? g->vocab->bytes[id] : NULL;
    int32_t len = known ? g->vocab->len[id] : 0;
    pthread_mutex_lock(&g->lock);
    grammar_tidy(g);
    int32_t at = bytes ? m->at.config : MACHINE_DEAD;
    for (int32_t i = 0; i < len && at >= 0; i++) at = machine_step(&g->machine, at, bytes[i]);
    m->at.config = at;
    pthread_mutex_unlock(&g->lock);
}

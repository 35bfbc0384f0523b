// See matcher.h.
//
// While enough tokens are left, the cached mask of the configuration is used. When completing the answer after
// one of its tokens might take more tokens than are left, the matcher makes a mask for the tokens left and a
// plan: the tokens of a cheapest completion. The plan's next token is always allowed, because a completion that
// is shorter in bytes may take more tokens, so the mask alone might allow none.
//
// grammar_matcher_prepare makes the same masks in slices. The grammar has one such making at a time, since the
// machine cannot be collected meanwhile.
//
// An accepted token moves the position only when the position is needed: its bytes take transitions that are often
// not in the processor's caches, a microsecond for each token. So the engine's thread accepts the tokens of a step
// in no time, launches the next step, and the transitions follow while a GPU computes.
//
// All fields but `grammar` and `accepted` are used under the grammar's lock: another matcher's thread may go on with
// the making.
#include "engine/grammar/matcher.h"
#include "engine/grammar/grammar_internal.h"
#include <stdlib.h>
#include <string.h>

enum { NO_TOKEN = INT32_MIN };

struct grammar_matcher {
    struct grammar *grammar; // held
    int32_t accepted;        // the answer's last token while `at` lies before it, else NO_TOKEN
    struct machine_root at;  // MACHINE_DEAD: the answer has left the grammar
    int32_t *plan;           // (n_plan) NULL: none is needed
    int32_t n_plan, at_plan;
    struct mask *within; // of `at`, for within_close tokens; NULL: not made
    int32_t within_close;
    int rc; // negative: why the mask of `at` cannot be made
};

static void drop_plan(struct grammar_matcher *m) {
    free(m->plan);
    m->plan = NULL;
    m->n_plan = m->at_plan = 0;
}

static void end_making(struct grammar *g) {
    mask_making_release(&g->making);
    g->maker = NULL;
}

// The position changes: what was made for it is of no use.
static void leave_position(struct grammar_matcher *m) {
    if (m->grammar->maker == m) end_making(m->grammar);
    mask_free(m->within);
    m->within = NULL;
    m->rc = 0;
}

static void advance_by(struct grammar_matcher *m, int32_t id) {
    struct grammar *g = m->grammar;
    bool known = id >= 0 && id < g->vocab->n && g->vocab->bytes[id];
    const uint8_t *bytes = known ? g->vocab->bytes[id] : NULL;
    int32_t len = known ? g->vocab->len[id] : 0;
    if (m->at_plan < m->n_plan && m->plan[m->at_plan] == id)
        m->at_plan++;
    else
        drop_plan(m);
    grammar_tidy(g);
    int32_t at = bytes ? m->at.config : MACHINE_DEAD;
    for (int32_t i = 0; i < len && at >= 0; i++) at = machine_step(&g->machine, at, bytes[i]);
    m->at.config = at;
}

// Moves the position behind the accepted token. Under the lock.
static void catch_up(struct grammar_matcher *m) {
    if (m->accepted == NO_TOKEN) return;
    leave_position(m);
    advance_by(m, m->accepted);
    m->accepted = NO_TOKEN;
}

// Tokens left after the next one and the end; -1: only the end may follow.
static int32_t tokens_to_close(int64_t left) {
    return left < 2 ? -1 : left - 2 > INT32_MAX - 2 ? INT32_MAX - 2 : (int32_t)(left - 2);
}

int grammar_matcher_new(struct grammar_matcher **out, struct grammar *g, struct err *err) {
    struct grammar_matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return err_set(err, E_NOMEM, "no memory for a grammar");
    m->grammar = grammar_hold(g);
    m->accepted = NO_TOKEN;
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
    leave_position(m);
    drop_plan(m);
    machine_drop(&m->grammar->machine, &m->at);
    pthread_mutex_unlock(&m->grammar->lock);
    grammar_free(m->grammar);
    free(m);
}

void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from) {
    pthread_mutex_lock(&to->grammar->lock);
    size_t bytes = (size_t)from->n_plan * sizeof *from->plan;
    leave_position(to);
    to->at.config = from->at.config;
    to->accepted = from->accepted;
    drop_plan(to); // made again where it is needed
    if (from->plan) to->plan = malloc(bytes);
    if (to->plan) {
        memcpy(to->plan, from->plan, bytes);
        to->n_plan = from->n_plan;
        to->at_plan = from->at_plan;
    }
    pthread_mutex_unlock(&to->grammar->lock);
}

// --- masks ---------------------------------------------------------------------------------------

static void allow_plan(const struct grammar_matcher *m, uint64_t *bits) {
    if (m->at_plan >= m->n_plan) return;
    int32_t id = m->plan[m->at_plan];
    bits[id >> 6] |= (uint64_t)1 << (id & 63);
}

static bool need_plan(struct grammar_matcher *m) {
    struct grammar *g = m->grammar;
    if (!m->plan) m->plan = mask_plan(&g->machine, g->vocab, m->at.config, &m->n_plan);
    return m->plan;
}

static bool has_within(const struct grammar_matcher *m, int32_t close) {
    return m->within && m->within_close == close && m->plan;
}

// Under the lock, like all below.
static int near_the_end(struct grammar_matcher *m, int32_t close, uint64_t *bits) {
    struct grammar *g = m->grammar;
    if (has_within(m, close))
        memcpy(bits, m->within->bits, (size_t)g->vocab->n_words * sizeof *bits);
    else if (!need_plan(m) || !mask_within(&g->machine, g->vocab, m->at.config, close, bits))
        return E_NOMEM;
    allow_plan(m, bits);
    return 0;
}

static int make_mask(struct grammar_matcher *m, int32_t close, uint64_t *bits, bool *may_end) {
    struct grammar *g = m->grammar;
    grammar_tidy(g);
    if (m->rc < 0) return m->rc;
    if (m->at.config < 0) return E_INVAL;
    *may_end = g->machine.configs[m->at.config].accepts;
    if (close < 0) {
        memset(bits, 0, (size_t)g->vocab->n_words * sizeof *bits);
        return 0;
    }
    const struct mask *mask = mask_of(&g->machine, g->vocab, m->at.config);
    if (!mask) return E_NOMEM;
    if (mask->most_least > close) return near_the_end(m, close, bits);
    memcpy(bits, mask->bits, (size_t)g->vocab->n_words * sizeof *bits);
    drop_plan(m);
    return 0;
}

// --- slices --------------------------------------------------------------------------------------

// Whether make_mask has little to do: also where the machine is explored, so that a mask costs one walk.
static bool is_ready(const struct grammar_matcher *m, int32_t close) {
    const struct machine *x = &m->grammar->machine;
    if (m->at.config < 0 || m->rc < 0 || close < 0) return true;
    const struct mask *mask = x->configs[m->at.config].mask;
    return mask ? mask->most_least <= close || has_within(m, close) : x->explored;
}

// 0: the maker has its masks; MACHINE_SPENT, or an error.
static int advance(struct grammar *g) {
    struct grammar_matcher *m = g->maker;
    struct machine *x = &g->machine;
    if (m->at.config < 0) return E_NOMEM;
    if (!x->configs[m->at.config].mask) {
        int rc = mask_make(x, g->vocab, m->at.config, -1, &g->making);
        if (rc != 0) return rc;
        mask_keep(x, m->at.config, g->making.mask);
        g->making.mask = NULL;
        mask_making_release(&g->making);
    }
    if (x->configs[m->at.config].mask->most_least <= g->making_close) return 0;
    if (!need_plan(m)) return x->error != 0 ? x->error : E_NOMEM;
    int rc = mask_make(x, g->vocab, m->at.config, g->making_close, &g->making);
    if (rc != 0) return rc;
    mask_free(m->within);
    m->within = g->making.mask;
    m->within_close = g->making_close;
    g->making.mask = NULL;
    return 0;
}

static void slice(struct grammar *g, int64_t *effort) {
    struct machine *x = &g->machine;
    x->work = 0;
    x->effort = *effort;
    int rc = x->error < 0 ? x->error : advance(g);
    *effort = x->effort > 0 ? x->effort : 0;
    x->effort = MACHINE_FREE;
    if (x->error == MACHINE_SPENT) x->error = 0;
    if (rc == MACHINE_SPENT) return;
    g->maker->rc = rc;
    end_making(g);
}

bool grammar_matcher_prepare(struct grammar_matcher *m, int64_t left, int64_t *effort) {
    struct grammar *g = m->grammar;
    int32_t close = tokens_to_close(left);
    pthread_mutex_lock(&g->lock);
    catch_up(m);
    bool ready = is_ready(m, close);
    while (!ready && *effort > 0) {
        grammar_tidy(g);
        if (!g->maker) {
            g->maker = m;
            g->making_close = close;
        }
        slice(g, effort);
        ready = is_ready(m, close);
    }
    pthread_mutex_unlock(&g->lock);
    return ready;
}

int grammar_matcher_mask(struct grammar_matcher *m, int64_t left, uint64_t *bits, bool *may_end,
                         struct err *err) {
    struct grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    catch_up(m);
    int rc = make_mask(m, tokens_to_close(left), bits, may_end);
    int why = rc < 0 && g->machine.error < 0 ? g->machine.error : rc;
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
    pthread_mutex_lock(&g->lock);
    catch_up(m);
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

bool grammar_matcher_lives(struct grammar_matcher *m) {
    pthread_mutex_lock(&m->grammar->lock);
    catch_up(m);
    bool lives = m->at.config >= 0;
    pthread_mutex_unlock(&m->grammar->lock);
    return lives;
}

void grammar_matcher_restart(struct grammar_matcher *m) {
    struct grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    leave_position(m);
    drop_plan(m);
    m->accepted = NO_TOKEN;
    m->at.config = machine_start(&g->machine);
    pthread_mutex_unlock(&g->lock);
}

void grammar_matcher_accept(struct grammar_matcher *m, int32_t id) {
    if (m->accepted != NO_TOKEN) {
        pthread_mutex_lock(&m->grammar->lock);
        catch_up(m);
        pthread_mutex_unlock(&m->grammar->lock);
    }
    m->accepted = id;
}

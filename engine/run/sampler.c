// The order of a draw: adjust() applies repetition, presence and frequency
// penalties, logit bias, bad words, minimum length and the grammar; nucleus.c does temperature, top-k, top-p,
// min-p and the draw; log_softmax.c computes the model's own log-probability of the token.
#include "engine/run/sampler.h"
#include "base/philox.h"
#include "engine/run/lanes.h"
#include "engine/run/log_softmax.h"
#include "engine/run/nucleus.h"
#include <stdlib.h>

#define MARK_IN_LOG 0x80000000u
#define MARK_COUNT 0x7fffffffu

// --- scratch and history -------------------------------------------------------------------------

int sampler_work_init(struct sampler_work *w, int32_t n_vocab, struct err *err) {
    size_t n = (size_t)n_vocab;
    *w = (struct sampler_work){.n_vocab = n_vocab};
    w->adjusted = malloc(n * sizeof *w->adjusted);
    w->bucket = malloc(n * sizeof *w->bucket);
    w->members = malloc(n * sizeof *w->members);
    w->mass = malloc(SAMPLER_BUCKETS * sizeof *w->mass);
    w->count = malloc(SAMPLER_BUCKETS * sizeof *w->count);
    w->allowed = malloc((n + 63) / 64 * sizeof *w->allowed);
    w->penalties = malloc(n * sizeof *w->penalties);
    if (w->allowed && w->adjusted && w->bucket && w->members && w->mass && w->count && w->penalties)
        return 0;
    sampler_work_release(w);
    return err_set(err, E_NOMEM, "no memory to sample from a vocabulary of %d tokens", n_vocab);
}

void sampler_work_release(struct sampler_work *w) {
    free(w->adjusted);
    free(w->bucket);
    free(w->members);
    free(w->mass);
    free(w->count);
    free(w->allowed);
    free(w->penalties);
    *w = (struct sampler_work){0};
}

int sampler_init(struct sampler *s, int32_t n_vocab, struct err *err) {
    *s = (struct sampler){.n_vocab = n_vocab};
    s->marks = calloc((size_t)n_vocab, sizeof *s->marks);
    s->seen = malloc((size_t)n_vocab * sizeof *s->seen);
    if (s->marks && s->seen) return 0;
    sampler_release(s);
    return err_set(err, E_NOMEM, "no memory for the token counts of a vocabulary of %d tokens",
                   n_vocab);
}

void sampler_release(struct sampler *s) {
    free(s->marks);
    free(s->seen);
    constraint_release(&s->constraint);
    *s = (struct sampler){0};
}

static bool has_repetition_penalty(const struct sampling_params *p) {
    return p->repetition_penalty != 1;
}
static bool has_count_penalty(const struct sampling_params *p) {
    return p->presence_penalty != 0 || p->frequency_penalty != 0;
}

// Sets bits in a token's mark; its id joins the list when it is the first.
static void mark(struct sampler *s, int32_t id, uint32_t value) {
    if (s->marks[id] == 0) s->seen[s->n_seen++] = id;
    s->marks[id] = value;
}

static void push_tail(struct sampler *s, int32_t id) {
    const int32_t cap = SAMPLING_WORD_TOKENS;
    if (s->n_tail == cap) {
        memmove(s->tail, s->tail + 1, (size_t)(cap - 1) * sizeof *s->tail);
        s->n_tail--;
    }
    s->tail[s->n_tail++] = id;
}

static void forget(struct sampler *s) {
    for (int32_t i = 0; i < s->n_seen; i++) s->marks[s->seen[i]] = 0;
    s->n_seen = s->n_tail = 0;
    s->n_generated = 0;
}

void sampler_unconstrain(struct sampler *s) {
    constraint_release(&s->constraint);
}

bool sampler_prepare(const struct sampler *s, int64_t *effort) {
    return constraint_prepare(&s->constraint, effort);
}

int sampler_constrain(struct sampler *s, struct grammar *g, int64_t most, struct err *err) {
    return constraint_grammar(&s->constraint, g, most, err);
}

void sampler_watch_thinking(struct sampler *s, const struct thinking_marks *marks,
                            const int32_t *log, int64_t n_log, bool goes_on) {
    constraint_thinking(&s->constraint, marks, s->params->thinking_budget, log, n_log, goes_on);
}

static bool has_distinct_biases(const struct sampling_params *p) {
    for (int32_t i = 0; i < p->n_bias; i++)
        for (int32_t k = 0; k < i; k++)
            if (p->bias[i].id == p->bias[k].id) return false;
    return true;
}

int sampler_begin(struct sampler *s, const struct sampling_params *p, uint32_t branch,
                  const int32_t *eos_ids, int32_t n_eos, const int32_t *log, int64_t n_log,
                  struct err *err) {
    forget(s);
    sampler_unconstrain(s);
    s->params = p;
    s->biases_distinct = has_distinct_biases(p);
    s->branch = branch;
    s->decayed_top_p = 0;
    s->eos_ids = p->end_id >= 0 ? &p->end_id : eos_ids;
    s->n_eos = p->end_id >= 0 ? 1 : n_eos;
    for (int64_t i = 0; i < n_log; i++)
        if (log[i] < 0 || (log[i] >= s->n_vocab && !prompt_is_virtual(log[i])))
            return err_set(err, E_INVAL, "token %d at position %lld is not in the vocabulary of %d",
                           log[i], (long long)i, s->n_vocab);
    if (has_repetition_penalty(p))
        for (int64_t i = 0; i < n_log; i++)
            if (!prompt_is_virtual(log[i])) mark(s, log[i], MARK_IN_LOG);
    int64_t n_tail = n_log < SAMPLING_WORD_TOKENS ? n_log : SAMPLING_WORD_TOKENS;
    for (int64_t i = n_log - n_tail; i < n_log; i++) push_tail(s, log[i]);
    return 0;
}

int sampler_copy(struct sampler *to, const struct sampler *from, struct err *err) {
    uint32_t *marks = to->marks;
    int32_t *seen = to->seen;
    forget(to);
    TRY(constraint_copy(&to->constraint, &from->constraint, err));
    struct constraint constraint = to->constraint;
    for (int32_t i = 0; i < from->n_seen; i++) {
        seen[i] = from->seen[i];
        marks[seen[i]] = from->marks[seen[i]];
    }
    *to = *from;
    to->marks = marks;
    to->seen = seen;
    to->constraint = constraint;
    return 0;
}

static bool ends_answer(const struct sampler *s, int32_t id) {
    for (int32_t i = 0; i < s->n_eos; i++)
        if (s->eos_ids[i] == id) return true;
    return false;
}

static float top_p_of(const struct sampler *s) {
    return s->decayed_top_p > 0 ? s->decayed_top_p : s->params->top_p;
}

void sampler_accept(struct sampler *s, int32_t id) {
    const struct sampling_params *p = s->params;
    s->n_generated++;
    push_tail(s, id);
    constraint_accept(&s->constraint, id, ends_answer(s, id));
    if (id == p->top_p_reset_ids)
        s->decayed_top_p = 0;
    else if (p->top_p_decay != 1)
        s->decayed_top_p = fmaxf(top_p_of(s) * p->top_p_decay, p->top_p_min);
    if (!has_repetition_penalty(p) && !has_count_penalty(p)) return;
    uint32_t count = s->marks[id] & MARK_COUNT;
    mark(s, id, MARK_IN_LOG | (count < MARK_COUNT ? count + 1 : count));
}

// --- adjusted logits -----------------------------------------------------------------------------

static void apply_penalties(const struct sampler *s, float *x) {
    const struct sampling_params *p = s->params;
    for (int32_t i = 0; i < s->n_seen; i++) {
        int32_t id = s->seen[i];
        uint32_t count = s->marks[id] & MARK_COUNT;
        float l = x[id];
        // CTRL (Keskar et al. 2019) as Hugging Face applies it: both signs are pushed down.
        l = l < 0 ? l * p->repetition_penalty : l / p->repetition_penalty;
        if (count > 0) l = l - p->presence_penalty - p->frequency_penalty * (float)count;
        x[id] = l;
    }
}

// A ban sets the logit instead of adding to it: adding -inf to an infinite logit could give NaN.
static void apply_bias(const struct sampling_params *p, float *x) {
    for (int32_t i = 0; i < p->n_bias; i++) {
        const struct logit_bias *b = &p->bias[i];
        x[b->id] = b->bias == -INFINITY ? -INFINITY : x[b->id] + b->bias;
    }
}

static bool log_ends_with(const struct sampler *s, const int32_t *ids, int32_t n) {
    return n <= s->n_tail && memcmp(s->tail + s->n_tail - n, ids, (size_t)n * sizeof *ids) == 0;
}

// The last token of a bad sequence whose other tokens end the log, or -1.
static int32_t banned_by_word(const struct sampler *s, int32_t word) {
    int32_t n;
    const int32_t *ids = sampling_word_ids(&s->params->bad_words, word, &n);
    return log_ends_with(s, ids, n - 1) ? ids[n - 1] : -1;
}

static void ban_bad_words(const struct sampler *s, float *x) {
    for (int32_t i = 0; i < s->params->bad_words.n_lists; i++) {
        int32_t id = banned_by_word(s, i);
        if (id >= 0) x[id] = -INFINITY;
    }
}

// Whether a stop at the answer's n-th token would come before min_tokens.
static bool stop_is_early(const struct sampler *s, int64_t n) {
    return s->params->stop_in != STOP_IN_OLD_RECORD && n <= s->params->min_tokens;
}

bool sampler_at_stop(const struct sampler *s) {
    const struct sampling_words *w = &s->params->stop;
    if (stop_is_early(s, s->n_generated)) return false;
    for (int32_t i = 0; i < w->n_lists; i++) {
        int32_t n;
        const int32_t *ids = sampling_word_ids(w, i, &n);
        if (log_ends_with(s, ids, n)) return true;
    }
    return false;
}

bool sampler_stops_with(const struct sampler *s, int32_t id) {
    const struct sampling_words *w = &s->params->stop;
    if (stop_is_early(s, s->n_generated + 1)) return false;
    for (int32_t i = 0; i < w->n_lists; i++) {
        int32_t n;
        const int32_t *ids = sampling_word_ids(w, i, &n);
        if (ids[n - 1] == id && log_ends_with(s, ids, n - 1)) return true;
    }
    return false;
}

static bool eos_is_held_back(const struct sampler *s) {
    return s->n_generated < s->params->min_tokens && !s->params->ignore_eos && s->n_eos > 0;
}

static void ban_eos(const struct sampler *s, float *x) {
    for (int32_t i = 0; i < s->n_eos; i++)
        if (s->eos_ids[i] >= 0 && s->eos_ids[i] < s->n_vocab) x[s->eos_ids[i]] = -INFINITY;
}

static bool is_adjusted(const struct sampler *s) {
    return s->n_seen > 0 || s->params->n_bias > 0 || s->params->bad_words.n_lists > 0 ||
           eos_is_held_back(s) || constraint_holds(&s->constraint);
}

static void forbid_unset(float *x, int32_t n, const uint64_t *allowed) {
    for (int32_t i = 0; i < n; i += 64) {
        uint64_t word = allowed[i / 64];
        int32_t len = n - i < 64 ? n - i : 64;
        if (word == UINT64_MAX) continue;
        for (int32_t k = 0; k < len; k++) x[i + k] = word >> k & 1 ? x[i + k] : -INFINITY;
    }
}

static bool any_set(const uint64_t *words, int32_t n) {
    uint64_t all = 0;
    for (int32_t i = 0; i < n; i++) all |= words[i];
    return all != 0;
}

static void set_allowed(const struct sampler *s, struct sampler_work *w, int32_t id,
                        bool is_allowed) {
    if (id < 0 || id >= s->n_vocab) return;
    uint64_t bit = (uint64_t)1 << id % 64;
    w->allowed[id / 64] = is_allowed ? w->allowed[id / 64] | bit : w->allowed[id / 64] & ~bit;
}

static void set_eos_allowed(const struct sampler *s, struct sampler_work *w, bool is_allowed) {
    for (int32_t i = 0; i < s->n_eos; i++) set_allowed(s, w, s->eos_ids[i], is_allowed);
}

// What the grammar allows next, into w->allowed. An end is allowed where the answer is complete; where it
// can only end, min_tokens gives way.
static int allow_by_grammar(const struct sampler *s, struct sampler_work *w, struct err *err) {
    bool may_end;
    TRY(constraint_allow(&s->constraint, w->allowed, s->n_vocab, &may_end, err));
    set_eos_allowed(s, w, false);
    bool must_end = may_end && !any_set(w->allowed, (s->n_vocab + 63) / 64);
    if (may_end && (must_end || !eos_is_held_back(s))) set_eos_allowed(s, w, true);
    return 0;
}

// *out: the logits to draw from, the model's own if the parameters do not change them, else a changed
// copy.
static int adjust(const struct sampler *s, struct sampler_work *w, const float *logits,
                  const float **out, struct err *err) {
    const struct sampling_params *p = s->params;
    *out = logits;
    if (!is_adjusted(s)) return 0;
    *out = w->adjusted;
    if (constraint_forced(&s->constraint) >= 0) {
        for (int32_t i = 0; i < s->n_vocab; i++) w->adjusted[i] = -INFINITY;
        w->adjusted[constraint_forced(&s->constraint)] = 0;
        return 0;
    }
    memcpy(w->adjusted, logits, (size_t)s->n_vocab * sizeof *logits);
    apply_penalties(s, w->adjusted);
    apply_bias(p, w->adjusted);
    ban_bad_words(s, w->adjusted);
    if (!s->constraint.matcher && eos_is_held_back(s)) ban_eos(s, w->adjusted);
    if (!s->constraint.matcher) return 0;
    TRY(allow_by_grammar(s, w, err));
    forbid_unset(w->adjusted, s->n_vocab, w->allowed);
    return 0;
}

// Whether the adjusted logits can be drawn from.
static int check_max(const struct sampler *s, float max, struct err *err) {
    if (max == -INFINITY)
        return err_set(
            err, E_INVAL,
            "no token is left to draw: logit_bias, bad_words, min_tokens and the grammar forbid "
            "every token that the model allows");
    if (max == INFINITY)
        return err_set(err, E_INVAL, "repetition_penalty %g makes a logit infinite",
                       (double)s->params->repetition_penalty);
    return 0;
}

// --- one draw ------------------------------------------------------------------------------------

static bool is_greedy(const struct sampling_params *p) {
    return p->temperature == 0 || p->top_k == 1;
}

// The lowest id whose logit is max, which occurs.
static int32_t find_first(const float *x, int32_t n, float max) {
    int32_t i = 0;
    for (; n - i >= CHUNK; i += CHUNK) {
        struct chunk c = chunk_load(x + i, n - i);
        i32x4 hit = (c.v[0] == max) | (c.v[1] == max) | (c.v[2] == max) | (c.v[3] == max);
        if (i32x4_any(hit)) break;
    }
    while (x[i] != max) i++;
    return i;
}

static void nucleus_from_params(struct nucleus *nu, const struct sampler *s, struct sampler_work *w,
                                const float *x, float max) {
    const struct sampling_params *p = s->params;
    nucleus_init(nu, w, x, w->n_vocab, max, p->temperature);
    if (p->top_k > 0) nucleus_keep_count(nu, p->top_k);
    nucleus_keep_mass(nu, top_p_of(s));
    nucleus_keep_ratio(nu, p->min_p);
}

// The ids of the n largest, best first, by insertion into a short list: after the first few chunks almost
// none is above the list's last. Equals lose to the lower id. Returns how many there are.
static int32_t best_ids(const float *x, int32_t n_vocab, int32_t n, int32_t *out) {
    int32_t len = 0;
    float floor = -INFINITY;
    for (int32_t i = 0; n > 0 && i < n_vocab; i += CHUNK) {
        struct chunk c = chunk_load(x + i, n_vocab - i);
        if (!i32x4_any((c.v[0] > floor) | (c.v[1] > floor) | (c.v[2] > floor) | (c.v[3] > floor)))
            continue;
        for (int32_t id = i; id < n_vocab && id < i + CHUNK; id++) {
            if (!(x[id] > floor)) continue;
            int32_t at = len < n ? len++ : n - 1;
            for (; at > 0 && x[id] > x[out[at - 1]]; at--) out[at] = out[at - 1];
            out[at] = id;
            if (len == n) floor = x[out[n - 1]];
        }
    }
    return len;
}

static int32_t best_of(const struct log_softmax *own, const float *logits, int32_t n_vocab,
                       int32_t n, struct engine_alternative *out) {
    int32_t best[SAMPLING_MAX_TOP_LOGPROBS], len = best_ids(logits, n_vocab, n, best);
    for (int32_t i = 0; i < len; i++)
        out[i] = (struct engine_alternative){best[i], log_softmax_value(own, logits[best[i]])};
    return len;
}

int sampler_draw(struct sampler *s, struct sampler_work *w, const float *logits, int64_t position,
                 struct sampled *out, struct err *err) {
    const struct sampling_params *p = s->params;
    struct log_softmax own;
    TRY(log_softmax_init(&own, logits, s->n_vocab, err));
    const float *x;
    TRY(adjust(s, w, logits, &x, err));
    float max = x == logits ? own.max : row_max(x, s->n_vocab);
    TRY(check_max(s, max, err));
    if (is_greedy(p)) {
        out->id = find_first(x, s->n_vocab, max);
    } else {
        struct nucleus nu;
        nucleus_from_params(&nu, s, w, x, max);
        out->id = nucleus_draw(&nu, philox_uniform(p->seed, (uint64_t)position, s->branch));
    }
    out->logprob = log_softmax_value(&own, logits[out->id]);
    out->n_alternatives = best_of(&own, logits, s->n_vocab, p->top_logprobs, out->alternatives);
    return 0;
}

int sampler_rank(struct sampler *s, struct sampler_work *w, const float *logits, int32_t n,
                 struct beam_candidate *out, struct err *err) {
    struct log_softmax own, ranked;
    TRY(log_softmax_init(&own, logits, s->n_vocab, err));
    const float *x;
    TRY(adjust(s, w, logits, &x, err));
    ranked = own;
    if (x != logits) {
        TRY(check_max(s, row_max(x, s->n_vocab), err));
        TRY(log_softmax_init(&ranked, x, s->n_vocab, err));
    }
    int32_t best[BEAMS_MAX_CANDIDATES];
    int32_t len = best_ids(x, s->n_vocab, n, best);
    for (int32_t i = 0; i < len; i++) {
        out[i].id = best[i];
        out[i].own = log_softmax_value(&own, logits[out[i].id]);
        out[i].logprob = (double)x[out[i].id] - (double)ranked.max - ranked.log_sum;
    }
    return len;
}

// Whether a token that is accepted changes the next draw.
static bool has_history(const struct sampling_params *p) {
    return has_repetition_penalty(p) || has_count_penalty(p) || p->top_p_decay != 1;
}

static struct batch_draw plan(const struct sampler *s, int64_t position) {
    const struct sampling_params *p = s->params;
    if (is_greedy(p)) return (struct batch_draw){.kind = DRAW_GREEDY};
    return (struct batch_draw){.kind = DRAW_SAMPLE,
                               .top_k = p->top_k,
                               .temperature = p->temperature,
                               .top_p = top_p_of(s),
                               .min_p = p->min_p,
                               .u = philox_uniform(p->seed, (uint64_t)position, s->branch)};
}

struct batch_draw sampler_plan(const struct sampler *s, int64_t position, int32_t ahead) {
    const struct sampling_params *p = s->params;
    if (is_adjusted(s) || p->top_logprobs > 0 || (ahead > 0 && has_history(p)) ||
        constraint_may_force(&s->constraint, ahead))
        return (struct batch_draw){.kind = DRAW_NONE};
    return plan(s, position);
}

bool sampler_is_adjustment(const struct sampler *s) {
    return is_adjusted(s) && s->params->top_logprobs == 0;
}

static bool forbids(const struct sampler *s) {
    const struct sampling_params *p = s->params;
    bool any = s->constraint.matcher || eos_is_held_back(s) || p->bad_words.n_lists > 0;
    for (int32_t i = 0; i < p->n_bias; i++) any = any || p->bias[i].bias == -INFINITY;
    return any;
}

// A mask that the grammar keeps, where nothing else forbids tokens. The model's ends of answers are not in it.
static bool take_kept(const struct sampler *s, struct batch_adjusted *out) {
    const struct sampling_params *p = s->params;
    bool others = p->bad_words.n_lists > 0 || p->end_id >= 0 || eos_is_held_back(s), may_end;
    for (int32_t i = 0; i < p->n_bias; i++) others = others || p->bias[i].bias == -INFINITY;
    const uint64_t *bits =
        others ? NULL : constraint_kept(&s->constraint, &may_end, &out->allowed_serial);
    if (!bits) return false;
    out->allowed = bits;
    out->ends = s->eos_ids;
    out->n_ends = may_end ? s->n_eos : 0;
    return true;
}

// Everything that adjust() makes -inf, as bits that are not set. It makes no difference that the bans come
// before the biases here: a finite bias does not bring a token back.
static int forbid(const struct sampler *s, struct sampler_work *w, struct err *err) {
    const struct sampling_params *p = s->params;
    if (s->constraint.matcher)
        TRY(allow_by_grammar(s, w, err));
    else
        memset(w->allowed, 0xff, (size_t)(s->n_vocab + 63) / 64 * sizeof *w->allowed);
    if (!s->constraint.matcher && eos_is_held_back(s)) set_eos_allowed(s, w, false);
    for (int32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].bias == -INFINITY) set_allowed(s, w, p->bias[i].id, false);
    for (int32_t i = 0; i < p->bad_words.n_lists; i++) {
        int32_t last = banned_by_word(s, i);
        if (last >= 0) set_allowed(s, w, last, false);
    }
    return 0;
}

int sampler_adjustment(const struct sampler *s, struct sampler_work *w, int64_t position,
                       struct batch_adjusted *out, struct err *err) {
    const struct sampling_params *p = s->params;
    if (constraint_forced(&s->constraint) >= 0) {
        *out = (struct batch_adjusted){
            .draw = {.kind = DRAW_GREEDY}, .allowed = w->allowed, .repetition = 1};
        memset(w->allowed, 0, (size_t)(s->n_vocab + 63) / 64 * sizeof *w->allowed);
        set_allowed(s, w, constraint_forced(&s->constraint), true);
        return 0;
    }
    *out = (struct batch_adjusted){
        .draw = plan(s, position),
        .repetition = p->repetition_penalty,
        .presence = p->presence_penalty,
        .frequency = p->frequency_penalty,
        .penalties = w->penalties,
        .n_penalties = s->n_seen,
        .biases = w->biases,
        .biases_distinct = s->biases_distinct,
    };
    for (int32_t i = 0; i < s->n_seen; i++)
        w->penalties[i] = (struct batch_penalty){s->seen[i], s->marks[s->seen[i]] & MARK_COUNT};
    for (int32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].bias != -INFINITY)
            w->biases[out->n_biases++] = (struct batch_bias){p->bias[i].id, p->bias[i].bias};
    if (!forbids(s)) return 0;
    if (take_kept(s, out)) return 0;
    out->allowed = w->allowed;
    return forbid(s, w, err);
}

int sampler_probabilities(struct sampler *s, struct sampler_work *w, const float *logits,
                          float *probs, struct err *err) {
    struct log_softmax own;
    TRY(log_softmax_init(&own, logits, s->n_vocab, err));
    const float *x;
    TRY(adjust(s, w, logits, &x, err));
    float max = row_max(x, s->n_vocab);
    TRY(check_max(s, max, err));
    if (is_greedy(s->params)) {
        memset(probs, 0, (size_t)s->n_vocab * sizeof *probs);
        probs[find_first(x, s->n_vocab, max)] = 1;
        return 0;
    }
    struct nucleus nu;
    nucleus_from_params(&nu, s, w, x, max);
    nucleus_probabilities(&nu, probs);
    return 0;
}

int sampler_logprob(const float *logits, int32_t n_vocab, int32_t id, float *logprob,
                    struct err *err) {
    struct log_softmax own;
    TRY(log_softmax_init(&own, logits, n_vocab, err));
    *logprob = log_softmax_value(&own, logits[id]);
    return 0;
}

int sampler_best(const float *logits, int32_t n_vocab, int32_t n, struct engine_alternative *out,
                 struct err *err) {
    struct log_softmax own;
    if (n == 0) return 0;
    TRY(log_softmax_init(&own, logits, n_vocab, err));
    best_of(&own, logits, n_vocab, n, out);
    return 0;
}

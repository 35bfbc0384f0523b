// See branches.h.
#include "engine/run/branches.h"

#include "engine/run/live_turn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 1 << 28 };

int32_t branches_wanted(const struct sampling_params *p) {
    return p->beam_width > 1 ? p->beam_width : p->n;
}

int branches_check(const struct engine_turn *t, int32_t n_eos, struct err *err) {
    const struct sampling_params *p = &t->sampling;
    if (branches_wanted(p) == 1 || t->score_only) return 0;
    if (p->n > 1 && p->beam_width > 1)
        return err_set(err, E_INVAL, "n, beam_width: one of the two can be above 1");
    if (t->on_logits)
        return err_set(err, E_UNSUPPORTED, "n, beam_width: not with the logits of each position");
    if (p->beam_width == 1) return 0;
    if (p->top_logprobs > 0)
        return err_set(err, E_INVAL, "top_logprobs does not go with beam_width");
    if (n_eos > BEAMS_MAX_EOS)
        return err_set(err, E_UNSUPPORTED, "beam_width: the model has more than %d eos tokens",
                       BEAMS_MAX_EOS);
    return 0;
}

// The full blocks of the turn's log are shared by all rings. Behind them each ring has its own, and so
// has the ring of the best ended beam.
int64_t branches_reserve(const struct engine_turn *t, const struct kv_groups *groups,
                         int32_t chunk_tokens, int32_t block_tokens, int64_t max_log) {
    struct kv_ring_shape shape = {.memory_len = t->memory_len,
                                  .sink_len = t->sink_len,
                                  .chunk_tokens = chunk_tokens,
                                  .block_tokens = block_tokens,
                                  .session_len = max_log,
                                  .groups = groups};
    int32_t most = kv_ring_max_blocks(&shape);
    int64_t n = t->score_only ? 1 : branches_wanted(&t->sampling);
    if (n == 1) return most;
    shape.session_len = t->n_ids;
    int64_t shared = kv_ring_max_blocks(&shape);
    int64_t own = (t->n_ids % block_tokens + max_log - t->n_ids + block_tokens - 1) / block_tokens;
    own *= groups->n;
    if (own > most) own = most;
    int64_t all = shared + (n + (t->sampling.beam_width > 1)) * own;
    return all > most ? all : most;
}

// --- stop strings of beams -----------------------------------------------------------------------

// Beams change places in every step, so none has a detokenizer of its own: the end of a beam's answer
// becomes text again for each candidate. If that end has a stop string, the whole answer decides whether it
// applies there (stop_filter.h).
struct stop_texts {
    const struct engine_turn *spec;
    const struct answer_form *form;
    const struct tokenizer *tokenizer;
    int32_t n_tail; // tokens that a string can end in: each has a byte, except a few special ones
    struct detokenizer detokenizer;
    struct buf text, passed;
    struct stop_filter filter;
};

enum { TAIL_MORE_TOKENS = 8 };

static struct stop_texts *stop_texts_new(const struct engine_turn *spec) {
    const struct sampling_words *w = &spec->sampling.stop;
    struct stop_texts *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->spec = spec;
    buf_init(&x->text, TEXTS_MAX);
    buf_init(&x->passed, TEXTS_MAX);
    for (int32_t i = 0; i < w->n_texts; i++) {
        int32_t len = (int32_t)strlen(sampling_word_text(w, i));
        if (len > x->n_tail) x->n_tail = len;
    }
    x->n_tail += TAIL_MORE_TOKENS;
    return x;
}

static void stop_texts_free(struct stop_texts *x) {
    if (!x) return;
    detokenizer_release(&x->detokenizer);
    buf_release(&x->text);
    buf_release(&x->passed);
    stop_filter_release(&x->filter);
    free(x);
}

static int feed(struct stop_texts *x, int32_t id) {
    size_t len;
    return tokenizer_bytes(x->tokenizer, id, &len) ? detokenizer_feed(&x->detokenizer, id, &x->text)
                                                   : 0;
}

// Starts the text of an answer behind its first `from` ids.
static int start(struct stop_texts *x, const int32_t *ids, int32_t from) {
    const struct engine_turn *spec = x->spec;
    if (from > 0) return detokenizer_start_after(&x->detokenizer, x->tokenizer, ids, (size_t)from);
    if (spec->goes_on)
        return detokenizer_start_after(&x->detokenizer, x->tokenizer, spec->ids,
                                       (size_t)spec->n_ids);
    detokenizer_start(&x->detokenizer, x->tokenizer);
    return 0;
}

static bool tail_has_stop(struct stop_texts *x, const int32_t *ids, int32_t n, int32_t id) {
    const struct sampling_words *w = &x->spec->sampling.stop;
    int32_t from = n > x->n_tail ? n - x->n_tail : 0;
    buf_reset(&x->text);
    int rc = start(x, ids, from);
    for (int32_t i = from; rc == 0 && i < n; i++) rc = feed(x, ids[i]);
    if (rc == 0) rc = feed(x, id);
    for (int32_t i = 0; rc == 0 && i < w->n_texts; i++)
        if (strstr(buf_z(&x->text), sampling_word_text(w, i))) return true;
    return false;
}

// Whether a stop string ends the answer with id after ids. False without memory: the answer goes on.
static bool stop_texts_match(struct stop_texts *x, const int32_t *ids, int32_t n, int32_t id) {
    if (!tail_has_stop(x, ids, n, id)) return false;
    int rc = turn_stop_begin(&x->filter, x->spec, x->form, x->spec->n_ids, NULL);
    if (rc == 0) rc = start(x, ids, 0);
    for (int32_t i = 0; rc == 0 && i <= n; i++) {
        buf_reset(&x->text);
        buf_reset(&x->passed);
        rc = feed(x, i < n ? ids[i] : id);
        if (rc == 0)
            rc = stop_filter_feed(&x->filter, buf_z(&x->text), x->text.len,
                                  turn_stop_is_early(x->spec, i + 1), &x->passed);
    }
    return rc == 1;
}

// The sampler of a beam knows the tokens before this one.
static bool stops(void *ctx, int32_t beam, int32_t id) {
    const struct branches *b = ctx;
    const struct beam *x = &b->search.running[beam];
    if (sampler_stops_with(&b->samplers[beam], id)) return true;
    return b->stop_texts && stop_texts_match(b->stop_texts, x->ids, x->n, id);
}

// --- storage -------------------------------------------------------------------------------------

static int new_beams(struct branches *b, const struct engine_turn *spec, int32_t n_vocab,
                     const int32_t *eos_ids, int32_t n_eos, struct err *err) {
    const struct sampling_params *p = &spec->sampling;
    struct beam_options o = {.width = b->n,
                             .length_penalty = p->len_penalty,
                             .diversity = p->beam_search_diversity_rate,
                             .early_stopping = p->early_stopping,
                             .max_tokens = b->cap,
                             .eos_ids = p->end_id >= 0 ? &p->end_id : eos_ids,
                             .n_eos = p->ignore_eos    ? 0
                                      : p->end_id >= 0 ? 1
                                                       : n_eos};
    if (p->stop.n_lists + p->stop.n_texts > 0) {
        o.stops = stops;
        o.stops_ctx = b;
    }
    if (p->stop.n_texts > 0 && !(b->stop_texts = stop_texts_new(spec)))
        return err_set(err, E_NOMEM, "no memory for stop strings");
    b->samplers = calloc((size_t)b->n, sizeof *b->samplers);
    if (!b->samplers) return err_set(err, E_NOMEM, "no memory for %d beams", b->n);
    for (int32_t i = 0; i < b->n; i++) TRY(sampler_init(&b->samplers[i], n_vocab, err));
    return beam_search_init(&b->search, &o, err);
}

static int new_samples(struct branches *b, int32_t n_vocab, struct err *err) {
    b->samples = calloc((size_t)b->n, sizeof *b->samples);
    if (!b->samples) return err_set(err, E_NOMEM, "no memory for %d answers", b->n);
    for (int32_t i = 0; i < b->n; i++) {
        struct branch_sample *s = &b->samples[i];
        s->ids = malloc((size_t)b->cap * sizeof *s->ids);
        s->logprobs = malloc((size_t)b->cap * sizeof *s->logprobs);
        if (!s->ids || !s->logprobs)
            return err_set(err, E_NOMEM, "no memory for %d answers of %d tokens", b->n, b->cap);
        if (i > 0) TRY(sampler_init(&s->slot.sampler, n_vocab, err));
    }
    return 0;
}

int branches_new(struct branches **out, const struct engine_turn *spec, int64_t max_log,
                 int32_t n_vocab, const int32_t *eos_ids, int32_t n_eos, struct err *err) {
    *out = NULL;
    int32_t n = branches_wanted(&spec->sampling);
    if (n == 1 || spec->score_only) return 0;
    struct branches *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, E_NOMEM, "no memory for %d branches", n);
    b->n = n;
    b->cap = (int32_t)(max_log - spec->n_ids);
    b->beams = spec->sampling.beam_width > 1;
    buf_init(&b->texts, TEXTS_MAX);
    int rc =
        b->beams ? new_beams(b, spec, n_vocab, eos_ids, n_eos, err) : new_samples(b, n_vocab, err);
    if (rc < 0) {
        branches_free(b);
        return rc;
    }
    *out = b;
    return 0;
}

void branches_free(struct branches *b) {
    if (!b) return;
    for (int32_t i = 0; b->samplers && i < b->n; i++) sampler_release(&b->samplers[i]);
    for (int32_t i = 0; b->samples && i < b->n; i++) {
        struct branch_sample *s = &b->samples[i];
        free(s->ids);
        free(s->logprobs);
        sampler_release(&s->slot.sampler);
        turn_slot_release_text(&s->slot);
    }
    free(b->samplers);
    free(b->samples);
    if (b->beams) beam_search_release(&b->search);
    stop_texts_free(b->stop_texts);
    buf_release(&b->texts);
    free(b->text_ends);
    free(b);
}

// --- what the branches are -----------------------------------------------------------------------

int64_t branches_base(const struct live_turn *t) {
    return t->branches->beams ? t->n_log : t->spec.n_ids;
}

const int32_t *branch_ids(const struct branches *b, int32_t branch, int32_t *n) {
    *n = b->beams ? b->search.running[branch].n : b->samples[branch].n;
    return b->beams ? b->search.running[branch].ids : b->samples[branch].ids;
}

bool branches_have_drawn(const struct branches *b) {
    return b->beams ? b->search.running[0].n > 0 || b->search.n_ended > 0 : b->samples[0].n > 0;
}

bool branch_runs(const struct branches *b, int32_t branch) {
    return b->beams ? branch < b->search.n_running : !b->samples[branch].over;
}

int32_t branches_n_running(const struct branches *b) {
    int32_t n = 0;
    if (!branches_have_drawn(b)) return 1;
    for (int32_t i = 0; i < b->n; i++) n += branch_runs(b, i);
    return n;
}

struct sampler *branch_sampler(const struct live_turn *t, int32_t branch) {
    const struct branches *b = t->branches;
    if (b->beams) return &b->samplers[branch];
    return branch > 0 ? &b->samples[branch].slot.sampler : &t->slot->sampler;
}

struct kv_ring *branch_ring(const struct live_turn *t, int32_t branch) {
    return branch == 0 ? &t->sequence->ring : &t->sequence->branches[branch - 1];
}

// The last token of each branch is not computed before it is a row of the next step.
int64_t branches_uncomputed(const struct live_turn *t, int64_t n_cached) {
    const struct branches *b = t->branches;
    int64_t base = branches_base(t), uncomputed = base - n_cached;
    if (!branches_have_drawn(b)) return uncomputed;
    for (int32_t i = 0; i < b->n; i++) {
        int32_t n;
        if (!branch_runs(b, i)) continue;
        (void)branch_ids(b, i, &n);
        uncomputed += t->spec.n_ids + n - 1 - base;
    }
    return uncomputed;
}

// --- rings ---------------------------------------------------------------------------------------

int branches_begin(struct live_turn *t, const struct tokenizer *tokenizer, struct err *err) {
    struct branches *b = t->branches;
    struct sequence *s = t->sequence;
    TRY(sequence_branch(s, b->beams ? b->n : b->n - 1, err));
    if (b->stop_texts) b->stop_texts->tokenizer = tokenizer, b->stop_texts->form = &t->form;
    s->n_agreed = b->beams ? t->n_log : INT64_MAX;
    b->forked = b->best_is_held = false;
    if (b->begun) return 0;
    b->begun = true;
    for (int32_t i = 0; b->beams && i < b->n; i++)
        TRY(sampler_copy(&b->samplers[i], &t->slot->sampler, err));
    for (int32_t i = 1; !b->beams && i < b->n; i++) {
        struct turn_slot *slot = &b->samples[i].slot;
        TRY(sampler_copy(&slot->sampler, &t->slot->sampler, err));
        slot->sampler.branch = (uint32_t)i;
        TRY(turn_slot_begin_text(slot, &t->spec, &t->form, tokenizer, t->spec.n_ids, err));
    }
    return 0;
}

void branches_fork(struct live_turn *t) {
    struct branches *b = t->branches;
    for (int32_t i = 1; i < b->n; i++)
        if (branch_runs(b, i)) kv_ring_share(branch_ring(t, i), &t->sequence->ring);
    b->forked = true;
    t->sched.n_rows = branches_n_running(b);
}

void branches_pause(struct live_turn *t) {
    struct branches *b = t->branches;
    // Behind the log the first ring has a beam's own tokens.
    if (b->beams && t->sequence->ring.blocks) kv_ring_truncate(&t->sequence->ring, t->n_log);
    (void)sequence_branch(t->sequence, 0, NULL);
    b->forked = b->best_is_held = false;
    b->n_ranked = 0;
}

// --- samples -------------------------------------------------------------------------------------

bool branch_take(struct branches *b, int32_t branch, const struct sampled *s) {
    struct branch_sample *x = &b->samples[branch];
    x->ids[x->n] = s->id;
    x->logprobs[x->n++] = s->logprob;
    x->sum += (double)s->logprob;
    return x->n == b->cap;
}

void branch_end(struct live_turn *t, int32_t branch, enum engine_finish finish) {
    struct branch_sample *x = &t->branches->samples[branch];
    x->over = true;
    x->finish = finish;
    if (branch > 0) kv_ring_truncate(branch_ring(t, branch), 0); // the first is the session's
}

// --- beams ---------------------------------------------------------------------------------------

// Where the storage of the beam that continues another comes from: the first one takes its parent's, the
// others copy it into storage that no beam goes on with.
struct moves {
    int32_t from[BEAMS_MAX]; // (n) the old number of each storage
    bool copies[BEAMS_MAX];  // (n) its contents come from the parent's first
};

static void plan_moves(const struct beam_search *s, int32_t n, struct moves *m) {
    bool taken[BEAMS_MAX] = {false};
    for (int32_t i = 0; i < s->n_running; i++) {
        int32_t parent = s->running[i].parent;
        m->copies[i] = taken[parent];
        if (!taken[parent]) m->from[i] = parent;
        taken[parent] = true;
    }
    int32_t next = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i < s->n_running && !m->copies[i]) continue;
        while (taken[next]) next++;
        m->from[i] = next;
        taken[next] = true;
        if (i >= s->n_running) m->copies[i] = false;
    }
}

static void move_rings(struct live_turn *t, const struct moves *m) {
    const struct branches *b = t->branches;
    const struct beam_search *s = &b->search;
    struct kv_ring old[BEAMS_MAX];
    for (int32_t i = 0; i < s->n_running; i++)
        if (m->copies[i])
            kv_ring_share(branch_ring(t, m->from[i]), branch_ring(t, s->running[i].parent));
    for (int32_t i = 0; i < b->n; i++) old[i] = *branch_ring(t, i);
    for (int32_t i = 0; i < b->n; i++) {
        *branch_ring(t, i) = old[m->from[i]];
        if (i >= s->n_running && i > 0) kv_ring_truncate(branch_ring(t, i), 0);
    }
}

static void move_samplers(struct branches *b, const struct moves *m) {
    const struct beam_search *s = &b->search;
    struct sampler old[BEAMS_MAX];
    for (int32_t i = 0; i < s->n_running; i++)
        if (m->copies[i])
            (void)sampler_copy(&b->samplers[m->from[i]], &b->samplers[s->running[i].parent], NULL);
    memcpy(old, b->samplers, (size_t)b->n * sizeof *old);
    for (int32_t i = 0; i < b->n; i++) b->samplers[i] = old[m->from[i]];
    for (int32_t i = 0; i < s->n_running; i++)
        sampler_accept(&b->samplers[i], s->running[i].ids[s->running[i].n - 1]);
}

void branches_advance(struct live_turn *t) {
    struct branches *b = t->branches;
    struct beam_search *s = &b->search;
    struct moves m;
    int32_t n = s->running[0].n + 1;
    b->n_ranked = 0;
    beam_search_step(s);
    if (s->n_ended > 0 && s->ended[0].n == n) { // it ended in this step
        kv_ring_share(&t->sequence->branches[b->n - 1], branch_ring(t, s->ended[0].parent));
        b->best_is_held = true;
    }
    b->forked = true;
    if (s->n_running == 0) return;
    plan_moves(s, b->n, &m);
    move_rings(t, &m);
    move_samplers(b, &m);
}

int32_t branches_agreed(const struct branches *b, int32_t from) {
    const struct beam_search *s = &b->search;
    const struct beam *first = s->n_ended > 0 ? &s->ended[0] : &s->running[0];
    for (int32_t at = from;; at++) {
        for (int32_t i = 0; i < s->n_ended; i++)
            if (at >= s->ended[i].n || s->ended[i].ids[at] != first->ids[at]) return at;
        for (int32_t i = 0; i < s->n_running; i++)
            if (at >= s->running[i].n - 1 || s->running[i].ids[at] != first->ids[at]) return at;
        if (s->n_running == 0 && s->n_ended == 0) return at;
    }
}

// --- the end -------------------------------------------------------------------------------------

static enum engine_finish finish_of(enum beam_end end, enum engine_finish running) {
    return end == BEAM_EOS      ? FINISH_EOS
           : end == BEAM_STOP   ? FINISH_STOP
           : end == BEAM_LENGTH ? FINISH_LENGTH
                                : running;
}

// Inserts in descending order of score; equals keep the order in which they came. Returns its place.
static int32_t insert(struct engine_branches *r, int32_t most, const struct engine_branch *x) {
    int32_t at = r->n;
    while (at > 0 && x->score > r->of[at - 1].score) at--;
    if (at == most) return at;
    if (r->n < most) r->n++;
    memmove(&r->of[at + 1], &r->of[at], (size_t)(r->n - 1 - at) * sizeof *x);
    r->of[at] = *x;
    return at;
}

// A search that was cut short also has its running beams. Returns the number of the running beam that is
// the best of all, or -1.
static int32_t settle_beams(struct branches *b, enum engine_finish finish) {
    struct beam_search *s = &b->search;
    int32_t winner = -1;
    for (int32_t i = 0; i < s->n_ended; i++) {
        const struct beam *x = &s->ended[i];
        const struct engine_branch e = {
            x->ids, x->logprobs, x->n, x->score, finish_of(x->end, finish), "", 0, NULL};
        insert(&b->result, b->n, &e);
    }
    for (int32_t i = 0; !s->over && i < s->n_running; i++) {
        const struct beam *x = &s->running[i];
        if (x->n == 0) continue;
        const struct engine_branch e = {x->ids, x->logprobs, x->n, beam_search_score(s, x),
                                        finish, "",          0,    NULL};
        if (insert(&b->result, b->n, &e) == 0) winner = i;
    }
    return winner;
}

static void swap_rings(struct kv_ring *a, struct kv_ring *b) {
    struct kv_ring old = *a;
    *a = *b;
    *b = old;
}

static void settle_samples(struct live_turn *t, enum engine_finish finish) {
    struct branches *b = t->branches;
    for (int32_t i = 0; i < b->n && branches_have_drawn(b); i++) {
        const struct branch_sample *x = &b->samples[i];
        double score =
            x->n > 0 ? x->sum / pow((double)x->n, (double)t->spec.sampling.len_penalty) : 0;
        b->result.of[b->result.n++] = (struct engine_branch){
            x->ids, x->logprobs, x->n, score, x->over ? x->finish : finish, "", 0, NULL};
    }
}

void branches_settle(struct live_turn *t, enum engine_finish finish, bool ran) {
    struct branches *b = t->branches;
    struct sequence *s = t->sequence;
    if (!b->beams) {
        settle_samples(t, finish);
        return;
    }
    int32_t winner = settle_beams(b, finish);
    if (!ran || !b->forked) return;
    if (winner > 0)
        swap_rings(&s->ring, branch_ring(t, winner));
    else if (winner < 0 && b->best_is_held)
        swap_rings(&s->ring, &s->branches[b->n - 1]);
    else if (winner < 0)
        kv_ring_truncate(&s->ring, t->n_log); // it went while the turn was paused
}

enum engine_finish branches_finish(const struct branches *b) {
    return b->beams ? finish_of(b->search.ended[0].end, FINISH_LENGTH) : b->samples[0].finish;
}

int branches_texts(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                   struct buf *scratch) {
    struct branches *b = t->branches;
    struct engine_branches *r = &b->result;
    size_t ends[BEAMS_MAX], n_tokens = 1, at = 0;
    struct err err;
    for (int32_t i = 0; i < r->n; i++) n_tokens += (size_t)r->of[i].n;
    b->text_ends = calloc(n_tokens, sizeof *b->text_ends);
    if (!b->text_ends) return E_NOMEM;
    for (int32_t i = 0; i < r->n; i++) {
        struct engine_branch *x = &r->of[i];
        size_t from = b->texts.len;
        x->text_ends = b->text_ends + at;
        ends[i] = from;
        if (!tokenizer) continue;
        TRY(turn_slot_begin_text(slot, &t->spec, &t->form, tokenizer, t->spec.n_ids, &err));
        int rc = 0;
        for (int32_t k = 0; k < x->n; k++) { // no text follows a stop string
            if (rc == 0) rc = turn_slot_text(slot, x->ids[k], scratch, &b->texts);
            b->text_ends[at + (size_t)k] = (uint32_t)(b->texts.len - from);
        }
        at += (size_t)x->n;
        if (rc == 0) rc = turn_slot_flush(slot, scratch, &b->texts);
        if (rc < 0) return rc;
        ends[i] = b->texts.len;
    }
    const char *all = buf_z(&b->texts);
    for (int32_t i = 0; i < r->n; i++) {
        size_t from = i > 0 ? ends[i - 1] : 0;
        r->of[i].text = all + from;
        r->of[i].text_len = ends[i] - from;
    }
    return 0;
}

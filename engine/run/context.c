// See context.h.
#include "engine/run/context.h"

#include "engine/run/sampler.h"
#include <stdlib.h>

void context_init(struct context_outputs *c, const struct engine_turn *t) {
    int64_t first = t->n_ids - t->n_input, prefix = prompt_n_prefix(t->prompt);
    // Nothing is computed of a prefix: it predicts no token, and has no hidden state.
    int64_t before = first > 0 ? first - 1 : 0;
    *c = (struct context_outputs){
        .wants_logprob = t->sampling.context_logprob && t->n_input > 0,
        .wants_scores = t->scores_input && t->n_input > 0,
        .wants_embedding = t->sampling.context_embedding && t->n_input > 0,
        .next_logits = before < prefix ? prefix : before,
        .next_hidden = first < prefix ? prefix : first,
        .pooling = (enum context_pooling)t->sampling.context_pooling,
    };
    if (c->pooling == POOLING_LAST) c->next_hidden = t->n_ids - 1;
}

int context_reserve(struct context_outputs *c, const struct engine_turn *t, int32_t width,
                    struct err *err) {
    if (c->wants_scores)
        c->scores =
            engine_scores_new(t->ids + t->n_ids - t->n_input, t->n_input, t->sampling.top_logprobs);
    if (c->wants_scores && !c->scores)
        return err_set(err, E_NOMEM, "no memory for the log-probabilities of %lld tokens",
                       (long long)t->n_input);
    if (!c->wants_embedding) return 0;
    c->width = width;
    c->embedding = calloc((size_t)width, sizeof *c->embedding);
    return c->embedding ? 0 : err_set(err, E_NOMEM, "no memory for an embedding of %d", width);
}

// The logits at the last position predict the answer.
static bool waits_for_logits(const struct context_outputs *c, int64_t n_ids) {
    return (c->wants_logprob || c->wants_scores) && c->next_logits < n_ids - 1;
}

static bool waits_for_hidden(const struct context_outputs *c, int64_t n_ids) {
    if (c->pooling == POOLING_FIRST && c->n_hidden > 0) return false;
    return c->wants_embedding && c->next_hidden < n_ids;
}

int64_t context_usable(const struct context_outputs *c, const struct engine_turn *t, int64_t n) {
    if (waits_for_logits(c, t->n_ids) && c->next_logits + 1 < n) n = c->next_logits + 1;
    if (waits_for_hidden(c, t->n_ids) && c->next_hidden + 1 < n) n = c->next_hidden + 1;
    return n;
}

bool context_has_logprob(const struct context_outputs *c, int64_t n_ids) {
    return c->wants_logprob && !waits_for_logits(c, n_ids);
}

double *context_take_embedding(struct context_outputs *c, int64_t n_ids) {
    double *embedding = c->embedding;
    if (!embedding || waits_for_hidden(c, n_ids)) return NULL;
    for (int32_t i = 0; i < c->width && c->pooling == POOLING_MEAN && c->n_hidden > 0; i++)
        embedding[i] /= (double)c->n_hidden;
    c->embedding = NULL;
    return embedding;
}

struct engine_scores *context_take_scores(struct context_outputs *c, int64_t n_ids) {
    struct engine_scores *scores = waits_for_logits(c, n_ids) ? NULL : c->scores;
    if (scores) c->scores = NULL;
    return scores;
}

bool context_waits(const struct context_outputs *c, int64_t n_ids) {
    bool needs_all = c->pooling != POOLING_LAST;
    return waits_for_logits(c, n_ids) || (needs_all && waits_for_hidden(c, n_ids));
}

bool context_takes_logits(const struct context_outputs *c, const struct engine_turn *t,
                          int64_t position) {
    return waits_for_logits(c, t->n_ids) && position == c->next_logits;
}

bool context_takes_hidden(const struct context_outputs *c, const struct engine_turn *t,
                          int64_t position) {
    return waits_for_hidden(c, t->n_ids) && position == c->next_hidden;
}

int context_add_logits(struct context_outputs *c, const struct engine_turn *t, const float *logits,
                       int32_t n_vocab, struct err *err) {
    float logprob;
    int32_t id = t->ids[++c->next_logits];
    int64_t at = c->next_logits - (t->n_ids - t->n_input), n_top = t->sampling.top_logprobs;
    if (prompt_is_virtual(id)) return 0; // it was given, not chosen among others
    TRY(sampler_logprob(logits, n_vocab, id, &logprob, err));
    c->logprob += (double)logprob;
    if (!c->scores || at < 0) return 0;
    c->scores->logprobs[at] = logprob;
    return sampler_best(logits, n_vocab, (int32_t)n_top, c->scores->alternatives + at * n_top, err);
}

void context_add_hidden(struct context_outputs *c, const float *hidden) {
    for (int32_t i = 0; i < c->width; i++) c->embedding[i] += (double)hidden[i];
    c->next_hidden++;
    c->n_hidden++;
}

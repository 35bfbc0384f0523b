// Log-probabilities of a turn's input, in one block. See engine.h.
#include "engine/engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(int64_t n, int32_t n_alternatives) {
    size_t row = sizeof(int32_t) + sizeof(float) +
                 (size_t)n_alternatives * sizeof(struct engine_alternative);
    return sizeof(struct engine_scores) + (size_t)n * row;
}

static struct engine_scores *scores_alloc(int64_t n, int32_t n_alternatives) {
    struct engine_scores *s = malloc(bytes_of(n, n_alternatives));
    if (!s) return NULL;
    s->n = n;
    s->n_alternatives = n_alternatives;
    s->ids = (int32_t *)(s + 1);
    s->logprobs = (float *)(s->ids + n);
    s->alternatives = (struct engine_alternative *)(s->logprobs + n);
    return s;
}

struct engine_scores *engine_scores_new(const int32_t *ids, int64_t n, int32_t n_alternatives) {
    struct engine_scores *s = scores_alloc(n, n_alternatives);
    if (!s) return NULL;
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++) s->logprobs[i] = NAN;
    for (int64_t i = 0; i < n * n_alternatives; i++)
        s->alternatives[i] = (struct engine_alternative){.id = -1};
    return s;
}

struct engine_scores *engine_scores_copy(const struct engine_scores *from) {
    struct engine_scores *s = scores_alloc(from->n, from->n_alternatives);
    if (s) memcpy(s->ids, from->ids, bytes_of(s->n, s->n_alternatives) - sizeof *s);
    return s;
}

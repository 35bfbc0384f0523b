// See event_tokens.h.
#include "ws/completion/event_tokens.h"
#include "base/array.h"
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 4096 // that may wait for their text

void event_tokens_release(struct event_tokens *t) {
    free(t->of);
    free(t->alternatives);
    free(t->starts);
    *t = (struct event_tokens){0};
}

bool event_tokens_is_end(const struct engine_info *info, int32_t id) {
    for (int32_t i = 0; i < info->n_eos; i++)
        if (info->eos_ids[i] == id) return true;
    return false;
}

static struct completion_token token_of(const struct engine *e, int32_t id, float logprob) {
    struct completion_token t = {.id = id, .logprob = logprob};
    if (id >= 0) t.bytes = engine_token_bytes(e, id, &t.len);
    return t;
}

int event_tokens_add(struct event_tokens *t, const struct served_model *m, int32_t id,
                     float logprob, uint64_t start, const struct engine_alternative *alternatives,
                     size_t n_alternatives) {
    if (event_tokens_is_end(m->info, id)) return 0;
    if (t->n == TOKENS_MAX) return E_NOMEM;
    TRY(ARRAY_RESIZE(t->of, t->n + 1));
    TRY(ARRAY_RESIZE(t->starts, t->n + 1));
    if (n_alternatives) TRY(ARRAY_RESIZE(t->alternatives, (t->n + 1) * n_alternatives));
    for (size_t k = 0; k < n_alternatives; k++)
        t->alternatives[t->n * n_alternatives + k] =
            token_of(m->engine, alternatives[k].id, alternatives[k].logprob);
    t->of[t->n] = token_of(m->engine, id, logprob);
    t->starts[t->n] = start;
    t->of[t->n++].n_alternatives = (int32_t)n_alternatives;
    return 0;
}

size_t event_tokens_put(struct event_tokens *t, uint64_t end, struct completion_event *out) {
    size_t n = 0;
    while (n < t->n && t->starts[n] < end) n++;
    for (size_t i = 0; i < n; i++)
        if (t->of[i].n_alternatives)
            t->of[i].alternatives = t->alternatives + i * (size_t)t->of[i].n_alternatives;
    out->tokens = n ? t->of : NULL;
    out->n_tokens = n;
    return n;
}

void event_tokens_drop(struct event_tokens *t, size_t n) {
    size_t n_alternatives = t->n ? (size_t)t->of[0].n_alternatives : 0;
    t->n -= n;
    if (n == 0 || t->n == 0) return;
    memmove(t->of, t->of + n, t->n * sizeof *t->of);
    memmove(t->starts, t->starts + n, t->n * sizeof *t->starts);
    if (n_alternatives)
        memmove(t->alternatives, t->alternatives + n * n_alternatives,
                t->n * n_alternatives * sizeof *t->alternatives);
}

// An answer kept whole. See answer.h.
#include "sessions/replay/answer.h"
#include "base/array.h"
#include "base/err.h"
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX ((size_t)1 << 28)

void answer_init(struct answer *a, int32_t n_top) {
    *a = (struct answer){.n_top = n_top};
    buf_init(&a->text, TEXT_MAX);
}

void answer_release(struct answer *a) {
    buf_release(&a->text);
    free(a->ids);
    free(a->logprobs);
    free(a->top);
    a->ids = NULL, a->logprobs = NULL, a->top = NULL;
    a->n = a->cap = 0;
}

void answer_reset(struct answer *a) {
    a->n = 0;
    a->failed = false;
    a->error[0] = '\0';
    buf_reset(&a->text);
}

static int grow(struct answer *a) {
    if (a->n < a->cap) return 0;
    size_t cap = a->cap ? a->cap * 2 : 64;
    TRY(ARRAY_RESIZE(a->ids, cap));
    TRY(ARRAY_RESIZE(a->logprobs, cap));
    if (a->n_top) TRY(ARRAY_RESIZE(a->top, cap * (size_t)a->n_top));
    a->cap = cap;
    return 0;
}

static int take_token(struct answer *a, const struct engine_event *e) {
    TRY(buf_add(&a->text, e->text, e->text_len));
    if (e->id < 0) return 0;
    TRY(grow(a));
    a->ids[a->n] = e->id;
    a->logprobs[a->n] = e->logprob;
    for (int32_t i = 0; i < a->n_top; i++)
        a->top[a->n * (size_t)a->n_top + (size_t)i] =
            i < e->n_alternatives ? e->alternatives[i] : (struct engine_alternative){.id = -1};
    a->n++;
    return 0;
}

// A further answer of the turn (a sample, a beam) comes whole, with its end.
static int take_branch(struct answer *a, const struct engine_event *e) {
    const struct engine_branches *all = e->branches;
    if (!all || a->branch >= all->n) return E_NOTFOUND;
    const struct engine_branch *b = &all->of[a->branch];
    answer_reset(a);
    for (int32_t i = 0; i < b->n; i++) {
        TRY(grow(a));
        a->ids[a->n] = b->ids[i];
        a->logprobs[a->n] = b->logprobs[i];
        for (int32_t k = 0; k < a->n_top; k++)
            a->top[a->n * (size_t)a->n_top + (size_t)k] = (struct engine_alternative){.id = -1};
        a->n++;
    }
    a->finish = b->finish;
    return buf_add(&a->text, b->text, b->text_len);
}

bool answer_take(struct answer *a, const struct engine_event *e) {
    if (e->kind == ENGINE_TOKEN && e->branch == 0 && !a->failed) a->failed = take_token(a, e) < 0;
    if (e->kind != ENGINE_DONE) return false;
    a->finish = e->finish;
    if (a->branch > 0 && e->finish != FINISH_ERROR)
        a->failed |= take_branch(a, e) < 0;
    else if (e->finish == FINISH_ERROR)
        snprintf(a->error, sizeof a->error, "%.*s", (int)e->text_len, e->text);
    else
        a->failed |= buf_add(&a->text, e->text, e->text_len) < 0;
    return true;
}

// A client's request as data. See request.h.
#include "sessions/state/request.h"
#include "sessions/matching/told.h"
#include "sessions/store/record.h"
#include <stddef.h>
#include <stdlib.h>

void request_init(struct request *r, enum request_kind kind) {
    *r = (struct request){.kind = kind,
                          .turn = TURN_HEAD,
                          .sink_len = -1,
                          .cancel_after_ms = -1,
                          .after = -1,
                          .before = -1};
}

static const size_t strings[] = {
    offsetof(struct request, owner),  offsetof(struct request, session),
    offsetof(struct request, model),  offsetof(struct request, system),
    offsetof(struct request, title),  offsetof(struct request, new_session),
    offsetof(struct request, query),  offsetof(struct request, forked_from),
    offsetof(struct request, cursor), offsetof(struct request, prompt_task),
    offsetof(struct request, note),   offsetof(struct request, old_note),
};
#define N_STRINGS (sizeof strings / sizeof *strings)

static char **string_at(struct request *r, size_t i) {
    return (char **)((char *)r + strings[i]);
}

void given_answer_free(struct given_answer *g) {
    if (!g) return;
    free(g->question);
    free(g->answer);
    free(g->input);
    free(g->output);
    free(g->told);
    free(g->shown);
    free(g);
}

static struct given_answer *given_answer_copy(const struct given_answer *g) {
    bool failed = false;
    struct given_answer *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *g;
    copy->question = record_strdup(g->question, &failed);
    copy->answer = record_strdup(g->answer, &failed);
    copy->input = record_memdup(g->input, g->n_input * sizeof *g->input, &failed);
    copy->output = record_memdup(g->output, g->n_output * sizeof *g->output, &failed);
    copy->told = record_strdup(g->told, &failed);
    copy->shown = record_strdup(g->shown, &failed);
    if (!failed) return copy;
    given_answer_free(copy);
    return NULL;
}

struct request *request_copy(const struct request *r) {
    bool failed = false;
    struct request *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *r;
    copy->next = NULL;
    prompt_hold(copy->prompt);
    told_hold(copy->told);
    for (size_t i = 0; i < N_STRINGS; i++)
        *string_at(copy, i) = record_strdup(*string_at(copy, i), &failed);
    copy->input.text = record_memdup(r->input.text, r->input.text_len, &failed);
    copy->input.ids = record_memdup(r->input.ids, r->input.n_ids * sizeof *r->input.ids, &failed);
    copy->input.answer = record_memdup(r->input.answer, r->input.answer_len, &failed);
    copy->expected = record_memdup(r->expected, r->n_expected * sizeof *r->expected, &failed);
    copy->sampling = record_memdup(r->sampling, sizeof *r->sampling, &failed);
    if (copy->sampling) grammar_text_hold(copy->sampling->params.grammar);
    copy->archive = record_memdup(r->archive, r->archive_len, &failed);
    if (r->given && !(copy->given = given_answer_copy(r->given))) failed = true;
    if (!failed) return copy;
    request_free(copy);
    return NULL;
}

void request_free(struct request *r) {
    if (!r) return;
    for (size_t i = 0; i < N_STRINGS; i++) free(*string_at(r, i));
    free((char *)r->input.text);
    free((int32_t *)r->input.ids);
    free((char *)r->input.answer);
    free((int32_t *)r->expected);
    turn_sampling_free((struct turn_sampling *)r->sampling);
    free((char *)r->archive);
    given_answer_free((struct given_answer *)(uintptr_t)r->given);
    prompt_free((struct prompt *)(uintptr_t)r->prompt);
    told_free(r->told);
    free(r);
}

// A client's request as data. See request.h.
#include "sessions/state/request.h"
#include "sessions/engines/placement.h"
#include "sessions/matching/told.h"
#include "sessions/store/record.h"
#include <stddef.h>
#include <stdlib.h>

void request_init(struct request *r, enum request_kind kind) {
    *r = (struct request){
        .kind = kind, .turn = TURN_HEAD, .cancel_after_ms = -1, .after = -1, .before = -1};
    if (kind == REQUEST_OPEN) r->open.sink_len = -1;
    if (kind == REQUEST_START) r->start.open.sink_len = -1;
}

// The strings of all kinds, then those in the union.
static const struct {
    bool all;
    enum request_kind kind;
    size_t at;
} strings[] = {
    {.all = true, .at = offsetof(struct request, owner)},
    {.all = true, .at = offsetof(struct request, session)},
    {.all = true, .at = offsetof(struct request, title)},
    {.all = true, .at = offsetof(struct request, note)},
    {.all = true, .at = offsetof(struct request, folder)},
    {.kind = REQUEST_OPEN, .at = offsetof(struct request, open.model)},
    {.kind = REQUEST_OPEN, .at = offsetof(struct request, open.system)},
    {.kind = REQUEST_OPEN, .at = offsetof(struct request, open.prompt_task)},
    {.kind = REQUEST_START, .at = offsetof(struct request, start.open.model)},
    {.kind = REQUEST_START, .at = offsetof(struct request, start.open.system)},
    {.kind = REQUEST_START, .at = offsetof(struct request, start.open.prompt_task)},
    {.kind = REQUEST_UPDATE, .at = offsetof(struct request, update.old_note)},
    {.kind = REQUEST_FORK, .at = offsetof(struct request, fork.new_session)},
    {.kind = REQUEST_LIST, .at = offsetof(struct request, list.query)},
    {.kind = REQUEST_LIST, .at = offsetof(struct request, list.forked_from)},
    {.kind = REQUEST_LIST, .at = offsetof(struct request, list.cursor)},
    {.kind = REQUEST_MATCH, .at = offsetof(struct request, match.fingerprint)},
};
#define N_STRINGS (sizeof strings / sizeof *strings)

// NULL: requests of this kind do not have the string.
static char **string_at(struct request *r, size_t i) {
    if (!strings[i].all && strings[i].kind != r->kind) return NULL;
    return (char **)((char *)r + strings[i].at);
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

static void hold_open(const struct request_open *o) {
    prompt_hold(o->prompt);
    placement_keep(o->served);
}

static void drop_open(const struct request_open *o) {
    prompt_free((struct prompt *)(uintptr_t)o->prompt);
    placement_drop(o->served);
}

// What START has beside strings. The copy's pointers are still those of *r.
static void copy_start(struct request_start *copy, const struct request_start *r, bool *failed) {
    told_hold(copy->told);
    hold_open(&copy->open);
    copy->expected = record_memdup(r->expected, r->n_expected * sizeof *r->expected, failed);
    if (r->given && !(copy->given = given_answer_copy(r->given))) *failed = true;
}

static void release_start(struct request_start *r) {
    free((int32_t *)r->expected);
    given_answer_free((struct given_answer *)(uintptr_t)r->given);
    told_free(r->told);
    drop_open(&r->open);
}

struct request *request_copy(const struct request *r) {
    bool failed = false;
    struct request *copy = malloc(sizeof *copy);
    char **string;
    if (!copy) return NULL;
    *copy = *r;
    copy->next = NULL;
    for (size_t i = 0; i < N_STRINGS; i++)
        if ((string = string_at(copy, i))) *string = record_strdup(*string, &failed);
    copy->input.text = record_memdup(r->input.text, r->input.text_len, &failed);
    copy->input.ids = record_memdup(r->input.ids, r->input.n_ids * sizeof *r->input.ids, &failed);
    copy->input.answer = record_memdup(r->input.answer, r->input.answer_len, &failed);
    copy->sampling = record_memdup(r->sampling, sizeof *r->sampling, &failed);
    if (copy->sampling) grammar_text_hold(copy->sampling->params.grammar);
    if (r->kind == REQUEST_OPEN) hold_open(&copy->open);
    if (r->kind == REQUEST_START) copy_start(&copy->start, &r->start, &failed);
    if (r->kind == REQUEST_IMPORT)
        copy->import.archive = record_memdup(r->import.archive, r->import.archive_len, &failed);
    if (!failed) return copy;
    request_free(copy);
    return NULL;
}

void request_free(struct request *r) {
    if (!r) return;
    char **string;
    for (size_t i = 0; i < N_STRINGS; i++)
        if ((string = string_at(r, i))) free(*string);
    free((char *)r->input.text);
    free((int32_t *)r->input.ids);
    free((char *)r->input.answer);
    turn_sampling_free((struct turn_sampling *)r->sampling);
    if (r->kind == REQUEST_OPEN) drop_open(&r->open);
    if (r->kind == REQUEST_START) release_start(&r->start);
    if (r->kind == REQUEST_IMPORT) free((char *)r->import.archive);
    free(r);
}

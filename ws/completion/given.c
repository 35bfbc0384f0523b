// Answers whose text in the prompt differs from the log. See plan.h.
//
// Templates remove the thinking of earlier answers, or write their calls in another form. A turn's log ends with
// the answer as it was sampled, so no later turn can continue that log. If each later turn started from an empty
// log, each would store the whole conversation again: 150 turns would store 11,000. So the answer as the template
// writes it becomes a turn of its own, a version of the sampled one, and the next turn continues from it.
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

static const char mark[] = "An-answer-that-stands-here-52b9f3a6";

// The conversation with the mark in the place of its k-th message's words and calls. NULL: no memory.
static cJSON *with_mark(const cJSON *messages, int k) {
    cJSON *copy = cJSON_Duplicate(messages, true), *answer = cJSON_GetArrayItem(copy, k);
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "tool_calls");
    if (json_set(answer, "content", cJSON_CreateString(mark))) return copy;
    cJSON_Delete(copy);
    return NULL;
}

// Finds the k-th message's words in the rendering: [*from, *to). 1; 0: not found; or an error.
static int find_words(const struct completion_request *r, const cJSON *messages,
                      const struct chat_rendering *rendering, int k, size_t *from, size_t *to,
                      struct completion_failure *f) {
    struct chat_rendering *marked = NULL;
    cJSON *other = with_mark(messages, k);
    size_t len, len_marked;
    if (!other) return completion_no_memory(f);
    int rc = completion_render_messages(r, other, &marked, f);
    cJSON_Delete(other);
    if (rc < 0) return rc;
    const char *text = engine_rendering_text(rendering, &len);
    const char *around = engine_rendering_text(marked, &len_marked);
    const char *at = memmem(around, len_marked, mark, strlen(mark));
    if (at) {
        size_t behind = len_marked - (size_t)(at - around) - strlen(mark);
        *from = (size_t)(at - around);
        rc = *from + behind < len && memcmp(text, around, *from) == 0 &&
             memcmp(text + len - behind, at + strlen(mark), behind) == 0;
        *to = len - behind;
    }
    engine_rendering_free(marked);
    return rc;
}

// Records what a later request finds the answer by: its place in the rendering without volatile text.
static int put_shown(const struct completion_request *r, struct given_answer *g, size_t from,
                     size_t to, const cJSON *shown) {
    size_t len;
    const char *text = engine_rendering_text(completion_plain_rendering(r->plan), &len);
    return told_given(text, from, text + from, to - from, message_text(shown, "thought"),
                      &g->shown);
}

static int fill(struct completion_request *r, struct given_answer *g, const struct plan_bound *b,
                size_t from, size_t to, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    TRY(completion_encode(r, p->from, from, &g->input, &g->n_input, f));
    TRY(completion_encode(r, from, to, &g->output, &g->n_output, f));
    g->question = completion_words(r, p->n_old, b->n_messages - 1);
    g->answer = strndup(p->text + from, to - from);
    g->told = strdup(b->digits);
    return g->question && g->answer && g->told ? 0 : completion_no_memory(f);
}

int completion_give(struct completion_request *r, const struct stored_match *known,
                    const cJSON *shown, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    const struct plan_bound *b = &p->bounds[known->digest];
    int k = b->n_messages - 1;
    size_t from, to, plain_from, plain_to;
    int rc = find_words(r, r->messages, p->rendering, k, &from, &to, f);
    if (rc <= 0 || from <= p->from) return rc;
    plain_from = from, plain_to = to;
    if (p->plain) rc = find_words(r, p->plain, p->plain_rendering, k, &plain_from, &plain_to, f);
    if (rc <= 0) return rc;
    struct given_answer *g = calloc(1, sizeof *g);
    if (!g) return completion_no_memory(f);
    g->of = known->turn;
    rc = fill(r, g, b, from, to, f);
    if (rc == 0 && put_shown(r, g, plain_from, plain_to, shown) < 0) rc = completion_no_memory(f);
    if (rc < 0 || g->n_input == 0 || g->n_output == 0) {
        given_answer_free(g);
        return rc;
    }
    p->given = g;
    p->from = to;
    p->n_old = b->n_messages;
    return 0;
}

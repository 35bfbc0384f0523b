// The conversation of a request against those of sessions: what is known of it already. See plan.h,
// sessions/told.h.
#include "base/array.h"
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

#define BOUNDS_MAX 2048

static const char *string_of(const cJSON *object, const char *key) {
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return s ? s : "";
}

static bool is_role(const cJSON *message, const char *role) {
    return message && strcmp(string_of(message, "role"), role) == 0;
}

// --- chains ---

static int add_bound(struct completion_plan *p, int n_messages) {
    TRY(ARRAY_RESIZE(p->bounds, p->n_bounds + 1));
    struct plan_bound *b = &p->bounds[p->n_bounds++];
    told_digits(p->chain, b->digits);
    b->n_messages = n_messages;
    return 0;
}

int completion_chain(struct completion_request *r, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    const cJSON *message;
    int rc = 0, n = 0;
    p->chain = (struct hash128){0};
    p->n_bounds = 0;
    cJSON_ArrayForEach(message, r->messages) {
        n++;
        if (rc == 0) rc = told_add(&p->chain, message);
        if (rc == 0 && is_role(message, "assistant") && message->next) rc = add_bound(p, n);
    }
    for (size_t i = 0; i < p->n_bounds / 2; i++) {
        struct plan_bound swap = p->bounds[i];
        p->bounds[i] = p->bounds[p->n_bounds - 1 - i];
        p->bounds[p->n_bounds - 1 - i] = swap;
    }
    if (p->n_bounds > BOUNDS_MAX) p->n_bounds = BOUNDS_MAX;
    return rc < 0 ? completion_no_memory(f) : 0;
}

// --- where it goes on ---

// The thinking that an answer was told with, unless its client sends it back.
static bool restore_thought(struct completion_request *r, const struct plan_bound *b,
                            const cJSON *shown) {
    const char *thought = string_of(shown, "thought");
    cJSON *answer = cJSON_GetArrayItem(r->messages, b->n_messages - 1);
    if (!thought[0] || string_of(answer, "reasoning_content")[0]) return false;
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "reasoning_content");
    return cJSON_AddStringToObject(answer, "reasoning_content", thought);
}

int completion_continue(struct completion_request *r, const struct store_told *found,
                        struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    size_t n = found ? found->n_matches : 0;
    bool changed = false;
    cJSON **shown = calloc(n + 1, sizeof *shown);
    if (!shown) return completion_no_memory(f);
    for (size_t i = 0; i < n; i++) {
        const struct stored_match *m = &found->matches[i];
        shown[i] = json_parse(m->shown, strlen(m->shown), &json_limits_file, NULL);
        changed |= restore_thought(r, &p->bounds[m->digest], shown[i]);
    }
    int rc = p->rendering && !changed ? 0 : completion_render(r, f);
    p->parent = TURN_NONE;
    p->from = 0;
    p->n_old = 0;
    for (size_t i = 0; i < n && rc == 0 && p->parent == TURN_NONE; i++) {
        if (!told_suits(shown[i], p->rendering, &p->from)) continue;
        p->parent = found->matches[i].turn;
        p->n_old = p->bounds[found->matches[i].digest].n_messages;
    }
    if (p->parent == TURN_NONE) p->from = 0;
    for (size_t i = 0; i < n; i++) cJSON_Delete(shown[i]);
    free(shown);
    return rc;
}

// --- what is stored and shown of it ---

struct told *completion_told(const struct completion_request *r) {
    const struct completion_plan *p = r->plan;
    struct told_of of = {.chain = p->chain,
                         .text = p->text,
                         .len = p->len,
                         .thinks = p->thinks,
                         .tools = r->tool_choice == TOOLS_NONE ? NULL : r->tools};
    return told_new(&of);
}

// One question, perhaps behind the system's words, is shown as its own; all else as the model is shown it.
char *completion_shown(const struct completion_request *r) {
    const cJSON *first = cJSON_GetArrayItem(r->messages, r->plan->n_old);
    if (is_role(first, "system") && r->plan->n_old == 0) first = first->next;
    if (is_role(first, "user") && !first->next && string_of(first, "content")[0])
        return strdup(string_of(first, "content"));
    return strndup(r->plan->text + r->plan->from, r->plan->len - r->plan->from);
}

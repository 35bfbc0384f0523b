// The neutral request: made and freed. See completion.h.
#include "ws/completion/plan.h"
#include <stdlib.h>

struct completion_request *completion_request_new(void) {
    struct completion_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->previous_turn = TURN_NONE;
    r->thinking_budget = -1;
    return r;
}

static void plan_free(struct completion_plan *p) {
    if (!p) return;
    engine_rendering_free(p->rendering);
    engine_rendering_free(p->plain_rendering);
    cJSON_Delete(p->plain);
    cJSON_Delete(p->args);
    free(p->bounds);
    given_answer_free(p->given);
    token_list_release(&p->expected);
    free(p);
}

void completion_request_empty(struct completion_request *r) {
    cJSON **trees[] = {&r->messages, &r->tools,         &r->allowed, &r->callable,
                       &r->custom,   &r->template_args, &r->format};
    plan_free(r->plan);
    r->plan = NULL;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        cJSON_Delete(*trees[i]);
        *trees[i] = NULL;
    }
}

void completion_request_free(struct completion_request *r) {
    if (!r) return;
    completion_request_empty(r);
    placement_drop(r->served);
    free(r->tool_name);
    turn_sampling_free(r->sampling);
    free(r->session);
    free(r->previous_session);
    free(r->note);
    free(r->prediction);
    free(r);
}

struct turn_sampling *completion_sampling(struct completion_request *r) {
    if (r->sampling) return r->sampling;
    r->sampling = malloc(sizeof *r->sampling);
    if (r->sampling) turn_sampling_init(r->sampling);
    return r->sampling;
}

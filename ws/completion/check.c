// Checks a request and makes its plan, on the thread that read it. See completion.h, plan.h.
#include "base/json_form.h"
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_ARGS_MAX 256

static int check_tools(const struct completion_request *r, struct completion_failure *f) {
    const enum tool_syntax syntax = engine_syntax(r->served->engine).tools;
    if (cJSON_GetArraySize(r->tools) == 0) return 0;
    if (syntax == TOOL_SYNTAX_OTHER)
        return completion_refuse(f, "unsupported", "tools",
                                 "The model '%.64s' takes no tools here: its chat template writes "
                                 "calls in a form that is not read.",
                                 r->served->name);
    if (syntax == TOOL_SYNTAX_NONE)
        return completion_refuse(f, "unsupported", "tools",
                                 "The model '%.64s' takes no tools: its chat template has none.",
                                 r->served->name);
    return 0;
}

// Stop strings apply to the answer's text. A forced call has none.
static int place_stops(struct completion_request *r, struct completion_failure *f) {
    bool forced = r->tool_choice >= TOOLS_REQUIRED;
    if (!completion_calls(r)) return 0;
    struct turn_sampling *s = completion_sampling(r);
    if (!s) return completion_no_memory(f);
    s->params.stop_in = STOP_IN_TEXT;
    s->set |= (uint64_t)1 << (sampling_row_find("stop_in") - sampling_rows);
    if (!forced) return 0;
    s->params.stop = (struct sampling_words){0};
    s->set |= (uint64_t)1 << (sampling_row_find("stop") - sampling_rows);
    return 0;
}

static int force_call(struct completion_request *r, struct completion_failure *f) {
    struct err err = {0};
    int rc = completion_force_call(r, &err);
    if (rc == E_NOMEM) return completion_no_memory(f);
    return rc < 0 ? completion_refuse(f, "invalid", "tool_choice", "%s", err.text) : 0;
}

// A template may ignore enable_thinking, or open the thinking in every prompt: a budget of 0 then closes it at
// once.
static int take_budget(struct completion_request *r, struct completion_failure *f) {
    const struct sampling_row *row = sampling_row_find("thinking_budget");
    bool off = r->thinking == THINKING_OFF, given = r->thinking_budget >= 0;
    if ((!off && !given) || !engine_syntax(r->served->engine).think_close) return 0;
    struct turn_sampling *s = completion_sampling(r);
    if (!s) return completion_no_memory(f);
    s->params.thinking_budget = off ? 0 : r->thinking_budget;
    s->set |= (uint64_t)1 << (row - sampling_rows);
    return 0;
}

static cJSON *template_args(const struct completion_request *r) {
    cJSON *args = r->template_args ? cJSON_Duplicate(r->template_args, true) : cJSON_CreateObject();
    if (r->thinking != THINKING_DEFAULT)
        json_set(args, "enable_thinking", cJSON_CreateBool(r->thinking == THINKING_ON));
    return args;
}

// With previous_session the earlier conversation is in the session already. The template gets a question and an
// answer in its place; the text that it writes after them is new.
static const char previous_answer[] = "The-answer-before-this-one-7c1d40e9";

static bool put_previous(struct completion_request *r) {
    cJSON *answer = json_tree("{role:'assistant',content:%s,fixed:true}", previous_answer),
          *question = json_tree("{role:'user',content:'?'}");
    if (question && answer && cJSON_InsertItemInArray(r->messages, 0, answer) &&
        cJSON_InsertItemInArray(r->messages, 0, question))
        return true;
    cJSON_Delete(answer);
    cJSON_Delete(question);
    return false;
}

static int find_new(struct completion_request *r, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    size_t n = strlen(previous_answer);
    const char *at = memmem(p->text, p->len, previous_answer, n);
    if (!at)
        return completion_refuse(f, "unsupported", "messages",
                                 "the model's chat template leaves out earlier answers");
    p->from = (size_t)(at - p->text) + n;
    p->n_old = 2;
    return 0;
}

static int encode_prediction(struct completion_request *r, struct completion_failure *f) {
    struct err err = {0};
    int rc = engine_tokenize(r->served->engine, r->prediction, strlen(r->prediction), false,
                             &r->plan->expected, &err);
    if (rc == E_NOMEM) return completion_no_memory(f);
    return rc < 0 ? completion_refuse(f, "invalid", "prediction", "%s", err.text) : 0;
}

static int make_plan(struct completion_request *r, struct completion_failure *f) {
    r->plan = calloc(1, sizeof *r->plan);
    if (!r->plan || !(r->plan->args = template_args(r))) return completion_no_memory(f);
    r->plan->parent = TURN_NONE;
    token_list_init(&r->plan->expected);
    if (r->prediction) TRY(encode_prediction(r, f));
    if (r->previous_session && !put_previous(r)) return completion_no_memory(f);
    TRY(completion_chain(r, f));
    TRY(completion_render(r, f));
    return r->previous_session ? find_new(r, f) : 0;
}

// A template looks a variable up in their list.
static int check_args(const struct completion_request *r, struct completion_failure *f) {
    int n = cJSON_GetArraySize(r->template_args);
    if (n <= TEMPLATE_ARGS_MAX) return 0;
    return completion_refuse(f, "invalid", "chat_template_kwargs",
                             "chat_template_kwargs has %d members: at most %d are taken", n,
                             TEMPLATE_ARGS_MAX);
}

bool completion_check(struct completion_request *r, struct completion_failure *f) {
    *f = (struct completion_failure){0};
    if (check_args(r, f) == 0 && completion_normalise(r, f) == 0 && check_tools(r, f) == 0 &&
        place_stops(r, f) == 0 && force_call(r, f) == 0 && take_budget(r, f) == 0 &&
        completion_take_format(r, f) == 0 && make_plan(r, f) == 0)
        return true;
    completion_request_empty(r);
    return false;
}

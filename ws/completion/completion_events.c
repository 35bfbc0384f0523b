// The events of a completion. See completion.h, state.h.
#include "ws/completion/state.h"
#include <string.h>

#define EVENT_TEXT_BYTES 4096 // of one joined delta

void completion_fail(struct completion *c, const char *code, const char *message) {
    if (!c->failure.status) completion_failure_set(&c->failure, code, message);
}

bool completion_has_session(const struct completion *c) {
    return c->state == STARTING || c->state == RUNNING;
}

// 1: the engine has begun the turn, so it is known how much of the prompt was cached.
static int take_started(struct completion *c, struct completion_event *out) {
    if (c->reported != NO_EVENT || c->state != RUNNING || !c->live) return 0;
    if (!session_turn_prompt(c->live, c->turn, &c->usage.prompt_tokens, &c->usage.cached_tokens))
        return 0;
    c->reported = START_EVENT;
    out->kind = COMPLETION_STARTED;
    out->usage = c->usage;
    return 1;
}

static bool wants_tokens(const struct completion *c) {
    bool wants = c->request->steady;
    for (int32_t i = 0; i < c->n_answers && !wants; i++)
        wants = speech_wants_tokens(&c->speeches[i]);
    return wants;
}

// The tokens of the further answers came while the turn ran; how they ended is known only now.
static void end_others(struct completion *c, const char *finish) {
    for (int32_t i = 1; i < c->n_answers; i++) {
        struct speech *s = &c->speeches[i];
        struct turn_answer a = {.finish_reason = finish};
        bool stored = session_answer_of(c->live, c->turn, i, &a) == 0;
        if (stored && (int64_t)a.n != s->n_tokens_in) completion_no_memory(&c->failure);
        speech_end(s, "", 0, a.finish_reason);
        c->usage.completion_tokens += s->n_tokens_in;
    }
}

static void take_done(struct completion *c, const struct turn_view *v) {
    const char *finish = v->finish_reason;
    c->state = ENDED;
    if (v->error_code && strcmp(finish, "error") == 0)
        completion_fail(c, v->error_code, v->error_message);
    else if (strcmp(finish, "interrupted") == 0)
        completion_fail(c, "shutting_down", "the server is shutting down");
    session_turn_prompt(c->live, c->turn, &c->usage.prompt_tokens, &c->usage.cached_tokens);
    int64_t drafted;
    session_turn_drafts(c->live, c->turn, &drafted, &c->usage.accepted_tokens);
    c->usage.rejected_tokens = drafted - c->usage.accepted_tokens;
    c->usage.predicted = c->request->prediction;
    c->usage.completion_tokens += v->numbers.output_tokens;
    speech_end(&c->speeches[0], v->text, v->text_len, finish);
    end_others(c, finish);
}

// Takes the session's next event. 0: there is none.
static int take_event(struct completion *c) {
    struct session_event ev;
    // 0: a token at a time; one without text comes with the next
    size_t max_text = wants_tokens(c) ? 0 : EVENT_TEXT_BYTES;
    if (!c->live) return 0;
    if (session_next_event(c->live, c->follower.client, max_text, &ev) != 1) {
        c->live = NULL; // until on_ready
        return 0;
    }
    if (ev.kind == EVENT_DELTA && ev.delta_turn == c->turn) speech_delta(&c->speeches[0], &ev);
    if (ev.kind == EVENT_SAMPLE && ev.delta_turn == c->turn && ev.branch < c->n_answers)
        speech_delta(&c->speeches[ev.branch], &ev);
    if (ev.kind == EVENT_DONE && ev.turn.turn == c->turn && c->state == RUNNING)
        take_done(c, &ev.turn);
    return 1;
}

// The next event of the answers, which take turns. 1, 0 or E_NOMEM.
static int take_speech(struct completion *c, struct completion_event *out) {
    for (int32_t i = 0; i < c->n_answers; i++) {
        int rc = speech_next(&c->speeches[c->next_answer], out);
        if (rc != 0) return rc;
        c->next_answer = (c->next_answer + 1) % c->n_answers;
    }
    return 0;
}

static bool have_ended(const struct completion *c) {
    for (int32_t i = 0; i < c->n_answers; i++)
        if (!c->speeches[i].ended) return false;
    return true;
}

static int take_end(struct completion *c, struct completion_event *out) {
    c->reported = END_EVENT;
    out->kind = c->failure.status ? COMPLETION_FAILED : COMPLETION_DONE;
    out->failure = c->failure.status ? &c->failure : NULL;
    for (int32_t i = 0; i < c->n_answers; i++)
        c->usage.reasoning_tokens += c->speeches[i].n_reasoning;
    out->usage = c->usage;
    return 1;
}

int completion_next(struct completion *c, struct completion_event *out) {
    *out = (struct completion_event){.session = c->session, .turn = c->turn};
    while (c->reported != END_EVENT) {
        if (c->failure.status) return take_end(c, out);
        if (take_started(c, out)) return 1;
        if (c->reported == START_EVENT || c->state == ENDED) {
            int rc = take_speech(c, out);
            if (rc < 0) completion_no_memory(&c->failure);
            if (rc < 0) continue;
            if (rc > 0) return 1;
        }
        if (c->state == ENDED && have_ended(c)) return take_end(c, out);
        // Also before the turn is accepted: a follower that leaves events is not called again.
        if (!completion_has_session(c) || !take_event(c)) return 0;
    }
    return 0;
}

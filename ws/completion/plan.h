// A request made ready: its conversation checked, put into one form, and rendered. Any thread.
#pragma once
#include "sessions/answer_parser.h"
#include "ws/completion/completion.h"

struct completion_plan {
    struct chat_rendering *rendering; // of the whole conversation
    const char *text;                 // (len) of it
    size_t len;
    size_t from; // the first byte that the session's log does not have (previous_session)
    bool thinks; // the prompt has opened the thinking
    cJSON *args; // of the template
};
void completion_plan_free(struct completion_plan *p); // NULL is fine

// E_* with *f set.
int completion_refuse(struct completion_failure *f, const char *code, const char *param,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int completion_no_memory(struct completion_failure *f);
// messages.c: checks the messages and tools, and puts them into one form.
int completion_normalise(struct completion_request *r, struct completion_failure *f);
// format.c: puts the answer's form into the sampling, and compiles its grammar.
int completion_take_format(struct completion_request *r, struct completion_failure *f);
// Renders the conversation: sets plan.
int completion_render(struct completion_request *r, struct completion_failure *f);
// The ids of the rendering's text from byte `from` on; free *ids.
int completion_encode(const struct completion_request *r, size_t from, int32_t **ids, size_t *n,
                      struct completion_failure *f);

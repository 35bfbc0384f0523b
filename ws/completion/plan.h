// A request made ready: its conversation checked, put into one form, and rendered. Any thread.
#pragma once
#include "sessions/answer_parser.h"
#include "sessions/store/store.h"
#include "sessions/told.h"
#include "ws/completion/completion.h"

// The conversation up to here may be a turn's, with its answer.
struct plan_bound {
    char digits[TOLD_DIGITS + 1]; // its chain (sessions/told.h)
    int n_messages;
};
struct completion_plan {
    cJSON *args;                      // of the template
    struct chat_rendering *rendering; // of the whole conversation; NULL: not yet
    const char *text;                 // (len) of it
    size_t len;
    // The messages without volatile text (sessions/volatile_text.h), and their rendering, by which the
    // conversation is found; NULL: nothing of them is volatile.
    cJSON *plain;
    struct chat_rendering *plain_rendering;
    bool thinks; // the prompt has opened the thinking
    struct hash128 chain;
    struct plan_bound *bounds; // (n_bounds) the longest first
    size_t n_bounds;
    // Of the turn to start: it goes on behind `parent`, with the text from byte `from` on, which the messages
    // from n_old on are.
    int64_t parent;
    size_t from;
    int n_old;
    struct given_answer *given; // stands between them; NULL: none
    struct token_list expected; // the prediction's tokens
};
void completion_plan_free(struct completion_plan *p); // NULL is fine

// E_* with *f set.
int completion_refuse(struct completion_failure *f, const char *code, const char *param,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int completion_no_memory(struct completion_failure *f);
// messages.c: checks the messages and tools, and puts them into one form.
int completion_normalise(struct completion_request *r, struct completion_failure *f);
// forced_call.c: where tool_choice forces a call, gives the answer the form of one.
// E_INVAL: it cannot; E_NOMEM.
int completion_force_call(struct completion_request *r, struct err *err);
// The request's own sampling, which has nothing set where it brought none. NULL: no memory.
struct turn_sampling *completion_sampling(struct completion_request *r);
// format.c: puts the answer's form into the sampling, and compiles its grammar.
int completion_take_format(struct completion_request *r, struct completion_failure *f);
// The chain of the messages, and where an earlier conversation may end in them.
int completion_chain(struct completion_request *r, struct completion_failure *f);
// Where the conversation goes on, among the turns found (NULL: none), whose thinking it gets back.
int completion_continue(struct completion_request *r, const struct store_told *found,
                        struct completion_failure *f);
// The turn's `told`. NULL: no memory.
struct told *completion_told(const struct completion_request *r);
// The same behind previous_turn. NULL also: it cannot be found again.
struct told *completion_told_behind(struct completion_request *r);
// What is shown of the turn's input; free it. NULL: no memory.
char *completion_shown(const struct completion_request *r);
// Renders the conversation, again where it is rendered.
int completion_render(struct completion_request *r, struct completion_failure *f);
// The same of other messages; *out is freed first.
int completion_render_messages(const struct completion_request *r, const cJSON *messages,
                               struct chat_rendering **out, struct completion_failure *f);
// The ids of the rendering's text [from, to), as far as there is; free *ids.
int completion_encode(const struct completion_request *r, size_t from, size_t to, int32_t **ids,
                      size_t *n, struct completion_failure *f);
// given.c: where the log shows the model the deepest known answer otherwise than this conversation does,
// that answer as it is by now, for a turn of its own: behind it later turns need not store the past again.
int completion_give(struct completion_request *r, const struct stored_match *known,
                    const cJSON *shown, struct completion_failure *f);
// What the messages [from, to) say, as it is shown: free it. NULL: no memory.
char *completion_words(const struct completion_request *r, int from, int to, const char *text,
                       size_t len);
// What the conversation is found by: without volatile text.
const cJSON *completion_plain_messages(const struct completion_request *r);
const struct chat_rendering *completion_plain_rendering(const struct completion_plan *p);

// A request made ready: its conversation checked, put into one form, and rendered. Any thread.
#pragma once
#include "engine/engine.h"
#include "sessions/matching/told.h"
#include "sessions/store/store.h"
#include "ws/completion/completion.h"

// A place in the conversation where an earlier turn and its answer may end.
struct plan_bound {
    char digits[TOLD_DIGITS + 1]; // its chain (sessions/matching/told.h)
    int n_messages;
};
struct completion_plan {
    cJSON *args;                      // variables for the template
    struct chat_rendering *rendering; // of the whole conversation; NULL: not yet
    const char *text;                 // (len) the rendering's
    size_t len;
    // The messages without volatile text (sessions/matching/volatile_text.h), and their rendering, to find the conversation.
    // NULL: the messages have no volatile text.
    cJSON *plain;
    struct chat_rendering *plain_rendering;
    bool thinks; // the prompt ends inside the thinking
    struct hash128 chain;
    struct plan_bound *bounds; // (n_bounds) the longest first
    size_t n_bounds;
    // The turn to start follows `parent`. Its input is the text from byte `from` on, which is made of the
    // messages from number n_old on.
    int64_t parent, parent_tokens; // tokens: of its log
    size_t from;
    int n_old;
    struct given_answer *given; // stored between parent and the turn; NULL: none
    struct token_list expected; // the prediction's tokens
};

// E_* with *f set.
int completion_refuse(struct completion_failure *f, const char *code, const char *param,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// messages.c: a string in an object, such as a message; borrowed. "": there is none.
const char *message_text(const cJSON *message, const char *key);
bool message_has_role(const cJSON *message, const char *role); // NULL is fine
// messages.c: checks the messages and tools, and puts them into one form.
int completion_normalise(struct completion_request *r, struct completion_failure *f);
// forced_call.c: if tool_choice forces a call, sets the answer's format to that of a call. E_INVAL: the
// model or the tool does not allow it; E_NOMEM.
int completion_force_call(struct completion_request *r, struct err *err);
// The request's own sampling, which has nothing set where it brought none. NULL: no memory.
struct turn_sampling *completion_sampling(struct completion_request *r);
// format.c: puts the answer's form into the sampling, and compiles its grammar.
int completion_take_format(struct completion_request *r, struct completion_failure *f);
// Sets the plan's chain and bounds.
int completion_chain(struct completion_request *r, struct completion_failure *f);
// Chooses the turn to continue among those found (NULL: none), and puts the thinking of its answers back
// into the messages. COMPLETION_NEEDS_ALL: found has the deepest turn alone, and it does not suit.
#define COMPLETION_NEEDS_ALL 1
int completion_continue(struct completion_request *r, const struct store_told *found,
                        struct completion_failure *f);
// What finds the turn again (sessions/matching/told.h). NULL: no memory.
struct told *completion_told(const struct completion_request *r);
// The same for a turn after previous_turn. NULL: no memory, or that turn has none.
struct told *completion_told_behind(struct completion_request *r);
// shown.c: the text that clients see as the turn's input; free it. NULL: no memory.
char *completion_shown(const struct completion_request *r);
// The title of a session that begins with several messages: its user's first words. False: none is needed.
bool completion_title(const struct completion_request *r, char *out, size_t cap);
// Renders the conversation, and replaces an earlier rendering.
int completion_render(struct completion_request *r, struct completion_failure *f);
// Renders other messages; frees *out first.
int completion_render_messages(const struct completion_request *r, const cJSON *messages,
                               struct chat_rendering **out, struct completion_failure *f);
// The ids of the rendering's text [from, to), up to its end; free *ids.
int completion_encode(const struct completion_request *r, size_t from, size_t to, int32_t **ids,
                      size_t *n, struct completion_failure *f);
// The tokens of a prompt with n_new ids behind its parent, or behind the answer given.
int64_t completion_prompt_tokens(const struct completion_plan *p, size_t n_new);
// given.c: if this conversation writes the latest known answer differently from the log, makes the plan's given_answer,
// so that later turns need not store the earlier conversation again.
int completion_give(struct completion_request *r, const struct stored_match *known,
                    const cJSON *shown, struct completion_failure *f);
// shown.c: the text that clients see of the messages [from, to); free it. NULL: no memory.
char *completion_words(const struct completion_request *r, int from, int to);
// The rendering without volatile text, to find the conversation.
const struct chat_rendering *completion_plain_rendering(const struct completion_plan *p);

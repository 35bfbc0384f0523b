// A completion: one answer (or n of them) to a conversation, independent of the protocol. The stateless
// protocols (chat completions, responses, messages) read their JSON into a completion_request, pull
// completion_events, and write them in their own form. The completion finds the session that the
// conversation continues, computes only what is new, and splits the model's text into thinking, text
// and tool calls.
//
// A conversation is an array of messages in the form of chat templates, which is also that of chat
// completions:
//   {"role":"system|user|assistant|tool", "content":"text" or null,
//    "reasoning_content":"...",                    assistant: its thinking, optional
//    "tool_calls":[{"id":"..","type":"function","function":{"name":"..","arguments":<object or JSON text>}}
//                  or {"id":"..","type":"custom","custom":{"name":"..","input":"..."}}],
//    "tool_call_id":"..", "name":".."}             tool
// Further members of a message are ignored. System messages may stand anywhere. completion_check joins
// consecutive messages of the assistant, so protocols with items may add one for each item.
//
// Threads: completion_check runs on any thread, all other functions on the net thread.
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "sessions/sessions.h"

struct completion;
struct service;

enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED };
enum thinking { THINKING_DEFAULT, THINKING_ON, THINKING_OFF };

struct completion_request {
    const struct served_model *served; // held: service_hold_model(); dropped with the request
    const struct owner *owner;         // its name and number (sessions/state/owners.h); NULL: none
    cJSON *messages;                   // as above; with previous_session only the new ones
    // [{"type":"function","function":{"name","description","parameters"}}], or custom tools, whose input is a text:
    // {"type":"custom","custom":{"name","description","format"}}; NULL: none
    cJSON *tools;
    cJSON *template_args; // object of further variables for the chat template; NULL: none
    cJSON *format;        // the answer's form, as OpenAI's response_format; NULL: any text
    enum tool_choice tool_choice;
    char *tool_name; // NAMED
    // The names of the tools that the answer may call; NULL: all. The model sees the others too, so that a
    // conversation's cache stays valid when they change.
    cJSON *allowed;
    // completion_read_tools': the tools of `allowed`, NULL: all; and the names of custom tools, NULL: none.
    cJSON *callable, *custom;
    bool no_parallel_tool_calls; // calls after the first one are dropped
    enum thinking thinking;
    int32_t thinking_budget; // tokens of thinking; -1: the sampling's
    // malloc; NULL: the server's defaults. params.n: answers 0 .. n-1
    struct turn_sampling *sampling;
    // The session's name (completion_name_session), opened if there is none. NULL: the session whose
    // conversation this one continues, or a new one.
    char *session;
    // Continues exactly after this turn; the client does not send its conversation again. NULL: none.
    char *previous_session;
    int64_t previous_turn;
    int32_t previous_last_id; // the last id of that turn's log; -1: unknown
    // A text that the answer may resemble: a source of drafts that changes no token. NULL: none
    char *prediction;
    // Recorded with the turn, for the protocol (struct request); NULL: nothing.
    char *note;
    bool stays; // if its session is busy, it fails with session_busy instead of running in a fork
    bool alone; // opens a new session, without a search for an earlier conversation
    bool outlives; // its turn continues when the completion is released
    // Every event ends at a token's end, however slow the reader is, so a repeated read gives the same
    // events.
    bool steady;
    bool temporary; // a session that it opens does not outlive this process
    bool forget;    // a session that it opened is deleted when the completion is released
    // Nothing is computed: the only event is DONE, with usage.prompt_tokens. Not with previous_session.
    bool counts;

    struct completion_plan *plan; // completion_check's
};

// On the heap. previous_turn is TURN_NONE, thinking_budget -1; all other members are zero.
struct completion_request *completion_request_new(void);    // NULL: no memory
void completion_request_free(struct completion_request *r); // with all it owns; NULL is fine
// Frees the JSON and the plan of a request that is refused, on the worker that read them: two hundred thousand values
// take milliseconds, which the net thread does not have.
void completion_request_empty(struct completion_request *r);

// Why a request is refused, or an answer breaks off. Plain data.
struct completion_failure {
    int status;    // HTTP: 400, 404, 409, 413, 429, 500, 503; 0: none
    char code[48]; // one of the codes below, independent of the protocol
    // The member at fault: of completion_request ("tools" ...), or of the protocol's own; "": none
    char param[96];
    char message[512];
    int64_t retry_after_ms; // 0: none
};
// Codes, with their status: invalid 400, unsupported 400, context_length_exceeded 400, not_found 404,
// session_busy 409, session_closed 409, rate_limited 429, limit_reached 429 (waiting does not help), overloaded 503,
// shutting_down 503, store_failed 503, error 500. Sets *f from a code of the session service:
void completion_failure_set(struct completion_failure *f, const char *code, const char *message);
// The service's ANSWER_ERROR. A failure that is set already is the cause, and stays.
void completion_failure_take(struct completion_failure *f, const struct session_answer *a);
int completion_no_memory(struct completion_failure *f); // overloaded. E_NOMEM

// Checks and normalises messages and tools, and finds the tool syntax. Called once, on the worker's thread
// that read the request. false: refused, *f says why, and the request is empty (completion_request_empty).
bool completion_check(struct completion_request *r, struct completion_failure *f);
// After completion_check: whether the prompt ends inside the thinking.
bool completion_thinks(const struct completion_request *r);
// Whether the JSON text of a request may have a grammar, whose compilation takes up to a second. Then
// completion_check must not be called on the net thread.
bool completion_is_costly(const char *json, size_t len);

enum completion_event_kind {
    COMPLETION_STARTED,        // session, turn, prompt_tokens, cached_tokens
    COMPLETION_THINKING,       // text
    COMPLETION_TEXT,           // text; logprobs
    COMPLETION_TOOL_BEGIN,     // tool, tool_id, tool_name
    COMPLETION_TOOL_ARGUMENTS, // tool, text: a piece of the arguments' JSON
    COMPLETION_TOOL_END,
    COMPLETION_ANSWER, // one of the n answers has ended: finish, stop_sequence
    COMPLETION_DONE,   // all answers have ended: usage. The last event
    COMPLETION_FAILED, // failure. The last event
};
enum completion_finish {
    COMPLETION_STOP, // the model ended the answer
    COMPLETION_STOP_SEQUENCE,
    COMPLETION_LENGTH,
    COMPLETION_TOOL_CALLS,
    COMPLETION_CANCELLED,
    COMPLETION_DEADLINE,
};

struct completion_token { // for logprobs
    int32_t id;
    float logprob;
    const char *bytes; // (len) borrowed from the engine; NULL: none
    size_t len;
    const struct completion_token *alternatives; // (n_alternatives), which have none themselves
    int32_t n_alternatives;
};

struct completion_usage {
    int64_t prompt_tokens;                       // of the whole conversation, as the model sees it
    int64_t cached_tokens;                       // how many of these were in the cache
    int64_t completion_tokens, reasoning_tokens; // of all answers
    // With a prediction, for the first answer: drafted tokens that the model accepted, and rejected.
    bool predicted;
    int64_t accepted_tokens, rejected_tokens;
};

struct completion_event { // pointers are borrowed until the next call on the completion
    enum completion_event_kind kind;
    int32_t answer;      // 0 .. n-1
    const char *session; // STARTED, ANSWER, DONE
    int64_t turn;        // STARTED, ANSWER, DONE: the answer's
    const char *text;    // whole UTF-8 characters
    size_t text_len;
    int32_t tool; // its place in the answer: 0, 1 ...
    const char *tool_id, *tool_name;
    bool tool_is_custom; // TOOL_ARGUMENTS' text is its input
    // TEXT, THINKING and TOOL_*, if the sampling asks for logprobs: the tokens that ended since the answer's
    // last event. NULL: none
    const struct completion_token *tokens;
    size_t n_tokens;
    int64_t drawn_us; // when its first token was drawn, for service_count_token; 0: not counted
    enum completion_finish finish;
    const char *stop_sequence;     // STOP_SEQUENCE: which one
    struct completion_usage usage; // STARTED (prompt, cached), DONE
    const struct completion_failure *failure;
};

// Called from the loop, outside of sessions_* calls, when there are events. The owner takes them with
// completion_next while its socket has room, and takes the rest without another call when it has room
// again.
typedef void (*completion_ready_fn)(void *user, struct completion *c);

// Takes the request, which completion_check has passed. NULL: no memory; the request is the caller's.
struct completion *completion_start(struct service *s, const char *owner,
                                    struct completion_request *r, completion_ready_fn ready,
                                    void *user);
// 1: *out; 0: none yet, ready() will be called. After DONE or FAILED only completion_release may be called.
int completion_next(struct completion *c, struct completion_event *out);
void completion_cancel(struct completion *c); // ends its turn; events follow up to DONE
// Frees it; a turn that still runs is cancelled. Not from inside a sessions_* call; NULL is fine.
void completion_release(struct completion *c);
struct completion_turn { // that another completion has started
    const char *session;
    int64_t turn;
    int64_t after; // the session's last event before the turn's first token
    bool thinks;   // its prompt ends inside the thinking
};
// Follows the turn, whose model and tools are the request's, from its first token on. The request needs no
// completion_check. NULL: no memory; the request is the caller's.
struct completion *completion_follow(struct service *s, const char *owner,
                                     struct completion_request *r, const struct completion_turn *t,
                                     completion_ready_fn ready, void *user);

// The tools whose calls are looked for in the answer; NULL: none.
const cJSON *completion_calls(const struct completion_request *r);
// Checks the tools and tool_choice, makes functions of custom tools and notes which tools may be called.
// completion_check does it; a request that only follows a turn needs this alone. E_* with *f set.
int completion_read_tools(struct completion_request *r, struct completion_failure *f);

// The id of a protocol's response names session and turn: PREFIX SESSION "-" TURN. chatcmpl-4f0c9a1b-3
// (prefix "chatcmpl-") is turn 3 of session 4f0c9a1b.
#define COMPLETION_ID_MAX 112
void completion_id(char out[COMPLETION_ID_MAX], const char *prefix, const char *session,
                   int64_t turn);

// The session that a request's headers name: x-session-id, session-id, x-claude-code-session-id, x-dynamo-session-id,
// x-session-affinity, x-parent-session-id, in this order. A name that is not a valid session id (session_id_valid) is
// replaced by its hash. "": they name none.
struct http_head;
void completion_session_name(const struct http_head *h, char out[SESSION_ID_MAX + 1]);
// Sets r->session, which is NULL, to that name. Without a name, nothing. false: no memory.
bool completion_name_session(struct completion_request *r, const char *name);

// The body of POST /v1/responses and of response.create on a WebSocket: read, checked, and turned into
// what a completion needs. Any thread.
#pragma once
#include "ws/completion/completion.h"
#include "ws/net/http.h"
#include "ws/openai/responses_id.h"
#include "ws/openai/responses_items.h"
#include "ws/openai/responses_output.h"
#include "ws/openai/responses_references.h"
#include "ws/openai/responses_steer.h"

struct service;

#define RESPONSES_STREAM_ID_MAX 256

enum responses_body {
    RESPONSES_HTTP,
    RESPONSES_SOCKET,
    RESPONSES_COUNT,  // input_tokens
    RESPONSES_COMPACT // compact: a summary of the conversation, instead of an answer
};

struct responses_request {
    struct completion_failure failure; // status 0: it is served
    bool stream, store, background;
    bool generate; // false: a warm-up, which computes the prompt
    struct responses_thinking thinking;
    bool extends; // its turn may join the previous response's session
    bool forget;  // its session is deleted with the run
    char stream_id[RESPONSES_STREAM_ID_MAX + 1]; // "": none
    bool continues;                              // behind the turn `previous`
    struct responses_id previous;
    char conversation[SESSION_ID_MAX + 1]; // its session; "": none
    int64_t revision;                      // of it, before the response (conversation.h)
    // What begins the model's input besides the conversation: instructions and tools. Where it equals
    // the previous response's, that response's cache goes on as it is.
    uint64_t prefix;
    char *echo;  // members that every response object repeats, JSON without its braces
    char *input; // the input's items, a JSON array
    // The ids of items in the input, which is read once the items are known. NULL: it has no such ids.
    struct responses_references *references;
    cJSON *unresolved;
    bool compacts;                         // RESPONSES_COMPACT
    cJSON *said;                           // compacts: the user's messages as items, once checked
    bool checked;                          // completion_check has been called
    struct completion_request *completion; // its messages: the input alone
    char *instructions;                    // NULL: none
    // RESPONSES_SOCKET
    struct steer *steer; // response.steer: the request has nothing else
    char *settings;      // for successors (steer_settings); NULL: it cannot be steered
};

// Never fails but for memory (NULL): a request that is refused says so in failure.
struct responses_request *responses_request_read(const struct service *s,
                                                 const struct http_payload *p,
                                                 enum responses_body kind);
void responses_request_free(void *request); // NULL is fine
// A response that continues nothing is given in the session that its headers name (completion_session_name). One that is
// not stored must leave nothing in a session that is, and a warm-up is no turn of the client's conversation. false: no
// memory.
bool responses_request_name(struct responses_request *r, const char *session);
// Failures in OpenAI's words, which clients look for. E_INVAL.
int responses_no_previous(struct completion_failure *f, const char *id);
int responses_no_conversation(struct completion_failure *f, const char *id);

// Of a request with references, behind their look-up: puts the items into the input, and reads it. Once, on a
// worker, before responses_request_check. 0 or E_* with failure set.
int responses_request_resolve(struct responses_request *r, const struct service *s);
// The completion's messages, once it is known what precedes the input: instructions, then `history` (an
// array that this call takes; NULL: the session has it, or there is none), then the input; and
// completion_check. Called once, on a worker. 0 or E_* with failure set.
int responses_request_check(struct responses_request *r, cJSON *history);
// The turn's note, from which the response is made again (responses_record.h): a JSON object. An input that does not fit REQUEST_NOTE_BYTES is left out. NULL: no memory, or the rest is
// too long.
char *responses_request_note(const struct responses_request *r);

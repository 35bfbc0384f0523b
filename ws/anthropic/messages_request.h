// The body of POST /v1/messages and /v1/messages/count_tokens, read into the neutral terms of
// ws/completion. Pure: a function of its arguments, any thread.
//
// Fields that Anthropic defines and this server does not serve are refused by their path; unknown ones
// are ignored. cache_control is accepted and changes nothing: every session's cache is kept anyway.
#pragma once
#include "ws/completion/http_completion.h"

struct messages_request {
    // First. Its request has what the body says, and completion_check has not seen it. NULL: no memory
    struct http_completion_request in;
    char *model;
    bool warms_up;   // max_tokens 0: the prompt is computed, and the answer is empty
    uint64_t key[2]; // of the signatures of thinking; messages.c sets it
};

enum messages_purpose { MESSAGES_ANSWER, MESSAGES_COUNT };
// Release *r in any case.
void messages_request_read(struct messages_request *r, enum messages_purpose purpose,
                           const char *body, size_t len);
void messages_request_release(struct messages_request *r);

// For the files that read its parts. Each returns false after a refusal, which is in r->in.failure.

// messages_refuse.c: 400. The sentence begins with the path of the field.
bool messages_refuse(struct messages_request *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool messages_no_memory(struct messages_request *r);
// conversation.c: system and messages into the request's messages, which may take parts of body's.
bool messages_read_conversation(struct messages_request *r, cJSON *body);
// tools.c: tools and tool_choice.
bool messages_read_tools(struct messages_request *r, const cJSON *body);

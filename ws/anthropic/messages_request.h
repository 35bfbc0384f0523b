// The body of POST /v1/messages and /v1/messages/count_tokens, read into the neutral terms of
// ws/completion. Pure: a function of its arguments, any thread.
//
// Fields that Anthropic defines and this server does not serve are refused by their path; unknown ones
// are ignored. cache_control is accepted and changes nothing: every session's cache is kept anyway.
#pragma once
#include "ws/completion/completion.h"

struct messages_request {
    char *model;
    bool stream;
    bool warms_up;           // max_tokens 0: the prompt is computed, and the answer is empty
    cJSON *messages;         // the form of chat templates (completion.h)
    cJSON *tools;            // NULL: none
    cJSON *template_args;    // NULL: none
    cJSON *format;           // as OpenAI's response_format; NULL: any text
    enum tool_choice choice; // with tool_name for TOOLS_NAMED
    char *tool_name;
    bool no_parallel_tool_calls;
    enum thinking thinking;
    int32_t thinking_budget;           // 0: no bound
    struct turn_sampling *sampling;    // NULL: counting
    struct completion_failure failure; // status 0: it was read
};

enum messages_purpose { MESSAGES_ANSWER, MESSAGES_COUNT };
// Release *r in any case.
void messages_request_read(struct messages_request *r, enum messages_purpose purpose,
                           const char *body, size_t len);
void messages_request_release(struct messages_request *r);

// For the files that read its parts. Each returns false after a refusal, which is in r->failure.

// messages_refuse.c: 400. The sentence begins with the path of the field.
bool messages_refuse(struct messages_request *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool messages_no_memory(struct messages_request *r);
// conversation.c: system and messages into r->messages, which may take parts of body's.
bool messages_read_conversation(struct messages_request *r, cJSON *body);
// tools.c: tools and tool_choice.
bool messages_read_tools(struct messages_request *r, const cJSON *body);

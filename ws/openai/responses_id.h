// Ids of the Responses API. They name the session and the turn, so no table maps them, they survive a
// restart, and any of them leads to the session in the page and in `parley replay`:
//     resp_SESSION-TURN          a response
//     msg_SESSION-TURN-INDEX     an output item (rs_ reasoning, fc_ function call; call_ its call_id)
//     msg_SESSION-TURN-iINDEX    an item of its input (any prefix)
//     conv_SESSION               a conversation
//     msg_SESSION-cINDEX         an item that was added to it (any prefix)
// SESSION is a session's id, which may have hyphens; the numbers behind it have none.
// Pure functions, any thread.
#pragma once
#include "sessions/store/facts.h"
#include <stdbool.h>

#define RESPONSES_ID_MAX (SESSION_ID_MAX + 64)

struct responses_id {
    char session[SESSION_ID_MAX + 1];
    int64_t turn;
    int64_t index; // of an item; -1: a response
    bool input;    // the item is one of its input
    bool added;    // to a conversation; turn is TURN_NONE
};

// prefix: "msg" ..., of responses_id_prefix. session: at most SESSION_ID_MAX bytes.
void responses_id_response(char out[RESPONSES_ID_MAX], const char *session, int64_t turn);
void responses_id_item(char out[RESPONSES_ID_MAX], const char *prefix, const char *session,
                       int64_t turn, int64_t index, bool input);
void responses_id_conversation(char out[RESPONSES_ID_MAX], const char *session);
void responses_id_added(char out[RESPONSES_ID_MAX], const char *prefix, const char *session,
                        int64_t index);
// What the id of an item of this type begins with.
const char *responses_id_prefix(const char *type);
// false: not an id of that kind.
bool responses_id_parse_conversation(const char *text, char session[SESSION_ID_MAX + 1]);
bool responses_id_parse(const char *text, struct responses_id *out);      // resp_
bool responses_id_parse_item(const char *text, struct responses_id *out); // msg_, rs_, fc_, ...

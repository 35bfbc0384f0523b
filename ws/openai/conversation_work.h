// One step of a request about a conversation: reads its note, and makes the reply or the changed note of it
// (conversations.c). Pure data and text: no socket, no session. One thread at a time.
#pragma once
#include "ws/openai/conversation.h"
#include "ws/openai/failure.h"
#include "ws/openai/responses.h"
#include "ws/openai/responses_run.h"

enum conversation_asked {
    CREATE,
    RETRIEVE,
    UPDATE,
    DELETE,
    ITEMS_LIST,
    ITEMS_CREATE,
    ITEM_RETRIEVE,
    ITEM_DELETE,
};

struct conversation_body { // of openai_conversations_decode
    struct completion_failure failure;
    cJSON *metadata, *items; // items in their normal form; NULL: none
    char *model;
};

struct conversation_work {
    enum conversation_asked asked;
    char session[SESSION_ID_MAX + 1];
    char item[RESPONSES_ID_MAX]; // "": none
    struct responses_page page;
    struct conversation_body *body; // owned; NULL: none
    struct responses_session found; // not of CREATE
    struct responses_record record; // of the chunk's turn
    bool has_record;
    // What the step makes
    cJSON *note;                       // NULL: not read yet
    cJSON *items;                      // found so far, in the order of the page
    int64_t chunk;                     // (conversation.h) whose turn `record` is
    int64_t next_chunk;                // needed by another step; -1: none
    bool past_after;                   // what follows page.after has begun
    char *new_note;                    // to be stored; NULL: nothing is
    struct buf out;                    // the reply
    struct completion_failure failure; // status 0: none
};
void conversation_work_release(struct conversation_work *c); // with its body
void conversation_work_reset(struct conversation_work *c);   // back to before the first step
// Any thread. Afterwards next_chunk, or else failure, or out and new_note, say what comes next.
void conversation_work_step(struct conversation_work *c, const struct service *s);

void conversation_refuse_missing(struct conversation_work *c); // the conversation

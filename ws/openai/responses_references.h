// References to items by id, {"type":"item_reference","id":"msg_..."}: a client that stores its responses
// sends these instead of the items. The items are looked up among the owner's stored responses (input and
// output) and conversations, and replace the references.
#pragma once
#include "ws/openai/responses_id.h"
#include "ws/openai/responses_items.h"

struct service;

// The references of one request: the turns that they name, and the sessions of their conversations.
struct responses_references;

bool responses_references_in(const cJSON *input); // it has any
// Of an input that has references. Any thread. E_* with *f set: an unknown id (404), a
// repeated id, no memory.
int responses_references_read(struct responses_references **out, const cJSON *input,
                              struct completion_failure *f);
void responses_references_free(struct responses_references *refs); // ends its look-up; NULL is fine

// Reads their turns and sessions, one after the other. done() is called once, from the loop, with what
// went wrong (status 0: nothing). An item that is not there is found missing later. Net thread.
typedef void (*responses_references_fn)(void *ctx, const struct completion_failure *f);
// owner: borrowed until then. E_NOMEM: it has not begun.
int responses_references_look(struct responses_references *refs, struct service *s,
                              const char *owner, responses_references_fn done, void *ctx);

// Puts the items in place of their references. Any thread, behind done(). E_* with *f set: an item that is
// not stored (404), no memory.
int responses_references_resolve(struct responses_references *refs, const struct service *s,
                                 cJSON *items, struct completion_failure *f);

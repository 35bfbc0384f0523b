// Items of the Responses API, and the messages of a conversation (ws/completion/completion.h) that they
// stand for. Pure functions, any thread.
#pragma once
#include "ws/openai/failure.h"

#define RESPONSES_ITEMS_MAX 8192 // of an input
// Begins an encrypted_content of ours; base64 of the thinking follows. It hides nothing, since the same words are
// shown as content or summary. But clients that store nothing send a reasoning item back only if it has one.
#define RESPONSES_ENCRYPTED "parley:"

// Appends the items' messages to `messages`. input: a string (a user's message) or an array. name: of the
// member that holds the items, for the failure. 0 or E_INVAL, E_NOMEM, with *f set.
int responses_items_read(cJSON *messages, const cJSON *input, const char *name,
                         struct completion_failure *f);
// E_INVAL with *f set for an item of the type compaction that this server cannot read: a summary of the items would
// lose what it stands for. E_NOMEM.
int responses_items_refuse_foreign(const cJSON *input, const char *name,
                                   struct completion_failure *f);
// {"type":"item_reference","id"} (the type may be missing): responses_references.h puts the item there.
bool responses_item_is_reference(const cJSON *item);
// A copy of the input as an array of items in their full form, each with its type and without an id:
// what is recorded with a turn. NULL: no memory.
cJSON *responses_items_normal(const cJSON *input);
cJSON *responses_item_of_user(const char *text); // a message. NULL: no memory
// A member of the messages that stand for summaries (items of the type compaction).
#define RESPONSES_SUMMARY "summary"
// Writes an item as clients see it: as it was recorded, with an id and a status.
void responses_item_put(struct json_writer *w, const cJSON *item, const char *id);
// Metadata as OpenAI takes it: at most 16 strings. E_INVAL with *f set.
int responses_metadata_check(const cJSON *metadata, struct completion_failure *f);
// Tools, {"type":"function","name",...}, as chat completions have them: {"type":"function","function":{...}}. Custom
// tools likewise.
// Those of a {"type":"namespace","name","tools"} are named NAMESPACE.NAME for the model. *out stays NULL
// where there are none; else the caller's. A fault leaves none. choice: the request's tool_choice. Tools that run on
// OpenAI's servers are left out, or refused if the choice forces a call.
int responses_tools_read(cJSON **out, const cJSON *tools, const cJSON *choice,
                         struct completion_failure *f);

// The model knows a function by NAME or NAMESPACE.NAME, with its final zero within so many bytes. A
// function's own name has no '.', so the first one ends the namespace.
#define RESPONSES_TOOL_NAME_MAX 136
// That name of a tool in tool_choice: {"type":"function" or "custom","name","namespace"}. NULL: it is none.
const char *responses_choice_name(const cJSON *tool, char full[RESPONSES_TOOL_NAME_MAX]);

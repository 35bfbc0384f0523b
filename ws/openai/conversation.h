// A conversation of OpenAI's API as data. It is a session. Its responses are the session's turns. Items that
// were added or deleted, and the metadata, are the session's note (sessions/state/request.h), JSON:
//     {"conversation":1,"revision":R,"created_ms":T,"next":N,"metadata":{},
//      "items":[{"n":0,"before":TURN,"item":{...}}],"deleted":["msg_..."]}
// An added item has its place before the turn that followed its addition. `revision` changes with the items: a response
// whose turn has the current revision has seen all items.
// Pure functions, any thread.
#pragma once
#include "base/json.h"
#include "ws/openai/responses_record.h"

// NULL: it is no conversation's note.
cJSON *conversation_read(const char *note);
// Takes metadata (NULL: none). created_ms: since 1970. NULL: no memory.
cJSON *conversation_new(cJSON *metadata, int64_t created_ms);
// Its revision, read without parsing the whole note. -1: it is no conversation's note.
int64_t conversation_note_revision(const char *note);
// Appends items in their normal form behind the turns that there are; they are numbered from *first on.
// E_NOMEM.
int conversation_add(cJSON *c, const cJSON *items, int64_t n_turns, int64_t *first);
int conversation_set_metadata(cJSON *c, const cJSON *metadata); // E_NOMEM
// Removes an item that the conversation has. E_NOMEM.
int conversation_remove(cJSON *c, const char *id);
// The chunk that has the item: the number of its turn, or of the turn that it stands before. -1: it was
// deleted, or never added.
int64_t conversation_chunk_of(const cJSON *c, const struct responses_id *id, const char *text);
// An item that was added, borrowed. NULL: there is none, or it was deleted.
const cJSON *conversation_added_item(const cJSON *c, int64_t index);
// Appends a chunk to `items`, in order, with ids and without deleted items: the items added before turn `chunk`, then
// those of that turn (NULL: it is not of this conversation). E_NOMEM; E_NOTFOUND: the turn's input is not on record.
int conversation_chunk(const cJSON *c, const char *session, int64_t chunk,
                       const struct responses_record *turn, cJSON *items);
// {"id","object":"conversation","created_at","metadata"}
void conversation_put(const cJSON *c, const char *session, struct json_writer *w);

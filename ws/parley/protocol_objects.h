// Parts of the objects that messages are made of, for the files that write messages. The whole objects are in
// protocol.h. Any thread.
#pragma once
#include "ws/parley/protocol.h"

// The system prompt never changes and may be long, so lists have only its beginning.
enum system_form { SYSTEM_WHOLE, SYSTEM_START, SYSTEM_NONE };
void protocol_put_session_as(struct json_writer *w, const char *key, const struct session_view *v,
                             enum system_form form);
// A member whose value is a JSON object as text; NULL: {}.
void protocol_put_json(struct json_writer *w, const char *key, const char *json);
void protocol_put_error(struct json_writer *w, const char *code, const char *message); // "error"
// Members that are known when a turn is done: usage, timings, cache, error. refused: as in protocol_put_cache.
void protocol_put_result(struct json_writer *w, const struct turn_view *t, const char *refused);
void protocol_put_place(struct json_writer *w, const struct turn_view *t); // "turn", "parent"
const char *protocol_turn_state(enum turn_state s);

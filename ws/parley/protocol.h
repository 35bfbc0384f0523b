// parley.v1 in both directions (PROTOCOL.md): messages of clients become struct message, strictly
// checked; events and answers of the session service become JSON. Pure functions: no socket, no
// session, no clock.
#pragma once
#include "base/json.h"
#include "sessions/sessions.h"

#define PROTOCOL_NAME "parley.v1"
#define PROTOCOL_TITLE_BYTES 200
#define PROTOCOL_SYSTEM_BYTES 32768
#define PROTOCOL_LIST_MAX 200
#define PROTOCOL_TURNS_MAX 1000

enum message_type {
    MESSAGE_HELLO,
    MESSAGE_PING,
    MESSAGE_WATCH,
    MESSAGE_USAGE,
    MESSAGE_REQUEST, // about sessions: request.kind
};

struct message { // the pointers in request are borrowed from the members below it
    enum message_type type;
    const char *token; // HELLO, or NULL
    bool owners;       // USAGE: of all owners
    // REQUEST: all but client and owner. request_id is set for every type, also on errors if the message
    // has a valid one.
    struct request request;
    cJSON *json;
    struct turn_sampling *sampling;
    int32_t *ids;
    int64_t at; // session.import: where this piece begins, and whether another follows
    bool more;
};

// Always followed by message_release. On failure *code is the wire code: bad_json, bad_message,
// unknown_type, invalid, too_large, internal.
// n_vocab: the model's, which bounds the token ids of sampling parameters.
int message_decode(struct message *m, const char *text, size_t len,
                   const struct json_limits *limits, int32_t n_vocab, const char **code,
                   struct err *err);
void message_release(struct message *m);
// Reads only the request_id, for refusing a message; "" if there is none, or if the message is longer than
// PROTOCOL_GLANCE_BYTES, because a refusal must stay cheap.
#define PROTOCOL_GLANCE_BYTES 4096
void message_glance(const char *text, size_t len, char request_id[SESSION_REQUEST_ID_MAX + 1]);

struct protocol_hello {
    const struct served_model *models; // a list (placement.h); the first one is the default
    const char *server_name;           // "": none
    const char *user;                  // the owner of the token; NULL: no token is needed
    bool admin;                        // may see the server's figures
    bool sharing;                      // sessions can be shared by links
    int64_t message_bytes, messages_per_second, rate_bytes, queued_turns, idle_eviction_ms;
};

// Writers append one whole message to out; errors are in out->error. With gaps (not NULL), long texts are
// left out of it and added to gaps.
void protocol_write_hello(struct buf *out, const struct protocol_hello *h, const char *request_id);
void protocol_write_plain(struct buf *out, const char *type, const char *request_id); // no fields
void protocol_write_importing(struct buf *out, int64_t bytes, const char *request_id);
void protocol_write_error(struct buf *out, const char *code, const char *message,
                          const char *request_id, const char *session, int64_t retry_after_ms,
                          const struct err_facts *facts); // or NULL
// engine: for the texts of alternatives; NULL: they have none.
void protocol_write_delta(struct buf *out, const struct session_event *ev, const char *session,
                          const struct engine *engine);
void protocol_write_sample(struct buf *out, const struct session_event *ev, const char *session,
                           const struct engine *engine);
void protocol_write_event(struct buf *out, struct json_gaps *gaps, const struct session_event *ev,
                          const char *session, const struct engine *engine);
// LIST and EXPORTED: writes the piece of the message that the answer has. TURN and REPLAYED: the piece of
// about PROTOCOL_PIECE_BYTES that begins at a->position. STATE: leaves the oldest turns out and sets
// `more` if the message would exceed out's cap.
#define PROTOCOL_PIECE_BYTES ((size_t)64 << 10)
void protocol_write_answer(struct buf *out, struct json_gaps *gaps, const struct session_answer *a);
void protocol_write_changed(struct buf *out, const struct session_view *view, bool removed);
void protocol_write_progress(struct buf *out, const char *session, int64_t turn, int64_t done,
                             int64_t total);
void protocol_write_stalled(struct buf *out, const char *session, const struct err *why);
void protocol_write_moved(struct buf *out, const char *session, int64_t turn, const char *reason);

// The session and turn objects of PROTOCOL.md, for tools that print them outside a message. key
// NULL inside an array.
void protocol_put_session(struct json_writer *w, const char *key, const struct session_view *v);
void protocol_put_turn(struct json_writer *w, const char *key, const struct turn_view *t);
void protocol_put_input(struct json_writer *w, const struct turn_input *in); // "input"
// The fields of an open turn object before `input` and `text`, and after them.
void protocol_put_turn_begin(struct json_writer *w, const struct turn_view *t);
void protocol_put_turn_end(struct json_writer *w, const struct turn_view *t);
// "cache", as a turn found it; refused: why its snapshot was not used, or NULL.
void protocol_put_cache(struct json_writer *w, const struct turn_numbers *n, const char *refused);
void protocol_put_forked_from(struct json_writer *w, const char *session /* NULL: null */,
                              int64_t turn);

// protocol_debug.c. The parts of a message that goes out in pieces; the last row has no `put`.
struct protocol_part {
    // Continues at *at, an element or byte of this part, for about a piece. True: the part is complete.
    bool (*put)(struct json_writer *w, const struct session_answer *a, const struct engine *engine,
                size_t *at);
    const char *before, *inside; // JSON that closes what is open before the part, and inside it
};
extern const struct protocol_part protocol_record_parts[], protocol_replayed_parts[];
void protocol_put_events(struct json_writer *w,
                         const struct session_answer *a); // "events":[...] of session.events

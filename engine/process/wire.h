// The messages between a server and an engine process, one after another on a stream socket.
//
//   server                                     engine process
//     OPEN      engine_options ---------------->  loads the model
//               <-- PROGRESS, MEASURING, then OPENED (struct wire_report) or REFUSED (struct err)
//     COMMAND   one from the queue ------------>  the process's own queue
//               <------------- EVENTS, METRICS    from the engine's thread
//               <---------------------- ENDED     after COMMAND_STOP; then the process ends
//
// Both ends are one build of one program, so structs are sent as they are in memory. A pointer in them only
// shows whether a part with its contents follows. A message is a head and parts; a part is its length and its
// bytes. Load and heartbeat (struct core_load) are in shared memory and need no message.
#pragma once
#include "base/buf.h"
#include "engine/cache/sequence.h"
#include "engine/engine.h"
#include "engine/run/command.h"
#include "kvcache/groups.h"
#include "kvcache/snapshot.h"
#include <stdlib.h>

enum wire_kind {
    WIRE_OPEN,
    WIRE_COMMAND,
    WIRE_PROGRESS,
    WIRE_MEASURING,
    WIRE_OPENED,
    WIRE_REFUSED,
    WIRE_EVENTS,
    WIRE_METRICS,
    WIRE_ENDED,
    WIRE_N_KINDS
};

// The descriptors of an engine process: the socket, and the memory of its load.
enum { WIRE_SOCKET = 3, WIRE_MEMORY = 4 };

// --- writing: parts into a buffer ---

void wire_begin(struct buf *b, enum wire_kind kind);       // empties it
void wire_put(struct buf *b, const void *bytes, size_t n); // one part, copied; errors stay in b
void wire_put_text(struct buf *b, const char *text);       // NULL stays NULL
// Ends the message. E_NOMEM, E_LIMIT.
int wire_end(struct buf *b);
void wire_sent(struct buf *b); // a buffer that was large for a cache gives its memory back
// Writes all bytes, and waits for room. Meanwhile it calls idle about five times a second; false ends the
// wait. idle NULL: it waits without. E_CLOSED: the other end is gone.
int wire_send(int fd, const char *bytes, size_t n, bool (*idle)(void *ctx), void *ctx);

// --- reading ---

struct wire_reader {
    int fd;
    struct buf in;
    size_t at; // the next message
};
struct wire_message {
    enum wire_kind kind;
    const char *at, *end; // the parts not taken yet; valid until the next wire_receive
    bool bad;             // a part was missing, or had another size
};
// The descriptor stays the caller's.
void wire_reader_init(struct wire_reader *r, int fd);
void wire_reader_release(struct wire_reader *r);
// 1: a message; 0: none came in timeout_ms (negative: waits for ever); E_CLOSED: the other end is gone;
// E_INVAL: not a message. E_NOMEM: of a message that is too large for the memory left, only the beginning is in
// *out; the rest is dropped, and the next message can be received.
int wire_receive(struct wire_reader *r, struct wire_message *out, int timeout_ms);

bool wire_take(struct wire_message *m, void *out, size_t n);    // a part of this size
const char *wire_take_bytes(struct wire_message *m, size_t *n); // borrowed; not NULL
const char *wire_take_text(struct wire_message *m);             // borrowed; NULL: it was NULL
// n elements; NULL: bad, or no memory.
void *wire_take_copy(struct wire_message *m, size_t each, size_t n);

// --- what goes over it ---

// Facts about the engine that only the engine process knows.
struct wire_report {
    struct engine_info info; // without its pointers
    struct kv_snapshot_maker maker;
    struct kv_groups groups; // without its places
    int32_t max_running, prefill_tokens, host_blocks, max_queued, max_known;
    size_t n_commands; // capacity of the queue
    bool has_final_norm, has_snapshots;
};

// The texts follow the struct as parts. Callbacks and the server's own objects arrive as NULL.
void wire_put_options(struct buf *b, const struct engine_options *o);
bool wire_take_options(struct wire_message *m, struct engine_options *o); // strings borrowed from m

// Appends *c, a command as the queue holds it.
void wire_put_command(struct buf *b, const struct command *c);
// The plain data of a command's turn. The engine process makes the turn from it (engine_process.c).
struct wire_turn {
    struct engine_turn spec; // its pointers point to parts, or only show that one follows
    int32_t reserve, places;
    enum engine_priority priority;
    int64_t submitted_us, deadline_us;
    struct sequence_names names;
};
struct wire_command {
    struct command command; // turn: only shows that there is one; cache: the caller's
    struct wire_turn turn;
};
// E_INVAL; E_NOMEM: only out->command is valid, without turn and cache. The caller owns the turn's ids, and
// a reference to its grammar and to its prompt.
int wire_take_command(struct wire_message *m, struct wire_command *out);
// The event that answers a command for which there is no memory; why NULL: on either end of the wire. False: no
// event answers such a command.
bool wire_refusal(const struct command *c, const struct err *why, int64_t now_us,
                  struct engine_event *out);

// Appends several events, and frees what they own. width: of a context embedding.
void wire_put_events(struct buf *b, struct engine_event *events, size_t n, int32_t width);
size_t wire_n_events(struct wire_message *m);
int wire_take_event(struct wire_message *m, int32_t width,
                    struct engine_event *out);    // E_INVAL, E_NOMEM
void wire_event_release(struct engine_event *ev); // what it owns

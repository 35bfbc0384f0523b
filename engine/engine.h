// The engine: the only door to models, text, cache and kernels.
//
// An engine is one instance: a model replica with its own thread, scheduler and cache. Its unit of
// work is a turn on a sequence: "make the cache of sequence S match this token log, then generate".
// Resume, recompute, rewind and plain continuation are that one idempotent call: what the cache
// already holds of the log is kept, what contradicts it is cut, what is missing is computed, in
// chunks, under the window rule. The caller owns the log (token ids); the engine owns the cache and
// forgets it when told, or when memory is short.
//
// Threads: engine_open/close and every engine_turn_* / engine_sequence_* / engine_poll call come
// from one thread, the owner's (the net thread of a server, main in a tool); none of them waits for
// a step, except engine_wait and engine_close. The text functions may be called from any thread at
// any time.
#pragma once
#include "base/buf.h"
#include "base/dtype.h"
#include "base/err.h"
#include "engine/model/weight_format.h"
#include "engine/sampling/json.h"
#include "engine/sampling/rows.h"
#include "engine/sampling/text.h"
#include "engine/text/token_list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct metrics;

struct engine_options {
    const char *model_dir;     // borrowed until engine_open returns, as all strings here
    const char *chat_template; // NULL: the model's own; else a built-in form's name or a file
    const char *device;        // "auto", "cpu", "cuda" or "cuda:N" (engine/device.h)
    const char *isa;           // of the CPU: NULL or "auto"
    // "f32", "bf16", on a GPU "f16", or "auto": on a GPU the model's; on the CPU bf16 where all
    // matrices are bf16, are kept so (weight_format) and the processor multiplies bf16, else f32.
    // NULL: "auto" on a GPU; on the CPU f32, as the references are computed.
    const char *compute_dtype;
    bool deterministic;         // of a GPU: the same bits whatever the batch; the CPU always is
    double gpu_memory_fraction; // of the GPU's memory, how much weights, work and cache may take
                                // together; 0: the cache takes what max_sequences need
    int32_t n_threads;          // 0: all cores
    enum weight_format weight_format; // what matrices become while loading
    enum dtype kv_dtype;    // of the cache; 8 bits have a scale for each position and head
    bool kv_dtype_auto;     // the backend's choice: what it computes in, F32 on the CPU
    int64_t kv_cache_bytes; // size of the pool; 0: on a GPU what gpu_memory_fraction leaves; else
                            // enough for max_sequences full windows, at most half of free memory
    // Host memory for caches that leave the device: idle sequences are parked there rather than
    // forgotten, the one used longest ago goes first. 0: none.
    int64_t host_cache_bytes;
    // A folder for snapshots: caches that leave host memory, or the device where there is no host
    // tier, are written there and read again, also by another process. NULL: none.
    const char *snapshot_dir;
    int64_t snapshot_bytes;       // all of them together; the one used longest ago goes first
    int32_t block_tokens;         // positions per cache block: a power of two, 8 .. 256
    int32_t default_memory_len;   // 0: what the model was trained for
    int32_t max_sequences;        // turns that run at once; more wait in the queue
    int32_t max_queued_turns;     // more are refused with E_BUSY
    int32_t prefill_chunk_tokens; // most prompt tokens of one step: the bound on what a long prompt
                                  // costs others; 0: 256 on the CPU, 2048 on a GPU
    int64_t max_session_len;      // no turn's log may be longer; 0: the model's max_positions
    // Called on the engine's thread when events wait after there were none. May be NULL
    // (engine_wait polls).
    void (*wake)(void *ctx);
    void *wake_ctx;
    // Bytes loaded; on the caller's thread. May be NULL.
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    // Likewise, behind the loading: products that a GPU times when it first meets matrices of such
    // shapes. It keeps what it found in a file, and is not called then.
    void (*measuring)(void *ctx, int64_t done, int64_t total);
    void *measuring_ctx;
    struct metrics *metrics; // may be NULL
};
void engine_options_init(struct engine_options *o);
// The cache's number format as a setting: the order of `choice`, and the names.
#define ENGINE_KV_DTYPES "auto|f32|f16|bf16|fp8|int8"
void engine_options_kv_dtype(struct engine_options *o, int choice);
const char *engine_kv_dtype_name(enum dtype t);

// Loads the model and starts the thread. On failure *err says what is missing and what would help.
int engine_open(struct engine **out, const struct engine_options *o, struct err *err);
// Begins the end without waiting: turns that run or wait end with finish reason "shutdown" within
// one step, and new ones are refused with E_CLOSED. Poll until every turn's ENGINE_DONE has come,
// then close. For an orderly end.
void engine_stop(struct engine *e);
// engine_stop, then drops the events that nobody polled, joins the thread and frees. NULL is fine.
void engine_close(struct engine *e);

struct engine_info {        // constant after opening; strings owned by the engine
    const char *model_name; // the folder's last part
    const char *family;
    const char *fingerprint; // equal models give equal strings
    // name of the form, or NULL: chat turns are refused with template_error
    const char *chat_template;
    const char *template_error;
    const char *tokenizer; // NULL: text turns are refused, ids only
    const char *backend;   // "cpu: AVX-512, 2 threads"
    int32_t n_vocab;
    int32_t end_of_turn; // -1 where the template has none
    int64_t n_params, weight_bytes;
    // By a step of one token: all but the tables that it looks a row up in.
    int64_t weight_bytes_read;
    int64_t load_us; // what opening the model took: reading, converting, copying to the device
    const char *weight_dtype; // "int8", "fp8", or as config.json says: "bf16"
    int64_t max_session_len;  // hard bound of a log
    int32_t default_memory_len,
        max_memory_len; // the latter: what the pool can hold for one sequence
    int32_t block_tokens, n_blocks;
    int64_t block_bytes;
    enum dtype kv_dtype;
    struct sampling_params suggested; // from generation_config.json, over sampling_params_init
};
const struct engine_info *engine_info(const struct engine *e);

// --- turns ---------------------------------------------------------------------------------------

struct engine_turn {
    uint64_t sequence; // the owner's number for the session, never 0; the cache is kept under it
    uint64_t turn;     // the owner's number for this turn; comes back in every event
    int32_t *ids;  // the whole log, its new input at the end; taken (free()d by the engine) when
                   // submit returns 0
    int64_t n_ids; // >= 1
    // how many at the end are new in this turn (for usage; 0 continues without input)
    int64_t n_input;
    int32_t memory_len, sink_len; // sink_len < memory_len <= engine_info.max_memory_len
    int64_t session_len;          // the log never grows past it
    struct sampling_params sampling;
    // Called on the engine's thread with the logits (n_vocab) f32 at each position computed for
    // this turn, in ascending order: those of position p predict token p + 1. NULL: only what
    // sampling needs is computed.
    void (*on_logits)(void *ctx, int64_t position, const float *logits);
    void *on_logits_ctx;
    // The text drawn goes on where the log's ends (a prompt as it is, an answer that was cut off):
    // a space in front of its first word is given. Else it is one of its own, as a chat's answer
    // is.
    bool goes_on;
    bool score_only; // no token is drawn: the turn is done when the log has been computed
    // Sequences of one group may share cache blocks where their logs begin alike; 0: shares with
    // none. The owner of the sessions gives one number (at most INT64_MAX) to all that belongs to
    // one user. A sequence that changes its group loses its cache.
    uint64_t share_group;
    // What the sequence is called in files, which outlast the process: at most 64 characters,
    // different for each sequence that ever was. Borrowed. NULL: no snapshot is made or read.
    const char *lasting_id;
    // Of a fork: the lasting id of the sequence that its log began as. Where the fork has no
    // snapshot of its own yet, that one's is read as far as the logs are equal. Borrowed. NULL:
    // none.
    const char *origin_id;
    // Whose the sequence is, by a name that lasts too: nobody reads the snapshot of another owner's
    // sequence, whatever it is called. Borrowed. NULL: one without a name.
    const char *lasting_owner;
};
// Checks and queues. E_INVAL names the field; E_BUSY: the queue is full, or a turn of this sequence
// is under way; E_CLOSED: after engine_stop. Without sampling.has_seed a seed is drawn and written
// to *turn. E_FULL: the log leaves no room to generate below session_len; E_NOMEM: one sequence of
// this shape can never fit the pool.
int engine_turn_submit(struct engine *e, struct engine_turn *turn, struct err *err);
// After E_BUSY: how long until a place is likely to be free for this one, in microseconds: by how
// long all of them have stayed taken of late, behind those who have been told a time before.
int64_t engine_retry_us(struct engine *e);
// Ends the turn within one step, whatever it waits for; its ENGINE_DONE says "cancelled". Unknown:
// ignored.
void engine_turn_cancel(struct engine *e, uint64_t sequence, uint64_t turn);
// Lets the cache of an idle sequence leave the device: in the background it is copied to host
// memory, ENGINE_PARKED follows; ENGINE_RELEASED where there is no room for it, or no such tier. A
// turn that comes meanwhile finds the cache, and nothing follows. Unknown: ignored.
void engine_sequence_park(struct engine *e, uint64_t sequence);
// A turn of this sequence is likely to come: a parked cache is brought back now, if there is room
// that nobody else uses or has been promised, and parked again if no turn comes in
// ENGINE_WARM_US. A hint: nothing follows, and one that is repeated too soon is ignored.
#define ENGINE_WARM_US 15000000
void engine_sequence_warm(struct engine *e, uint64_t sequence);
// The same for a sequence without a cache in memory: what its snapshot has of this log is read.
// Without a snapshot nothing happens; nothing is computed ahead of the turn. t as engine_turn_submit
// takes it, without input; takes t->ids in any case. ENGINE_RELEASED follows where the snapshot could
// not be used.
void engine_sequence_prepare(struct engine *e, struct engine_turn *t);
// Drops the cache of an idle sequence, wherever it is (ENGINE_RELEASED follows); after its turn if
// one is running. Unknown: ignored.
void engine_sequence_release(struct engine *e, uint64_t sequence);
// Its snapshot goes, and none is made of it any more: the session has been closed or deleted.
void engine_snapshot_forget(struct engine *e, uint64_t sequence, const char *lasting_id);
bool engine_has_snapshot(const struct engine *e, const char *lasting_id);
// Right after opening: snapshots of sessions that wanted() does not know any more go. Returns how
// many.
int engine_snapshots_tidy(struct engine *e, bool (*wanted)(void *ctx, const char *lasting_id),
                          void *ctx);
// For an orderly end: when the engine stops, it first writes what is idle or parked to snapshots,
// the one used last first, for some seconds at most. From now on no cache is released.
void engine_save_at_stop(struct engine *e);
// Sequence `to`, a new one, begins with what the cache of `from` holds of its first n_tokens
// tokens, on the device or in host memory: there it is parked from the start. Blocks are shared,
// and copied when one of the two writes to them: O(blocks), whatever their size. Does not wait;
// ENGINE_FORKED says what came of it (engine_wait passes it over); from then on `to` is an idle or
// parked sequence like any other. `from` may have a turn under way. Purely a hint: where nothing
// can be shared (no cache, the window has moved on, memory is short) `to` starts empty and its next
// turn recomputes, with the same results. So a caller may ignore the code: E_INVAL: `to` is 0,
// `from`, or not new; E_BUSY: as many sequences hold a cache as may; E_NOMEM; E_CLOSED: after
// engine_stop.
int engine_sequence_fork(struct engine *e, uint64_t from, uint64_t to, int64_t n_tokens);

enum engine_event_kind {
    ENGINE_STARTED,  // left the queue; cache source and prefill size are known
    ENGINE_PROGRESS, // prefill: n_done of n_total (at most one per step, none for short prompts)
    ENGINE_TOKEN,    // one sampled token and the text it released
    ENGINE_DONE,     // the turn ended; text holds what was still held back
    ENGINE_PARKED,   // the sequence's cache is in host memory now; why says how it came to that
    ENGINE_RELEASED, // the sequence's cache is gone; why says how
    ENGINE_SNAPSHOT, // a session has a snapshot now, or has none any more (engine_has_snapshot)
    ENGINE_FORKED,   // what became of a fork: n_cached tokens, 0 where nothing could be shared;
                     // parked: they are in host memory
};
enum engine_finish {
    FINISH_EOS,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_DEADLINE,
    FINISH_ERROR,
    FINISH_SHUTDOWN
};
// "eos", "stop", "length", "cancelled", "deadline", "error", "shutdown"
const char *engine_finish_name(enum engine_finish f);
// NONE: a first turn. HOST: copied back from host memory. SNAPSHOT: read from a file.
enum engine_cache_source { CACHE_NONE, CACHE_KEPT, CACHE_RECOMPUTED, CACHE_HOST, CACHE_SNAPSHOT };
// "none", "kept", "recomputed", "host", "snapshot"
const char *engine_cache_source_name(enum engine_cache_source s);
enum engine_release { RELEASE_ASKED, RELEASE_PRESSURE };

#define ENGINE_EVENT_TEXT 232

struct engine_alternative {
    int32_t id;
    float logprob;
};
struct engine_event {
    enum engine_event_kind kind;
    uint64_t sequence, turn;
    int64_t time_us; // monotonic, when it happened on the engine's thread
    // ENGINE_TOKEN. id is -1 in a continuation that only carries text too long for one event.
    int32_t id;
    float logprob;
    int32_t n_alternatives;
    struct engine_alternative alternatives[SAMPLING_MAX_TOP_LOGPROBS];
    // ENGINE_TOKEN and ENGINE_DONE: whole UTF-8 that may be shown now (stop strings held back and
    // cut out).
    uint32_t text_len;
    char text[ENGINE_EVENT_TEXT];
    // ENGINE_STARTED, PROGRESS
    int64_t n_cached, n_done,
        n_total; // tokens of the log in the cache; computed so far; to compute
    // of n_cached, those that other sequences of the group had and this one had not
    int64_t n_shared;
    enum engine_cache_source source; // of the rest: the sequence's own
    // ENGINE_DONE
    enum engine_finish finish;
    int32_t error_code;                      // with FINISH_ERROR: an E_*; the sentence is in text
    int64_t queue_us, prefill_us, decode_us; // decode: from the first sampled token to the last
    int64_t n_prefilled, n_generated;        // tokens computed before the first draw; tokens drawn
    int64_t resume_us;   // of prefill_us: to have again what an earlier turn had computed
    const char *refused; // why a snapshot was not used but removed, in a word; NULL: none was
    // ENGINE_RELEASED, ENGINE_PARKED
    enum engine_release why;
    int32_t blocks; // STARTED, DONE, RELEASED: cache blocks that the sequence holds (held); PARKED:
                    // in host memory
    bool snapshot;  // RELEASED: there is a file of it; SNAPSHOT: there is one now
    uint64_t snapshot_name[2]; // SNAPSHOT: whose, for engine_poll alone
    bool parked;               // DONE, PARKED, FORKED: what there is of its cache is in host memory
};
// 1 with an event, 0 when none waits. Owner's thread.
int engine_poll(struct engine *e, struct engine_event *out);
// Waits; negative: for ever. FORKED and SNAPSHOT are passed over.
int engine_wait(struct engine *e, struct engine_event *out, int64_t timeout_us);

struct engine_load { // a snapshot for metrics, admission and the page; any thread
    int32_t running, queued, sequences; // turns running and waiting; sequences with a cache
    int32_t blocks_free, blocks_total,
        blocks_idle; // idle: held by sequences without a turn, evictable
    int32_t parked;  // sequences whose cache is in host memory
    int32_t host_blocks_free, host_blocks_total;
    int32_t snapshots; // files
    int64_t snapshot_bytes;
    int64_t steps, step_us_ewma;
    bool device_lost;     // an accelerator failed: every turn has ended, and no new one is taken
    int64_t heartbeat_us; // monotonic time of the engine loop's last turn-round (liveness)
};
void engine_load(const struct engine *e, struct engine_load *out);
// Whether tokens are being drawn on another core than the caller's, one after another: the next
// event is some tens of microseconds away, and who stays awake for it costs nobody anything that
// sleeping and being woken would not. Any thread.
bool engine_token_is_near(const struct engine *e);

// --- text (any thread) ---------------------------------------------------------------------------

struct engine_message {
    const char *role, *content;
};
int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err);
// The same for a text that goes on behind a log's last id (-1: empty). Where that is text too, it
// is encoded as in the midst of one: a tokenizer that puts a space in front of a text puts none
// there.
int engine_tokenize_after(const struct engine *e, int32_t last_id, const char *text, size_t len,
                          struct token_list *out, struct err *err);
// Ids that continue a log whose last id is last_id (-1: empty) by these messages and the generation
// prompt.
int engine_render_turn(const struct engine *e, const struct engine_message *messages, size_t n,
                       int32_t last_id, struct token_list *out, struct err *err);
// A whole conversation; either out may be NULL. forge as in engine/text/chat_template.h.
int engine_render_chat(const struct engine *e, const struct engine_message *messages, size_t n,
                       bool add_generation_prompt, bool forge, struct token_list *ids,
                       struct buf *text, struct err *err);
int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err);
// The bytes of one token, borrowed (for showing alternatives); NULL when out of range.
const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len);

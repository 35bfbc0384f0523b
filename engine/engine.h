// The engine: the only door to models, text, caches and kernels.
//
// An engine is one instance: a model with its own thread, scheduler and caches. Its unit of work is a
// turn on a sequence: "make the cache of this sequence match this token log, then generate". A first
// turn, the next one, a resume, an edit and a rewind are all this one idempotent call. The engine
// reuses what the cache holds of the log, cuts what contradicts it, and computes the rest.
//
// The caller owns the log (token ids). The engine owns the cache; it drops a cache when asked to, and
// when memory is short, and the next turn then computes it again.
//
// Threads: one thread, the owner, opens and closes the engine and makes every engine_turn_*,
// engine_sequence_*, engine_snapshot* and engine_poll call (the net thread of a server, main in a
// tool). None of them waits for a step, except engine_wait and engine_close. The text functions and
// engine_load may be called from any thread at any time.
#pragma once
#include "base/buf.h"
#include "base/dtype.h"
#include "base/err.h"
#include "engine/model/prompt.h"
#include "engine/model/weight_format.h"
#include "engine/sampling/beams.h"
#include "engine/sampling/json.h"
#include "engine/sampling/rows.h"
#include "engine/sampling/text.h"
#include "engine/text/answer_parser.h"
#include "engine/text/token_list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct metrics;
struct packed_cache; // a cache outside of any engine: engine_sequence_export

struct engine_options {
    const char *model_dir;     // borrowed until engine_open returns, as all strings here
    const char *tokenizer;     // NULL or "": the model's own; else a folder with one
    const char *chat_template; // NULL: the model's own; else a built-in form's name or a file
    const char *device;        // "auto", "cpu", "cuda" or "cuda:N" (engine/device.h)
    const char *isa;           // of the CPU: NULL or "auto"
    // "f32", "bf16", on a GPU "f16", or "auto". "auto" on a GPU is the model's own format (device.h). On the CPU
    // it is bf16 if all matrices are in bf16, weight_format keeps them so and the processor
    // multiplies bf16; else f32. NULL: "auto" on a GPU; on the CPU f32, the references' format.
    const char *compute_dtype;
    bool deterministic;         // on a GPU: the same bits in every batch; always so on the CPU
    bool fp8_activations;       // on a GPU with fp8 weights: activations of wide steps in fp8 too
    double gpu_memory_fraction; // part of the GPU's memory for weights, work and cache together;
                                // 0: the cache has room for max_sequences full windows
    int32_t n_threads;          // 0: all cores
    // An instance of several ranks (engine/dist): each layer is cut into tensor_parallel parts, the
    // layers into pipeline_parallel stages. 0: 1. Sizes of caches are then each rank's.
    int32_t tensor_parallel, pipeline_parallel;
    double rank_timeout;              // seconds that a rank may stay silent; 0: 60
    enum weight_format weight_format; // matrices are converted to it while loading
    enum dtype kv_dtype;    // of the cache; 8-bit formats have a scale for each position and head
    bool kv_dtype_auto;     // instead of kv_dtype, the format that the backend computes in
    int64_t kv_cache_bytes; // size of the cache; 0: on a GPU the rest of gpu_memory_fraction, else
                            // max_sequences full windows, at most half of free memory
    // Host memory for parked caches, which have left the device. The least recently used is dropped
    // first. 0: none; a cache that leaves the device is dropped.
    int64_t host_cache_bytes;
    // A folder for snapshots: caches that leave host memory (the device, if host_cache_bytes is 0)
    // are written there and read again, also by a later process. Only one engine at a time can use
    // the folder. NULL: no snapshots.
    const char *snapshot_dir;
    int64_t snapshot_bytes;     // most of all snapshots; the least recently used is removed first
    int32_t block_tokens;       // positions per cache block: a power of two, 8 .. 256
    int32_t default_memory_len; // 0: the length that the model was trained for
    int32_t max_sequences;      // turns that run at once; further turns are queued. 0: on the CPU
                                // 16, on a GPU as its memory allows, up to 256
    // Beyond it turns are refused with E_BUSY, except those of owners with few turns (engine_turn_submit).
    int32_t max_queued_turns;
    int32_t prefill_chunk_tokens; // most prompt tokens in one step, which bounds how long a prompt
                                  // delays other turns; 0: 256 on the CPU, 2048 on a GPU
    int64_t max_session_len;      // the longest log of any turn; 0: the model's max_positions
    // Called on the engine's thread when the event queue is no longer empty. NULL: the owner uses
    // engine_wait.
    void (*wake)(void *ctx);
    void *wake_ctx;
    // Reports the bytes loaded so far, on the caller's thread. May be NULL.
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    // Reports the matrix products timed so far, after loading: a GPU times them for matrix shapes
    // that are new to it, and stores the results in a file. Not called if the file has them all.
    void (*measuring)(void *ctx, int64_t done, int64_t total);
    void *measuring_ctx;
    // Engines that are opened at the same time, this one included, and share the host's free memory: a
    // cache that kv_cache_bytes does not size gets at most this part of what it would get alone. 0: 1.
    int32_t n_beside;
    // Asked several times a second while an engine process loads: false ends it, and engine_open returns
    // E_CLOSED. Any thread. NULL: true.
    bool (*wanted)(void *ctx);
    void *wanted_ctx;
    // Tables of prompt learning beside those of the checkpoint: "NAME=DIR,NAME=DIR" or folders
    // (engine/model/prompt_tasks.h). NULL: none.
    const char *prompt_tasks;
    // The program whose command `engine` is an engine process (engine/process): the model, its device
    // and its ranks then live there, and the engine is opened again when that process ends or hangs.
    // "/proc/self/exe" is this program. NULL: the engine lives in this process.
    const char *process;
    double process_timeout;  // seconds without a sign of life, after which it is killed; 0: 60
    double process_backoff;  // the longest pause before it is started again, in seconds; 0: 60
    bool run_ahead;          // the threads that talk to it ask for thread_run_ahead
    struct metrics *metrics; // may be NULL
    const char *instance;    // label of these metrics, at most 40 characters without quotes, where
                             // several engines share them; NULL: none
};
// The defaults. model_dir stays NULL and is to be set.
void engine_options_init(struct engine_options *o);
// The cache's number format as a setting: names in the order of `choice`.
#define ENGINE_KV_DTYPES "auto|f32|f16|bf16|fp8|int8"
void engine_options_kv_dtype(struct engine_options *o, int choice);
// Whether the folder, or the place that belongs to a model folder, has a tokenizer. Does not read it.
bool engine_has_tokenizer(const char *model_dir);
// What people call the number format of a folder's weights ("W4A16", "GPTQ-Int4"), by its config alone. "": not known, or
// a dtype's.
enum { ENGINE_WEIGHTS_NAME = 24 };
void engine_weights_name(char out[ENGINE_WEIGHTS_NAME], const char *model_dir);
const char *engine_kv_dtype_name(enum dtype t);

int engine_n_gpus(void); // GPUs that this build can use; 0: none
enum { ENGINE_MAX_GPUS = 1024, ENGINE_DEVICES_BYTES = 512 };
// The `device` of instance i of n with these options (engine/device.h, device_of_instance). *n_sharing: of how many
// instances its GPU has to hold a part, at least 1. E_INVAL: a list that cannot be divided.
int engine_devices(const struct engine_options *o, int32_t i, int32_t n,
                   char out[ENGINE_DEVICES_BYTES], int32_t *n_sharing, struct err *err);
// Sets used[i] for each GPU that an engine with these options uses on this machine, and returns their number.
// 0: it computes on the CPU, or names what is not there: opening it says so.
int engine_gpus(const struct engine_options *o, bool used[ENGINE_MAX_GPUS]);
// Whether mpirun or srun started this process. Its ranks are then those of the job, and engine processes
// cannot join them.
bool engine_is_launched(void);

// Loads the model and starts the thread. On failure *err says what is missing and which setting
// would help.
int engine_open(struct engine **out, const struct engine_options *o, struct err *err);
// Stops without waiting: running and queued turns end with finish reason "shutdown" within one step,
// new turns are refused with E_CLOSED. For an orderly end, poll until every turn's ENGINE_DONE has
// come, then close.
void engine_stop(struct engine *e);
// engine_stop, then drops events that were not polled, joins the thread and frees. NULL is allowed.
void engine_close(struct engine *e);
// The same, and removes its rows from the registry of metrics, which lives on. NULL is allowed.
void engine_unload(struct engine *e);
// The first part of engine_unload: ends its thread and removes its rows, so that another engine of this
// name can be opened. Its texts can be used until engine_close; no owner may poll it any more.
void engine_retire(struct engine *e);

// For an engine whose process ended (engine_load.device_lost). True: the process has been started again,
// without any cache, and the engine takes turns from now on. False: not yet; `wake` is called when it can.
// Owner's thread, after the ENGINE_DONE of every turn has come.
bool engine_reopened(struct engine *e);
bool engine_reopens(const struct engine *e); // it has a process of its own

// What layers with the same sliding window cache.
struct engine_kv_window {
    int32_t window;          // tokens that they see; 0: everything
    int64_t bytes_per_token; // on all ranks together
};
enum { ENGINE_MAX_KV_WINDOWS = 16 };

struct engine_info {        // constant after opening; strings owned by the engine
    const char *model_name; // the folder's last part
    const char *family;
    const char *fingerprint;   // equal models have equal fingerprints
    const char *chat_template; // its form's name; NULL: chat turns are refused with template_error
    const char *template_error;
    const char *template_text;         // its source; NULL: none
    const char *bos_token, *eos_token; // variables of its templates; "": none
    const char *tokenizer;  // its description; NULL: the engine takes and gives token ids only
    const char *backend;    // "cpu: AVX-512, 2 threads"
    int32_t n_vocab, width; // width: of a hidden state
    uint64_t vocabulary;    // equal for equal tokens; 0: no tokenizer
    const int32_t *eos_ids; // (n_eos) the ids that end an answer
    int32_t n_eos;
    int32_t end_of_turn;   // the chat template's token id; -1: it has none
    int32_t longest_token; // bytes: n bytes are at least n / longest_token tokens; 0: unknown
    int64_t n_params, weight_bytes;
    int64_t weight_bytes_read; // by a step of one token: all weights, but one row of each table
    int64_t load_us;           // time for reading, converting and copying to the device
    const char *weight_dtype;  // "int8", "fp8", or as config.json says: "bf16"
    const char *weight_format; // what people call the matrices' format: "Q4_K_M", "W4A16", "bf16"
    int64_t max_session_len;   // the longest possible log
    int32_t default_memory_len;
    int32_t max_memory_len;         // the longest that the cache can hold for one sequence
    int32_t block_tokens, n_blocks; // tokens per cache block; blocks on the device
    int64_t block_bytes;
    struct engine_kv_window kv_windows[ENGINE_MAX_KV_WINDOWS]; // (n_kv_windows) distinct windows
    int32_t n_kv_windows;
    int32_t max_sequences; // turns that run at once
    enum dtype kv_dtype;
    struct sampling_params suggested; // from generation_config.json, over sampling_params_init
    const struct prompt_task *prompt_tasks; // (n_prompt_tasks)
    size_t n_prompt_tasks;
    // The model gives embeddings alone: a turn without sampling.context_embedding is refused. pooling: the embeddings' by
    // the model's files; unit_length: they then have the length 1.
    bool embeds_only, unit_length;
    enum context_pooling pooling;
    int32_t prompt_start_id; // the id of a table's first row in FasterTransformer's input_ids
};
// Borrowed until engine_close; constant after opening. Any thread.
const struct engine_info *engine_info(const struct engine *e);
// Bytes of a cache of so many tokens between two turns, without unused parts of blocks. Any thread.
int64_t engine_cache_bytes(const struct engine_info *info, int64_t n_tokens);

// Reads a folder with a table of prompt learning for this model (prompt_load). Any thread.
int engine_prompt_load(const struct engine *e, const char *dir, struct prompt **out,
                       struct err *err);
// How many values a row of such a table has for this model. Any thread.
int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind);

// --- turns ---------------------------------------------------------------------------------------

// Idle turns (replays, evaluations) run where no interactive turn needs their place, and get a small
// part of a step beside interactive ones.
enum engine_priority { ENGINE_INTERACTIVE, ENGINE_IDLE, ENGINE_N_PRIORITIES };

struct engine_turn {
    uint64_t sequence; // the owner's number for the session, never 0; names its cache
    uint64_t turn;     // the owner's number for this turn; comes back in every event
    // (n_ids) the whole log, new input at the end. The engine takes and free()s it when submit
    // returns 0.
    int32_t *ids;
    int64_t n_ids;   // >= 1
    int64_t n_input; // how many of ids are new in this turn; 0: it continues without input
    // How many of ids, after the input, this turn drew on another engine (which yielded it or failed). It
    // continues after them with the tokens that it would have drawn there. 0 for a turn with several
    // answers, which runs again from its start.
    int64_t n_drawn;
    int32_t memory_len, sink_len; // sink_len < memory_len <= engine_info.max_memory_len
    int64_t session_len;          // the log never grows beyond it
    struct sampling_params sampling;
    // Of sampling.grammar (engine_grammar_prepare). Borrowed for engine_turn_submit, which compiles the grammar itself
    // if this is NULL.
    struct grammar *compiled;
    // For a rerun with a smaller max_tokens: the max_tokens that the turn had. A grammar closes its answer
    // in time for this one, so that the rerun allows the same tokens. 0: sampling.max_tokens.
    int32_t planned_tokens;
    // A text that the answer may resemble: its tokens are drafts as soon as the answer's last tokens occur in
    // it, also with sampling.draft_tokens 0. It changes no token of the answer. Borrowed. n_expected 0: none.
    const int32_t *expected; // (n_expected)
    int32_t n_expected;
    // Called on the engine's thread with the logits (n_vocab) f32 of each position computed for this
    // turn, in ascending order; those of position p predict token p + 1. Such a turn is never paused.
    // NULL: only the logits that sampling needs are computed.
    void (*on_logits)(void *ctx, int64_t position, const float *logits);
    void *on_logits_ctx;
    // The generated text continues the log's text (a plain prompt, an answer that was cut short), so
    // a space before its first word is emitted. false: it is a text of its own, as a chat's answer.
    bool goes_on;
    // The table of the log's virtual tokens (engine/model/prompt.h). The engine takes a hold of its own.
    // NULL: the log has none. A sequence whose table has other contents loses its cache.
    const struct prompt *prompt;
    // ENGINE_DONE has the log-probability of each token of the input (scores), with sampling.top_logprobs
    // alternatives each. Such a turn computes all of its input, also what a cache has.
    bool scores_input;
    bool score_only; // draws no token: the turn ends when the log has been computed
    // Sequences of one group may share cache blocks where their logs begin alike. 0: shares with
    // none. Sessions use one number (at most INT64_MAX) for each user. A sequence whose group
    // changes loses its cache.
    uint64_t share_group;
    // Whose turn it is: owners share places, queue and steps in equal parts (engine/run/fair.h). A turn
    // may be paused between two steps for another owner's; it goes on later with the same tokens, and
    // only its end says for how long. 0: turns without an owner are one owner's together.
    uint64_t owner;
    enum engine_priority priority;
    // Names the sequence in snapshots, which outlast the process: at most 64 characters, never used
    // for another sequence. Borrowed. NULL: no snapshot is written or read.
    const char *lasting_id;
    // For a fork: the lasting_id of the sequence that it was forked from. Until the fork has its own
    // snapshot, the origin's is read as far as the logs are equal. Borrowed. NULL: not a fork.
    const char *origin_id;
    // The sequence's user, by a lasting name: a snapshot is read only for the user it was written
    // for. Borrowed. NULL: a user without a name.
    const char *lasting_owner;
};
// Checks the turn and queues it. Without sampling.has_seed it draws a seed and writes it to *turn.
// E_INVAL: *err names the field. E_BUSY: the queue is full, or a turn of this sequence runs. A full
// queue still takes turns of owners that have few in it, up to twice its length. Idle turns have a queue
// of their own, a quarter as long.
// E_FULL: the log leaves no room to generate below session_len. E_NOMEM: a sequence of this shape
// can never fit the cache. E_CLOSED: after engine_stop. E_DEVICE: the device has failed.
int engine_turn_submit(struct engine *e, struct engine_turn *turn, struct err *err);
// After E_BUSY: the time in microseconds after which this owner should try again with a turn of this
// priority, estimated from recent turnover and from retries already promised to it.
int64_t engine_retry_us(struct engine *e, uint64_t owner, enum engine_priority priority);
// Ends the turn within one step, also if it waits; its ENGINE_DONE says "cancelled". Ignored if
// unknown.
void engine_turn_cancel(struct engine *e, uint64_t sequence, uint64_t turn);
// Gives the turn back within one step, for another engine: its ENGINE_DONE says "yielded", and its
// cache stays. Text that was held back is not sent; the engine that gets the turn with
// engine_turn.n_drawn sends it. Ignored if unknown.
void engine_turn_yield(struct engine *e, uint64_t sequence, uint64_t turn);

// --- caches --------------------------------------------------------------------------------------

// Lets the cache of an idle sequence leave the device: it is copied to host memory in the background
// and ENGINE_PARKED follows, or ENGINE_RELEASED if host memory has no room. If a turn comes first,
// the turn finds the cache and neither event follows. Ignored if unknown.
void engine_sequence_park(struct engine *e, uint64_t sequence);
// A hint that a turn of this sequence will come: brings a parked cache back now, into blocks that
// are free and not promised to a running turn. After ENGINE_WARM_US without a turn the cache is
// parked again. No event follows; a hint that is repeated within 5 s is ignored.
#define ENGINE_WARM_US 15000000
void engine_sequence_warm(struct engine *e, uint64_t sequence);
// The same hint for a sequence without a cache in memory: reads the part of this log that its
// snapshot holds. Without a snapshot nothing happens; nothing is computed before the turn. t as in
// engine_turn_submit, without input; takes t->ids in every case. ENGINE_RELEASED follows if the
// snapshot was not used.
void engine_sequence_prepare(struct engine *e, struct engine_turn *t);
// Drops the cache of the sequence, wherever it is, after the running turn if there is one.
// ENGINE_RELEASED follows. Ignored if unknown.
void engine_sequence_release(struct engine *e, uint64_t sequence);
// A new sequence `to` begins with the cached part of the first n_tokens of `from`, on the device or
// in host memory (then `to` is parked from the start). Blocks are shared and copied on write: the
// cost does not depend on their size. `from` may have a running turn. Does not wait: ENGINE_FORKED
// says how many tokens are shared (engine_wait skips it). If nothing can be shared (no cache, the
// window has moved on, memory is short), `to` starts empty and its next turn computes the same
// results, so a caller may ignore the code. E_INVAL: `to` is 0, equals `from`, or is not new; E_BUSY:
// too many sequences have a cache; E_NOMEM; E_CLOSED: after engine_stop.
int engine_sequence_fork(struct engine *e, uint64_t from, uint64_t to, int64_t n_tokens);

// Takes the cache of an idle sequence out of the engine, for another engine. ENGINE_EXPORTED follows with
// the cache, which then is the owner's; or ENGINE_RELEASED if it cannot be exported: the engine has no
// host_cache_bytes, or memory is short. If a turn comes first, the turn finds the cache
// and neither event follows. Ignored if unknown.
void engine_sequence_export(struct engine *e, uint64_t sequence);
// Gives a new sequence the cache that another engine exported, parked. On 0 it takes *cache, and
// ENGINE_FORKED follows, with n_cached 0 if host memory has no room. E_INVAL: this engine does not compute
// as that one, or the sequence is not new; E_BUSY, E_NOMEM, E_CLOSED: as engine_sequence_fork.
int engine_sequence_import(struct engine *e, uint64_t sequence, struct packed_cache *cache);
int64_t engine_packed_tokens(const struct packed_cache *cache); // length of its log
void engine_packed_free(struct packed_cache *cache);            // NULL is fine

// Removes the sequence's snapshot and writes no further one: the session was closed or deleted.
void engine_snapshot_forget(struct engine *e, uint64_t sequence, const char *lasting_id);
bool engine_has_snapshot(const struct engine *e, const char *lasting_id);
// Right after opening: removes snapshots for which wanted() is false. Returns their number.
int engine_snapshots_tidy(struct engine *e, bool (*wanted)(void *ctx, const char *lasting_id),
                          void *ctx);
// When the engine stops, it first writes idle and parked caches to snapshots, the most recently used
// first, for at most 8 s. From this call on no cache is released.
void engine_save_at_stop(struct engine *e);

// --- events --------------------------------------------------------------------------------------

enum engine_event_kind {
    ENGINE_STARTED,  // the turn left the queue; cache source and prefill size are known
    ENGINE_PROGRESS, // prefill: n_done of n_total; at most one per step, none for short prompts
    ENGINE_TOKEN,    // one drawn token and the text that may be shown now
    ENGINE_DONE,     // the turn ended; text is the last piece, which was held back. If the device
                     // failed, that piece is not sent: see engine_turn.n_drawn
    ENGINE_PARKED,   // the sequence's cache is in host memory only
    ENGINE_RELEASED, // the sequence's cache was dropped
    ENGINE_SNAPSHOT, // a session's snapshot was written or removed (engine_has_snapshot)
    ENGINE_FORKED,   // the result of a fork or an import: n_cached tokens are shared, 0 for none
    ENGINE_EXPORTED, // the sequence's cache has left the engine; `cache` is the receiver's
};
enum engine_finish {
    FINISH_EOS,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_DEADLINE,
    FINISH_ERROR,
    FINISH_SHUTDOWN,
    FINISH_YIELDED
};
// "eos", "stop", "length", "cancelled", "deadline", "error", "shutdown", "yielded"
const char *engine_finish_name(enum engine_finish f);
// Where a turn found its sequence's own cache. NONE: a first turn. KEPT: on the device. RECOMPUTED:
// nowhere. HOST: in host memory. SNAPSHOT: in its snapshot.
enum engine_cache_source { CACHE_NONE, CACHE_KEPT, CACHE_RECOMPUTED, CACHE_HOST, CACHE_SNAPSHOT };
// "none", "kept", "recomputed", "host", "snapshot"
const char *engine_cache_source_name(enum engine_cache_source s);
// Why a cache left the device or was dropped: the owner asked, or other caches needed the room.
enum engine_release { RELEASE_ASKED, RELEASE_PRESSURE };

#define ENGINE_EVENT_TEXT 232

struct engine_alternative {
    int32_t id;
    float logprob;
};
// The model's own log-probabilities of a turn's input. One block: free() frees it.
struct engine_scores {
    int64_t n; // tokens
    int32_t n_alternatives;
    int32_t *ids; // (n)
    // (n) Of each token, given all of the log before it. NAN: it has none, as the log's first one.
    float *logprobs;
    struct engine_alternative *alternatives; // (n, n_alternatives) the likeliest first; id -1: none
};
// NULL: no memory. Any thread.
struct engine_scores *engine_scores_new(const int32_t *ids, int64_t n, int32_t n_alternatives);
struct engine_scores *engine_scores_copy(const struct engine_scores *from);

// A turn's branches at its end (sampling n, beam_width), the answer first: beams by their score, samples
// in their order.
struct engine_branch {
    const int32_t *ids;    // (n) what it generated
    const float *logprobs; // (n) the model's own
    int32_t n;
    // The sum of the log-probabilities / n ^ len_penalty; of beams after penalties and bans.
    double score;
    enum engine_finish finish; // why it ended
    const char *text;          // (text_len) without the stop string; not NUL-terminated
    size_t text_len;
    const uint32_t *text_ends; // (n) where each token's text ends in it
};
struct engine_branches {
    int32_t n;
    struct engine_branch of[BEAMS_MAX];
};

struct engine_event {
    enum engine_event_kind kind;
    uint64_t sequence, turn;
    int64_t time_us; // monotonic, on the engine's thread
    // TOKEN. id is -1 in a continuation, which only carries text that did not fit one event, or that
    // was held back. branch: the sample that it belongs to; 0 is the turn's answer. Tokens of beams come
    // once all beams agree in them.
    int32_t id, branch;
    float logprob;
    int32_t n_alternatives;
    struct engine_alternative alternatives[SAMPLING_MAX_TOP_LOGPROBS];
    // TOKEN, DONE: whole UTF-8 characters. Stop strings are held back and cut out.
    uint32_t text_len;
    char text[ENGINE_EVENT_TEXT];
    // STARTED, PROGRESS, DONE, FORKED
    int64_t n_cached;                // tokens of the log that were in the cache
    int64_t n_done, n_total;         // STARTED, PROGRESS: tokens computed so far; to compute
    int64_t n_shared;                // how many of n_cached came from other sequences of the group
    enum engine_cache_source source; // STARTED: where the other cached tokens were
    // DONE
    enum engine_finish finish;
    int32_t error_code;                      // with FINISH_ERROR: an E_*; the sentence is in text
    int64_t queue_us, prefill_us, decode_us; // decode: from the first drawn token to the last
    int64_t paused_us;                // beside these: while turns of other owners had its place
    int64_t n_prefilled, n_generated; // tokens computed before the first draw; tokens drawn
    int64_t n_drafted, n_accepted;    // drafted tokens that the model checked; that it accepted
    // The context outputs that the sampling parameters ask for, if the input was computed.
    bool has_context_logprob;
    double context_logprob;
    // Borrowed until the next event, like the two below; NULL: none
    double *context_embedding;              // (engine_info.width)
    struct engine_scores *scores;           // of engine_turn.scores_input
    const struct engine_branches *branches; // NULL: the turn had one
    int64_t resume_us;   // part of prefill_us: bringing the cache back to the device
    const char *refused; // one word: why a snapshot was removed instead of used; NULL: none was
    // RELEASED, PARKED
    enum engine_release why;
    // STARTED, DONE, FORKED: held on the device; RELEASED: given up; PARKED: held in host memory
    int32_t blocks;
    bool snapshot;              // RELEASED: the sequence has a snapshot; SNAPSHOT: it has one now
    uint64_t snapshot_name[2];  // SNAPSHOT: for engine_poll alone
    bool parked;                // DONE, PARKED, FORKED: the cache is in host memory only
    struct packed_cache *cache; // EXPORTED
};
// 1: *out is the next event; 0: there is none. Owner's thread.
int engine_poll(struct engine *e, struct engine_event *out);
// Waits for the next event; for ever if timeout_us is negative. Skips FORKED and SNAPSHOT.
int engine_wait(struct engine *e, struct engine_event *out, int64_t timeout_us);

// --- load (any thread) ---------------------------------------------------------------------------

struct engine_load {                                // for metrics, admission and the page
    int32_t running, queued, paused;                // turns; queued: not admitted yet
    int32_t idle_running, idle_queued, idle_paused; // of these, with idle priority
    int32_t sequences;                              // with a turn or a cache
    int32_t blocks_free, blocks_total;
    int32_t blocks_idle; // held by sequences without a running turn: they can be evicted
    int32_t parked;      // sequences whose cache is in host memory only
    int32_t host_blocks_free, host_blocks_total;
    int32_t snapshots;
    int64_t snapshot_bytes;
    int64_t steps, step_us_ewma; // steps so far; mean duration of a step
    bool device_lost;            // the device failed: every turn has ended and new ones are refused
    int64_t heartbeat_us;        // monotonic time of the engine thread's last round
    int64_t restarts;            // how often its process was started again
};
// The numbers are read one after another while the engine runs: they need not be of one moment.
void engine_load(const struct engine *e, struct engine_load *out);
// Why device_lost is set, a sentence: the last error of the device or of the engine process. "": it
// serves. It may name files: only for the operator.
#define ENGINE_WHY_MAX 512
void engine_why_lost(const struct engine *e, char *out /* (cap) */, size_t cap);
// Whether another core is drawing tokens one after another: the next event is some tens of
// microseconds away, and polling is cheaper than sleeping.
bool engine_token_is_near(const struct engine *e);

// --- text (any thread) ---------------------------------------------------------------------------

struct engine_message {
    const char *role, *content;
};
// Appends the text's ids to *out. special: names of special tokens in the text become their ids. E_UNSUPPORTED:
// the model has no tokenizer.
int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err);
// The same, with special tokens, for a text that begins a log: before it stands the token that the model's files put
// there (tokenizer_start), unless the text is empty or begins with that token. Of an embedding model the one behind it
// (tokenizer_end) likewise.
int engine_tokenize_start(const struct engine *e, const char *text, size_t len,
                          struct token_list *out, struct err *err);
// The same for a text that follows a log whose last id is last_id (-1: empty). A tokenizer that puts
// a space before each text puts none where the log ends with a token of text.
int engine_tokenize_after(const struct engine *e, int32_t last_id, const char *text, size_t len,
                          struct token_list *out, struct err *err);
// Appends these messages and the generation prompt to a log whose last id is last_id (-1: empty).
int engine_render_turn(const struct engine *e, const struct engine_message *messages, size_t n,
                       int32_t last_id, struct token_list *out, struct err *err);
int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err);
// Compiles what an answer must match, unless it is compiled already for this owner (engine_turn.owner), so that a
// turn with it starts at once: for a worker's thread, since it takes up to about a second. The engines of a process
// with the same vocabulary share what they compile. *out: for engine_turn.compiled; the caller holds it.
// E_INVAL, E_UNSUPPORTED: *err says what the text does wrong, and where; E_LIMIT: it is too large or too
// ambiguous; E_NOMEM.
struct grammar;
int engine_grammar_prepare(const struct engine *e, uint64_t owner, const struct grammar_text *text,
                           struct grammar **out, struct err *err);
// The same if it is compiled already, else NULL. It takes microseconds.
struct grammar *engine_grammar_find(const struct engine *e, uint64_t owner,
                                    const struct grammar_text *text);
void engine_grammar_release(struct grammar *g); // NULL is allowed; engines may be closed before
bool engine_token_is_text(const struct engine *e, int32_t id); // false: a special one, or no token
// The bytes of one token, borrowed; NULL: the id is out of range. For showing alternatives.
const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len);

// --- conversations (any thread) ------------------------------------------------------------------

// How the model writes tool calls and thinking. From any thread; the texts live as long as the engine. Zeroed: the model has no chat template.
struct chat_syntax engine_syntax(const struct engine *e);
// Whether an answer behind the log (n) begins inside the model's thinking: the template opened it at the
// end of the prompt, or the answer that goes on (goes_on, as in engine_turn) had not closed it.
bool engine_begins_thinking(const struct engine *e, const int32_t *log, int64_t n, bool goes_on);

// A conversation through the model's template: messages, tools (NULL: none) and further variables
// (NULL: none) as JSON in the form that templates take. Text of the client never yields a special
// token. If the last message is the assistant's, the answer goes on with it. E_INVAL: the
// template refuses the conversation, or leaves out a message.
struct cJSON;
struct chat_rendering;
int engine_render(const struct engine *e, const struct cJSON *messages, const struct cJSON *tools,
                  const struct cJSON *args, struct chat_rendering **out, struct err *err);
void engine_rendering_free(struct chat_rendering *r); // NULL is fine
const char *engine_rendering_text(const struct chat_rendering *r, size_t *len);
// Appends the ids of the text's bytes [from, to), cut at the text's end; from > 0 follows text that is
// encoded already.
int engine_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                            struct token_list *ids, struct err *err);
// Behind the end-of-turn token that the template writes at or after `from`, before further words of a
// message; SIZE_MAX: there is none.
size_t engine_rendering_turn_end(const struct chat_rendering *r, size_t from);

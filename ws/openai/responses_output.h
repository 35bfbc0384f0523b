// The output of one response: turns a completion's events into items, and into the events that report them.
// Pure data and text: no socket, no session. The same events give the same items, ids and numbers, so a
// stream can be repeated from a session's record (GET ?stream=true).
// One thread at a time.
#pragma once
#include "base/buf.h"
#include "ws/completion/completion.h"
#include "ws/openai/responses_id.h"

enum responses_status {
    RESPONSES_IN_PROGRESS,
    RESPONSES_COMPLETED,
    RESPONSES_INCOMPLETE,
    RESPONSES_CANCELLED,
    RESPONSES_FAILED,
};

// A SUMMARY is a reasoning item too, with the thinking in its summary instead of its content.
enum responses_item_kind {
    ITEM_REASONING,
    ITEM_SUMMARY,
    ITEM_MESSAGE,
    ITEM_CALL,
    ITEM_CUSTOM_CALL
};

// How a request wants its thinking to be shown.
struct responses_thinking {
    bool summary;   // as summary, which most clients show (reasoning.summary)
    bool encrypted; // once more as encrypted_content, which clients send back (include)
};

// Whether this `reasoning` of a request or of its echo asks for a summary.
bool responses_asks_summary(const cJSON *reasoning);

struct responses_item {
    enum responses_item_kind kind;
    enum responses_status status; // IN_PROGRESS, COMPLETED, INCOMPLETE
    struct buf text;              // what it says, or a call's arguments or input
    struct buf logprobs;          // of a message: elements (openai_put_logprobs)
    char *name;                   // of the tool
};

// Takes one event, JSON text without a line end; type is its name.
typedef void (*responses_emit_fn)(void *ctx, const char *type, const struct buf *json);

struct responses_output {
    char id[RESPONSES_ID_MAX];
    char session[SESSION_ID_MAX + 1];
    int64_t turn;
    const char *echo;      // borrowed: members that every response object repeats
    const char *stream_id; // borrowed: of a WebSocket's lane; NULL: none
    enum responses_status status;
    struct responses_item *items; // (n_items)
    size_t n_items, cap_items;
    bool open;     // the last item is
    bool silent;   // a warm-up: it has no items
    bool logprobs; // messages have the log-probabilities of their tokens
    struct responses_thinking thinking;
    enum completion_finish finish;
    struct completion_usage usage;
    int64_t completed_s; // 0: not yet
    char error_code[48], error_message[512];
    int64_t sequence;       // of the next event
    int64_t after;          // events up to this number are not emitted; -1: all are
    bool failed;            // out of memory: the output is not whole
    responses_emit_fn emit; // NULL: no events, the items alone
    void *ctx;
};

// echo and ctx are borrowed until the release.
void responses_output_init(struct responses_output *o, const char *echo, responses_emit_fn emit,
                           void *ctx);
void responses_output_release(struct responses_output *o);
// Names the response: response.created and response.in_progress.
void responses_output_begin(struct responses_output *o, const char *session, int64_t turn);
// An event of the completion, from STARTED to DONE or FAILED.
void responses_output_take(struct responses_output *o, const struct completion_event *e);
// The response object as it is now.
void responses_output_write(const struct responses_output *o, struct buf *out);
// The object of /v1/responses/compact: the user's messages (`said`), and the answer as their summary.
void responses_output_write_compaction(const struct responses_output *o, const cJSON *said,
                                       struct buf *out);
// Its output items alone, as the input of a later turn has them: elements of an array that is open.
void responses_output_write_items(const struct responses_output *o, struct json_writer *w);

// {"type":"error",...} of a stream, with its number.
void responses_write_stream_error(struct buf *out, int64_t sequence,
                                  const struct completion_failure *f);

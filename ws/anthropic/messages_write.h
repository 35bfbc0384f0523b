// What POST /v1/messages answers: the events of a stream, whole messages and errors, in Anthropic's
// form. Pure: text only.
//
// Both forms are written from the same neutral events. A message is a list of content blocks:
// thinking, text and tool_use, each of which begins, grows and ends. A stream reports this by events; a
// whole message has the same blocks as an array. At most one block is open at a time.
#pragma once
#include "base/buf.h"
#include "ws/anthropic/thinking_seal.h"
#include "ws/completion/completion.h"

enum message_block { MESSAGE_NO_BLOCK, MESSAGE_THINKING, MESSAGE_TEXT, MESSAGE_TOOL };

struct message_writer {
    const char *model;   // borrowed
    const uint64_t *key; // of signatures, borrowed
    int32_t max_tokens;
    bool stream;
    bool silent; // the answer is not shown, and counts as empty
    char id[COMPLETION_ID_MAX];
    struct completion_usage usage;
    enum message_block open;
    int n_blocks; // begun
    struct thinking_seal seal;
    struct buf content;   // whole messages: the array's elements so far
    struct buf arguments; // and the open tool_use block's input
    enum completion_finish finish;
    char stop_sequence[SAMPLING_WORD_BYTES];
};

// The code that refuses `thread`, the same as Anthropic's.
#define MESSAGES_NO_THREADS "thread_unsupported_request"

// max_bytes: of the collected content, and of one call's arguments.
void message_writer_init(struct message_writer *w, size_t max_bytes);
void message_writer_release(struct message_writer *w);
// Takes an event of answer 0; events without a form here change nothing. In a stream, the text to send is appended
// to out. After COMPLETION_DONE a stream is complete; a whole message is then written by
// message_write_whole. Not for COMPLETION_FAILED.
void message_write_event(struct message_writer *w, const struct completion_event *e,
                         struct buf *out);
void message_write_whole(struct message_writer *w, struct buf *out);

// status as it is sent (anthropic_status).
void message_write_error(struct buf *out, int status, const char *code, const char *message,
                         const char *request_id);
void message_write_stream_error(struct buf *out, int status, const char *code, const char *message,
                                const char *request_id);
void message_write_count(struct buf *out, int64_t n_tokens);

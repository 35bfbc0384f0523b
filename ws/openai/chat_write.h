// What chat completions answer: whole ones, the chunks of streamed ones, and errors. Text only.
#pragma once
#include "base/buf.h"
#include "sessions/sessions.h"

struct chat_head { // what every part of one completion repeats
    const char *id, *model, *fingerprint;
    int64_t created_s;
    bool include_usage;
};

void chat_write_whole(struct buf *out, const struct chat_head *h, const char *text, size_t len,
                      const struct turn_view *t);
// Server-sent events, each with its empty line.
void chat_write_role(struct buf *out, const struct chat_head *h); // the first chunk
void chat_write_delta(struct buf *out, const struct chat_head *h, const char *text, size_t len);
// The last ones: the reason, the usage where it was asked for, and [DONE].
void chat_write_end(struct buf *out, const struct chat_head *h, const struct turn_view *t);
void chat_write_stream_error(struct buf *out, int status, const char *code, const char *message);
void chat_write_error(struct buf *out, int status, const char *code, const char *message,
                      const char *param /* NULL: null */);

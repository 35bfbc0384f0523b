// What chat completions answer: whole ones and the chunks of streamed ones. Text only.
#pragma once
#include "base/buf.h"
#include "ws/completion/completion.h"
#include "ws/openai/answer_head.h"

struct chat_call {
    char id[48];
    char *name;
    struct buf arguments;
    bool is_custom; // arguments is its input
};
struct chat_answer {                     // collected, where it is not streamed
    struct buf text, thinking, logprobs; // logprobs: elements of a JSON array
    struct chat_call *calls;             // (n_calls)
    size_t n_calls;
    enum completion_finish finish;
    bool wants_logprobs;
};
// Takes no memory until chat_answer_take; release it in any case.
void chat_answer_init(struct chat_answer *a, bool wants_logprobs);
void chat_answer_release(struct chat_answer *a);
int chat_answer_take(struct chat_answer *a, const struct completion_event *ev); // E_NOMEM

// answers (n): choices, by their index. Errors stay in out, as everywhere here.
void chat_write_whole(struct buf *out, const struct answer_head *h,
                      const struct chat_answer *answers, size_t n,
                      const struct completion_usage *u);
// Server-sent events, each with its empty line.
void chat_write_role(struct buf *out, const struct answer_head *h, int32_t answer);
// A part of an answer, or its end.
void chat_write_event(struct buf *out, const struct answer_head *h,
                      const struct completion_event *ev);
// The usage where it was asked for, and [DONE].
void chat_write_end(struct buf *out, const struct answer_head *h, const struct completion_usage *u);

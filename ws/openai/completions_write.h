// What POST /v1/completions answers: whole ones, the chunks of streamed ones, and log-probabilities in the
// form of that address.
#pragma once
#include "base/json.h"
#include "sessions/sessions.h"
#include "ws/openai/answer_head.h"

struct completions_usage {
    int64_t prompt_tokens, cached_tokens, completion_tokens;
};

// {"tokens","token_logprobs","top_logprobs","text_offset"}, each an array with an element for each token:
// kept as text, since an answer may be long. Bytes that are no text are written as "bytes:\xe4\xbd".
struct completions_logprobs {
    struct buf tokens, logprobs, tops, offsets; // elements, with commas between
    size_t n, n_chars;                          // n_chars: of the text so far, in code points
};
// n_chars: code points of the text before the first token.
void completions_logprobs_init(struct completions_logprobs *l, size_t n_chars);
size_t completions_chars(const char *s, size_t len); // code points
void completions_logprobs_release(struct completions_logprobs *l);
void completions_logprobs_clear(struct completions_logprobs *l); // but the count of characters
// The prompt's tokens, whose text is `text`. The first one has null.
void completions_logprobs_add_prompt(struct completions_logprobs *l, const struct engine *e,
                                     const struct engine_scores *scores, const char *text,
                                     size_t len);
void completions_logprobs_add(struct completions_logprobs *l, const struct engine *e, int32_t id,
                              float logprob, const struct engine_alternative *alternatives,
                              int32_t n_alternatives);

struct completions_choice { // one element of "choices"
    const char *text;       // (len)
    size_t len, index;
    const struct completions_logprobs *prompt;   // in front of logprobs; NULL: nothing
    const struct completions_logprobs *logprobs; // NULL: null
    const char *finish_reason;                   // NULL: null
};
// Their word for a turn's finish reason.
const char *completions_finish(const char *finish_reason);

// A whole answer in parts: its beginning, a choice each, its end.
void completions_write_begin(struct json_writer *w, const struct answer_head *h);
void completions_write_choice(struct json_writer *w, const struct completions_choice *c);
void completions_write_end(struct json_writer *w, const struct completions_usage *u);
// Server-sent events, each with its empty line. The last: the usage where it was asked for, and [DONE].
void completions_write_chunk(struct buf *out, const struct answer_head *h,
                             const struct completions_choice *c);
void completions_write_last(struct buf *out, const struct answer_head *h,
                            const struct completions_usage *u);

// One answer as a client is told it: a turn's deltas become thinking, text and tool calls with their
// tokens. Net thread.
#pragma once
#include "sessions/answer_parser.h"
#include "ws/completion/completion.h"

struct speech {
    const struct completion_request *request;
    struct answer_parser parser;
    int32_t answer; // its number
    enum completion_finish finish;
    const char *stop; // the stop sequence that ended it
    bool closing;     // no more text comes
    bool ended;       // COMPLETION_ANSWER was told
    char tool_id[48];
    struct completion_token *tokens;       // (n_tokens) that no event has had yet
    struct completion_token *alternatives; // of each of them as many
    size_t n_tokens, n_told;               // n_told: of these, those that the last event had
    struct buf tail;                       // the end of what was said, as it was drawn
    int64_t n_reasoning, drawn_us;
};

void speech_init(struct speech *s, const struct completion_request *r, bool thinks);
void speech_release(struct speech *s);
// One token at a time is to be asked for.
bool speech_wants_tokens(const struct speech *s);
void speech_delta(struct speech *s, const struct session_event *ev);
void speech_end(struct speech *s, const char *text, size_t len, const char *finish);
// 1: *out, whose session and turn are the caller's; 0: none yet; E_NOMEM.
int speech_next(struct speech *s, struct completion_event *out);

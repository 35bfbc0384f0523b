// One answer as events: splits a turn's deltas into thinking, text and tool calls with their tokens. Net
// thread.
#pragma once
#include "ws/completion/call_inputs.h"
#include "ws/completion/drawn_text.h"
#include "ws/completion/event_tokens.h"

struct speech {
    const struct completion_request *request;
    struct answer_parser parser;
    struct call_inputs inputs;
    int32_t answer; // its number
    enum completion_finish finish;
    const char *stop; // the stop sequence that ended it
    bool closing;     // no more text comes
    bool ended;       // COMPLETION_ANSWER was given out
    char tool_id[48];
    struct event_tokens tokens; // those of the last event and later ones
    size_t n_out;               // how many of them the last event had
    struct drawn_text drawn;
    int64_t n_tokens_in; // tokens of all deltas
    int64_t n_reasoning, drawn_us;
};

enum completion_event_kind speech_event_kind(enum answer_piece_kind kind); // one for each

// r is borrowed. thinks: the prompt ends inside the thinking.
void speech_init(struct speech *s, const struct completion_request *r, bool thinks);
void speech_release(struct speech *s);
// True: the caller asks the session for one token at a time.
bool speech_wants_tokens(const struct speech *s);
void speech_delta(struct speech *s, const struct session_event *ev); // EVENT_DELTA, EVENT_SAMPLE
// The turn's end: its last text, and why it ended (turn_view.finish_reason).
void speech_end(struct speech *s, const char *text, size_t len, const char *finish);
// 1: *out, whose session and turn are the caller's; 0: none yet; E_NOMEM.
int speech_next(struct speech *s, struct completion_event *out);

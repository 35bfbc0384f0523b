// See facts.h. A new kind is one more name here; recorded names never change.
#include "sessions/store/facts.h"

static const char *const event_names[EVENT_KINDS] = {"opened",  "updated", "closed", "queued",
                                                     "started", "delta",   "done",   "evicted",
                                                     "rewound", "parked",  "lost"};
static const char *const input_names[] = {"content", "text", "ids", "continue"};

const char *event_kind_name(int kind) {
    return event_names[kind];
}

const char *turn_input_kind_name(enum turn_input_kind kind) {
    return input_names[kind];
}

bool turn_input_has_text(enum turn_input_kind kind) {
    return kind == INPUT_CONTENT || kind == INPUT_TEXT;
}

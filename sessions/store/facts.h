// Kinds and limits of a conversation that its record, the live service and the protocol share.
#pragma once
#include "engine/engine.h"
#include <stdbool.h>
#include <stdint.h>

// A flag of a request: of an update the new value, of a list which sessions it has.
enum record_flag { FLAG_ANY, FLAG_OFF, FLAG_ON };

#define SESSION_ID_MAX 64
#define SERVER_NAME_MAX 16 // what new ids begin with: small letters and digits
#define SESSION_REQUEST_ID_MAX 128
#define SESSION_TITLE_BYTES 200
#define SESSION_FOLDER_CHARS 64 // of UTF-8
#define SESSION_SYSTEM_BYTES 32768
#define SESSION_NOTE_BYTES (256 << 10)
#define SESSION_CANCEL_AFTER_MAX_MS 86400000

// In the place of a turn's number: the empty log before the first turn (null on the wire), and the
// end of the path in use (the key left out).
#define TURN_NONE INT64_C(-1)
#define TURN_HEAD INT64_C(-2)

// CONTINUE goes on with the answer at the end of the log: no text, no ids.
enum turn_input_kind { INPUT_CONTENT, INPUT_TEXT, INPUT_IDS, INPUT_CONTINUE };

struct turn_numbers {
    int64_t input_tokens, output_tokens, log_tokens, kept_tokens, computed_tokens;
    int64_t queue_us, prefill_us, first_token_us, decode_us;
    int64_t paused_us; // while turns of other owners ran instead; of the times above only
                       // first_token_us includes it
    int64_t resume_us; // part of prefill_us: restoring what an earlier turn computed
    enum engine_cache_source source;
};

enum session_event_kind {
    EVENT_OPENED,
    EVENT_UPDATED,
    EVENT_CLOSED,
    EVENT_QUEUED,
    EVENT_STARTED,
    EVENT_DELTA,
    EVENT_DONE,
    EVENT_EVICTED,
    EVENT_REWOUND,
    EVENT_PARKED,
    // A piece of another answer while its turn runs (sessions/clients/branch_deltas.c): it has no number and is never
    // stored.
    EVENT_SAMPLE = 64
};

// Stands for deltas that clients may have seen and a crash took away: it keeps the numbering without gaps.
#define EVENT_LOST (EVENT_PARKED + 1)
#define EVENT_KINDS (EVENT_LOST + 1) // that have a number

const char *event_kind_name(int kind);                       // in [0, EVENT_KINDS): "opened" ...
const char *turn_input_kind_name(enum turn_input_kind kind); // "content", "text", "ids", "continue"
bool turn_input_has_text(enum turn_input_kind kind);         // CONTENT and TEXT

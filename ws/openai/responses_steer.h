// Steering of a response over a WebSocket: response.steer queues input of the user behind a response that runs. When the
// response ends, a successor with the response's own settings answers the queued input.
// Pure data and text.
#pragma once
#include "ws/openai/responses_output.h"
#include <cJSON.h>

struct steer {
    struct steer *prev, *next; // in the order in which they came
    char id[48];               // "": it was not accepted
    char target[RESPONSES_ID_MAX];
    char *input; // JSON: a string, or messages of the user
};

// From {"previous_response_id","input"}. NULL: f says why.
struct steer *steer_read(const cJSON *json, struct completion_failure *f);
void steers_free(struct steer **list);

// {"type":"response.steer.accepted"}. Draws the steer's id.
void steer_write_accepted(struct steer *st, int64_t number, const char *stream_id, struct buf *out);
// {"type":"response.steer.failed"}, with its input, which the client may send again.
void steer_write_failed(const struct steer *st, int64_t number, const char *stream_id,
                        const struct completion_failure *f, struct buf *out);

// The members of a response.create that a successor inherits, as JSON text. Removes the other members from json. NULL: the
// response cannot be steered, or no memory.
char *steer_settings(cJSON *json);
// The successor's response.create. NULL: no memory.
char *steer_successor(const char *settings, const struct steer *list, size_t *len);

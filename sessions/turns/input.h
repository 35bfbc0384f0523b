// A turn's input: from a request's text or ids to the ids that continue a log.
#pragma once
#include "sessions/state/turn.h"

struct session;
struct sessions;

// Everything besides the model that determines the ids.
struct input_source {
    enum turn_input_kind kind;
    const char *text; // CONTENT, TEXT
    size_t text_len;
    const char *system; // CONTENT: the system prompt; NULL: none, or already in the log
    int32_t last_id;    // the last token of the log; -1: the log is empty
    int32_t n_virtual;  // virtual tokens to put in front; 0 if the log is not empty
    // CONTENT: words that stand in place of a model's answer (answer_len); NULL: none
    const char *answer;
    size_t answer_len;
};
// For CONTENT and TEXT, after the path to turn `parent`. Strings are borrowed.
struct input_source input_source_of(const struct session *s, const struct turn_input *in,
                                    int64_t parent);
// Renders and tokenizes, in time that grows with the text. Any thread. E_* with a sentence.
int input_encode(const struct engine *e, const struct input_source *source, struct input_ids *out,
                 struct err *err);
bool input_suits(const struct input_ids *made, const struct input_source *source); // made from it
// Puts the session's virtual tokens before a first input of ids that has none. E_NOMEM.
int input_put_virtual(const struct session *s, struct turn *t);
// Copies the ids that a request brings for CONTENT, after the path to turn `parent`. E_NOMEM.
int input_given(const struct session *s, const struct turn_input *in, int64_t parent,
                struct input_ids *out);
bool input_is_given(const struct turn_input *in);
void input_ids_release(struct input_ids *made);

// E_UNSUPPORTED, with a sentence: the session's model is not served.
int input_no_model(const struct session *s, struct err *err);
// The checks return 0, or E_* with a sentence for the client. input_check and input_make: the session's model is served.
int input_check(const struct session *s, const struct turn_input *in, struct err *err);
// Makes t->input, the ids that continue the present log, unless it has them already.
int input_make(const struct session *s, struct turn *t, struct err *err);
// The refusal of n tokens (at_least: n is a lower bound) where left fit. what: their noun, which begins the
// sentence.
int input_full(const struct session *s, const char *what, int64_t n, bool at_least, int64_t left,
               struct err *err);
// Whether n more tokens fit the session.
int input_check_room(const struct session *s, const struct turn *t, size_t n, struct err *err);
// Whether the log that the turn would follow ends with an answer that can be continued.
int input_check_continue(const struct session *s, const struct turn *t, struct err *err);

// Puts the events of a row's turn into its infer_turn, and counts the tokens that every row has. Net thread
// only.
#pragma once
#include "ws/kserve/infer.h"

// The row as a turn's input, which borrows from it.
struct turn_input infer_turn_input(const struct infer_row *row);

// Each takes one part of an event. E_NOMEM; E_BUSY: the session's log was changed by another client.
int infer_turn_delta(const struct infer *i, struct infer_turn *t, const struct session_event *ev);
// The session's log up to n_ids.
int infer_turn_log(const struct infer *i, struct infer_turn *t, size_t n_ids);
// The context outputs, from their JSON object; NULL is fine.
int infer_turn_context(const struct infer *i, struct infer_turn *t, const char *json);

// At the turn's end: stores the beams after the best one.
int infer_turn_beams(const struct infer *i, struct infer_turn *t, const struct turn_view *v);
void infer_turn_release(struct infer_turn *t);

// FORM_PIECES: how many tokens of every row can be sent now. The last token belongs to the final answer,
// unless the final answer is empty.
size_t infer_steps(const struct infer *i);

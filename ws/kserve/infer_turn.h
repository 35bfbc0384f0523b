// What the events of a row's turn leave in its infer_turn, and how far an answer for each token has
// come. Net thread only.
#pragma once
#include "ws/kserve/infer.h"

struct turn_input infer_turn_input(const struct infer_row *row); // borrowed from it

// Errors: E_NOMEM; E_BUSY where the log is not the one that the turn appends to.
int infer_turn_delta(const struct infer *i, struct infer_turn *t, const struct session_event *ev);
int infer_turn_log(const struct infer *i, struct infer_turn *t, size_t n_ids); // at its end
int infer_turn_context(const struct infer *i, struct infer_turn *t,
                       const char *json); // NULL is fine

// At its end: the beams after the best one.
int infer_turn_beams(const struct infer *i, struct infer_turn *t, const struct turn_view *v);
void infer_turn_release(struct infer_turn *t);

// FORM_PIECES: tokens of every row that can be told of now. The last one belongs to the final answer,
// if that is not an empty one.
size_t infer_steps(const struct infer *i);

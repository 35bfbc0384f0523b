// A session as the database has it, in the form that clients and tools show.
#pragma once
#include "sessions/sessions.h"
#include "sessions/store/record.h"

// Borrowed from the record.
void record_session_view(const struct session_record *r, struct session_view *out);
// Without its text, and without `done` as while it runs; its state is the caller's to set.
void record_turn_view(const struct turn_record *r, bool done, struct turn_view *out);
void stored_turn_view(const struct stored_turn *t, struct turn_view *out);

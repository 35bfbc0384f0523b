// The numbering of one session's events: which number (seq, from 1, without gaps) stands for what.
//
// An entry is one event, or a run of deltas of one turn (one number per sampled token), so a
// session of thousands of tokens needs a few entries per turn. The turn has the text of a delta; an entry
// only says where it is.
#pragma once
#include "sessions/store/record.h"

struct event_entry {
    struct event_record rec; // kind EVENT_DELTA: rec.n tokens
    int64_t first_token;     // EVENT_DELTA: index of the first one in the turn's output
};
struct event_log {
    struct event_entry *entries;
    size_t n, cap;
};

// A zeroed log is empty, and so is a released one.
void event_log_init(struct event_log *l);
void event_log_release(struct event_log *l);
int64_t event_log_seq(const struct event_log *l); // the last number, 0 while empty
// Each returns the new event's number, or E_NOMEM.
int64_t event_log_add(struct event_log *l, int kind, int64_t turn, const char *reason /* or NULL */,
                      int64_t at_ms);
int64_t event_log_add_token(struct event_log *l, int64_t turn, int64_t token);
int64_t event_log_add_lost(struct event_log *l, int64_t n, int64_t turn, int64_t at_ms);
// The entry that holds the number, or NULL.
const struct event_entry *event_log_find(const struct event_log *l, int64_t seq);
// Room for n further entries, so that the next n adds cannot fail. E_NOMEM.
int event_log_reserve(struct event_log *l, size_t n);
// Removes one undelivered event, never a delta; later ones move up.
void event_log_remove(struct event_log *l, int64_t seq);
void event_log_remove_entry(struct event_log *l, size_t i); // one event or one run of deltas
// The number of the first event that is not a delta and comes after seq; 0: none.
int64_t event_log_next_fact(const struct event_log *l, int64_t seq);
// True when `after` lies inside a run of lost deltas: the client has seen tokens that no record has.
bool event_log_is_lost(const struct event_log *l, int64_t after);
// How many tokens of the turn have a number <= seq.
int64_t event_log_tokens_upto(const struct event_log *l, int64_t turn, int64_t seq);

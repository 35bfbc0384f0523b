// The tree of a session's turns, and the log that is one path through it.
//
// Every turn follows its parent (or the empty log), for ever. The session's log is the path from a
// first turn to the head; turns off that path stay on the disk and, unless slim, in memory. Turns are
// marked while they are on the path, so moving the head
// costs what the two paths do not share, however deep or wide the tree is. Net thread.
#pragma once
#include "sessions/state/session.h"

// Takes a turn as the head's next. E_NOMEM.
int tree_add_turn(struct session *s, struct turn *t);
// Links the session's newest turn, wherever the head is, behind its parent's other children.
void tree_link(struct session *s, struct turn *t);
// Removes the session's newest turn, which no event names and which is not on the path.
void tree_unlink_newest(struct session *s);
// Removes a turn, with all turns below it, from its parent's children.
void tree_unlink(struct session *s, struct turn *t);
// Removes the newest turn, which never began: it is the caller's again.
void tree_drop_turn(struct session *s);
// Removes and frees the newest turn with its undelivered events and its part of the log.
void tree_pop_turn(struct session *s);

// Length of the log of the path to this turn, or of TURN_NONE's. A running turn counts as far as it is.
int64_t tree_log_end(const struct session *s, int64_t turn);
int32_t tree_last_id(const struct session *s, int64_t turn); // of that log; -1: it is empty
bool tree_chat_begun(const struct session *s, int64_t turn); // with a chat turn's system prompt
// The newest turn below this one, or itself. E_NOMEM.
int64_t tree_newest_below(const struct session *s, int64_t turn);
// The last turn of the path to `turn` that is on the path in use too, and the end of its log.
int64_t tree_fork_point(const struct session *s, int64_t turn, size_t *n_log);
// Lists the turns of the path to `turn` whose ids are not in memory, newest first (at most as many as
// there are turns). Copying the path's log, and moving the head, need all of them in memory.
size_t tree_missing(const struct session *s, int64_t turn, int64_t *list);
// The log of the path to `turn`, allocated; NULL: no memory.
int32_t *tree_copy_log(const struct session *s, int64_t turn, size_t *n);

// Makes a finished turn, or TURN_NONE, the head. E_NOMEM: nothing has changed.
int tree_move(struct session *s, int64_t to, struct tree_cut *cut);
// Undoes the move, after everything that followed it has been undone. Cannot fail; empties *cut.
void tree_move_back(struct session *s, struct tree_cut *cut);
